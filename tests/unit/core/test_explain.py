"""Answers to "why?": one test for each kind of answer."""

from __future__ import annotations

from bough.core.queries.facade import Queries
from bough.model.events.facts import ExecutorDrained, MemoLookedUp, Stopping
from bough.model.events.news import Cancel, Hold, Release
from bough.model.ids import ExecutorId, RecordId
from bough.model.outcomes import Cause, Failure
from bough.testing.builders import array, executor, group, limits, needs, on_array, on_element, on_group, task
from tests.unit.core.core_bench import Bench, on


def why(bench: Bench, record: int, index: int = 0) -> str:
    (line,) = bench.machine.explain(record, index)
    return line


def test_there_is_no_such_task() -> None:
    bench = Bench()
    bench.submit(array(1, 3))
    assert why(bench, 9) == "there is no task 9 in this run"
    assert why(bench, 1, 3) == "1 has 3 tasks, there is no 1.3"
    assert why(bench, 1, -1) == "1 has 3 tasks, there is no 1.-1"


def test_it_is_done() -> None:
    bench = Bench()
    bench.submit(task(1, name="plot"), array(2, 1))
    bench.end(1)
    bench.end(2)
    assert why(bench, 1) == "task 1 (plot) is done"
    assert why(bench, 2) == "task 2.0 is done"


def test_it_was_reused() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=b"k" * 16))
    bench.tell(MemoLookedUp(RecordId(1), 0, 1, True, RecordId(40)))
    assert why(bench, 1) == "task 1 is done: reused from an earlier run, where it was task 40"


def test_it_failed() -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=1)))
    loud = Failure(Cause.EXIT, "exit code 3", exit_code=3, stderr="\n".join(f"line {n}" for n in range(20)))
    bench.fail(1)
    bench.fail(1, failure=loud)
    lines = bench.machine.explain(1)
    assert lines[:3] == [
        "task 1 failed: exit code 3",
        "it was tried 2 times, 1 retry was allowed",
        "the last lines of its stderr:",
    ]
    assert lines[3:] == [f"  line {n}" for n in range(10, 20)]


def test_it_was_not_run() -> None:
    bench = Bench()
    bench.submit(task(1), array(2, 3, 1))
    bench.fail(1)
    assert why(bench, 2, 2) == "task 2.2 was skipped: task 1 did not succeed: exit code 1"


def test_it_was_not_run_because_of_some_elements_of_a_sweep() -> None:
    bench = Bench(200)
    bench.submit(array(1, 200), task(2, on_array(1)), task(3, on(2)))
    for index in (7, 90, 150):
        called = Failure(Cause.EXIT, "exit code 3", exit_code=3, parameters=f"n={index}")
        bench.fail(1, index, failure=called)
    said = [f"  task 1.{index} with n={index}: exit code 3" for index in (7, 90, 150)]
    first = "was skipped: 3 tasks that it comes after did not succeed:"
    assert bench.machine.explain(2) == [f"task 2 {first}", *said]
    assert bench.machine.explain(3) == [f"task 3 {first}", *said]


def test_a_failed_function_has_parameters_and_a_traceback() -> None:
    bench = Bench()
    bench.submit(task(1))
    trace = "Traceback:\n  File x\nValueError: bad"
    bench.fail(1, failure=Failure(Cause.EXCEPTION, "ValueError: bad", traceback=trace, parameters="n=3"))
    assert bench.machine.explain(1) == [
        "task 1 failed: ValueError: bad",
        "its parameters: n=3",
        "its traceback:",
        "  Traceback:",
        "    File x",
        "  ValueError: bad",
    ]


def test_it_was_cancelled() -> None:
    bench = Bench()
    bench.submit(task(1))
    bench.tell(Cancel(on(1)))
    assert why(bench, 1) == "task 1 was cancelled"


def test_it_was_given_to_an_executor() -> None:
    bench = Bench()
    bench.submit(task(1))
    assert why(bench, 1) == "task 1 was given to host1, attempt 1, and is starting, or too short to be reported"


def test_it_runs() -> None:
    bench = Bench()
    bench.submit(task(1))
    bench.start(1)
    assert why(bench, 1) == "task 1 is running on host1, attempt 1"


def test_it_waits_on_an_executor_behind_others() -> None:
    bench = Bench(1)
    bench.submit(task(1, template="x"))
    bench.end(1, seconds=0.001)
    bench.submit(task(2, template="x"), task(3, template="x"))
    assert why(bench, 3) == "task 3 waits on host1 behind 1 other"


def test_it_is_held() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2), array(3, 3), group(1, "g"), group(2, "sub", 1), task(4, group=2))
    bench.tell(Hold(on(2)), Hold(on(3, 1)), Hold(on_group(1)))
    assert why(bench, 2) == "task 2 is held: a user held it; release it with: bough release 2"
    assert why(bench, 3, 1) == "task 3.1 is held: a user held 3.1; release it with: bough release 3.1"
    assert why(bench, 4).startswith("task 4 is held: its group g is held;")
    bench.tell(Hold(on_group(2), disabled=True))
    assert why(bench, 4) == "task 4 is held: its group g/sub is disabled; let it start with: bough enable g/sub"
    bench.tell(Hold(on_array(3)))
    assert "a user held its array" in why(bench, 3, 2)
    bench.tell(Hold(on_group(0)))
    assert "the whole workflow is held" in why(bench, 2)


