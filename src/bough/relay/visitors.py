"""Connections of executors to a relay that shares out work, and who stands behind them.

Rule: as cheap as can be, for there may be many thousands: no timer, no task, no buffer of its own.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Protocol, cast

from bough.errors import ProtocolError
from bough.model.ids import Seconds
from bough.relay.log import log
from bough.relay.members import Member
from bough.wire.framing import Frames, frame_list
from bough.wire.handshake import ROLE_FRAME
from bough.wire.messages import Refused
from bough.wire.relaying import RelayHello
from bough.wire.work import ExecutorHello, FromExecutor

if TYPE_CHECKING:
    from bough.relay.wide import Wide

_SAID = FromExecutor | RelayHello  # the latter only to be told that it is no place for it
_MOST_UNSENT = 1 << 28  # bytes an executor may leave unread before it is cut off


class Visitor:
    """An executor that has said hello, connected or missing."""

    __slots__ = ("carries", "heard_at", "hello", "index", "leaving", "link", "member", "missing_until", "wide")

    def __init__(self, hello: ExecutorHello, member: Member, index: int) -> None:
        self.hello = hello
        self.member = member
        self.index = index  # by which its requests are known
        self.link: Link | None = None
        self.wide: Wide | None = None  # once it has said what it holds
        self.heard_at: Seconds = 0.0
        self.missing_until: Seconds = 0.0  # when it is given up, if it is missing
        self.leaving = ""  # why it wants no more work
        self.carries = False  # it has asked for files, or offered some


class Host(Protocol):
    """Who is told what executors say."""

    def heard(self, link: Link, messages: list[FromExecutor | RelayHello]) -> None:
        """Messages arrived, in order."""

    def lost(self, link: Link) -> None:
        """The connection is gone; called once."""


class Link(asyncio.Protocol):
    """One connection, from the moment its proof has held."""

    __slots__ = ("_frames", "_host", "_transport", "role", "visitor")

    def __init__(self, host: Host) -> None:
        self.role = ""
        self.visitor: Visitor | None = None
        self._host = host
        self._frames: Frames[FromExecutor | RelayHello] = Frames(_SAID, ROLE_FRAME["execute"])
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is let in."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """It spoke; one that makes no sense is cut off."""
        try:
            messages = self._frames.feed(data)
        except ProtocolError as error:
            self.refuse(str(error), "ProtocolError")
            return
        if messages:
            try:
                self._host.heard(self, messages)
            except Exception:  # noqa: BLE001 -- whatever it is, it concerns this executor: the others go on
                log(f"what an executor said could not be handled, it is cut off:\n{traceback.format_exc()}")
                self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._transport = None
        self._host.lost(self)

    def send(self, messages: list[object]) -> int:
        """Say something, in one frame; how many bytes that are."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return 0
        try:
            data = frame_list(messages)
        except ProtocolError:  # too big together
            return sum(self.send([message]) for message in messages) if len(messages) > 1 else 0
        transport.write(data)
        if transport.get_write_buffer_size() > _MOST_UNSENT:
            transport.abort()
        return len(data)

    def refuse(self, message: str, kind: str) -> None:
        """Say why, and hang up."""
        self.send([Refused(message, kind=kind)])
        self.close()

    def close(self) -> None:
        """Hang up once everything said has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()
