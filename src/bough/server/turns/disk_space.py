"""Tells users and operators that the disk of the store is full, and that everything waits for space.

The server notices itself when it cannot write its journal, and when little space is left. Clients that write files and
arguments into the store wait by themselves, and so do workers that write results and output: for a big one there may be
too little space long before the disk is full. Executors say which of their spans wait.
Rule: it is said once, and again only after there was space in between.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence

from bough.core.queries.answers import Attempt
from bough.core.queries.facade import Queries
from bough.model.ids import ExecutorId, SpanId
from bough.model.sites.resources import show_bytes

_LOOK = 1.0  # seconds between looks
_FULL = 256 << 10  # bytes free: what a result that is written beside the journal has at least
_SPACE = 4 * _FULL  # with which it counts as over
_UNKNOWN = 1 << 62  # bytes, where it cannot be told


class FullDiskNotice:
    """See the module. It looks from `watch` until the loop ends."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, queries: Queries, folder: str, announce: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._queries = queries
        self._folder = folder
        self._announce = announce
        self._is_low = False  # little space is left
        self._is_told = False
        self._awaited: dict[ExecutorId, list[SpanId]] = {}  # spans that wait for space, by executor

    def watch(self) -> None:
        """Look now, and again every second."""
        self._loop.call_later(_LOOK, self.watch)
        self._look()

    def awaited(self, executor: ExecutorId, spans: Sequence[SpanId]) -> None:
        """An executor says which of its spans wait for space."""
        before = self._awaited.pop(executor, None)
        own = [span for span in spans if (attempt := self._queries.attempt(span)) and attempt.executor == executor]
        if own:
            self._awaited[executor] = own
        if own or before:
            self._look()

    def waiting(self) -> Iterator[tuple[Attempt, str]]:
        """The attempts that wait for space, and what to say of each."""
        said = f"waits for space on the disk of {self._folder}, to write its result or output"
        for spans in self._awaited.values():
            for span in spans:
                attempt = self._queries.attempt(span)
                if attempt is not None:
                    yield attempt, said

    def _look(self) -> None:
        free = free_space(self._folder)
        self._is_low = free < (_SPACE if self._is_low else _FULL)
        was_told, self._is_told = self._is_told, self._is_low or bool(self._awaited)
        if was_told and not self._is_told:
            self._announce(f"there is space again on the disk of {self._folder}")
        elif self._is_told and not was_told:
            left = "" if free == _UNKNOWN else f" ({show_bytes(free)} left)"
            text = "free some space; results, outputs and files wait until then"
            self._announce(f"the disk of {self._folder} is full{left}: {text}")


def free_space(folder: str) -> int:
    """Bytes that we may still write where a folder is; many when that cannot be told."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return _UNKNOWN
    return found.f_bavail * found.f_frsize
