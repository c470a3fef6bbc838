"""Commands that people take: chosen by the core in one turn, given to an executor that no policy sees."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from bough.core.invariants import picture
from bough.core.machine import Machine, Turn
from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.events.orders import AnswerTake, SendSpan
from bough.model.ids import ROOT, ExecutorId, GroupId
from bough.model.sites.queue_specs import QueueSpec
from bough.model.states import TaskState
from bough.model.tasks import GroupSpec, Kind, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Place, Policies, View
from bough.testing.builders import array, group, needs, submit, task
from tests.unit.core.core_bench import Bench


def command(number: int, *after: int, **fields: object) -> TaskSpec:
    return structs.replace(task(number, *after, **fields), kind=Kind.COMMAND)


def wanted(executor: int = 9, *groups: int, host: str = "desk") -> news.TakeTask:
    return news.TakeTask(5, ExecutorId(executor), f"ann@{host}", host, tuple(map(GroupId, groups or (ROOT,))))


def take(bench: Bench, executor: int = 9, *groups: int) -> tuple[Turn, AnswerTake]:
    turn = bench.tell(wanted(executor, *groups))
    (answer,) = [order for order in turn.orders if isinstance(order, AnswerTake)]
    assert answer.request == 5
    return turn, answer


def test_one_turn_holds_all_of_it_and_nothing_is_sent() -> None:
    bench = Bench(0)
    bench.submit(command(1, needs=needs(64)))
    turn, answer = take(bench)

    joined, placed, drained, started = turn.facts
    assert (joined.executor, joined.site, joined.host, joined.pid) == (9, "manual", "ann@desk", 0)
    assert (placed.span, placed.record, placed.executor, placed.attempt) == (answer.span, 1, 9, 1)
    assert drained == facts.ExecutorDrained(ExecutorId(9))
    assert started == facts.SpanStarted(answer.span, 0, 1, placed.record)
    assert not any(isinstance(order, SendSpan) for order in turn.orders)
    assert bench.states(1) == ["running"]


def test_what_was_taken_from_a_queue_of_other_sites_is_the_same_after_a_replay_of_what_fits() -> None:
    machine, healed = (Machine(Policies(Fifo())) for _ in range(2))
    queue = facts.QueueDefined("q", QueueSpec(sites=("elsewhere",)))
    needed = structs.replace(needs(2), queue="q")
    for number, event in enumerate((facts.RunOpened(1, "run", "h", 1), queue, submit(command(1, needs=needed))), 1):
        healed.replay_what_fits(number, 0.0, machine.turn(0.0, [event]).facts)
    healed.replay_what_fits(4, 0.0, machine.turn(0.0, [wanted()]).facts)
    assert machine.counts()["running"] == 1
    assert picture(healed.state) == picture(machine.state)


def test_functions_and_what_a_full_group_holds_cannot_be_taken() -> None:
    bench = Bench(0)
    bench.submit(GroupSpec(GroupId(1), "narrow", ROOT, limit=1), task(1), command(2, group=1), command(3, group=1))
    assert take(bench, 9)[1].span
    turn, answer = take(bench, 10)
    assert (turn.facts, answer) == ([], AnswerTake(5))


def test_one_element_of_an_array_is_taken_and_nothing_travels_with_it() -> None:
    bench = Bench(0)
    bench.submit(structs.replace(array(1, 3), kind=Kind.COMMAND), command(2, 1))
    turn, answer = take(bench)
    (placed,) = [fact for fact in turn.facts if isinstance(fact, facts.Placed)]
    assert (placed.span, placed.record, placed.start, placed.stop) == (answer.span, 1, 0, 1)
    assert bench.states(2) == ["waiting"]


def test_what_can_be_taken_outside_of_the_group_is_said() -> None:
    bench = Bench(0)
    bench.tell(facts.RunOpened(2, "w", "h", 1, group=GroupId(2)))
    bench.submit(group(3, "a", 2), group(4, "b", 2), command(1, group=4))
    assert take(bench, 9, 3)[1] == AnswerTake(5, elsewhere=True)
    assert take(bench, 9, 2)[1].span
    assert take(bench, 10, 3)[1] == AnswerTake(5)


def test_nothing_is_taken_once_the_server_stops() -> None:
    bench = Bench(0)
    bench.submit(command(1))
    bench.tell(facts.Stopping())
    assert take(bench)[1] == AnswerTake(5)


class Watching(Fifo):
    """Notes the executors that it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def place(self, view: View, /) -> Iterable[Place]:
        self.seen |= {one.id for one in view.executors()}
        return super().place(view)


def test_no_policy_sees_the_executor_of_a_person() -> None:
    policy = Watching()
    bench = Bench(1, policy=policy)
    bench.submit(command(1), command(2), command(3))
    take(bench)
    bench.end(1)
    bench.submit(command(4))
    assert policy.seen == {1}


def test_the_site_of_older_stores_is_the_same() -> None:
    bench = Bench(0)
    bench.submit(command(1))
    written = take(bench)[0].facts
    old = Machine(Policies(Fifo()))
    old.replay(1, 0.0, [facts.RunOpened(1, "test", "h", 1)])
    old.replay(2, 0.0, [facts.Submitted([command(1)])])
    old.replay(3, 0.0, [structs.replace(written[0], site="hand"), *written[1:]])

    (executor,) = Queries(old).executors()
    assert (executor.site, executor.is_manual, executor.tasks) == ("manual", True, 1)
    assert Queries(old).manual_executors() == [9]
    assert Queries(old).state_of(1, 0) is TaskState.RUNNING
