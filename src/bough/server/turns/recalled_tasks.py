"""What was seen of reused tasks when they ran is told again, so that a script that is run again finds it.

Tags, emitted values and series of a reused task are then those of the run that did it, for its script, for people and
for rules that compare tasks. Rule: what is written of it at once is bounded, so that an array of many watched tasks is
recalled in pieces, and a rule hears of many reused tasks in pages, before it is set.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from bough import logs
from bough.core.queries.facade import Queries
from bough.errors import StoreFailed, UserError
from bough.model.events.arriving import News, Recalled
from bough.model.events.facts import MembersRecalled, MemoLookedUp, Observed, RecalledMember
from bough.model.events.news import SetRule
from bough.model.ids import RecordId, SpanId
from bough.model.monitoring.observations import (
    MOST_OBSERVATIONS,
    MOST_POINTS,
    Observation,
    Points,
    SeenTask,
    was_ended_by_rule,
)
from bough.model.monitoring.population_rules import PopulationRule, scores_at
from bough.server.turns.background import Background
from bough.stores.store import Store

_TOGETHER = 64  # tasks that are recalled in one piece
_PAGE = 1000  # of a population that are told in one turn
_SLICE = 0.02  # seconds of reading between turns


class Turning(Protocol):
    """What setting a rule needs of the shell."""

    @property
    def store(self) -> Store:
        """Which has what was seen of them."""

    @property
    def queries(self) -> Queries:
        """The state of the core."""

    @property
    def background(self) -> Background:
        """Which brings the jobs database up to date."""

    def news(self, fact: News, then: Callable[[], None] | None = None) -> None:
        """Put something into the next turn; `then` is called once that turn is written."""


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


class RuleSetting:
    """Sets rules of populations: what was reused before is told first, a page a turn, and then the rule.

    Rules for one population are set one after the other.
    """

    def __init__(self, shell: Turning) -> None:
        self._shell = shell
        self._asked: dict[tuple[bool, int], deque[tuple[SetRule, Callable[[], None]]]] = {}  # the first is being set

    def set(self, action: SetRule, then: Callable[[], None]) -> None:
        """Set a rule, or remove it; `then` is called once that is written."""
        asked = self._asked.setdefault((action.target.is_group, action.target.id), deque())
        asked.append((action, then))
        if len(asked) == 1:
            self._begin(action)

    def _begin(self, action: SetRule) -> None:
        target, rule = action.target, action.rule
        if rule is None:
            self._finish(action)
            return
        pages = self._pages(action, rule, self._shell.queries.reused_parts(target))
        go_on = partial(self._go_on, action, pages)
        self._shell.news(
            MembersRecalled(target, rule, begins=True), then=partial(self._shell.background.when_folded, go_on)
        )

    def _go_on(self, action: SetRule, pages: Iterator[MembersRecalled]) -> None:
        page = next(pages, None)
        if page is None:
            self._finish(action)
        else:
            self._shell.news(page, then=partial(self._go_on, action, pages))

    def _finish(self, action: SetRule) -> None:
        self._shell.news(action, then=partial(self._is_set, action))

    def _is_set(self, action: SetRule) -> None:
        key = (action.target.is_group, action.target.id)
        asked = self._asked[key]
        _, then = asked.popleft()
        then()
        if asked:
            self._begin(asked[0][0])
        else:
            del self._asked[key]

    def _pages(
        self, action: SetRule, rule: PopulationRule, parts: Sequence[tuple[RecordId, int, int]]
    ) -> Iterator[MembersRecalled]:
        """What was reused, as much of it at a time as is read in a short while."""
        members: list[RecalledMember] = []
        answers, until = 0, time.monotonic() + _SLICE
        for record, low, high, there in self._read(_joined(parts)):
            found = [one for seen in there if (one := _member(rule, record, seen)) is not None]
            members += found
            answers += high - low - sum(one.by_rule for one in found)
            if len(members) >= _PAGE or time.monotonic() >= until:
                for at in range(_PAGE, len(members), _PAGE):
                    yield MembersRecalled(action.target, rule, tuple(members[at : at + _PAGE]))
                yield MembersRecalled(action.target, rule, tuple(members[:_PAGE]), answers)
                members, answers, until = [], 0, time.monotonic() + _SLICE
        if members or answers:
            yield MembersRecalled(action.target, rule, tuple(members), answers)

    def _read(self, parts: Iterable[tuple[RecordId, int, int]]) -> Iterator[tuple[RecordId, int, int, list[SeenTask]]]:
        """What was seen of tasks, some at a time; more of them where nothing is found."""
        for record, start, stop in parts:
            at, size = start, _PAGE
            while at < stop:
                end = min(stop, at + size)
                try:
                    seen = _last_attempts(_seen(self._shell.store, record, at, end))
                except StoreFailed as error:
                    logs.warning("memo-lookup-failed", f"what was seen of earlier runs could not be read: {error}")
                    seen = []
                yield record, at, end, seen
                at, size = end, 4 * size if not seen else _PAGE


def _joined(parts: Sequence[tuple[RecordId, int, int]]) -> Iterator[tuple[RecordId, int, int]]:
    """Parts, those that follow each other as one."""
    last: tuple[RecordId, int, int] | None = None
    for part in parts:
        if last is not None and (last[0], last[2]) == part[:2]:
            last = (last[0], last[1], part[2])
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


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
