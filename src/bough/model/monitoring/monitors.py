"""What watches a running task: monitors, which fire on what it writes, makes or uses, and metrics, which are recorded.

A *monitor* is a row of steps. A step has a condition and an action; when the condition is met the step fires, its
action is taken, and the next step begins to watch. A *metric* reads numbers from what a task writes and never fires.
All that watches a task is a `WatchPlan`, which travels as a blob: a million tasks of an array share one. Functions
(`Custom`, `Regex.when`) are pickled by the client and opaque to all but the watcher on the task's host.

Rules: a plan is part of what a task computes, so that it counts for its memo key. Every text, number and depth has its
bound here; `check_plan` says what the types cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from bough.errors import BadValue
from bough.model.bounds import Count, Duration, FilePath, Finite, Name, ShortName, in_plain_words, shown

MOST_MONITORS = 64  # of one task, metrics included
MOST_PLANS = 64  # that watch one task: its own, those of its groups, and those that were added later
MOST_STEPS = 16  # of one monitor
MOST_MEMBERS = 16  # of one condition that is made of others
DEEPEST = 8  # conditions within conditions
MOST_FUNCTION = 1 << 20  # bytes of a pickled function
MOST_CHECKPOINTS = 256  # steps of a metric that are always recorded

Pattern = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\0]*\Z")]
Function = Annotated[bytes, Meta(max_length=MOST_FUNCTION)]
CommandText = Annotated[str, Meta(min_length=1, max_length=65_536, pattern=r"^[^\0]*\Z")]
Period = Annotated[float, Meta(ge=0.05, le=86400)]  # seconds
Window = Annotated[int, Meta(ge=2, le=100_000)]  # of values
Limit = Annotated[float, Meta(ge=0, le=1e300)]
Times = Annotated[int, Meta(ge=1, le=1000)]
Checkpoints = Annotated[tuple[Count, ...], Meta(max_length=MOST_CHECKPOINTS)]
Where = FilePath  # "stdout", "stderr", "reported", or the path of a file, relative to where the task runs
STREAMS = ("stdout", "stderr")
MOST_REPORTED_LINES = 1 << 18  # bytes of what a task reported that are kept for a watcher or a plan that is new
REPORTED = "reported"  # the numbers that a task reports of itself, as lines; see `reported_line`


# --- what a step does when it fires ------------------------------------------------------------------


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """End the task as a success, with what it wrote so far as its outputs."""

    grace: Duration = 5.0  # seconds between TERM and KILL


class Fail(msgspec.Struct, frozen=True, array_like=True, tag="fail"):
    """End the task as a failure of its own: it is tried again if it has retries."""

    message: Name = ""
    grace: Duration = 5.0


class Restart(msgspec.Struct, frozen=True, array_like=True, tag="restart"):
    """End this attempt and begin another one, which costs no retry; after so many attempts it is a failure."""

    times: Times = 1
    grace: Duration = 5.0


class SendSignal(msgspec.Struct, frozen=True, array_like=True, tag="signal"):
    """Send a signal to the processes of the task."""

    number: Annotated[int, Meta(ge=1, le=64)]


class AddTag(msgspec.Struct, frozen=True, array_like=True, tag="tag"):
    """Mark the task with a word that people and scripts can look for."""

    name: ShortName


class Emit(msgspec.Struct, frozen=True, array_like=True, tag="emit"):
    """Tell the workflow's script the value on which it fired."""

    name: Name = ""


class NoAction(msgspec.Struct, frozen=True, array_like=True, tag="none"):
    """Only record that it fired, and begin the next step."""


MonitorAction = Finish | Fail | Restart | SendSignal | AddTag | Emit | NoAction
ENDING = (Finish, Fail, Restart)  # actions after which nothing more is watched


# --- conditions --------------------------------------------------------------------------------------


class Regex(msgspec.Struct, frozen=True, array_like=True, tag="regex"):
    """A line matches a pattern, and what its groups say is as wanted."""

    where: Where
    pattern: Pattern
    when: Function = b""  # of the groups (as texts); empty: every match counts
    below: Finite | None = None  # the first group, as a number, is below this
    above: Finite | None = None


class FileCreated(msgspec.Struct, frozen=True, array_like=True, tag="created"):
    """A file is there."""

    path: FilePath


class Custom(msgspec.Struct, frozen=True, array_like=True, tag="custom"):
    """A function of the task's view, called again and again, returns something true."""

    function: Function
    every: Period = 1.0


class Executable(msgspec.Struct, frozen=True, array_like=True, tag="executable"):
    """A command, run beside the task again and again, exits with 0."""

    command: CommandText
    every: Period = 1.0
    timeout: Period = 10.0


