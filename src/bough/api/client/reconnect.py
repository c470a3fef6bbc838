"""A connection to a service, which outlives the server's process: when it breaks, it is made again.

While the server is away submissions gather, and whoever waits goes on waiting. Once it is back it hears again
what it did not acknowledge, and is asked how everything ended that has not ended here. Rule: only a refusal, the
session itself or a workflow that is no longer there ends it.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec

from bough.api.client.client_socket import line_over
from bough.api.client.connection import Connection, refusal
from bough.api.client.outbox import Outbox
from bough.errors import BoughError, PeerLost, ProtocolError, UnknownName, UserError
from bough.model.events.facts import PagesAdded
from bough.model.ids import RecordId
from bough.model.tasks import Item
from bough.wire import questions
from bough.wire.client_messages import (
    Amend,
    Answer,
    Ask,
    ClientHello,
    Closed,
    CloseSession,
    Farewell,
    Refused,
    ToClient,
    Welcome,
)

FIRST_PAUSE = 0.1  # seconds before the first try to come back; doubled from try to try
LONGEST_PAUSE = 5.0
ORPHAN = 30.0  # seconds in which a server tells what it knows of a workflow that is over
AT_ONCE = 5_000  # records in one question

Place = int | tuple[int, int]  # a record, or a record and the first of its elements that has not ended
# A connected socket, what to say on it before the hello, and what was received already.
Dial = Callable[[], tuple[socket.socket, list[object], bytes]]


class LastingConnection(Connection):
    """See the module. `unended` gives the records that have not ended here."""

    def __init__(
        self,
        dial: Dial,
        where: str,
        *,
        hear: Callable[[Sequence[ToClient]], None],
        refused: Callable[[Item | PagesAdded, BoughError], None],
        lost: Callable[[BoughError | None], None],
        unended: Callable[[], Sequence[Place]],
        bundle: int = 0,
    ) -> None:
        self._dial = dial
        self._where = where
        self._unended = unended
        sock, self._preface, ahead = dial()
        self._hello: ClientHello | None = None
        self._away = False  # the server is gone, or has not welcomed us again
        self._left = threading.Event()  # the session wants no more of it
        self._leaving: BoughError | None = None  # what it is told to those who still wait
        self._farewell: CloseSession | None = None
        self._orphaned: BoughError | None = None  # the workflow is not there any more, why
        self._pause = FIRST_PAUSE
        self._last_question = 0  # of an orphan, about what it has not heard of
        self._is_settling = False  # that question was answered: what is known is being told
        super().__init__(sock, hear, refused, lost)
        self._outbox = Outbox(keeps=True, bundle=bundle)
        self._ahead = ahead

    def start(self, hello: object) -> None:
        """Say hello and begin to listen."""
        assert isinstance(hello, ClientHello)
        self._hello = hello
        with self._lock:
            self._send([*self._preface, hello])
        self._reader.start()

    @property
    def is_away(self) -> bool:
        """Whether the server is gone, and waited for."""
        return self._away

    # --- for callers --------------------------------------------------------------------------------

    def settle(self, patience: float | None = None) -> bool:
        """Wait until the server has acknowledged everything; False when the time was over before."""
        self.may_wait()
        with self._lock:
            self._flush(everything=True)
            return self._room.wait_for(lambda: self._gone is not None or not self._outbox.is_busy, patience)

    def leave(self, error: BoughError) -> None:
        """End the connection from our side; those who still wait are told the error."""
        self._leaving = error
        self._left.set()
        self._wake()
        self.ended.wait(5)

    def close(self, how: Farewell) -> None:
        """Say good-bye; it is said again to a server that comes back."""
        with self._lock:
            if self._gone is None:
                self._farewell = CloseSession(how)
                if not self._away:
                    self.post(self._farewell)

    def post(self, *messages: object) -> None:
        """Send messages after everything before them; a question waits with who asked it while the server is away."""
        for message in messages if self._away else ():
            if isinstance(message, Ask | Amend) and message.request in self._replies:
                return  # it comes alone
        super().post(*messages)

    def inquire(self, records: Sequence[Place]) -> None:
        """Ask to be told of the ends of records; nobody waits for it here."""
        with self._lock:
            for at in range(0, len(records), AT_ONCE):
                self.post(Ask(self._outbox.new_number(), questions.Outcomes(_places(records[at : at + AT_ONCE]))))

    # --- sending, with the lock held ----------------------------------------------------------------

    def _flush(self, *, everything: bool = False) -> None:
        if not self._away:
            super()._flush(everything=everything)

    # --- reading ------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            error = self._attend()
            if self._left.is_set():
                error = self._leaving
                break
            if isinstance(error, ProtocolError):
                error = ProtocolError(f"what the server at {self._where} says cannot be understood: {error}")
            if self.closed is not None or not (error is None or isinstance(error, PeerLost)):
                break
            if self._welcome.value is None:  # we were never let in
                error = (
                    error
                    or self._welcome.error
                    or PeerLost(f"the server at {self._where} hung up before it answered; try again")
                )
                break
            if not self._come_back():
                error = self._leaving
                break
        self._leave(error)

    def _listen(self) -> None:
        if not self._left.is_set():
            super()._listen()

    def _wants_on(self) -> bool:
        return not self._left.is_set()

    def _come_back(self) -> bool:
        """Connect again, however long it takes; False when the session left meanwhile."""
        with self._lock:
            was_away, self._away = self._away, True
            self._unsent.clear()
            self._line.close()
        if not was_away:
            _say(f"the server at {self._where} is gone; waiting for it")
            self._pause = FIRST_PAUSE
        while not self._left.wait(self._pause):
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            try:
                sock, preface, self._ahead = self._dial()
            except (BoughError, OSError):
                continue
            with self._lock:
                self._line = line_over(sock)
                self._send([*preface, self._hello_again()])
            return True
        return False

    def _hello_again(self) -> ClientHello:
        assert self._hello is not None
        if self._orphaned is not None:
            return ClientHello(self._hello.version, self._hello.pid, self._hello.host, user=self._hello.user)
        return msgspec.structs.replace(self._hello, join=True, fresh=False)

    def _welcomed(self, message: Welcome) -> None:
        if not self._away:
            super()._welcomed(message)
            return
        with self._lock:
            self._away = False
            if self._orphaned is not None:
                self._last_question = self._outbox.new_number()
                self.post(Ask(self._last_question, questions.Outcomes(_places(self._unended()))))
                return
            self._outbox.rewind()
            for reply in list(self._replies.values()):
                if isinstance(reply.message, Ask | Amend) and not reply.event.is_set():
                    self._outbox.post(reply.message)
            self._flush(everything=True)
            self.inquire(self._unended())
            if self._farewell is not None:
                self.post(self._farewell)
        _say(f"the server at {self._where} is back")

    def _handle(self, messages: Sequence[ToClient]) -> None:
        super()._handle(messages)
        if self._is_settling and not self._unended():
            self.closed = Closed("done")

    def _answered(self, message: Answer) -> None:
        if self._last_question and message.request == self._last_question:
            self._is_settling = True
            assert self._orphaned is not None
            if not message.value:
                raise self._orphaned
            timer = threading.Timer(ORPHAN, self.leave, (self._orphaned,))
            timer.daemon = True
            timer.start()
            return
        with self._lock:
            self._outbox.answered(message.request)
        super()._answered(message)

    def _refuse(self, message: Refused) -> None:
        if self._away and message.request == 0:
            error = refusal(message)
            if isinstance(error, UnknownName) and self._orphaned is None:
                self._orphaned = UserError(f"{error}; what became of its tasks is not known")
            elif isinstance(error, ProtocolError):
                raise error
            raise PeerLost(str(error))  # it may still believe in the connection that broke: try again
        super()._refuse(message)


def _places(records: Sequence[Place]) -> list[tuple[RecordId, int]]:
    """Records, each with the first of its elements that is asked about."""
    return [(RecordId(one), 0) if isinstance(one, int) else (RecordId(one[0]), one[1]) for one in records]


def _say(text: str) -> None:
    sys.stderr.write(f"bough: {text}\n")
    sys.stderr.flush()
