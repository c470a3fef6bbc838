"""What tasks that wait here will read, so that it can be brought before they begin.

The rows of an array are the user's values, which only workers may unpickle: here nothing but plain values and our own
descriptions of tables is read. Rule: whatever is not plain is not known here, and is brought when its task begins.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import Any, Final

from bough.model.commands.command import CommandTemplate, Transfer, decode_call, decode_template
from bough.model.commands.playpens import put_files
from bough.model.commands.rendering import row_files, row_transfers
from bough.model.files import is_remote
from bough.model.ids import BlobId
from bough.model.tasks import Kind
from bough.wire.executor_messages import RunSpan

_KEPT: Final = 8  # tables and templates
_MOST: Final = 64 << 20  # bytes of a table that are read for this
_PATHS: Final = frozenset({"Path", "PosixPath", "PurePosixPath", "PurePath"})


class _PlainUnpickler(pickle.Unpickler):
    """Makes plain values, paths, and tables of ours."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "bough.model.spaces" or (module in {"pathlib", "pathlib._local"} and name in _PATHS):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not plain")


def load_plain(data: bytes) -> Any:
    """What a pickle of plain values holds; an exception of any kind when it is something else."""
    return _PlainUnpickler(io.BytesIO(data)).load()


def _that_travel(paths: Iterable[str]) -> list[str]:
    """Those that are paths at the submitter, or URLs; a file of a site's own storage is read where it lies."""
    return [path for path in dict.fromkeys(paths) if path.startswith("/") or is_remote(path)]


def _early(reads: Iterable[str], transfers: Iterable[Transfer]) -> list[str]:
    """Of a command's files those that can be brought before it begins: what is put is sent when it does."""
    put = put_files(transfers)
    return [path for path in _that_travel(reads) if path not in put]


class DeclaredInputs:
    """See the module. `blobs`: those of the executor."""

    def __init__(self, blobs: dict[BlobId, bytes]) -> None:
        self._blobs = blobs
        self._made: dict[BlobId, Any] = {}  # None: it cannot be read here

    def of(self, run: RunSpan, index: int) -> list[str]:
        """The paths at the submitter and the URLs that an element of a span of commands reads; none: not known."""
        if run.kind != Kind.COMMAND or not run.start <= index < run.stop:
            return []
        try:
            if not run.is_array:
                if run.payload_path:
                    return []
                call = decode_call(run.payload)
                return _early(call.reads, call.transfers)
            template, row = self._make(run.body, decode_template), self._row(run, index)
            if not isinstance(template, CommandTemplate) or row is None:
                return []
            return _early(row_files(template, row)[0], row_transfers(template, row))
        except Exception:  # noqa: BLE001 -- whatever it is, the task says so when it begins
            return []

    def _row(self, run: RunSpan, index: int) -> Any:
        if run.table:
            table = self._make(run.table, load_plain)
            return None if table is None else table[index]
        for page in run.pages:
            if page.start <= index < page.stop and len(page.data) <= _MOST:
                return load_plain(page.data)[index - page.start]
        return None

    def _make(self, blob: BlobId, make: Any) -> Any:
        if blob not in self._made:
            if len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            data = self._blobs.get(blob, b"")
            try:
                self._made[blob] = make(data) if 0 < len(data) <= _MOST else None
            except Exception:  # noqa: BLE001 -- see the module
                self._made[blob] = None
        return self._made[blob]
