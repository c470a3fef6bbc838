"""What was seen of reused tasks when they ran is told again, so that a script that is run again finds it.

Tags, emitted values and series of a reused task are then those of the run that did it, for its script, for people and
for rules that compare tasks. Rule: what is written of it at once is bounded, so that an array of many watched tasks is
recalled in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bough.core.queries.facade import Queries
from bough.errors import UserError
from bough.model.events.arriving import Recalled, RuleRecalled
from bough.model.events.facts import MemoLookedUp, Observed, RecalledMember
from bough.model.events.news import SetRule
from bough.model.ids import RecordId, SpanId
from bough.model.observations import MOST_OBSERVATIONS, MOST_POINTS, Observation, Points, SeenTask, was_ended_by_rule
from bough.model.population_rules import PopulationRule, scores_at
from bough.stores.store import Store

_TOGETHER = 64  # tasks that are recalled in one piece


def pieces(found: Sequence[MemoLookedUp], watched: set[RecordId]) -> Iterator[MemoLookedUp]:
    """Memos that were found, those of watched tasks in pieces."""
    for one in found:
        if not one.found or one.source not in watched:
            yield one
            continue
        for start in range(one.start, one.stop, _TOGETHER):
            stop, there = min(start + _TOGETHER, one.stop), one.source_start + start - one.start
            said = (one.source_attempt, one.turn)
            yield MemoLookedUp(one.record, start, stop, True, one.source, there, *said)


def recalled(store: Store, found: MemoLookedUp) -> Recalled:
    """A piece with what was seen of its tasks."""
    begin, shift = found.source_start, found.start - found.source_start
    there = _seen(store, found.source, begin, begin + found.stop - found.start)
    return Recalled(found, [fact for seen in there for fact in _told(seen, found.record, seen.index + shift)])


def with_recalled(store: Store, queries: Queries, action: SetRule) -> SetRule | RuleRecalled:
    """A rule, with how far the tasks of its population had come that were reused before it."""
    rule, parts = action.rule, queries.reused_parts(action.target)
    if rule is None or not parts:
        return action
    members = [
        member
        for record, start, stop in parts
        for seen in _last_attempts(_seen(store, record, start, stop))
        if (member := _member(rule, record, seen)) is not None
    ]
    return RuleRecalled(action, tuple(members))


def _member(rule: PopulationRule, record: RecordId, seen: SeenTask) -> RecalledMember | None:
    scores, by_rule = scores_at(rule, seen.metrics.get(rule.metric, ())), was_ended_by_rule(rule.policy, seen.fired)
    return RecalledMember(record, seen.index, seen.attempt, scores, by_rule) if scores or by_rule else None


def _last_attempts(seen: Sequence[SeenTask]) -> list[SeenTask]:
    return list({one.index: one for one in seen}.values())  # attempts come in order


def _seen(store: Store, record: RecordId, start: int, stop: int) -> list[SeenTask]:
    """What was seen of some elements; what is too much for one answer of the store, in pieces."""
    try:
        return store.observations(record, start, stop)
    except UserError:
        if stop - start < 2:
            return []
    middle = (start + stop) // 2
    return [*_seen(store, record, start, middle), *_seen(store, record, middle, stop)]


def _told(seen: SeenTask, record: RecordId, index: int) -> Iterator[Observed]:
    """What was seen of an attempt, as an executor would tell it."""
    told: list[Observation] = [
        Points(metric, tuple(points[at : at + MOST_POINTS]), seen.totals.get(metric, 0))
        for metric, points in seen.metrics.items()
        for at in range(0, len(points), MOST_POINTS)
    ]
    told += [*seen.fired, *seen.troubles]
    for at in range(0, len(told), MOST_OBSERVATIONS):
        yield Observed(SpanId(0), record, index, seen.attempt, told[at : at + MOST_OBSERVATIONS])
