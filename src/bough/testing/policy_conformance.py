"""What every placement policy must do: subclass `PolicySuite` and say which policy.

    class TestMine(PolicySuite):
        def policy(self) -> PlacementPolicy:
            return Mine()

Rule: each promise is tried through the real machine, whose laws are checked after every turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from bough.core.invariants import check
from bough.core.machine import Machine, Turn
from bough.core.scheduling.view import StateView
from bough.model.events import arriving, facts, news
from bough.model.events.facts import ExecutorDrained, ExecutorLost
from bough.model.events.orders import SendSpan
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policy.interface import (
    DataView,
    Demand,
    ExecutorView,
    Offer,
    Place,
    PlacementPolicy,
    Policies,
    ReadyScan,
    ReadyWork,
    View,
)
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, SimulatedExecutor
from bough.sim.simulation import Simulation
from bough.testing.builders import array, executor, limits, needs, submit, task

SHAPES = [needs(), needs(2), needs(0.5), needs(1, memory=400), needs(3, memory=100), needs(1, gpus=1)]


class Watch:
    """A policy as the machine sees it, with a count of what it looks at and a complaint for every vain wish."""

    def __init__(self, inner: PlacementPolicy) -> None:
        self.inner = inner
        self.looks = 0
        self.wishes = 0
        self.data_needs = getattr(inner, "data_needs", None)

    def rank(self, work: ReadyWork, /) -> float:
        return self.inner.rank(work)

    def place(self, view: View, /) -> Iterable[Place]:
        for wish in self.inner.place(_Watched(view, self)):
            self.wishes += 1
            yield wish


class _Watched:
    def __init__(self, view: View, watch: Watch) -> None:
        self._view = view
        self._watch = watch
        self.now = view.now
        self.random = view.random

    def ready(self) -> ReadyScan:
        return _WatchedScan(self._view.ready(), self._watch)

    def executor_for(self, work: ReadyWork, excluding: frozenset[int] | set[int] = frozenset()) -> Offer:
        return self._view.executor_for(work, excluding)

    def executors(self) -> list[ExecutorView]:
        return self._view.executors()

    def most_free(self, needs: Needs) -> ExecutorView | None:
        return self._view.most_free(needs)

    def demand(self) -> Iterator[Demand]:
        return self._view.demand()

    @property
    def data(self) -> DataView | None:
        return self._view.data

    @property
    def estimates(self) -> DataView | None:
        return self._view.estimates

    @property
    def has_room(self) -> bool:
        return self._view.has_room

    def busy_share(self) -> float:
        return self._view.busy_share()

    def ask_again(self, when: float) -> None:
        self._view.ask_again(when)


class _WatchedScan:
    def __init__(self, scan: ReadyScan, watch: Watch) -> None:
        self._scan = scan
        self._watch = watch
        self.skip = scan.skip
        self.skip_like = scan.skip_like

    def __iter__(self) -> Iterator[ReadyWork]:
        for work in self._scan:
            self._watch.looks += 1
            yield work


class PolicySuite:
    """The promises; a subclass names the policy."""

    bounded_looks = 20  # records a policy may look at when there is no room for any

    def policy(self) -> PlacementPolicy:
        """The policy under test, fresh."""
        raise NotImplementedError

    def machine(self, *executors: facts.ExecutorJoined, seed: int = 0) -> Machine:
        machine = Machine(Policies(self.policy()), seed=seed)
        machine.turn(0, executors)
        return machine

    def turn(self, machine: Machine, *said: arriving.News, now: float = 0.0) -> Turn:
        """One turn, after which the laws hold and the policy has not raised."""
        turn = machine.turn(now, said)
        check(machine.state)
        assert turn.complaints == []
        return turn

    def mixed_work(self, dice: Random, count: int = 60) -> list[TaskSpec | ArraySpec]:
        """Tasks and arrays of all shapes, some after others."""
        items: list[TaskSpec | ArraySpec] = []
        for id_ in range(1, count + 1):
            after = dice.sample(range(1, id_), min(id_ - 1, dice.choice([0, 0, 1, 2])))
            shape = dice.choice(SHAPES)
            seconds = dice.choice([0.0, 0.5, 3.0])
            fields = {"needs": shape, "priority": dice.choice([0, 0, 1]), "limits": limits(walltime=seconds)}
            items.append(array(id_, dice.randrange(12), **fields) if dice.random() < 0.3 else task(id_, **fields))
            loose = [one for one in after if isinstance(items[one - 1], TaskSpec)]
            if loose and isinstance(items[-1], TaskSpec):
                items[-1] = task(id_, *loose, **fields)
        return items

    def simulate(self, seed: int) -> Simulation:
        """A whole workload on a few unequal executors; what ran where and when is in the journal."""
        dice = Random(seed)
        executors = [
            SimulatedExecutor(1, needs(4, memory=1000)),
            SimulatedExecutor(2, needs(2, gpus=1), speed=2.0),
            SimulatedExecutor(3, needs(1)),
        ]

        def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
            return Fate(0.001 + Random(spec.id * 1000 + index).random())

        simulation = Simulation(Machine(Policies(self.policy()), seed=seed), model, executors)
        simulation.at(0.0, submit(*self.mixed_work(dice)))
        while simulation._next_time() is not None:
            simulation.step()
            check(simulation.machine.state)
        return simulation

    # --- the promises ----------------------------------------------------------------------------

    def test_everything_that_fits_runs_and_nothing_is_oversubscribed(self) -> None:
        for seed in range(3):
            simulation = self.simulate(seed)
            simulation.check_complete()
            counts = simulation.machine.counts()
            assert counts["done"] == sum(counts.values()) > 60

    def test_the_same_seed_gives_the_same_placements(self) -> None:
        assert self.simulate(1).journal == self.simulate(1).journal

    def test_an_empty_world_gives_no_wish(self) -> None:
        machine = Machine(Policies(self.policy()))
        view = StateView(machine.state, 0.0, Random(0))
        assert list(self.policy().place(view)) == []
        view.give_back()

    def test_without_executors_nothing_is_placed(self) -> None:
        machine = self.machine()
        turn = self.turn(machine, submit(task(1), array(2, 100)))
        assert turn.orders == []
        view = StateView(machine.state, 0.0, Random(0))
        machine._placement.follow(view, self.policy().place(view))
        view.give_back()
        check(machine.state)
        assert machine.counts()["ready"] == 101

    def test_executors_without_work_are_no_trouble(self) -> None:
        machine = self.machine(executor(1, 2), executor(2, 2))
        view = StateView(machine.state, 0.0, Random(0))
        assert list(self.policy().place(view)) == []

    def test_free_room_is_used_at_once(self) -> None:
        machine = self.machine(executor(1, 2), executor(2, 3))
        self.turn(machine, submit(*(task(id_) for id_ in range(1, 9))))
        assert machine.counts()["placed"] == 5

    def test_what_fits_nowhere_waits_and_holds_nobody_up(self) -> None:
        machine = self.machine(executor(1, 2))
        impossible = [task(1, needs=needs(99)), task(2, needs=needs(1, gpus=1)), array(3, 1000, needs=needs(3))]
        self.turn(machine, submit(*impossible, task(4), task(5)))
        assert machine.counts()["placed"] == 2
        self.turn(machine, executor(2, 200, gpus=1))
        assert all(machine.state.records[id_].ready == 0 for id_ in (1, 2))

    def test_with_no_room_only_a_few_are_looked_at(self) -> None:
        watch = Watch(self.policy())
        machine = Machine(Policies(watch))
        machine.turn(0, [executor(1, 1)])
        machine.turn(0, [submit(*(task(id_) for id_ in range(1, 10_001)))])
        watch.looks = watch.wishes = 0
        span = next(iter(machine.state.spans))
        machine.turn(1, [news.WorkSucceeded(span, 0, 1, 9.0)])
        assert machine.counts()["placed"] == 1
        assert watch.looks <= self.bounded_looks
        watch.looks = 0
        machine.turn(2, [submit(task(20_000))])
        assert watch.looks <= self.bounded_looks

    def test_a_big_task_is_not_starved_by_a_stream_of_small_ones(self) -> None:
        machine = self.machine(executor(1, 4))
        self.turn(machine, submit(*(task(id_, template="small") for id_ in range(1, 5))))
        self.turn(machine, submit(task(5, needs=needs(4), template="big")))
        next_id, now = 6, 0.0
        for _ in range(40):
            now += 1.0
            spans = [span for span in machine.state.spans.values() if span.record.id != 5]
            if not spans:
                break
            said = [submit(task(next_id, template="big")), news.WorkSucceeded(spans[0].id, 0, 1, 1.0)]
            next_id += 1
            self.turn(machine, *said, now=now)
        assert machine.state.records[5].count(3, 0, 1), "the big task was not placed"

    def test_no_task_waits_for_ever_while_others_come(self) -> None:
        for waits, come in ((100.0, 1.0), (1.0, 100.0), (100.0, 0.0), (0.0, 100.0)):  # expected run times, 0: unknown
            machine = self.machine(executor(1, 1))
            self.turn(machine, submit(task(1), task(2, limits=limits(walltime=waits))))
            for number in range(3, 203):
                rivals = [task(number + more, limits=limits(walltime=come)) for more in (0, 1000)]
                ended = [news.WorkSucceeded(span.id, 0, 1, 1.0) for span in machine.state.spans.values()]
                self.turn(machine, submit(*rivals), *ended, now=20.0 * number)
                if not machine.state.records[2].ready:
                    break
            assert not machine.state.records[2].ready, f"one of {waits:g} s waits while such of {come:g} s come"

    def test_a_leaving_executor_gets_nothing(self) -> None:
        machine = self.machine(executor(1, 2), executor(2, 2))
        self.turn(machine, ExecutorDrained(ExecutorId(1)))
        turn = self.turn(machine, submit(*(task(id_) for id_ in range(1, 9))))
        assert {order.executor for order in turn.orders if isinstance(order, SendSpan)} == {2}

    def test_executors_may_come_and_go(self) -> None:
        dice = Random(5)
        machine = self.machine(executor(1, 4, memory=1000, gpus=1))
        items = self.mixed_work(dice)
        self.turn(machine, submit(*items))
        alive, next_id, now = [1], 2, 0.0
        while not machine.is_idle:
            now += 1.0
            deed = dice.random()
            if deed < 0.1 or not alive:
                self.turn(machine, executor(next_id, 4, memory=1000, gpus=1), now=now)
                alive.append(next_id)
                next_id += 1
            elif deed < 0.15:
                gone = alive.pop(dice.randrange(len(alive)))
                self.turn(machine, ExecutorLost(ExecutorId(gone), "gone"), now=now)
            elif machine.state.spans:
                span = dice.choice(list(machine.state.spans.values()))
                start, stop = span.left[0]
                self.turn(machine, news.WorkSucceeded(span.id, start, stop, 0.3 * (stop - start)), now=now)
            assert now < 5000, machine.counts()
        counts = machine.counts()
        assert counts["done"] + counts["failed"] + counts["skipped"] == sum(counts.values())
        assert counts["done"] > counts["failed"]

    def test_higher_priorities_go_first(self) -> None:
        machine = self.machine()
        self.turn(machine, submit(task(1), task(2, priority=1), array(3, 1, priority=2)))
        order = []
        self.turn(machine, executor(1, 1))
        for now in range(1, 4):
            (span,) = machine.state.spans.values()
            order.append(span.record.id)
            self.turn(machine, news.WorkSucceeded(span.id, 0, 1, 9.0), now=now)
        assert order == [3, 2, 1]
