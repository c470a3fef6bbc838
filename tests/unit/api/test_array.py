"""Arrays as sequences of tasks: slices, waits, iterators, values, without an object for each task."""

from __future__ import annotations

import gc
import pickle
import threading
from concurrent.futures import CancelledError

import pytest

from bough.api.futures.array import Array, TaskList
from bough.api.futures.array_view import ArrayView
from bough.api.futures.elements import ArrayElements
from bough.api.futures.task_registry import TaskRegistry
from bough.errors import NotRun, PeerLost, TaskFailed, UserError
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Dep, On
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded, ToClient

BOOM = Failure(Cause.EXIT, exit_code=1)


class Bench:
    """An array whose server the test plays."""

    def __init__(self, length: int, *, values: bool = False, is_open: bool = False) -> None:
        self.registry = TaskRegistry()
        self.elements = ArrayElements(self.registry, 1, length, name="f")
        self.elements.is_open = is_open
        self.registry.arrays[1] = self.elements
        self.registry.progress.added(0, length)
        self.array = ArrayView(self.elements, values=values)

    def done(self, start: int, stop: int) -> None:
        self.hear(
            TasksSucceeded(RecordId(1), start, stop, 1, "here", pickle.dumps([i * i for i in range(start, stop)]))
        )

    def failed(self, start: int, stop: int, failure: Failure = BOOM) -> None:
        self.hear(TasksFailed(RecordId(1), start, stop, 1, failure, "here"))

    def running(self, start: int, stop: int, attempt: int = 1) -> None:
        self.hear(TasksRunning(RecordId(1), start, stop, attempt, "here"))

    def hear(self, message: ToClient) -> None:
        self.registry.on_messages([message])

    def later(self, *deeds: object) -> None:
        def act() -> None:
            for deed in deeds:
                deed()  # type: ignore[operator]

        threading.Timer(0.02, act).start()


def test_an_index_gives_the_same_task_while_it_is_held() -> None:
    bench = Bench(10)
    task = bench.array[3]
    assert bench.array[3] is task
    assert bench.array[-7] is task
    assert (task.id, task.index) == (1, 3)
    with pytest.raises(IndexError):
        bench.array[10]
    del task
    gc.collect()
    assert not bench.elements._live


def test_slices_are_views() -> None:
    bench = Bench(100)
    part = bench.array[10:20]
    assert isinstance(part, Array)
    assert len(part) == 10
    assert part[0] is bench.array[10]
    assert part[2:4][1] is bench.array[13]
    assert bench.array[::-1][0].index == 99
    assert [task.index for task in part[::5]] == [10, 15]


def test_results_come_in_order_whatever_the_order_of_the_ends() -> None:
    bench = Bench(10)
    bench.done(7, 10)
    bench.done(0, 3)
    bench.done(3, 7)
    assert bench.array.results() == [i * i for i in range(10)]
    assert bench.array[2:8:3].results() == [4, 25]
    assert bench.array[::-1].results() == [i * i for i in range(9, -1, -1)]
    assert bench.registry.arrays == {}


def test_what_map_returned_iterates_values_as_they_come() -> None:
    bench = Bench(6, values=True)
    bench.done(0, 2)
    values = iter(bench.array)
    assert [next(values), next(values)] == [0, 1]
    bench.later(lambda: bench.done(4, 6), lambda: bench.done(2, 4))
    assert list(values) == [4, 9, 16, 25]
    assert list(bench.array[1:3]) == [1, 4]
    assert next(bench.array, None) is None
    assert list(bench.array) == [0, 1, 4, 9, 16, 25]


def test_iterating_values_raises_at_the_failing_one_and_counts_as_looking() -> None:
    bench = Bench(4, values=True)
    bench.done(0, 1)
    bench.failed(1, 2)
    bench.failed(3, 4)
    bench.done(2, 3)
    values = iter(bench.array)
    assert next(values) == 0
    assert len(bench.registry.unretrieved()) == 2
    with pytest.raises(TaskFailed):
        next(values)
    assert bench.registry.unretrieved() == []


