"""When executors may ask for work next, by the gaps between the times when they took something.

Rule: what took nothing yet may ask at any time. It is advice: a replay leaves it empty.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import Final

from bough.core.data.data_index import DataIndex
from bough.core.records.executor_record import ExecutorRecord
from bough.model.ids import Seconds

_OF_A_HOST: Final = 8  # executors that are asked when one of them may want work
_SOON: Final = 1024  # executors that may ask next, of which it is known by host


class Arrivals:
    """See the module."""

    __slots__ = (
        "_data", "_executors", "_expected", "_gaps", "_host_of", "_idle", "_idle_at", "_moved", "_named", "_soon",
        "_soon_until",
    )  # fmt: skip

    def __init__(self, data: DataIndex, executors: Mapping[int, ExecutorRecord]) -> None:
        self._data = data
        self._executors = executors
        self._host_of: dict[int, int] = {}  # by executor: the number of its host
        # by executor: when it took something last, the sum of the gaps, how many, when it may ask next
        self._gaps: dict[int, list[float]] = {}
        self._expected: list[tuple[float, int]] = []  # when an executor may ask next; sorted, but for those that moved
        self._moved: dict[int, float] = {}  # by executor: when it was expected; see `_sort_expected`
        self._soon: dict[int, Seconds] = {}  # see `until`, for this time:
        self._soon_until: Seconds = -1.0
        self._named = _SOON  # so many were named as the next ones when somebody asked for them last
        self._idle: set[int] = set()  # executors that took nothing yet, and may ask at any time
        self._idle_at: dict[int, int] = {}  # by host: how many of them

    def joined(self, executor: int, host: int) -> None:
        """An executor is at a host."""
        self._host_of[executor] = host
        self._soon_until = -1.0
        if executor not in self._gaps and executor not in self._idle:
            self._idle.add(executor)
            self._idle_at[host] = self._idle_at.get(host, 0) + 1

    def left(self, executor: int, host: int) -> None:
        """An executor is gone, and has left its host."""
        self._host_of.pop(executor, None)
        self._soon_until = -1.0
        self._forget_idle(host, executor)
        known = self._gaps.pop(executor, None)
        if known is not None:
            expected = self._moved.pop(executor, known[3])
            del self._expected[bisect_left(self._expected, (expected, executor))]

    def took(self, number: int, now: Seconds) -> None:
        """An executor took something: by the gaps between its turns it is known when it may ask next."""
        known = self._gaps.get(number)
        if known is None:
            self._gaps[number] = [now, 0.0, 0, now]
            insort(self._expected, (now, number))
        else:
            last, total, gaps, former = known
            if now <= last:
                return  # it takes several at once
            total += now - last
            known[:] = now, total, gaps + 1, now + total / (gaps + 1)
            self._moved.setdefault(number, former)
        host = self._host_of.get(number)
        if host is not None and (self._idle or host in self._soon):
            self._asks_later(host, number)

    def _asks_later(self, number: int, executor: int) -> None:
        """An executor of a host took something: when another one, or this one again, may ask there next."""
        self._forget_idle(number, executor)
        if number in self._soon:
            host, gaps = self._data.by_number[number], self._gaps
            some = islice(host.executors, _OF_A_HOST) if host is not None else ()
            when = min([gaps[one][3] if one in gaps else 0.0 for one in some], default=inf)
            if when <= self._soon_until:
                self._soon[number] = when
            else:
                del self._soon[number]

    def _forget_idle(self, host: int, executor: int) -> None:
        """An executor took something for the first time, or left."""
        if executor in self._idle:
            self._idle.remove(executor)
            self._idle_at[host] -= 1
            if not self._idle_at[host]:
                del self._idle_at[host]

    def _sort_expected(self) -> None:
        """Put those that asked since it was last looked where they belong now."""
        expected = self._expected
        for number, former in self._moved.items():
            del expected[bisect_left(expected, (former, number))]
            insort(expected, (self._gaps[number][3], number))
        self._moved.clear()

    def until(self, latest: Seconds) -> dict[int, Seconds]:
        """By host: when an executor of it may ask for work, those that may do so until then.

        Of those that took something before, only as many as `first` was last asked for, which are the next ones.
        """
        if latest != self._soon_until:
            self._sort_expected()
            self._soon_until, self._soon = latest, dict.fromkeys(islice(self._idle_at, _SOON), 0.0)
            for when, number in islice(self._expected, self._named):
                if when > latest:
                    break
                host = self._host_of.get(number)
                if host is not None:
                    self._soon.setdefault(host, when)
        return self._soon

    def expected(self, executor: int, now: Seconds) -> Seconds:
        """When an executor may ask for work next."""
        known = self._gaps.get(executor)
        return max(now, known[3]) if known is not None else now

    def first(self, most: int, now: Seconds) -> list[tuple[Seconds, ExecutorRecord]]:
        """The executors that may ask next, and when."""
        self._named, self._soon_until = min(most, _SOON), -1.0
        self._sort_expected()
        return [(max(now, when), self._executors[number]) for when, number in islice(self._expected, most)]
