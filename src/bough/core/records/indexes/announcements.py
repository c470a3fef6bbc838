"""What was announced to whom, and who has been busy for so long that something may be announced to him.

Rule: it is advice, see `scheduling.prefetch`: no fact is made of it, and a replay leaves it empty. A task is announced
to one executor at a time; an executor is looked at again when it took something, or when another one took what was
announced to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from bough.core.records.indexes.waiting_units import Unit, UnitKey
from bough.model.ids import Seconds

if TYPE_CHECKING:
    from bough.core.records.executor_record import ExecutorRecord


_MOMENT: Final[Seconds] = 0.1  # for which an executor is busy before something is announced to it
_SOON: Final[Seconds] = 0.01  # after which the next are looked at, if there are more of them than one turn looks at
_AT_ONCE: Final = 16  # executors that are looked at in one turn
_MANY: Final = 4096  # tasks
_LOOK: Final = 32  # tasks that are looked at for one executor


class Announcements:
    """See the module."""

    __slots__ = (
        "_announced", "_in_vain", "_looks_on", "_outstanding", "_rests_until", "_served", "_unheard", "_wanting",
    )  # fmt: skip

    def __init__(self) -> None:
        self._served: dict[int, Seconds] = {}  # executors that were given something, and when; the latest last
        self._wanting: dict[int, None] = {}  # busy ones to which more may be announced
        self._announced: dict[UnitKey, int] = {}  # by task: to which executor
        self._outstanding: dict[int, dict[UnitKey, float]] = {}  # by executor: tasks announced to it, and their cores
        self._unheard: deque[Unit] = deque()  # that became ready, and were not looked at
        self._rests_until: Seconds = 0.0  # there was nothing for somebody
        self._looks_on: Seconds | None = None  # there are more to be looked at
        self._in_vain = 0  # executors that were looked at in a row, and for which there was nothing

    @property
    def due(self) -> Seconds | None:
        """When somebody will have been busy for a moment, or there are more to be looked at."""
        served = next(iter(self._served.values())) + _MOMENT if self._served else None
        if self._looks_on is None or not self._wanting:
            return served
        looks_on = max(self._looks_on, self._rests_until)  # never a time at which nobody would be looked at
        return looks_on if served is None else min(looks_on, served)

    def became_ready(self, unit: Unit, ready: int) -> None:
        """A task waits to be placed, as about so many do; those that went meanwhile are dropped now and then."""
        self._unheard.append(unit)
        self._in_vain = 0
        if self._looks_on is None and self._wanting:
            self._looks_on = self._rests_until
        if len(self._unheard) > 2 * ready + _MANY:
            self._unheard = deque(one for one in self._unheard if one.is_ready)

    def first_unheard(self, choose: Callable[[Unit], bool | None]) -> Unit | None:
        """The first that became ready, was not looked at, and is chosen; None of `choose`: it cannot run there.

        What is not chosen is not looked at again, but for what cannot run there.
        """
        unheard = self._unheard
        passed: list[Unit] = []
        found: Unit | None = None
        for _ in range(min(_LOOK, len(unheard))):
            unit = unheard.popleft()
            if unit.is_ready and unit.key not in self._announced:
                answer = choose(unit)
                if answer:
                    found = unit
                    break
                if answer is None:
                    passed.append(unit)
        unheard.extendleft(reversed(passed))
        return found

    def is_due(self, now: Seconds) -> bool:
        """Whether it is time to look."""
        if self._served and next(iter(self._served.values())) + _MOMENT <= now:
            return True
        return bool(self._wanting) and now >= self._rests_until

    def served(self, executor: int, now: Seconds) -> None:
        """An executor was given something."""
        self._served.pop(executor, None)
        self._served[executor] = now

    def placed(self, key: UnitKey, executor: int) -> None:
        """A task was placed; if it was announced to another executor, that one may have something else."""
        whose = self._announced.pop(key, None)
        if whose is not None:
            self._outstanding[whose].pop(key, None)
            if whose != executor:
                self._wanting[whose] = None

    def is_announced(self, key: UnitKey) -> bool:
        """Whether a task was announced to somebody."""
        return key in self._announced

    def left(self, executor: int, units: Mapping[UnitKey, Unit]) -> None:
        """An executor is gone: what was announced to it may be announced to another; `units`: what is ready."""
        self._served.pop(executor, None)
        for key in self._forget(executor):
            unit = units.get(key)
            if unit is not None:
                self._unheard.appendleft(unit)

    def look(self, executors: Mapping[int, ExecutorRecord], now: Seconds) -> Iterator[ExecutorRecord]:
        """Executors that have been busy for a moment, and to which more may be announced."""
        served = self._served
        for number in list(takewhile(lambda one: served[one] + _MOMENT <= now, served)):
            del served[number]
            self._wanting[number] = None
        self._looks_on = now + _SOON if len(self._wanting) > _AT_ONCE else None
        for number in list(islice(self._wanting, _AT_ONCE)):
            executor = executors.get(number)
            if executor is None or executor.wide or executor.draining or executor.away or executor.suspended:
                self._forget(number)
            else:
                yield executor

    def _forget(self, number: int) -> list[UnitKey]:
        self._wanting.pop(number, None)
        keys = list(self._outstanding.pop(number, ()))
        for key in keys:
            self._announced.pop(key, None)
        return keys

    def room(self, executor: ExecutorRecord, units: Mapping[UnitKey, Unit]) -> float:
        """The cores for which something may still be announced to an executor; `units`: the tasks that are ready."""
        outstanding = self._outstanding.get(executor.id)
        if not outstanding:
            return executor.capacity.cores
        for key in [key for key in outstanding if (unit := units.get(key)) is None or not unit.is_ready]:
            del outstanding[key]
            self._announced.pop(key, None)
        return executor.capacity.cores - sum(outstanding.values())

    def note(self, key: UnitKey, executor: ExecutorRecord, cores: float) -> None:
        """A task was announced."""
        self._announced[key] = executor.id
        self._outstanding.setdefault(executor.id, {})[key] = cores

    def satisfied(self, executor: ExecutorRecord) -> None:
        """Enough was announced to an executor, until it takes something."""
        self._wanting.pop(executor.id, None)
        self._in_vain = 0

    def unsatisfied(self, executor: ExecutorRecord, now: Seconds) -> None:
        """There was nothing for an executor: others are looked at first, after a moment, if one was not yet."""
        self._wanting.pop(executor.id, None)
        self._wanting[executor.id] = None
        self._rests_until = now + _MOMENT
        self._in_vain += 1
        self._looks_on = self._rests_until if self._in_vain < len(self._wanting) else None
