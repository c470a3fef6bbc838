"""The user's own server, for sessions that name sites: found if it runs, started if not; and the sites it knows.

A server that is started here is detached, keeps its records in `$BOUGH_HOME`, and ends by itself with its last workflow
(`bough server start --until-idle`). Rules: at most one server runs in `$BOUGH_HOME`: who starts one holds a lock, and
the others find that one. A server that is about to end is waited for, and another one is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from bough import private
from bough.api.client.connection import refusal
from bough.api.session.detached_process import DetachedProcess
from bough.errors import PeerLost, SiteError, UnknownName, UserError, did_you_mean
from bough.model.sites.site_specs import SiteSpec
from bough.stores.folder.store_lock import is_held
from bough.transport import home
from bough.transport.access import UNIX, find_access
from bough.transport.dial import dial
from bough.wire import questions
from bough.wire.client_messages import VERSION, Answer, Ask, ClientHello, Refused, ToClient, Welcome
from bough.wire.framing import frame_list, to_client_frames
from bough.wire.questions import Question, read_reply

LOCAL: Final = "local"  # the site that is this machine
_PATIENCE: Final = 120.0  # seconds for a server to come up, or for the one before it to end
_ANSWER: Final = 60.0  # seconds for an answer
_LOOK: Final = 0.05  # seconds between two looks
_TRIES: Final = 5  # servers that end while they are asked
_LOG: Final = "server.log"

T = TypeVar("T")


# --- the server -----------------------------------------------------------------------------------------


def find_or_start(words: Sequence[str] = ()) -> str:
    """The address of the user's own server, which is there and answers; it is started if there is none.

    One that is started has the policies that are given as options of `bough server start`.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        found = _running()
        if found:
            return found
        with _starting() as is_ours:
            if is_ours and not is_held(home.server_dir()):  # else one is just starting, or ending
                _start(until, words)
                continue
        if time.monotonic() > until:
            raise SiteError(
                f"a server in {home.home()} has been starting or ending for {_PATIENCE:g} s;"
                f" see {os.path.join(home.server_dir(), _LOG)}"
            )
        time.sleep(_LOOK)


def _running() -> str:
    """The address of the server that runs; empty: none does."""
    note = home.read_note()
    if note is None:
        return ""
    if note.host != socket.gethostname():
        if note.address:
            return note.address  # the home directory is shared, the socket is not
        raise SiteError(
            f"the server of {home.home()} runs on {note.host} and serves that machine only: end it there with"
            " bough server stop, or set $BOUGH_HOME for another"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(note.socket)
        except OSError:
            return ""
    return f"{UNIX}{note.socket}"


@contextlib.contextmanager
def _starting() -> Iterator[bool]:
    """Whether this process is the one that may start a server now."""
    path = os.path.join(home.make_server_dir(), "starting")
    with open(path, "ab", opener=private.opener) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _start(until: float, words: Sequence[str]) -> None:
    """Start a server, and wait until it is there."""
    path = os.path.join(home.make_server_dir(), _LOG)
    process = DetachedProcess(["server", "start", "--until-idle", *words], path)
    while process.poll() is None:
        note = home.read_note()
        if note is not None and note.pid == process.pid and _running():
            process.let_go()
            return
        if time.monotonic() > until:
            process.kill()
            break
        time.sleep(_LOOK / 2)
    raise SiteError(f"your server did not start: {process.last_words() or 'it said nothing'}; see {path}")


# --- its sites ------------------------------------------------------------------------------------------


def server_for(names: Sequence[str], words: Sequence[str] = ()) -> str:
    """The address of the user's own server, which knows these sites."""

    def settle(address: str) -> str:
        settle_sites(address, names)
        return address

    return asked_of_own(settle, words)


def asked_of_own(ask: Callable[[str], T], words: Sequence[str] = ()) -> T:
    """Ask the user's own server something, by its address; one that ends meanwhile is followed by the next."""
    for left in reversed(range(_TRIES)):
        address = find_or_start(words)
        try:
            return ask(address)
        except PeerLost:
            if not left:
                raise
            time.sleep(_LOOK)
    raise AssertionError("the last try returns or raises")


def check_replication(address: str, wanted: str) -> None:
    """See that a server has the replication policy that a session wants: it is the server's to choose one."""
    with _Questions(address) as server:
        status = server.ask(questions.Status())
    has = str(status.get("replication", "none"))
    if has != wanted:
        raise UserError(
            f"replication is {wanted!r}, but the server was started with {has!r}: leave it out, or start the server"
            f" with bough server start --replication {wanted}"
        )


def settle_sites(address: str, names: Sequence[str]) -> None:
    """See to it that a server knows these sites; UnknownName if one has not been added.

    This machine need not be added: the server is told to start executors here, if it has none.
    """
    with _Questions(address) as server:
        there: dict[str, dict[str, Any]] = {site["site"]: site for site in server.ask(questions.Sites())}
        for name in names:
            if name not in there and name != LOCAL:
                known = sorted({LOCAL, *there})
                raise UnknownName(
                    f"there is no site {name!r}; there are: {', '.join(known)}{did_you_mean(name, known)};"
                    f" add it with bough site add {name} --ssh HOST"
                )
        own = there.get(LOCAL)
        if LOCAL in names and (own is None or (own["spec"] is None and not own["executors"])):
            try:
                server.ask(questions.DefineSite(LOCAL, SiteSpec(kind=LOCAL)))
            except UserError as error:
                raise UnknownName(f"the server at {address} has no executor at the site {LOCAL}: {error}") from error


class _Questions:
    """A connection for a few questions. It opens no workflow."""

    def __init__(self, address: str) -> None:
        dialled = dial(find_access(address, role="submit"))
        self._sock = dialled.sock
        self._sock.settimeout(_ANSWER)
        self._frames = to_client_frames()
        self._heard: list[ToClient] = self._frames.feed(dialled.leftover) if dialled.leftover else []
        self._numbers = itertools.count(1)
        hello = ClientHello(VERSION, os.getpid(), socket.gethostname())
        try:
            self._send([dialled.proof, hello] if dialled.proof is not None else [hello])
            while not isinstance(self._next(), Welcome):
                pass
        except BaseException:
            self._sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.close()

    def ask(self, question: Question[T]) -> T:
        """Ask one, and wait for the answer."""
        number = next(self._numbers)
        self._send([Ask(number, question)])  # type: ignore[arg-type]
        while True:
            message = self._next()
            if isinstance(message, Answer) and message.request == number:
                return read_reply(question, message.value)

    def _send(self, messages: list[Any]) -> None:
        try:
            self._sock.sendall(frame_list(messages))
        except OSError as error:
            raise PeerLost(f"the server went away: {error.strerror}") from error

    def _next(self) -> ToClient:
        while not self._heard:
            try:
                data = self._sock.recv(1 << 16)
            except OSError as error:
                raise PeerLost(f"the server does not answer: {error.strerror or 'it takes too long'}") from error
            if not data:
                raise PeerLost("the server went away before it answered")
            self._heard = self._frames.feed(data)
        message = self._heard.pop(0)
        if isinstance(message, Refused):
            raise refusal(message)
        return message
