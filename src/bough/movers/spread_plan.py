"""Who takes a content from whom: a file that many want goes along chains and trees, not n times from the server.

An executor that is still getting a content serves it as it comes, so that the next reader is put behind the last one
of a chain. A source that serves others already, or is many steps away from a complete copy, is chosen later; when
chains are long they branch. Pure: the caller says who holds a content, and who is near. A server plans for all its
executors; a relay that shares out work plans for those behind it, and takes what the server names as its origin.

Rules: nobody waits, directly or through others, for itself. No executor serves more than a bounded number, and no link
between two sites carries more. The server is chosen only when no executor can serve; while it sends to as many as it
should, executors serve a few more than otherwise. Cost is bounded by those that hold or get the content.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

ORIGIN: Final = 0  # the server, as a source; for a relay: what the server names
MOST_READERS: Final = 4  # of one executor at a time
MOST_BUSY: Final = 6  # the same while the server sends to as many as it should; it serves more, if some fail elsewhere
MOST_OF_SERVER: Final = 16  # readers that the server should have at a time, if others have what they want
MOST_ON_LINK: Final = 16  # contents that come from one site to another at a time, if nobody says more or less
_WIDTH: Final = 8  # steps of a chain that a second reader of one source is worth
_FAR: Final = 6  # steps that a source on another site is worth
_BACKUPS: Final = 2  # sources besides the best, to be tried if that fails
_MOST_SEEN: Final = 64  # complete holders that are looked at


T = TypeVar("T")


class Link(NamedTuple):
    """The way from the site of a source to that of a reader."""

    source: str
    reader: str


class Candidate(NamedTuple):
    """An executor that serves others."""

    executor: int
    link: Link | None = None  # that is crossed; None: it is at the reader's site
    most: int = MOST_ON_LINK  # contents that may cross it at a time


class _Option(NamedTuple):
    """A candidate, as it compares with others: the least one is the best."""

    is_busy: bool  # it has as many readers as it should
    cost: int
    is_partial: bool
    executor: int


class SpreadPlan:
    """See the module."""

    def __init__(self) -> None:
        self._sources: dict[bytes, dict[int, int]] = {}  # by content: the source of each reader
        self._load: dict[int, int] = {}  # readers of each source, over all contents
        self._crossing: dict[tuple[bytes, int], Link] = {}  # by content and reader, if it comes from another site
        self._on_link: dict[Link, int] = {}  # how many of these

    def load(self, source: int) -> int:
        """How many take something from a source now."""
        return self._load.get(source, 0)

    def on_link(self, link: Link) -> int:
        """How many contents come over a link now."""
        return self._on_link.get(link, 0)

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
        found: dict[_Option, Link | None] = {}
        for holder in itertools.islice(holders, _MOST_SEEN):
            if holder.executor not in reading:  # one that is getting it does not have it, whatever was said
                self._consider(found, holder, 0, reader, excluded)
        for other in reading:
            depth = self._depth(reading, other, reader)
            getting = candidate(other) if depth >= 0 else None
            if getting is not None:
                self._consider(found, getting, depth, reader, excluded)
        ranked = sorted(found)
        best = ranked[0].executor if ranked else ORIGIN
        self._sources.setdefault(digest, {})[reader] = best
        self._load[best] = self.load(best) + 1
        link = found[ranked[0]] if ranked else None
        if link is not None:
            self._crossing[digest, reader] = link
            self._on_link[link] = self.on_link(link) + 1
        backups = [option.executor for option in ranked[1:] if not option.is_partial][:_BACKUPS]
        return [best, *backups] if ranked else []

    def _consider(
        self, found: dict[_Option, Link | None], one: Candidate, depth: int, reader: int, excluded: Collection[int]
    ) -> None:
        source, link = one.executor, one.link
        load = self.load(source)
        most = MOST_READERS if self.load(ORIGIN) < MOST_OF_SERVER else MOST_BUSY
        if source == reader or source in excluded or load >= most:
            return
        if link is None or self.on_link(link) < one.most:
            cost = _WIDTH * load + depth + (0 if link is None else _FAR)
            found[_Option(load >= MOST_READERS, cost, depth > 0, source)] = link

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
        _release(self._load, reading.pop(reader))
        link = self._crossing.pop((digest, reader), None)
        if link is not None:
            _release(self._on_link, link)
        if not reading:
            del self._sources[digest]

    def gone(self, executor: int) -> None:
        """An executor has left: it reads nothing more. Its readers notice, and ask again."""
        for digest in [digest for digest, reading in self._sources.items() if executor in reading]:
            self.ended(digest, executor)


def _release(counts: dict[T, int], key: T) -> None:
    """One fewer; what is at none is forgotten."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
