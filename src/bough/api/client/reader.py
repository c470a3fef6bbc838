"""Reads what the server says: waits for bytes, cuts them into messages, and passes these on.

A session has one `Reader`, with a thread of its own. What that thread reads must wake the caller that waits for it,
and that takes as long as a hop between processes. So once it has served a caller that waited alone, the thread
yields, and the next caller that waits reads for itself (`ReaderThread` decides). The thread reads again when no
caller has read for `IDLE` seconds, and at once when it is wanted (`take_back`): by callers that wait in other ways,
or wait together.

Python runs signal handlers in the main thread between any two steps, and Ctrl-C raises there: bytes that were received
and not yet passed on would be lost. `without_signals` delays the handlers until they are.

Rules: one thread reads at a time. What was received is passed on, whatever happens meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found] # `signal` has wrappers that take longer than the work here
from _signal import signal as set_handler
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import TypeVar

from bough.api.client.client_socket import ClientSocket
from bough.wire.client_messages import Closed, ToClient
from bough.wire.framing import to_client_frames

T = TypeVar("T")
IDLE = 0.02  # seconds without a caller that reads, after which the thread reads again
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_NAMES = ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGXCPU", "SIGVTALRM", "SIGPROF")
_NUMBERS = tuple(int(getattr(signal, name)) for name in (*_NAMES, "SIGINT"))  # those whose handlers may raise


class Reader:
    """See the module. `on_messages` gets what was read, `on_writable` is called when the socket takes bytes again."""

    def __init__(
        self,
        line: ClientSocket,
        received: bytes,
        on_messages: Callable[[Sequence[ToClient]], None],
        on_writable: Callable[[], None],
    ) -> None:
        self.line = line
        self.closed: Closed | None = None  # the server's last message
        self.is_stopped = False  # nothing more is wanted from the server
        self.turns = ReaderThread(self._read_for)
        self._received = received  # before this reader began
        self._on_messages = on_messages
        self._on_writable = on_writable
        self._frames = to_client_frames()
        self._buffer = bytearray(1 << 18)
        self._poll: select.poll | None = None  # None while in use: a signal's handler may read while its thread does
        self._fault: Exception | None = None  # what went wrong while reading
        self.threads = [0, 0, 0]  # that must not wait for what is read: the reader's own, those that pass it on
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def read_all(self) -> None:
        """In the reader's own thread: read until nothing more comes; raises what went wrong."""
        self._frames, self._fault, self._poll = to_client_frames(), None, None
        if self._received and not self.is_stopped:
            self._pass_on(self._frames.feed(self._received))
        while not self.is_stopped and self._read_some():
            if self.turns.may_yield():
                self.turns.yield_to_callers()
                if self.closed is not None or self._fault is not None:
                    break
        if self._fault is not None:
            raise self._fault

    def use(self, line: ClientSocket, received: bytes) -> None:
        """Read from another socket from now on."""
        self.line, self._received = line, received

    def wake(self) -> None:
        """Make the thread that reads look again."""
        self.turns.take_back()
        with suppress(OSError):  # it is full, or closed: in either case no other wake-up is needed
            os.write(self._wake_write, b"x")

    def stop(self) -> None:
        """Read no more."""
        self.is_stopped = True
        self.wake()

    def pass_on_later(self, pass_on: Callable[[], None]) -> None:
        """In another thread: pass on what was read before. A caller that waits for it may be the one that reads."""
        self.threads[2] = threading.get_ident()
        try:
            pass_on()
        finally:
            self.threads[2] = 0
            self.wake()

    def forked(self) -> None:
        """In a child made by fork: the threads, and what they held, do not exist here."""
        self.turns = ReaderThread(self._read_for)

    def close(self) -> None:
        """Close the socket, and what wakes the reader."""
        self.line.close()
        os.close(self._wake_read)
        wake_write, self._wake_write = self._wake_write, -1  # a thread that wakes it later must not write elsewhere
        os.close(wake_write)

    def _read_for(self, is_done: Callable[[], bool], until: float | None) -> bool:
        """In a caller's thread: read until something is done, or a time has come; whether it is done."""
        while not is_done():
            left = None if until is None else 1000 * (until - monotonic())
            if (left is not None and left <= 0) or self.is_stopped or not self._read_some(left):
                return False
        return True

    def _read_some(self, milliseconds: float | None = None) -> bool:
        """Wait, at most so long, and take what comes; False when nothing more will."""
        poll, self._poll = self._poll, None
        writes = bool(self.line.unsent)
        if poll is None or writes:
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            poll.register(self.line.fileno(), select.POLLIN | (select.POLLOUT if writes else 0))
        events = poll.poll(milliseconds)
        self._poll = None if writes else poll
        for fd, event in events:
            if fd == self._wake_read:
                with suppress(BlockingIOError):  # a signal's handler may have read it
                    os.read(self._wake_read, 64)
            elif not without_signals(lambda event=event: self._serve(event)):  # type: ignore[misc]
                return False
        return True

    def _serve(self, event: int) -> bool:
        try:
            if event & select.POLLOUT:
                self._on_writable()
            return not event & _READABLE or self._receive()
        except Exception as found:  # noqa: BLE001 -- it ends the connection, whichever thread reads: `read_all` raises it
            self._fault = found
            return False

    def _receive(self) -> bool:
        """Take what has come; False when nothing more will."""
        line, buffer = self.line, self._buffer
        while (count := line.receive(buffer)) > 0:
            self._pass_on(self._frames.feed(memoryview(buffer)[:count]))
            if self.closed is not None:
                return False
            if not line.is_greedy:
                return True
        return count < 0

    def _pass_on(self, messages: Sequence[ToClient]) -> None:
        self.threads[1] = threading.get_ident()
        try:
            self._on_messages(messages)
        finally:
            self.threads[1] = 0


