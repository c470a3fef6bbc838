"""What the core lets a provisioning policy do: releases, minima, budgets, limits, and how often it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from bough.core.invariants import check, picture
from bough.core.machine import Machine, Turn
from bough.core.pilots.sites import MOST_PAST
from bough.core.queries.answers import UsageInfo
from bough.core.queries.facade import Queries
from bough.core.scheduling.provisioning import PERIOD
from bough.model.events import facts, news
from bough.model.events.facts import Fact, decode_facts, encode_facts
from bough.model.events.orders import AskForPilot, CancelPilot, SendSpan
from bough.model.outcomes import Cause, Failure
from bough.model.sites.site_specs import PilotId, PilotState, SiteSpec
from bough.model.tasks import Dep, On
from bough.policies.placement.fifo import Fifo
from bough.policies.provisioning.adaptive import Adaptive
from bough.policies.provisioning.all_at_once import AllAtOnce
from bough.policy.interface import (
    AskAgain,
    AskFor,
    Policies,
    ProvisioningPolicy,
    ProvisioningView,
    ProvisioningWish,
    Refrain,
    Release,
)
from bough.policy.shortage import Provisioner
from bough.testing.builders import executor, group, needs, on_group, submit, task

Wishes = Callable[[ProvisioningView], Iterable[ProvisioningWish]]


class Says:
    """A policy that wishes what a test says, and counts how often it is asked."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self.asked = 0

    def provision(self, view: ProvisioningView, /) -> Iterable[ProvisioningWish]:
        self.asked += 1
        return self.wishes(view)


class Desk:
    """A machine whose facts are replayed into a twin and whose snapshot is restored, after every turn."""

    def __init__(
        self,
        policy: ProvisioningPolicy,
        *sites: tuple[str, SiteSpec],
        most: int = 0,
        named: dict[str, ProvisioningPolicy] | None = None,
    ) -> None:
        self.named = named or {}
        self.policies = Policies(Fifo(), provisioning=policy, max_pilots=most, provisioning_named=self.named.get)
        self.machine = Machine(self.policies, accounts=True)
        self.twin = Machine(self.policies, accounts=True)
        self.now = 1000.0
        self.tell(facts.RunOpened(1, "t", "h", 1), *(facts.SiteDefined(name, spec) for name, spec in sites))

    def tell(self, *events: Fact | news.WorkNews, later: float = 0.0) -> Turn:
        self.now += later
        turn = self.machine.turn(self.now, events)  # type: ignore[arg-type]
        if turn.facts:
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        check(self.machine.state)
        restored = Machine.restore(self.machine.snapshot(), self.policies, accounts=True)
        check(restored.state)
        self.twin.state.now = restored.state.now = self.now
        assert picture(self.twin.state) == picture(self.machine.state) == picture(restored.state)
        return turn

    def usage(self) -> UsageInfo:
        found = Queries(self.machine).site_usage("a", self.now)
        assert found is not None
        return found

    def finish(self, turn: Turn, seconds: float) -> Turn:
        """All that was sent in a turn ends well, after some seconds."""
        spans = [one.span for order in turn.orders if isinstance(order, SendSpan) for one in order.singly()]
        return self.tell(*(news.WorkSucceeded(span, 0, 1, seconds) for span in spans), later=seconds)


def spec(**fields: object) -> SiteSpec:
    return SiteSpec(**{"ssh": "h", "max_pilots": 4, "cores_per_pilot": 1.0, "idle": 60.0, **fields})  # type: ignore[arg-type]


def asked(turn: Turn) -> list[int]:
    return [order.pilot for order in turn.orders if isinstance(order, AskForPilot)]


def cancelled(turn: Turn) -> list[int]:
    return [order.pilot for order in turn.orders if isinstance(order, CancelPilot)]


def nothing(view: ProvisioningView) -> list[ProvisioningWish]:
    return []


def test_pilots_that_are_wished_for_together_are_one_allocation_and_keep_the_reason() -> None:
    desk = Desk(
        Says(lambda view: [AskFor("a", 2, "because"), AskFor("a", 1)] if any(view.demand()) else []), ("a", spec())
    )
    desk.tell(submit(task(1)))
    pilots = desk.machine.state.pilots
    assert [(one.id, one.allocation, one.reason, one.cores) for one in pilots.values()] == [
        (1, 1, "because", 1.0),
        (2, 1, "because", 1.0),
        (3, 3, "", 1.0),
    ]


