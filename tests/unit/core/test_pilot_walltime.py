"""Pilots that end: what would not finish in their time asks for none, goes to none, and explain says so."""

from __future__ import annotations

from bough.core.explain import explain
from bough.core.machine import Turn
from bough.core.scheduling.provisioning import PERIOD
from bough.model.events import facts
from bough.model.events.orders import AskForPilot
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.testing.builders import array, executor, limits, submit, task
from tests.unit.core.core_bench import Bench


def asked(turn: Turn) -> list[int]:
    return [order.pilot for order in turn.orders if isinstance(order, AskForPilot)]


def bench_with(walltime: float) -> Bench:
    bench = Bench(cores=0)
    bench.tell(facts.SiteDefined("alpha", SiteSpec("batch", batch="slurm", cores_per_pilot=1, walltime=walltime)))
    return bench


def test_no_pilot_is_asked_for_what_cannot_end_in_its_time() -> None:
    bench = bench_with(600.0)
    assert not asked(bench.tell(submit(task(1, limits=limits(walltime=700.0)))))
    [first, second] = explain(bench.machine.state, 1)
    assert first.endswith("is ready, but there is no executor")
    assert "its pilots end after 600 s, and it is expected to run for 700 s; give the site a longer" in second
    bench.now += PERIOD
    assert asked(bench.tell(submit(task(2, limits=limits(walltime=500.0))))) == [1]


def test_a_long_task_in_front_does_not_hide_a_short_one() -> None:
    bench = bench_with(600.0)
    long = [task(number, limits=limits(walltime=700.0)) for number in range(1, 200)]
    assert not asked(bench.tell(submit(*long)))
    bench.now += PERIOD
    assert asked(bench.tell(submit(task(500)))) == [1]  # nobody knows how long it takes


def test_an_array_is_asked_for_by_its_measured_time() -> None:
    bench = bench_with(600.0)
    assert asked(bench.tell(submit(array(1, 3, template="x")))) == [1]
    bench.tell(executor(5, 1, site="alpha", pilot=1, until=600.0))
    bench.end(1, 0, seconds=650.0)
    bench.tell(facts.ExecutorLost(5, "its time is over"))
    assert not asked(bench.tell(facts.PilotEnded(PilotId(1), "over")))
    assert "gets no pilot for it" in explain(bench.machine.state, 1, 2)[-1]


def test_a_task_waits_if_every_executor_leaves_before_it_would_end() -> None:
    bench = bench_with(600.0)
    bench.tell(executor(5, 1, site="alpha", until=100.0))
    bench.submit(task(1, limits=limits(walltime=300.0)))
    assert (
        "every executor that could take it leaves before, the last one in 100 s" in explain(bench.machine.state, 1)[0]
    )
