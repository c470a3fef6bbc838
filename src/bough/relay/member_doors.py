"""Doors of a relay: ports at which peers elsewhere reach members that only this host reaches.

A door is for one member. What comes in goes to the member and back, byte for byte: reader and member speak TLS with
each other, and the reader's ticket is the member's business. A door is opened when a reader is sent to it for the
first time, and shut when its member is gone.

Rules: an end that cannot take more makes the other one stop reading, and there are not more connections than a member
serves readers, and some that are idle. When there are too many, the one over which nothing went for longest gives way
to a new one, which waits for a moment if all are in use: a reader that is turned away takes the door for unreachable,
and is not sent to it for minutes.
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
_WAITING: Final = 64  # that are let in beyond these, to wait for a place
_QUIET: Final[Seconds] = 1.0  # after which a connection is taken to be kept for later
_LOOK: Final[Seconds] = 0.05  # between looks whether there is a place
_REACH: Final[Seconds] = 3.0  # for a place, and for the way to the member
_BACKLOG: Final = 64
_GREETING: Final = 1 << 14  # bytes of TLS


class _Outside(TiedEnd):
    """The end of a reader. What it says before its member is reached is kept: it greets, and waits for an answer."""

    def __init__(self, door: _Door) -> None:
        super().__init__()
        self._door = door
        self._greeting = b""
        self.moved_at: Seconds = 0.0  # when something went through last, either way
        self.other = _Inside(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reach the member, unless there are too many."""
        super().connection_made(transport)
        if len(self._door.reaching) >= _WAITING:
            self.abort()
            return
        self._door.coming.add(self)
        task = asyncio.get_running_loop().create_task(self._reach())
        self._door.reaching.add(task)
        task.add_done_callback(self._door.reaching.discard)

    async def _reach(self) -> None:
        try:
            async with asyncio.timeout(_REACH):
                if await self._door.give_place(self):
                    await asyncio.get_running_loop().create_connection(lambda: self.other, *self._door.member)
        except (OSError, ValueError):  # a ValueError: it is no address
            self.abort()
        if self.transport is None:  # it has hung up meanwhile
            self.other.abort()
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        """Pass it on, behind what was kept, or keep it for now."""
        self.moved_at = asyncio.get_running_loop().time()
        said, self._greeting = self._greeting + data, b""
        if self.other.transport is not None:
            super().data_received(said)
        elif len(said) <= _GREETING:
            self._greeting = said
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It left, or is to leave."""
        self._door.coming.discard(self)
        self._door.open.discard(self)
        super().connection_lost(exc)


class _Inside(TiedEnd):
    """The end of the member."""

    def __init__(self, reader: _Outside) -> None:
        super().__init__()
        self.other = self._reader = reader

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        self._reader.moved_at = asyncio.get_running_loop().time()
        super().data_received(data)


class _Door:
    """One of them."""

    def __init__(self, member: tuple[str, int], address: str, listener: socket.socket) -> None:
        self.member = member
        self.address = address
        self.port = int(listener.getsockname()[1])
        self.coming: set[_Outside] = set()  # they have no place yet
        self.open: set[_Outside] = set()
        self.reaching: set[asyncio.Task[None]] = set()
        self._listening = asyncio.get_running_loop().create_task(self._listen(listener))
        self._listening.add_done_callback(lambda _: listener.close())  # it may have ended before it began

    async def _listen(self, listener: socket.socket) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Outside(self), sock=listener)
        try:
            await server.serve_forever()
        finally:
            server.close()

    async def give_place(self, end: _Outside) -> bool:
        """Let one more in, as soon as there is a place; False: it has left meanwhile."""
        loop = asyncio.get_running_loop()
        while len(self.open) >= _MOST and end in self.coming:
            quiet = min(self.open, key=lambda one: one.moved_at)
            if loop.time() - quiet.moved_at > _QUIET:
                self.open.discard(quiet)
                quiet.abort()
            else:
                await asyncio.sleep(_LOOK)
        if end not in self.coming:
            return False
        self.coming.discard(end)
        self.open.add(end)
        end.moved_at = loop.time()
        return True

    def shut(self) -> None:
        """Let nobody else in, and hang up."""
        self._listening.cancel()
        for end in (*self.coming, *self.open):
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
        """The door to a member that listens there; None: there can be none. This host may have a new address by now."""
        door = self._doors.get(number)
        if door is not None and (door.member, door.address) != ((address, port), self.address):
            self.shut(number)
            door = None
        if door is None and self.address:
            try:
                family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
                listener = socket.create_server((self.address, 0), family=family, backlog=_BACKLOG)
            except OSError as error:
                logs.warning("peer-not-offered", f"executor {number} has no way for peers elsewhere: {error}")
                return None
            door = self._doors[number] = _Door((address, port), self.address, listener)
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
