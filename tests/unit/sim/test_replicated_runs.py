"""Replication in simulated runs: what it wins where hosts differ, and what it costs."""

from __future__ import annotations

import pytest

from bough.core.machine import Machine
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policies.policy_registry import load_replication
from bough.policy.interface import Policies
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, SimulatedExecutor
from bough.sim.schedule import intervals
from bough.sim.simulation import Simulation
from bough.testing.builders import array, needs, submit, task


def ten_seconds(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
    return Fate(10.0)


def run(replication: str, *, tasks: int = 8, slow: float = 0.1, loose: bool = True) -> Simulation:
    """Tasks of 10 s each, on three hosts of speed 1 and one that is slow."""
    policies = Policies(Fifo(), replication=load_replication(replication))
    executors = [SimulatedExecutor(number, needs(1), 1.0 if number < 4 else slow) for number in range(1, 5)]
    sim = Simulation(Machine(policies), ten_seconds, executors)
    sim.at(0.0, submit(*([task(number) for number in range(1, tasks + 1)] if loose else [array(1, tasks)])))
    sim.run()
    sim.check_complete()
    return sim


@pytest.mark.parametrize("loose", [True, False])
def test_a_slow_host_holds_up_the_whole_without_replication_only(loose: bool) -> None:
    """8 tasks: the slow host gets one of the first four, and needs 100 s for it. The others are ready with theirs at
    20 s (3 + 3) and 30 s (the last one); at 20 s two hosts idle, and one of them runs the slow host's task again."""
    assert run("none", loose=loose).now == 100.0
    assert run("wqr", loose=loose).now == 30.0


def test_the_waste_is_what_the_ended_attempts_took() -> None:
    """At 20 s both idle hosts replicate: the slow host's task (0 to 30 s), and the last one, which wins by itself at
    30 s: its replica ran from 20 s on, and so did nothing for 10 s."""
    waste = run("wqr").machine.state.replicas.waste
    assert (waste.made, waste.superseded) == (2, 2)
    assert waste.seconds == pytest.approx(30.0 + 10.0)


def test_a_replica_ends_at_once_and_its_host_goes_on() -> None:
    sim = run("wqr", tasks=4)
    assert intervals(sim)[4].end == 20.0
    assert sim._executors[4].busy == pytest.approx(20.0)
    assert sim.machine.state.executors[4].cores_free == 1


def test_the_age_holds_replicas_back() -> None:
    assert run("wqr:age=25s").now == 35.0  # from 25 s on


def test_a_run_repeats_exactly_and_its_journal_gives_the_same_state() -> None:
    one, two = run("wqr:cap=2"), run("wqr:cap=2")
    assert one.journal == two.journal
    twin = Machine(Policies(Fifo(), replication=load_replication("wqr:cap=2")))
    for number, now, facts in one.journal:
        twin.replay(number, now, facts)
    assert twin.state.replicas.waste == one.machine.state.replicas.waste
    assert twin.counts() == one.machine.counts()
