"""What was seen of a running task: monitors that fired, values of metrics, trouble of what watches it.

A watcher beside the task makes them, the executor reports them, the journal keeps them. Rule: what one task can make
others keep is bounded: an observation in its size, here; how many there are, by the watcher (`executor.monitors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import Count, Finite, Name
from bough.model.ids import Seconds

MOST_POINTS = 512  # of one metric in one observation
MOST_OBSERVATIONS = 1024  # in one report of a task
_ENDINGS = ("finish", "fail", "restart")
_SHOWN = 5  # troubles, and emissions by name, in a few lines

Said = Annotated[str, Meta(max_length=2000)]


class Fired(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="f"):
    """A step of a monitor fired."""

    at: Seconds
    monitor: Name  # its name
    step: Count = 0  # which of its steps, from 0
    kind: Name = ""  # of its condition: "plateau"
    action: Name = ""  # what was done: "finish", "fail", "restart", "signal", "tag", "emit", "none"
    reason: Said = ""  # for people: "std 0.00007 < 0.0001"
    value: Finite | None = None  # the number on which it fired, if it is one
    text: Said = ""  # the line or group on which it fired; of a tag or an emission also its name, see `name`
    name: Name = ""  # of the tag, or of what is emitted
    count: Count = 0  # values seen by then, 0: it does not count
    total: Count = 0  # of so many, 0: not known


class Points(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="p"):
    """Values of one metric, in order; as (step, time, value)."""

    metric: Name
    points: Annotated[tuple[tuple[Finite, Seconds, Finite], ...], Meta(max_length=MOST_POINTS)]
    total: Count = 0  # steps of a whole run, 0: not known


class Trouble(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="t"):
    """A monitor or metric could not do its work; the task is not harmed."""

    at: Seconds
    monitor: Name
    message: Said


Observation = Fired | Points | Trouble


class SeenTask(msgspec.Struct, frozen=True):
    """What was seen of one attempt of a task, in order of time."""

    index: int
    attempt: int
    metrics: dict[str, list[tuple[float, Seconds, float]]] = {}  # by name: (step, time, value)
    totals: dict[str, int] = {}  # of some metrics: steps of a whole run
    tags: list[str] = []
    fired: list[Fired] = []
    troubles: list[Trouble] = []


def ended_by(fired: Fired) -> str:
    """In one line why a task ended: "ended by plateau after 143 of 300 iterations: std 0.00007 < 0.0001"."""
    after = ""
    if fired.count:
        after = f" after {fired.count} of {fired.total} values" if fired.total else f" after {fired.count} values"
    return f"ended by {fired.monitor}{after}: {fired.reason}" if fired.reason else f"ended by {fired.monitor}{after}"


def was_ended_by_rule(policy: str, observations: Iterable[Observation]) -> bool:
    """Whether a rule about a population ended a task, by what was seen of it: a firing from elsewhere has no kind."""
    return any(isinstance(one, Fired) and not one.kind and one.monitor == policy for one in observations)


def seen_lines(seen: Iterable[SeenTask]) -> list[str]:
    """In some lines, for people: why it ended, its metrics, tags, and trouble of what watches it."""
    attempts = list(seen)
    lines: list[str] = []
    for task in attempts:
        before = f"attempt {task.attempt}: " if len(attempts) > 1 else ""
        lines += [f"{before}{line}" for line in _lines_of(task)]
    return lines


def _lines_of(task: SeenTask) -> Iterator[str]:
    for fired in task.fired:
        if fired.action in _ENDINGS:
            again = ", to be started again" if fired.action == "restart" else ""
            yield ended_by(fired) + again
    for name, points in task.metrics.items():
        step, _, value = points[-1]
        values = [value for _, _, value in points]
        total = f" of {task.totals[name]}" if name in task.totals else ""
        yield f"{name}: {value:g} at step {step:g}{total}, lowest {min(values):g}, highest {max(values):g}"
    if task.tags:
        yield f"tags: {', '.join(task.tags)}"
    emitted = [fired for fired in task.fired if fired.action == "emit"]
    for fired in emitted[-_SHOWN:]:
        yield f"emitted {fired.name or fired.monitor}: {_value(fired)}"
    for trouble in task.troubles[-_SHOWN:]:
        yield f"the monitor {trouble.monitor} has trouble: {trouble.message}"


def _value(fired: Fired) -> str:
    return fired.text or (f"{fired.value:g}" if fired.value is not None else fired.reason)