def test_a_pilot_that_waits_is_withdrawn_and_counts_no_more() -> None:
    policy = Says(lambda view: [AskFor("a", 1)] if any(view.demand()) else [])
    desk = Desk(policy, ("a", spec()))
    desk.tell(submit(task(1)))
    policy.wishes = lambda view: [Release(1, "others did it")]
    turn = desk.tell(facts.PilotQueued(PilotId(1), "77"), facts.SiteHadRoom("a", 3))
    assert cancelled(turn) == [1]
    assert not desk.machine.state.defined_sites["a"].starting
    policy.wishes = nothing
    turn = desk.tell(executor(5, 1, site="a", pilot=1))  # it was faster than that
    assert desk.machine.state.executors[5].draining
    assert not [order for order in turn.orders if isinstance(order, SendSpan)]
    desk.tell(facts.ExecutorLost(5, "it was told to"), facts.PilotEnded(PilotId(1), "others did it"))
    assert not desk.machine.state.pilots
    assert not desk.machine.state.defined_sites["a"].leaving


def test_a_pilot_that_runs_is_released_only_if_it_has_nothing_to_do() -> None:
    policy = Says(lambda view: [AskFor("a", 1)] if any(view.demand()) else [])
    desk = Desk(policy, ("a", spec()))
    desk.tell(submit(task(1)))
    policy.wishes = lambda view: [Release(1)]
    sent = desk.tell(executor(5, 1, site="a", pilot=1))
    assert not cancelled(sent)
    assert desk.machine.state.pilots[1].state is PilotState.RUNNING
    assert cancelled(desk.finish(sent, 2.0)) == [1]
    assert desk.machine.state.executors[5].draining
    assert not cancelled(desk.tell(submit(task(2))))  # it is said once


def test_a_site_keeps_its_minimum_and_lets_go_of_the_others() -> None:
    policy = Says(lambda view: [Release(number) for number in range(9)])
    desk = Desk(policy, ("a", spec(min_pilots=2, max_pilots=3)))
    assert len(desk.machine.state.pilots) == 2
    assert not cancelled(desk.tell(facts.PilotQueued(PilotId(1), "1"), facts.SiteHadRoom("a", 1)))
    policy.wishes = lambda view: [AskFor("a", 1)]
    desk.tell(submit(task(1, needs=needs(8))))
    policy.wishes = nothing
    assert len(desk.machine.state.pilots) == 3
    desk.tell(*(executor(number, 1, site="a", pilot=number) for number in (1, 2, 3)))
    assert desk.machine.next_timer == desk.now + 60.0
    assert cancelled(desk.tell(later=60.0)) == [1]
    assert not cancelled(desk.tell(later=600.0))


def test_a_minimum_above_the_maximum_is_the_maximum() -> None:
    assert len(Desk(Says(nothing), ("a", spec(min_pilots=9, max_pilots=3))).machine.state.pilots) == 3


def test_all_sites_together_have_no_more_than_allowed() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", spec()), ("b", spec()), most=5)
    desk.tell(submit(*(task(number) for number in range(1, 40))))
    assert [len(site.pilots) for site in desk.machine.state.defined_sites.values()] == [4, 1]
    assert "maximum of 5" in Queries(desk.machine).why_no_pilot("b")
    assert "maximum of 4" in Queries(desk.machine).why_no_pilot("a")


def test_a_budget_ends_what_is_idle_and_drains_what_is_not() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", spec(budget=0.5, max_pilots=2)))
    desk.tell(submit(task(1), task(2)))
    desk.tell(executor(1, 1, site="a", pilot=1), executor(2, 1, site="a", pilot=2))
    assert desk.machine.next_timer == pytest.approx(desk.now + 900.0)  # two cores for a quarter of an hour
    turn = desk.tell(news.WorkSucceeded(1, 0, 1, 900.0), later=900.0)  # type: ignore[arg-type]
    assert cancelled(turn) == [1]
    assert desk.machine.state.executors[2].draining
    assert not asked(desk.tell(submit(task(3)), later=PERIOD))
    assert any("budget" in line for line in desk.machine.explain(3))
    assert cancelled(desk.tell(news.WorkSucceeded(2, 0, 1, 901.0), later=PERIOD)) == [2]  # type: ignore[arg-type]
    desk.tell(facts.SiteDefined("a", spec(budget=5.0, max_pilots=4)))
    assert desk.usage().all > 0.5  # what was used is not forgotten with the definition
    assert len(desk.machine.state.pilots) == 3


