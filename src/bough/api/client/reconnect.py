"""What a session does when its connection breaks: it gives up, or dials again.

An embedded session gives up (`GiveUp`): its server was started for it alone. The session of a service dials again
(`DialAgain`): the service outlives its process. While the server is away submissions gather, and waiting callers go
on waiting. A server that is back hears again what it did not acknowledge, and is asked how all the tasks ended that
have not ended here.

Rules: `Connection` asks its strategy, and does the sending and reading. Only a refusal, the session itself or a
workflow that is no longer there ends a connection to a service.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from bough.api.client.outbox import Outbox
from bough.errors import BoughError, PeerLost, ProtocolError, UnknownName, UserError
from bough.model.ids import RecordId
from bough.model.texts.terminal_text import harmless
from bough.wire import questions
from bough.wire.client_messages import Amend, Answer, Ask, ClientHello, CloseSession

FIRST_PAUSE = 0.1  # seconds before the first try to dial again; doubled from try to try
LONGEST_PAUSE = 5.0
OUTCOMES_TIME = 30.0  # seconds in which a server tells what it knows of a workflow that has finished
AT_ONCE = 5_000  # records in one question

Place = int | tuple[int, int]  # a record, or a record and the first of its elements that has not ended


class Dialled(NamedTuple):
    """A connected socket, what to say on it before the hello, and what was received already."""

    socket: socket.socket
    preface: Sequence[object] = ()
    received: bytes = b""


class Reconnect(Protocol):
    """What a connection asks; questions about messages come with the connection's lock held."""

    keeps: bool  # the outbox keeps what was sent until the server has acknowledged it
    is_away: bool  # the server is away: nothing may be sent now
    awaits_outcomes: bool  # the workflow has finished: `has_all` is asked after each message

    def dial(self) -> Dialled:
        """The first socket."""

    def hello(self, first: ClientHello) -> ClientHello:
        """The hello to say on a new socket; `first` is that for the first one."""

    def on_welcome(self, outbox: Outbox, unanswered: Sequence[Ask | Amend], farewell: CloseSession | None) -> bool:
        """Whether this is the first welcome; after another one, what has to be said again is in the outbox."""

    def on_refusal(self, request: int, error: BoughError) -> None:
        """The server refused a request; raises an error if this socket is of no more use."""

    def on_answer(self, message: Answer, outbox: Outbox, leave: Callable[[BoughError], None]) -> bool:
        """Whether the answer is to a question of the strategy's own; `leave` ends the connection."""

    def on_loss(self, error: BoughError | None, *, was_welcome: bool) -> Dialled | BoughError | None:
        """The connection broke: the next socket, however long it takes, or the error that ends the connection."""

    def has_all(self) -> bool:
        """Whether the server has told all that it knows of a workflow that has finished."""

    def stop(self) -> None:
        """The session leaves: dial no more."""


class GiveUp:
    """The strategy of an embedded session."""

    keeps = is_away = awaits_outcomes = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def dial(self) -> Dialled:
        """The socket to the session's own server."""
        return Dialled(self._sock)

    def hello(self, first: ClientHello) -> ClientHello:
        """There is only one."""
        return first

    def on_welcome(self, outbox: Outbox, unanswered: Sequence[Ask | Amend], farewell: CloseSession | None) -> bool:
        """There is only one."""
        return True

    def on_refusal(self, request: int, error: BoughError) -> None:
        """The connection handles all of them."""

    def on_answer(self, message: Answer, outbox: Outbox, leave: Callable[[BoughError], None]) -> bool:
        """It has no questions of its own."""
        return False

    def on_loss(self, error: BoughError | None, *, was_welcome: bool) -> Dialled | BoughError | None:
        """The end."""
        return error

    def has_all(self) -> bool:
        """A workflow does not finish without its session."""
        return False

    def stop(self) -> None:
        """It never dials."""


