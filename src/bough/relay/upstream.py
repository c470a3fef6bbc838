"""The relay's own connection: to its server, or to a relay that is nearer to it.

Rule: the relay says nothing before it knows that it is its server; what failed is a `BoughError`, transient if trying
again may help.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from bough.errors import BoughError, PeerLost, ProtocolError, UserError
from bough.transport.access import NO_CERTIFICATE, Access, find_access, make_tokens, read_token, token_bytes
from bough.transport.dial import Place, places, try_next_place, tune, unreachable
from bough.transport.home import read_note
from bough.transport.relay_line import LOST, RelayLine
from bough.transport.tls import check_pin, client_context
from bough.wire.client_messages import VERSION, Challenge, Refused
from bough.wire.handshake import NONCE, prove
from bough.wire.relay_channels import RelayHello, RelayWelcome, ToRelay

M = TypeVar("M")
_LINK_WITHIN = 10.0  # seconds for all of it
_SHORTEST, _LONGEST = 0.01, 1e6  # seconds of a heartbeat


def find_upstream(server: str | None) -> tuple[Access, Access]:
    """How the relay reaches its server, and what executors behind it need to prove themselves there."""
    access = find_access(server, "execute")
    if access.is_proven:
        return access, access
    note = read_note()
    if note is None or not os.path.exists(note.socket) or not os.path.samefile(note.socket, access.path):
        raise UserError(
            f"the server at {access.address} is not your own, so that executors cannot prove themselves to it:"
            " use an access file, which bough server access --role execute writes"
        )
    make_tokens()
    fingerprint = note.fingerprint or NO_CERTIFICATE
    return access, Access(access.address, "", "execute", read_token("execute"), fingerprint)


class _Lost(NamedTuple):
    """The line is gone before it was let in; without a reason the other end hung up."""

    reason: str


async def link(access: Access, site: str, on_lost: Callable[[str], None]) -> RelayLine:
    """Connect and be let in."""
    said: asyncio.Queue[object] = asyncio.Queue()
    linked = False

    def lost(reason: str) -> None:
        said.put_nowait(_Lost("" if reason == LOST else reason))
        if linked:
            on_lost(reason)

    line = RelayLine(ToRelay, opens=True, on_message=said.put_nowait, on_lost=lost)
    try:
        async with asyncio.timeout(_LINK_WITHIN):
            await _connect(access, line)
            answer = await _introduce(access, site, line, said)
    except BaseException as error:
        line.abort("it was not let in")
        if isinstance(error, TimeoutError):
            raise unreachable(access.address, error) from error
        raise
    if not _SHORTEST <= answer.heartbeat <= _LONGEST:
        line.abort("its heartbeat makes no sense")
        raise ProtocolError(f"the server at {access.address} wants a heartbeat every {answer.heartbeat:g} s")
    if not line.is_open:
        raise PeerLost(f"the server at {access.address} closed the connection during the handshake", transient=True)
    linked = True
    line.watch(answer.heartbeat)
    return line


async def _connect(access: Access, line: RelayLine) -> None:
    found = await asyncio.to_thread(places, access)
    problem: BoughError | None = None
    for place in found:
        try:
            await _connect_to(access, place, line)
        except ssl.SSLError as error:
            problem = ProtocolError(f"the server at {access.address} does not speak TLS 1.3: {error.reason}")
        except OSError as error:
            problem = unreachable(access.address, error)
        else:
            return
        try_next_place(access)
    assert problem is not None
    raise problem


async def _connect_to(access: Access, place: Place, line: RelayLine) -> None:
    loop = asyncio.get_running_loop()
    sock = socket.socket(place[0], socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if place[0] == socket.AF_UNIX:
            await loop.sock_connect(sock, place[1])
            await loop.create_unix_connection(lambda: line, sock=sock)
            return
        tune(sock)
        await loop.sock_connect(sock, place[1])
        transport, _ = await loop.create_connection(
            lambda: line, sock=sock, ssl=client_context(), server_hostname="", ssl_handshake_timeout=_LINK_WITHIN
        )
    except BaseException:
        sock.close()
        raise
    check_pin(transport.get_extra_info("ssl_object"), access.fingerprint, access.address)


async def _introduce(access: Access, site: str, line: RelayLine, said: asyncio.Queue[object]) -> RelayWelcome:
    """The handshake, on the server's side as for an executor."""
    where = access.address
    hello = RelayHello(VERSION, socket.gethostname(), os.getpid(), site)
    if access.is_proven:
        challenge = _understood(await said.get(), Challenge, where)
        if challenge.version != VERSION:
            raise ProtocolError(f"the server at {where} speaks version {challenge.version}, this is {VERSION}")
        token = token_bytes(access.token, f"the access to {where}")
        nonce = secrets.token_bytes(NONCE)
        line.say(prove(access.role, token, challenge.nonce, nonce, access.proven_to), hello)
    else:
        line.say(hello)
    return _understood(await said.get(), RelayWelcome, where)


def _understood(message: object, kind: type[M], where: str) -> M:
    if isinstance(message, kind):
        return message
    if isinstance(message, _Lost):
        if message.reason:
            raise ProtocolError(f"the server at {where} speaks another language: {message.reason}")
        raise PeerLost(f"the server at {where} closed the connection during the handshake", transient=True)
    if isinstance(message, Refused):
        if message.kind == "PeerLost":  # another relay's word
            raise PeerLost(f"no way on from {where}: {message.message}", transient=True)
        raise (UserError if message.kind == "UserError" else ProtocolError)(f"refused by {where}: {message.message}")
    raise ProtocolError(f"the server at {where} said {type(message).__name__} during the handshake")
