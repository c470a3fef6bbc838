"""What was seen of tasks that have not ended: their metrics, tags, what fired last and what watches them badly.

It is kept for questions and for rules about populations; the jobs database has all of it, also of tasks that have
ended. Rule: what one task can make the core keep is bounded: a series that is full loses every second point, its first
and its last one never; of all else only so many are kept. It is a function of the facts, so that a replay and a
snapshot give the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bough.model.ids import Seconds
from bough.model.monitoring.observations import Fired, Observation, Points, Trouble

MOST_KEPT = 256  # points of one metric
MOST_METRICS = 32  # of one task
MOST_TAGS = 64
MOST_FIRED = 16  # the last ones
MOST_TROUBLES = 4

Point = tuple[float, Seconds, float]  # step, time, value


class Series(msgspec.Struct):
    """The values of one metric of one attempt."""

    points: list[Point] = []
    total: int = 0  # steps of a whole run, 0: not known

    def add(self, points: Iterable[Point]) -> None:
        """More values, which come after those that are there."""
        for point in points:
            if len(self.points) >= MOST_KEPT:
                self.points = [*self.points[:-1:2], self.points[-1]]
            self.points.append(point)


class Seen(msgspec.Struct):
    """What was seen of one attempt of a task."""

    attempt: int
    metrics: dict[str, Series] = {}
    tags: list[str] = []  # in the order in which they were given
    fired: list[Fired] = []
    troubles: list[Trouble] = []

    def add(self, observations: Iterable[Observation]) -> None:
        """More was seen."""
        for one in observations:
            if isinstance(one, Points):
                self._add_points(one)
            elif isinstance(one, Fired):
                self.fired = [*self.fired, one][-MOST_FIRED:]
                if one.action == "tag" and one.name not in self.tags and len(self.tags) < MOST_TAGS:
                    self.tags.append(one.name)
            else:
                self.troubles = [*self.troubles, one][-MOST_TROUBLES:]

    def _add_points(self, news: Points) -> None:
        series = self.metrics.get(news.metric)
        if series is None:
            if len(self.metrics) >= MOST_METRICS:
                return
            series = self.metrics[news.metric] = Series()
        series.total = news.total or series.total
        series.add(news.points)


class SeenTasks:
    """What was seen, by record and element, of the newest attempt of tasks that have not ended."""

    __slots__ = ("by_record",)

    def __init__(self) -> None:
        self.by_record: dict[int, dict[int, Seen]] = {}

    def of(self, record: int, index: int) -> Seen | None:
        """What was seen of an element."""
        elements = self.by_record.get(record)
        return elements.get(index) if elements is not None else None

    def add(self, record: int, index: int, attempt: int, observations: Iterable[Observation]) -> None:
        """Something was seen of an attempt; what an older one says counts no more."""
        elements = self.by_record.setdefault(record, {})
        seen = elements.get(index)
        if seen is None or seen.attempt < attempt:
            seen = elements[index] = Seen(attempt)
        if seen.attempt == attempt:
            seen.add(observations)

    def forget(self, record: int, start: int, stop: int) -> None:
        """Elements have ended, or their record is gone."""
        elements = self.by_record.get(record)
        if elements is None:
            return
        few = range(start, stop) if stop - start < len(elements) else list(elements)
        for index in few:
            if start <= index < stop:
                elements.pop(index, None)
        if not elements:
            del self.by_record[record]
