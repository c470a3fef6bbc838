"""Hearing what the server says: the part of a session's connection that waits for bytes and cuts them into messages.

It is done by whoever listens, see `attention`: mostly the reader thread. Rule: what was received is passed on, whatever
happens meanwhile; a signal waits until it is.
"""

from __future__ import annotations

import os
import select
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

from bough.api.attention import Attention
from bough.api.line import Line
from bough.api.undisturbed import undisturbed
from bough.wire.framing import to_client_frames
from bough.wire.messages import Closed, ToClient

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Listening(ABC):
    """See the module."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.attention = Attention(self._listen_for)
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
