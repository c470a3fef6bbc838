"""The engine: one plan that watches one task. Facts and times go in; observations and actions come out.

A monitor is a row of steps of which one watches at a time. What a chunk of lines means is worked out monitor by
monitor, then put in the order of the lines: behind the line at which a step ended the task, nothing is judged or
recorded any more. So the answer depends on what the task wrote, not on the pieces in which it was read.

A watcher that was restarted reads everything again. It is told how far each monitor was (`Progress`), goes on from
there and repeats nothing. Rule: no I/O and no clock here; what comes out is bounded, however much fires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from bough.executor.monitors.evaluation.conditions import (
    NEVER,
    AskedLeaf,
    Branch,
    Complain,
    CreatedLeaf,
    Evidence,
    Hooks,
    Leaf,
    MemoryLeaf,
    PlateauLeaf,
    SilentLeaf,
    Tree,
    begin_anew,
    decide,
    grow,
    leaves,
    numbers,
    read_number,
)
from bough.executor.monitors.evaluation.line_pattern import LinePattern
from bough.executor.monitors.evaluation.line_reader import LONGEST, LineReader
from bough.executor.monitors.evaluation.thinning import Series
from bough.model.bounds import Count, FilePath
from bough.model.ids import Seconds
from bough.model.monitoring.monitors import (
    ENDING,
    REPORTED,
    AddTag,
    Custom,
    Emit,
    Executable,
    Fail,
    Finish,
    Metric,
    Monitor,
    MonitorAction,
    Plateau,
    Restart,
    SendSignal,
    Silent,
    WatchPlan,
    all_conditions,
    conditions_of,
    places_read,
)
from bough.model.monitoring.observations import Fired, Observation, Trouble

MOST_A_SECOND = 10  # firings of repeated steps that are told
MOST_FIRINGS = 10_000  # of one task that are told
MOST_TROUBLES = 10  # of one monitor that are told
_MOST_SAID = 2000  # characters of one
_NAMES = {Finish: "finish", Fail: "fail", Restart: "restart", SendSignal: "signal", AddTag: "tag", Emit: "emit"}


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far a monitor is: for a watcher that begins again."""

    monitor: Count  # by its place in the plan
    step: Count  # the step that watches
    at: Seconds  # since when
    lines: dict[FilePath, Count]  # how many lines of each place came before
    values: Count = 0  # that its plateau had seen


_L = TypeVar("_L", bound=Leaf)


class MonitorHangs(BaseException):
    """Raised from outside into the code of a monitor that takes too long; no function of a user's catches it."""


class Firing(NamedTuple):
    """A step fired."""

    fired: Fired
    action: MonitorAction
    progress: Progress


class Ask(NamedTuple):
    """A function or a program that is to be asked, again and again, until it is no longer named."""

    monitor: int
    step: int
    leaf: int
    condition: Custom | Executable


class _MonitorState:
    """Where one monitor is."""

    def __init__(self, number: int, monitor: Monitor, now: float, hooks: Hooks) -> None:
        self.number = number
        self.monitor = monitor
        self._hooks = hooks
        self.begins: dict[str, int] = {}  # lines of each place that came before the step that watches
        self.enter(0, now)

    def enter(self, step: int, now: float, at: int = 0) -> None:
        """Begin with a step, at a place in the lines at hand."""
        self.step = step
        self.is_over = step >= len(self.monitor.steps)
        self.tree: Tree = Branch([], all_of=False)
        if not self.is_over:
            self.tree = grow(self.monitor.steps[step].condition, now, self._hooks)
        self.leaves = list(leaves(self.tree))
        for leaf in self.leaves:
            leaf.at = at

    def begin_lines(self, where: str, lines: bytes, before: int) -> bool:
        """New lines are at hand, after so many others of the same place; whether the step reads them."""
        reads, begin = False, 0
        for leaf in self.leaves:
            leaf.met_at = 0
            if leaf.where == where:
                if not reads and self.begins.get(where, 0) > before:  # a watcher that began again
                    begin = _place_of_line(lines, self.begins[where] - before)
                reads = True
                leaf.at = begin
        return reads

    def resume(self, progress: Progress) -> None:
        """Go on from where it was."""
        self.enter(progress.step, progress.at)
        self.begins = dict(progress.lines)
        for leaf in self.leaves:
            if isinstance(leaf, PlateauLeaf):
                leaf.count = progress.values

    @property
    def values(self) -> int:
        """Values that a plateau of the step that watches has seen."""
        return max((leaf.count for leaf in self.leaves if isinstance(leaf, PlateauLeaf)), default=0)


