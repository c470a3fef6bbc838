"""Arguments of functions that are too big to travel with them: files of the server that are brought like others.

Rule: what was small enough to come along is left alone.
"""

from __future__ import annotations

from msgspec.structs import replace

from bough.model.outcomes import ResultFile
from bough.wire.work import Run, Value


def paths_of(run: Run) -> list[str]:
    """The files of a server that a function's arguments lie in."""
    found = [run.payload_path] if run.payload_path else []
    for value in run.inputs:
        found += [page.path for _, _, page in value.pages if isinstance(page, ResultFile)]
    return list(dict.fromkeys(found))


def with_paths(run: Run, files: dict[str, str]) -> Run:
    """The same run, with the files where they lie here."""

    def here(value: Value) -> Value:
        pages = [
            (start, stop, replace(page, path=files[page.path]) if isinstance(page, ResultFile) else page)
            for start, stop, page in value.pages
        ]
        return replace(value, pages=pages)

    path = files[run.payload_path] if run.payload_path else ""
    return replace(run, payload_path=path, inputs=[here(value) for value in run.inputs])