def test_core_hours_are_added_up_by_what_they_were_for() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", spec(cores_per_pilot=2.0, max_pilots=1)))
    desk.tell(submit(task(1, needs=needs(2))))
    desk.now += 30
    desk.tell(facts.SiteLeft("b"), executor(7, 2, site="a", pilot=1))
    desk.now += 100
    sent = desk.tell(news.WorkSucceeded(1, 0, 1, 100.0), submit(task(2)))  # type: ignore[arg-type]
    span = next(order.span for order in sent.orders if isinstance(order, SendSpan))
    desk.tell(news.WorkFailed(span, 0, Failure(Cause.EXIT, "no")), later=50.0)
    desk.now += 50
    usage = desk.usage()
    assert usage.all * 3600 == pytest.approx(400.0)
    assert usage.used * 3600 == pytest.approx(200.0)
    assert usage.wasted * 3600 == pytest.approx(50.0)
    assert usage.idle * 3600 == pytest.approx(150.0)
    desk.tell(facts.ExecutorLost(7, "gone"), facts.PilotEnded(PilotId(1)))
    desk.now += 1000
    assert desk.usage() == usage
    assert desk.machine.state.defined_sites["a"].usage.live_cores == 0


def test_waits_are_remembered_from_asking_to_the_first_executor() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", spec(max_pilots=1)))
    desk.tell(submit(task(1)))
    desk.tell(executor(7, 1, site="a", pilot=1), later=12.0)
    assert Queries(desk.machine).site_waits("a") == [12.0]


def test_short_tasks_do_not_have_the_policy_asked_with_every_turn() -> None:
    policy = Says(nothing)
    desk = Desk(policy, ("a", spec()))
    before = policy.asked
    for number in range(1, 101):
        desk.tell(submit(task(number)), later=0.001)
    assert policy.asked == before + 1
    assert desk.machine.next_timer == pytest.approx(1000.001 + PERIOD)
    desk.tell(later=PERIOD)
    assert policy.asked == before + 2


def test_a_policy_is_asked_again_when_it_wants_to() -> None:
    policy = Says(lambda view: [AskAgain(view.now + 30), AskAgain(view.now + 20)])
    desk = Desk(policy, ("a", spec()))
    assert desk.machine.next_timer == desk.now + 20
    before = policy.asked
    desk.tell(later=20.0)
    assert policy.asked == before + 1


def test_people_are_told_why_nothing_is_asked_for() -> None:
    desk = Desk(Says(lambda view: [Refrain("a", "it is not worth it")]), ("a", spec()), ("b", spec(cores_per_pilot=1)))
    queries = Queries(desk.machine)
    assert "nothing is ready" in queries.why_no_pilot("a")
    desk.tell(submit(task(1, needs=needs(1, named=(("site:a", 1.0),)))))
    assert queries.why_no_pilot("a") == "it is not worth it"
    assert queries.why_no_pilot("b") == "nothing that is ready could run there"
    assert any("it is not worth it" in line for line in desk.machine.explain(1))
    desk.tell(facts.SiteLeft("a", "repairs"))
    assert queries.why_no_pilot("a") == "it is away: repairs"


def test_what_follows_is_seen_before_it_is_ready() -> None:
    seen: list[tuple[int, float, float]] = []

    def look(view: ProvisioningView) -> list[ProvisioningWish]:
        seen[:] = [(one.tasks, one.expected, one.after) for one in view.coming()]
        return [AskFor("a", 1)] if any(view.demand()) else []

    desk = Desk(Says(look), ("a", spec()))
    first = task(1, group=1, template="x")
    others = [task(number, group=2, template="x") for number in range(2, 7)]
    desk.tell(submit(group(1, "one"), group(2, "two", 0, on_group(1)), first, *others))
    desk.tell(news.GroupClosed(1), news.GroupClosed(2))  # type: ignore[arg-type]
    desk.machine.state.runtime_of("x").note(1, 60.0)
    desk.twin.state.runtime_of("x").note(1, 60.0)
    desk.tell(executor(9, 1, site="a", pilot=1))
    assert seen == [(5, pytest.approx(60.0), pytest.approx(60.0))]
    desk.tell(facts.SiteHadRoom("a", 1), later=25.0)
    assert seen == [(5, pytest.approx(60.0), pytest.approx(35.0))]


