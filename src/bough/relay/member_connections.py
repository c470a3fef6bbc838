"""Their connections; messages passed on with numbers exchanged.

Connections of executors to a relay that shares out work, and who stands behind them.

Rule: as cheap as can be, for there may be many thousands: no timer, no task, no buffer of its own.

Messages that a relay which shares out work passes on between its executors and the server, with numbers exchanged.

An executor's request numbers are its own: to the server they are told together with the executor's index, so that the
answer finds its way without anything being remembered. Rule: the server hears of its own spans only, and an executor of
its own only.
"""

from __future__ import annotations

import asyncio
import os
import re
import traceback
from collections.abc import Callable
from typing import Protocol, cast

from msgspec.structs import replace

from bough.errors import ProtocolError
from bough.model.ids import ExecutorId, Seconds
from bough.relay.members import Member
from bough.relay.relay_executor import RelayExecutor
from bough.relay.relay_log import log
from bough.wire.client_messages import Refused
from bough.wire.executor_messages import ExecutorHello, FromExecutor, OutputRead, ReadOutput, TaskAnswer, TaskRequest
from bough.wire.file_messages import FileLocated, FilePiece, FilesKept, GetPiece, OfferFiles, WantFile
from bough.wire.framing import Frames, frame_list
from bough.wire.handshake import ROLE_FRAME
from bough.wire.relay_channels import RelayHello

_SAID = FromExecutor | RelayHello  # the latter only to be told that it is no place for it
_MOST_UNSENT = 1 << 28  # bytes an executor may leave unread before it is cut off


class MemberPeer:
    """An executor that has said hello, connected or missing."""

    __slots__ = ("carries", "heard_at", "hello", "index", "leaving", "link", "member", "missing_until", "wide")

    def __init__(self, hello: ExecutorHello, member: Member, index: int) -> None:
        self.hello = hello
        self.member = member
        self.index = index  # by which its requests are known
        self.link: MemberConnection | None = None
        self.wide: RelayExecutor | None = None  # once it has said what it holds
        self.heard_at: Seconds = 0.0
        self.missing_until: Seconds = 0.0  # when it is given up, if it is missing
        self.leaving = ""  # why it wants no more work
        self.carries = False  # it has asked for files, or offered some


class Host(Protocol):
    """Who is told what executors say."""

    def heard(self, link: MemberConnection, messages: list[FromExecutor | RelayHello]) -> None:
        """Messages arrived, in order."""

    def lost(self, link: MemberConnection) -> None:
        """The connection is gone; called once."""


class MemberConnection(asyncio.Protocol):
    """One connection, from the moment its proof has held."""

    __slots__ = ("_frames", "_host", "_transport", "role", "visitor")

    def __init__(self, host: Host) -> None:
        self.role = ""
        self.visitor: MemberPeer | None = None
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


_INDEX = 24  # bits of a request's number that say whose it is
_MASK = (1 << _INDEX) - 1
_ANSWERS = {WantFile: FileLocated, OfferFiles: FilesKept, TaskRequest: TaskAnswer}
_MADE_BY = re.compile(r"x(\d+)-")  # how executors name their output files


class MessageRelay:
    """See the module. `find` gives the executor of an index, `known` the one of a number."""

    def __init__(
        self, find: Callable[[int], MemberPeer | None], known: Callable[[ExecutorId], MemberPeer | None]
    ) -> None:
        self._find = find
        self._known = known
        self._fetches: dict[
            int, tuple[RelayExecutor, int, MemberPeer]
        ] = {}  # whose question, its number there, who is asked
        self._last = 0

    def up(self, visitor: MemberPeer, message: WantFile | GetPiece | FilePiece | OfferFiles | TaskRequest) -> None:
        """An executor says something about files, or one of its tasks something of itself."""
        wide = visitor.wide
        if wide is None:
            return
        visitor.carries = True
        request = message.request << _INDEX | visitor.index
        if isinstance(message, WantFile | OfferFiles | TaskRequest):
            part = visitor.member.parts.get(message.span)
            if part is None:  # nobody wants it any more
                error = "the task is not wanted from this executor any more"
                answer = _ANSWERS[type(message)]
                if visitor.link is not None:
                    visitor.link.send([answer(message.request, error=error)])
                return
            wide.say(replace(message, request=request, span=part.lot.run.span))
        else:
            wide.say(replace(message, request=request))

    def down(self, message: FileLocated | GetPiece | FilePiece | FilesKept | TaskAnswer) -> None:
        """The server answers, or wants a piece of something that was offered."""
        visitor = self._find(message.request & _MASK)
        if visitor is not None and visitor.link is not None:
            visitor.link.send([replace(message, request=message.request >> _INDEX)])

    def fetch(self, wide: RelayExecutor, message: ReadOutput) -> None:
        """Somebody wants to see what a task wrote: ask whoever has it."""
        visitor = self._who_has(wide, message)
        if visitor is None or visitor.link is None:
            waits = self._is_waiting(wide, message)
            what = "the executor that has this output is not here" if message.path else "the task does not run here"
            wide.say(OutputRead(message.request, b"", more=waits, error="" if waits else what))
            return
        self._last += 1
        self._fetches[self._last] = (wide, message.request, visitor)
        visitor.link.send([replace(message, request=self._last)])

    def fetched(self, message: OutputRead) -> None:
        """The executor's answer."""
        asked = self._fetches.pop(message.request, None)
        if asked is not None:
            asked[0].say(replace(message, request=asked[1]))

    def lost(self, visitor: MemberPeer) -> None:
        """What an executor was asked for will not come."""
        for number in [number for number, asked in self._fetches.items() if asked[2] is visitor]:
            wide, request, _ = self._fetches.pop(number)
            wide.say(OutputRead(request, b"", error="the executor that has this output is gone"))

    def _who_has(self, wide: RelayExecutor, message: ReadOutput) -> MemberPeer | None:
        if message.path:
            made = _MADE_BY.match(os.path.basename(message.path))
            return self._known(ExecutorId(int(made[1]))) if made else None
        for lot in wide.deck.lots.values():
            if lot.run.record == message.record:
                for part in lot.parts.values():
                    if part.has(message.index):
                        return self._known(part.member.number)
        return None

    def _is_waiting(self, wide: RelayExecutor, message: ReadOutput) -> bool:
        """Whether a task is here and has not been handed out."""
        return not message.path and any(lot.run.record == message.record for lot in wide.deck.lots.values())
