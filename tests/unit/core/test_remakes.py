"""Tasks that run again because what they had made was lost, and files that have had their last reader."""

from __future__ import annotations

import pytest
from core_bench import Bench

from bough.core.data.remakes import MOST_REMAKES
from bough.model.arrays.element_reads import pack_reads
from bough.model.events import facts, news
from bough.model.events.orders import DropFile
from bough.model.ids import MemoKey, RecordId
from bough.model.memo_keys import digest_of_made, full_key, success_mark
from bough.model.outcomes import Cause, Detail, Failure, Output, ResultFile
from bough.testing.builders import array, executor, group, limits, on_array, on_element, on_group, task

LOST = Failure(Cause.INPUT_LOST, "its input cannot be brought: /d/a: all copies of it are lost")
FULL = Failure(Cause.NO_SPACE, "the disk is full")


def lose(bench: Bench, record: int, index: int = 0) -> list[facts.Fact]:
    return bench.tell(news.OutputLost(RecordId(record), index, "its output /d/a was lost with host h")).facts


def dropped(bench: Bench) -> list[str]:
    return [order.path for order in bench.orders if isinstance(order, DropFile)]


def test_a_task_runs_again_its_reader_waits_and_nobody_else_is_disturbed() -> None:
    bench = Bench(4)
    bench.submit(task(1), task(2, 1), task(3, 1), task(4, 3))
    bench.end(1)
    bench.start(2)
    bench.start(3)
    assert isinstance(lose(bench, 1)[0], facts.MadeAgain)
    assert lose(bench, 1) == []  # it is under way
    bench.fail(2, failure=LOST)
    assert bench.states(1, 2, 3, 4) == ["placed", "waiting", "running", "waiting"]
    assert bench.attempt(1) == 2
    assert bench.machine.explain(1)[-1] == "it is made again: its output /d/a was lost with host h"
    assert "it waits for task 1, which is made again" in bench.machine.explain(2)[-1]
    bench.end(3)  # its input was there: it has what it needs
    assert bench.state(4) == "placed"
    bench.restart()
    bench.end(1)
    assert bench.state(2) == "placed"
    assert bench.record(2).failures_of(0) == (0, 0)
    assert bench.machine.explain(1)[-1] == "it was made again: its output /d/a was lost with host h"
    bench.end_all()
    assert bench.states(1, 2, 3, 4) == ["done"] * 4


def test_a_reader_waits_until_none_of_its_makers_runs_again() -> None:
    bench = Bench(4)
    bench.submit(array(1, 3), task(2, on_array(1)))
    for index in range(3):
        bench.end(1, index)
    for index in (0, 2):
        lose(bench, 1, index)
    bench.fail(2, failure=LOST)
    bench.end(1, 0)
    assert bench.state(2) == "waiting"
    bench.end(1, 2)
    assert bench.state(2) == "placed"


def test_what_made_the_input_of_a_lost_file_runs_again_too() -> None:
    bench = Bench()
    bench.submit(task(1), task(2, 1), task(3, 2))
    bench.end(1)
    bench.end(2)
    lose(bench, 2)
    bench.fail(3, failure=LOST)
    lose(bench, 1)
    bench.fail(2, failure=LOST)
    assert bench.states(1, 2, 3) == ["placed", "waiting", "waiting"]
    bench.end_all()
    assert bench.states(1, 2, 3) == ["done"] * 3


def made(digest: bytes, index: int = 0, results: bytes | None = None) -> tuple[tuple[Detail, ...], bytes]:
    """What a task made, as its executor reports it, and the digest of all of it."""
    outputs = (Output("o", "/d/a", 3, 7, digest * 32, kept=False),)
    return (Detail(index, outputs=outputs),), digest_of_made(outputs, results)


def succeed(bench: Bench, record: int, digest: bytes, index: int = 0) -> facts.SpanEnded:
    details, _ = made(digest, index)
    turn = bench.tell(news.WorkSucceeded(bench.span(record, index), index, index + 1, 1.0, None, details))
    return next(fact for fact in turn.facts if isinstance(fact, facts.SpanEnded))


@pytest.mark.parametrize("is_array", [False, True])
def test_what_is_made_again_and_is_the_same_keeps_its_identity(is_array: bool) -> None:
    known = success_mark(1, 0, 1)
    keys = {number: MemoKey(bytes([number]) * 16) for number in (2, 3, 4, 5)}
    maker = array(1, 2) if is_array else task(1)
    readers = [task(number, on_element(1, 0) if is_array else 1, key=key) for number, key in keys.items()]
    bench = Bench(8)
    bench.submit(maker, *readers)
    succeed(bench, 1, b"a")
    assert succeed(bench, 2, b"x").key == full_key(keys[2], 0, [known])
    for attempt, content in enumerate((b"a", b"a", b"b"), 2):
        bench.tell(news.OutputLost(RecordId(1), 0, "it was lost", made(b"a")[1]))
        reader = attempt + 1  # it had its input before that was lost
        assert succeed(bench, reader, b"x").key == full_key(keys[reader], 0, [known])
        bench.restart()
        fact = succeed(bench, 1, content)
        assert (fact.attempt, fact.same_as) == (attempt, 1 if content == b"a" else 0)
    success = bench.record(1).success_of(0)
    assert success is not None
    assert success.attempt == 4  # what is not the same is something new


