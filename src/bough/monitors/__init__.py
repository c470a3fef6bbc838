"""Monitors: rules that watch a running task, and what happens when one of them fires.

    from bough.monitors import Plateau, Silent

    s.command("./fold protein.pdb", monitors=[
        Plateau("score=(-?[0-9.]+)", window=25, below=1e-4),   # finish: what it wrote so far is its output
        Silent("10min", do="restart 3"),
    ])

A monitor finishes its task when it fires, unless `do` says something else: "finish", "fail", "restart", "restart 3",
"signal USR1", "tag hot", "emit best", "none", or one of the actions here. `a.then(b)` begins to watch `b` when `a` has
fired; `any_of` and `all_of` make one condition of several. `Metric` only records numbers.

Rules: a monitor is checked when it is made, and its functions are pickled when it is submitted, as functions of tasks
are. A monitor is a value: nothing changes it, so that many tasks may share one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from bough.errors import BadValue, WrongType
from bough.model.bounds import Count, Duration, FilePath, Finite, Name, ShortName, shown, within
from bough.model.ids import read_bytes, read_seconds
from bough.model.monitoring import monitors as m
from bough.model.monitoring.monitor_text import name_in, read_action, signal_number
from bough.model.monitoring.monitors import AddTag as Tag
from bough.model.monitoring.monitors import Emit, Fail, Finish, Restart
from bough.monitors.remote_monitor import Remote

__all__ = [
    "After",
    "all_of",
    "any_of",
    "Custom",
    "Emit",
    "Executable",
    "Fail",
    "FileCreated",
    "Finish",
    "Memory",
    "Metric",
    "Monitor",
    "Plateau",
    "Regex",
    "Remote",
    "Reported",
    "Restart",
    "Signal",
    "Silent",
    "Tag",
]

Pack = Callable[[Callable[..., Any]], bytes]  # what stands for a function in a plan: its pickle, or its digest
Time = str | float
Place = str | os.PathLike[str]
Action = str | m.MonitorAction | None


def Signal(signal: str | int) -> m.SendSignal:  # noqa: N802 - it stands beside Tag and Emit, which are classes
    """The action that sends a signal: USR1, SIGUSR1 or 10."""
    return m.SendSignal(signal_number(str(signal)))


class Monitor:
    """What all monitors have: a name, an action, and `then`. Each kind says when it fires."""

    kind = "monitor"

    def __init__(self, do: Action = None, name: str | None = None, *, repeat: bool = False) -> None:
        self.do, again = _read_do(do)
        self.repeat = repeat or again
        self.name = within("a monitor's name", name, ShortName) if name is not None else self.kind
        plan = m.WatchPlan((self.made(_nothing),))
        m.check_plan(plan)

    def _condition(self, pack: Pack) -> m.Condition:
        """When it fires, as data; `pack` makes bytes of its functions."""
        raise NotImplementedError

    def _steps(self, pack: Pack) -> tuple[tuple[m.Condition, m.MonitorAction | None, bool], ...]:
        """Conditions that are watched one after the other, each with its action, if one was said, and `repeat`."""
        return ((self._condition(pack), self.do, self.repeat),)

    def made(self, pack: Pack) -> m.Monitor:
        """All of it as data. A last step without an action finishes the task; one before it only begins the next."""
        *before, (condition, action, repeat) = self._steps(pack)
        steps = [m.Step(one, do if do is not None else m.NoAction(), again) for one, do, again in before]
        last = m.Step(condition, action if action is not None else m.Finish(), repeat)
        return m.Monitor(self.name, (*steps, last))

    def then(self, following: Monitor) -> Monitor:
        """Watch for another condition once this one has fired; without a `do`, this one does nothing else."""
        return _Chain(self, _checked("then", following))

    def __repr__(self) -> str:
        return f"<monitor {self.name}>"


class _Chain(Monitor):
    def __init__(self, first: Monitor, following: Monitor) -> None:
        self._members = (first, following)
        self.kind = first.name
        super().__init__()

    def _steps(self, pack: Pack) -> tuple[tuple[m.Condition, m.MonitorAction | None, bool], ...]:
        first, following = self._members
        return (*first._steps(pack), *following._steps(pack))

    def _condition(self, pack: Pack) -> m.Condition:
        raise BadValue(f"{self!r} watches for one thing after the other; that is no condition of any_of or all_of")


class Regex(Monitor):
    """A line of stdout, stderr or a file matches a pattern; with `when`, also says what is wanted.

    `when` is a function of the pattern's groups, as a tuple of texts. `below` and `above` compare the first group as
    a number, with no function.
    """

    kind = "regex"

    def __init__(
        self,
        where: Place,
        pattern: str,
        when: Callable[[tuple[str, ...]], object] | None = None,
        *,
        below: float | None = None,
        above: float | None = None,
        do: Action = None,
        name: str | None = None,
        repeat: bool = False,
    ) -> None:
        self.where = _path("where", where)
        self.pattern = _pattern(pattern)
        self.when = None if when is None else _callable("when", when)
        self.below = None if below is None else _number("below", below)
        self.above = None if above is None else _number("above", above)
        super().__init__(do, name, repeat=repeat)

    def _condition(self, pack: Pack) -> m.Condition:
        when = b"" if self.when is None else pack(self.when)
        return m.Regex(self.where, self.pattern, when, self.below, self.above)


class FileCreated(Monitor):
    """A file is there. A relative path counts from where the task runs."""

    kind = "created"

    def __init__(self, path: Place, *, do: Action = None, name: str | None = None) -> None:
        self.path = _path("path", path)
        super().__init__(do, name)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.FileCreated(self.path)


class Custom(Monitor):
    """A function of yours, called again and again beside the task, returns something true.

    It runs in a process of its own, and gets a view of the task, see docs/howto/monitors.md.
    """

    def __init__(
        self,
        function: Callable[[Any], object],
        every: Time = 1.0,
        *,
        do: Action = None,
        name: str | None = None,
        repeat: bool = False,
    ) -> None:
        self.function = _callable("function", function)
        self.every = within("every", _seconds("every", every), m.Period)
        said = getattr(function, "__name__", "")
        self.kind = said if isinstance(said, str) and 0 < len(said) < 100 and said != "<lambda>" else "custom"
        super().__init__(do, name, repeat=repeat)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.Custom(pack(self.function), self.every)


class Executable(Monitor):
    """A command, run again and again beside the task, exits with 0."""

    kind = "exec"

    def __init__(
        self,
        command: str,
        every: Time = 1.0,
        timeout: Time = 10.0,
        *,
        do: Action = None,
        name: str | None = None,
        repeat: bool = False,
    ) -> None:
        self.command = within("command", command, m.CommandText)
        self.every = within("every", _seconds("every", every), m.Period)
        self.timeout = within("timeout", _seconds("timeout", timeout), m.Period)
        super().__init__(do, name, repeat=repeat)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.Executable(self.command, self.every, self.timeout)


class Plateau(Monitor):
    """The last `window` numbers that a pattern finds hardly change any more; or that the task reports as `metric`.

    The pattern has one group, which holds the number. Measured by the standard deviation of the window, or with
    `slope=True` by the slope of the line through it. The numbers are recorded as a metric; without `metric=` it has the
    word before the group for a name: `score=(...)` is `score`. `total` is how many numbers a whole run gives. Without a
    pattern the numbers are those that the task reports: `Plateau(metric="score")`, `bough.here().report(score=...)`.
    """

    kind = "plateau"

    def __init__(
        self,
        pattern: str | None = None,
        window: int = 25,
        below: float = 1e-4,
        *,
        where: Place = "stdout",
        slope: bool = False,
        metric: str | None = None,
        total: int = 0,
        do: Action = None,
        name: str | None = None,
    ) -> None:
        if pattern is None:
            if metric is None:
                raise BadValue(
                    "a plateau needs a pattern that finds numbers, or metric= for those that the task reports"
                )
            if where != "stdout":
                raise BadValue(f"numbers in {shown(where)} are found by a pattern, such as score=([-0-9.]+)")
            pattern, where = m.reported_pattern(within("metric", metric, ShortName)), m.REPORTED
        self.pattern = _pattern(pattern)
        self.window = within("window", window, m.Window)
        self.below = within("below", _number("below", below), m.Limit)
        self.where = _path("where", where)
        self.slope = bool(slope)
        self.metric = within("metric", metric, Name) if metric is not None else name_in(self.pattern)
        self.total = within("total", total, Count)
        super().__init__(do, name)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.Plateau(self.pattern, self.window, self.below, self.where, self.slope, self.metric, self.total)


class Reported(Monitor):
    """The task reports a number under a name, `bough.here().report(score=...)`, which is as wanted.

    `below` and `above` compare it. Without them, any number counts.
    """

    kind = "reported"

    def __init__(
        self,
        metric: str,
        *,
        below: float | None = None,
        above: float | None = None,
        do: Action = None,
        name: str | None = None,
        repeat: bool = False,
    ) -> None:
        self.metric = within("metric", metric, ShortName)
        self.below = None if below is None else _number("below", below)
        self.above = None if above is None else _number("above", above)
        super().__init__(do, name, repeat=repeat)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.Regex(m.REPORTED, m.reported_pattern(self.metric), b"", self.below, self.above)


class After(Monitor):
    """So much time has passed since the task started, or since the step before it fired: "1h", or seconds."""

    kind = "after"

    def __init__(self, time: Time, *, do: Action = None, name: str | None = None) -> None:
        self.seconds = _seconds("time", time)
        super().__init__(do, name)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.After(self.seconds)


class Memory(Monitor):
    """The processes of the task together use more memory than this: "4GB", or bytes."""

    kind = "memory"

    def __init__(self, above: str | int, *, do: Action = None, name: str | None = None, repeat: bool = False) -> None:
        try:
            found = read_bytes(above)
        except (ValueError, TypeError, AttributeError):
            raise BadValue(f'above is {shown(above)}; give something like "4GB", or bytes') from None
        self.above = within("above", found, Count)
        super().__init__(do, name, repeat=repeat)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.Memory(self.above)


class Silent(Monitor):
    """The task wrote nothing for so long: to stdout and stderr, or to the place that `where` names."""

    kind = "silent"

    def __init__(
        self,
        for_: Time,
        where: Place = "",
        *,
        do: Action = None,
        name: str | None = None,
        repeat: bool = False,
    ) -> None:
        self.seconds = _seconds("for_", for_)
        if not self.seconds:
            raise BadValue("for_ is 0; a task is silent for a time above 0")
        self.where = _path("where", where)
        super().__init__(do, name, repeat=repeat)

    def _condition(self, pack: Pack) -> m.Condition:
        return m.Silent(self.seconds, self.where)


class _Several(Monitor):
    def __init__(self, members: tuple[Monitor, ...], do: Action, name: str | None) -> None:
        if not members:
            raise BadValue(f"{self.kind}_of needs at least one monitor")
        for member in members:
            if _checked(f"{self.kind}_of", member).do is not None:
                raise BadValue(
                    f"{member!r} is part of {self.kind}_of: say its action there, {self.kind}_of(..., do=...)"
                )
        self.members = members
        super().__init__(do, name)


class _AnyOf(_Several):
    kind = "any"

    def _condition(self, pack: Pack) -> m.Condition:
        return m.AnyOf(tuple([member._condition(pack) for member in self.members]))


class _AllOf(_Several):
    kind = "all"

    def _condition(self, pack: Pack) -> m.Condition:
        return m.AllOf(tuple([member._condition(pack) for member in self.members]))


def any_of(*members: Monitor, do: Action = None, name: str | None = None) -> Monitor:
    """Fires when one of some conditions is met."""
    return _AnyOf(members, do, name)


def all_of(*members: Monitor, do: Action = None, name: str | None = None) -> Monitor:
    """Fires when each of some conditions has been met, at whatever time."""
    return _AllOf(members, do, name)


class Metric:
    """Numbers to record: `task.series(name)` gives them. It never fires.

    The pattern has one group, or named ones, each of which is a metric: `(?P<step>[0-9]+) (?P<score>[-0-9.]+)`. A group
    called `step` says at which step the others are; without it, matches count from 1. `total` is the number of steps of
    a whole run; at the steps in `at`, the server is told at once.
    """

    def __init__(
        self, pattern: str, name: str | None = None, *, where: Place = "stdout", total: int = 0, at: Iterable[int] = ()
    ) -> None:
        self.pattern = _pattern(pattern)
        self.name = within("name", name, ShortName) if name is not None else name_in(self.pattern)
        self.where = _path("where", where)
        self.total = within("total", total, Count)
        self.at = within("at", tuple(at), m.Checkpoints)
        m.check_plan(m.WatchPlan((), (self.made(_nothing),)))

    def made(self, pack: Pack) -> m.Metric:
        """It as data."""
        return m.Metric(self.pattern, self.name, self.where, self.total, self.at)

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


# --- reading what is given ---------------------------------------------------------------------------


def _nothing(function: Callable[..., Any]) -> bytes:
    return b""


def _read_do(do: object) -> tuple[m.MonitorAction | None, bool]:
    if do is None:
        return None, False
    if isinstance(do, str):
        return read_action(do)
    if isinstance(do, m.MonitorAction):
        m.check_action(do)
        return do, False
    raise WrongType(f'do is {shown(do)}; give a text such as "fail" or "signal USR1", or an action of bough.monitors')


def _checked(where: str, given: object) -> Monitor:
    if not isinstance(given, Monitor):
        raise WrongType(f"{where} takes monitors, not {shown(given)}")
    return given


def _callable(what: str, given: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(given):
        raise WrongType(f"{what} is {shown(given)}; give a function")
    return given


def _pattern(given: str) -> str:
    return within("pattern", given, m.Pattern)


def _path(what: str, given: Place) -> str:
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    if what == "path" and not given:
        raise BadValue("path is empty; give the path of a file")
    return within(what, given, FilePath)


def _number(what: str, given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise WrongType(f"{what} is {shown(given)}; give a number")
    return within(what, given, Finite)


def _seconds(what: str, given: Time) -> float:
    try:
        found = read_seconds(given)
    except (ValueError, TypeError, AttributeError):
        raise BadValue(f'{what} is {shown(given)}; give something like "90s", "1h" or seconds') from None
    return within(what, found, Duration)
