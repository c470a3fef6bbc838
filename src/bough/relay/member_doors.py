"""Doors of a relay: ports at which peers elsewhere reach members that only this host reaches.

A door is for one member. What comes in goes to the member and back, byte for byte: reader and member speak TLS with
each other, and the reader's ticket is the member's business. A door is opened when a reader is sent to it for the
first time, and shut when its member is gone.

Rule: an end that cannot take more makes the other one stop reading, and there are not more connections than a member
serves readers, and some that are idle.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final, NamedTuple

from bough import logs
from bough.model.ids import ExecutorId, Seconds
from bough.relay.forward import TiedEnd

_MOST: Final = 64  # connections through one door
_REACH: Final[Seconds] = 3.0  # for the way to the member
_BACKLOG: Final = 64
_GREETING: Final = 1 << 14  # bytes of TLS


class _Outside(TiedEnd):
    """The end of a reader. What it says before its member is reached is kept: it greets, and waits for an answer."""

    def __init__(self, door: _Door) -> None:
        super().__init__()
        self._door = door
        self._greeting = b""
        self.other = TiedEnd()
        self.other.other = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reach the member, unless there are too many."""
        super().connection_made(transport)
        assert self.transport is not None
        if len(self._door.open) >= _MOST:
            self.transport.abort()
            return
        self._door.open.add(self)
        task = asyncio.get_running_loop().create_task(self._reach())
        self._door.reaching.add(task)
        task.add_done_callback(self._door.reaching.discard)

    async def _reach(self) -> None:
        try:
            async with asyncio.timeout(_REACH):
                await asyncio.get_running_loop().create_connection(lambda: self.other, *self._door.member)
        except OSError:
            self.abort()
        if self.transport is None:  # it has hung up meanwhile
            self.other.abort()
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        """Pass it on, behind what was kept, or keep it for now."""
        said, self._greeting = self._greeting + data, b""
        if self.other.transport is not None:
            super().data_received(said)
        elif len(said) <= _GREETING:
            self._greeting = said
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It left, or is to leave."""
        self._door.open.discard(self)
        super().connection_lost(exc)


class _Door:
    """One of them."""

    def __init__(self, member: tuple[str, int], listener: socket.socket) -> None:
        self.member = member
        self.port = int(listener.getsockname()[1])
        self.open: set[_Outside] = set()
        self.reaching: set[asyncio.Task[None]] = set()
        self._listening = asyncio.get_running_loop().create_task(self._listen(listener))

    async def _listen(self, listener: socket.socket) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Outside(self), sock=listener)
        try:
            await server.serve_forever()
        finally:
            server.close()

    def shut(self) -> None:
        """Let nobody else in, and hang up."""
        self._listening.cancel()
        for end in list(self.open):
            end.abort()


class Way(NamedTuple):
    """Where a door is."""

    address: str
    port: int


class MemberDoors:
    """See the module. `address`: where others reach this host; empty: they do not."""

    def __init__(self) -> None:
        self.address = ""
        self._host = socket.gethostname()
        self._doors: dict[ExecutorId, _Door] = {}

    def serve(self, host: str) -> bool:
        """Whether a reader on such a host can come here."""
        return bool(self.address) and (not ipaddress.ip_address(self.address).is_loopback or host == self._host)

    def way_to(self, number: ExecutorId, address: str, port: int) -> Way | None:
        """The door to a member that listens there; None: there can be none."""
        door = self._doors.get(number)
        if door is not None and door.member != (address, port):
            self.shut(number)
            door = None
        if door is None and self.address:
            try:
                family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
                listener = socket.create_server((self.address, 0), family=family, backlog=_BACKLOG)
            except OSError as error:
                logs.warning("peer-not-offered", f"executor {number} has no way for peers elsewhere: {error}")
                return None
            door = self._doors[number] = _Door((address, port), listener)
        return Way(self.address, door.port) if door is not None else None

    def shut(self, number: ExecutorId) -> None:
        """A member is gone."""
        door = self._doors.pop(number, None)
        if door is not None:
            door.shut()

    def close(self) -> None:
        """The relay ends."""
        for number in list(self._doors):
            self.shut(number)
