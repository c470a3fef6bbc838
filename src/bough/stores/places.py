"""Where a store has been: it may be moved, or copied, with the directory that it lies in.

The journal names files by their full paths of the day. The file `places` of a store has a line for every folder that a
server opened it in. By it a path of the journal is read as what it is called now: a file of the store is in the store,
and, where the store is that of a project (PROJECT/.bough/NAME), a file of the project is in the project.

Rule: what is written stays as it was written; paths are translated where they are read. The longest folder that a path
begins with decides, so that a copy inside the original, or the other way round, means what it says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from bough import private
from bough.model.events.facts import SpanEnded
from bough.model.outcomes import Detail, Output, ResultFile, Stream

FILE: Final = "places"
_HOME: Final = ".bough"  # the folder of a project's stores
_MOST: Final = 1 << 20  # bytes of the file that are read


def note_place(store_dir: str) -> None:
    """Remember that a store is used where it is now; only for the holder of its lock. OSError when it cannot be."""
    here = os.path.abspath(store_dir)
    if _read(here)[-1:] != [here] and "\n" not in here:
        with open(os.path.join(here, FILE), "ab", opener=private.opener) as file:
            file.write(os.fsencode(here) + b"\n")


def _read(store_dir: str) -> list[str]:
    try:
        with open(os.path.join(store_dir, FILE), "rb") as file:
            return [os.fsdecode(line) for line in file.read(_MOST).split(b"\n") if line]
    except OSError:
        return []


class FormerPlaces:
    """Translates paths from when a store was elsewhere. False: it never was."""

    def __init__(self, store_dir: str) -> None:
        here = os.path.abspath(store_dir) if store_dir else ""
        pairs: dict[str, str] = {}  # the latest place of a name wins
        for former in _read(here) if here else []:
            if former != here:
                pairs |= dict(zip(_roots(former), _roots(here), strict=False))
        self._moves = sorted(pairs.items(), key=lambda pair: -len(pair[0]))
        self._all = sorted((pairs | {root: root for root in _roots(here)}).items(), key=lambda pair: -len(pair[0]))

    def __bool__(self) -> bool:
        return bool(self._moves)

    def now(self, path: str) -> str:
        """What a path of the journal is called now."""
        return next((new + path[len(old) :] for old, new in self._all if path.startswith(old + os.sep)), path)

    def formerly(self, path: str) -> Iterator[str]:
        """What a path of now may have been called, itself included."""
        yield path
        for old, new in self._moves:
            if path.startswith(new + os.sep):
                yield old + path[len(new) :]

    def success(self, fact: SpanEnded) -> SpanEnded:
        """A success with the present paths of what it left."""
        results = fact.results
        if isinstance(results, ResultFile):
            results = replace(results, path=self.now(results.path))
        return replace(fact, results=results, details=tuple(self.detail(one) for one in fact.details))

    def detail(self, detail: Detail) -> Detail:
        """What is known of a run, with the present paths of what it wrote."""
        streams = self._stream(detail.stdout), self._stream(detail.stderr)
        return replace(detail, stdout=streams[0], stderr=streams[1], outputs=tuple(map(self._output, detail.outputs)))

    def _stream(self, stream: Stream | None) -> Stream | None:
        return replace(stream, path=self.now(stream.path)) if stream is not None else None

    def _output(self, output: Output) -> Output:
        return replace(output, path=self.now(output.path))


def _roots(store_dir: str) -> list[str]:
    """The store's own folder, and that of its project if it is in one."""
    home = os.path.dirname(store_dir)
    return [store_dir, os.path.dirname(home)] if os.path.basename(home) == _HOME else [store_dir]
