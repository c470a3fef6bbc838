"""Relays at the server: one line each, and for every channel of it the same door as for a connection of its own.

A peer behind a relay proves itself to the server, not to the relay: the challenge, the proof and all that follows
travel on its channel. Rule: who comes by a channel gets a `Connection` like any other, and nothing behind it knows of
relays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bough.errors import BoughError, ProtocolError, UserError
from bough.server.connection import Connection, Listener
from bough.server.log import log
from bough.server.quotas import Quotas
from bough.transport.access import NO_CERTIFICATE
from bough.transport.line import Channel, Line
from bough.wire.messages import VERSION
from bough.wire.relaying import FromRelay, Linked, RelayHello

_MOST_STRANGERS = 512  # channels of one relay that have not proven anything yet


class Relays:
    """See the module. `fingerprint`: of the server's certificate, to which proofs are bound."""

    def __init__(self, listener: Listener, dirty: list[Connection], heartbeat: float) -> None:
        self._listener = listener
        self._dirty = dirty
        self._heartbeat = heartbeat
        self.fingerprint = ""
        self.quotas = Quotas()  # of all peers of the server, however they come
        self.lines: set[Line] = set()

    def greet(self, connection: Connection, hello: RelayHello, *, alone: bool) -> None:
        """A relay said hello: its connection becomes a line."""
        problem = self._problem(connection, hello, alone=alone)
        if problem is not None:
            connection.refuse(str(problem), type(problem).__name__)
            return
        transport = connection.release()
        if transport is None:
            return
        name = f"the relay {hello.pid} on host {hello.host}"
        door = _ChannelDoor(self._make, self.fingerprint or NO_CERTIFICATE, name)

        def lost(reason: str) -> None:
            self.lines.discard(line)
            log(f"{name} is gone: {reason}")

        line = Line(FromRelay, opens=False, on_opened=door.receive, on_lost=lost)
        self.lines.add(line)
        transport.set_protocol(line)
        line.connection_made(transport)
        line.say(Linked(VERSION, self._heartbeat))
        line.watch(self._heartbeat)
        log(f"{name} joined")

    def _make(self) -> Connection:
        return Connection(self._listener, self._dirty, quotas=self.quotas)

    def _problem(self, connection: Connection, hello: RelayHello, *, alone: bool) -> BoughError | None:
        if connection.role not in {"owner", "execute"}:
            return UserError("this access file is not for relays; ask for one with bough server access --role execute")
        if hello.version != VERSION:
            return ProtocolError(
                f"the server speaks version {VERSION} and the relay {hello.version}; use the same bough"
            )
        if not alone:
            return ProtocolError("a relay waits for the answer to its hello")
        return None


class _ChannelDoor:
    """Lets in who comes by the channels of one relay."""

    def __init__(self, make: Callable[[], Connection], fingerprint: str, name: str) -> None:
        from bough.transport.doorman import Doorman
        from bough.transport.strangers import Strangers
        from bough.transport.tokens import secret

        self._name = name
        self._doorman = Doorman(make, secret, fingerprint, say=log)
        self._strangers = Strangers(_MOST_STRANGERS)

    def receive(self, channel: Channel, peer: str) -> None:
        """One stranger; a relay lets fewer come than there may be, so that the oldest gives way only to a flood."""
        from bough.transport.strangers import Stranger

        if self._strangers.is_full:
            self._strangers.drop_oldest()
        loop = asyncio.get_running_loop()
        gate = self._doorman.gate(f"{peer} behind {self._name}")
        stranger = Stranger(lambda: gate.give_up("others came, and it had not proven anything"), loop.time())
        timer = loop.call_later(self._doorman.patience, gate.give_up, "no proof in time")

        def over(_: asyncio.Future[None]) -> None:
            timer.cancel()
            self._strangers.remove(stranger)

        gate.over.add_done_callback(over)
        self._strangers.add(stranger, speaks=True)
        channel.begin(gate)
