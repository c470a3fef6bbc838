"""How many messages pass between a server and an executor: counted on the wire, by somebody in the middle.

A task costs two: there with the acknowledgement of the result before it, and back. Only a result that no work follows
soon, the last before a pause, is acknowledged by a message of its own.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, until

import bough
from bough.wire.executor_messages import Heartbeat
from bough.wire.framing import Frames, server_frames, to_executor_frames

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

HEARTBEAT = "30s"  # longer than a test: signs of life are no part of what a task costs
LAST = 1  # the acknowledgement that no work follows


class Middle:
    """A Unix socket in front of the server's: passes everything on, and counts the frames of both directions."""

    def __init__(self, server: Path, folder: Path) -> None:
        self.server = server
        self.address = f"unix:{folder / 'middle.sock'}"
        self.to_server: list[list[str]] = []  # the kinds of messages in each frame
        self.to_executor: list[list[str]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address.removeprefix("unix:"))
        self._listener.listen()
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self.server))
                self._sockets += [near, far]
                for source, sink, frames, seen in (
                    (near, far, server_frames(), self.to_server),
                    (far, near, to_executor_frames(), self.to_executor),
                ):
                    threading.Thread(target=self._pass, args=(source, sink, frames, seen), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, frames: Frames[object], seen: list[list[str]]) -> None:
        rest = bytearray()
        with suppress(OSError):
            while data := source.recv(1 << 20):
                rest += data
                while len(rest) >= 4 and len(rest) >= (size := 4 + int.from_bytes(rest[:4], "big")):
                    heard = frames.feed(bytes(rest[:size]))
                    del rest[:size]
                    if not all(isinstance(message, Heartbeat) for message in heard):
                        seen.append([type(message).__name__ for message in heard])
                sink.sendall(data)

    def forget(self) -> None:
        self.to_server.clear()
        self.to_executor.clear()

    def frames(self) -> int:
        """All that have passed, once the last report is acknowledged."""
        until(lambda: self.to_executor and "Acknowledged" in self.to_executor[-1], "the last acknowledgement")
        return len(self.to_server) + len(self.to_executor)

    def told(self) -> str:
        return f"to the server {_kinds(self.to_server)}; to the executor {_kinds(self.to_executor)}"

    def close(self) -> None:
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def _kinds(frames: list[list[str]]) -> dict[str, int]:
    return dict(Counter("+".join(sorted(set(kinds))) for kinds in frames))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def middle(service: Service, tmp_path: Path) -> Iterator[Middle]:
    service.start("--heartbeat", HEARTBEAT)
    made = Middle(service.address, tmp_path)
    service.executor("--server", made.address, cores=2)
    yield made
    made.close()


@pytest.fixture
def separate(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[bough.Session, Middle]]:
    """A session whose server does not let work travel with acknowledgements."""
    service.start("--heartbeat", HEARTBEAT, "--no-piggyback")
    made = Middle(service.address, tmp_path)
    service.executor("--server", made.address, cores=2)
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    with bough.Session(f"unix:{service.address}", name="count") as opened:
        opened.submit(brief, -1).result()
        until(lambda: made.to_server and made.to_server[-1] == ["Ready"], "it is ready for more")
        made.forget()
        yield opened, made
    made.close()


@pytest.fixture
def session(service: Service, middle: Middle, monkeypatch: pytest.MonkeyPatch) -> Iterator[bough.Session]:
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    with bough.Session(f"unix:{service.address}", name="count") as opened:
        opened.submit(brief, -1).result()  # the function has come over
        middle.frames()
        middle.forget()
        yield opened


def brief(x: int) -> int:
    import time

    time.sleep(0.01)
    return x + 1


def test_a_task_alone_costs_two_messages(session: bough.Session, middle: Middle) -> None:
    """One by one, so that nothing can share a message: the task there, its result back."""
    count = 40
    assert [session.submit(brief, x).result() for x in range(count)] == list(range(1, count + 1))
    assert middle.frames() <= 2 * count + LAST, middle.told()


def test_commands_cost_two_messages(session: bough.Session, middle: Middle) -> None:
    count = 60
    tasks = [session.command(f"sleep 0.01; echo {x}") for x in range(count)]
    assert [task.result().stdout for task in tasks] == [f"{x}\n" for x in range(count)]
    assert middle.frames() <= 2 * count + LAST, middle.told()


def test_many_tasks_at_once_share_messages(session: bough.Session, middle: Middle) -> None:
    """Results go with others, and the next work comes with their acknowledgement."""
    count = 200
    tasks = [session.submit(brief, x) for x in range(count)]
    assert [task.result() for task in tasks] == list(range(1, count + 1))
    assert middle.frames() <= 2 * count + LAST, middle.told()


def test_an_array_costs_far_fewer_messages_than_it_has_tasks(session: bough.Session, middle: Middle) -> None:
    count = 20_000
    assert sum(session.map(abs, range(count))) == sum(range(count))
    assert middle.frames() <= count / 20, middle.told()


def test_without_piggy_backing_a_task_costs_four_messages(separate: tuple[bough.Session, Middle]) -> None:
    """The task there and its result back, the acknowledgement and the asking for more."""
    session, middle = separate
    count = 20
    assert [session.submit(brief, x).result() for x in range(count)] == list(range(1, count + 1))
    until(lambda: middle.to_server[-1] == ["Ready"] and len(middle.to_server) == 2 * count, "the last is heard")
    assert middle.to_server == [["Report"], ["Ready"]] * count, middle.told()
    assert middle.to_executor == [["RunSpan"], ["Acknowledged"]] * count, middle.told()


def test_without_piggy_backing_work_never_comes_with_an_acknowledgement(
    separate: tuple[bough.Session, Middle],
) -> None:
    session, middle = separate
    assert sum(session.map(abs, range(5000))) == sum(range(5000))
    until(
        lambda: sum("Ready" in f for f in middle.to_server) == sum("Acknowledged" in f for f in middle.to_executor),
        "ready",
    )
    assert all(set(kinds) == {"Acknowledged"} for kinds in middle.to_executor if "Acknowledged" in kinds), middle.told()
    assert any("Acknowledged" in kinds for kinds in middle.to_executor), middle.told()