class _MetricState:
    """One metric: a pattern, and a series for each of its groups."""

    def __init__(self, number: int, metric: Metric, first: int, told: Mapping[int, int]) -> None:
        self.number = number  # after those of the monitors
        self.metric = metric
        self._pattern = LinePattern(metric.pattern)
        names = {name: at - 1 for name, at in self._pattern.names.items()} or {metric.name: 0}
        self._step = names.pop("step", None)
        self._count = 0
        self._columns = list(names.values())
        self.series = [
            Series(name, metric.total, metric.checkpoints, told.get(first + place, 0))
            for place, name in enumerate(names)
        ]

    def read(self, lines: bytes, now: float, complain: Complain) -> None:
        """Record what lines hold."""
        rows = self._pattern.rows(lines, 0)
        if not rows:
            return
        begin, self._count = self._count + 1, self._count + len(rows)
        steps: Sequence[float] = range(begin, begin + len(rows))
        if self._pattern.groups == 1:
            columns = [rows] * len(self.series)
        else:
            if self._step is not None:
                known = [read_number(row[self._step], complain) for row in rows]
                rows = [row for row, step in zip(rows, known, strict=True) if step is not None]
                steps = [step for step in known if step is not None]
            columns = [[row[column] for row in rows] for column in self._columns]
        for series, column in zip(self.series, columns, strict=True):
            values, places = numbers(column, complain)
            series.add(steps if places is None else [steps[place] for place in places], values, now)


class _FiringLimit:
    """How often repeated steps may fire."""

    def __init__(self) -> None:
        self._second = 0.0  # which began then
        self._in_second = 0
        self._in_all = 0
        self.left_out = 0

    def allows(self, now: float) -> bool:
        """Whether one more may be told."""
        if not 0 <= now - self._second < 1:
            self._second, self._in_second = now, 0
        if self._in_second >= MOST_A_SECOND or self._in_all >= MOST_FIRINGS:
            self.left_out += 1
            return False
        self._in_second += 1
        self._in_all += 1
        return True


class _Met(NamedTuple):
    """A step's condition was met."""

    at: int  # where in the lines at hand
    monitor: int
    step: int
    next: int  # the step that watches from then on
    evidence: Evidence
    values: int  # that its plateau had seen


def _advance(state: _MonitorState, at: int, evidence: Evidence, now: float) -> _Met:
    """A step's condition was met: the next one begins, or the same again."""
    step, seen = state.step, state.values
    if state.monitor.steps[step].repeat:
        begin_anew(state.tree, at, now)
    else:
        state.enter(step + 1, now, at)
    return _Met(at, state.number, step, state.step, evidence, seen)


