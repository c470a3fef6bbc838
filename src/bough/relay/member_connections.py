"""Connections of executors to a relay that shares out work, and the messages that it passes on for them.

An executor's request numbers are its own. The relay sends them to the server together with the executor's index, so
that the answer finds its way without anything being remembered.

Rules: as cheap as can be, for there may be many thousands: no timer, no task, no buffer of its own. The server hears of
its own spans only, and an executor of its own only.
"""

from __future__ import annotations

import asyncio
import os
import re
import traceback
from collections.abc import Callable
from typing import Protocol, cast

from msgspec.structs import replace

from bough import logs
from bough.errors import ProtocolError
from bough.model.ids import ExecutorId, Seconds
from bough.movers.peer_directory import Address, plain_address
from bough.relay.members import Member
from bough.relay.relay_executor import RelayExecutor
from bough.wire.client_messages import Refused
from bough.wire.executor_messages import (
    ExecutorHello,
    FromExecutor,
    OutputRead,
    ProbeAnswer,
    ProbeTask,
    ReadOutput,
    TaskAnswer,
    TaskRequest,
)
from bough.wire.file_messages import FileLocated, FilePiece, FilesKept, FindPeers, GetPiece, OfferFiles, WantFile
from bough.wire.framing import Frames, frame_list
from bough.wire.handshake import ROLE_FRAME
from bough.wire.relay_channels import RelayHello

_SAID = FromExecutor | RelayHello  # the latter only to be refused
_INDEX = 24  # bits of a request's number that say whose it is
_MASK = (1 << _INDEX) - 1
_ANSWERS = {WantFile: FileLocated, OfferFiles: FilesKept, TaskRequest: TaskAnswer}
_MADE_BY = re.compile(r"x(\d+)-")  # how executors name their output files
_MOST_UNSENT = 1 << 28  # bytes an executor may leave unread before it is cut off


class MemberPeer:
    """An executor that has said hello, connected or missing."""

    __slots__ = (
        "carries",
        "connection",
        "heard_at",
        "hello",
        "index",
        "leaving",
        "member",
        "missing_until",
        "relay_executor",
        "sees_store",
    )

    def __init__(self, hello: ExecutorHello, member: Member, index: int) -> None:
        self.hello = hello
        self.member = member
        self.index = index  # by which its requests are known
        self.connection: MemberConnection | None = None
        self.relay_executor: RelayExecutor | None = None  # once it has said what it holds
        self.heard_at: Seconds = 0.0
        self.missing_until: Seconds = 0.0  # when it is given up, if it is missing
        self.leaving = ""  # why it wants no more work
        self.carries = False  # it has asked for files, or offered some
        self.sees_store = False  # it sees the shared store of its site


class Host(Protocol):
    """What is told what executors say."""

    def on_messages(self, connection: MemberConnection, messages: list[FromExecutor | RelayHello]) -> None:
        """Messages arrived, in order."""

    def on_lost(self, connection: MemberConnection) -> None:
        """The connection was lost; called once."""


class MemberConnection(asyncio.Protocol):
    """One connection, from the moment its proof has held."""

    __slots__ = ("_frames", "_host", "_transport", "peer", "role")

    def __init__(self, host: Host) -> None:
        self.role = ""
        self.peer: MemberPeer | None = None
        self._host = host
        self._frames: Frames[FromExecutor | RelayHello] = Frames(_SAID, ROLE_FRAME["execute"])
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The executor is let in."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """The executor said something; one that cannot be understood is cut off."""
        try:
            messages = self._frames.feed(data)
        except ProtocolError as error:
            self.refuse(str(error), "ProtocolError")
            return
        if messages:
            try:
                self._host.on_messages(self, messages)
            except Exception:  # noqa: BLE001 -- whatever it is, it concerns this executor: the others go on
                logs.error(
                    "handler-failed",
                    f"what an executor sent could not be handled, it is disconnected:\n{traceback.format_exc()}",
                )
                self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection was lost."""
        self._transport = None
        self._host.on_lost(self)

    @property
    def address(self) -> Address | None:
        """From where it comes, as the network says; None: from this host, by a Unix socket, or it is lost."""
        place = self._transport.get_extra_info("peername") if self._transport is not None else None
        return plain_address(place[0]) if isinstance(place, tuple) else None

    @property
    def is_local(self) -> bool:
        """Whether it comes from this very host, as far as the network says."""
        return self._transport is not None and (self.address is None or self.address.is_loopback)

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


UpMessage = WantFile | FindPeers | GetPiece | FilePiece | OfferFiles | TaskRequest


