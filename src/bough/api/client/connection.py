"""The session's end of its connection to the server: submissions gather, answers are waited for.

The first submission leaves at once from the caller's thread; those that follow gather until the server
has acknowledged it, and leave together. Sending never blocks: what the socket does not take waits here
and is sent on by the reader thread. Callers are held back while too much is unacknowledged.

Rule: messages leave in the order in which they were given, whatever threads gave them.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

from bough import errors
from bough.api.client.client_socket import line_over
from bough.api.client.outbox import Outbox
from bough.api.client.reader import Listening, ReaderThread
from bough.errors import BoughError, InternalError, PeerLost, ProtocolError, UserError
from bough.model.events.facts import PagesAdded
from bough.model.events.news import Cancel, DeclareDone, Hold, Kill, Prioritise, Release, Reset, Retry
from bough.model.ids import BlobId, RecordId
from bough.model.tasks import Item, Page, Reuse
from bough.wire.client_messages import (
    Accepted,
    Amend,
    Answer,
    Ask,
    Closed,
    CloseSession,
    DoAction,
    Farewell,
    Refused,
    TasksSucceeded,
    ToClient,
    UserNotice,
    Welcome,
)
from bough.wire.framing import frame_list
from bough.wire.questions import Question, check_bounds, read_reply

T = TypeVar("T")
Deed = Cancel | Kill | Hold | Release | Reset | DeclareDone | Retry | Prioritise

FORKED = "a session cannot be used in a forked process; open one in the process itself"


class _Reply:
    """Somebody waits for an answer."""

    __slots__ = ("error", "event", "message", "value")

    def __init__(self, message: Ask | DoAction | Amend | None = None) -> None:
        self.message = message  # the question
        self.event = threading.Event()
        self.value: object = None
        self.error: BoughError | None = None


class Connection(Listening):
    """See the module. `hear` gets what the server tells of tasks; `refused` items that it would not take."""

    def __init__(
        self,
        sock: socket.socket,
        hear: Callable[[Sequence[ToClient]], None],
        refused: Callable[[Item | PagesAdded, BoughError], None],
        lost: Callable[[BoughError | None], None],
        bundle: int = 0,
    ) -> None:
        super().__init__(line_over(sock))
        self._hear = hear
        self._refused = refused
        self._lost = lost
        self._lock = threading.RLock()  # a refusal or callback in the reader thread may submit
        self._room = threading.Condition(self._lock)
        self._outbox = Outbox(bundle=bundle)
        self._replies: dict[int, _Reply] = {}
        self._gone: BoughError | None = None  # why nothing can be sent any more
        self._welcome = _Reply()
        self.is_forked = False  # this is a copy in a child process, good for nothing
        self.ended = threading.Event()  # the reader has left
        self._reader = threading.Thread(target=self._read, name="bough-reader", daemon=True)
        _connections.add(self)

    def start(self, hello: object) -> None:
        """Say hello and begin to listen."""
        with self._lock:
            self._send([hello])
        self._reader.start()

    # --- for callers --------------------------------------------------------------------------------

    def welcome(self) -> Welcome:
        """Wait for the server's welcome; raises what it refused us for."""
        self._welcome.event.wait()
        if self._welcome.error is not None:
            raise self._welcome.error
        assert isinstance(self._welcome.value, Welcome)
        return self._welcome.value

    def submit(self, item: Item, size: int, blobs: Sequence[tuple[BlobId, bytes]] = ()) -> None:
        """Hand over an item and the blobs it names; it leaves now, or with the next ones."""
        with self._lock:
            outbox = self._outbox
            if self._gone is not None or outbox.is_full:
                self._hold_back()
            outbox.submit(item, size, blobs)
            if outbox.is_heard:
                self._flush()
            else:
                self.attention.recall()  # for the acknowledgement that this one waits for

    def submit_all(self, items: Sequence[Item], size: int) -> None:
        """Hand over items that name no blobs and have this size together."""
        with self._lock:
            self._hold_back()
            self._outbox.submit_all(items, size)
            if self._outbox.is_heard:
                self._flush()
            self.attention.recall()

    def add_pages(
        self, record: RecordId, pages: list[Page], size: int, *, last: bool, reuse: tuple[Reuse, ...] = ()
    ) -> None:
        """Hand over more of an open array."""
        with self._lock:
            self._hold_back()
            self._outbox.add_pages(record, pages, size, last=last, reuse=reuse)
            if self._outbox.is_heard:
                self._flush()
            self.attention.recall()

    def post(self, *messages: object) -> None:
        """Send messages that nobody answers, after everything before them."""
        with self._lock:
            self._check()
            for message in messages:
                self._outbox.post(message)
            self._flush(everything=True)
            self.attention.recall()

    def ask(self, question: Question[T]) -> T:
        """Ask the server something and wait for its answer."""
        self.may_wait()
        with self._lock:
            message = Ask(self._outbox.new_number(), check_bounds(question))  # type: ignore[arg-type]
        return read_reply(question, self._answer(message))

    def act(self, deed: Deed) -> None:
        """Do something to tasks; nobody waits for the answer."""
        with self._lock:
            self.post(DoAction(self._outbox.new_number(), deed))

    def act_and_wait(self, deed: Deed) -> object:
        """Do something to tasks and wait for the server's answer."""
        self.may_wait()
        with self._lock:
            message = DoAction(self._outbox.new_number(), deed)
        return self._answer(message)

    def amend(self, items: list[Item], directory: str, *, dry: bool, watched: bool) -> object:
        """Say the whole description of the workflow again, and wait for what the server made of it."""
        self.may_wait()
        with self._lock:
            message = Amend(self._outbox.new_number(), items, directory, dry, watched)
        return self._answer(message)

    def close(self, how: Farewell) -> None:
        """Say good-bye in one of the ways of `CloseSession`; `ended` tells when it is over."""
        with self._lock:
            if self._gone is None:
                self.post(CloseSession(how))

    def may_wait(self) -> None:
        """Refuse to wait in the thread that everybody waits for; send what has gathered: it may be waited for."""
        self._prepare_wait()
        self.attention.recall()

    def wait(
        self, is_done: Callable[[], bool], sleep: Callable[[float | None], bool], timeout: float | None = None
    ) -> bool:
        """Wait for a task, see `ReaderThread`."""
        self._prepare_wait()
        return self.attention.wait(is_done, sleep, timeout)

    def _prepare_wait(self) -> None:
        if self._is_awaited:
            raise UserError("a done callback must not wait for a task; submit from it, or wait in a thread of yours")
        if self._outbox.has_more:
            with self._lock:
                if self._gone is None:
                    self._flush()

    def _answer(self, message: Ask | DoAction | Amend) -> object:
        reply = self._replies[message.request] = _Reply(message)
        try:
            self.post(message)
            reply.event.wait()
        finally:
            self._replies.pop(message.request, None)
        if reply.error is not None:
            raise reply.error
        return reply.value

    @property
    def _is_awaited(self) -> bool:
        """Whether this is the thread that everybody waits for."""
        return self._is_handling or threading.current_thread() is self._reader

    def _hold_back(self) -> None:
        """Wait while too much is unacknowledged; the reader itself, whom we would wait for, goes on."""
        self._check()
        if not self._outbox.is_full or self._is_awaited:
            return
        self.attention.recall()
        self._room.wait_for(lambda: self._gone is not None or not self._outbox.is_full)
        self._check()

    def _check(self) -> None:
        if self._gone is not None:
            raise self._gone

    # --- sending, with the lock held ----------------------------------------------------------------

    def _flush(self, *, everything: bool = False) -> None:
        """Send what has gathered: all of it, or about one batch."""
        for messages in self._outbox.batches(everything=everything):
            self._send(messages)

    def _send(self, messages: list[object]) -> None:
        try:
            data = frame_list(messages)
        except ProtocolError as error:
            if len(messages) == 1:
                what = "the description" if isinstance(messages[0], Amend) else "what is asked for"
                raise UserError(f"{what} cannot be sent at once: {error}; cut it into several") from error
            for message in messages:  # too big together; each alone may pass
                self._send([message])
            return
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._line.send(data)
        except OSError:
            return  # the reader hears of it, and knows what the server said last
        if sent < len(data):
            self._unsent += memoryview(data)[sent:]
            self._wake()

    # --- reading ------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._leave(self._attend())

    def _attend(self) -> BoughError | None:
        """Listen until the connection ends; returns what went wrong, if that is known."""
        try:
            self._listen()
        except BoughError as found:
            return found
        except OSError as found:
            return PeerLost(f"the connection to the session's server broke: {found}")
        except Exception as found:  # noqa: BLE001 - our bug: nobody may wait for ever because of it
            import traceback

            return InternalError(f"the session's reader failed: {found!r}", traceback.format_exc())
        return None

    def _send_on(self) -> None:
        with self._lock:
            if self._unsent:
                sent = self._line.send(memoryview(self._unsent)[: 1 << 20])
                del self._unsent[:sent]

    def _handle(self, messages: Sequence[ToClient]) -> None:
        told: list[ToClient] = []
        for message in messages:
            kind = type(message)
            if kind is TasksSucceeded:  # nearly all of them
                told.append(message)
            elif kind is Accepted:
                self._accepted(message.request)  # type: ignore[union-attr]
            elif isinstance(message, Answer):
                self._hear(told)  # in order, as below
                told = []
                self._answered(message)
            elif isinstance(message, Refused):
                self._hear(told)  # in order: what was told before may matter to what is refused
                told = []
                self._refuse(message)
            elif isinstance(message, Welcome):
                self._welcomed(message)
            elif isinstance(message, Closed):
                self.closed = message
            elif isinstance(message, UserNotice):
                sys.stderr.write(f"bough: {message.text}\n")
            else:
                told.append(message)
        if told:
            self._hear(told)

    def _welcomed(self, message: Welcome) -> None:
        self._welcome.value = message
        self._welcome.event.set()

    def _answered(self, message: Answer) -> None:
        reply = self._replies.get(message.request)
        if reply is not None:
            reply.value = message.value
            reply.event.set()

    def _accepted(self, number: int) -> None:
        with self._lock:
            self._outbox.accepted(number)
            self._room.notify_all()
            self._send_next()

    def _send_next(self) -> None:
        if self._outbox.has_more and self._outbox.is_heard:
            self._flush()

    def _refuse(self, message: Refused) -> None:
        error = refusal(message)
        if not self._welcome.event.is_set():
            self._welcome.error = error
            self._welcome.event.set()
            return
        reply = self._replies.get(message.request)
        if reply is not None:
            reply.error = error
            reply.event.set()
            return
        with self._lock:
            request = self._outbox.refused(message.request)
            if request is None:
                if message.request == 0:
                    raise error
                return  # an act that came too late
            self._room.notify_all()
            if len(request.items) > 1:
                self._outbox.submit_singly(request)
                self._flush(everything=True)
                return
            self._send_next()
        self._refused(request.pages if request.pages is not None else request.items[0], error)

    def _leave(self, error: BoughError | None) -> None:
        if self.closed is not None:
            error = None
        elif error is None:
            error = PeerLost("the session's server ended unexpectedly")
        with self._lock:
            self._gone = error or UserError("the session is closed")
            self._room.notify_all()
            replies = list(self._replies.values())
        for reply in [*replies, self._welcome]:
            if not reply.event.is_set():
                reply.error = self._gone
                reply.event.set()
        try:
            self._lost(error)
        finally:
            self._shut()
            self.ended.set()

    def forked(self) -> None:
        """In a child made by fork: let go, so that the server sees its owner's end and not the child's."""
        self._lock = threading.RLock()  # the other threads, and what they held, do not exist here
        self._room = threading.Condition(self._lock)
        self.attention = ReaderThread(self._listen_for)
        self.is_forked = True
        if not self.ended.is_set():
            self._gone = UserError(FORKED)
            self._shut()


def refusal(message: Refused) -> BoughError:
    """The exception that a refusal names."""
    kind = getattr(errors, message.kind, UserError)
    if not (isinstance(kind, type) and issubclass(kind, BoughError)):
        kind = ProtocolError
    return kind(message.message)


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _after_fork() -> None:
    for connection in list(_connections):
        connection.forked()


os.register_at_fork(after_in_child=_after_fork)
