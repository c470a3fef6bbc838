from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from bough.executor.worker import worker_channel
from bough.executor.worker.worker_channel import SpanProgress, WorkerReports
from bough.executor.worker_protocol import FromWorker, WorkerDone, from_worker_frames, new_cells
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.outcomes import Cause, Detail, Failure

ONE, OTHER = SpanId(1), SpanId(2)


class Line:
    """A speaker and whoever hears it."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.speaker = WorkerReports(self.ours, "", new_cells()[0])
        self._frames = from_worker_frames()

    def heard(self) -> list[FromWorker]:
        self.speaker.flush()
        return self._frames.feed(self.theirs.recv(1 << 16))


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.ours.close()
    made.theirs.close()


def detail(index: int, seconds: float = 1.0) -> Detail:
    return Detail(index, started=10.0, ended=10.0 + seconds)


def test_commands_that_end_one_after_the_other_are_told_as_one(line: Line) -> None:
    line.speaker.begin_commands(ONE)
    details = (detail(4, 1.0), detail(5, 2.0), detail(6, 3.0))
    line.speaker.ends += details
    line.speaker.say(WorkerDone(1))
    assert line.heard() == [WorkSucceeded(ONE, 4, 7, 6.0, None, details), WorkerDone(1)]


def test_a_command_that_was_not_run_parts_its_neighbours(line: Line) -> None:
    line.speaker.begin_commands(ONE)
    line.speaker.ends += [detail(0), detail(2), detail(3)]
    found = line.heard()
    assert [(n.start, n.stop) for n in found if isinstance(n, WorkSucceeded)] == [(0, 1), (2, 4)]


def test_a_failure_is_told_between_its_neighbours(line: Line) -> None:
    line.speaker.begin_commands(ONE)
    line.speaker.ends.append(detail(0))
    failed = WorkFailed(ONE, 1, Failure(Cause.EXIT, "exit code 1", exit_code=1))
    line.speaker.say(failed)
    line.speaker.ends.append(detail(2))
    first, told, last = line.heard()
    assert isinstance(first, WorkSucceeded)
    assert isinstance(last, WorkSucceeded)
    assert (first.stop, told, last.start) == (1, failed, 2)


def test_ends_belong_to_the_span_in_which_they_came(line: Line) -> None:
    for span in (ONE, OTHER):
        line.speaker.begin_commands(span)
        line.speaker.ends.append(detail(0))
    assert [n.span for n in line.heard() if isinstance(n, WorkSucceeded)] == [ONE, OTHER]


def test_big_values_of_calls_too_short_to_be_seen_are_let_go_of_when_no_more_come(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_channel, "MAX_WAIT", 0.001)
    forgotten = threading.Semaphore(0)
    monkeypatch.setattr(worker_channel, "forget_recent", forgotten.release)
    for _ in range(3):
        line.speaker.begin(SpanProgress(ONE, 0, 1, "a"))
        line.speaker.end(WorkerDone(1))
        line.heard()
        assert forgotten.acquire(timeout=60)


def test_ends_that_were_not_told_wait_like_other_news(line: Line) -> None:
    line.speaker.begin_commands(ONE)
    assert not line.speaker.waiting
    line.speaker.ends.append(detail(0))
    assert line.speaker.waiting
    assert line.heard()
    assert not line.speaker.waiting