class DialAgain:
    """The strategy of a service's session. `unended` gives the records that have not ended here."""

    keeps = True

    def __init__(self, dial: Callable[[], Dialled], where: str, unended: Callable[[], Sequence[Place]]) -> None:
        self.dial = dial
        self.is_away = False
        self.awaits_outcomes = False
        self._where = where
        self._unended = unended
        self._stopped = threading.Event()
        self._pause = FIRST_PAUSE
        self._workflow_gone: BoughError | None = None  # why the workflow is not there any more
        self._last_question = 0  # about the outcomes of a workflow that is not there any more

    def hello(self, first: ClientHello) -> ClientHello:
        """Ask a server that is back to join the workflow; of one that has finished only outcomes are wanted."""
        if self._workflow_gone is not None:
            return ClientHello(first.version, first.pid, first.host, user=first.user)
        return msgspec.structs.replace(first, join=True) if self.is_away else first

    def on_welcome(self, outbox: Outbox, unanswered: Sequence[Ask | Amend], farewell: CloseSession | None) -> bool:
        """A server that is back hears again what it did not acknowledge or answer."""
        if not self.is_away:
            return True
        self.is_away = False
        if self._workflow_gone is not None:
            self._last_question = outbox.new_number()
            outbox.post(Ask(self._last_question, questions.Outcomes(_places(self._unended()))))
            return False
        outbox.rewind()
        for question in unanswered:
            outbox.post(question)
        for ask in ask_outcomes(outbox, self._unended()):
            outbox.post(ask)
        if farewell is not None:
            outbox.post(farewell)
        _say(f"reconnected to the server at {self._where}")
        return False

    def on_refusal(self, request: int, error: BoughError) -> None:
        """A server that is back may refuse the hello, because it still believes in the connection that broke."""
        if self.is_away and request == 0:
            if isinstance(error, UnknownName) and self._workflow_gone is None:
                self._workflow_gone = UserError(f"{error}; what became of its tasks is not known")
            elif isinstance(error, ProtocolError):
                raise error
            raise PeerLost(str(error))  # so that it is tried again

    def on_answer(self, message: Answer, outbox: Outbox, leave: Callable[[BoughError], None]) -> bool:
        """The answer to the last question is how many outcomes the server will tell."""
        if not self._last_question or message.request != self._last_question:
            outbox.answered(message.request)
            return False
        assert self._workflow_gone is not None
        self.awaits_outcomes = True
        if not message.value:
            raise self._workflow_gone
        timer = threading.Timer(OUTCOMES_TIME, leave, (self._workflow_gone,))
        timer.daemon = True
        timer.start()
        return True

    def on_loss(self, error: BoughError | None, *, was_welcome: bool) -> Dialled | BoughError | None:
        """Dial until a server is there, or the session leaves."""
        if isinstance(error, ProtocolError):
            return ProtocolError(f"what the server at {self._where} says cannot be understood: {error}")
        if error is not None and not isinstance(error, PeerLost):
            return error
        if not was_welcome:
            return error or PeerLost(f"the server at {self._where} closed the connection before it answered; try again")
        if not self.is_away:
            self.is_away = True
            self._pause = FIRST_PAUSE
            _say(f"the server at {self._where} disconnected; waiting for it")
        while not self._stopped.wait(self._pause):
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            try:
                return self.dial()
            except (BoughError, OSError):
                continue
        return None

    def has_all(self) -> bool:
        """Whether every record has ended here."""
        return not self._unended()

    def stop(self) -> None:
        """End the waiting between two tries."""
        self._stopped.set()


def ask_outcomes(outbox: Outbox, records: Sequence[Place]) -> Iterator[Ask]:
    """Questions to be told of the ends of records, as these come."""
    for at in range(0, len(records), AT_ONCE):
        yield Ask(outbox.new_number(), questions.Outcomes(_places(records[at : at + AT_ONCE])))


def _places(records: Sequence[Place]) -> list[tuple[RecordId, int]]:
    """Records, each with the first of its elements that is asked about."""
    return [(RecordId(one), 0) if isinstance(one, int) else (RecordId(one[0]), one[1]) for one in records]


def _say(text: str) -> None:
    sys.stderr.write(f"bough: {harmless(text)}\n")
    sys.stderr.flush()
