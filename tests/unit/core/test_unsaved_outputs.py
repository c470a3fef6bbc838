"""Outputs that are safe later than their tasks have succeeded: what waits for that, and what is lost before."""

from __future__ import annotations

from core_bench import Bench, on

from bough.model.events import facts, news
from bough.model.ids import ExecutorId, RecordId
from bough.model.outcomes import Detail, Output
from bough.testing.builders import array, executor, group, limits, on_group, task

LATER = limits(keep="later")


def end(bench: Bench, record: int, index: int = 0, stop: int | None = None, *, later: bool = True) -> None:
    """Elements succeed, and their executor holds what they made."""
    stop = index + 1 if stop is None else stop
    made = Output("o", "/d/o", 3, 7, b"d" * 32, later=later)
    details = tuple(Detail(one, outputs=(made,)) for one in range(index, stop))
    bench.tell(news.WorkSucceeded(bench.span(record, index), index, stop, 1.0, None, details))


def write(bench: Bench, *elements: tuple[int, int, int], holder: int = 1) -> list[facts.Fact]:
    """An executor has written back what these records, elements and attempts made."""
    told = tuple((RecordId(record), index, attempt) for record, index, attempt in elements)
    return bench.tell(news.OutputsWritten(ExecutorId(holder), told)).facts


def test_what_depends_on_a_task_may_run_before_its_outputs_are_safe_and_its_group_is_not_over() -> None:
    bench = Bench(4)
    bench.submit(
        group(2, "g"),
        group(3, "after", 0, on_group(2)),
        task(1, limits=LATER, group=2),
        task(2, 1, group=2),
        task(3, group=3),
    )
    bench.tell(news.GroupClosed(2))
    end(bench, 1)
    assert bench.states(1, 2, 3) == ["done", "placed", "waiting"]
    assert "its outputs are on their way: host1 holds them" in bench.machine.explain(1)[-1]
    bench.end(2)
    assert bench.state(3) == "waiting"
    assert not bench.finished
    bench.restart()
    assert write(bench, (1, 0, 1))[0] == facts.OutputsSafe(RecordId(1), 0, 1)
    assert bench.finished == [(2, False)]
    assert bench.state(3) == "placed"
    assert write(bench, (1, 0, 1)) == []  # it is safe already


def test_what_is_written_back_is_said_by_spans() -> None:
    bench = Bench(8)
    bench.submit(array(1, 6, limits=LATER))
    for index in range(6):
        end(bench, 1, index)
    written = write(bench, *((1, index, 1) for index in (5, 0, 1, 2)))
    assert written == [facts.OutputsSafe(RecordId(1), 0, 3), facts.OutputsSafe(RecordId(1), 5, 6)]
    assert sorted(bench.machine.state.unsaved.by_record[1]) == [3, 4]


def test_another_executor_or_attempt_makes_nothing_safe() -> None:
    bench = Bench(4)
    bench.submit(task(1, limits=LATER))
    end(bench, 1)
    assert write(bench, (1, 0, 1), holder=2) == []
    assert write(bench, (1, 0, 2)) == []
    assert write(bench, (9, 0, 1), (1, 7, 1)) == []
    assert bench.machine.state.unsaved.has(1, 0)


def test_what_an_executor_held_when_it_was_lost_is_made_again_and_its_reader_is_left_alone() -> None:
    bench = Bench(2)
    bench.submit(task(1, limits=LATER), array(2, 2, limits=LATER), task(3, 1))
    end(bench, 1)
    end(bench, 2, 0)
    bench.tell(executor(2, 2))
    bench.start(3)
    told = bench.tell(facts.ExecutorLost(ExecutorId(1), "it was killed"))
    again = [(fact.record, fact.index) for fact in told.facts if isinstance(fact, facts.MadeAgain)]
    assert again == [(1, 0), (2, 0)]
    assert all(fact.made for fact in told.facts if isinstance(fact, facts.MadeAgain))
    assert "its outputs were not written back yet" in bench.machine.explain(1)[-1]
    assert not bench.machine.state.unsaved
    bench.end_all()
    assert bench.states(1, 3) == ["done", "done"]
    assert bench.states(2) == ["done", "done"]


def test_what_is_made_again_as_it_was_keeps_its_identity() -> None:
    bench = Bench(2)
    bench.submit(task(1, limits=LATER))
    end(bench, 1)
    bench.tell(facts.ExecutorLost(ExecutorId(1), "it was killed"), executor(2, 2))
    end(bench, 1, later=False)
    success = bench.record(1).success_of(0)
    assert success is not None
    assert success.attempt == 1


def test_outputs_that_cannot_be_written_are_made_again_however_often_they_were() -> None:
    bench = Bench(2)
    bench.submit(task(1, limits=LATER))
    for attempt in range(1, 14):
        end(bench, 1)
        told = bench.tell(news.OutputLost(RecordId(1), 0, "its outputs cannot be written back: no such folder")).facts
        assert isinstance(told[0], facts.MadeAgain), attempt
    assert not bench.machine.state.unsaved


def test_a_reset_forgets_what_was_on_its_way() -> None:
    bench = Bench(2)
    bench.submit(task(1, limits=LATER))
    end(bench, 1)
    bench.tell(news.Reset(on(1)))
    assert not bench.machine.state.unsaved
    assert write(bench, (1, 0, 1)) == []
    end(bench, 1)
    assert write(bench, (1, 0, 2)) == [facts.OutputsSafe(RecordId(1), 0, 1)]


def test_only_tasks_that_say_so_may_be_safe_later() -> None:
    bench = Bench(2)
    bench.submit(task(1), task(2, limits=LATER))
    end(bench, 1)
    end(bench, 2, later=False)
    assert not bench.machine.state.unsaved