def test_what_was_made_again_counts_as_the_same_only_if_all_of_it_is_known() -> None:
    same = [Output("o", "/d/a", 3, 7, b"a" * 32), Output("p", "/d/b", 3, 7, b"b" * 32)]
    assert digest_of_made(same, None) == digest_of_made(same[::-1], None) != b""
    assert digest_of_made(same, None) != digest_of_made(same[:1], None)
    assert digest_of_made(same, b"1") != digest_of_made(same, b"2")
    assert digest_of_made([*same, Output("q", "/d/c", 3, 7)], None) == b""
    assert digest_of_made(same, ResultFile("/d/r", 9)) == digest_of_made([], b"1") == b""


def test_a_group_that_was_over_is_open_again_and_its_dependents_stay_as_they_are() -> None:
    bench = Bench(4)
    bench.submit(group(1, "made"), task(1, group=1), task(2, on_group(1)), task(3, 1))
    bench.tell(news.GroupClosed(1))
    bench.end(1)
    bench.start(2)
    lose(bench, 1)
    bench.fail(3, failure=LOST)
    assert not bench.machine.state.groups[1].finished
    assert bench.state(2) == "running"
    bench.end_all()
    assert bench.machine.state.groups[1].finished
    assert bench.states(1, 2, 3) == ["done"] * 3


def test_a_task_that_fails_when_it_is_made_again_takes_its_reader_with_it() -> None:
    bench = Bench()
    bench.submit(task(1), task(2, 1))
    bench.end(1)
    lose(bench, 1)
    bench.fail(2, failure=LOST)
    bench.fail(1)
    assert bench.states(1, 2) == ["failed", "skipped"]


def test_nothing_goes_on_for_ever() -> None:
    bench = Bench()
    bench.submit(array(1, 2), task(2, on_element(1, 1)))
    bench.end(1, 0)
    bench.end(1, 1)
    for _ in range(MOST_REMAKES):
        assert lose(bench, 1, 1)
        bench.fail(2, failure=LOST)
        bench.end(1, 1)
    assert lose(bench, 1, 1) == []
    while bench.state(2) == "placed":
        bench.fail(2, failure=LOST)
    assert bench.state(2) == "failed"
    assert "it was in vain 5 times" in bench.failure(2).message


def test_what_is_not_done_or_not_there_is_not_made_again() -> None:
    bench = Bench()
    bench.submit(task(1))
    assert lose(bench, 1) == lose(bench, 99) == lose(bench, 1, 5) == []


def test_a_full_disk_costs_no_retry_and_the_executor_gets_a_rest() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    turn = bench.fail(1, failure=FULL)
    assert [type(fact).__name__ for fact in turn.facts][:2] == ["ElementFailed", "ExecutorSuspended"]
    assert bench.state(1) == "waiting"
    assert bench.record(1).failures_of(0) == (0, 0)
    assert "for want of space" in bench.machine.explain(1)[-1]
    bench.restart()
    bench.wait(3)
    assert bench.state(1) == "placed"
    bench.end(1)
    assert bench.state(1) == "done"


def test_a_task_that_needs_more_space_than_there_is_keeps_no_other_from_running() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2), task(3))
    for _ in range(20):
        if bench.state(1) == "placed":
            bench.fail(1, failure=FULL)
        for other in (2, 3):
            if bench.state(other) == "placed":
                bench.end(other)
        bench.wait(2)
    assert bench.states(2, 3) == ["done", "done"]
    assert bench.record(1).failures_of(0) == (0, 0)


def test_a_task_for_which_there_was_no_space_goes_to_another_executor_at_once() -> None:
    bench = Bench(1)
    bench.tell(executor(2, 1))
    bench.submit(task(1))
    (first,) = bench.machine.state.spans.values()
    bench.fail(1, failure=FULL)
    (second,) = bench.machine.state.spans.values()
    assert bench.state(1) == "placed"
    assert second.executor is not first.executor


def test_a_file_goes_when_its_last_reader_has_succeeded() -> None:
    bench = Bench(4)
    temporary = limits(keep=False)
    reads = pack_reads([["/d/a"], ["/d/a", "/d/in"]])
    bench.submit(task(1, writes=("/d/a",), limits=temporary), task(2, 1, reads=("/d/a",)), array(3, 2, 1, reads=reads))
    bench.end(1)
    bench.end(2)
    bench.end(3, 0)
    assert dropped(bench) == []
    bench.fail(3, 1)  # a user may try it again
    assert dropped(bench) == []
    bench.tell(news.Retry(on_element(3, 1)))
    bench.restart()
    bench.orders.clear()
    bench.end(3, 1)
    assert sorted(dropped(bench)) == ["/d/a", "/d/in"]


def test_without_temporary_files_nothing_is_ordered() -> None:
    bench = Bench()
    bench.submit(task(1, writes=("/d/a",)), task(2, 1, reads=("/d/a",)))
    bench.end_all()
    assert dropped(bench) == []
