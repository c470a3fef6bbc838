"""A real executor whose server says whatever its types allow, and more: it goes on, and answers who comes next."""

from __future__ import annotations

import os
import random
import select
import time
from pathlib import Path
from typing import Any

import pytest
from executor_server import Server

from bough.errors import ProtocolError
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.wire.client_messages import Challenge, Refused
from bough.wire.executor_messages import (
    Drain,
    ExecutorWelcome,
    Leave,
    OutputRead,
    ReadOutput,
    RunSpan,
    SpansHeld,
    ToExecutor,
)
from bough.wire.framing import frame_list
from tests.fuzz.messages import hostile, kinds, valid

SECONDS = float(os.environ.get("BOUGH_FUZZ_EXECUTOR_SECONDS", "6"))
_ORDERS = frozenset({ExecutorWelcome, Leave, Drain, Refused, Challenge})  # which end it, or its connection, by right


def rounds(folder: Path, dice: random.Random, known: dict[str, list[Any]]) -> Any:
    """A frame of messages."""
    made: list[Any] = []
    for _ in range(dice.choice((1, 5, 20))):
        kind = dice.choice([kind for kind in kinds(ToExecutor) if kind not in _ORDERS])
        message = valid(kind, dice, known)
        if isinstance(message, RunSpan) and (message.stop - message.start > 50 or message.span > 2**60):
            continue  # as much work as it says would be done; spans are numbered from 1
        made.append(message)
    if dice.random() < 0.05:
        kind = dice.choice([kind for kind in kinds(ToExecutor) if kind not in _ORDERS and kind is not RunSpan])
        made.append(hostile(kind, dice, known))
    return made


@pytest.mark.timeout(180)
def test_an_executor_outlives_whatever_its_server_says(tmp_path: Path) -> None:
    dice = random.Random(int(os.environ.get("BOUGH_FUZZ_SEED", "1")))
    server = Server(tmp_path, 2, False)
    server.until(lambda: any(isinstance(said, SpansHeld) for said in server.said))  # it is appointed
    paths = ["", str(tmp_path / "out" / "x"), "/etc/passwd", f"{tmp_path}/out/../secret"]
    known: dict[str, list[Any]] = {
        "span": [1, 2, 3, 4], "record": [1, 2, 3], "start": [0], "stop": [1, 2], "attempt": [1], "path": paths,
        "payload_path": [""], "directory": [str(tmp_path)], "inputs": [], "cores": [1.0], "memory": [0], "gpus": [0.0],
        "timeout": [0.0, 0.1], "run": [0, 1],
    }  # fmt: skip
    end, count = time.monotonic() + SECONDS, 0
    try:
        while time.monotonic() < end:
            said = rounds(tmp_path, dice, known)
            count += len(said)
            try:
                server.sock.sendall(bytes(frame_list(said)))
                while select.select([server.sock], [], [], 0)[0]:
                    data = server.sock.recv(1 << 20)
                    if not data:
                        raise ConnectionResetError
                    server.take(data)
            except (ConnectionError, TimeoutError, ProtocolError):  # one of us heard what is no language of ours
                server.sock.close()
                server.said.clear()
                server.accept()
            assert server.process.poll() is None
        assert count > 100
        server.sock.close()  # what it was told to do may keep it busy for ever, but it is there for the next server
        server.said.clear()
        server.accept()
        server.send(ReadOutput(77, 1, 0, "stdout", "", 0, 10))
        server.until(lambda: any(isinstance(said, OutputRead) and said.request == 77 for said in server.said))
    finally:
        server.process.kill()
        server.process.wait()
        server.sock.close()
        server.listener.close()


def test_a_bug_of_the_executor_fails_the_task_and_not_the_executor(tmp_path: Path) -> None:
    server = Server(tmp_path, 1, False)
    try:
        server.send(ReadOutput(5, 1, 0, "stdout", "", 2**62, 10))
        server.until(lambda: any(isinstance(said, OutputRead) and said.request == 5 for said in server.said))
        span = server.call(os.write, 3, b"what nobody understands")  # a task that writes to its worker's socket
        server.until(lambda: any(getattr(one, "span", 0) == span for one in server.news))
        after = server.call(len, "abc")
        server.until(
            lambda: any(isinstance(one, WorkSucceeded | WorkFailed) and one.span == after for one in server.news)
        )
        assert server.process.poll() is None
    finally:
        server.process.kill()
        server.process.wait()
        server.sock.close()
        server.listener.close()
