"""Functions of users that watch tasks (`Custom`) run in a process of their own beside the watcher, one at a time.

Each call has a deadline. A function that is over it, or that ends the process, costs the process, which is started
again, and its monitor is set aside. Rule: whatever a function does, the watcher goes on, and is told in time.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple, NoReturn

import msgspec

from bough.executor.host.processes import die_with_parent, kill
from bough.executor.monitors.evaluation.conditions import MOST_TEXT
from bough.executor.monitors.task_view import TaskView
from bough.executor.worker_protocol import TaskPlace

DEADLINE = 5.0  # seconds that a call may take
_BIGGEST = 1e300


class RunnerCall(msgspec.Struct, frozen=True, array_like=True):
    """Call a function."""

    function: bytes
    place: TaskPlace
    started: float


class RunnerAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What it returned: whether that is true, and what it is; or what went wrong."""

    yes: bool
    value: float | None = None
    text: str = ""
    error: str = ""
    is_lost: bool = False  # the function hangs, ends the process or cannot be loaded: it is not to be called again


Answered = Callable[[RunnerAnswer, float], None]


class _Waiting(NamedTuple):
    key: Hashable
    call: RunnerCall
    answered: Answered


class CustomRunner:
    """The watcher's side. `watch` and `unwatch` have its socket waited for."""

    def __init__(self, watch: Callable[[int, Callable[[float], object]], None], unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._sock: socket.socket | None = None
        self._pid = 0
        self._queue: deque[_Waiting] = deque()
        self._running: _Waiting | None = None
        self.due = float("inf")  # when the call that runs is over its time

    def ask(self, key: Hashable, call: RunnerCall, answered: Answered, now: float) -> None:
        """Call a function when its turn has come."""
        self._queue.append(_Waiting(key, call, answered))
        self._go_on(now)

    def forget(self, key: Hashable) -> None:
        """Nobody wants to know any more; what runs already is let run."""
        self._queue = deque(one for one in self._queue if one.key != key)
        if self._running is not None and self._running.key == key:
            self._running = self._running._replace(answered=lambda _answer, _now: None)

    def _go_on(self, now: float) -> None:
        while self._running is None and self._queue:
            if self._sock is None:
                self._start()
            assert self._sock is not None
            self._running = self._queue.popleft()
            self.due = now + DEADLINE
            try:
                self._sock.sendall(_frame(msgspec.msgpack.encode(self._running.call)))
            except OSError:
                self._lose("its process has ended", now)

    def _start(self) -> None:
        self._sock, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            _be_runner(theirs)
        theirs.close()
        self._watch(self._sock.fileno(), self._hear)

    def _hear(self, now: float) -> None:
        assert self._sock is not None
        try:
            data = _receive(self._sock)
            answer = msgspec.msgpack.decode(data, type=RunnerAnswer) if data else None
        except (OSError, msgspec.MsgspecError):
            answer = None
        if answer is None:
            self._lose("it ended the process that ran it", now)
        else:
            self._answer(answer, now)

    def check(self, now: float) -> None:
        """End a call that is over its time."""
        if now >= self.due:
            self._lose(f"it ran for more than {DEADLINE:g} s", now)

    def _lose(self, why: str, now: float) -> None:
        """The process is of no use any more."""
        assert self._sock is not None
        kill(self._pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._unwatch(self._sock.fileno())
        self._sock.close()
        self._sock = None
        self._answer(RunnerAnswer(False, error=f"{why}; it is not called again", is_lost=True), now)

    def _answer(self, answer: RunnerAnswer, now: float) -> None:
        running, self._running = self._running, None
        self.due = float("inf")
        if running is not None:
            running.answered(answer, now)
        self._go_on(now)


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def _receive(sock: socket.socket) -> bytes:
    """One frame; empty when there is none any more."""
    data = b""
    need = 8
    while len(data) < need:
        piece = sock.recv(need - len(data), socket.MSG_WAITALL)
        if not piece:
            return b""
        data += piece
        if len(data) == need == 8:
            need += int.from_bytes(data, "little")
    return data[8:]


# --- in the process ---


def _be_runner(sock: socket.socket) -> NoReturn:
    """Call what is asked for, until nobody asks any more."""
    try:
        signal.set_wakeup_fd(-1)
        die_with_parent(signal.SIGKILL)
        os.closerange(3, sock.fileno())
        os.closerange(sock.fileno() + 1, 1 << 16)
        functions: dict[bytes, Callable[[TaskView], object]] = {}
        while data := _receive(sock):
            answer = _call(msgspec.msgpack.decode(data, type=RunnerCall), functions)
            sock.sendall(_frame(msgspec.msgpack.encode(answer)))
    finally:
        os._exit(0)


def _call(call: RunnerCall, functions: dict[bytes, Callable[[TaskView], object]]) -> RunnerAnswer:
    function = functions.get(call.function)
    try:
        if function is None:
            if len(functions) > 256:
                functions.clear()
            function = functions[call.function] = pickle.loads(call.function)
    except BaseException as error:  # noqa: BLE001 -- it runs code of the user's
        text = f"its function cannot be loaded: {type(error).__name__}: {error}"
        return RunnerAnswer(False, error=text[:MOST_TEXT], is_lost=True)
    place = call.place
    view = TaskView(f"{place.record}.{place.index}", place.attempt, place.directory, place.group, call.started)
    view._set_streams({"stdout": place.stdout, "stderr": place.stderr})
    try:
        value = function(view)
        if not value:
            return RunnerAnswer(False)
        number = float(value) if isinstance(value, int | float) else None
        if number is not None and not abs(number) <= _BIGGEST:
            number = None
        return RunnerAnswer(True, number, str(value)[:MOST_TEXT])
    except BaseException as error:  # noqa: BLE001 -- as above
        return RunnerAnswer(False, error=f"its function raised {type(error).__name__}: {error}"[:MOST_TEXT])
