"""Numbers that running tasks report of themselves (`bough.here().report`), as observations, few of them.

They join the same series as those that metrics find in what a task prints, and the last of them are kept as lines,
which monitors read (`model.monitoring.monitors.reported_line`). The first ones of a series are told as soon
as 0.2 s have passed since the last time, so that a script sees them at once; later ones as
`executor.monitors.evaluation.thinning` says.

Rules: what a task can make others keep is bounded, however fast it reports. All that it reported is told before the
news of its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bough.executor.monitors.evaluation.thinning import NEVER, Series
from bough.executor.reports import Reports
from bough.model.bounds import MOST_TASKS
from bough.model.events.news import CallsEnded, WorkFailed, WorkObserved, WorkReturned, WorkStopped, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.monitoring.monitors import MOST_REPORTED_LINES, reported_line
from bough.model.monitoring.observations import Observation, Points
from bough.wire.framing import News
from bough.wire.here_questions import MOST_REPORTED, Report

_SOON = 0.2  # seconds between two times, at first
_AT_FIRST = 256  # times that a series is told so soon


class _Reported:
    """One series of a task."""

    __slots__ = ("_last", "_series", "_times")

    def __init__(self, name: str, total: int) -> None:
        self._series = Series(name, total)
        self._times = 0  # that it was told
        self._last = 0.0  # when that was

    def add(self, step: float | None, value: float, now: float) -> None:
        """One more value; without a step, values are counted from 1."""
        self._series.add([self._series.seen + 1.0 if step is None else step], [value], now)

    def is_due(self, now: float) -> bool:
        """Whether something came that is to be told now."""
        due = self._series.due
        return due != NEVER and now >= (due if self._times >= _AT_FIRST else min(due, self._last + _SOON))

    def tell(self, now: float) -> Points | None:
        """What came since the last time."""
        self._times += 1
        self._last = now
        return self._series.tell(now)


class _ReportingTask:
    """What one task reported."""

    __slots__ = ("lines", "series", "skipped")

    def __init__(self) -> None:
        self.series: dict[str, _Reported] = {}  # by metric
        self.lines = bytearray()  # the last ones
        self.skipped = 0  # lines before those that are kept

    def keep(self, lines: bytes) -> None:
        """Keep lines; the older half goes when there are too many."""
        self.lines += lines
        if len(self.lines) > MOST_REPORTED_LINES:
            at = self.lines.find(b"\n", MOST_REPORTED_LINES // 2) + 1
            self.skipped += self.lines.count(b"\n", 0, at)
            del self.lines[:at]


class TaskReports:
    """See the module. `hear` is called with lines that a task has just reported, by its span and index."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._tasks: dict[SpanId, dict[int, _ReportingTask]] = {}  # by span and index
        self.hear: Callable[[SpanId, int, bytes], None] | None = None

    def take(self, span: SpanId, index: int, report: Report) -> str:
        """What a task reports; why it cannot be taken, empty if it can."""
        now = time.time()
        of_span = self._tasks.setdefault(span, {})
        task = of_span.get(index)
        if task is None:
            task = of_span[index] = _ReportingTask()
        found = task.series
        if len(found.keys() | report.values.keys()) > MOST_REPORTED:
            return f"a task reports at most {MOST_REPORTED} different metrics"
        self._reports.before_end = self._ends
        lines = b"" if report.step is None else reported_line("step", report.step)
        for name, value in report.values.items():
            series = found.get(name)
            if series is None:
                series = found[name] = _Reported(name, report.total)
            series.add(report.step, value, now)
            lines += reported_line(name, value)
        task.keep(lines)
        self._tell(span, index, now)
        if self.hear is not None:
            self.hear(span, index, lines)
        return ""

    def lines(self, span: SpanId, index: int) -> tuple[bytes, int]:
        """The last lines that a task reported, and how many came before them."""
        task = self._tasks.get(span, {}).get(index)
        return (bytes(task.lines), task.skipped) if task is not None else (b"", 0)

    def tick(self) -> None:
        """Tell what is due."""
        if self._tasks:
            now = time.time()
            for span, tasks in self._tasks.items():
                for index in tasks:
                    self._tell(span, index, now)

    def _tell(self, span: SpanId, index: int, now: float, *, anyway: bool = False) -> None:
        found = self._tasks[span][index].series.values()
        told = [one.tell(now) for one in found if anyway or one.is_due(now)]
        points: list[Observation] = [one for one in told if one is not None]
        if points:
            self._reports.add(WorkObserved(span, index, points))

    def _ends(self, news: News) -> None:
        """Before news of an end: tell all that is left of the tasks that end, and forget them."""
        for span, start, stop in _ended(news):
            tasks = self._tasks.get(span, {})
            for index in [index for index in tasks if start <= index < stop]:
                self._tell(span, index, time.time(), anyway=True)
                del tasks[index]
            if span in self._tasks and not tasks:
                del self._tasks[span]
        if not self._tasks:
            self._reports.before_end = None


def _ended(news: News) -> Iterator[tuple[SpanId, int, int]]:
    """The spans of which a piece of news says an end, and the elements of each."""
    if isinstance(news, CallsEnded):
        first = news.span + news.start
        yield from ((SpanId(span), 0, MOST_TASKS) for span in range(first, first + len(news.seconds)))
    elif isinstance(news, WorkSucceeded | WorkReturned):
        yield news.span, news.start, news.stop
    elif isinstance(news, WorkFailed | WorkStopped):
        yield news.span, news.index, news.index + 1
