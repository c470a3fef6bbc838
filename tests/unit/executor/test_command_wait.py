from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from bough.executor.worker.commands.command_wait import CommandWait
from bough.executor.worker.serialisation import Blobs
from bough.executor.worker.worker_channel import WorkerInbox, WorkerReports
from bough.executor.worker_protocol import WorkerQuit, WorkerStop, WorkerVerdict, new_cells
from bough.model.events.news import WorkFailed
from bough.model.ids import SpanId
from bough.model.outcomes import Cause, Failure
from bough.wire.framing import frame

NUMBER = 7
TOO_LONG = Failure(Cause.TIMEOUT, "ran longer than 0.05 s")


class Desk:
    """A wait, and the executor's end of its socket."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        board, _ = new_cells()
        self.inbox = WorkerInbox(self.ours, -1, Blobs({}), board)
        self.speaker = WorkerReports(self.ours, "", board)
        self.waiting = CommandWait(self.inbox, self.speaker)

    def wait(self, command: str) -> tuple[int, int]:
        """Wait for a shell command: its pid and its status."""
        pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", command], os.environ, setpgroup=0)
        self.waiting.wait(pid, NUMBER, 0)
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
    while not desk.inbox.stopped_by(NUMBER, 1):
        assert time.monotonic() < end
        desk.wait("sleep 0.002")


@pytest.mark.parametrize("message", [WorkerStop(NUMBER, 0, 1, 0.0), WorkerQuit(0.0)])
def test_a_command_that_is_stopped_is_ended(desk: Desk, message: object) -> None:
    desk.theirs.sendall(frame(message))
    _, status = desk.wait("sleep 600")
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert desk.waiting.end is not None
    assert desk.waiting.end.verdict is None


def test_a_command_is_ended_with_the_verdict_of_its_executor(desk: Desk) -> None:
    desk.theirs.sendall(frame(WorkerVerdict(NUMBER, 0, TOO_LONG, 5.0)))
    _, status = desk.wait("sleep 600")
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert desk.waiting.end is not None
    assert desk.waiting.end.verdict == TOO_LONG


def test_a_command_that_does_not_mind_the_verdict_is_killed_after_the_grace(desk: Desk) -> None:
    desk.theirs.sendall(frame(WorkerVerdict(NUMBER, 0, TOO_LONG, 0.1)))
    _, status = desk.wait("trap '' TERM; while :; do sleep 0.05; done")
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert desk.waiting.end is not None
    assert desk.waiting.end.verdict == TOO_LONG


def test_a_verdict_on_a_command_that_has_ended_concerns_no_other_and_stops_nothing(desk: Desk) -> None:
    desk.theirs.sendall(frame(WorkerVerdict(NUMBER, 5, TOO_LONG, 0.0)))
    _, status = desk.wait("sleep 0.1")
    assert os.waitstatus_to_exitcode(status) == 0
    assert desk.waiting.end is None
    assert desk.inbox.verdict_on(NUMBER, 5) is not None
    assert desk.inbox.stopped_by(NUMBER, 5) is None  # its outputs are still stored


def test_a_command_that_is_stopped_is_not_given_a_verdict(desk: Desk) -> None:
    orders = [WorkerVerdict(NUMBER, 0, TOO_LONG, 5.0), WorkerStop(NUMBER, 0, 1, 5.0)]
    desk.theirs.sendall(b"".join(map(frame, orders)))
    desk.wait("sleep 600")
    assert desk.waiting.end is not None
    assert desk.waiting.end.verdict is None


def test_news_are_told_while_a_command_runs_on(desk: Desk) -> None:
    desk.speaker.say(WorkFailed(SpanId(1), 0, Failure(Cause.EXIT)))
    pid = os.fork()
    if pid == 0:  # when the news have come, the command is stopped
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
        waited.append(desk.waiting.max_wait)
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
