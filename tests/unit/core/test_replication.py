"""Replication: when a running task gets another attempt beside it, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec import structs

from bough.core.invariants import check
from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.core.records.indexes.replicas import Waste
from bough.core.scheduling.coming import coming, remaining
from bough.model.checkpoints import CheckpointPlan
from bough.model.events import facts, news
from bough.model.events.orders import SendSpan, StopSpan
from bough.model.ids import BlobId, ExecutorId, RecordId, SpanId
from bough.model.outcomes import Cause, Detail, Failure, Staged
from bough.model.sites.site_specs import SiteSpec
from bough.model.tasks import ArraySpec, Kind, TaskExtras, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policies.provisioning.adaptive import Adaptive
from bough.policies.replication.careful_tail import CarefulTail
from bough.policies.replication.tail import Tail
from bough.policies.replication.wqr import Wqr
from bough.policy.interface import AskAgain, Policies, Replicate, ReplicationPolicy, ReplicationView
from bough.testing.builders import BOOM, array, executor, group, limits, needs, task
from tests.unit.core.core_bench import Bench, kinds, on


def running(policy: ReplicationPolicy | None = None, **fields: object) -> Bench:
    """Task 1 runs on executor 1, and there is no other."""
    bench = Bench(1, replication=policy or Wqr())
    bench.submit(task(1, **fields))
    bench.start(1)
    return bench


def replicated(policy: ReplicationPolicy | None = None, **fields: object) -> Bench:
    """Task 1 runs on executor 1 since 0 s, as span 1, and on executor 2 since 10 s, as span 2."""
    bench = running(policy, **fields)
    bench.now = 10.0
    bench.tell(executor(2, 1))
    assert set(bench.machine.state.spans) == {1, 2}
    return bench


def replicas(bench: Bench) -> list[tuple[int, int, int]]:
    """Record, index and executor of all that was sent as a replica."""
    return [(order.spec.id, order.start, order.executor) for order in bench.sent if order.replica]


# --- when ------------------------------------------------------------------------------------------------


def test_an_idle_executor_runs_what_another_one_runs() -> None:
    bench = replicated()
    assert replicas(bench) == [(1, 0, 2)]
    assert [order.attempt for order in bench.sent] == [1, 2]
    assert bench.attempt(1) == 1
    assert bench.machine.explain(1) == [
        "task 1 is running on 2 executors at once; the first success counts",
        "  attempt 1 on host1",
        "  attempt 2 on host2: a replica, because executors had nothing else to do",
    ]


def test_without_a_policy_nothing_is_replicated_and_nothing_is_kept() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    bench.start(1)
    bench.tell(executor(2, 1))
    assert replicas(bench) == []
    assert not bench.machine.state.replicas.by_element


def test_what_is_ready_goes_first() -> None:
    bench = running()
    bench.submit(task(2))
    bench.tell(executor(2, 1))
    assert replicas(bench) == []
    assert bench.machine.state.spans[2].record.id == 2


def test_a_task_is_replicated_once_it_is_old_enough() -> None:
    bench = running(Wqr(age=30.0))
    bench.now = 10.0
    bench.tell(executor(2, 1))
    assert replicas(bench) == []
    assert bench.machine.next_timer == 30.0
    bench.now = 30.0
    bench.tell()
    assert replicas(bench) == [(1, 0, 2)]


def test_a_task_that_was_not_said_to_run_is_not_replicated() -> None:
    bench = Bench(1, replication=Wqr())
    bench.submit(task(1))
    bench.tell(executor(2, 1))
    assert replicas(bench) == []
    bench.start(1)
    assert replicas(bench) == [(1, 0, 2)]


def test_the_least_replicated_goes_first_and_none_more_often_than_the_cap_says() -> None:
    bench = Bench(2, replication=Wqr(cap=2))
    bench.submit(task(1), task(2))
    bench.start(1)
    bench.start(2)
    for number in range(2, 8):
        bench.tell(executor(number, 1))
    assert replicas(bench) == [(1, 0, 2), (2, 0, 3), (1, 0, 4), (2, 0, 5)]
    assert set(bench.machine.state.executors[6].spans) == set()


def test_replicas_that_failed_count_too_so_that_they_are_not_made_without_end() -> None:
    bench = replicated()
    bench.tell(news.WorkFailed(SpanId(2), 0, BOOM))
    bench.wait(5.0)
    assert replicas(bench) == [(1, 0, 2)]
    assert bench.state(1) == "running"


@pytest.mark.parametrize(
    "fields",
    [
        {"limits": limits(idempotent=False)},
        {"extras": TaskExtras(checkpoint=CheckpointPlan(15, file="/tmp/state"))},
        {"extras": TaskExtras(host="host1")},
    ],
)
def test_some_tasks_are_never_replicated(fields: dict[str, object]) -> None:
    bench = running(**fields)
    bench.tell(executor(2, 1))
    assert replicas(bench) == []


def test_a_task_that_is_held_or_has_a_lock_or_belongs_to_a_person_is_not_replicated() -> None:
    bench = running()
    bench.tell(news.TakeLock("l", SpanId(1), 0))
    bench.tell(executor(2, 1))
    assert replicas(bench) == []
    bench.tell(news.Hold(on(1)), news.FreeLock("l", SpanId(1), 0))
    bench.wait(1.0)
    assert replicas(bench) == []
    bench.tell(news.Release(on(1)), executor(3, 1))
    assert replicas(bench) == [(1, 0, 2)]


def test_a_group_s_limit_counts_replicas() -> None:
    bench = Bench(1, replication=Wqr())
    bench.submit(structs.replace(group(1, "g"), limit=1))
    bench.submit(task(1, group=1))
    bench.start(1)
    bench.tell(executor(2, 1))
    assert replicas(bench) == []


def test_a_replica_goes_where_it_fits_and_not_where_the_task_is() -> None:
    bench = Bench(4, replication=Wqr(), memory=100)
    bench.submit(task(1, needs=structs.replace(task(1).needs, memory=50)))
    bench.start(1)
    bench.tell(executor(2, 1))
    assert replicas(bench) == []  # executor 1 has room, and the task; executor 2 has no memory
    bench.tell(executor(3, 1, memory=50))
    assert replicas(bench) == [(1, 0, 3)]


def test_an_element_that_runs_is_replicated_and_its_neighbours_are_not() -> None:
    bench = Bench(0, replication=Wqr())
    bench.submit(array(1, 3))
    for machine in (bench.machine, bench.twin):
        machine.state.records[1].runtime.note(1, 0.0001)  # all go in one span
    bench.tell(executor(1, 1))
    bench.tell(executor(2, 1))
    bench.tell(news.WorkStarted(SpanId(1), 1, 2))
    assert replicas(bench) == [(1, 1, 2)]
    bench.tell(news.WorkSucceeded(SpanId(2), 1, 2, 1.0))
    assert bench.states(1) == ["placed", "done", "placed"]


# --- what becomes of them ----------------------------------------------------------------------------------


def test_waste_counts_every_core_of_an_attempt() -> None:
    bench = Bench(4, replication=Wqr())
    bench.submit(task(1, needs=structs.replace(task(1).needs, cores=3)))
    bench.start(1)
    bench.tell(executor(2, 3))
    assert replicas(bench) == [(1, 0, 2)]
    bench.now = 30.0
    bench.tell(news.WorkSucceeded(SpanId(2), 0, 1, 20.0))
    assert bench.machine.state.replicas.waste == Waste(1, 1, 3 * 30.0)


@pytest.mark.parametrize(("winner", "loser", "wasted"), [(1, 2, 20.0), (2, 1, 30.0)])
def test_the_first_success_wins_and_the_time_of_the_other_is_waste(winner: int, loser: int, wasted: float) -> None:
    bench = replicated()
    bench.now = 30.0
    bench.tell(news.WorkSucceeded(SpanId(winner), 0, 1, 20.0))
    assert [order for order in bench.orders if isinstance(order, StopSpan)] == [StopSpan(loser, loser, 0, 1)]
    assert bench.state(1) == "done"
    assert bench.machine.state.replicas.waste == Waste(1, 1, wasted)
    assert bench.tell(news.WorkSucceeded(SpanId(loser), 0, 1, 20.0)).facts == []
    assert bench.tell(news.WorkFailed(SpanId(loser), 0, BOOM)).facts == []
    success = bench.task(1).success_of(0)
    assert success is not None
    assert success.attempt == winner


def stopped(attempt: int, moved: int) -> news.WorkStopped:
    """What the executor of a superseded attempt says: so many bytes of its input came from peers and the server."""
    detail = Detail(0, staged=Staged(cached=1000, from_peers=moved // 3, from_origin=moved - moved // 3))
    return news.WorkStopped(SpanId(attempt), RecordId(1), 0, attempt, detail)


@pytest.mark.parametrize("winner", [1, 2])
def test_bytes_that_were_moved_for_a_superseded_attempt_are_waste_once(winner: int) -> None:
    bench = replicated()
    bench.tell(news.WorkSucceeded(SpanId(winner), 0, 1, 20.0))
    bench.tell(stopped(winner, 5))  # it is not the one that was superseded
    assert bench.machine.state.replicas.waste.bytes == 0
    bench.restart()
    bench.tell(stopped(3 - winner, 700))
    bench.tell(stopped(3 - winner, 700))
    assert bench.machine.state.replicas.waste.bytes == 700
    assert not bench.machine.state.replicas.untold


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_superseded_attempt_that_ends_before_it_is_stopped_tells_its_bytes(succeeds: bool) -> None:
    bench = replicated()
    detail = Detail(0, started=1.0, ended=2.0, staged=Staged(from_origin=700))
    late = (
        news.WorkSucceeded(SpanId(2), 0, 1, 1.0, None, (detail,))
        if succeeds
        else news.WorkFailed(SpanId(2), 0, BOOM, detail)
    )
    turn = bench.tell(news.WorkSucceeded(SpanId(1), 0, 1, 1.0), late)
    assert [(fact.record, fact.attempt) for fact in turn.facts if isinstance(fact, facts.OutputKept)] == [(1, 2)]
    assert bench.machine.state.replicas.waste.bytes == 700


def test_of_many_superseded_attempts_the_last_thousand_may_still_tell_their_bytes() -> None:
    bench = replicated()
    index, span = bench.machine.state.replicas, bench.machine.state.spans[2]
    for number in range(1500):
        span.attempt = number
        index.superseded(span, 0, 1.0)
    assert len(index.untold) == 1000
    assert index.find_untold(2, 0) == (1, 0, 500)
    index.moved((1, 0, 499), 10)
    index.moved((1, 0, 500), 10)
    assert index.waste.bytes == 10


def test_both_succeed_in_one_turn_and_the_first_one_counts() -> None:
    bench = replicated()
    turn = bench.tell(news.WorkSucceeded(SpanId(2), 0, 1, 1.0), news.WorkSucceeded(SpanId(1), 0, 1, 1.0))
    assert [fact.attempt for fact in turn.facts if isinstance(fact, facts.SpanEnded)] == [2]


def test_after_a_reset_no_number_of_an_attempt_is_given_twice() -> None:
    for spec in (task(1), array(1, 1)):
        bench = Bench(1, replication=Wqr())
        bench.submit(spec)
        bench.start(1)
        bench.tell(executor(2, 1))
        bench.tell(news.WorkSucceeded(SpanId(1), 0, 1, 1.0))
        bench.tell(news.Reset(on(1)))
        assert bench.attempt(1) == 3


def test_a_failure_beside_another_attempt_costs_no_retry() -> None:
    bench = replicated(limits=limits(retries=0))
    bench.tell(news.WorkFailed(SpanId(1), 0, BOOM))
    assert bench.state(1) == "running"
    assert bench.task(1).failures_of(0) == (0, 0)
    bench.tell(news.WorkFailed(SpanId(2), 0, BOOM))
    assert bench.state(1) == "failed"
    assert bench.task(1).failures_of(0) == (1, 0)


@pytest.mark.parametrize("first", [1, 2])
def test_a_retry_after_both_failed_has_the_next_number_and_may_be_replicated_anew(first: int) -> None:
    for spec in (task(1, limits=limits(retries=1)), structs.replace(array(1, 1), limits=limits(retries=1))):
        bench = Bench(1, replication=Wqr())
        bench.submit(spec)
        bench.start(1)
        bench.tell(executor(2, 1))
        bench.tell(news.WorkFailed(SpanId(first), 0, BOOM))
        bench.tell(news.WorkFailed(SpanId(3 - first), 0, BOOM))
        assert bench.attempt(1) == 3
        bench.start(1)
        assert [order.attempt for order in bench.sent if order.replica] == [2, 4]


@pytest.mark.parametrize("lost", [1, 2])
def test_the_loss_of_one_executor_leaves_the_other_attempt(lost: int) -> None:
    bench = replicated(limits=limits(losses=1))
    bench.tell(facts.ExecutorLost(ExecutorId(lost), "gone"))
    assert bench.state(1) == "running"
    assert bench.task(1).failures_of(0) == (0, 0)
    bench.tell(news.WorkSucceeded(SpanId(3 - lost), 0, 1, 1.0))
    assert bench.state(1) == "done"


@pytest.mark.parametrize("action", [news.Kill, news.Cancel])
def test_an_action_concerns_all_attempts(action: type[news.Kill | news.Cancel]) -> None:
    bench = replicated()
    bench.tell(action(on(1)))
    assert {(order.executor, order.span) for order in bench.stops} == {(1, 1), (2, 2)}
    assert not bench.machine.state.spans
    assert bench.machine.state.replicas.waste.superseded == 0


def test_a_timeout_of_one_attempt_is_not_that_of_the_task() -> None:
    bench = replicated()
    bench.tell(news.WorkFailed(SpanId(1), 0, Failure(Cause.TIMEOUT, "ran longer than 5 s")))
    assert bench.state(1) == "running"


def test_one_of_several_attempts_is_found_by_its_number_and_else_the_oldest() -> None:
    bench = replicated()
    queries = Queries(bench.machine)
    found = [queries.attempt_at(1, 0, attempt) for attempt in (0, 1, 2, 3)]
    assert [(one.attempt, one.executor) for one in found if one is not None] == [(1, 1), (1, 1), (2, 2), (1, 1)]
    bench.tell(news.WorkFailed(SpanId(1), 0, BOOM))
    left = queries.attempt_at(1, 0)
    assert left is not None
    assert left.attempt == 2


def test_the_start_of_a_replica_is_a_fact_once() -> None:
    bench = replicated()
    assert kinds(bench.tell(news.WorkStarted(SpanId(2), 0, 1))) == ["SpanStarted"]
    assert kinds(bench.tell(news.WorkStarted(SpanId(2), 0, 1))) == []


def test_a_server_that_begins_to_replicate_knows_what_runs() -> None:
    bench = Bench(1)
    bench.now = 1.0
    bench.submit(task(1))
    bench.start(1)
    bench.tell(executor(2, 1))
    policies = structs.replace(bench.policies, replication=Wqr(age=5.0))
    machine = Machine.restore(bench.machine.snapshot(), policies)
    assert machine.turn(2.0, []).next_timer == 6.0
    assert [type(order) for order in machine.turn(6.0, []).orders] == [SendSpan]


def test_a_restart_knows_both_attempts_and_how_often_it_was_replicated() -> None:
    bench = replicated()
    bench.restart()
    bench.tell(executor(3, 1))
    assert replicas(bench) == [(1, 0, 2)]
    bench.tell(news.WorkSucceeded(SpanId(2), 0, 1, 1.0))
    assert [order.span for order in bench.stops] == [1]


def test_a_late_success_ends_the_attempt_that_runs() -> None:
    bench = replicated()
    bench.tell(facts.ExecutorLost(ExecutorId(1), "gone"))
    bench.tell(news.WorkSucceeded(SpanId(1), 0, 1, 1.0))
    assert bench.state(1) == "done"
    assert [order.span for order in bench.stops] == [2]


# --- policies -----------------------------------------------------------------------------------------------


class Wild:
    """Wishes for what is not lawful, and breaks down in the end."""

    cap, age = 1, 0.0

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate | AskAgain]:
        yield from (Replicate(9, 0, 2), Replicate(1, 7, 2), Replicate(1, 0, 1), Replicate(1, 0, 99))
        yield from (AskAgain(float("nan")), AskAgain(-1.0))
        yield "nonsense"  # type: ignore[misc]
        yield Replicate(1, 0, 2, "because \ud800\0")
        yield Replicate(1, 0, 2)
        raise RuntimeError("broken")


def test_an_unlawful_wish_is_passed_over_and_a_broken_policy_is_told_of() -> None:
    bench = running(Wild())
    turn = bench.tell(executor(2, 1))
    assert replicas(bench) == [(1, 0, 2)]
    assert turn.complaints == ["the replication policy failed: RuntimeError('broken')"]


def test_tail_replicates_what_takes_longer_than_tasks_like_it() -> None:
    bench = Bench(2, replication=Tail(age=1.0, factor=2.0))
    bench.submit(task(1, template="t"), task(2, template="t"))
    bench.start(1)
    bench.start(2)
    bench.tell(executor(2, 1))
    bench.now = 4.0
    bench.end(1, seconds=4.0)
    assert replicas(bench) == []
    assert bench.machine.next_timer == pytest.approx(8.0)
    bench.now = 8.1
    bench.tell()
    assert replicas(bench) == [(2, 0, 2)]


def test_tail_replicates_what_nothing_is_known_of_when_it_is_old() -> None:
    bench = running(Tail(age=5.0))
    bench.tell(executor(2, 1))
    assert replicas(bench) == []
    bench.now = 5.0
    bench.tell()
    assert replicas(bench) == [(1, 0, 2)]


def test_many_running_tasks_are_not_walked_through() -> None:
    """A turn in which nothing can be replicated looks at no more than a few."""
    bench = Bench(0, replication=Wqr(age=1e9))
    machine, many = bench.machine, 5_000
    machine.turn(0.0, [executor(1, many), facts.Submitted([task(number) for number in range(1, many + 1)])])
    machine.turn(0.0, [news.WorkStarted(SpanId(span), 0, 1) for span in machine.state.spans])
    index = machine.state.replicas
    looked_at = 0

    class Counting(dict):  # type: ignore[type-arg]
        def get(self, *key: object) -> object:
            nonlocal looked_at
            looked_at += 1
            return super().get(*key)

    index.by_element = Counting(index.by_element)
    machine.turn(1.0, [executor(2, 1)])
    assert len(index.by_element) == many
    assert looked_at < 10


# --- unasked ---------------------------------------------------------------------------------------------

ATOMIC = {"kind": Kind.COMMAND, "atomic_outputs": True}


def alone(item: TaskSpec | ArraySpec, *more: TaskSpec) -> Bench:
    """Task or array 1 has been running for a minute although tasks like it take a second, beside an idle host."""
    bench = Bench(1, replication=CarefulTail())
    bench.submit(item)
    bench.machine.state.records[1].runtime.mean = bench.twin.state.records[1].runtime.mean = 1.0
    bench.start(1)
    bench.now = 60.0
    if more:
        bench.submit(*more)
    bench.tell(executor(2, 1))
    return bench


@pytest.mark.parametrize(
    "item",
    [
        structs.replace(task(1, writes=("/d/out",)), **ATOMIC),
        structs.replace(array(1, 1), **ATOMIC),
        task(1, limits=limits(idempotent=True)),
        array(1, 1, limits=limits(idempotent=True)),
    ],
)
def test_who_did_not_ask_gets_replicas_of_tasks_that_declare_their_outputs_or_are_said_to_be_idempotent(
    item: TaskSpec | ArraySpec,
) -> None:
    bench = alone(item)
    assert replicas(bench) == [(1, 0, 2)]
    assert "a replica, because it had run for 60 s, 60.0 times what is expected" in bench.machine.explain(1)[2]


@pytest.mark.parametrize(
    "item",
    [
        task(1),
        task(1, writes=("/d/out",)),
        array(1, 1),
        structs.replace(task(1, writes=("/d/out",), limits=limits(idempotent=False)), **ATOMIC),
        structs.replace(array(1, 1, limits=limits(idempotent=False)), **ATOMIC),
        task(1, limits=limits(idempotent=True), extras=TaskExtras(checkpoint=CheckpointPlan(15, file="/tmp/state"))),
        task(1, limits=limits(idempotent=True), extras=TaskExtras(host="host1")),
    ],
)
def test_who_did_not_ask_gets_no_replicas_of_what_might_have_effects(item: TaskSpec | ArraySpec) -> None:
    assert replicas(alone(item)) == []


def test_who_did_not_ask_gets_no_replicas_of_what_is_watched_unless_it_is_said_to_be_idempotent() -> None:
    watched = TaskExtras(watch=BlobId(b"w" * 16))
    assert replicas(alone(structs.replace(task(1, writes=("/d/out",), extras=watched), **ATOMIC))) == []
    assert replicas(alone(task(1, extras=watched, limits=limits(idempotent=True)))) == [(1, 0, 2)]


def test_unasked_replicas_go_to_other_hosts_only() -> None:
    bench = alone(task(1, limits=limits(idempotent=True)))
    assert replicas(bench) == [(1, 0, 2)]
    bench = running(CarefulTail(), limits=limits(idempotent=True))
    bench.machine.state.records[1].runtime.mean = bench.twin.state.records[1].runtime.mean = 1.0
    bench.now = 60.0
    bench.tell(structs.replace(executor(2, 1), host="host1"))
    assert replicas(bench) == []
    assert replicas_of_asked() == [(1, 0, 2)]
    bench.wait(1.0)
    bench.tell(structs.replace(executor(3, 1), site="elsewhere", host="host1"))  # of the same name, at another site
    assert replicas(bench) == [(1, 0, 3)]


def replicas_of_asked() -> list[tuple[int, int, int]]:
    """What a policy that was asked for does with a second executor on the same host."""
    bench = running(Tail())
    bench.now = 60.0
    bench.tell(structs.replace(executor(2, 1), host="host1"))
    return replicas(bench)


def test_unasked_replicas_wait_until_nothing_is_ready_that_an_executor_to_come_might_run() -> None:
    bench = alone(task(1, limits=limits(idempotent=True)), task(2, needs=needs(4)))  # which fits nowhere
    assert replicas(bench) == []
    assert bench.machine.next_timer == 90.0
    bench.tell(news.Cancel(on(2)))
    bench.wait(30.0)
    assert replicas(bench) == [(1, 0, 2)]


def test_replicas_of_a_task_that_others_wait_for_do_not_count_twice_in_what_comes() -> None:
    bench = alone(task(1, limits=limits(idempotent=True)))
    assert replicas(bench) == [(1, 0, 2)]
    bench.submit(task(3, 1), task(4, 3), task(5, 1, 4))  # 5 waits for two, one of which is not out
    found = coming(bench.machine.state)
    assert sum(one.tasks for one in found) == 1
    assert len(remaining(bench.machine.state)) == 1


def test_a_journal_with_replicas_of_another_policy_is_read_by_one_that_was_not_asked_for() -> None:
    bench = replicated()
    other = Machine.restore(bench.machine.snapshot(), Policies(Fifo(), replication=CarefulTail()))
    other.turn(20.0, [])
    check(other.state)
    assert not other.state.replicas.by_element
    other.turn(21.0, [news.WorkSucceeded(SpanId(2), 0, 1, 1.0)])
    check(other.state)
    assert other.counts()["done"] == 1


def test_a_policy_that_nobody_asked_for_is_asked_at_most_once_a_second() -> None:
    bench = Bench(2, replication=CarefulTail())
    bench.submit(*(task(number, limits=limits(idempotent=True)) for number in (1, 2)))
    for number in (1, 2):
        for machine in (bench.machine, bench.twin):
            machine.state.records[number].runtime.mean = 1.0
        bench.start(number)
    bench.now = 60.0
    bench.tell(executor(2, 1))
    bench.tell(executor(3, 1))
    assert replicas(bench) == [(1, 0, 2)]
    assert bench.machine.next_timer == 61.0
    bench.wait(1.0)
    assert replicas(bench) == [(1, 0, 2), (2, 0, 3)]


def test_who_did_not_ask_gets_no_replicas_of_what_has_had_a_lock_unless_it_is_said_to_be_idempotent() -> None:
    for item, expected in (
        (structs.replace(task(1, writes=("/d/out",)), **ATOMIC), []),
        (task(1, limits=limits(idempotent=True)), [(1, 0, 2)]),
    ):
        bench = Bench(1, replication=CarefulTail())
        bench.submit(item)
        bench.machine.state.records[1].runtime.mean = bench.twin.state.records[1].runtime.mean = 1.0
        bench.start(1)
        bench.tell(news.TakeLock("l", SpanId(1), 0))
        bench.tell(news.FreeLock("l", SpanId(1), 0))
        bench.restart()
        bench.now = 60.0
        bench.tell(executor(2, 1))
        assert replicas(bench) == expected
        bench.end(1)
        assert not bench.machine.state.locks.users


def test_a_replica_makes_nobody_ask_for_a_pilot() -> None:
    bench = Bench(1, replication=CarefulTail())
    bench.policies = Policies(Fifo(), provisioning=Adaptive(), replication=CarefulTail())
    bench.machine, bench.twin = Machine(bench.policies), Machine(bench.policies)
    bench.tell(facts.RunOpened(1, "test", "h", 1), executor(1, 1))
    bench.submit(task(1, limits=limits(idempotent=True)), task(2, 1), task(3, 2), task(4, 1, 3))
    bench.start(1)
    bench.machine.state.records[1].runtime.mean = bench.twin.state.records[1].runtime.mean = 100.0
    bench.tell(facts.SiteDefined("alpha", SiteSpec(ssh="head", max_pilots=9, cores_per_pilot=1)))
    bench.now = 300.0
    bench.tell(executor(2, 1))
    assert replicas(bench) == [(1, 0, 2)]
    for _ in range(5):
        bench.wait(30.0)
    assert not bench.machine.state.pilots
    bench.end(1)
    assert bench.state(2) == "placed"
    assert not bench.machine.state.pilots
