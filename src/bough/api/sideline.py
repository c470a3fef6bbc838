"""A second connection of a session to its service, for files: blocking, one question at a time.

It belongs to no workflow and is made when it is first needed, so that big files keep nothing else waiting and outputs
can still be fetched when the workflow is over. Rule: a server that is away is waited for, as the session does.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bough.api.connection import refusal
from bough.errors import PeerLost
from bough.transport.access import find_access
from bough.transport.dial import dial
from bough.wire.filemessages import PIECE, Put
from bough.wire.framing import frame_list, to_client_frames
from bough.wire.messages import VERSION, Answer, Ask, ClientHello, Refused, ToClient, Welcome
from bough.wire.questions import Question, check_bounds, read_reply

_AHEAD = 8  # pieces sent before the first is acknowledged
_SILENCE = 120.0  # seconds without an answer after which a connection is taken for broken
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between tries to come back

T = TypeVar("T")


class SideLine:
    """See the module. Methods may be called from any thread, but wait for each other."""

    def __init__(self, address: str, patience: float = 600.0) -> None:
        self._address = address
        self._patience = patience  # seconds that a server which is away is waited for
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._given_up = threading.Event()

    def ask(self, question: Question[T]) -> T:
        """Ask one question."""
        check_bounds(question)
        return read_reply(question, self._try(lambda link: link.ask(question)))

    def put(self, path: str, digest: bytes, size: int) -> None:
        """Send a file; a BoughError when the server does not take it, OSError when it cannot be read."""
        self._try(lambda link: link.put(path, digest, size))

    def close(self) -> None:
        """Hang up; whoever still waits gets a PeerLost."""
        self._given_up.set()
        link = self._link
        if link is not None:
            link.close()

    def _try(self, work: Callable[[_Link], T]) -> T:
        pause, waited = _FIRST_PAUSE, 0.0
        with self._lock:
            while True:
                try:
                    if self._link is None:
                        self._link = _Link(self._address)
                    return work(self._link)
                except PeerLost:
                    if self._link is not None:
                        self._link.close()
                        self._link = None
                    if waited >= self._patience or self._given_up.wait(pause):
                        raise
                    waited += pause
                    pause = min(2 * pause, _LONGEST_PAUSE)


class _Link:
    """One connection; a PeerLost when it breaks."""

    def __init__(self, address: str) -> None:
        dialled = dial(find_access(address, role="submit"))
        self._sock = dialled.sock
        self._sock.settimeout(_SILENCE)
        self._frames = to_client_frames()
        self._heard: deque[ToClient] = deque(self._frames.feed(dialled.leftover) if dialled.leftover else ())
        self._numbers = itertools.count(1)
        hello = ClientHello(VERSION, os.getpid(), socket.gethostname())
        self._send([dialled.proof, hello] if dialled.proof is not None else [hello])
        for message in self._next():
            if isinstance(message, Refused):
                raise refusal(message)
            if isinstance(message, Welcome):
                return

    def close(self) -> None:
        self._sock.close()

    def ask(self, question: Question[Any]) -> object:
        number = next(self._numbers)
        self._send([Ask(number, question)])  # type: ignore[arg-type]
        return self._answer(number)

    def put(self, path: str, digest: bytes, size: int) -> None:
        waiting: deque[int] = deque()
        with open(path, "rb") as file:
            at = 0
            while True:
                data = file.read(PIECE)
                number = next(self._numbers)
                self._send([Put(number, digest, size, at, data)])
                waiting.append(number)
                at += len(data)
                if len(waiting) >= _AHEAD:
                    self._answer(waiting.popleft())
                if at >= size or not data:
                    break
        for number in waiting:
            self._answer(number)

    def _answer(self, number: int) -> object:
        for message in self._next():
            if isinstance(message, Answer) and message.request == number:
                return message.value
            if isinstance(message, Refused) and message.request in {0, number}:
                raise refusal(message)
        raise AssertionError("a connection that ends raises")

    def _next(self) -> Iterator[ToClient]:
        while True:
            while self._heard:
                yield self._heard.popleft()
            try:
                data = self._sock.recv(1 << 18)
            except (OSError, ValueError) as error:
                raise PeerLost(f"the connection to the server broke: {error}") from error
            if not data:
                raise PeerLost("the server ended the connection")
            self._heard += self._frames.feed(data)

    def _send(self, messages: list[object]) -> None:
        try:
            self._sock.sendall(frame_list(messages))
        except (OSError, ValueError) as error:
            raise PeerLost(f"the connection to the server broke: {error}") from error
