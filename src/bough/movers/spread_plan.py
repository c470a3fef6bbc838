"""Who takes a content from whom: a file that many want goes along chains and trees, not n times from the server.

An executor that is still getting a content serves it as it comes, so that the next reader is put behind the last one
of a chain. A source that serves others already, or is many steps away from a complete copy, is chosen later; when
chains are long they branch. Pure: the caller says who holds a content, and who is near. A server plans for all its
executors; a relay that shares out work plans for those behind it, and takes what the server names as its origin.

Rules: nobody waits, directly or through others, for itself. No source serves more than a bounded number. The server is
chosen only when no executor can serve. Cost is bounded by those that hold or get the content.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

ORIGIN: Final = 0  # the server, as a source; for a relay: what the server names
MOST_READERS: Final = 4  # of one source at a time
_WIDTH: Final = 8  # steps of a chain that a second reader of one source is worth
_FAR: Final = 6  # steps that a source on another site is worth
_BACKUPS: Final = 2  # sources besides the best, to be tried if that fails
_MOST_SEEN: Final = 64  # complete holders that are looked at


class Candidate(NamedTuple):
    """An executor that serves others."""

    executor: int
    is_near: bool = True  # at the reader's site


class SpreadPlan:
    """See the module."""

    def __init__(self) -> None:
        self._sources: dict[bytes, dict[int, int]] = {}  # by content: the source of each reader
        self._load: dict[int, int] = {}  # readers of each source, over all contents

    def load(self, source: int) -> int:
        """How many take something from a source now."""
        return self._load.get(source, 0)

    def source_of(self, digest: bytes, reader: int) -> int | None:
        """From whom a reader takes a content; None: it does not."""
        return self._sources.get(digest, {}).get(reader)

    def choose(
        self,
        digest: bytes,
        reader: int,
        holders: Iterable[Candidate],
        candidate: Callable[[int], Candidate | None],
        excluded: Collection[int] = (),
    ) -> Sequence[int]:
        """Sources for a reader, the best first; none: the server. The best counts as taken.

        `holders` have all of the content; `candidate` says of one that is getting it whether it can serve the reader.
        """
        self.ended(digest, reader)
        reading = self._sources.get(digest, {})
        ranked: list[tuple[int, bool, int]] = []
        for holder in itertools.islice(holders, _MOST_SEEN):
            if holder.executor not in reading:  # one that is getting it does not have it, whatever was said
                self._consider(ranked, holder, 0, reader, excluded)
        for other in reading:
            depth = self._depth(reading, other, reader)
            found = candidate(other) if depth >= 0 else None
            if found is not None:
                self._consider(ranked, found, depth, reader, excluded)
        ranked.sort()
        best = ranked[0][2] if ranked else ORIGIN
        self._sources.setdefault(digest, {})[reader] = best
        self._load[best] = self.load(best) + 1
        backups = [executor for _, is_partial, executor in ranked[1:] if not is_partial][:_BACKUPS]
        return [best, *backups] if ranked else []

    def _consider(
        self, ranked: list[tuple[int, bool, int]], found: Candidate, depth: int, reader: int, excluded: Collection[int]
    ) -> None:
        source = found.executor
        load = self.load(source)
        if source != reader and source not in excluded and load < MOST_READERS:
            cost = _WIDTH * load + depth + (0 if found.is_near else _FAR)
            ranked.append((cost, depth > 0, source))

    @staticmethod
    def _depth(reading: dict[int, int], executor: int, reader: int) -> int:
        """How many steps an executor is from a complete copy; -1: what it gets comes from the reader."""
        depth, at = 0, executor
        while at in reading and depth <= len(reading):
            if at == reader:
                return -1
            depth, at = depth + 1, reading[at]
        return -1 if at == reader else depth

    def ended(self, digest: bytes, reader: int) -> None:
        """A reader takes nothing more of a content: it has it, or has given up."""
        reading = self._sources.get(digest)
        if reading is None or reader not in reading:
            return
        self._release(reading.pop(reader))
        if not reading:
            del self._sources[digest]

    def gone(self, executor: int) -> None:
        """An executor has left: it reads nothing more. Its readers notice, and ask again."""
        for digest in [digest for digest, reading in self._sources.items() if executor in reading]:
            self.ended(digest, executor)

    def _release(self, source: int) -> None:
        left = self._load[source] - 1
        if left:
            self._load[source] = left
        else:
            del self._load[source]