class Plateau(msgspec.Struct, frozen=True, array_like=True, tag="plateau"):
    """The last `window` values that a pattern finds hardly change any more.

    By standard deviation (of the whole window, not of a sample), or by the absolute slope of the line of least squares
    through them, per value. It needs a full window.
    """

    pattern: Pattern
    window: Window = 25
    below: Limit = 1e-4
    where: Where = "stdout"
    slope: bool = False
    metric: Name = "value"  # the values are recorded under this name
    total: Count = 0  # values that a whole run gives, to say how far it was; 0: not known


class After(msgspec.Struct, frozen=True, array_like=True, tag="after"):
    """So much time has passed since the task started, or since the step before fired."""

    seconds: Duration


class Memory(msgspec.Struct, frozen=True, array_like=True, tag="memory"):
    """The processes of the task use more memory than this."""

    above: Count  # bytes


class Silent(msgspec.Struct, frozen=True, array_like=True, tag="silent"):
    """Nothing was written for so long; to stdout and stderr, or to one place."""

    seconds: Annotated[float, Meta(gt=0, le=1e15)]
    where: Where = ""  # empty: stdout and stderr


class AnyOf(msgspec.Struct, frozen=True, array_like=True, tag="any"):
    """One of some conditions is met."""

    members: Annotated[tuple[Condition, ...], Meta(min_length=1, max_length=MOST_MEMBERS)]


class AllOf(msgspec.Struct, frozen=True, array_like=True, tag="all"):
    """Each of some conditions has been met, at whatever time."""

    members: Annotated[tuple[Condition, ...], Meta(min_length=1, max_length=MOST_MEMBERS)]


Condition = Regex | FileCreated | Custom | Executable | Plateau | After | Memory | Silent | AnyOf | AllOf


# --- plans -------------------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One condition and what is done when it is met."""

    condition: Condition
    action: MonitorAction = Finish()
    repeat: bool = False  # it goes on watching after it fired; not for actions that end the task


class Monitor(msgspec.Struct, frozen=True, array_like=True):
    """Steps that watch one after the other."""

    name: ShortName
    steps: Annotated[tuple[Step, ...], Meta(min_length=1, max_length=MOST_STEPS)]


class Metric(msgspec.Struct, frozen=True, array_like=True):
    """Numbers to record: a pattern whose named groups are the metrics, or whose only group is one called `name`.

    A group called `step` says at which step the others are; without it, matches are counted from 1.
    """

    pattern: Pattern
    name: Name = "value"
    where: Where = "stdout"
    total: Count = 0  # steps of a whole run; 0: not known
    checkpoints: Checkpoints = ()  # steps that are told at once


class WatchPlan(msgspec.Struct, frozen=True, array_like=True):
    """All that watches one task."""

    monitors: Annotated[tuple[Monitor, ...], Meta(max_length=MOST_MONITORS)] = ()
    metrics: Annotated[tuple[Metric, ...], Meta(max_length=MOST_MONITORS)] = ()


def plan_of(items: Iterable[Monitor | Metric]) -> WatchPlan:
    """A plan of some monitors and metrics; a name that several monitors have is numbered: plateau, plateau-2."""
    monitors: list[Monitor] = []
    metrics: list[Metric] = []
    taken: set[str] = set()
    for item in items:
        if isinstance(item, Metric):
            metrics.append(item)
            continue
        name, number = item.name, 1
        while name in taken:
            number += 1
            name = f"{item.name[:190]}-{number}"
        taken.add(name)
        monitors.append(item if name == item.name else replace(item, name=name))
    if len(monitors) + len(metrics) > MOST_MONITORS:
        raise BadValue(f"a task has at most {MOST_MONITORS} monitors and metrics, not {len(monitors) + len(metrics)}")
    return WatchPlan(tuple(monitors), tuple(metrics))


encode_plan = msgspec.msgpack.Encoder().encode


def decode_plan(data: bytes) -> WatchPlan:
    """A plan that came from elsewhere; `BadValue` says what is wrong with it."""
    try:
        plan = msgspec.msgpack.decode(data, type=WatchPlan)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadValue(f"the monitors of a task cannot be read: {error}") from error
    check_plan(plan)
    return plan


def check_action(action: MonitorAction) -> None:
    """Refuse an action whose fields are out of bounds: whoever makes one in Python may give it anything."""
    try:
        msgspec.convert(msgspec.to_builtins(action), type(action))
    except (msgspec.ValidationError, TypeError, OverflowError) as error:
        raise BadValue(f"{shown(action)}: {in_plain_words(str(error))}") from error


