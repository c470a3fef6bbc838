"""What is announced to busy executors: which task, to whom, how often, and that nothing is bound by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.indexes.announcements import Announcements
from bough.core.records.indexes.waiting_units import Unit
from bough.model.events import facts
from bough.model.events.orders import AnnounceInputs
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.testing.builders import task
from tests.unit.policies.data_bench import DataBench

MOMENT = 0.2


class Announcing(DataBench):
    """A bench that keeps what was announced: to which executor which task."""

    def __init__(self, policy: str = "bough") -> None:
        super().__init__(policy)
        self.announced: list[tuple[int, int]] = []

    def tell(self, *said: object) -> None:
        turn = self.bench.tell(*said)
        assert turn.complaints == []
        self.announced += [(one.executor, one.record) for one in turn.orders if isinstance(one, AnnounceInputs)]
        for fact in turn.facts:
            if isinstance(fact, facts.Placed):
                self.went.update({(fact.record, index): fact.executor for index in range(fact.start, fact.stop)})

    def run_timers(self, seconds: float) -> int:
        """Let time pass; turns are taken when the machine asked for them, and no others. How many there were."""
        end, turns = self.bench.now + seconds, 0
        while (due := self.machine.next_timer) is not None and due <= end:
            self.wait(max(0.0, due - self.bench.now))
            turns += 1
        self.bench.now = end
        return turns

    def settle(self) -> None:
        """Wait until all have been looked at: after one for whom there is nothing the others wait a moment."""
        for _ in range(8):
            self.wait(MOMENT)


def busy(policy: str = "bough", executors: int = 2) -> Announcing:
    """Executors of one core, each with a task."""
    shop = Announcing(policy)
    for number in range(1, executors + 1):
        shop.executor(number)
    for number in range(1, executors + 1):
        shop.submit(number, f"own{number}")
    assert len(shop.went) == executors
    return shop


def test_each_busy_executor_hears_of_another_task_once_it_was_busy_for_a_moment() -> None:
    shop = busy()
    for number in (11, 12, 13):
        shop.submit(number, f"file{number}")
    assert shop.announced == []
    assert shop.machine.next_timer is not None
    shop.wait(MOMENT)
    assert sorted(shop.announced) == [(1, 11), (2, 12)]
    for _ in range(5):
        shop.wait(MOMENT)
    assert len(shop.announced) == 2  # one for each core, and not again


def test_executors_that_were_busy_before_anything_declared_inputs_hear_of_it_too() -> None:
    shop = Announcing()
    shop.executor(1)
    shop.bench.submit(task(1))
    shop.submit(11, "a")
    shop.wait(MOMENT)
    assert shop.announced == [(1, 11)]


def test_what_becomes_ready_while_there_was_nothing_to_announce_is_not_forgotten() -> None:
    """Nothing else happens: the machine wants to be asked again by itself."""
    shop = busy(executors=3)
    shop.wait(MOMENT)
    shop.submit(11, "a")
    shop.run_timers(1.0)
    shop.submit(12, "b")
    shop.wait(0.001)
    shop.submit(13, "c")
    shop.run_timers(1.0)
    assert sorted(record for _, record in shop.announced) == [11, 12, 13]


def test_everybody_is_looked_at_also_if_there_is_nothing_for_the_first_and_then_nobody_is() -> None:
    shop = busy(executors=4)
    shop.cache(4, "a")
    shop.submit(11, "a", "b")
    assert shop.run_timers(5.0) < 12
    assert shop.announced == [(4, 11)]


def test_what_becomes_ready_while_all_are_busy_is_announced_too() -> None:
    shop = busy(executors=1)
    shop.wait(MOMENT)
    shop.wait(MOMENT)
    shop.submit(11, "file")
    shop.wait(MOMENT)
    assert shop.announced == [(1, 11)]


def test_the_next_is_announced_when_the_announced_one_has_begun() -> None:
    shop = busy(executors=1)
    shop.submit(11, "a")
    shop.submit(12, "b")
    shop.wait(MOMENT)
    shop.cache(1, "a")
    shop.end(1)
    assert shop.went[11, 0] == 1
    shop.wait(MOMENT)
    assert shop.announced == [(1, 11), (1, 12)]


def test_nothing_is_bound_by_it() -> None:
    shop = busy(executors=2)
    shop.submit(11, "a")
    shop.wait(MOMENT)
    ((whose, _),) = shop.announced
    other = 3 - whose
    shop.end(next(record for (record, _), at in shop.went.items() if at == other))
    assert shop.went[11, 0] == other
    shop.submit(12, "b")
    shop.submit(13, "c")
    shop.wait(MOMENT)
    assert sorted(shop.announced)[1:] in ([(1, 12), (2, 13)], [(1, 13), (2, 12)])


def test_an_executor_hears_of_the_task_that_has_the_most_data_there() -> None:
    shop = busy(executors=2)
    shop.sizes.update(big=10_000, small=10)
    shop.cache(2, "big")
    shop.submit(11, "small")
    shop.submit(12, "big", "other")
    shop.wait(MOMENT)
    assert sorted(shop.announced) == [(1, 11), (2, 12)]


def test_what_is_all_there_is_kept_for_its_place_without_a_word() -> None:
    shop = busy(executors=1)
    shop.cache(1, "here")
    shop.submit(11, "here")
    shop.submit(12, "elsewhere")
    shop.wait(MOMENT)
    assert shop.announced == []


def test_a_task_that_cannot_run_there_or_declares_nothing_is_not_announced() -> None:
    shop = busy(executors=1)
    shop.submit(11, "a", needs=Needs(cores=4))
    shop.bench.submit(task(21))
    shop.wait(MOMENT)
    assert shop.announced == []
    shop.executor(2, cores=4)
    assert shop.went[11, 0] == 2


def test_what_was_announced_to_an_executor_that_is_gone_is_announced_to_another() -> None:
    shop = busy(executors=2)
    shop.submit(11, "a")
    shop.wait(MOMENT)
    ((whose, _),) = shop.announced
    shop.tell(facts.ExecutorLost(ExecutorId(whose), "gone"))
    for _ in range(4):
        shop.wait(MOMENT)
    assert (3 - whose, 11) in shop.announced


# --- where places are sites ----------------------------------------------------------------------------


def two_sites() -> Announcing:
    """Two sites of two hosts each, all busy: 1 and 2 at the first, the latter for longer, 3 and 4 at the second."""
    shop = Announcing("storage-affinity")
    for number in (2, 1, 3, 4):
        shop.executor(number, site="one" if number < 3 else "two")
        shop.submit(number, f"own{number}")
        shop.wait(0.001)
    assert {record: whose for (record, _), whose in shop.went.items()} == {1: 1, 2: 2, 3: 3, 4: 4}
    return shop


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_site_that_has_the_most_hears_of_a_task_first_by_the_executor_that_was_busy_longest(is_shared: bool) -> None:
    shop = two_sites()
    shop.cache(4, "a", shared=is_shared)
    shop.submit(11, "a", "more")
    shop.submit(12, "elsewhere")
    shop.settle()
    assert sorted(shop.announced) == [(2, 12), (3, 11)]


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_another_host_of_its_site_or_the_shared_store_has_is_brought_to_the_host(is_shared: bool) -> None:
    shop = two_sites()
    shop.cache(4, "a", shared=is_shared)
    shop.submit(11, "a")
    shop.settle()
    assert shop.announced == [(3, 11)]
    shop.cache(2, "b")
    shop.submit(12, "b")  # is kept for the one whose host has it, without a word
    shop.settle()
    assert shop.announced == [(3, 11)]


def test_announcements_change_no_decision_of_storage_affinity() -> None:
    """It never waits for the place that a task was announced to."""
    shop = two_sites()
    shop.submit(11, "a")
    shop.settle()
    assert shop.announced == [(2, 11)]
    shop.end(4)
    assert shop.went[11, 0] == 4


@pytest.mark.parametrize("policy", ["fifo"])
def test_a_policy_that_is_blind_to_data_announces_nothing(policy: str) -> None:
    shop = busy(policy, executors=1)
    shop.submit(11, "a")
    shop.wait(MOMENT)
    shop.wait(MOMENT)
    assert shop.announced == []


def test_what_was_placed_before_anybody_was_busy_is_not_kept() -> None:
    announcements = Announcements()
    for _ in range(20_000):
        announcements.became_ready(cast("Unit", SimpleNamespace(is_ready=False)), 0)
    assert len(announcements._unheard) < 5000


def test_a_rest_is_kept_when_more_have_become_busy() -> None:
    announcements = Announcements()
    executors = {
        number: cast("ExecutorRecord", SimpleNamespace(id=number, wide=False, draining=False, away=False, suspended=0))
        for number in range(1, 60)
    }
    for number in range(1, 30):
        announcements.served(number, 0.0)
    first = announcements.due
    assert first is not None
    announcements.unsatisfied(next(announcements.look(executors, first)), first)  # now there is a rest
    for number in range(30, 60):
        announcements.served(number, first / 2)
    second = announcements.due
    assert second == first + first / 2
    for one in announcements.look(executors, second):
        announcements.satisfied(one)
    third = announcements.due  # more are to be looked at, after the rest
    assert third is not None
    assert third > second
    assert announcements.is_due(third)
    assert not announcements.is_due((second + third) / 2)
