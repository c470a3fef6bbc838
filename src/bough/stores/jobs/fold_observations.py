"""Folds what was seen of running tasks into the tables `firings` and `series`, and reads it from there.

Trouble of what watches a task is a row of `firings`, too, with the action `trouble`. Rule: rows of a task are in the
order in which they were journalled: `turn`, then `n`, which counts what one turn says of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bough.model.events.facts import Observed
from bough.model.monitoring.observations import Fired, Points, SeenTask, Trouble
from bough.stores.jobs.rows import shown
from bough.stores.jobs.tables import JobsTables

TROUBLE: Final = "trouble"  # the action of a row that says what went wrong with a monitor
FIRINGS: Final = """
SELECT idx, attempt, at, monitor, step, kind, action, reason, value, text, name, seen, total FROM firings
WHERE id = ? AND idx >= ? AND idx < ? ORDER BY idx, attempt, turn, n LIMIT ?"""
SERIES: Final = """
SELECT idx, attempt, metric, step, at, value, total FROM series
WHERE id = ? AND idx >= ? AND idx < ? ORDER BY idx, attempt, turn, n LIMIT ?"""


class ObservationFold:
    """See the module."""

    def __init__(self, tables: JobsTables) -> None:
        self._tables = tables
        self._turn = 0
        self._counts: dict[tuple[int, int], int] = {}  # rows of the turn so far, by task

    def observed(self, turn: int, fact: Observed) -> None:
        """Something was seen of a task."""
        if turn != self._turn:
            self._turn = turn
            self._counts.clear()
        task = (fact.record, fact.index)
        count = self._counts.get(task, 0)
        firings, series = self._tables.gathered["firings"], self._tables.gathered["series"]
        for one in fact.observations:
            if isinstance(one, Points):
                metric, total = shown(one.metric), one.total or None
                for step, at, value in one.points:
                    series.append((*task, metric, turn, count, fact.attempt, step, at, value, total))
                    count += 1
            else:
                firings.append((*task, turn, count, fact.attempt, *_firing(one)))
                count += 1
        self._counts[task] = count


def _firing(one: Fired | Trouble) -> tuple[object, ...]:
    if isinstance(one, Trouble):
        return one.at, shown(one.monitor), None, None, TROUBLE, None, shown(one.message), None, None, None, None
    return (
        *(one.at, shown(one.monitor), one.step, shown(one.kind), shown(one.action), shown(one.name) or None),
        *(shown(one.reason) or None, one.value, shown(one.text) or None, one.count or None, one.total or None),
    )


def seen_tasks(firings: Iterable[Sequence[object]], series: Iterable[Sequence[object]]) -> list[SeenTask]:
    """What rows of both tables say, as `FIRINGS` and `SERIES` give them."""
    found: dict[tuple[int, int], SeenTask] = {}

    def task(index: object, attempt: object) -> SeenTask:
        key = (index, attempt)
        if key not in found:
            found[key] = SeenTask(index, attempt)  # type: ignore[index, arg-type]
        return found[key]  # type: ignore[index]

    for index, attempt, at, monitor, step, kind, action, reason, value, text, name, count, total in firings:
        seen = task(index, attempt)
        if action == TROUBLE:
            seen.troubles.append(Trouble(at, monitor, reason))  # type: ignore[arg-type]
            continue
        said = (reason or "", value, text or "", name or "", count or 0, total or 0)
        seen.fired.append(Fired(at, monitor, step, kind, action, *said))  # type: ignore[arg-type]
        if action == "tag" and name not in seen.tags:
            seen.tags.append(str(name or ""))
    for index, attempt, metric, step, at, value, total in series:
        seen = task(index, attempt)
        seen.metrics.setdefault(str(metric), []).append((step, at, value))  # type: ignore[arg-type]
        if total:
            seen.totals[str(metric)] = total  # type: ignore[assignment]
    return [found[key] for key in sorted(found)]
