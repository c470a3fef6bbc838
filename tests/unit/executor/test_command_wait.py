from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bough.executor.worker.command_wait import CommandWait
from bough.executor.worker.serialisation import Blobs
from bough.executor.worker.worker_channel import WorkerInbox, WorkerReports
from bough.executor.worker_protocol import WorkerQuit, WorkerStop, new_cells
from bough.model.events.news import WorkFailed
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Kind, Limits
from bough.wire.executor_messages import RunSpan
from bough.wire.framing import frame

NUMBER = 7


class Desk:
    """A waiting and whoever talks to it."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        board = new_cells()
        self.inbox = WorkerInbox(self.ours, -1, Blobs({}), board)
        self.speaker = WorkerReports(self.ours, "", board)
        self.waiting = CommandWait(self.inbox, self.speaker)

    def wait(self, command: str, **limits: Any) -> tuple[int, int]:
        """Wait for a shell command: its pid and its status."""
        run = RunSpan(SpanId(1), RecordId(1), 0, 1, 1, Kind.COMMAND, BlobId(b""), False, limits=Limits(**limits))
        pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", command], os.environ, setpgroup=0)
        self.waiting.wait(pid, NUMBER, run, 0)
        return pid, os.waitpid(pid, 0)[1]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    before = signal.getsignal(signal.SIGALRM)
    yield made
    made.waiting.leave()
    assert signal.getsignal(signal.SIGALRM) == before
    made.ours.close()
    made.theirs.close()


def test_short_commands_and_longer_ones_are_waited_for(desk: Desk) -> None:
    assert [os.waitstatus_to_exitcode(desk.wait(command)[1]) for command in ("exit 3", "sleep 0.1; exit 4")] == [3, 4]
    assert desk.waiting.end is None


def test_what_is_said_is_heard_while_short_commands_run(desk: Desk) -> None:
    desk.wait("exit 0")
    desk.theirs.sendall(frame(WorkerStop(NUMBER, 1, 2, 0)))
    end = time.monotonic() + 30
    while not desk.inbox.halted(NUMBER, 1):
        assert time.monotonic() < end
        desk.wait("sleep 0.002")


@pytest.mark.parametrize("message", [WorkerStop(NUMBER, 0, 1, 0.0), WorkerQuit(0.0)])
def test_a_command_that_nobody_wants_is_ended(desk: Desk, message: object) -> None:
    desk.theirs.sendall(frame(message))
    _, status = desk.wait("sleep 600")
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert desk.waiting.end is not None
    assert desk.waiting.end[0] is None


def test_a_command_over_its_time_is_ended(desk: Desk) -> None:
    _, status = desk.wait("sleep 600", timeout=0.05)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert desk.waiting.end is not None
    assert desk.waiting.end[0] == Failure(Cause.TIMEOUT, "ran longer than 0.05 s")


def test_news_are_told_while_a_command_runs_on(desk: Desk) -> None:
    desk.speaker.say(WorkFailed(SpanId(1), 0, Failure(Cause.EXIT)))
    pid = os.fork()
    if pid == 0:  # whoever hears the news lets the command go
        desk.theirs.recv(1 << 16)
        desk.theirs.sendall(frame(WorkerStop(NUMBER, 0, 1, 0.0)))
        os._exit(0)
    desk.wait("sleep 600")
    os.waitpid(pid, 0)
    assert desk.waiting.end is not None


def test_news_wait_for_a_few_more_commands_like_the_last_but_not_for_long(desk: Desk) -> None:
    waited = []
    for seconds in (0.0005, 0.005, 0.008, 600.0):
        desk.waiting.lasted(seconds)
        waited.append(desk.waiting.patience)
    assert waited == pytest.approx([0.01, 0.025, 0.04, 0.05])


def test_the_alarm_is_given_back_to_functions() -> None:
    script = (
        "import signal, sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_command_wait import Desk\n"
        "heard = []\n"
        "signal.signal(signal.SIGALRM, lambda *_: heard.append(1))\n"
        "desk = Desk()\n"
        "desk.wait('exit 0')\n"
        "desk.waiting.leave()\n"
        "assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)\n"
        "signal.raise_signal(signal.SIGALRM)\n"
        "assert heard == [1]\n"
    )
    subprocess.run([sys.executable, "-c", script, os.path.dirname(__file__)], check=True, timeout=60)
