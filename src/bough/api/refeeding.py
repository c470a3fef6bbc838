"""What earlier runs have done of a feed: their pages are read again beside the generator, a few at a time.

An element is reused if the same function was fed the same argument at the same place. Rule: what is held
does not grow with the length of the feed, so places are compared, and nothing is looked for elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from bough.api.classes import loads
from bough.api.reuse import row_key
from bough.model.ids import DIGEST_SIZE, MemoKey, RecordId
from bough.model.tasks import Page, Reuse
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.session import Session


def fed_key(key: MemoKey) -> MemoKey:
    """The key of what is fed: other arrays, which are compared as a whole, do not look at feeds."""
    return MemoKey(blake2b(b"fed" + key, digest_size=DIGEST_SIZE).digest()) if key else key


class Earlier:
    """All earlier feeds of a function, newest run first."""

    def __init__(self, session: Session, key: MemoKey) -> None:
        found = session.ask(questions.Feeds(key))
        self._olds = [_Old(session, record) for record in found]

    def reuse(self, pages: Sequence[Page], rows: Sequence[Any], start: int) -> tuple[Reuse, ...]:
        """Which of the rows that begin at `start` have been done."""
        claims: list[Reuse] = []
        missing = [(start, start + len(rows))]
        for old in self._olds:
            left: list[tuple[int, int]] = []
            for low, high in missing:
                at = low
                for first, last in old.same(pages, rows, start, low, high):
                    claims.append(Reuse(first, last, RecordId(old.record), first))
                    left.append((at, first))
                    at = last
                left.append((at, high))
            missing = [piece for piece in left if piece[0] < piece[1]]
            if not missing:
                break
        for old in self._olds:
            old.drop(start + len(rows))
        self._olds = [old for old in self._olds if not old.is_over]
        return tuple(sorted(claims, key=lambda claim: claim.start))


class _Old:
    """One earlier feed, read from its beginning to its end."""

    def __init__(self, session: Session, record: int) -> None:
        self.record = record
        self._session = session
        self._pages: deque[tuple[int, int, bytes]] = deque()
        self._done: deque[tuple[int, int]] = deque()
        self._turn = 0
        self._ended = False  # there are no more pages
        self._loaded: tuple[int, Sequence[Any]] = (-1, ())  # the page that was looked at last

    @property
    def is_over(self) -> bool:
        """Whether it was shorter than what is fed now."""
        return self._ended and not self._pages

    def same(
        self, pages: Sequence[Page], rows: Sequence[Any], start: int, low: int, high: int
    ) -> list[tuple[int, int]]:
        """The elements in [low, high) that were done there with the same arguments; the rows begin at `start`."""
        self._reach(high)
        equal: list[tuple[int, int]] = []
        for first, last, data in self._pages:
            if first >= high:
                break
            begin, end = max(first, low), min(last, high)
            if begin >= end:
                continue
            if any((page.start, page.stop, page.data) == (first, last, data) for page in pages):
                equal.append((begin, end))
                continue
            if self._loaded[0] != first:
                self._loaded = (first, loads(data))
            there = self._loaded[1]
            equal += [
                (index, index + 1)
                for index in range(begin, end)
                if (key := row_key(rows[index - start])) is not None and key == row_key(there[index - first])
            ]
        return [
            (max(a, first), min(b, last))
            for a, b in _joined(equal)
            for first, last in self._done
            if max(a, first) < min(b, last)
        ]

    def _reach(self, stop: int) -> None:
        while not self._ended and (not self._pages or self._pages[-1][1] < stop):
            part = self._session.ask(questions.Fed(RecordId(self.record), self._turn))
            self._pages += part.pages
            self._done += part.done
            self._turn = part.turn
            self._ended = not part.turn

    def drop(self, before: int) -> None:
        """Nothing before this element will be asked for."""
        while self._pages and self._pages[0][1] <= before:
            self._pages.popleft()
        while self._done and self._done[0][1] <= before:
            self._done.popleft()


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined
