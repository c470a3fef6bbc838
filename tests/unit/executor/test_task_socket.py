"""The socket on which tasks ask their executor."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator

import pytest

from bough.api.task_context import TaskContext as Asking
from bough.errors import PeerLost
from bough.executor.host.descriptors import Descriptors
from bough.executor.task_socket import VARIABLE, TaskSocket
from bough.testing.builders import here_question
from bough.wire.executor_messages import StopElements, TaskAnswer, TaskRequest
from bough.wire.here_questions import Report
from tests.second_user import NOBODY, needs_root

FOUND = (7, 3, 0, 1)  # span, record, index and attempt of the only task that runs here


class Desk:
    """An executor's loop around it, turned by hand."""

    def __init__(self) -> None:
        self.descriptors = Descriptors()
        self.said: list[TaskRequest] = []
        self.groups: list[int] = []
        self.reported: list[tuple[int, int, Report]] = []
        self.here = TaskSocket(self.descriptors, self.find, self.said.append, self.report)
        self.address = os.environ[VARIABLE]

    def find(self, task: tuple[int, int, int] | None, group: int) -> tuple[int, int, int, int] | None:
        self.groups.append(group)
        return FOUND if task in {None, (3, 0, 1)} else None

    def report(self, span: int, index: int, report: Report) -> str:
        self.reported.append((span, index, report))
        return "" if len(self.reported) < 3 else "it is enough"

    def turn(self) -> None:
        self.descriptors.wait(5.0)

    def call(self, data: bytes) -> socket.socket:
        """Somebody who has asked something."""
        caller = socket.socket(socket.AF_UNIX)
        caller.settimeout(5.0)
        caller.connect(self.address.replace("@", "\0"))
        self.turn()
        caller.sendall(data)
        self.turn()
        return caller


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in (VARIABLE, "BOUGH_TASK", "BOUGH_ATTEMPT"):
        monkeypatch.setenv(name, "of the task that started the executor")
    made = Desk()
    yield made
    made.here.close()
    made.descriptors.close()


def line(what: str, task: object = (3, 0, 1), **arguments: object) -> bytes:
    return json.dumps({"task": task, "question": {"what": what, **arguments}}).encode() + b"\n"


def answer(caller: socket.socket) -> dict[str, object]:
    with caller:
        return json.loads(caller.recv(1 << 16))


def test_numbers_that_a_task_reports_are_taken_here_and_answered_at_once(desk: Desk) -> None:
    for _ in range(2):
        assert answer(desk.call(line("report", values={"score": 1.5}, step=3))) == {"value": {}}
    assert desk.reported == 2 * [(7, 0, Report({"score": 1.5}, 3.0))]
    assert answer(desk.call(line("report", values={"a": 1}))) == {"error": "it is enough", "kind": "UserError"}
    for bad in ({}, {"a": "x"}, {"a": 1e999}, {"": 1}, {f"m{number}": 1 for number in range(65)}):
        assert "cannot be read" in str(answer(desk.call(line("report", values=bad)))["error"])
    assert len(desk.reported) == 3
    assert not desk.said


def test_what_a_task_asks_is_asked_at_the_server_and_answered(desk: Desk) -> None:
    caller = desk.call(line("status", text="hello"))
    assert desk.said == [TaskRequest(1, *FOUND, here_question("status", text="hello"))]
    assert desk.here.answer(TaskAnswer(1, {"a": 1}))
    assert answer(caller) == {"value": {"a": 1}}


def test_refusals_come_back_with_their_kind(desk: Desk) -> None:
    caller = desk.call(line("lock", name="a"))
    desk.here.answer(TaskAnswer(1, {}, "no", "UserError"))
    assert answer(caller) == {"error": "no", "kind": "UserError"}


def test_an_unnamed_process_is_looked_for_by_its_group(desk: Desk) -> None:
    desk.call(line("alive", task=None)).close()
    assert desk.groups == [os.getpgid(0)]


def test_a_task_that_is_not_here_is_refused(desk: Desk) -> None:
    said = answer(desk.call(line("alive", task=(9, 0, 1))))
    assert said["kind"] == "UserError"
    assert "task 9.0" in str(said["error"])
    assert desk.said == []


@pytest.mark.parametrize("data", [b"nonsense\n", b"[]\n", b'{"task": null}\n', line("x", arg=[1]), line("x", task=[1])])
def test_nonsense_is_answered_as_such(desk: Desk, data: bytes) -> None:
    assert answer(desk.call(data))["kind"] == "ProtocolError"


def test_who_says_too_much_is_cut_off(desk: Desk) -> None:
    caller = desk.call(b"x" * 70_000)
    desk.turn()
    with caller, contextlib.suppress(ConnectionResetError):  # not all that it said was even read
        assert caller.recv(10) == b""


def test_who_leaves_is_forgotten_and_leaves_no_lock(desk: Desk) -> None:
    desk.call(line("lock", name="a", wait=True)).close()
    desk.turn()
    assert [type(ask.question).__name__ for ask in desk.said] == ["Lock", "Forget"]
    desk.here.answer(TaskAnswer(1, {"taken": True, "new": True}))
    assert desk.said[-1].question == here_question("unlock", name="a")


def test_a_server_that_is_back_is_asked_again(desk: Desk) -> None:
    caller = desk.call(line("lock", name="a"))
    desk.here.resume()
    assert desk.said[0] == desk.said[1]
    desk.here.answer(TaskAnswer(1, {"taken": True}))
    desk.here.answer(TaskAnswer(1, {"taken": True}))  # to the first question
    assert answer(caller) == {"value": {"taken": True}}


def test_other_words_of_the_server_are_not_for_tasks(desk: Desk) -> None:
    assert not desk.here.answer(StopElements(1, 0, 1))


def test_the_task_that_started_the_executor_is_not_its_tasks(desk: Desk) -> None:
    assert "BOUGH_TASK" not in os.environ
    assert desk.address.startswith("@bough-here-")


@needs_root
def test_a_task_does_not_speak_to_another_user_in_the_place_of_its_executor() -> None:
    read, write = os.pipe()
    name = f"bough-here-test-{os.getpid()}"
    pid = os.fork()
    if pid == 0:
        os.setuid(NOBODY)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{name}")
            listener.listen()
            os.write(write, b"x")
            caller, _ = listener.accept()
            os.write(write, caller.recv(1000) or b"-")
        os._exit(0)
    assert os.read(read, 1) == b"x"
    with pytest.raises(PeerLost, match="another user answers in its name"):
        Asking(f"@{name}", (3, 0, 1)).status("a secret")
    assert os.read(read, 1000) == b"-"  # nothing was said
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
