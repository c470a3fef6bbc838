"""Talks to live servers, starts processes in the background, and waits for other processes of ours.

A client asks one question and blocks until its answer. Rule: a session's server that is not there is no error
(`connect` gives None); a server that is there and does not answer in time, or speaks another version, is a `SiteError`.
`detach` returns only when the process that it started answers, or says why it does not. A process is watched by a
descriptor where the system has them, so that another one that gets its number is never taken for it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from bough import errors
from bough.api.session.detached_process import DetachedProcess
from bough.cli.targets.locate import ServerLocation, is_running, server_of
from bough.errors import BoughError, PeerLost, ProtocolError, SiteError, UserError
from bough.model.bounds import check_bounds
from bough.model.events.news import Action
from bough.model.ids import BlobId, ExecutorId
from bough.model.tasks import Dep
from bough.transport.access import find_access
from bough.transport.dial import dial
from bough.transport.home import make_server_dir
from bough.wire.client_messages import (
    VERSION,
    Answer,
    Ask,
    Blob,
    ClientHello,
    DoAction,
    Management,
    ManageService,
    Refused,
    ToClient,
    Welcome,
)
from bough.wire.framing import frame_list, to_client_frames
from bough.wire.handshake import ROLE_FRAME
from bough.wire.questions import Question, read_reply

MakeAction = Callable[[Dep, int], Action]  # of a target, and where a slice of it ends

ANSWER_TIMEOUT = 60.0  # seconds; a jobs database that has far to catch up takes a while
START_TIMEOUT = 30.0  # seconds that something started in the background has to answer
_LOOK = 0.02  # seconds between looks, where there are no descriptors of processes

T = TypeVar("T")


class ServerClient:
    """A connection to a live server that owns nothing: the session stays when it ends."""

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

    def act(self, action: Action, left_out: list[str] | None = None) -> int:
        """Do something to tasks; the number of tasks it touched. What it left out, and why, is added to a list."""
        number = next(self._numbers)
        self._send(check_bounds(DoAction(number, action)))
        answer = self._answer(number)
        if left_out is not None and isinstance(answer, dict):
            left_out += answer.get("left_out", ())
        touched = answer.get("tasks", 0) if isinstance(answer, dict) else answer
        return touched if isinstance(touched, int) else 0

    def put_blob(self, blob: BlobId, data: bytes) -> None:
        """Send what an action names that follows."""
        self._send(Blob(blob, data))

    def manage(self, what: Management, executors: Sequence[int] = ()) -> object:
        """Tell a service, or executors of it, what to do; wait for the answer."""
        number = next(self._numbers)
        self._send(ManageService(number, what, [ExecutorId(one) for one in executors]))
        return self._answer(number)

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
                raise PeerLost(
                    f"the session's server has not answered for {ANSWER_TIMEOUT:.0f} s", transient=True
                ) from error
            except OSError as error:
                raise PeerLost(f"the session's server went away: {error.strerror}") from error
            if not data:
                raise PeerLost("the session's server went away before it answered; ask again")
            try:
                self._heard = self._frames.feed(data)
            except ProtocolError as error:
                raise ProtocolError(f"what the server says cannot be understood: {error}") from error
        return self._heard.pop(0)


def connect(place: ServerLocation) -> ServerClient | None:
    """The live server of a store, greeted; None when no session is running."""
    address = _address(place)
    if address is None:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ANSWER_TIMEOUT)
    try:
        connection.connect(address)
    except OSError:
        connection.close()  # its server is dead, or on another host: the store alone can answer
        return None
    server = ServerClient(connection)
    try:
        server.greet()
    except BaseException:
        connection.close()
        raise
    return server


def _address(place: ServerLocation) -> str | None:
    said = server_of(place)
    return os.path.join(place.folder, said.socket) if said is not None and said.socket else None


def _refusal(refused: Refused) -> BoughError:
    kind = getattr(errors, refused.kind, UserError)
    if not (isinstance(kind, type) and issubclass(kind, BoughError)):
        kind = ProtocolError
    return kind(refused.message)


def connect_client(server: str | None, role: str = "submit", timeout: float | None = ANSWER_TIMEOUT) -> ServerClient:
    """The service that was named, or the user's own; PeerLost when it cannot be reached. `timeout` is for answers."""
    access = find_access(server, role)
    dialled = dial(access)
    dialled.sock.settimeout(timeout)
    service = ServerClient(dialled.sock)
    service.is_near = access.is_unix
    service.most = ROLE_FRAME.get(access.role, 0) if access.is_proven else 0
    try:
        service.greet(dialled.proof, dialled.leftover)
    except BaseException:
        dialled.sock.close()
        raise
    return service


def add_server_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names the server."""
    parser.add_argument(
        "--server", metavar="ADDRESS", help="unix:PATH, HOST:PORT or an access file (default: $BOUGH_SERVER, your own)"
    )


# --- processes ----------------------------------------------------------------------------------------


def detach(
    words: Sequence[str], log_name: str, is_up: Callable[[int], bool], folder: str = "", *, more: float = 0.0
) -> int:
    """Start `python -m bough.cli.main WORDS` in a session of its own; its pid, once `is_up` says so.

    `more`: seconds that it may take longer than most.
    """
    log_path = os.path.join(folder or make_server_dir(), log_name)
    process = DetachedProcess(words, log_path)
    timeout = START_TIMEOUT + more
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        code = process.poll()
        if code is not None:
            problem = SiteError(process.last_words() or f"it ended with {code}; see {log_path}")
            problem.exit_code = code if code > 0 else 3
            raise problem
        try:
            if is_up(process.pid):
                process.let_go()
                return process.pid
        except PeerLost:
            pass
        time.sleep(0.02)
    process.kill()
    raise SiteError(f"it did not come up within {timeout:g} s: {process.last_words()}; see {log_path}")


class OtherProcess:
    """A process by its number, from now on; one that is gone already counts as ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = -1
        self._gone = False
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone = True
        except (AttributeError, OSError):  # an old kernel, or another system
            self._gone = not is_running(pid)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, within so many seconds."""
        until = time.monotonic() + seconds
        poll = select.poll()
        if self._descriptor >= 0:
            poll.register(self._descriptor, select.POLLIN)
        while not self._gone and (left := until - time.monotonic()) > 0:
            if self._descriptor >= 0:
                self._gone = bool(poll.poll(left * 1000))
            else:
                time.sleep(min(_LOOK, left))
                self._gone = not is_running(self._pid)
        return self._gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def is_bough(pid: int) -> bool:
    """Whether a process with this number runs, and is one of Bough's as far as can be seen."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"bough" in file.read()
    return False