def test_adaptive_does_not_ask_for_what_others_will_have_begun() -> None:
    desk = Desk(Adaptive(), ("a", spec(max_pilots=8)))
    desk.machine.state.runtime_of("x").note(10, 10.0)  # a second each
    desk.twin.state.runtime_of("x").note(10, 10.0)
    turn = desk.tell(submit(task(1, template="x"), task(2, template="x")))
    assert asked(turn) == [1, 2]  # nothing is there yet, and nothing is known of waits
    desk.tell(*(executor(number, 1, site="a", pilot=number) for number in (1, 2)), later=100.0)
    turn = desk.tell(submit(*(task(number, template="x") for number in range(3, 8))), later=PERIOD)
    assert not asked(turn)
    assert "before a pilot starts" in Queries(desk.machine).why_no_pilot("a")


def test_a_look_costs_no_more_with_many_tasks_and_pilots() -> None:
    """Steps are counted, not time: what is asked of records while one task is submitted to much that waits."""

    class Counting(Adaptive):
        """Counts the tasks and pilots that the view shows it."""

        seen = 0

        def provision(self, view: ProvisioningView, /) -> Iterable[ProvisioningWish]:
            self.seen = len(list(view.demand())) + len(view.remaining()) + len(view.coming())
            self.seen += sum(len(site.idle()) + 1 for site in view.sites())
            return list(super().provision(view))

    counts = []
    for tasks, pilots in ((50, 20), (5000, 2000)):
        policy = Counting()
        machine = Machine(Policies(Fifo(), provisioning=policy))
        site = facts.SiteDefined("a", spec(max_pilots=pilots, cores_per_pilot=1.0))
        machine.turn(0.0, [facts.RunOpened(1, "t", "h", 1), site])
        machine.turn(1.0, [submit(*(task(number) for number in range(1, tasks + pilots + 1)))])
        machine.turn(2.0, [executor(number, 1, site="a", pilot=number) for number in range(1, pilots + 1)])
        assert len(machine.state.pilots) == pilots
        machine.turn(9.0, [submit(task(10**6))])
        counts.append(policy.seen)
    assert counts[0] <= counts[1] <= 64 + 10


def test_executors_that_people_started_are_accounted_for_at_their_site() -> None:
    desk = Desk(Says(nothing))
    desk.tell(executor(7, 2, site="lab"), executor(8, 1, site="lab"), submit(task(1, needs=needs(2))), later=1.0)
    desk.tell(news.WorkSucceeded(1, 0, 1, 90.0), later=100.0)  # type: ignore[arg-type]
    desk.tell(facts.ExecutorLost(7, "gone"), facts.ExecutorLost(8, "gone"))
    queries = Queries(desk.machine)
    alive, startup, used, wasted = queries.core_seconds(desk.now + 1000)["lab"]
    assert (alive, startup, used, wasted) == pytest.approx((300.0, 100.0, 180.0, 0.0))
    assert not queries.sites()  # nothing is there to be shown, and what was used is known


def test_what_a_cancelled_task_took_is_wasted() -> None:
    desk = Desk(Says(nothing))
    desk.tell(executor(7, 2, site="lab"), submit(task(1, needs=needs(2))), later=1.0)
    desk.tell(news.Cancel(Dep(On.TASK, 1)), later=40.0)  # type: ignore[arg-type]
    assert Queries(desk.machine).core_seconds(desk.now)["lab"][3] == pytest.approx(80.0)


def test_sites_that_have_only_used_core_hours_are_bounded() -> None:
    desk = Desk(Says(nothing))
    for number in range(1, MOST_PAST + 20):
        turn = desk.machine.turn(desk.now, [executor(number, 1, site=f"s{number}")])
        desk.now += 1.0
        turn = desk.machine.turn(desk.now, [facts.ExecutorLost(turn.facts[0].executor, "gone")])  # type: ignore[attr-defined,union-attr]
    assert len(desk.machine.state.sites) == MOST_PAST
    check(desk.machine.state)


def test_a_session_adds_up_nothing() -> None:
    machine = Machine(Policies(Fifo()))
    machine.turn(1.0, [facts.RunOpened(1, "t", "h", 1), executor(1, 2), submit(task(1))])
    machine.turn(5.0, [news.WorkSucceeded(1, 0, 1, 4.0)])  # type: ignore[arg-type]
    assert not Queries(machine).core_seconds(5.0)
    assert not machine.state.executors[1].used
