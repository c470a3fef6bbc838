"""A simulated cache: the files that a host, or a site, holds, bounded in bytes by the real eviction policies.

It does what the cache of a live host does: what a task needs is pinned and stays; what is bigger than the cache passes
through it; when it is too full, the policy ranks what may go. The only copy of an output stays.
Rules: what is held is at most the limit, but for what is pinned. A file's rank is asked for when something changes that
ranks go by, so that a file that comes costs no look at all the others; the dice of `random` are thrown for each choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from random import Random

from bough.model.ids import Seconds
from bough.policies.eviction.needed_last import NeededLast
from bough.policies.eviction.random_eviction import RandomEviction
from bough.policy.interface import EvictionPolicy


class StoredFile:
    """A file that is held, as eviction policies see it."""

    __slots__ = ("inserted", "pins", "size", "stamp", "used", "uses", "wanted")

    def __init__(self, size: int, now: Seconds, wanted: int) -> None:
        self.size = size
        self.inserted = self.used = now
        self.uses = 0
        self.wanted = wanted
        self.pins = 0
        self.stamp = 0  # of its newest entry in the heap


class SimulatedStore:
    """See the module."""

    def __init__(self, name: str, site: str, limit: float, policy: EvictionPolicy, dice: Random) -> None:
        self.name = name  # of its host; empty: it is the store of a site
        self.site = site
        self.limit = limit
        self.held = 0  # bytes
        self.serving = 0  # transfers from it that are under way
        self._policy = policy
        self._dice = dice
        self._files: dict[int, StoredFile] = {}
        self._wanted: dict[int, int] = {}  # by file: how many known tasks will read it
        self._throws = isinstance(policy, RandomEviction)
        self._is_bounded = limit < inf
        self._stamp = 0
        self.heeds_wants = limit < inf and isinstance(policy, NeededLast)  # who will read a file matters
        self._heap: list[tuple[tuple[float, ...], int, int]] = []  # rank, file, stamp: what may go

    def __contains__(self, file: int) -> bool:
        """Whether it holds a file."""
        return file in self._files

    def __iter__(self) -> Iterator[int]:
        """What it holds."""
        return iter(self._files)

    def __len__(self) -> int:
        """How many files it holds."""
        return len(self._files)

    def fits(self, size: int) -> bool:
        """Whether it would hold a file of so many bytes."""
        return size <= self.limit

    @property
    def pinned(self) -> int:
        """Bytes that must stay."""
        return sum(one.size for one in self._files.values() if one.pins)

    def add(self, file: int, size: int, now: Seconds) -> None:
        """A file has come; the caller sees to it that it fits, and calls `make_room`."""
        if file not in self._files:
            entry = self._files[file] = StoredFile(size, now, self._wanted.get(file, 0))
            self.held += size
            self._offer(file, entry)

    def drop(self, file: int) -> None:
        """A file is gone."""
        self.held -= self._files.pop(file).size

    def pin(self, file: int) -> None:
        """A file must stay until it is unpinned as often."""
        self._files[file].pins += 1

    def unpin(self, file: int) -> None:
        """One who needed a file needs it no more."""
        entry = self._files.get(file)
        if entry is not None and entry.pins:
            entry.pins -= 1
            self._offer(file, entry)

    def use(self, file: int, now: Seconds) -> None:
        """A file is read, here or by another host."""
        entry = self._files[file]
        entry.used = now
        entry.uses += 1
        self._offer(file, entry)

    def want(self, file: int, change: int) -> None:
        """So many more tasks will read a file, or fewer."""
        count = self._wanted.get(file, 0) + change
        if count > 0:
            self._wanted[file] = count
        else:
            self._wanted.pop(file, None)
        entry = self._files.get(file)
        if entry is not None:
            entry.wanted = max(count, 0)
            self._offer(file, entry)

    def make_room(self) -> list[int]:
        """Give up what is too much: the files, which it holds no more."""
        gone: list[int] = []
        while self.held > self.limit and (file := self._next_to_go()) >= 0:
            self.drop(file)
            gone.append(file)
        return gone

    def _next_to_go(self) -> int:
        if self._throws:
            able = [
                (self._policy.rank(entry, self._dice), file) for file, entry in self._files.items() if not entry.pins
            ]
            return min(able)[1] if able else -1
        heap, files = self._heap, self._files
        while heap:
            _, file, stamp = heappop(heap)
            entry = files.get(file)
            if entry is not None and entry.stamp == stamp and not entry.pins:
                return file
        return -1

    def _offer(self, file: int, entry: StoredFile) -> None:
        """What ranks go by has changed: an older entry in the heap does not count any more."""
        if not self._is_bounded or self._throws:
            return
        self._stamp += 1
        entry.stamp = self._stamp
        if entry.pins:
            return
        heappush(self._heap, (self._policy.rank(entry, self._dice), file, entry.stamp))
        if len(self._heap) > 4 * len(self._files) + 64:
            files = self._files
            self._heap = [one for one in self._heap if (kept := files.get(one[1])) is not None and kept.stamp == one[2]]
            heapify(self._heap)
