from __future__ import annotations

import pickle

from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.model.events.facts import (
    ExecutorJoined,
    ExecutorLost,
    MemoLookedUp,
    Placed,
    RunOpened,
    Skipped,
    SpanEnded,
    SpanReturned,
    SpanStarted,
    Submitted,
)
from bough.model.events.news import WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.sites.resources import Needs
from bough.policies.policy_registry import load_policies
from bough.server.turns.result_parts import ResultCache
from bough.server.turns.turn_messages import TurnMessages, WithheldFailures
from bough.testing.builders import executor, task
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded

JOINED = ExecutorJoined(1, "local", "node", 5, Needs(1))


def a_teller(*successes: SpanEnded) -> TurnMessages:
    cache = ResultCache(lambda *_: None)
    for success in successes:
        cache.remember(success)
    queries = Queries(Machine(load_policies("fifo")))
    return TurnMessages(cache, queries, WithheldFailures(queries))


def test_a_span_goes_out_starts_and_comes_back_in_parts() -> None:
    teller = a_teller()

    said = teller.messages(
        [
            JOINED,
            Placed(5, 1, 10, 20, 1, 1),
            SpanStarted(5, 10, 20, 1),
            SpanEnded(5, 10, 15, 0.1, b"r", record=1, attempt=1, executor=1),
            SpanReturned(5, 15, 20, 1),
        ]
    )

    assert said == [
        TasksRunning(1, 10, 20, 1, "node"),
        TasksSucceeded(1, 10, 15, 1, "node", b"r"),
        TasksRunning(1, 15, 20, 0),
    ]


def test_what_a_lost_executor_still_had_went_back() -> None:
    teller = a_teller()
    teller.messages([JOINED, Placed(5, 1, 0, 10, 1, 1), SpanEnded(5, 0, 4, 0.1, b"r", record=1, attempt=1, executor=1)])

    assert teller.messages([ExecutorLost(1)]) == [TasksRunning(1, 4, 10, 0)]
    assert teller.messages([ExecutorLost(1)]) == []


def test_what_is_recalled_comes_with_the_results_of_its_source_only() -> None:
    details = tuple(Detail(index, exit_code=index) for index in range(10, 20))
    teller = a_teller(SpanEnded(3, 10, 20, 1.0, pickle.dumps(list(range(10, 20))), details, record=7, attempt=2))

    (outcome,) = teller.messages([MemoLookedUp(40, 0, 3, True, source=7, source_start=12, source_attempt=2, turn=5)])

    assert (outcome.record, outcome.start, outcome.stop, outcome.attempt, outcome.reused) == (40, 0, 3, 2, True)
    assert pickle.loads(outcome.results) == [12, 13, 14]
    assert [(detail.index, detail.exit_code) for detail in outcome.details] == [(0, 12), (1, 13), (2, 14)]


def test_what_is_not_found_is_not_told() -> None:
    assert a_teller().messages([MemoLookedUp(40, 0, 3, False)]) == []


def test_what_will_not_run_is_told_with_its_cause() -> None:
    failure = Failure(Cause.DEPENDENCY, "task 1 failed", source=1)

    assert a_teller().messages([Skipped(2, 0, 5, failure)]) == [TasksFailed(2, 0, 5, 0, failure)]


def replicated() -> tuple[Machine, TurnMessages]:
    """Task 1 runs on node1 as span 1, and as a replica, span 2, on node2; its clients know."""
    machine = Machine(load_policies("fifo", replication="wqr"))
    queries = Queries(machine)
    teller = TurnMessages(ResultCache(lambda *_: None), queries, WithheldFailures(queries))
    for news in (
        [RunOpened(1, "w", "h", 1), Submitted([task(1)]), executor(1, 1)],
        [WorkStarted(1, 0, 1)],
        [executor(2, 1)],
    ):
        teller.messages(machine.turn(0.0, news).facts)
    return machine, teller


def test_a_task_whose_replica_failed_or_was_lost_is_still_running() -> None:
    for said in (WorkFailed(2, 0, Failure(Cause.EXIT)), WorkReturned(2, 0, 1), ExecutorLost(2)):
        machine, teller = replicated()
        told = teller.messages(machine.turn(1.0, [said]).facts)
        assert {(one.attempt, one.host) for one in told} == {(1, "host1")}


def test_the_success_of_one_attempt_is_told_and_nothing_more_of_the_other() -> None:
    machine, teller = replicated()
    (told,) = teller.messages(machine.turn(1.0, [WorkSucceeded(2, 0, 1, 1.0)]).facts)
    assert (type(told), told.attempt, told.host) == (TasksSucceeded, 2, "host2")
    assert teller.messages(machine.turn(2.0, [ExecutorLost(1)]).facts) == []


def test_a_server_that_begins_anew_knows_replicas() -> None:
    machine, _ = replicated()
    queries = Queries(machine)
    teller = TurnMessages(ResultCache(lambda *_: None), queries, WithheldFailures(queries))
    teller.restore()
    (told,) = teller.messages(machine.turn(1.0, [WorkFailed(2, 0, Failure(Cause.EXIT))]).facts)
    assert (told.attempt, told.host) == (1, "host1")