class ReaderThread:
    """Decides which thread reads: the reader's own, or a caller that waits. `read` reads until something is true."""

    def __init__(self, read: Callable[[Callable[[], bool], float | None], bool]) -> None:
        self._read = read
        self._changed = threading.Condition(threading.Lock())
        self.has_yielded = False  # the thread does not read, so that a caller may
        self._caller = 0  # the thread of the caller that reads now
        self._takes = 0  # how often callers have read
        self._waits: dict[int, Callable[[], bool]] = {}  # what threads wait for
        self._is_wanted = False  # the reader's thread shall read again as soon as it can
        self._sleeps = False  # the reader's thread does not look by itself whether it may read again

    # --- for callers --------------------------------------------------------------------------------

    def wait(
        self, is_done: Callable[[], bool], sleep: Callable[[float | None], bool], timeout: float | None = None
    ) -> bool:
        """Wait until something is done, by reading if no other thread does, else by `sleep`; whether it is done."""
        me = threading.get_ident()
        if self._caller == me:  # in a signal's handler, while this very thread reads
            return self._read(is_done, None if timeout is None else monotonic() + timeout)
        until = None if timeout is None else monotonic() + timeout
        try:
            if self._begin(me, is_done) and self._read(is_done, until):
                return True
            if self._caller == me:
                self._end(me, wanted=True)
            return sleep(None if until is None else max(0.0, until - monotonic()))
        finally:
            interruption: BaseException | None = None
            while me in self._waits or self._caller == me:
                try:
                    self._end(me)
                except BaseException as found:  # noqa: BLE001 -- Ctrl-C: a caller that left must not count as reading
                    interruption = found
            if interruption is not None:
                raise interruption

    def _begin(self, me: int, is_done: Callable[[], bool]) -> bool:
        """Whether this caller is to read."""
        with self._changed:
            self._waits[me] = is_done
            if not self.has_yielded or self._caller or self._is_wanted:
                return False
            self._takes += 1
            self._caller = me
            return True

    def _end(self, me: int, *, wanted: bool = False) -> None:
        with self._changed:
            if self._caller == me:
                self._caller = 0
                if wanted or self._sleeps or self._is_wanted or len(self._waits) > 1:
                    self._is_wanted = True
                    self._changed.notify()
            self._waits.pop(me, None)

    def take_back(self) -> None:
        """The reader's own thread is wanted: a caller waits in a way in which it does not read."""
        if self.has_yielded:
            with self._changed:
                self._is_wanted = True
                self._changed.notify()

    # --- for the reader's own thread ----------------------------------------------------------------

    def may_yield(self) -> bool:
        """Whether one caller alone waits, and what it waits for is done."""
        waits = self._waits
        return len(waits) == 1 and all(is_done() for is_done in list(waits.values()))

    def yield_to_callers(self) -> None:
        """Let callers read; returns when this thread is to read again."""
        with self._changed:
            self.has_yielded, self._is_wanted = True, False
            takes = -1
            while self._caller or not (self._is_wanted or takes == self._takes):
                self._sleeps = bool(self._caller) and (self._is_wanted or takes == self._takes)
                takes = self._takes
                self._changed.wait(None if self._sleeps else IDLE)
            self.has_yielded = self._is_wanted = self._sleeps = False


def without_signals(action: Callable[[], T]) -> T:
    """Do something in the main thread; handlers of signals that come meanwhile are called right after it."""
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
