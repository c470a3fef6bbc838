"""Talking to a live session's server or to a service: one question, one answer, blocking.

Rule: a server that is not there is not an error (`connect` gives None); one that is there and does not
answer in time, or speaks another version, is a `SiteError`.
"""

from __future__ import annotations

import itertools
import os
import socket
from types import TracebackType
from typing import Self, TypeVar

from bough import errors
from bough.cli.finding import Place, Service, server_of
from bough.errors import BoughError, PeerLost, ProtocolError, UserError
from bough.model.facts import Cancelled, Declared, Held, Killed, Prioritised, Released, Reset, Retried
from bough.wire.framing import frame_list, to_client_frames
from bough.wire.messages import VERSION, Act, Answer, Ask, ClientHello, Refused, ToClient, Welcome
from bough.wire.questions import Question, check_bounds, read_reply

Deed = Cancelled | Killed | Held | Released | Reset | Declared | Retried | Prioritised

PATIENCE = 60.0  # seconds; a jobs database that has far to catch up takes a while

T = TypeVar("T")


class Server:
    """A connection to a live server that owns nothing: the session goes on when it ends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = to_client_frames()
        self._heard: list[ToClient] = []
        self._numbers = itertools.count(1)
        self.run = 0
        self.store = ""
        self.is_service = False
        self.most = 0  # bytes that it takes at once, if less than everywhere
        self.is_near = False  # on this machine, so that the paths it names are the ones here

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def greet(self, proof: object = None, leftover: bytes = b"") -> None:
        """Say hello, behind a proof if one is asked for, and wait for the welcome."""
        hello = ClientHello(VERSION, os.getpid(), socket.gethostname(), owner=False)
        self._send([proof, hello] if proof is not None else hello)
        self._heard = self._frames.feed(leftover) if leftover else []
        while True:
            match self._next():
                case Welcome() as welcome:
                    self.run, self.store, self.is_service = welcome.run, welcome.store, not welcome.embedded
                    return
                case Refused() as refused:
                    raise _refusal(refused)

    def ask(self, question: Question[T]) -> T:
        """Ask one question."""
        number = next(self._numbers)
        self._send(Ask(number, check_bounds(question)))  # type: ignore[arg-type]
        return read_reply(question, self._answer(number))

    def act(self, deed: Deed, left_out: list[str] | None = None) -> int:
        """Do something to tasks; the number of tasks it touched. What it left out, and why, is added to a list."""
        number = next(self._numbers)
        self._send(check_bounds(Act(number, deed)))
        answer = self._answer(number)
        if left_out is not None and isinstance(answer, dict):
            left_out += answer.get("left_out", ())
        touched = answer.get("tasks", 0) if isinstance(answer, dict) else answer
        return touched if isinstance(touched, int) else 0

    def _answer(self, number: int) -> object:
        while True:
            match self._next():
                case Answer(request, value) if request == number:
                    return value
                case Refused() as refused if refused.request in {0, number}:
                    raise _refusal(refused)

    def _send(self, message: object) -> None:
        try:
            data = frame_list(message if isinstance(message, list) else [message], self.most)
        except ProtocolError as error:
            raise UserError(f"what is asked for cannot be sent at once: {error}; ask for less") from error
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise PeerLost(f"the session's server went away: {error.strerror}") from error

    def _next(self) -> ToClient:
        while not self._heard:
            try:
                data = self._connection.recv(1 << 16)
            except TimeoutError as error:
                raise PeerLost(f"the session's server has not answered for {PATIENCE:.0f} s", transient=True) from error
            except OSError as error:
                raise PeerLost(f"the session's server went away: {error.strerror}") from error
            if not data:
                raise PeerLost("the session's server went away before it answered; ask again")
            try:
                self._heard = self._frames.feed(data)
            except ProtocolError as error:
                raise ProtocolError(f"what the server says cannot be understood: {error}") from error
        return self._heard.pop(0)


def connect(place: Place, patience: float = PATIENCE) -> Server | None:
    """The live server of a store, greeted; None when no session is running."""
    address = _address(place)
    if address is None:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(patience)
    try:
        connection.connect(address)
    except OSError:
        connection.close()  # its server is dead, or on another host: the store alone can answer
        return None
    server = Server(connection)
    try:
        server.greet()
    except BaseException:
        connection.close()
        raise
    return server


def connect_service(service: Service, *, acts: bool = False, patience: float = PATIENCE) -> Server:
    """A running service, greeted, to ask or to act; PeerLost when it cannot be reached."""
    from bough.transport.access import find_access
    from bough.transport.dial import dial
    from bough.wire.handshake import ROLE_FRAME

    access = find_access(service.address or None, role="submit" if acts else "read")
    dialled = dial(access)
    dialled.sock.settimeout(patience)
    server = Server(dialled.sock)
    server.is_near = access.is_unix
    server.most = ROLE_FRAME.get(access.role, 0) if access.is_proven else 0
    try:
        server.greet(dialled.proof, dialled.leftover)
    except BaseException:
        dialled.sock.close()
        raise
    return server


def _address(place: Place) -> str | None:
    said = server_of(place)
    return os.path.join(place.folder, said.socket) if said is not None and said.socket else None


def _refusal(refused: Refused) -> BoughError:
    kind = getattr(errors, refused.kind, UserError)
    if not (isinstance(kind, type) and issubclass(kind, BoughError)):
        kind = ProtocolError
    return kind(refused.message)
