"""The machine as a whole: what it makes of wishes, of policies that misbehave, and of questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.model.events.facts import ExecutorDrained
from bough.model.events.orders import SendSpan
from bough.model.ids import ExecutorId
from bough.policy.interface import Place, Policies, ReadyWork, View
from bough.testing.builders import array, executor, needs, on_array, on_element, submit, task
from tests.unit.core.core_bench import Bench, on


class Wishful:
    """Wishes what it is told to."""

    def __init__(
        self, wishes: Callable[[View], Iterable[Place]], rank: Callable[[ReadyWork], float] = lambda work: 0.0
    ):
        self._wishes = wishes
        self._rank = rank

    def rank(self, work: ReadyWork, /) -> float:
        return self._rank(work)

    def place(self, view: View, /) -> Iterable[Place]:
        return self._wishes(view)


def test_unlawful_wishes_are_not_granted() -> None:
    wishes = [Place(1, 9), Place(9, 1), Place(2, 1), Place(3, 1), Place(1, 2)]
    bench = Bench(2, policy=Wishful(lambda view: iter(wishes)))
    bench.tell(executor(2, 8), ExecutorDrained(ExecutorId(2)))
    bench.submit(task(1), task(2, 1), task(3, needs=needs(4)))
    assert bench.sent == []


def test_a_wish_is_granted_once() -> None:
    bench = Bench(4, policy=Wishful(lambda view: iter([Place(1, 1), Place(1, 1)])))
    bench.submit(task(1))
    assert len(bench.sent) == 1


def test_a_wish_is_carried_out_before_the_next_is_heard() -> None:
    seen: list[float] = []

    def wishes(view: View) -> Iterable[Place]:
        for work in view.ready():
            (room,) = view.executors()
            seen.append(room.free("cores"))
            yield Place(work.id, room.id)

    bench = Bench(4, policy=Wishful(wishes))
    bench.submit(task(1), task(2), task(3))
    assert seen == [4, 3, 2]


def test_a_wish_may_bound_how_many_elements_go_out() -> None:
    def wishes(view: View) -> Iterable[Place]:
        for work in view.ready():
            while work.ready and (found := view.executor_for(work).executor):
                yield Place(work.id, found.id, 3)

    bench = Bench(1, policy=Wishful(wishes))
    bench.submit(array(1, 500))
    bench.end(1, 0, seconds=0.001)
    assert bench.sent[1].stop - bench.sent[1].start == 3


def test_a_policy_that_raises_is_replaced_for_the_turn_and_complained_of() -> None:
    def wishes(view: View) -> Iterable[Place]:
        first = next(iter(view.ready()))
        yield Place(first.id, 1)
        raise ZeroDivisionError("oh")

    bench = Bench(4, policy=Wishful(wishes))
    turn = bench.submit(task(1), task(2), task(3))
    assert bench.states(1, 2, 3) == ["placed"] * 3
    assert turn.complaints == ["the policy failed and was replaced for this turn: ZeroDivisionError('oh')"]
    assert bench.tell().complaints == []


def test_a_policy_that_cannot_rank_is_complained_of() -> None:
    def rank(work: ReadyWork) -> float:
        raise KeyError("no idea")

    bench = Bench(4, policy=Wishful(lambda view: (Place(work.id, 1) for work in view.ready()), rank))
    turn = bench.submit(task(1))
    assert bench.state(1) == "placed"
    assert turn.complaints[0] == "the policy could not rank task 1: KeyError('no idea')"


def test_a_policy_that_never_stops_wishing_in_vain_is_not_heard_further() -> None:
    def wishes(view: View) -> Iterable[Place]:
        while True:
            yield Place(99, 99)

    bench = Bench(4, policy=Wishful(wishes))
    bench.submit(task(1))
    assert bench.state(1) == "ready"


def test_what_a_policy_only_looked_at_is_still_there_the_next_time() -> None:
    looks: list[list[int]] = []

    def wishes(view: View) -> Iterable[Place]:
        looks.append([work.id for work in view.ready()])
        return iter(())

    bench = Bench(4, policy=Wishful(wishes))
    bench.submit(task(1), task(2))
    bench.submit(task(3))
    assert looks == [[1, 2], [1, 2, 3]]


def test_skipped_needs_are_left_out_and_the_rest_is_in_order() -> None:
    looks: list[int] = []

    def wishes(view: View) -> Iterable[Place]:
        ready = view.ready()
        for work in ready:
            looks.append(work.id)
            if work.needs.cores == 1:
                ready.skip(work.needs)
        return iter(())

    bench = Bench(4, policy=Wishful(wishes))
    bench.submit(task(1), task(2, needs=needs(2)), task(3), task(4, needs=needs(2)))
    assert looks == [1, 2, 4]


def test_the_executor_with_most_free_cores_is_one_that_could_ever_fit() -> None:
    found: list[int | None] = []

    def wishes(view: View) -> Iterable[Place]:
        for shape in (needs(1), needs(4), needs(9), needs(1, gpus=1)):
            room = view.most_free(shape)
            found.append(room.id if room else None)
        return iter(())

    bench = Bench(2, policy=Wishful(wishes))
    bench.tell(executor(2, 4), executor(3, 1, gpus=1))
    bench.submit(task(1))
    assert found == [2, 2, None, 3]


def test_the_policy_is_asked_only_when_something_became_ready_or_roomy() -> None:
    asked: list[float] = []

    def wishes(view: View) -> Iterable[Place]:
        asked.append(view.now)
        return iter(())

    bench = Bench(4, policy=Wishful(wishes))
    bench.submit(task(1))
    for _ in range(5):
        bench.wait(1)
    assert asked == [0]


def test_the_dice_of_a_policy_are_seeded_by_the_driver() -> None:
    def throws(seed: int) -> list[float]:
        found: list[float] = []

        def wishes(view: View) -> Iterable[Place]:
            found.append(view.random.random())
            return iter(())

        machine = Machine(Policies(Wishful(wishes)), seed=seed)
        machine.turn(0, [executor(1, 2), submit(task(1))])
        return found

    assert throws(1) == throws(1) != throws(2)


def test_orders_carry_what_an_executor_must_know() -> None:
    bench = Bench(2)
    spec = task(1)
    (order,) = bench.submit(spec).orders
    assert order == SendSpan(ExecutorId(1), 1, spec, 0, 1, 1)  # type: ignore[arg-type]


def test_counts_are_over_all_groups() -> None:
    from bough.testing.builders import group

    bench = Bench(1)
    bench.submit(group(1, "g"), task(1, group=1), array(2, 3), task(3, 1))
    assert {k: v for k, v in bench.machine.counts().items() if v} == {"waiting": 1, "ready": 3, "placed": 1}


def test_where_the_results_of_a_dependency_lie() -> None:
    bench = Bench(4)
    bench.submit(array(1, 3), task(2))
    turns = {index: bench.end(1, index).number for index in (2, 0, 1)}
    turns[-1] = bench.end(2).number
    found = Queries(bench.machine).results_of
    assert [(s.start, s.turn) for s in found(on_array(1))] == [(i, turns[i]) for i in range(3)]
    assert [s.turn for s in found(on_element(1, 2))] == [turns[2]]
    assert [s.turn for s in found(on(2))] == [turns[-1]]
    bench.submit(task(3))
    assert found(on(3)) == []


def test_a_machine_may_begin_with_later_numbers() -> None:
    machine = Machine(Bench().policies, last_turn=100, last_span=50)
    turn = machine.turn(0, [executor(1, 2), submit(task(1))])
    assert turn.number == 101
    assert [order.span for order in turn.orders if isinstance(order, SendSpan)] == [51]
