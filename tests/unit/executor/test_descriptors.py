"""The registry of descriptors."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from bough.executor.host.descriptors import Descriptors


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    made = Descriptors()
    yield made
    made.close()


def ready_socket() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.send(b"x")
    return ours, theirs


def test_each_handler_is_called_for_its_own_descriptor(descriptors: Descriptors) -> None:
    pairs = [ready_socket() for _ in range(3)]
    called: list[int] = []
    for at, (ours, _) in enumerate(pairs):
        descriptors.add(ours.fileno(), lambda at=at: called.append(at))
    pairs[1][0].recv(1)
    descriptors.wait(5.0)
    assert sorted(called) == [0, 2]
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def test_a_number_that_is_used_again_in_the_same_round_is_another_descriptor(descriptors: Descriptors) -> None:
    pairs = [ready_socket() for _ in range(2)]
    called: list[str] = []

    def replace(number: int) -> None:
        called.append("first")
        fd = pairs[number][0].fileno()
        descriptors.remove(fd)
        os.dup2(pairs[number][1].fileno(), fd)  # the number stands for another one now
        descriptors.add(fd, lambda: called.append("second"))

    for at, (ours, _) in enumerate(pairs):
        descriptors.add(ours.fileno(), lambda at=at: replace(1 - at))
    descriptors.wait(5.0)
    assert called == ["first"]
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def test_writing_is_waited_for_as_long_as_it_is_wanted(descriptors: Descriptors) -> None:
    ours, theirs = socket.socketpair()
    called: list[int] = []
    descriptors.add(ours.fileno(), lambda: called.append(1))
    descriptors.wait(0.0)
    descriptors.want_write(ours.fileno(), True)
    descriptors.wait(5.0)
    descriptors.want_write(ours.fileno(), False)
    descriptors.wait(0.0)
    assert called == [1]
    descriptors.remove(ours.fileno())
    descriptors.remove(ours.fileno())  # it is gone already
    descriptors.want_write(ours.fileno(), True)
    descriptors.wait(0.0)
    assert called == [1]
    ours.close()
    theirs.close()


def test_what_is_removed_after_the_end_does_no_harm() -> None:
    watched = Descriptors()
    reader, writer = os.pipe()
    watched.add(reader, lambda: None)
    watched.close()
    watched.remove(reader)
    os.close(reader)
    os.close(writer)