def test_iterating_values_has_a_deadline() -> None:
    bench = Bench(2)
    with pytest.raises(TimeoutError, match="2 of 2"):
        list(ArrayView(bench.elements, values=True, deadline=0.0))


def test_other_arrays_iterate_tasks() -> None:
    bench = Bench(3)
    assert [task.index for task in bench.array] == [0, 1, 2]
    with pytest.raises(TypeError):
        next(bench.array)


def test_results_raise_or_return_errors() -> None:
    bench = Bench(4)
    bench.done(0, 2)
    bench.failed(2, 3)
    bench.array[3].cancel()
    with pytest.raises(TaskFailed):
        bench.array.results()
    good, again, bad, gone = bench.array.results(errors="return")
    assert (good, again) == (0, 1)
    assert isinstance(bad, TaskFailed)
    assert isinstance(gone, CancelledError)
    with pytest.raises(UserError, match="ignore"):
        bench.array.results(errors="ignore")


def test_as_completed_gives_the_order_of_the_ends() -> None:
    bench = Bench(6)
    bench.done(3, 4)
    bench.later(
        lambda: bench.done(5, 6), lambda: bench.failed(0, 1), lambda: bench.done(1, 3), lambda: bench.done(4, 5)
    )
    assert [task.index for task in bench.array.as_completed(10)] == [3, 5, 0, 1, 2, 4]
    assert bench.registry.unretrieved() == []
    assert bench.elements._watchers == []


def test_as_completed_of_a_slice_gives_only_its_own() -> None:
    bench = Bench(6)
    bench.later(lambda: bench.done(3, 6), lambda: bench.done(0, 3))
    assert [task.index for task in bench.array[2:4].as_completed(10)] == [3, 2]


def test_as_completed_has_a_timeout() -> None:
    bench = Bench(2)
    bench.done(0, 1)
    with pytest.raises(TimeoutError, match="1 of 2"):
        list(bench.array.as_completed(0.01))


def test_the_waits_wait() -> None:
    bench = Bench(4)
    bench.later(lambda: bench.done(2, 3))
    assert bench.array.wait_any(10).index == 2
    bench.later(lambda: bench.done(0, 1))
    assert [task.index for task in bench.array.wait_some(2, 10)] == [2, 0]
    with pytest.raises(TimeoutError):
        bench.array.wait_all(0.01)
    assert bench.array[0:1].wait_all(0.01)
    bench.later(lambda: bench.failed(1, 2), lambda: bench.done(3, 4))
    assert bench.array.wait_all(10) is bench.array
    assert bench.array[1:].wait_all(0)
    assert bench.array[::2].wait_all(0)


def test_tasks_are_chosen_by_state() -> None:
    bench = Bench(6)
    bench.done(0, 1)
    bench.failed(1, 2)
    bench.running(2, 4)
    assert [task.index for task in bench.array.failed()] == [1]
    assert [task.index for task in bench.array.running()] == [2, 3]
    assert [task.index for task in bench.array.queued()] == [4, 5]
    assert [task.index for task in bench.array.finished()] == [0, 1]
    assert [task.index for task in bench.array.select(lambda task: task.index % 2)] == [1, 3, 5]
    assert bench.array.counts() == {"waiting": 2, "running": 2, "done": 1, "failed": 1, "skipped": 0, "cancelled": 0}
    assert bench.array[2].host == "here"
    bench.running(2, 4, attempt=0)
    assert len(bench.array.running()) == 0


def test_looking_at_the_failed_ones_counts_as_looking() -> None:
    bench = Bench(4)
    bench.failed(0, 3)
    assert len(bench.registry.unretrieved()) == 1
    bench.array[1].exception()
    assert [(one.start, one.stop) for one in bench.registry.unretrieved()] == [(0, 1), (2, 3)]
    bench.array[:1].failed()
    assert [(one.start, one.stop) for one in bench.registry.unretrieved()] == [(2, 3)]
    bench.array.failed()
    assert bench.registry.unretrieved() == []


