"""The session's end of its connection to the server: submissions gather, answers are waited for.

A connection has a `Reader` (what the server says), an `Outbox` (what the server is told) and a `Reconnect` (what to
do when the connection breaks). The first submission leaves at once from the caller's thread. Those that follow gather
until the server has acknowledged it, and leave together. Sending never blocks: what the socket does not take is sent
on by the reader's thread. Callers wait while too much is unacknowledged.

Rule: messages leave in the order in which they were given, whatever threads gave them.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

from bough import errors, fork_warning
from bough.api.client.client_socket import client_socket
from bough.api.client.outbox import Outbox
from bough.api.client.processor_watch import ProcessorsCallback, ProcessorWatch
from bough.api.client.reader import Reader
from bough.api.client.reconnect import Dialled, Place, Reconnect, ask_outcomes
from bough.errors import BoughError, InternalError, PeerLost, ProtocolError, UserError
from bough.model.bounds import check_bounds
from bough.model.events.news import Action, PagesAdded
from bough.model.ids import BlobId, RecordId
from bough.model.tasks import Item, Page, Reuse
from bough.model.texts.terminal_text import harmless
from bough.wire.client_messages import (
    Accepted,
    Amend,
    Answer,
    Ask,
    ClientHello,
    Closed,
    CloseSession,
    DoAction,
    Farewell,
    ProcessorsChanged,
    Refused,
    TasksSucceeded,
    ToClient,
    UserNotice,
    Welcome,
)
from bough.wire.framing import frame_list
from bough.wire.questions import Processors, Question, read_reply

T = TypeVar("T")

_OWN = frozenset({Answer, Refused, Welcome, Closed, UserNotice, ProcessorsChanged})

FORKED = "a session cannot be used in a forked process; open one in the process itself"


class _Reply:
    """The answer that a caller waits for."""

    __slots__ = ("error", "event", "message", "value")

    def __init__(self, message: Ask | DoAction | Amend | None = None) -> None:
        self.message = message  # the question
        self.event = threading.Event()
        self.value: object = None
        self.error: BoughError | None = None

    def set(self, value: object, error: BoughError | None = None) -> None:
        """Wake the caller, with a value or an error."""
        self.value, self.error = value, error
        self.event.set()


class Connection:
    """See the module.

    Args:
        reconnect: gives the socket, and knows what to do when it breaks.
        on_messages: gets what the server tells of tasks.
        on_refused: gets items that the server refused.
        on_lost: is called at the end, with the reason unless the server closed in good order.
        bundle: most items in one request, see `DispatchTuning`.
    """

    def __init__(
        self,
        reconnect: Reconnect,
        on_messages: Callable[[Sequence[ToClient]], None],
        on_refused: Callable[[Item | PagesAdded, BoughError], None],
        on_lost: Callable[[BoughError | None], None],
        bundle: int = 0,
    ) -> None:
        self._reconnect = reconnect
        self._on_messages = on_messages
        self._on_refused = on_refused
        self._on_lost = on_lost
        dialled = reconnect.dial()
        self._preface = dialled.preface
        self._reader = Reader(client_socket(dialled.socket), dialled.received, self._handle, self._write_unsent)
        self._lock = threading.RLock()  # a refusal or callback in the reader's thread may submit
        self._room = threading.Condition(self._lock)
        self._outbox = Outbox(keeps=reconnect.keeps, bundle=bundle)
        self._replies: dict[int, _Reply] = {}
        self._gone: BoughError | None = None  # why nothing can be sent any more
        self._leaving: BoughError | None = None  # the session leaves: what callers are told that still wait
        self._farewell: CloseSession | None = None
        self._hello: ClientHello | None = None
        self._welcome = _Reply()
        self._processors = ProcessorWatch()
        self.is_forked = False  # this is a copy in a child process, and cannot be used
        self.ended = threading.Event()  # the reader's thread has ended
        _connections.add(self)

    def start(self, hello: ClientHello) -> None:
        """Say hello and begin to read."""
        self._hello = hello
        with self._lock:
            self._send([*self._preface, self._reconnect.hello(hello)])
        threading.Thread(target=self._run, name="bough-reader", daemon=True).start()

    @property
    def is_away(self) -> bool:
        """Whether the server is away, and waited for."""
        return self._reconnect.is_away

    @property
    def is_closed(self) -> bool:
        """Whether the server closed the connection in good order."""
        return self._reader.closed is not None

    # --- for callers --------------------------------------------------------------------------------

    def welcome(self) -> Welcome:
        """Wait for the server's welcome; raises what it refused us for."""
        self._welcome.event.wait()
        if self._welcome.error is not None:
            raise self._welcome.error
        assert isinstance(self._welcome.value, Welcome)
        return self._welcome.value

    def submit(self, item: Item, size: int, blobs: Sequence[tuple[BlobId, bytes]] = ()) -> None:
        """Take an item and the blobs it names; it leaves now, or with the next ones."""
        with self._lock:
            outbox = self._outbox
            if self._gone is not None or outbox.is_full:
                self._wait_for_room()
            outbox.submit(item, size, blobs)
            if outbox.unacknowledged:
                self._reader.turns.take_back()  # for the acknowledgement that this one waits for
            else:
                self._flush()

    def put_blob(self, blob: BlobId, data: bytes, what: str) -> None:
        """Take a blob that something names which comes behind it; `what` names it."""
        with self._lock:
            self._check()
            self._outbox.put_blob(blob, data, what)

    def submit_all(self, items: Sequence[Item], size: int) -> None:
        """Take items that name no blobs, or such as were put before, and have this size together."""
        with self._lock:
            self._wait_for_room()
            self._outbox.submit_all(items, size)
            if not self._outbox.unacknowledged:
                self._flush()
            self._reader.turns.take_back()

    def add_pages(
        self, record: RecordId, pages: list[Page], size: int, *, last: bool, reuse: tuple[Reuse, ...] = ()
    ) -> None:
        """Take more of an open array."""
        with self._lock:
            self._wait_for_room()
            self._outbox.add_pages(record, pages, size, last=last, reuse=reuse)
            if not self._outbox.unacknowledged:
                self._flush()
            self._reader.turns.take_back()

    def post(self, *messages: object) -> None:
        """Send messages after everything before them; no caller waits for an answer to them."""
        with self._lock:
            self._check()
            for message in messages:
                self._outbox.post(message)
            self._flush(everything=True)
            self._reader.turns.take_back()

    def ask(self, question: Question[T]) -> T:
        """Ask the server something and wait for its answer."""
        self.may_wait()
        with self._lock:
            message = Ask(self._outbox.new_number(), check_bounds(question))  # type: ignore[arg-type]
        return read_reply(question, self._answer(message))

    def follow_processors(self, callback: ProcessorsCallback) -> None:
        """Call a function, in a thread of its own, whenever processors come or go from now on."""
        self._processors.add(callback)
        self.ask(Processors(follow=True))

    def ask_outcomes(self, records: Sequence[Place]) -> None:
        """Ask to be told of the ends of records; `on_messages` gets them, now or later."""
        with self._lock:
            self.post(*ask_outcomes(self._outbox, records))

    def act(self, action: Action) -> None:
        """Do something to tasks, and do not wait for the answer."""
        with self._lock:
            self.post(DoAction(self._outbox.new_number(), action))

    def act_and_wait(self, action: Action) -> object:
        """Do something to tasks and wait for the server's answer."""
        self.may_wait()
        with self._lock:
            message = DoAction(self._outbox.new_number(), action)
        return self._answer(message)

    def amend(self, items: list[Item], directory: str, *, dry: bool, watched: bool) -> object:
        """Say the whole description of the workflow again, and wait for what the server made of it."""
        self.may_wait()
        with self._lock:
            message = Amend(self._outbox.new_number(), items, directory, dry, watched)
        return self._answer(message)

    def close(self, how: Farewell) -> None:
        """Say good-bye in one of the ways of `CloseSession`; `ended` tells when the connection has ended."""
        with self._lock:
            if self._gone is None:
                self._farewell = CloseSession(how)
                if not self._reconnect.is_away:
                    self.post(self._farewell)

    def leave(self, error: BoughError) -> None:
        """End the connection from our side; callers that still wait are told the error."""
        self._leaving = error
        self._reconnect.stop()
        self._reader.stop()
        self.ended.wait(5)

    def wait_acknowledged(self, timeout: float | None = None) -> bool:
        """Wait until the server has acknowledged everything; False when the time is over before."""
        self.may_wait()
        with self._lock:
            self._flush(everything=True)
            return self._room.wait_for(lambda: self._gone is not None or not self._outbox.is_busy, timeout)

    def pass_on_later(self, pass_on: Callable[[], None]) -> None:
        """In another thread: pass on what was held back of what the server said."""
        self._reader.pass_on_later(pass_on)

    def may_wait(self) -> None:
        """Refuse to wait in the thread that reads; send what has gathered: the caller may wait for it."""
        self._prepare_wait()
        self._reader.turns.take_back()

    @property
    def is_reading(self) -> bool:
        """Whether this is a thread that reads, as in a callback: it cannot wait for an answer."""
        return threading.get_ident() in self._reader.threads

    def will_sleep(self) -> None:
        """A caller is going to wait without reading: the reader's own thread must read."""
        self._reader.turns.take_back()

    def wait(
        self, is_done: Callable[[], bool], sleep: Callable[[float | None], bool], timeout: float | None = None
    ) -> bool:
        """Wait for a task, see `ReaderThread`."""
        self._prepare_wait()
        return self._reader.turns.wait(is_done, sleep, timeout)

    def _prepare_wait(self) -> None:
        if threading.get_ident() in self._reader.threads:
            raise UserError("a done callback must not wait for a task; submit from it, or wait in a thread of yours")
        if self._outbox.gathered:
            with self._lock:
                if self._gone is None:
                    self._flush()

    def _answer(self, message: Ask | DoAction | Amend) -> object:
        reply = _Reply(message)
        try:
            with self._lock:
                self._check()
                self._replies[message.request] = reply
                if isinstance(message, DoAction) or not self._reconnect.is_away:
                    self.post(message)  # a question to a server that is away is asked when it is back
            reply.event.wait()
        finally:
            self._replies.pop(message.request, None)
        if reply.error is not None:
            raise reply.error
        return reply.value

    def _wait_for_room(self) -> None:
        """Wait while too much is unacknowledged; not in the thread that would read the acknowledgement."""
        self._check()
        if not self._outbox.is_full or threading.get_ident() in self._reader.threads:
            return
        self._reader.turns.take_back()
        self._room.wait_for(lambda: self._gone is not None or not self._outbox.is_full)
        self._check()

    def _check(self) -> None:
        if self._gone is not None:
            raise self._gone

    # --- sending, with the lock held ----------------------------------------------------------------

    def _flush(self, *, everything: bool = False) -> None:
        """Send what has gathered: all of it, or about one batch."""
        if not self._reconnect.is_away:
            for messages in self._outbox.take(everything=everything):
                self._send(messages)

    def _send(self, messages: Sequence[object]) -> None:
        try:
            data = frame_list(messages)
        except ProtocolError as error:
            if len(messages) == 1:
                what = "the description" if isinstance(messages[0], Amend) else "what is asked for"
                raise UserError(f"{what} cannot be sent at once: {error}; cut it into several") from error
            for message in messages:  # too big together; each alone may pass
                self._send([message])
            return
        try:
            if self._reader.line.write(data):
                self._reader.wake()  # so that it waits for the socket to take the rest
        except OSError:
            return  # the reader notices it, and knows what the server said last

    def _write_unsent(self) -> None:
        with self._lock:
            self._reader.line.write_unsent()

    # --- in the reader's thread, or that of a caller that reads -------------------------------------

    def _run(self) -> None:
        """The reader's own thread."""
        self._reader.threads[0] = threading.get_ident()
        while True:
            error = self._read_all()
            if self._leaving is not None or self._reader.closed is not None:
                break
            with self._lock:
                self._reader.line.close()
            was_welcome = self._welcome.value is not None
            dialled = self._reconnect.on_loss(error or self._welcome.error, was_welcome=was_welcome)
            if not isinstance(dialled, Dialled):
                error = dialled
                break
            self._begin_again(dialled)
        self._end(error)
        self._reader.threads[0] = 0  # another thread may get the number

    def _read_all(self) -> BoughError | None:
        """Read until the connection ends; returns what went wrong, if that is known."""
        try:
            self._reader.read_all()
        except BoughError as found:
            return found
        except OSError as found:
            return PeerLost(f"the connection to the session's server broke: {found}")
        except Exception as found:  # noqa: BLE001 - our bug: no caller may wait for ever because of it
            import traceback

            return InternalError(f"the session's reader failed: {found!r}", traceback.format_exc())
        return None

    def _begin_again(self, dialled: Dialled) -> None:
        assert self._hello is not None
        with self._lock:
            self._reader.use(client_socket(dialled.socket), dialled.received)
            self._send([*dialled.preface, self._reconnect.hello(self._hello)])

    def _handle(self, messages: Sequence[ToClient]) -> None:
        told: list[ToClient] = []
        for message in messages:
            kind = type(message)
            if kind is TasksSucceeded:  # nearly all of them
                told.append(message)
            elif kind is Accepted:
                self._accepted(message.request)  # type: ignore[union-attr]
            elif kind in _OWN:
                self._on_messages(told)  # in order: what was told before may matter to what is answered
                told = []
                self._handle_own(message)
            else:
                told.append(message)
        if told:
            self._on_messages(told)
        if self._reconnect.awaits_outcomes and self._reconnect.has_all():
            self._reader.closed = Closed("done")

    def _handle_own(self, message: ToClient) -> None:
        """A message about the connection, not about tasks."""
        if isinstance(message, Answer):
            self._answered(message)
        elif isinstance(message, Refused):
            self._refuse(message)
        elif isinstance(message, Welcome):
            self._welcomed(message)
        elif isinstance(message, Closed):
            self._reader.closed = message
        elif isinstance(message, ProcessorsChanged):
            self._processors.tell(message.cores)
        elif isinstance(message, UserNotice):
            sys.stderr.write(f"bough: {harmless(message.text)}\n")

    def _welcomed(self, message: Welcome) -> None:
        with self._lock:
            for reply in self._replies.values():
                if isinstance(reply.message, Ask) and not reply.message.question.may_repeat:
                    reply.set(None, PeerLost("the server was lost before it answered: it may have been done or not"))
            asked = [reply.message for reply in self._replies.values() if not reply.event.is_set()]
            unanswered = [question for question in asked if isinstance(question, Ask | Amend)]
            if not self._reconnect.on_welcome(self._outbox, unanswered, self._farewell):
                if self._processors.is_on:
                    self._outbox.post(Ask(self._outbox.new_number(), Processors(follow=True)))
                self._flush(everything=True)
                return
        self._welcome.set(message)

    def _answered(self, message: Answer) -> None:
        with self._lock:
            if self._reconnect.on_answer(message, self._outbox, self.leave):
                return
        reply = self._replies.get(message.request)
        if reply is not None:
            reply.set(message.value)

    def _accepted(self, number: int) -> None:
        with self._lock:
            self._outbox.accepted(number)
            self._room.notify_all()
            self._send_next()

    def _send_next(self) -> None:
        if self._outbox.gathered and not self._outbox.unacknowledged:
            self._flush()

    def _refuse(self, message: Refused) -> None:
        error = refusal(message)
        with self._lock:
            self._reconnect.on_refusal(message.request, error)
        if not self._welcome.event.is_set():
            self._welcome.set(None, error)
            return
        reply = self._replies.get(message.request)
        if reply is not None:
            reply.set(None, error)
            return
        with self._lock:
            request = self._outbox.refused(message.request)
            if request is None:
                if message.request == 0:
                    raise error
                return  # an action that came too late
            self._room.notify_all()
            if len(request.items) > 1:
                self._outbox.submit_singly(request)
                self._flush(everything=True)
                return
            self._send_next()
        self._on_refused(request.pages if request.pages is not None else request.items[0], error)

    def _end(self, error: BoughError | None) -> None:
        if self._reader.closed is not None:
            error = None
        elif self._leaving is not None:
            error = self._leaving
        elif error is None:
            error = PeerLost("the session's server ended unexpectedly")
        with self._lock:
            self._gone = error or UserError("the session is closed")
            self._room.notify_all()
            replies = list(self._replies.values())
        self._processors.stop()
        for reply in [*replies, self._welcome]:
            if not reply.event.is_set():
                reply.set(None, self._gone)
        try:
            self._on_lost(error)
        finally:
            self._reader.close()
            self.ended.set()

    def forked(self) -> None:
        """In a child made by fork: close this copy, so that the server sees its owner's end and not the child's."""
        self._lock = threading.RLock()  # the other threads, and what they held, do not exist here
        self._room = threading.Condition(self._lock)
        self._reader.forked()
        self.is_forked = True
        if not self.ended.is_set():
            self._gone = UserError(FORKED)
            self._reader.close()


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
fork_warning.keep_quiet()
