"""When an executor leaves: idle time counts from when it could have been given something, and tasks bear no blame."""

from __future__ import annotations

import signal
import socket
import time
from types import SimpleNamespace
from typing import cast

from bough.executor.executor_options import ExecutorLifetime
from bough.executor.loop import Departure, Executor
from bough.executor.slots.slots import Slots
from bough.model.events.news import WorkFailed
from bough.model.ids import SpanId
from bough.model.outcomes import Cause, Failure

IDLE = cast("Slots", SimpleNamespace(idle=True))


def test_the_time_before_the_server_answers_is_no_idle_time() -> None:
    departure = Departure(ExecutorLifetime(idle=5.0))
    begun = time.monotonic()
    assert departure.due(IDLE, begun + 6.0) == "it had nothing to do for 5 s"
    departure._idle_since -= 100.0  # it took so long until a server was there
    departure.welcomed()
    assert departure.due(IDLE, time.monotonic() + 4.0) == ""
    assert departure.due(IDLE, time.monotonic() + 6.0) != ""


def test_a_task_is_not_to_blame_when_its_whole_job_was_told_to_end() -> None:
    executor = Executor.__new__(Executor)
    executor._leaving = False
    executor._signals, wake = socket.socketpair()
    with executor._signals, wake:
        ended = WorkFailed(SpanId(1), 0, Failure(Cause.SIGNAL, "killed", signal=signal.SIGTERM))
        by_shell = WorkFailed(SpanId(1), 0, Failure(Cause.EXIT, "143", exit_code=143))
        own = WorkFailed(SpanId(1), 0, Failure(Cause.EXIT, "1", exit_code=1))
        assert executor._excuse(ended) is ended  # somebody else has signalled the task alone
        wake.send(bytes([signal.SIGTERM]))
        for news in (ended, by_shell):
            excused = executor._excuse(news)
            assert isinstance(excused, WorkFailed)
            assert excused.failure.cause is Cause.GIVEN_BACK
        assert executor._excuse(own) is own