def test_it_waits_and_is_held_after_that() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, 1), array(3, 3, 1))
    bench.tell(Hold(on(2)), Hold(on(3, 1)))
    held = "after that it stays held: a user held {}; release it with: bough release {}"
    assert bench.machine.explain(2)[1:] == [held.format("it", 2)]
    assert bench.machine.explain(3, 1)[1:] == [held.format("3.1", "3.1")]
    assert why(bench, 3, 2).startswith("task 3.2 waits for task 1")
    for target, count in ((on(2), 1), (on_array(3), 1), (on(3, 2), 0), (on(1), 0)):
        assert Queries(bench.machine).preview(Release(target)).count == count
    bench.tell(Release(on(2)), Release(on_array(3)), Hold(on_group(0)))
    assert Queries(bench.machine).preview(Release(on_group(0))).count == 4
    assert Queries(bench.machine).preview(Release(on(2))).count == 0  # its group keeps it held


def test_there_is_no_executor() -> None:
    bench = Bench(0)
    bench.submit(task(1))
    assert why(bench, 1) == "task 1 is ready, but there is no executor"


def test_no_executor_has_that_much() -> None:
    bench = Bench(2, memory=10**9)
    bench.submit(task(1, needs=needs(4)), task(2, needs=needs(1, memory=4 * 10**9)), task(3, needs=needs(1, gpus=1)))
    assert why(bench, 1) == "task 1 needs 4 cores, and no executor has that much: cores 4 (the most there is: 2)"
    assert why(bench, 2).endswith("no executor has that much: memory 4.0 GB (the most there is: 1.0 GB)")
    assert why(bench, 3).endswith("gpus 1 (the most there is: 0)")


def test_no_executor_has_its_python() -> None:
    bench = Bench(2, python="3.11")
    bench.submit(task(1, name="f", needs=needs(1, python="3.12")), task(2, needs=needs(4, python="3.11")))
    assert why(bench, 1) == (
        "task 1 (f) is a function submitted from Python 3.12, and no executor with Python 3.12 is there"
        " (those that are there have 3.11); start one with that Python: bough executor start"
    )
    assert why(bench, 2).startswith("task 2 needs 4 cores, Python 3.11, and no executor has that much: cores 4")


def test_free_executors_of_another_python_are_named() -> None:
    bench = Bench(1, python="3.11")
    bench.tell(executor(2, 4, python="3.12"))
    bench.submit(task(1, needs=needs(1, python="3.11")), task(2, needs=needs(1, python="3.11")), task(3))
    assert bench.machine.explain(2) == [
        "task 2 is ready and waits for 1 core, Python 3.11 to become free; the executor is busy",
        "1 other executor has Python 3.12, where a function submitted from Python 3.11 cannot run",
    ]
    assert "was given to host2" in why(bench, 3)


def test_it_is_not_all_in_one_place() -> None:
    bench = Bench(4)
    bench.tell(executor(2, 1, gpus=1))
    bench.submit(task(1, needs=needs(2, gpus=1)))
    assert why(bench, 1).endswith("no executor has that much: not all of it in one place")


def test_every_executor_is_leaving() -> None:
    bench = Bench(1)
    bench.tell(ExecutorDrained(ExecutorId(1)))
    bench.submit(task(1))
    assert why(bench, 1) == "task 1 is ready, but every executor that could take it is leaving"


def test_everything_is_busy() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2))
    assert why(bench, 2) == "task 2 is ready and waits for 1 core to become free; the executor is busy"
    bench.tell(executor(2, 1))
    bench.submit(task(3), task(4))
    assert why(bench, 4).endswith("1 core to become free; all 2 executors that could run it are busy")


def test_the_session_is_closing() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2))
    bench.tell(Stopping())
    assert why(bench, 2) == "task 2 is ready, but the session is closing and starts nothing new"


def test_it_is_being_looked_up() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=b"k" * 16))
    assert why(bench, 1) == "task 1 is being looked up among finished tasks of earlier runs"


def test_it_is_tried_again_later() -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=1, backoff=10)))
    bench.fail(1)
    bench.wait(4)
    assert why(bench, 1) == "task 1 failed and will be retried in 6.0 s"


def test_it_waits_for_others() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, name="b"), array(3, 4), group(1, "g"), task(4, group=1))
    bench.submit(task(5, 1, 2, on_array(3), on_element(3, 1), on_group(1)))
    assert why(bench, 5) == (
        "task 5 waits for task 1 (ready), task 2 (b) (ready), array 3 (4 of 4 not done), task 3.1 (ready), "
        "group g (1 unfinished)"
    )
    bench.end(1)
    assert "task 1 " not in why(bench, 5)


def test_it_waits_for_many_others() -> None:
    bench = Bench(1)
    bench.submit(*(task(id_) for id_ in range(1, 9)), task(9, *range(1, 9)))
    assert why(bench, 9).endswith("task 5 (ready) and 3 more")


def test_an_element_waits_for_things_of_its_own() -> None:
    bench = Bench(1)
    bench.submit(task(1), array(2, 3, element_after=((1, (on(1),)),)))
    assert why(bench, 2, 1) == "task 2.1 waits for task 1 (ready)"


def test_its_group_waits_for_others() -> None:
    bench = Bench(1)
    bench.submit(task(1), group(1, "g", 0, on(1)), group(2, "sub", 1), task(2, group=2))
    assert why(bench, 2) == "its group g waits for task 1 (ready)"
