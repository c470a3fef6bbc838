"""Provisioning knows the bounds of named queues, and sites may have policies of their own."""

from __future__ import annotations

import pytest
from test_provisioning_bounds import Desk, Says, asked, nothing, spec

from bough.core.queries.facade import Queries
from bough.core.scheduling.provisioning import PERIOD
from bough.model.events import facts, news
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.site_specs import PilotId, PilotState
from bough.policies.provisioning.all_at_once import AllAtOnce
from bough.policy.interface import AskFor, ProvisioningView, ProvisioningWish, Release
from bough.policy.shortage import Provisioner
from bough.testing.builders import executor, group, needs, on_group, submit, task


def test_shapes_of_one_queue_are_wanted_together_no_more_than_it_lets_out() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", spec(max_pilots=20)))
    desk.tell(facts.QueueDefined("q", QueueSpec(max_cores=3.0)))
    small = [task(number, needs=needs(1, queue="q")) for number in range(1, 6)]
    other = [task(number, needs=needs(1, memory=1, queue="q")) for number in range(6, 11)]
    turn = desk.tell(submit(*small, *other))
    assert len(asked(turn)) == 3


def test_what_is_ready_in_a_queue_at_its_ceiling_is_no_demand() -> None:
    policy = Says(nothing)
    desk = Desk(policy, ("a", spec()))
    desk.tell(facts.QueueDefined("q", QueueSpec(max_cores=1.0)), executor(7, 1, site="x"))
    desk.tell(submit(task(1, needs=needs(1, queue="q"))), later=PERIOD)
    before = policy.asked
    desk.tell(submit(task(2, needs=needs(1, queue="q"))), later=PERIOD / 10)
    assert policy.asked == before  # not at once: nobody could run it
    desk.tell(later=PERIOD)
    assert not desk.machine.state.is_demanded
    why = Queries(desk.machine).why_no_pilot("a")
    assert why == "the queues of all that is ready hold as many cores as they may"


def test_a_queue_that_ends_its_tasks_lets_long_ones_go_to_short_pilots() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", spec(batch="slurm", walltime=100.0)))
    for machine in (desk.machine, desk.twin):
        machine.state.runtime_of("x").note(1, 500.0)
    turn = desk.tell(facts.QueueDefined("q", QueueSpec()), submit(task(1, template="x", needs=needs(1, queue="q"))))
    assert asked(turn) == []  # it would not end in the time of a pilot
    turn = desk.tell(facts.QueueDefined("q", QueueSpec(max_time=60.0)))
    assert asked(turn) == [1]


@pytest.mark.parametrize(
    ("limits", "tasks", "length"),
    [
        (QueueSpec(), 5, 60.0),
        (QueueSpec(max_cores=2.0), 2, 60.0),
        (QueueSpec(max_time=20.0), 5, 20.0),
        (QueueSpec(max_cores=4.0, max_time=90.0), 4, 60.0),
    ],
)
def test_of_what_follows_only_what_its_queue_will_let_out_is_seen(limits: QueueSpec, tasks: int, length: float) -> None:
    seen: list[tuple[int, float, float]] = []

    def look(view: ProvisioningView) -> list[ProvisioningWish]:
        seen[:] = [(one.tasks, one.expected, one.after) for one in view.coming()]
        return []

    desk = Desk(Says(look), ("a", spec()))
    desk.tell(facts.QueueDefined("q", limits), executor(9, 1, site="x"))
    first = task(1, group=1, template="x", needs=needs(1, queue="q"))
    others = [task(number, group=2, template="x", needs=needs(1, queue="q")) for number in range(2, 7)]
    for machine in (desk.machine, desk.twin):
        machine.state.runtime_of("x").note(1, 60.0)
    desk.tell(submit(group(1, "one"), group(2, "two", 0, on_group(1)), first, *others))
    desk.tell(news.GroupClosed(1), news.GroupClosed(2), facts.SiteHadRoom("a", 1))  # type: ignore[arg-type]
    assert seen == [(tasks, pytest.approx(length), pytest.approx(length))]


