"""Setting a rule whose population has many reused tasks: they are told in pages, and then the rule is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bough.errors import StoreFailed, UserError
from bough.model.events.facts import MembersRecalled
from bough.model.events.news import SetRule
from bough.model.ids import RecordId
from bough.model.monitoring.observations import Fired, SeenTask
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.tasks import Dep, On
from bough.server.turns import recalled_tasks
from bough.server.turns.recalled_tasks import RuleSetting

RULE = PopulationRule("halving", "loss", (10.0,))
ARRAY, OTHER = Dep(On.ARRAY, 7), Dep(On.ARRAY, 8)
MOST = 300  # tasks of one answer of the store


class Desk:
    """A shell, a store and the core's queries, as far as setting a rule needs them."""

    def __init__(self, parts: list[tuple[int, int, int]], seen: Callable[[int, int], SeenTask | None]) -> None:
        self.parts = parts
        self._seen = seen
        self.inbox: list[Any] = []
        self.told: list[Any] = []
        self.asked: list[tuple[int, int, int]] = []
        self.store: Any = self
        self.queries: Any = self
        self.background: Any = self

    def reused_parts(self, target: Dep) -> list[tuple[int, int, int]]:
        return self.parts if target == ARRAY else []

    def observations(self, record: RecordId, start: int, stop: int) -> list[SeenTask]:
        self.asked.append((record, start, stop))
        found = [seen for index in range(start, min(stop, start + 10**6)) if (seen := self._seen(record, index))]
        if len(found) > MOST:
            raise UserError("too many")
        return found

    def when_folded(self, then: Callable[[], None]) -> None:
        then()

    def news(self, fact: Any, then: Callable[[], None] | None = None) -> None:
        self.inbox.append((fact, then))

    def run(self) -> None:
        """Turns, until nothing is left to do."""
        while self.inbox:
            fact, then = self.inbox.pop(0)
            self.told.append(fact)
            if then is not None:
                then()


def with_loss(record: int, index: int) -> SeenTask:
    fired = [Fired(1.0, "halving", action="finish")] if index % 10 == 0 else []
    return SeenTask(index, 1, {"loss": [(10.0, 1.0, float(index))]}, fired=fired)


def test_many_reused_tasks_are_told_in_pages_before_the_rule() -> None:
    desk, ends = Desk([(7, at, at + 64) for at in range(0, 6400, 64)], with_loss), []
    RuleSetting(desk).set(SetRule(ARRAY, RULE), lambda: ends.append("set"))
    desk.run()
    first, *pages, last = desk.told
    assert first == MembersRecalled(ARRAY, RULE, begins=True)
    assert last == SetRule(ARRAY, RULE)
    assert all(len(page.members) <= 1000 for page in pages)
    members = [member for page in pages for member in page.members]
    assert sorted(member.index for member in members) == list(range(6400))
    assert all(member.scores == (float(member.index),) for member in members)
    assert sum(page.answers for page in pages) == 6400 - 640  # a rule had ended the others
    assert ends == ["set"]


def test_a_long_array_of_which_nothing_was_seen_is_asked_for_in_few_pieces() -> None:
    desk = Desk([(7, 0, 10**8)], lambda _, __: None)
    RuleSetting(desk).set(SetRule(ARRAY, RULE), lambda: None)
    desk.run()
    assert len(desk.asked) < 15
    assert sum(page.answers for page in desk.told[1:-1]) == 10**8


def test_loose_tasks_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalled_tasks, "_SLICE", 60.0)
    desk = Desk([(record, 0, 1) for record in range(100, 2600)], with_loss)
    RuleSetting(desk).set(SetRule(ARRAY, RULE), lambda: None)
    desk.run()
    assert [len(page.members) for page in desk.told[1:-1]] == [1000, 1000, 500]


def test_rules_of_one_population_are_set_one_after_the_other_and_those_of_others_at_once() -> None:
    desk, ends = Desk([(7, 0, 5)], with_loss), []
    rules = RuleSetting(desk)
    other = PopulationRule("first-answer")
    rules.set(SetRule(ARRAY, RULE), lambda: ends.append("first"))
    rules.set(SetRule(ARRAY, other), lambda: ends.append("second"))
    rules.set(SetRule(ARRAY), lambda: ends.append("none"))
    rules.set(SetRule(OTHER, RULE), lambda: ends.append("other"))
    desk.run()
    of_array = [fact for fact in desk.told if fact.target == ARRAY]
    assert [fact.rule for fact in of_array] == [RULE] * 3 + [other] * 3 + [None]
    assert [type(fact) for fact in of_array] == [MembersRecalled, MembersRecalled, SetRule] * 2 + [SetRule]
    assert ends == ["other", "first", "second", "none"]
    rules.set(SetRule(ARRAY), lambda: ends.append("again"))
    desk.run()
    assert ends[-1] == "again"


def test_a_store_that_cannot_be_read_costs_the_scores_and_not_the_rule() -> None:
    def fails(record: int, index: int) -> SeenTask:
        raise StoreFailed("the disk is gone")

    desk, ends = Desk([(7, 0, 5)], fails), []
    RuleSetting(desk).set(SetRule(ARRAY, RULE), lambda: ends.append("set"))
    desk.run()
    assert ends == ["set"]
    assert desk.told[-1] == SetRule(ARRAY, RULE)
