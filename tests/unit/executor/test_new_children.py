"""Children of an executor that are hardly born: a signal to one of them is not taken for one to the executor."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from bough.executor.host.processes import fork_deaf, hear_signals


@pytest.fixture
def told() -> Iterator[socket.socket]:
    """What an executor reads when a signal came."""
    read, write = socket.socketpair()
    read.setblocking(False)
    write.setblocking(False)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    descriptor = signal.set_wakeup_fd(write.fileno())
    yield read
    signal.set_wakeup_fd(descriptor)
    signal.signal(signal.SIGTERM, before)
    read.close()
    write.close()


def test_a_signal_to_a_child_that_was_just_forked_is_the_childs_alone(told: socket.socket) -> None:
    for _ in range(20):
        pid = fork_deaf()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            hear_signals()
            signal.pause()
            os._exit(1)
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == signal.SIGTERM
    with pytest.raises(BlockingIOError):
        told.recv(64)
    os.kill(os.getpid(), signal.SIGTERM)  # the executor itself hears signals again
    assert told.recv(64) == bytes([signal.SIGTERM])