def check_plan(plan: WatchPlan) -> None:
    """Refuse what the types let pass: patterns that are none, or lack the group they need; endless depth."""
    for monitor in plan.monitors:
        if len(monitor.steps) > MOST_STEPS:
            raise BadValue(f"monitor {monitor.name!r} has {len(monitor.steps)} steps; {MOST_STEPS} are possible")
        for step in monitor.steps:
            if step.repeat and isinstance(step.action, ENDING):
                raise BadValue(f"monitor {monitor.name!r} ends the task when it fires: it cannot repeat")
            for condition in conditions_of(step.condition, monitor.name):
                _check_condition(condition, monitor.name)
        if any(isinstance(step.action, ENDING) for step in monitor.steps[:-1]):
            raise BadValue(f"monitor {monitor.name!r}: a step that ends the task must be the last one")
    for metric in plan.metrics:
        if metric.where == REPORTED:
            raise BadValue(f"metric {metric.name!r}: numbers that a task reports are recorded already, by their names")
        found = compile_pattern(metric.pattern, f"metric {metric.name!r}")
        if not found.groupindex and found.groups != 1:
            raise BadValue(
                f"metric {metric.name!r}: its pattern {shown(metric.pattern)} needs one group, as in score=([-0-9.]+), "
                "or named ones, as in (?P<step>[0-9]+) (?P<score>[-0-9.]+)"
            )


def conditions_of(condition: Condition, name: str, depth: int = 0) -> Iterator[Condition]:
    """A condition and all within it."""
    if depth >= DEEPEST:
        raise BadValue(f"monitor {name!r} has conditions within conditions more than {DEEPEST} deep")
    yield condition
    if isinstance(condition, AnyOf | AllOf):
        for member in condition.members:
            yield from conditions_of(member, name, depth + 1)


def compile_pattern(pattern: str, whose: str) -> re.Pattern[bytes]:
    """A pattern as it is held against bytes that tasks write; `BadValue` if it is none."""
    try:
        return re.compile(pattern.encode())
    except (re.error, RecursionError, OverflowError, UnicodeEncodeError, Warning) as error:
        raise BadValue(f"{whose}: {shown(pattern)} is no regular expression: {error}") from error


def _check_condition(condition: Condition, name: str) -> None:
    if isinstance(condition, Regex):
        found = compile_pattern(condition.pattern, f"monitor {name!r}")
        if (condition.below is not None or condition.above is not None) and not found.groups:
            raise BadValue(
                f"monitor {name!r} compares a number: its pattern {shown(condition.pattern)} needs a group that "
                "holds it, as in energy=([-0-9.]+)"
            )
    elif isinstance(condition, Plateau):
        found = compile_pattern(condition.pattern, f"monitor {name!r}")
        if found.groups != 1:
            raise BadValue(
                f"monitor {name!r}: its pattern {shown(condition.pattern)} needs exactly one group, which holds the "
                "value, as in score=([-0-9.]+)"
            )
    elif isinstance(condition, AnyOf | AllOf) and len(condition.members) > MOST_MEMBERS:
        found_many = len(condition.members)
        raise BadValue(f"monitor {name!r} has {found_many} conditions in one; {MOST_MEMBERS} are possible")
    if isinstance(condition, Regex | Plateau | Silent) and "\0" in condition.where:
        raise BadValue(f"monitor {name!r}: a path holds no NUL")


# --- numbers that tasks report of themselves -----------------------------------------------------------


def reported_line(name: str, value: float) -> bytes:
    """What stands for a number that a task reports: a line of the place `reported`, such as `score=-1.5`."""
    return f"{_in_one_line(name)}={value!r}\n".encode("utf-8", "replace")


def reported_pattern(name: str) -> str:
    """The pattern that finds the numbers that a task reports under a name."""
    return f"^{re.escape(_in_one_line(name))}=(.*)"


def _in_one_line(name: str) -> str:
    return "".join([letter if letter.isprintable() else "?" for letter in name])


# --- what a plan looks at ------------------------------------------------------------------------------


def all_conditions(plan: WatchPlan) -> Iterator[Condition]:
    """All conditions of a plan, also those within others."""
    for monitor in plan.monitors:
        for step in monitor.steps:
            yield from conditions_of(step.condition, monitor.name)


def places_read(plan: WatchPlan) -> set[str]:
    """The places whose lines a plan reads: "stdout", "stderr", "reported", paths."""
    found = {metric.where for metric in plan.metrics}
    for condition in all_conditions(plan):
        if isinstance(condition, Regex | Plateau):
            found.add(condition.where)
    return found


def places_followed(plan: WatchPlan) -> set[str]:
    """The places of which a plan wants to know that something is written there."""
    found = places_read(plan)
    for condition in all_conditions(plan):
        if isinstance(condition, Silent):
            found.update([condition.where] if condition.where else STREAMS)
    return found


def files_followed(plan: WatchPlan) -> set[str]:
    """The files among the places that a plan follows."""
    return places_followed(plan).difference((*STREAMS, REPORTED))
