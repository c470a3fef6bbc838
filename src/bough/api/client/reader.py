"""Waits for bytes, cuts messages; which thread reads; no signal in between.

Who listens to the server: the session's reader thread, or a caller who waits for a task.

What the reader thread hears must wake whoever waits for it, and that takes as long as a hop between processes. So
once a caller was served who waited alone, the reader steps aside, and the next who waits listens for itself. The
reader is back when nobody has listened for `PATIENCE`, and at once when it is wanted (`recall`): by those who wait in
other ways, or wait together. Rule: one thread listens at a time.

Doing something in the main thread that no signal may interrupt half-way.

Python runs signal handlers in the main thread between any two steps, and Ctrl-C raises there: what was received and
not yet passed on would be lost. `_signal` is `signal` without wrappers that take longer than what is done here. Rule: a
signal that comes meanwhile is handled right afterwards, as it would have been.

Hearing what the server says: the part of a session's connection that waits for bytes and cuts them into messages.

It is done by whoever listens, see `attention`: mostly the reader thread. Rule: what was received is passed on, whatever
happens meanwhile; a signal waits until it is.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import TypeVar

from bough.api.client.client_socket import ClientSocket
from bough.wire.client_messages import Closed, ToClient
from bough.wire.framing import to_client_frames

PATIENCE = 0.02  # seconds without anybody who listens


class ReaderThread:
    """See the module. `listen` hears until something is true or a time has come; whether it is true."""

    def __init__(self, listen: Callable[[Callable[[], bool], float | None], bool]) -> None:
        self._listen = listen
        self._changed = threading.Condition(threading.Lock())
        self.is_aside = False  # the reader does not listen, so that a caller may
        self._taker = 0  # the thread of the caller who listens now
        self._takes = 0  # how often callers have listened
        self._wishes: dict[int, Callable[[], bool]] = {}  # what threads wait for
        self._is_wanted = False  # the reader shall come back as soon as it can
        self._sleeps = False  # the reader does not look by itself whether it may come back

    # --- for callers --------------------------------------------------------------------------------

    def wait(
        self, is_done: Callable[[], bool], sleep: Callable[[float | None], bool], timeout: float | None = None
    ) -> bool:
        """Wait until something is done, by listening if nobody else does, else by `sleep`; whether it is done."""
        me = threading.get_ident()
        if self._taker == me:  # in a signal's handler, while this very thread listens
            return self._listen(is_done, None if timeout is None else monotonic() + timeout)
        until = None if timeout is None else monotonic() + timeout
        try:
            if self._begin(me, is_done) and self._listen(is_done, until):
                return True
            if self._taker == me:
                self._end(me, wanted=True)
            return sleep(None if until is None else max(0.0, until - monotonic()))
        finally:
            interruption: BaseException | None = None
            while me in self._wishes or self._taker == me:
                try:
                    self._end(me)
                except BaseException as found:  # noqa: BLE001 -- Ctrl-C: who listens must not stay in the way
                    interruption = found
            if interruption is not None:
                raise interruption

    def _begin(self, me: int, is_done: Callable[[], bool]) -> bool:
        """Whether this one is to listen."""
        with self._changed:
            self._wishes[me] = is_done
            if not self.is_aside or self._taker or self._is_wanted:
                return False
            self._takes += 1
            self._taker = me
            return True

    def _end(self, me: int, *, wanted: bool = False) -> None:
        with self._changed:
            if self._taker == me:
                self._taker = 0
                if wanted or self._sleeps or self._is_wanted or len(self._wishes) > 1:
                    self._is_wanted = True
                    self._changed.notify()
            self._wishes.pop(me, None)

    def recall(self) -> None:
        """The reader is wanted: somebody waits in a way in which nobody listens."""
        if self.is_aside:
            with self._changed:
                self._is_wanted = True
                self._changed.notify()

    # --- for the reader -----------------------------------------------------------------------------

    def may_step_aside(self) -> bool:
        """Whether there is one who waits for a task, and it has ended."""
        wishes = self._wishes
        return len(wishes) == 1 and all(is_done() for is_done in list(wishes.values()))

    def step_aside(self) -> None:
        """Let callers listen; returns when the reader is to listen again."""
        with self._changed:
            self.is_aside, self._is_wanted = True, False
            takes = -1
            while self._taker or not (self._is_wanted or takes == self._takes):
                self._sleeps = bool(self._taker) and (self._is_wanted or takes == self._takes)
                takes = self._takes
                self._changed.wait(None if self._sleeps else PATIENCE)
            self.is_aside = self._is_wanted = self._sleeps = False


T = TypeVar("T")
_NAMES = ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGXCPU", "SIGVTALRM", "SIGPROF")
_NUMBERS = tuple(int(getattr(signal, name)) for name in (*_NAMES, "SIGINT"))  # those whose handlers may raise


def undisturbed(action: Callable[[], T]) -> T:
    """Do it; handlers of signals that come meanwhile are called after it."""
    if threading.current_thread() is not threading.main_thread():
        return action()  # Python runs no handlers here
    handlers = {number: handler for number in _NUMBERS if callable(handler := getsignal(number))}
    came: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))

    try:
        for number in handlers:
            set_handler(number, note)
        return action()
    finally:
        for number, handler in handlers.items():
            set_handler(number, handler)
        for number, frame in came:
            handlers[number](number, frame)


_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Listening(ABC):
    """See the module."""

    def __init__(self, line: ClientSocket) -> None:
        self._line = line
        self.attention = ReaderThread(self._listen_for)
        self.closed: Closed | None = None
        self._unsent = bytearray()  # what the socket did not take
        self._ahead = b""  # what was received before this connection began to listen
        self._frames = to_client_frames()
        self._buffer = bytearray(1 << 18)
        self._poll: select.poll | None = None  # if nobody uses it: a signal's handler may listen while its thread does
        self._fault: Exception | None = None  # what was met with in listening
        self._handler = 0  # the thread that passes on what was heard
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @abstractmethod
    def _handle(self, messages: Sequence[ToClient]) -> None:
        """Messages arrived."""

    @abstractmethod
    def _send_on(self) -> None:
        """There is room for what the socket did not take."""

    def _wants_on(self) -> bool:
        """Whether the session still wants to hear something."""
        return True

    @property
    def _is_handling(self) -> bool:
        """Whether this thread passes on what was heard: it is called from there."""
        return threading.get_ident() == self._handler

    def _wake(self) -> None:
        """Make whoever listens look again."""
        self.attention.recall()
        try:
            os.write(self._wake_write, b"x")
        except OSError:
            return  # it is full, or closed: in either case nobody needs another wake-up

    def _listen(self) -> None:
        """In the reader thread: listen until nothing more comes."""
        self._frames, self._fault, self._poll = to_client_frames(), None, None
        if self._ahead:
            self._pass_on(self._frames.feed(self._ahead))
        while self._wants_on() and self._hear_some():
            if self.attention.may_step_aside():
                self.attention.step_aside()
                if self.closed is not None or self._fault is not None:
                    break
        if self._fault is not None:
            raise self._fault

    def _listen_for(self, is_done: Callable[[], bool], until: float | None) -> bool:
        """In a caller's thread: listen until something is done, or a time has come; whether it is done."""
        while not is_done():
            patience = None if until is None else 1000 * (until - monotonic())
            if (patience is not None and patience <= 0) or not self._wants_on() or not self._hear_some(patience):
                return False
        return True

    def _hear_some(self, patience: float | None = None) -> bool:
        """Wait, for so many milliseconds at the most, and take what comes; False when nothing more will."""
        poll, self._poll = self._poll, None
        writes = bool(self._unsent)
        if poll is None or writes:
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            poll.register(self._line.fileno(), select.POLLIN | (select.POLLOUT if writes else 0))
        events = poll.poll(patience)
        self._poll = None if writes else poll
        for fd, event in events:
            if fd == self._wake_read:
                with suppress(BlockingIOError):  # a signal's handler may have read it
                    os.read(self._wake_read, 64)
            elif not undisturbed(lambda event=event: self._serve(event)):  # type: ignore[misc]
                return False
        return True

    def _serve(self, event: int) -> bool:
        try:
            if event & select.POLLOUT:
                self._send_on()
            return not event & _READABLE or self._receive()
        except Exception as found:  # noqa: BLE001 -- it ends the connection, whoever listens: the reader says so
            self._fault = found
            return False

    def _receive(self) -> bool:
        """Take what has come; False when nothing more will."""
        line, buffer = self._line, self._buffer
        while (count := line.receive(buffer)) > 0:
            self._pass_on(self._frames.feed(memoryview(buffer)[:count]))
            if self.closed is not None:
                return False
            if not line.is_greedy:
                return True
        return count < 0

    def _pass_on(self, messages: Sequence[ToClient]) -> None:
        self._handler = threading.get_ident()
        try:
            self._handle(messages)
        finally:
            self._handler = 0

    def _shut(self) -> None:
        self._line.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
