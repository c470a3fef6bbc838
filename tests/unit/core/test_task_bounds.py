"""Bounds on the tasks that executors have: of a site, and of all."""

from __future__ import annotations

import pytest

from bough.core.invariants import check, picture
from bough.core.machine import Machine, Turn
from bough.model.events import facts, news
from bough.model.events.facts import Fact, decode_facts, encode_facts
from bough.model.events.orders import SendSpan
from bough.model.ids import ExecutorId
from bough.model.sites.site_specs import SiteSpec
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, submit, task


class Bench:
    """A core with sites a (bounded) and b, whose facts are replayed into a twin."""

    def __init__(self, most: int = 0, in_all: int = 0) -> None:
        self.policies = Policies(Fifo(), max_tasks=in_all)
        self.machine, self.twin = Machine(self.policies), Machine(self.policies)
        self.now = 1.0
        self.sent: dict[int, int] = {}  # executors by span
        self.tell(facts.RunOpened(1, "t", "h", 1), facts.SiteDefined("a", SiteSpec(ssh="h", max_tasks=most)))

    def tell(self, *events: Fact | news.WorkNews) -> Turn:
        self.now += 1.0
        turn = self.machine.turn(self.now, events)  # type: ignore[arg-type]
        if turn.facts:
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        check(self.machine.state)
        check(self.twin.state)
        restored = Machine.restore(self.machine.snapshot(), self.policies)
        check(restored.state)
        self.twin.state.now = restored.state.now = self.now
        assert picture(self.twin.state) == picture(self.machine.state) == picture(restored.state)
        for order in turn.orders:
            if isinstance(order, SendSpan):
                self.sent.update((one.span, order.executor) for one in order.singly())
        return turn

    def out(self, site: str) -> int:
        executors = [one for one in self.machine.state.executors.values() if one.site == site]
        return sum(high - low for one in executors for span in one.spans.values() for low, high in span.left)

    def finish_one(self) -> None:
        span = min(self.machine.state.spans.values(), key=lambda one: one.id)
        low = span.left[0][0]
        self.tell(news.WorkSucceeded(span.id, low, low + 1, 0.01))


def test_a_site_never_has_more_tasks_than_it_may_and_all_are_done() -> None:
    bench = Bench(most=3)
    bench.tell(executor(1, 2, site="a"), executor(2, 2, site="a"), executor(3, 1, site="b"))
    bench.tell(submit(*(task(number) for number in range(1, 21))))
    for _ in range(20):
        assert bench.out("a") <= 3
        bench.finish_one()
    assert bench.machine.is_idle
    assert {1, 2, 3} == set(bench.sent.values())


def test_arrays_and_backlogs_keep_the_bound_too() -> None:
    bench = Bench(most=5)
    bench.tell(executor(1, 1, site="a"), executor(2, 1, site="a"))
    bench.machine.state.runtime_of("x").note(1000, 1.0)  # a millisecond each
    bench.twin.state.runtime_of("x").note(1000, 1.0)
    bench.tell(submit(array(1, 60, template="x"), *(task(number, template="x") for number in range(2, 22))))
    for _ in range(80):
        assert 0 < bench.out("a") <= 5
        bench.finish_one()
    assert bench.machine.is_idle


def test_a_bound_holds_over_all_sites_also_without_definitions() -> None:
    bench = Bench(in_all=2)
    bench.tell(executor(1, 2, site="x"), executor(2, 2, site="y"))
    bench.tell(submit(*(task(number) for number in range(1, 8))))
    for _ in range(7):
        assert bench.out("x") + bench.out("y") <= 2
        bench.finish_one()
    assert bench.machine.is_idle


def test_explain_names_the_bound() -> None:
    bench = Bench(most=1)
    bench.tell(executor(1, 4, site="a"), submit(task(1), task(2)))
    [line] = bench.machine.explain(2)
    assert line.endswith("is ready, but site a has 1 task out, as many as it may have at once")
    everywhere = Bench(in_all=1)
    everywhere.tell(executor(1, 4), submit(task(1), task(2)))
    assert "all sites together" in everywhere.machine.explain(2)[0]


def test_a_bound_that_changes_counts_at_once_and_ends_nothing() -> None:
    bench = Bench()
    bench.tell(executor(1, 8, site="a"), submit(*(task(number) for number in range(1, 13))))
    assert bench.out("a") == 8
    bench.tell(facts.SiteDefined("a", SiteSpec(ssh="h", max_tasks=2)))
    assert bench.out("a") == 8
    for _ in range(6):
        bench.finish_one()
    assert bench.out("a") == 2
    bench.tell(facts.SiteDefined("a", SiteSpec(ssh="h", max_tasks=4)))
    assert bench.out("a") == 4
    bench.tell(facts.SiteRemoved("a"))
    assert bench.out("a") == 6


@pytest.mark.parametrize("lost", [1, 2])
def test_what_a_lost_executor_had_makes_room_for_others(lost: int) -> None:
    bench = Bench(most=2)
    bench.tell(executor(1, 2, site="a"), executor(2, 2, site="a"))
    bench.tell(submit(*(task(number) for number in range(1, 6))))
    assert bench.out("a") == 2
    bench.tell(facts.ExecutorLost(ExecutorId(lost), "gone"))
    assert bench.out("a") == 2
