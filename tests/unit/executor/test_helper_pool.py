"""Helper processes of an executor: real ones, which answer, hang, die and are asked too much."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bough.executor.host.descriptors import Descriptors
from bough.executor.probes import helper_pool
from bough.executor.probes.file_answers import ProbePlace
from bough.executor.probes.helper_pool import MOST_WAITING, HelperPool, ProbeWork
from bough.wire.executor_messages import ProbeAnswer
from bough.wire.probes import CommandRan, Exists, FileData, FileThere, ReadPart, RunCommand

PATIENCE = 60.0


class Desk:
    """An executor's loop around a pool."""

    def __init__(self, most: int = 2) -> None:
        self.descriptors = Descriptors()
        self.pool = HelperPool(self.descriptors, most)
        self.answers: list[ProbeAnswer] = []

    def ask(self, question: Exists | ReadPart | RunCommand, pid: int = 0) -> None:
        self.pool.ask(ProbeWork(question, ProbePlace(pid or os.getpid(), 1, 0, 1, {})), self.answers.append)

    def until(self, count: int) -> list[ProbeAnswer]:
        end = time.monotonic() + PATIENCE
        while len(self.answers) < count:
            assert time.monotonic() < end, self.answers
            self.descriptors.wait(0.05)
            self.pool.tick(time.monotonic())
        return self.answers

    @property
    def pids(self) -> list[int]:
        return [helper.pid for helper in self.pool._helpers]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    made = Desk()
    yield made
    pids = made.pids
    made.pool.close()
    for pid in pids:
        os.waitpid(pid, 0)


def test_a_helper_answers_one_question_after_the_other(desk: Desk) -> None:
    desk.ask(Exists("."))
    assert desk.until(1) == [ProbeAnswer(0, FileThere(True))]
    [pid] = desk.pids
    desk.ask(Exists("nothing"))
    desk.ask(ReadPart("nothing"))
    found = desk.until(3)
    assert found[1].result == FileThere(False) or found[2].result == FileThere(False)
    assert "MissingFile" in {found[1].kind, found[2].kind}
    assert pid in desk.pids
    assert len(desk.pids) <= 2
    assert not desk.pool.is_busy


def test_a_question_over_its_time_is_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_pool, "TIME", 0.3)
    Path("as").write_text("a" * 60)
    desk.ask(ReadPart("as", pattern="(a|aa)+$x"))
    [pid] = desk.pids
    [answer] = desk.until(1)
    assert "takes too long" in answer.error
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    desk.ask(Exists("as"))
    assert desk.until(2)[1].result == FileThere(True)


def test_a_helper_that_dies_fails_its_question_only(desk: Desk) -> None:
    desk.ask(RunCommand("sleep 50", 60.0))
    [pid] = desk.pids
    desk.ask(Exists("."))
    os.kill(pid, signal.SIGKILL)
    found = desk.until(2)
    os.waitpid(pid, 0)
    assert {answer.error for answer in found} == {"", "the helper process that looked for the answer died"}


def test_more_questions_than_helpers_wait_their_turn_up_to_a_bound(desk: Desk) -> None:
    for _ in range(MOST_WAITING + 3):
        desk.ask(Exists("."))
    refused = [answer for answer in desk.answers if answer.error]
    assert len(refused) == 1
    assert "wait already" in refused[0].error
    found = desk.until(MOST_WAITING + 3)
    assert sum(answer.result == FileThere(True) for answer in found) == MOST_WAITING + 2
    assert len(desk.pids) == 2


def test_nobody_hears_of_what_is_forgotten(desk: Desk) -> None:
    Path("begun").unlink(missing_ok=True)
    desk.ask(RunCommand("echo $$ > begun; sleep 50", 60.0))
    end = time.monotonic() + PATIENCE
    while not (Path("begun").exists() and Path("begun").read_text().endswith("\n")):
        assert time.monotonic() < end
        time.sleep(0.01)
    shell = int(Path("begun").read_text())
    [pid] = desk.pids
    desk.pool.forget()
    os.waitpid(pid, 0)
    assert desk.pids == []
    assert not desk.pool.is_busy
    while is_alive(shell):  # its command ends with it
        assert time.monotonic() < end
        time.sleep(0.01)
    assert desk.answers == []


def test_a_task_that_is_gone_has_ended(desk: Desk) -> None:
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    desk.ask(RunCommand("true"), pid=gone)
    [answer] = desk.until(1)
    assert answer.result is None
    assert answer.error


def test_commands_write_and_end_as_they_like(desk: Desk) -> None:
    desk.ask(RunCommand("printf out; printf err >&2; exit 7"))
    assert desk.until(1)[0].result == CommandRan(7, b"out", b"err")
    desk.ask(RunCommand("exec 1>&- 2>&-; sleep 0.1; exit 3"))  # streams that are closed early
    assert desk.until(2)[1].result == CommandRan(3)


def test_an_answer_of_16_mib_arrives_whole(desk: Desk) -> None:
    Path("big").write_bytes(b"x" * (16 << 20))
    desk.ask(ReadPart("big"))
    result = desk.until(1)[0].result
    assert isinstance(result, FileData)
    assert (len(result.data), result.more) == (16 << 20, False)
