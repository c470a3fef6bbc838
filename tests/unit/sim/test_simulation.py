"""The simulator: makespans computed by hand, determinism, and how well the load is balanced."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from bough.core.invariants import check
from bough.core.machine import Machine
from bough.errors import InternalError
from bough.model.events import facts, news
from bough.model.events.facts import ExecutorLost, Placed, SpanEnded
from bough.model.events.news import Cancel, Kill
from bough.model.ids import ExecutorId, GroupId
from bough.model.outcomes import Cause, Failure
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, Dep, On, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policy.interface import PlacementPolicy, Policies
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, SimulatedExecutor
from bough.sim.simulation import Simulation
from bough.testing.builders import BOOM, array, group, limits, needs, on_array, on_group, submit, task

Length = Callable[[int, int], float]  # record, index -> seconds


def simulation(
    length: Length | float = 1.0,
    cores: float | tuple[float, ...] = 2,
    *,
    fails: Callable[[int, int, int], Failure | None] = lambda record, index, attempt: None,
    policy: PlacementPolicy | None = None,
    capacity: Needs | None = None,
    speed: float = 1.0,
) -> Simulation:
    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        seconds = length if isinstance(length, int | float) else length(spec.id, index)
        return Fate(seconds, fails(spec.id, index, attempt))

    sizes = cores if isinstance(cores, tuple) else (cores,)
    rooms = [SimulatedExecutor(n, capacity or needs(size), speed) for n, size in enumerate(sizes, 1)]
    return Simulation(Machine(Policies(policy or Fifo())), model, rooms)


def makespan(sim: Simulation, *items: object) -> float:
    sim.at(0.0, submit(*items))  # type: ignore[arg-type]
    end = sim.run()
    assert sim.machine.is_idle
    check(sim.machine.state)
    return end


# --- by hand ------------------------------------------------------------------------------------------


def test_one_task_takes_its_time() -> None:
    assert makespan(simulation(7.0), task(1)) == 7


def test_a_fast_executor_takes_less() -> None:
    assert makespan(simulation(8.0, speed=4.0), task(1)) == 2


def test_equal_tasks_go_in_waves() -> None:
    assert makespan(simulation(3.0, 2), *(task(n) for n in range(1, 6))) == 9


def test_a_chain_takes_the_sum() -> None:
    assert makespan(simulation(lambda r, i: float(r), 8), task(1), task(2, 1), task(3, 2)) == 6


def test_a_diamond_takes_its_longest_path() -> None:
    lengths = {1: 1.0, 2: 5.0, 3: 2.0, 4: 1.0}
    items = (task(1), task(2, 1), task(3, 1), task(4, 2, 3))
    assert makespan(simulation(lambda r, i: lengths[r], 2), *items) == 7
    assert makespan(simulation(lambda r, i: lengths[r], 1), *items) == 9


def test_fifo_keeps_the_order_and_sjf_turns_to_the_short_ones() -> None:
    lengths = {1: 4.0, 2: 9.0, 3: 1.0}
    items = [task(n, limits=limits(walltime=lengths[n])) for n in (1, 2, 3)]

    def ends(policy: PlacementPolicy) -> list[tuple[int, float]]:
        sim = simulation(lambda r, i: lengths[r], 1, policy=policy)
        makespan(sim, *items)
        return [(f.record, now) for _, now, written in sim.journal for f in written if isinstance(f, SpanEnded)]

    assert ends(Fifo()) == [(1, 4), (2, 13), (3, 14)]
    assert ends(ShortestFirst()) == [(3, 1), (1, 5), (2, 14)]


def test_a_task_that_needs_two_cores_waits_for_both() -> None:
    lengths = {1: 2.0, 2: 5.0, 3: 1.0, 4: 1.0}
    items = (task(1), task(2), task(3, needs=needs(2)), task(4))
    assert makespan(simulation(lambda r, i: lengths[r], 2), *items) == 7


def test_memory_bounds_how_many_run_at_once() -> None:
    sim = simulation(1.0, capacity=needs(8, memory=1000))
    assert makespan(sim, array(1, 6, needs=needs(1, memory=500))) == 3


def test_a_group_behind_a_gate_starts_when_it_opens() -> None:
    sim = simulation(2.0, 4)
    sim.at(0.0, submit(array(1, 8), group(1, "g", 0, on_array(1)), task(2, group=1), task(3, on_group(1))))
    sim.at(0.0, news.GroupClosed(GroupId(1)))
    assert sim.run() == 8
    sim.check_complete()


def test_a_failure_costs_its_time_and_its_wait() -> None:
    sim = simulation(3.0, 1, fails=lambda r, i, attempt: BOOM if attempt < 3 else None)
    assert makespan(sim, task(1, limits=limits(retries=2, backoff=10))) == 3 + 10 + 3 + 20 + 3
    assert sim.machine.counts()["done"] == 1


def test_a_failed_element_does_not_stop_its_span() -> None:
    sim = simulation(0.001, 1, fails=lambda r, i, attempt: BOOM if i % 50 == 7 else None)
    makespan(sim, array(1, 500))
    assert sim.machine.counts()["failed"] == 10
    assert sim.machine.counts()["done"] == 490


def test_two_executors_share_the_work() -> None:
    sim = simulation(1.0, (2, 3))
    assert makespan(sim, array(1, 10)) == 2
    assert sorted(x.busy for x in sim._executors.values()) == [4, 6]


def test_news_come_at_their_time() -> None:
    sim = simulation(1.0, 1)
    sim.at(5.0, submit(task(1)))
    sim.at(5.5, submit(task(2)))
    assert sim.run(until=5.2) == 5.0
    assert sim.machine.counts()["placed"] == 1
    assert sim.run() == 7


def test_a_lost_executor_leaves_its_work_to_others() -> None:
    sim = simulation(4.0, (1, 1))
    sim.at(0.0, submit(task(1), task(2)))
    sim.at(1.0, ExecutorLost(ExecutorId(1), "gone"))
    assert sim.run() == 8
    sim.check_complete()
    assert sim.machine.counts()["done"] == 2


@pytest.mark.parametrize("deed", [Cancel, Kill])
def test_what_is_stopped_reports_nothing(deed: type) -> None:
    sim = simulation(4.0, 1)
    sim.at(0.0, submit(array(1, 2)))
    sim.at(1.0, deed(Dep(On.TASK, 1, 0), 0))
    sim.run()
    assert sim.machine.counts()["done"] == 1
    assert sim.machine.counts()["cancelled" if deed is Cancel else "failed"] == 1


def test_a_simulation_has_no_earlier_runs() -> None:
    sim = simulation(1.0, 1)
    sim.at(0.0, facts.RunOpened(1, "x", "h", 1, memos=True), submit(task(1, key=b"k" * 16)))
    assert sim.run() == 1
    sim.check_complete()


def test_refusals_are_kept() -> None:
    sim = simulation()
    sim.at(0.0, submit(task(1, 1)))
    sim.run()
    assert sim.refusals == ["task 1 depends on itself"]


def test_a_simulation_that_runs_dry_says_so() -> None:
    sim = simulation(1.0, 1)
    sim.at(0.0, submit(task(1, needs=needs(5))))
    sim.run()
    with pytest.raises(InternalError, match=r"^1 of 1 task never ran: task 1 needs 5 cores"):
        sim.check_complete()


def test_a_simulation_in_which_a_task_failed_is_not_complete() -> None:
    sim = simulation(1.0, 1, fails=lambda r, i, a: Failure(Cause.EXIT, "broken") if r == 2 else None)
    sim.at(0.0, submit(task(1), task(2), task(3, 2)))
    sim.run()
    with pytest.raises(InternalError, match=r"^1 of 3 tasks failed, 1 was skipped; the first: task 2 failed: broken$"):
        sim.check_complete()


# --- determinism --------------------------------------------------------------------------------------


def test_the_same_workload_gives_the_same_journal() -> None:
    def journal() -> object:
        sim = simulation(lambda r, i: Random(r * 1000 + i).expovariate(100), (2, 2))
        makespan(sim, array(1, 300), *(task(n, on_array(1)) for n in range(2, 50)))
        return sim.journal

    assert journal() == journal()


# --- balance ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("mean", "cores"),
    [
        (0.001, (4,)),
        (0.001, (1, 1, 1, 1)),
        (0.001, (2, 2)),
        (0.02, (4,)),
        (0.02, (1, 1, 2)),
        (1.0, (4,)),
        (60.0, (4,)),
        (1.0, (1, 1, 1, 1)),
        (60.0, (2, 2)),
        (0.2, (1, 1, 2)),
    ],
)
def test_tasks_of_random_length_end_within_one_hand_out_of_the_lower_bound(
    seed: int, mean: float, cores: tuple[int, ...]
) -> None:
    dice = Random(seed)
    lengths = [dice.expovariate(1 / mean) for _ in range(1000)]
    sim = simulation(lambda r, i: lengths[i], tuple(map(float, cores)))
    end = makespan(sim, array(1, 1000))
    bound = max(sum(lengths) / 4, *lengths)
    slack = max(*lengths, 0.05 if mean < 0.05 else 0)  # one task, or one span where tasks are bundled
    assert end <= bound + slack


def test_loose_tasks_are_balanced_too() -> None:
    dice = Random(3)
    lengths = {n: dice.uniform(0.5, 1.5) for n in range(1, 1001)}
    sim = simulation(lambda r, i: lengths[r], 4)
    end = makespan(sim, *(task(n, template="x") for n in lengths))
    assert end <= sum(lengths.values()) / 4 + 1.5


def test_long_tasks_go_one_at_a_time() -> None:
    sim = simulation(10.0, 4)
    makespan(sim, array(1, 100))
    spans = [f for _, _, written in sim.journal for f in written if isinstance(f, Placed)]
    assert all(f.stop - f.start == 1 for f in spans)
    assert len(spans) == 100


def test_short_tasks_go_in_spans_that_shrink_towards_the_end() -> None:
    sim = simulation(0.0001, 4)
    makespan(sim, array(1, 20_000))
    sizes = [f.stop - f.start for _, _, written in sim.journal for f in written if isinstance(f, Placed)]
    assert len(sizes) < 1000
    assert max(sizes) > 100
    assert sizes[-1] <= 20, "two milliseconds of work"


def test_short_tasks_are_bundled_into_at_most_a_hand_out_of_work() -> None:
    sim = simulation(0.01, 1)
    makespan(sim, array(1, 500))
    sizes = [f.stop - f.start for _, _, written in sim.journal for f in written if isinstance(f, Placed)]
    assert max(sizes) <= 5


def test_a_surprise_is_learnt_from() -> None:
    """Tasks that turn out long after many short ones are not bundled for long."""
    sim = simulation(lambda r, i: 0.001 if i < 500 else 5.0, 4)
    end = makespan(sim, array(1, 600))
    assert end <= 0.5 / 4 + 100 * 5.0 / 4 + 55 * 5.0


def test_a_failure_cause_travels() -> None:
    sim = simulation(1.0, 1, fails=lambda r, i, a: Failure(Cause.TIMEOUT, "too long"))
    makespan(sim, task(1))
    failure = sim.machine.state.records[1].failure_of(0)
    assert failure is not None
    assert failure.cause is Cause.TIMEOUT


# --- models that know where and when ----------------------------------------------------------------------


def test_a_model_can_tell_executors_apart() -> None:
    seen: set[tuple[int, str, str, float]] = set()

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        seen.add((where.id, where.site, where.host, where.speed))
        return Fate(2.0 if where.site == "far" else 1.0, BOOM if where.host == "bad" and attempt == 1 else None)

    executors = [
        SimulatedExecutor(1, needs(1), site="near", host="good"),
        SimulatedExecutor(2, needs(1), speed=4.0, site="far", host="bad"),
    ]
    sim = Simulation(Machine(Policies(Fifo())), model, executors)
    sim.at(0.0, submit(task(1), task(2)))
    sim.run()
    assert seen == {(1, "near", "good", 1.0), (2, "far", "bad", 4.0)}
    ended = {fact.record: now for _, now, written in sim.journal for fact in written if isinstance(fact, SpanEnded)}
    failed = [(now, f.record) for _, now, written in sim.journal for f in written if isinstance(f, facts.ElementFailed)]
    assert ended[1] == 1.0
    assert failed == [(0.5, 2)]


@pytest.mark.parametrize(("at_once", "started"), [(False, 4.0), (True, 2.0)])
def test_what_waits_for_an_element_starts_when_that_is_reported(at_once: bool, started: float) -> None:
    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(1.0, reported_at_once=at_once)

    sim = Simulation(Machine(Policies(Fifo())), model, [SimulatedExecutor(1, needs(2))])
    machine = sim.machine.state
    machine.runtime_of("t").believe(1e-6, 10**6)  # so short that all go out as one span
    sim.at(0.0, submit(array(1, 4, template="t"), task(2, Dep(On.TASK, 1, 1))))
    sim.run()
    sim.check_complete()
    placed = {fact.record: now for _, now, written in sim.journal for fact in written if isinstance(fact, Placed)}
    assert placed == {1: 0.0, 2: started}
