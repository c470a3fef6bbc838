"""What clients hear of failures in groups that may be tried again: nothing, until there is no more hope."""

from __future__ import annotations

import pytest

from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.outcomes import Cause, Failure
from bough.model.states import TaskState
from bough.model.tasks import Dep, GroupSpec, On
from bough.server.turns.result_parts import ResultCache
from bough.server.turns.turn_messages import TurnMessages, WithheldFailures
from bough.testing.builders import array, task
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded
from tests.unit.core.core_bench import Bench


class Ear(Bench):
    """A bench, and a client that listens."""

    def __init__(self, cores: float = 4, **options: object) -> None:
        self._turn_messages: TurnMessages | None = None
        self.heard: list[object] = []
        super().__init__(cores, **options)  # type: ignore[arg-type]
        cache = ResultCache(lambda *_: None)
        self.queries = Queries(self.machine)
        self._turn_messages = TurnMessages(cache, self.queries, WithheldFailures(self.queries))

    def tell(self, *news: facts.Fact) -> object:  # type: ignore[override]
        turn = super().tell(*news)
        if self._turn_messages is not None:
            self.heard += self._turn_messages.messages(turn.facts)
        return turn

    def ends(self) -> list[tuple[int, str]]:
        """Records of which it was told that they ended, and how."""
        words = {TasksSucceeded: "done", TasksFailed: "bad"}
        return [(one.record, words[type(one)]) for one in self.heard if type(one) in words]  # type: ignore[attr-defined]


@pytest.fixture
def ear() -> Ear:
    return Ear()


def group(number: int, retries: int = 0, parent: int = 0) -> GroupSpec:
    return GroupSpec(number, f"g{number}", parent, retries=retries)  # type: ignore[arg-type]


def closed(*numbers: int) -> list[facts.Fact]:
    return [news.GroupClosed(number) for number in numbers]  # type: ignore[arg-type]


def test_a_failure_that_a_retry_undoes_is_never_told(ear: Ear) -> None:
    ear.submit(group(1, retries=1), task(1, group=1), task(2, 1, group=1))
    ear.tell(*closed(1))
    ear.fail(1)
    assert ear.ends() == []
    assert TasksRunning(1, 0, 1, 0) in ear.heard
    ear.end(1)
    ear.end(2)
    assert ear.ends() == [(1, "done"), (2, "done")]


def test_it_is_told_when_the_group_is_over(ear: Ear) -> None:
    ear.submit(group(1, retries=1), task(1, group=1), task(2, 1, group=1), task(3, group=1))
    ear.tell(*closed(1))
    ear.fail(1)
    assert ear.ends() == []  # the group goes on, and is tried again when all in it has ended
    ear.end(3)
    assert ear.ends() == [(3, "done")]
    ear.fail(1)
    assert sorted(ear.ends()) == [(1, "bad"), (2, "bad"), (3, "done")]


def test_while_the_group_is_open_it_is_told_at_once(ear: Ear) -> None:
    ear.submit(group(1, retries=1), task(1, group=1))
    ear.fail(1)
    assert ear.ends() == [(1, "bad")]


def test_an_outer_group_may_try_again_what_an_inner_one_gave_up(ear: Ear) -> None:
    ear.submit(group(1, retries=1), group(2, retries=1, parent=1), task(1, group=2), task(2, group=1))
    ear.tell(*closed(2, 1))
    ear.fail(1)
    ear.fail(1)
    assert ear.ends() == []
    ear.end(2)
    ear.end(1)
    assert ear.ends() == [(2, "done"), (1, "done")]


def test_who_waits_for_such_a_task_from_outside_is_not_told_either(ear: Ear) -> None:
    ear.submit(group(1, retries=1), task(1, group=1), task(2, group=1), task(5, 1))
    ear.tell(*closed(1))
    ear.fail(1)
    assert ear.ends() == []
    ear.end(2)
    ear.end(1)
    ear.end(5)
    assert ear.ends() == [(2, "done"), (1, "done"), (5, "done")]


def test_elements_of_an_array_are_told_one_by_one_when_there_is_no_more_hope(ear: Ear) -> None:
    ear.submit(group(1, retries=1), array(1, 3, group=1))
    ear.tell(*closed(1))
    for _ in range(2):
        for index in range(3):
            if ear.queries.state_of(1, index) is not TaskState.DONE:
                ear.end(1, index) if index == 1 else ear.fail(1, index)
    bad = [(one.start, one.stop) for one in ear.heard if type(one) is TasksFailed]
    assert sorted(bad) == [(0, 1), (2, 3)]


def test_what_somebody_kills_has_no_hope(ear: Ear) -> None:
    ear.submit(group(1, retries=3), task(1, group=1), task(2, 1, group=1))
    ear.tell(*closed(1))
    ear.tell(news.Kill(Dep(On.GROUP, 1)))
    assert (2, "bad") in ear.ends()


def test_nothing_is_kept_when_the_server_stops(ear: Ear) -> None:
    ear.submit(group(1, retries=1), task(1, group=1), task(2, group=1))
    ear.tell(*closed(1))
    ear.fail(1, failure=Failure(Cause.EXIT, "exit code 1"))
    assert ear.ends() == []
    ear.tell(facts.Stopping())
    assert (1, "bad") in ear.ends()
