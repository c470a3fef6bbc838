"""A process that the executor forks to help it, and the pair of sockets over which both speak in frames of the wire.

The watcher of tasks and the transfer process are such helpers.

Rules: the executor's side never blocks: what it says is written as the socket takes it. A helper dies with its
executor, has none of its descriptors but the socket and the standard ones, and hears no signal that is meant for the
executor. Nothing that it raises gets back into the executor's code.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NoReturn, TypeVar

from bough import fork_warning
from bough.errors import ProtocolError
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.processes import die_with_parent, fork_deaf, hear_signals, kill
from bough.wire.framing import Frames

M = TypeVar("M")
_CHUNK: Final = 1 << 20
_ENDED: Final = 70  # what a helper exits with


class HelperProcess(Generic[M]):
    """The executor's side. `run`: what the helper does with its socket; `frames`: for what it says.

    `on_dead` is called once it has ended by itself, or said what cannot be read (then with an error).
    """

    def __init__(
        self,
        descriptors: Descriptors,
        run: Callable[[socket.socket], None],
        frames: Callable[[], Frames[M]],
        hear: Callable[[list[M]], None],
        on_dead: Callable[[ProtocolError | None], None],
    ) -> None:
        self._descriptors = descriptors
        self._run = run
        self._new_frames = frames
        self._hear = hear
        self._on_dead = on_dead
        self._sock: socket.socket | None = None
        self._frames = frames()
        self._out = bytearray()
        self.pid = 0

    @property
    def lives(self) -> bool:
        """Whether it was started, and its end was not seen."""
        return self._sock is not None

    def start(self) -> None:
        """Fork it; one that does not live."""
        assert self._sock is None
        self._sock, theirs = socket.socketpair()
        fork_warning.keep_quiet()
        executor = os.getpid()
        self.pid = fork_deaf()
        if self.pid == 0:
            _be_helper(theirs, executor, self._run)
        theirs.close()
        self._sock.setblocking(False)
        self._frames = self._new_frames()
        self._out = bytearray()
        self._descriptors.add(self._sock.fileno(), partial(self._on_ready, self._sock))

    def send(self, data: bytes | bytearray) -> None:
        """Say something, in frames; nobody hears it if it does not live."""
        if self._sock is not None:
            self._out += data
            self._write(self._sock)

    def _write(self, sock: socket.socket) -> None:
        while self._out:
            try:
                sent = sock.send(self._out)
            except BlockingIOError:
                break
            except OSError:  # it died, which is read soon
                self._out.clear()
                break
            del self._out[:sent]
        self._descriptors.want_write(sock.fileno(), bool(self._out))

    def _on_ready(self, sock: socket.socket) -> None:
        if sock is not self._sock:
            return
        self._write(sock)
        try:
            data = sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        unreadable: ProtocolError | None = None
        if data:
            try:
                messages = self._frames.feed(data)
            except ProtocolError as error:
                unreadable = error
            else:
                self._hear(messages)
                return
        self.stop()
        self._on_dead(unreadable)

    def stop(self) -> None:
        """End it, if it lives."""
        if self._sock is not None:
            kill(self.pid, signal.SIGKILL)
            self._descriptors.remove(self._sock.fileno())
            self._sock.close()
            self._sock = None


def _be_helper(sock: socket.socket, executor: int, run: Callable[[socket.socket], None]) -> NoReturn:
    """In the fork: do what it is for, until that ends or the executor does."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a job's end concerns the executor, which ends us
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL)
        hear_signals()
        if os.getppid() == executor:
            os.closerange(3, sock.fileno())
            os.closerange(sock.fileno() + 1, 1 << 16)
            run(sock)
    except BaseException:  # noqa: BLE001 -- nothing may get back into the executor's code
        import sys
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(_ENDED)