class Engine:
    """See the module. `inside` is told which monitor's code runs now, by its number, and -1 when none does."""

    def __init__(
        self,
        plan: WatchPlan,
        now: float,
        *,
        progress: Collection[Progress] = (),
        told: Mapping[int, int] | None = None,
        aside: Collection[int] = (),
        inside: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`told`: by its number, how many values of a series were told before; `aside`: numbers of what is left out."""
        self._plan = plan
        self._inside = inside
        self._now = now
        self._found: list[Observation] = []
        self._firings: list[Firing] = []
        self._fresh: list[tuple[PlateauLeaf, Series, int, list[float]]] = []  # values in the lines at hand
        self._troubles: dict[str, set[str]] = {}  # what was said of each monitor
        self._limit = _FiringLimit()
        self.is_over = False  # a step has ended the task
        self.aside: list[int] = []  # monitors and metrics that were set aside since
        self._monitors: list[_MonitorState] = []
        self._series: list[Series] = []
        known = {one.monitor: one for one in progress}
        for number, monitor in enumerate(plan.monitors):
            series = self._plateau_series(monitor, told or {})
            if number not in aside:
                inside(number)
                hooks = Hooks(partial(self.complain, number), partial(self._note, series))
                state = _MonitorState(number, monitor, now, hooks)
                if number in known:
                    state.resume(known[number])
                    for one in series.values():
                        one.seen = known[number].values
                self._monitors.append(state)
        inside(-1)
        self._metrics: list[_MetricState] = []
        for number, metric in enumerate(plan.metrics, len(plan.monitors)):
            made = _MetricState(number, metric, len(self._series), told or {})
            self._series += made.series
            if number not in aside:
                self._metrics.append(made)
        self._readers = {where: LineReader() for where in places_read(plan)}
        self._lines = dict.fromkeys(self._readers, 0)  # lines judged of each place
        self._has_silent = any(isinstance(condition, Silent) for condition in all_conditions(plan))

    def _plateau_series(self, monitor: Monitor, told: Mapping[int, int]) -> dict[str, Series]:
        """The series of a monitor's plateaus, by name; what a task reports is recorded elsewhere."""
        made: dict[str, Series] = {}
        for condition in (one for step in monitor.steps for one in conditions_of(step.condition, monitor.name)):
            if isinstance(condition, Plateau) and condition.where != REPORTED and condition.metric not in made:
                made[condition.metric] = Series(condition.metric, condition.total, told=told.get(len(self._series), 0))
                self._series.append(made[condition.metric])
        return made

    # --- facts ---

    def feed(self, where: str, data: bytes, now: float) -> None:
        """Something was written to a place."""
        self._now = now
        if self.is_over or not data:
            return
        if self._has_silent:
            for leaf in self._leaves(SilentLeaf):
                if where in leaf.watched:
                    leaf.wrote(now)
        reader = self._readers.get(where)
        if reader is None:
            return
        lines = reader.feed(data)
        if lines:
            self._judge(where, lines, now)
        if reader.was_cut:
            reader.was_cut = False
            message = f"{where}: a line is longer than {LONGEST} bytes; only its beginning is looked at"
            self._complain("", message[:_MOST_SAID])

    def pass_over(self, where: str, lines: int) -> None:
        """So many lines were written to a place before those that are fed."""
        if where in self._lines:
            self._lines[where] = lines

    def end_of(self, where: str, now: float) -> None:
        """Nothing more will be written to a place, or it begins anew: a last line without an end counts as one."""
        self._now = now
        reader = self._readers.get(where)
        if reader is not None and not self.is_over and (lines := reader.end()):
            self._judge(where, lines, now)

    def appeared(self, path: str, now: float) -> None:
        """A file is there."""
        for leaf in self._leaves(CreatedLeaf):
            if leaf.path == path:
                leaf.appeared()
        self._settle(now)

    def memory_is(self, size: int, now: float) -> None:
        """The processes of the task use so much memory."""
        for leaf in self._leaves(MemoryLeaf):
            leaf.used(size)
        self._settle(now)

    def said_yes(self, ask: Ask, value: float | None, text: str, now: float) -> None:
        """A function returned something true, or a program exited with 0."""
        if ask in self.asks():
            state = next(state for state in self._monitors if state.number == ask.monitor)
            leaf = state.leaves[ask.leaf]
            assert isinstance(leaf, AskedLeaf)
            leaf.said_yes(value, text)
            self._settle(now)

    def tick(self, now: float) -> None:
        """Time has passed."""
        if not self.is_over:
            for state in self._monitors:
                for leaf in state.leaves:
                    if leaf.due <= now and leaf.met is None:
                        leaf.tick(now)
            self._settle(now)
        for series in self._series:
            if series.due <= now and (points := series.tell(now)) is not None:
                self._found.append(points)

    def finish(self, now: float, unseen: Collection[str] = ()) -> None:
        """The task has ended, and all that it wrote was judged; `unseen`: places that never were."""
        for where in self._readers:
            self.end_of(where, now)
        if not self.is_over:
            for path in sorted(unseen):
                for number in self._that_read(path):
                    never = "the task reported no numbers" if path == REPORTED else f"the file {path} was never there"
                    self.complain(number, never)
        self.close(now)

    def _that_read(self, path: str) -> list[int]:
        """The monitors and metrics that wait for a file, or for what is in it, by their numbers."""
        found = [
            state.number
            for state in self._monitors
            for leaf in state.leaves
            if leaf.where == path or (isinstance(leaf, CreatedLeaf) and leaf.path == path)
        ]
        return list(dict.fromkeys(found + [one.number for one in self._metrics if one.metric.where == path]))

    def close(self, now: float) -> None:
        """Watch no more, and say what is left to say."""
        self._now = now
        self.is_over = True
        for series in self._series:
            if (points := series.tell(now)) is not None:
                self._found.append(points)
        if self._limit.left_out:
            self._found.append(Trouble(now, "", f"{self._limit.left_out} firings were left out"))
            self._limit.left_out = 0

    # --- what it wants ---

    @property
    def due(self) -> float:
        """When `tick` has something to do."""
        due = min([series.due for series in self._series], default=NEVER)
        if not self.is_over:
            for state in self._monitors:
                for leaf in state.leaves:
                    if leaf.due < due and leaf.met is None:
                        due = leaf.due
        return due

    def asks(self) -> list[Ask]:
        """Functions and programs that are to be asked."""
        if self.is_over:
            return []
        return [
            Ask(state.number, state.step, place, leaf.condition)
            for state in self._monitors
            for place, leaf in enumerate(state.leaves)
            if isinstance(leaf, AskedLeaf) and leaf.met is None
        ]

    def awaited_files(self) -> list[str]:
        """Files that it waits for."""
        return [] if self.is_over else [leaf.path for leaf in self._leaves(CreatedLeaf)]

    def wants_memory(self) -> bool:
        """Whether it wants to know how much memory the task uses."""
        return not self.is_over and next(self._leaves(MemoryLeaf), None) is not None

    # --- what it found ---

    def take(self) -> tuple[list[Observation], list[Firing]]:
        """What was observed since the last time, in order; firings are among the observations."""
        found, self._found = self._found, []
        firings, self._firings = self._firings, []
        return found, firings

    def told(self) -> dict[int, int]:
        """By its number, how many values of a series have been told."""
        return {number: series.told for number, series in enumerate(self._series) if series.told}

    def complain(self, number: int, message: str) -> None:
        """Something is wrong with a monitor or metric, by its number: say so once."""
        self._complain(name_of(self._plan, number), message)

    def set_aside(self, number: int) -> None:
        """Do not watch by a monitor or metric any more, by its number."""
        self._monitors = [state for state in self._monitors if state.number != number]
        self._metrics = [metric for metric in self._metrics if metric.number != number]
        self.aside.append(number)

    # --- judging ---

    def _leaves(self, kind: type[_L]) -> Iterator[_L]:
        """The leaves of this kind that watch."""
        for state in self._monitors:
            for leaf in state.leaves:
                if isinstance(leaf, kind) and leaf.met is None:
                    yield leaf

    def _judge(self, where: str, lines: bytes, now: float) -> None:
        """Hold lines against everything that reads this place."""
        before = self._lines[where]
        met: list[_Met] = []
        for state in list(self._monitors):
            if state.begin_lines(where, lines, before):
                try:
                    self._inside(state.number)
                    self._follow(state, where, lines, now, met)
                except MonitorHangs as error:
                    self._hangs(state.number, error)
        end = len(lines)
        if met:
            met.sort(key=lambda one: (one.at, one.monitor))
            for one in met:
                if self._may_tell(one, now):
                    marks = {**self._lines, where: before + lines.count(b"\n", 0, one.at)}
                    if self._tell(one, marks, now):
                        end = one.at
                        break
        self._record(where, lines, end, now)
        self._inside(-1)
        self._lines[where] = before + lines.count(b"\n", 0, end)

    def _follow(self, state: _MonitorState, where: str, lines: bytes, now: float, met: list[_Met]) -> None:
        """Let a monitor read lines, step after step."""
        while not state.is_over:
            for leaf in state.leaves:
                if leaf.where == where and leaf.met is None:
                    leaf.scan(lines)
            decided = decide(state.tree)
            if decided is None:
                return
            met.append(_advance(state, *decided, now))

    def _settle(self, now: float) -> None:
        """Fire what was met by something else than lines."""
        self._now = now
        for state in self._monitors:
            while not self.is_over and not state.is_over and (decided := decide(state.tree)) is not None:
                one = _advance(state, 0, decided[1], now)
                if self._may_tell(one, now):
                    self._tell(one, dict(self._lines), now)

    def _may_tell(self, met: _Met, now: float) -> bool:
        """Whether a step that fired may do so: one that repeats may not too often."""
        monitor = self._plan.monitors[met.monitor]
        if not monitor.steps[met.step].repeat or self._limit.allows(now):
            return True
        if self._limit.left_out == 1:
            rate = f"at most {MOST_A_SECOND} firings a second and {MOST_FIRINGS} in all are told"
            self._complain(monitor.name, f"it fires too often: {rate}")
        return False

    def _tell(self, met: _Met, marks: dict[str, int], now: float) -> bool:
        """Let a firing out; whether it ends the task."""
        monitor = self._plan.monitors[met.monitor]
        action, evidence = monitor.steps[met.step].action, met.evidence
        fired = Fired(
            now,
            monitor.name,
            met.step,
            evidence.kind,
            _NAMES.get(type(action), "none"),
            evidence.reason,
            evidence.value,
            evidence.text,
            action.name if isinstance(action, AddTag | Emit) else "",
            evidence.seen,
            evidence.total,
        )
        self._found.append(fired)
        self._firings.append(Firing(fired, action, Progress(met.monitor, met.next, now, marks, met.values)))
        self.is_over = isinstance(action, ENDING)
        return self.is_over

    def _note(self, series: dict[str, Series], leaf: PlateauLeaf, at: int, values: list[float]) -> None:
        """A plateau has read values; they are recorded once it is known where the task ended."""
        if leaf.where == REPORTED:
            return
        self._fresh.append((leaf, series[leaf.condition.metric], at, values))

    def _record(self, where: str, lines: bytes, end: int, now: float) -> None:
        """Take in the values of plateaus and metrics, up to where the task ended."""
        for leaf, series, at, found in self._fresh:
            values = found if end == len(lines) else leaf.read(lines[: max(end, at)], at)[0][: len(found)]
            series.add(range(series.seen + 1, series.seen + 1 + len(values)), values, now)
        self._fresh.clear()
        for metric in list(self._metrics):
            if metric.metric.where == where:
                lines = lines if end == len(lines) else lines[:end]
                try:
                    self._inside(metric.number)
                    metric.read(lines, now, partial(self.complain, metric.number))
                except MonitorHangs as error:
                    self._hangs(metric.number, error)

    def _hangs(self, number: int, error: MonitorHangs) -> None:
        self._inside(-1)
        self.complain(number, str(error))
        self.set_aside(number)

    def _complain(self, monitor: str, message: str) -> None:
        said = self._troubles.setdefault(monitor, set())
        if message in said or len(said) > MOST_TROUBLES:
            return
        said.add(message)
        if len(said) > MOST_TROUBLES:
            message = "it has more trouble, of which nothing is told"
        self._found.append(Trouble(self._now, monitor, message[:_MOST_SAID]))


def name_of(plan: WatchPlan, number: int) -> str:
    """The name of a monitor or metric, by its number."""
    monitors = plan.monitors
    return monitors[number].name if number < len(monitors) else plan.metrics[number - len(monitors)].name


def _place_of_line(lines: bytes, number: int) -> int:
    """Where the line behind so many begins."""
    at = 0
    for _ in range(number):
        at = lines.find(b"\n", at) + 1
        if not at:
            return len(lines)
    return at
