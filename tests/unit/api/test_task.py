"""Tasks as futures: what waits for them, what they tell, and that they cost little."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import sys
import threading

import pytest

from bough.api.futures.task import Task
from bough.api.futures.task_registry import TaskRegistry
from bough.errors import NotPicklable, NotRun, PeerLost, TaskFailed
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Detail, Failure, Stream
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded


def loose(registry: TaskRegistry, record: int = 1, name: str = "") -> Task:
    task = Task(registry, record, name)
    registry.tasks[record] = task
    registry.progress.added(0, 1)
    return task


def done(record: int, value: object) -> TasksSucceeded:
    return TasksSucceeded(RecordId(record), 0, 1, 1, "here", pickle.dumps([value]))


def failed(record: int, failure: Failure) -> TasksFailed:
    return TasksFailed(RecordId(record), 0, 1, 2, failure, "here")


def test_a_task_gives_the_value_that_was_told() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    assert not task.done()
    assert task.state == "waiting"
    registry.on_messages([done(1, {"x": 1})])
    assert task.result() == {"x": 1}
    assert task.result() is task.result()
    assert (task.state, task.attempts, task.host) == ("done", 1, "here")
    assert registry.tasks == {}


def test_a_waiter_wakes_when_the_end_is_told() -> None:
    registry = TaskRegistry()
    tasks = [loose(registry, record) for record in range(1, 51)]
    found: list[int] = []
    threads = [threading.Thread(target=lambda task=task: found.append(task.result(60))) for task in tasks]
    for thread in threads:
        thread.start()
    for record in range(1, 51):
        registry.on_messages([done(record, record)])
    for thread in threads:
        thread.join(60)
    assert sorted(found) == list(range(1, 51))


def test_tasks_told_together_wake_all_who_wait_before_and_meanwhile() -> None:
    registry = TaskRegistry()
    tasks = [loose(registry, record) for record in range(1, 3001)]
    order = list(range(3000))
    found: list[list[int]] = [[], [], []]
    called: list[int] = []

    def wait(mine: list[int], step: int) -> None:
        mine += [tasks[at].result(30) for at in order[::step]]

    threads = [threading.Thread(target=wait, args=(found[n], step)) for n, step in enumerate((1, -1, 7))]
    threads += [
        threading.Thread(target=lambda: [t.add_done_callback(lambda task: called.append(task.id)) for t in tasks]),
        threading.Thread(target=lambda: concurrent.futures.wait(tasks, 30)),
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for at in range(1, 3001, 500):
            registry.on_messages([done(record, record) for record in range(at, at + 500)])
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert not any(thread.is_alive() for thread in threads)
    everything = list(range(1, 3001))
    assert found == [everything, everything[::-1], everything[::7]]
    assert sorted(called) == everything
    assert registry.progress.counts()["done"] == 3000


def test_what_is_told_together_counts_before_anybody_wakes_and_in_order() -> None:
    registry = TaskRegistry()
    tasks = [loose(registry, record) for record in (1, 2, 3, 4)]
    seen: list[tuple[int, int]] = []
    for task in tasks:
        task.add_done_callback(lambda task: seen.append((task.id, registry.progress.counts()["waiting"])))
    registry.on_messages([done(2, "b"), done(1, "a"), failed(3, Failure(Cause.EXIT, exit_code=1)), done(4, "d")])
    assert seen == [(2, 2), (1, 2), (3, 1), (4, 0)]
    assert [task.result() for task in (tasks[0], tasks[1], tasks[3])] == ["a", "b", "d"]


def test_many_threads_may_read_the_same_value_at_once() -> None:
    for _ in range(50):
        registry = TaskRegistry()
        task = loose(registry)
        registry.on_messages([done(1, "value")])
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(task.result())) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == ["value"] * 4


def test_tasks_told_together_keep_their_own_attempt_and_host_after_their_values_were_read() -> None:
    registry = TaskRegistry()
    first, second, third = (loose(registry, record) for record in (1, 2, 3))
    there = TasksSucceeded(RecordId(2), 0, 1, 4, "there", pickle.dumps(["b"]))
    again = TasksSucceeded(RecordId(3), 0, 1, 1, "here", pickle.dumps(["c"]), reused=True)
    registry.on_messages([done(1, "a"), there, again])
    for _ in range(2):
        assert [(task.attempts, task.host, task.reused) for task in (first, second, third)] == [
            (1, "here", False),
            (4, "there", False),
            (1, "here", True),
        ]
        assert [first.result(), second.result(), third.result()] == ["a", "b", "c"]


def test_waiting_has_a_timeout() -> None:
    task = loose(TaskRegistry())
    with pytest.raises(TimeoutError):
        task.result(0.01)
    with pytest.raises(TimeoutError):
        task.exception(timeout=0)


def test_the_functions_of_concurrent_futures_take_tasks() -> None:
    registry = TaskRegistry()
    tasks = [loose(registry, record) for record in (1, 2, 3)]
    registry.on_messages([done(2, "b")])
    first = concurrent.futures.wait(tasks, 5, concurrent.futures.FIRST_COMPLETED)
    assert first.done == {tasks[1]}
    threading.Timer(
        0.02, lambda: registry.on_messages([done(1, "a"), failed(3, Failure(Cause.EXIT, exit_code=1))])
    ).start()
    assert next(iter(concurrent.futures.as_completed(tasks, 5))) is tasks[1]
    assert concurrent.futures.wait(tasks, 5).not_done == set()


def test_wait_for_the_first_exception_returns_at_a_failure() -> None:
    registry = TaskRegistry()
    tasks = [loose(registry, record) for record in (1, 2)]
    threading.Timer(0.02, lambda: registry.on_messages([failed(1, Failure(Cause.EXIT, exit_code=1))])).start()
    found = concurrent.futures.wait(tasks, 5, concurrent.futures.FIRST_EXCEPTION)
    assert found.done == {tasks[0]}


def test_a_cancelled_task_counts_as_ended_for_those_who_wait() -> None:
    registry = TaskRegistry()
    tasks = [loose(registry, record) for record in (1, 2)]
    threading.Timer(0.02, lambda: [task.cancel() for task in tasks]).start()
    assert concurrent.futures.wait(tasks, 5).not_done == set()


def test_callbacks_are_called_once_before_or_after_the_end() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    called: list[str] = []
    task.add_done_callback(lambda _: called.append("before"))
    registry.on_messages([done(1, 1)])
    task.add_done_callback(lambda _: called.append("after"))
    assert called == ["before", "after"]


def test_a_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    registry = TaskRegistry()
    task = loose(registry)
    called: list[int] = []
    task.add_done_callback(lambda _: 1 / 0)
    task.add_done_callback(lambda _: called.append(1))
    registry.on_messages([done(1, 1)])
    assert called == [1]
    assert "ZeroDivisionError" in caplog.text


def test_cancel_is_final_at_once_also_when_running() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    registry.on_messages([TasksRunning(RecordId(1), 0, 1, 1, "here")])
    assert task.running()
    assert task.cancel()
    assert task.cancelled()
    assert task.done()
    registry.on_messages([done(1, "too late")])
    assert task.state == "cancelled"
    with pytest.raises(concurrent.futures.CancelledError):
        task.result()
    assert registry.progress.counts() == {
        "waiting": 0,
        "running": 0,
        "done": 0,
        "failed": 0,
        "skipped": 0,
        "cancelled": 1,
    }


def test_cancel_says_no_when_the_task_has_ended() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    registry.on_messages([done(1, 1)])
    assert task.cancel() is False
    assert task.result() == 1


def test_exactly_one_of_an_end_and_a_cancellation_wins() -> None:
    for _ in range(200):
        registry = TaskRegistry()
        task = loose(registry)
        begin = threading.Barrier(2)
        answer: list[bool] = []

        def cancel(task: Task = task, begin: threading.Barrier = begin, answer: list[bool] = answer) -> None:
            begin.wait()
            answer.append(task.cancel())

        thread = threading.Thread(target=cancel)
        thread.start()
        begin.wait()
        registry.on_messages([done(1, 1)])
        thread.join()
        assert answer == [task.cancelled()]
        counts = registry.progress.counts()
        assert (counts["done"], counts["cancelled"]) == ((0, 1) if task.cancelled() else (1, 0))


def test_running_and_back_to_waiting_is_seen() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    registry.on_messages([TasksRunning(RecordId(1), 0, 1, 1, "here")])
    assert (task.state, task.attempts, task.host) == ("running", 1, "here")
    assert registry.progress.counts()["running"] == 1
    registry.on_messages([TasksRunning(RecordId(1), 0, 1, 0, ended=1)])
    assert (task.state, task.attempts) == ("waiting", 1)
    registry.on_messages([TasksRunning(RecordId(1), 0, 1, 0)])
    assert task.state == "waiting"
    assert registry.progress.counts() == {
        "waiting": 1,
        "running": 0,
        "done": 0,
        "failed": 0,
        "skipped": 0,
        "cancelled": 0,
    }


def test_a_function_s_own_exception_is_raised() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    error = KeyError("x")
    error.__cause__ = RuntimeError("remote traceback")
    registry.on_messages([failed(1, Failure(Cause.EXCEPTION, "KeyError: 'x'", error=pickle.dumps(error)))])
    with pytest.raises(KeyError, match="x"):
        task.result()
    assert isinstance(task.exception(), KeyError)
    assert task.state == "failed"


def test_a_failed_command_says_what_where_which_attempt_and_its_last_line() -> None:
    registry = TaskRegistry()
    task = Task(registry, 12, "plot", command="plot x", writes={})
    registry.tasks[12] = task
    registry.on_messages([failed(12, Failure(Cause.EXIT, exit_code=3, stderr="one\nno such file\n"))])
    with pytest.raises(TaskFailed, match=r"^task 12 \(plot\): exit code 3 on here, attempt 2: no such file$") as caught:
        task.result()
    assert (caught.value.returncode, caught.value.host, caught.value.attempt) == (3, "here", 2)


def test_a_signal_is_named() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    registry.on_messages([failed(1, Failure(Cause.SIGNAL, signal=11))])
    with pytest.raises(TaskFailed, match="ended by SIGSEGV on here"):
        task.result()


def test_a_dependent_names_the_cause() -> None:
    registry = TaskRegistry()
    task = loose(registry, 2, "b")
    registry.on_messages([failed(2, Failure(Cause.DEPENDENCY, "task 1 (a) failed", source=1))])
    with pytest.raises(NotRun, match="task 1") as caught:
        task.result()
    assert caught.value.cause == 1
    assert task.state == "skipped"


def test_output_is_read_from_its_byte_range(tmp_path: object) -> None:
    registry = TaskRegistry()
    path = f"{tmp_path}/out"
    with open(path, "w") as file:
        file.write("others' hello others'")
    task = Task(registry, 1, command="echo hello", writes={})
    registry.tasks[1] = task
    detail = Detail(0, started=1.0, ended=3.0, memory=5, stdout=Stream(path, 8, 5))
    registry.on_messages([TasksSucceeded(RecordId(1), 0, 1, 1, "here", None, (detail,))])
    completed = task.result()
    assert (completed.stdout, completed.stderr, task.stdout, task.stderr) == ("hello", "", "hello", "")
    assert (completed.returncode, completed.args, completed.seconds, completed.memory) == (0, "echo hello", 2.0, 5)
    assert pickle.loads(pickle.dumps(completed)).stdout == "hello"


def test_a_lost_server_fails_what_has_not_ended() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    registry.lost(PeerLost("the server is gone"))
    with pytest.raises(PeerLost, match="the server is gone"):
        task.result(1)


def test_a_closed_session_leaves_no_task_waiting() -> None:
    registry = TaskRegistry()
    task = loose(registry)
    registry.lost(None)
    with pytest.raises(NotRun, match="closed"):
        task.result(1)


def test_failures_nobody_looked_at_are_kept() -> None:
    registry = TaskRegistry()
    seen, unseen = loose(registry, 1), loose(registry, 2, "plot")
    registry.on_messages([failed(1, Failure(Cause.EXIT, exit_code=1)), failed(2, Failure(Cause.EXIT, exit_code=1))])
    assert seen.exception() is not None
    assert [str(one) for one in registry.unretrieved()] == ["task 2 (plot): exit code 1"]
    assert [line.task for line in registry.progress.failures] == ["task 1", "task 2 (plot)"]
    with pytest.raises(TaskFailed):
        unseen.result()
    assert registry.unretrieved() == []


def test_tasks_can_be_awaited() -> None:
    registry = TaskRegistry()
    good, bad = loose(registry, 1), loose(registry, 2)

    async def main() -> object:
        asyncio.get_running_loop().call_later(
            0.01, registry.on_messages, [done(1, 7), failed(2, Failure(Cause.EXIT, exit_code=1))]
        )
        with pytest.raises(TaskFailed):
            await bad
        return await good

    assert asyncio.run(main()) == 7


def test_a_task_does_not_travel_by_itself() -> None:
    with pytest.raises(NotPicklable, match="list, tuple or dict"):
        pickle.dumps(loose(TaskRegistry()))


def test_a_task_nobody_waits_for_is_small() -> None:
    registry = TaskRegistry()
    task = Task(registry, 1)
    assert task._sync is None
    assert not vars(task)
    assert sys.getsizeof(task) < 250
