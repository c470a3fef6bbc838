"""Models of run times that are asked once for a span, so that long arrays of short tasks cost little to simulate.

Rule: a span takes as long as its elements one by one, up to the rounding of a sum. A run with such a model repeats to
the bit; beside one that asks for each task it may differ by a decision that hung on the last bit of a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate

from bough.errors import UserError
from bough.model.ids import Seconds
from bough.model.tasks import ArraySpec, TaskSpec
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate


class EqualTimes:
    """All tasks take as long, and succeed."""

    def __init__(self, seconds: Seconds) -> None:
        self._fate = Fate(seconds)

    def __call__(self, spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits, /) -> Fate:
        """How one task goes."""
        return self._fate

    def of_span(
        self, spec: TaskSpec | ArraySpec, start: int, stop: int, attempt: int, where: ExecutorTraits, /
    ) -> Seconds:
        """What elements [start, stop) take together."""
        return self._fate.seconds * (stop - start)


class ElementTimes:
    """The elements of arrays take these seconds, each by its index, and succeed. A span costs two look-ups."""

    def __init__(self, seconds: Iterable[Seconds]) -> None:
        self._until = array("d", accumulate(seconds, initial=0.0))  # before each element, all of them
        if len(self._until) == 1:
            raise UserError("no run times are given; give those of all elements")

    def __call__(self, spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits, /) -> Fate:
        """How one task goes."""
        return Fate(self._until[index + 1] - self._until[index])

    def of_span(
        self, spec: TaskSpec | ArraySpec, start: int, stop: int, attempt: int, where: ExecutorTraits, /
    ) -> Seconds:
        """What elements [start, stop) take together."""
        return self._until[stop] - self._until[start]
