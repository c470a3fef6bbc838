"""What monitors and metrics saw of tasks, as the jobs database has it: rows for programs, lines for people.

Rule: a store of an earlier version has no such tables, and then nothing was seen; the keys of a row's JSON object are
stable.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.selection import Selected
from bough.cli.targets.task_rows import Fields
from bough.errors import UserError
from bough.model.monitoring.observations import Fired, SeenTask, Trouble
from bough.stores.jobs.fold_observations import FIRINGS, SERIES, seen_tasks

MOST = 100_000  # rows of one table that are read at once


class SeenEvent(NamedTuple):
    """One thing that was seen, at a time."""

    at: float
    attempt: int
    text: str


def seen_of(database: OpenDatabase, one: Selected) -> list[SeenTask]:
    """What was seen of some tasks, attempt by attempt."""
    place = [one.id, one.first, one.last + 1, MOST]
    try:
        firings = [tuple(row.values()) for row in database.rows(FIRINGS, place)]
        series = [tuple(row.values()) for row in database.rows(SERIES, place)]
    except UserError:
        return []
    return seen_tasks(firings, series)


def seen_json(seen: Iterable[SeenTask]) -> list[Fields]:
    """The same for programs, with all values."""
    return [
        {
            "attempt": task.attempt,
            "fired": [_as_dict(fired) for fired in task.fired],
            "tags": task.tags,
            "troubles": [_as_dict(trouble) for trouble in task.troubles],
            "metrics": {
                name: {"total": task.totals.get(name), "points": [list(point) for point in points]}
                for name, points in task.metrics.items()
            },
        }
        for task in seen
    ]


def _as_dict(one: Fired | Trouble) -> Fields:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def event_lines(label: str, seen: Iterable[SeenTask]) -> list[str]:
    """All that was seen of a task, in order of time, one line each."""
    events: list[SeenEvent] = []
    for task in seen:
        for name, points in task.metrics.items():
            events += [SeenEvent(at, task.attempt, f"{name} {value:g} at step {step:g}") for step, at, value in points]
        for fired in task.fired:
            reason = f": {fired.reason}" if fired.reason else ""
            named = f" {fired.name}" if fired.name else ""
            events.append(SeenEvent(fired.at, task.attempt, f"{fired.monitor}: {fired.action}{named}{reason}"))
        events += [SeenEvent(one.at, task.attempt, f"{one.monitor}: trouble: {one.message}") for one in task.troubles]
    return [
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(event.at))} {label} attempt {event.attempt} {event.text}"
        for event in sorted(events, key=lambda event: (event.attempt, event.at))
    ]
