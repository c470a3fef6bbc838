"""A series of values as it is told to others: few points, soon at first and more seldom as the series grows old.

A series is told when it reaches a checkpoint, or when it is a 64th older than at the last time, at least 0.2 s and at
most a minute: some hundred times a day. Each time at most `MOST_POINTS` points are told, the first, the last, the
lowest and the highest since the last time among them; points at checkpoints come on top.

Rule: what is kept and told is bounded, however fast values come.
"""

from __future__ import annotations

from collections.abc import Sequence

from bough.model.monitoring.observations import Points

MOST_POINTS = 8
_OLDER = 64  # it is told when it is this part older
_SOONEST, _LATEST = 0.2, 60.0  # seconds between two times
_BETWEEN = 4  # points that are neither first, last, lowest nor highest
NEVER = float("inf")

_Point = tuple[int, float, float, float]  # which of the series, its step, its time, its value


class Series:
    """The values of one metric of one task. `told`: values that were told of before, which are not told again."""

    def __init__(self, name: str, total: int = 0, checkpoints: Sequence[int] = (), told: int = 0) -> None:
        self.name = name
        self._total = total
        self._checkpoints = sorted(checkpoints, reverse=True)  # those to come, the next one last
        self._skip = told
        self.seen = 0  # values, told or not
        self.told = told  # values that were there when it was told last
        self._began = 0.0  # time of the first value
        self._told_at = 0.0
        self._forget()
        self.due = NEVER  # when it is to be told

    def _forget(self) -> None:
        self._first: _Point | None = None
        self._last = self._lowest = self._highest = (0, 0.0, 0.0, 0.0)
        self._between: list[_Point] = []
        self._every = 1  # values from one point in between to the next
        self._marked: list[_Point] = []

    def add(self, steps: Sequence[float], values: list[float], now: float) -> None:
        """Take in values that came at one time, each with its step."""
        begin, self.seen = self.seen, self.seen + len(values)
        if begin < self._skip:
            drop = min(len(values), self._skip - begin)
            self._pass_checkpoints(steps[:drop])
            steps, values, begin = steps[drop:], values[drop:], begin + drop
        if not values:
            return
        if not self._began:
            self._began = self._told_at = now
        if self._first is None:
            self._first = (begin, steps[0], now, values[0])
            self._lowest = self._highest = self._first
            wait = (now - self._began) / _OLDER
            self.due = self._told_at + min(_LATEST, max(_SOONEST, wait))
        end = len(values) - 1
        self._last = (begin + end, steps[end], now, values[end])
        lowest, highest = min(values), max(values)
        if lowest < self._lowest[3]:
            at = values.index(lowest)
            self._lowest = (begin + at, steps[at], now, lowest)
        if highest > self._highest[3]:
            at = values.index(highest)
            self._highest = (begin + at, steps[at], now, highest)
        self._choose_between(begin, steps, values, now)
        if self._checkpoints and max(steps) >= self._checkpoints[-1]:
            self._mark(begin, steps, values, now)

    def _choose_between(self, begin: int, steps: Sequence[float], values: list[float], now: float) -> None:
        while len(values) // self._every > 2 * _BETWEEN:
            self._thin()
        for at in range(-begin % self._every, len(values), self._every):
            self._between.append((begin + at, steps[at], now, values[at]))
        while len(self._between) > 2 * _BETWEEN:
            self._thin()

    def _thin(self) -> None:
        self._every *= 2
        self._between = [point for point in self._between if point[0] % self._every == 0]

    def _mark(self, begin: int, steps: Sequence[float], values: list[float], now: float) -> None:
        for at, step in enumerate(steps):
            if self._checkpoints and step >= self._checkpoints[-1]:
                self._marked.append((begin + at, step, now, values[at]))
                self._pass_checkpoints([step])
                self.due = now

    def _pass_checkpoints(self, steps: Sequence[float]) -> None:
        reached = max(steps, default=-1.0)
        while self._checkpoints and reached >= self._checkpoints[-1]:
            self._checkpoints.pop()

    def tell(self, now: float) -> Points | None:
        """What is to be told now, whether it is due or not; None: nothing came since the last time."""
        if self._first is None:
            return None
        stride = -(-len(self._between) // _BETWEEN) or 1
        chosen = {self._first, self._last, self._lowest, self._highest, *self._between[::stride], *self._marked}
        points = tuple((step, at, value) for _, step, at, value in sorted(chosen))
        self._forget()
        self.told, self._told_at, self.due = self.seen, now, NEVER
        return Points(self.name, points, self._total)
