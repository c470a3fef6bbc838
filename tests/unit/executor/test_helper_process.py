"""A helper process: it hears and says, and its end, or nonsense from it, is seen once."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from bough.errors import ProtocolError
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.helper_process import HelperProcess
from bough.wire.framing import Frames, frame

PATIENCE = 60.0


class Owner:
    """Has a helper, and keeps what comes from it."""

    def __init__(self, run: Callable[[socket.socket], None]) -> None:
        self.descriptors = Descriptors()
        self.heard: list[str] = []
        self.deaths: list[ProtocolError | None] = []
        self.helper = HelperProcess[str](
            self.descriptors, run, lambda: Frames(str), self.heard.extend, self.deaths.append
        )

    def until(self, met: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not met():
            assert time.monotonic() < end
            self.descriptors.wait(0.05)


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def answer_nonsense(sock: socket.socket) -> None:
    sock.recv(1)
    sock.sendall(b"\0\0\0\1\xc1")
    signal.pause()


@pytest.fixture
def owner(request: pytest.FixtureRequest) -> Iterator[Owner]:
    made = Owner(getattr(request, "param", echo))
    made.helper.start()
    yield made
    made.helper.stop()


def test_more_than_the_socket_takes_arrives_in_order(owner: Owner) -> None:
    said = [f"{number}" * 10_000 for number in range(200)]
    for text in said:
        owner.helper.send(frame(text))  # never waits
    owner.until(lambda: len(owner.heard) == len(said))
    assert owner.heard == said
    assert owner.deaths == []


def test_its_end_is_seen_once_and_it_can_be_started_again(owner: Owner) -> None:
    os.kill(owner.helper.pid, signal.SIGTERM)  # meant for the executor
    owner.helper.send(frame("here"))
    owner.until(lambda: owner.heard == ["here"])
    os.kill(owner.helper.pid, signal.SIGKILL)
    owner.until(lambda: owner.deaths)
    assert owner.deaths == [None]
    assert not owner.helper.lives
    owner.helper.send(frame("nobody hears it"))
    owner.helper.start()
    owner.helper.send(frame("again"))
    owner.until(lambda: owner.heard == ["here", "again"])
    assert owner.deaths == [None]


@pytest.mark.parametrize("owner", [answer_nonsense], indirect=True)
def test_one_that_says_nonsense_is_ended(owner: Owner) -> None:
    owner.helper.send(b"x")
    owner.until(lambda: owner.deaths)
    assert isinstance(owner.deaths[0], ProtocolError)
    assert not owner.helper.lives


def test_one_that_is_stopped_is_not_told_of(owner: Owner) -> None:
    owner.helper.stop()
    owner.helper.stop()
    owner.descriptors.wait(0.0)
    assert owner.deaths == []