def test_tasks_in_the_hand_hear_of_their_end() -> None:
    bench = Bench(5)
    task, other = bench.array[1], bench.array[3]
    called: list[int] = []
    task.add_done_callback(lambda task: called.append(task.index))
    bench.running(0, 5)
    assert task.running()
    bench.done(0, 3)
    assert task.result(0) == 1
    assert called == [1]
    assert not other.done()


def test_cancelling_is_final_whatever_comes_later() -> None:
    bench = Bench(6)
    bench.running(0, 2)
    assert bench.array[1:3].cancel() == 2
    task = bench.array[1]
    assert task.cancelled()
    bench.done(0, 4)
    assert bench.array[0].result() == 0
    assert bench.array[3].result() == 9
    with pytest.raises(CancelledError):
        task.result()
    with pytest.raises(CancelledError):
        bench.array[2].result()
    assert bench.array.cancel() == 2
    counts = bench.registry.progress.counts()
    assert (counts["waiting"], counts["running"], counts["done"], counts["cancelled"]) == (0, 0, 2, 4)
    assert bench.registry.arrays == {}


def test_values_of_an_array_with_a_cancelled_element_raise_there() -> None:
    bench = Bench(4, values=True)
    bench.array[2].cancel()
    bench.done(0, 4)
    values = iter(bench.array)
    assert [next(values), next(values)] == [0, 1]
    with pytest.raises(CancelledError):
        next(values)


def test_an_end_that_is_told_again_changes_nothing() -> None:
    bench = Bench(2)
    bench.failed(0, 1)
    bench.done(0, 2)
    assert bench.array[0].state == "failed"
    assert bench.array[1].result() == 1
    assert bench.registry.progress.counts()["done"] == 1


def test_elements_that_could_not_run_name_the_cause() -> None:
    bench = Bench(1_000_000)
    bench.failed(0, 1_000_000, Failure(Cause.DEPENDENCY, "task 7 failed", source=7))
    with pytest.raises(NotRun, match="task 7 failed"):
        bench.array[999_999].result()
    assert bench.array.counts()["skipped"] == 1_000_000


def test_a_lost_server_fails_every_element() -> None:
    bench = Bench(3)
    bench.done(0, 1)
    bench.registry.lost(PeerLost("the server is gone"))
    assert bench.array[0].result() == 0
    with pytest.raises(PeerLost, match="the server is gone"):
        bench.array[2].result(1)


def test_an_array_as_a_dependency() -> None:
    bench = Bench(3)
    assert bench.array.deps() == (Dep(On.ARRAY, 1),)
    assert bench.array[1:].deps() == (Dep(On.TASK, 1, 1), Dep(On.TASK, 1, 2))
    assert Bench(0).array.deps() == ()


def test_an_open_array_grows_and_ends() -> None:
    bench = Bench(0, values=True, is_open=True)
    values = iter(bench.array)
    bench.later(lambda: bench.elements.grow(2), lambda: bench.done(0, 2), bench.elements.close)
    assert list(values) == [0, 1]
    assert [task.index for task in bench.array.as_completed(5)] == [0, 1]
    assert len(bench.array) == 2


def test_a_list_of_tasks_has_the_same_waits() -> None:
    bench = Bench(3)
    tasks = TaskList([bench.array[2], bench.array[0]])
    bench.later(lambda: bench.done(0, 1), lambda: bench.failed(2, 3))
    assert [task.index for task in tasks.as_completed(10)] == [0, 2]
    assert tasks.wait_all(10) is tasks
    assert [task.index for task in tasks.failed()] == [2]
    assert tasks.counts()["done"] == 1
    assert tasks.deps() == (Dep(On.TASK, 1, 2), Dep(On.TASK, 1, 0))
    assert isinstance(tasks[:1], Array)
    with pytest.raises(UserError, match="array"):
        tasks.add(bench.array[1])


def test_an_element_costs_about_a_byte_until_it_is_looked_at() -> None:
    bench = Bench(1_000_000)
    assert len(bench.elements.states) == 1_000_000
    assert not bench.elements._live
    assert bench.array[500_000:].counts()["waiting"] == 500_000
