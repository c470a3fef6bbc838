"""Monitors that are added later, running tasks whose end is asked for, and what was seen of running tasks.

What runs when a plan is added, or when its end is asked for, is told by an order, which is given again when its
executor comes back. Rule: the core does not end a task by a verdict; its executor does, and reports its end as any
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bough.core import populations
from bough.core.actions.task_actions import targets
from bough.core.effects import Effects
from bough.core.graph import dependencies
from bough.core.records.array_record import ENDED_STATES, OCCUPYING_STATES, OPEN_STATES, ArrayRecord
from bough.core.records.attempts import Span
from bough.core.records.indexes.watch_index import Ending
from bough.core.state import State
from bough.model.arrays import ranges
from bough.model.events import facts, news
from bough.model.events.orders import EndSpan, WatchSpan
from bough.model.ids import BlobId
from bough.model.monitoring.monitors import MOST_PLANS
from bough.model.tasks import On
from bough.model.texts.plurals import counted

ALL = 1 << 62  # more elements than any array has


def reach(state: State, action: news.AddMonitors | news.EndEarly) -> tuple[int, list[str]]:
    """How many tasks an action concerns now, and what it leaves out and why."""
    found = list(targets(state, action.target, action.stop))
    if isinstance(action, news.EndEarly):
        running = sum(ranges.size(record.runs(OCCUPYING_STATES, start, stop)) for record, start, stop in found)
        return running, []
    if _is_full(state, action):
        return 0, [f"{MOST_PLANS} sets of monitors were added to it already, and that is the most"]
    watched = sum(ranges.size(record.runs(OPEN_STATES, start, stop)) for record, start, stop in found)
    ended = [(record, low) for record, start, stop in found for low, _ in record.runs(ENDED_STATES, start, stop)]
    if watched or not ended or _may_grow(state, action):
        return watched, []
    others = sum(stop - start for _, start, stop in found) - 1
    more = f" and {counted(others, 'other task')}" if others else ""
    return 0, [f"{dependencies.name_of(*ended[0])}{more}: ended, so that nothing of it can be watched"]


def is_lawful(state: State, action: news.AddMonitors) -> bool:
    """Whether monitors can be added to what an action names: something of it runs, or is still to run."""
    target = action.target
    if target.id not in (state.groups if target.is_group else state.records) or _is_full(state, action):
        return False
    if target.is_group or _may_grow(state, action):
        return True
    return any(record.runs(OPEN_STATES, start, stop) for record, start, stop in targets(state, target, action.stop))


def _may_grow(state: State, action: news.AddMonitors) -> bool:
    """Whether tasks that are still to be submitted would be watched, too."""
    if action.target.is_group:
        group = state.groups.get(action.target.id)
        return group is not None and not group.closed
    record = state.records.get(action.target.id)
    return action.target.on is On.ARRAY and isinstance(record, ArrayRecord) and record.open


def _is_full(state: State, action: news.AddMonitors) -> bool:
    if action.target.is_group:
        group = state.groups.get(action.target.id)
        added: Iterable[BlobId] = group.watch if group is not None else ()
    else:
        added = state.watch.added.get(action.target.id, {})
    return action.plan not in added and len(list(added)) >= MOST_PLANS


# --- how the facts change the state ----------------------------------------------------------------------


def monitors_added(state: State, effects: Effects | None, fact: facts.MonitorsAdded) -> None:
    """From now on tasks are watched by one more plan; of a group and of a whole array also those still to come."""
    target, plan = fact.target, fact.plan
    if target.is_group:
        group = state.groups[target.id]
        group.workflow.watched = True
        if plan not in group.watch:
            group.watch = (*group.watch, plan)
    else:
        record = state.records[target.id]
        record.group.workflow.watched = True
        start, stop = (0, ALL) if target.on is On.ARRAY else (target.index, max(fact.stop, target.index + 1))
        state.watch.add(record.id, start, stop, plan)
    if effects is None:
        return
    for record, start, stop in targets(state, target, fact.stop):
        for span in state.attempts.of(record, start, stop):
            for low, high in span.parts(start, stop):
                effects.orders.append(WatchSpan(span.executor.id, span.id, low, high, plan))


def end_asked(state: State, effects: Effects | None, fact: facts.EndAsked) -> None:
    """What executors have of some tasks is to be ended by a verdict; its end is reported as any other."""
    for record, start, stop in targets(state, fact.target, fact.stop):
        for span in state.attempts.of(record, start, stop):
            for low, high in span.parts(start, stop):
                if fact.by_rule:
                    populations.end_asked(state, record, low, high)
                state.watch.end(span.id, Ending(low, high, fact.verdict, fact.monitor, fact.reason))
                if effects is not None:
                    said = (fact.verdict, fact.monitor, fact.reason)
                    effects.orders.append(EndSpan(span.executor.id, span.id, low, high, *said))


def observed(state: State, effects: Effects | None, fact: facts.Observed) -> None:
    """Something was seen of a running element."""
    state.watch.seen.add(fact.record, fact.index, fact.attempt, fact.observations)
    populations.observed(state, effects, state.records[fact.record], fact)


def orders_again(state: State, span: Span) -> Iterator[WatchSpan | EndSpan]:
    """What an executor that comes back may not have heard of a span; it is harmless to hear it twice."""
    record, executor = span.record, span.executor.id
    for low, high in span.left:
        for group in record.group.chain() if record.group.workflow.watched else ():
            for plan in group.watch:
                yield WatchSpan(executor, span.id, low, high, plan)
        for start, stop, plan in state.watch.parts(record.id, low, high):
            yield WatchSpan(executor, span.id, start, stop, plan)
    for one in state.watch.endings.get(span.id, ()):
        for low, high in span.parts(one.start, one.stop):
            yield EndSpan(executor, span.id, low, high, one.verdict, one.monitor, one.reason)