# --- policies of single sites ------------------------------------------------------------------------------


def test_each_site_is_seen_by_its_own_policy_only() -> None:
    seen: dict[str, list[str]] = {}

    def watching(name: str) -> Says:
        def look(view: ProvisioningView) -> list[ProvisioningWish]:
            seen[name] = [site.name for site in view.sites()]
            return [AskFor("a", 1, name), AskFor("b", 1, name)] if list(view.demand()) else []

        return Says(look)

    desk = Desk(watching("server's"), ("a", spec()), ("b", spec(provisioning="own")), named={"own": watching("own")})
    desk.tell(submit(task(1), task(2), task(3)))
    assert seen == {"server's": ["a"], "own": ["b"]}
    pilots = desk.machine.state.pilots.values()
    assert [(one.site, one.reason) for one in pilots] == [("a", "server's"), ("b", "own")]
    release = Says(lambda view: [Release(PilotId(1)), Release(PilotId(2))])
    desk.named["own"] = release
    desk.tell(facts.SiteHadRoom("b", 3))
    assert [one.id for one in pilots if one.released] == [2]


def test_what_pilots_of_one_policy_will_take_is_not_asked_for_by_another() -> None:
    desk = Desk(
        Provisioner(AllAtOnce()),
        ("a", spec(max_pilots=3)),
        ("b", spec(max_pilots=9, provisioning="own")),
        named={"own": Provisioner(AllAtOnce())},
    )
    turn = desk.tell(submit(*(task(number) for number in range(1, 6))))
    assert len(asked(turn)) == 5
    assert [one.site for one in desk.machine.state.pilots.values()] == ["a"] * 3 + ["b"] * 2


def test_a_policy_that_is_not_known_any_more_is_replaced_by_the_servers() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", spec(provisioning="gone")))
    turn = desk.tell(submit(task(1)))
    assert asked(turn) == [1]
    assert any("'gone'" in line for line in turn.complaints)


# --- pilots of several executors -----------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [4.0, 0.0])
def test_a_pilot_has_the_cores_of_all_its_executors(cores: float) -> None:
    site = spec(max_pilots=9, cores_per_pilot=cores, executors_per_host=2)
    desk = Desk(Provisioner(AllAtOnce()), ("a", site))
    assert len(asked(desk.tell(submit(task(1), task(2))))) == 1
    desk.tell(executor(7, 2, site="a", pilot=1), executor(8, 2, site="a", pilot=1))
    pilot = desk.machine.state.pilots[1]
    assert (len(pilot.executors), pilot.state) == (2, PilotState.RUNNING)
    turn = desk.tell(submit(*(task(number) for number in range(3, 13))), later=PERIOD)
    assert len(asked(turn)) == 2  # ten are ready, two of them have a place, and the others need eight cores
    desk.tell(facts.ExecutorLost(7, "idle"))
    assert desk.machine.state.pilots[1].state is PilotState.RUNNING
    desk.tell(facts.ExecutorLost(8, "idle"), facts.PilotEnded(PilotId(1)))
    assert 1 not in desk.machine.state.pilots


def test_what_fits_one_executor_of_a_pilot_counts_not_what_fits_the_pilot() -> None:
    site = spec(max_pilots=9, cores_per_pilot=3.0, executors_per_host=2)
    desk = Desk(Provisioner(AllAtOnce()), ("a", site))
    assert asked(desk.tell(submit(task(1, needs=needs(3))))) == []
    assert len(asked(desk.tell(submit(task(2, needs=needs(2))), later=PERIOD))) == 1
    desk.tell(executor(7, 2, site="a", pilot=1), executor(8, 1, site="a", pilot=1))
    assert len(asked(desk.tell(submit(*(task(number, needs=needs(2)) for number in (3, 4, 5))), later=PERIOD))) > 0
