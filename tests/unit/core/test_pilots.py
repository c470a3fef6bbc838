"""Pilots in the core: asked for while work has no place, within bounds, with rests after failures."""

from __future__ import annotations

import pytest

from bough.core.machine import Machine, Turn
from bough.core.queries.facade import Queries
from bough.core.scheduling.provisioning import PERIOD
from bough.errors import InvalidTransition
from bough.model.events import facts
from bough.model.events.orders import AskForPilot, CancelPilot
from bough.model.sites.site_specs import PILOT_EDGES, PilotId, PilotState, SiteSpec
from bough.policies.placement.fifo import Fifo
from bough.policies.provisioning.all_at_once import AllAtOnce
from bough.policy.interface import Policies
from bough.policy.shortage import Provisioner
from bough.testing.builders import executor, needs, submit, task
from tests.unit.core.core_bench import Bench


def asked(turn: Turn) -> list[tuple[int, str]]:
    return [(order.pilot, order.site) for order in turn.orders if isinstance(order, AskForPilot)]


def defined(site: str = "alpha", pilots: int = 2, cores: float = 2.0) -> facts.SiteDefined:
    return facts.SiteDefined(site, SiteSpec(ssh="head", max_pilots=pilots, cores_per_pilot=cores))


def bench_with(*definitions: facts.SiteDefined) -> Bench:
    bench = Bench(cores=0)
    bench.tell(*definitions)
    return bench


def test_nothing_is_asked_for_without_work() -> None:
    assert not bench_with(defined()).orders


def test_as_many_as_the_work_needs_and_no_more_than_allowed() -> None:
    bench = bench_with(defined(pilots=3))
    assert asked(bench.tell(submit(task(1), task(2), task(3)))) == [(1, "alpha"), (2, "alpha")]  # 3 cores, 2 each
    assert not asked(bench.tell(submit(*(task(number) for number in range(4, 40)))))  # it was asked just now
    bench.now += PERIOD
    assert asked(bench.tell()) == [(3, "alpha")]
    bench.now += PERIOD
    assert not asked(bench.tell(submit(task(40))))


def test_several_sites_share_what_is_wanted() -> None:
    bench = bench_with(defined("alpha", 1), defined("beta", 5))
    assert asked(bench.tell(submit(*(task(number) for number in range(1, 7))))) == [
        (1, "alpha"),
        (2, "beta"),
        (3, "beta"),
    ]


def test_a_task_bound_to_a_site_asks_there_only() -> None:
    bench = bench_with(defined("alpha"), defined("beta"))
    bound = task(1, needs=needs(named=(("site:beta", 1.0),)))
    assert asked(bench.tell(submit(bound))) == [(1, "beta")]


def test_a_pilot_runs_when_its_executor_joins_and_its_site_is_known_by_it() -> None:
    bench = bench_with(defined(pilots=2, cores=0))
    assert asked(bench.tell(submit(task(1), task(2), task(3)))) == [(1, "alpha")]  # how big it is must be learnt
    bench.tell(facts.PilotQueued(PilotId(1), "77"))
    turn = bench.tell(executor(5, 1, site="alpha", pilot=1))
    pilot = bench.machine.state.pilots[1]
    assert (pilot.state, pilot.handle) == (PilotState.RUNNING, "77")
    assert asked(turn) == [(2, "alpha")]


def test_what_can_never_run_there_is_not_asked_for_again() -> None:
    bench = bench_with(defined(cores=0))
    assert asked(bench.tell(submit(task(1, needs=needs(8))))) == [(1, "alpha")]
    bench.tell(executor(5, 1, site="alpha", pilot=1))
    bench.tell(facts.ExecutorLost(5, "idle"))
    assert not asked(bench.tell(facts.PilotEnded(PilotId(1), "idle")))
    assert not bench.machine.state.pilots


def test_a_site_rests_after_a_failure_twice_as_long_each_time() -> None:
    bench = bench_with(defined(pilots=1))
    bench.tell(submit(task(1)))
    for rest, pilot in ((5.0, 1), (10.0, 2), (20.0, 3)):
        assert not asked(bench.tell(facts.PilotEnded(PilotId(pilot), "no python", failed=True)))
        assert any("no python" in line for line in bench.machine.explain(1))
        bench.now += rest - 0.1
        assert not asked(bench.tell())
        bench.now += 0.1
        assert asked(bench.tell()) == [(pilot + 1, "alpha")]


def test_a_site_that_leaves_has_its_pilots_cancelled_and_gets_new_ones_when_it_is_back() -> None:
    bench = bench_with(defined(pilots=1))
    bench.tell(submit(task(1)))
    turn = bench.tell(facts.SiteLeft("alpha", "needed", 30.0))
    assert [order for order in turn.orders if isinstance(order, CancelPilot)] == [
        CancelPilot(PilotId(1), "alpha", 30.0)
    ]
    assert not asked(bench.tell(facts.PilotEnded(PilotId(1), "cancelled")))
    assert asked(bench.tell(facts.SiteReturned("alpha"))) == [(2, "alpha")]


def test_a_site_that_is_removed_is_forgotten_with_its_pilots() -> None:
    bench = bench_with(defined())
    bench.tell(submit(task(1)))
    bench.tell(facts.SiteRemoved("alpha"))
    assert not bench.machine.state.sites
    assert not bench.machine.state.pilots
    assert not bench.tell(facts.PilotEnded(PilotId(1))).facts  # said too late
    bench.tell(executor(1, 1, site="alpha", pilot=1))  # its executor may still come
    assert bench.machine.state.records[1].state_of(0) != 0


def test_every_edge_but_these_is_our_bug() -> None:
    machine = Machine(Policies(Fifo(), provisioning=Provisioner(AllAtOnce())))
    machine.turn(0.0, [facts.RunOpened(1, "t", "h", 1), defined(), submit(task(1))])
    machine.replay(9, 0.0, [facts.PilotQueued(PilotId(1), "1")])
    with pytest.raises(InvalidTransition):
        machine.replay(10, 0.0, [facts.PilotQueued(PilotId(1), "2")])
    assert all(state is not PilotState.ENDED for state, _ in PILOT_EDGES)


def test_what_a_definition_says_of_transfers_is_known() -> None:
    bench = bench_with(facts.SiteDefined("alpha", SiteSpec(ssh="head", max_transfers=3)), defined("beta"))
    queries = Queries(bench.machine)
    assert [queries.max_transfers(site) for site in ("alpha", "beta", "nowhere")] == [3, 0, 0]