class MessageRelay:
    """Passes messages on. `find` gives the executor of an index, `known` the one of a number.

    `locate` makes of the server's answer where a file is what an executor is told.
    """

    def __init__(
        self,
        find: Callable[[int], MemberPeer | None],
        known: Callable[[ExecutorId], MemberPeer | None],
        locate: Callable[[MemberPeer, FileLocated], FileLocated],
    ) -> None:
        self._find = find
        self._known = known
        self._locate = locate
        self._asked: dict[int, tuple[RelayExecutor, ReadOutput | ProbeTask, MemberPeer]] = {}  # by our number
        self._last = 0

    def up(self, peer: MemberPeer, message: UpMessage) -> None:
        """An executor says something about files, or one of its tasks something of itself."""
        relay_executor = peer.relay_executor
        if relay_executor is None:
            return
        peer.carries = True
        request = message.request << _INDEX | peer.index
        if isinstance(message, WantFile | OfferFiles | TaskRequest):
            part = peer.member.parts.get(message.span)
            if part is None:  # it was stopped, or given to another
                error = "the task is not wanted from this executor any more"
                answer = _ANSWERS[type(message)]
                if peer.connection is not None:
                    peer.connection.send([answer(message.request, error=error)])
                return
            relay_executor.say(replace(message, request=request, span=part.server_span.run.span))
        else:
            relay_executor.say(replace(message, request=request))

    def down(self, message: FileLocated | GetPiece | FilePiece | FilesKept | TaskAnswer) -> None:
        """The server answers, or wants a piece of something that was offered."""
        peer = self._find(message.request & _MASK)
        if peer is not None and peer.connection is not None:
            if isinstance(message, FileLocated):
                message = self._locate(peer, message)
            peer.connection.send([replace(message, request=message.request >> _INDEX)])

    def ask(self, relay_executor: RelayExecutor, message: ReadOutput | ProbeTask) -> None:
        """A client asks for what a task wrote, or a remote monitor asks it something: ask the executor that has it."""
        peer = self._holder(relay_executor, message)
        if peer is None or peer.connection is None:
            relay_executor.say(self._nowhere(relay_executor, message))
            return
        self._last += 1
        self._asked[self._last] = (relay_executor, message, peer)
        peer.connection.send([replace(message, request=self._last)])

    def on_answer(self, peer: MemberPeer, message: OutputRead | ProbeAnswer) -> None:
        """The executor's answer."""
        relay_executor, question, asked = self._asked.get(message.request, (None, None, None))
        if relay_executor is None or question is None or asked is not peer:
            return
        del self._asked[message.request]
        relay_executor.say(replace(message, request=question.request))

    def on_lost(self, peer: MemberPeer) -> None:
        """What an executor was asked for will not come."""
        for number in [number for number, asked in self._asked.items() if asked[2] is peer]:
            relay_executor, question, _ = self._asked.pop(number)
            relay_executor.say(_failed(question, "the executor that has the task disconnected"))

    def forget(self, relay_executor: RelayExecutor) -> None:
        """The server that asked is gone; when it is back it asks again, under numbers of its own."""
        for number in [number for number, asked in self._asked.items() if asked[0] is relay_executor]:
            del self._asked[number]

    def _nowhere(self, relay_executor: RelayExecutor, message: ReadOutput | ProbeTask) -> OutputRead | ProbeAnswer:
        """No executor that is here has the task."""
        waits = self._is_waiting(relay_executor, message)
        if isinstance(message, ProbeTask):
            what = "the task has not begun" if waits else f"attempt {message.attempt} at the task has ended"
            return ProbeAnswer(message.request, error=what, kind="NotRunning" if waits else "AttemptEnded")
        what = "the executor that has this output is not here" if message.path else "the task does not run here"
        return OutputRead(message.request, b"", more=waits, error="" if waits else what)

    def _holder(self, relay_executor: RelayExecutor, message: ReadOutput | ProbeTask) -> MemberPeer | None:
        if isinstance(message, ReadOutput) and message.path:
            made = _MADE_BY.match(os.path.basename(message.path))
            return self._known(ExecutorId(int(made[1]))) if made else None
        for server_span in relay_executor.distributor.server_spans.values():
            if server_span.run.record == message.record:
                for part in server_span.parts.values():
                    if part.has(message.index):
                        return self._known(part.member.number)
        return None

    def _is_waiting(self, relay_executor: RelayExecutor, message: ReadOutput | ProbeTask) -> bool:
        """Whether a task is here and has not been handed out."""
        if isinstance(message, ReadOutput) and message.path:
            return False
        return any(span.run.record == message.record for span in relay_executor.distributor.server_spans.values())


def _failed(question: ReadOutput | ProbeTask, error: str) -> OutputRead | ProbeAnswer:
    if isinstance(question, ReadOutput):
        return OutputRead(question.request, b"", error=error)
    return ProbeAnswer(question.request, error=error, kind="PeerLost")
