"""A relay executor: how the server sees all executors of one kind behind a relay that shares out work.

It has a channel of the relay's line and speaks the protocol of an executor: after a lost connection it comes back
with what was not acknowledged and with what it holds. News of neighbouring elements are merged before they are sent.

Rules: what is said to the server within a few milliseconds is one report, but nothing waits when the server has
nothing else here. Only starts, and ends without results, of neighbouring elements of one array on one host become
one, and none across what was seen of the span in between; all other news stay as they are and in their order.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol, cast

from bough import logs
from bough.errors import ProtocolError
from bough.model.arrays.runtimes import MAX_SPAN
from bough.model.events.news import WorkObserved, WorkStarted, WorkSucceeded
from bough.model.ids import ExecutorId, Seconds, SpanId
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import Needs
from bough.relay.distributor import Distributor
from bough.transport.access import Access, token_bytes
from bough.transport.relay_line import RelayLine
from bough.wire.client_messages import VERSION, Blob, Challenge, Refused
from bough.wire.executor_messages import (
    Acknowledged,
    ClearOut,
    Drain,
    EndElements,
    ExecutorHello,
    ExecutorWelcome,
    GiveBacklog,
    Heartbeat,
    Leave,
    Leaving,
    ProbeTask,
    ReadOutput,
    Ready,
    Resized,
    RunSpan,
    SpaceAwaited,
    SpansHeld,
    StayOn,
    StopElements,
    TaskAnswer,
    WatchElements,
    spread,
)
from bough.wire.file_messages import (
    CheckContent,
    DropContent,
    FileLocated,
    FilePiece,
    FilesKept,
    GetPiece,
    ListShared,
    NamePeers,
    WorkDirectory,
)
from bough.wire.framing import KeptReports, News, frame, to_executor_frames
from bough.wire.handshake import NONCE, prove

_GATHER = 0.005  # seconds that news wait for others
_HASTE = 0.001  # the same while executors wait for work
_RESIZE = 0.05  # seconds that changes of size wait for others
_AGAIN = 1.0  # seconds until a channel that was shut is opened again
_MOST_RESULTS = 16 << 20  # bytes of results in one report
_SPANS = 32  # bits of a span's number that are its own, below the scope's

_PASSED_ON = (
    Leave,
    Drain,
    ReadOutput,
    ProbeTask,
    FileLocated,
    GetPiece,
    FilePiece,
    FilesKept,
    TaskAnswer,
    CheckContent,
    DropContent,
    ListShared,
    NamePeers,
)
_start = attrgetter("start")
_MOST_WRITTEN = 4 << 20  # bytes that tasks wrote, in one piece of news that was made of several


class MemberKind(NamedTuple):
    """Executors that are alike."""

    site: str
    capacity: Needs
    python: str
    shared: bool | None  # they see the server's store; None: not known yet
    attributes: Attributes = ()  # that they have in common

    @classmethod
    def of(cls, hello: ExecutorHello, *, shared: bool | None = None) -> MemberKind:
        """The kind of an executor; free space differs from one to the next, and is left out."""
        alike = tuple(one for one in hello.attributes if one[0] != "disk_gb")
        return cls(hello.site, hello.capacity, hello.python, shared, alike)


class RelayOwner(Protocol):
    """What looks after the members of a relay executor."""

    def on_welcome(self, relay_executor: RelayExecutor, welcome: ExecutorWelcome) -> None:
        """The server has let it in."""

    def on_begun(self, relay_executor: RelayExecutor) -> None:
        """The server was told what is here, and hears it from now on."""

    def on_refused(self, relay_executor: RelayExecutor, refusal: Refused) -> None:
        """The server refuses it for good."""

    def pass_on(self, relay_executor: RelayExecutor, message: object) -> None:
        """A message for one of the members, or for all."""

    def on_cut_off(self, relay_executor: RelayExecutor) -> None:
        """Its channel to the server is lost."""

    def turn(self, relay_executor: RelayExecutor) -> None:
        """Something is to be handed out."""


class RelayExecutor(asyncio.Protocol):
    """See the module."""

    def __init__(self, kind: MemberKind, owner: RelayOwner) -> None:
        self.kind = kind
        self.distributor = Distributor(kind.capacity)
        self.number = ExecutorId(0)
        self.ending = ""  # why it will leave once it has no members
        self.is_dismissed = False  # it was told to leave
        self.credentials: Access | None = None
        self.scheduled = False  # its owner will take a turn for it
        self._marker = ""
        self._owner = owner
        self._reports = KeptReports()
        self._frames = to_executor_frames()
        self._line: RelayLine | None = None
        self._transport: asyncio.Transport | None = None
        self._welcomed = self._held = False  # the server has answered; it was told what is here
        self._piggyback = True
        self._is_leaving = self._is_over = False
        self._told: Resized | None = None
        self._lacking_space: list[SpanId] = []  # as the server was told
        self._loop = asyncio.get_running_loop()
        self._flushed = self._spoke = 0.0
        self._flush_timer: asyncio.TimerHandle | None = None
        self._size_timer: asyncio.TimerHandle | None = None
        self._handlers: dict[type, Callable[..., None]] = {
            RunSpan: self._on_run,
            Blob: lambda blob: self.distributor.blobs.__setitem__(blob.id, blob.data),
            WorkDirectory: lambda place: self.distributor.directories.__setitem__(place.run, place),
            StopElements: self.distributor.stop,
            ClearOut: self.distributor.clear,
            StayOn: self.distributor.stay,
            GiveBacklog: self.distributor.give_backlog,
            WatchElements: self.distributor.watch,
            EndElements: self.distributor.end,
            Acknowledged: self._on_heard,
            Challenge: self._on_challenge,
            ExecutorWelcome: self._on_welcome,
            Refused: self._on_refused,
            **dict.fromkeys(_PASSED_ON, lambda message: owner.pass_on(self, message)),
        }

    # --- the channel -------------------------------------------------------------------------------

    def open_channel(self, line: RelayLine, credentials: Access) -> None:
        """There is a line to the server."""
        if self._is_over or self._transport is not None:
            return
        self._line, self.credentials = line, credentials
        self._frames = to_executor_frames()
        line.open(self, "the relay itself")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server speaks first."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Do what the server says."""
        try:
            for message in self._frames.feed(data):
                self._handlers[type(message)](message)
        except ProtocolError as error:
            logs.error("message-unreadable", f"what the server says to executor {self.number} cannot be read: {error}")
            if self._transport is not None:
                self._transport.abort()
            return
        except Exception:  # noqa: BLE001 -- the relay goes on, and asks the server again
            logs.error(
                "handler-failed",
                f"what the server says to executor {self.number} cannot be done:\n{traceback.format_exc()}",
            )
            if self._transport is not None:
                self._transport.abort()
            return
        self._owner.turn(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Work goes on; what happens is reported when the server is back."""
        self._transport = None
        self._welcomed = self._held = False
        self._owner.on_cut_off(self)
        line = self._line
        if line is not None and line.is_open and not self._is_over and self.credentials is not None:
            self._loop.call_later(_AGAIN, self._open_again, line)

    def _open_again(self, line: RelayLine) -> None:
        if line is self._line and line.is_open and self.credentials is not None:
            self.open_channel(line, self.credentials)

    def say(self, message: object) -> None:
        """Say something that needs not be kept; nothing when the server is away."""
        if self._held:
            self._write(frame(message))

    def _write(self, data: bytearray) -> None:
        if self._transport is not None:
            self._spoke = self._loop.time()
            self._transport.write(data)

    # --- being let in ------------------------------------------------------------------------------

    def _on_challenge(self, challenge: Challenge) -> None:
        assert self.credentials is not None
        access = self.credentials
        token = token_bytes(access.token, "the access file")
        proof = prove("execute", token, challenge.nonce, secrets.token_bytes(NONCE), access.proven_to)
        self._told = size = self._size()
        kind = self.kind
        hello = ExecutorHello(
            VERSION,
            kind.site,
            socket.gethostname(),
            os.getpid(),
            size.capacity,
            kind.python,
            self.number,
            size.until,
            self._marker,
            size.members,
            size.each,
            together=True,
            attributes=kind.attributes,
        )
        self._write(frame(proof, hello))

    def _on_welcome(self, welcome: ExecutorWelcome) -> None:
        self.number, self._marker = welcome.executor, welcome.marker
        self._piggyback = welcome.piggyback
        self.distributor.max_span = welcome.max_span or MAX_SPAN
        self._welcomed = True
        self._owner.on_welcome(self, welcome)
        self.begin()

    def begin(self) -> None:
        """Say what is here, once the server has answered and it is known what kind of executors these are."""
        if not self._welcomed or self._held or self.kind.shared is None:
            return
        self._cut()
        for report in self._reports.unheard():  # the server may have missed these
            self._write(report)
        self._write(frame(SpansHeld(list(self.distributor.server_spans), self.kind.shared)))
        self._held = True
        self._lacking_space = []  # the server has forgotten
        self._tell_of_space()
        if self._is_leaving:
            self.say(Leaving(self.ending))
        self._tell_size()
        self._owner.on_begun(self)

    def _on_refused(self, refusal: Refused) -> None:
        if refusal.kind == "PeerLost":
            return  # the way there is cut off: it is tried again
        logs.error("relay-refused", f"refused by the server: {refusal.message}")
        self.end()
        self._owner.on_refused(self, refusal)

    def _on_run(self, run: RunSpan) -> None:
        for one in spread(run) if run.batch else (run,):
            self.distributor.run(one)

    # --- size --------------------------------------------------------------------------------------

    def number_from(self, scope: int) -> None:
        """Spans are numbered from there."""
        self.distributor.number_from(SpanId(scope << _SPANS))

    def resized(self) -> None:
        """Members came or went."""
        if not self.distributor.open:
            self._tell_size()  # at once: what is given back must not come again
        elif self._size_timer is None:
            self._size_timer = self._loop.call_later(_RESIZE, self._tell_size)

    def _tell_size(self) -> None:
        if self._size_timer is not None:
            self._size_timer.cancel()
            self._size_timer = None
        size = self._size()
        if self._held and size != self._told:
            self._told = size
            self.say(size)

    def _size(self) -> Resized:
        distributor, each = self.distributor, self.kind.capacity
        count = distributor.open
        named = tuple((name, amount * count) for name, amount in each.named)
        capacity = Needs(each.cores * count, each.memory * count, each.gpus * count, named)
        return Resized(capacity, count, each, distributor.until())

    # --- news --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Tell the server the news, now or in a moment."""
        self._tell_of_space()
        if not self.distributor.news or self._flush_timer is not None:
            return
        due = self._flushed + (_HASTE if self.distributor.is_starved else _GATHER)
        if not self.distributor.server_spans or self._loop.time() >= due:
            self._report()
        else:
            self._flush_timer = self._loop.call_at(due, self._report)

    def _tell_of_space(self) -> None:
        """Say which spans wait for space on the disk of the store, whenever these are others."""
        waiting = self.distributor.space_awaited()
        if waiting != self._lacking_space and self._held:
            self._lacking_space = waiting
            self.say(SpaceAwaited(waiting))

    def _report(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._flushed = self._loop.time()
        for data in self._cut():
            if self._held:
                self._write(data)

    def _cut(self) -> list[bytearray]:
        """The news as reports, which are kept until they are acknowledged."""
        news, self.distributor.news = self.distributor.news, []
        frames, size = [], 0
        for one in merge_news(news):
            self._reports.add(one)
            size += len(one.results) if type(one) is WorkSucceeded and type(one.results) is bytes else 0
            if size > _MOST_RESULTS:
                frames.append(self._reports.cut())
                size = 0
        frames.append(self._reports.cut())
        return [data for data in frames if data is not None]

    def _on_heard(self, message: Acknowledged) -> None:
        self._reports.heard(message.number)
        if not self._piggyback:
            self.say(Ready())

    # --- by the clock, and the end -----------------------------------------------------------------

    def tick(self, silence: Seconds) -> None:
        """Say that we live, and what else is due."""
        if self._welcomed and self._loop.time() - self._spoke >= silence:
            self._write(frame(Heartbeat()))
        self.distributor.give_back_late(time.time())
        if self.distributor.end_rests(time.time()):
            self._owner.turn(self)
        self.flush()

    def leave(self, reason: str) -> None:
        """Say that nothing more is wanted, behind all that was said."""
        self.ending = self.ending or reason
        self._report()
        if not self._is_leaving:
            self._is_leaving = True
            self.say(Leaving(self.ending))

    def end(self) -> None:
        """Close the channel for good."""
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    @property
    def is_done(self) -> bool:
        """Whether the server has acknowledged everything."""
        return not (self.distributor.news or self._reports.unheard() or self.distributor.server_spans)


def merge_news(news: Sequence[News]) -> list[News]:
    """The same news, with neighbouring starts and ends as one, in the place of the first of them."""
    if len(news) < 2:
        return list(news)
    directories: list[News | list[WorkSucceeded] | list[WorkStarted]] = []
    alike: dict[tuple[object, ...], list[WorkSucceeded] | list[WorkStarted]] = {}
    for one in news:
        kind = type(one)
        if kind is not WorkStarted and (kind is not WorkSucceeded or one.results is not None):  # type: ignore[union-attr]
            directories.append(one)
            if kind is WorkObserved:  # what ends after it must be told after it
                for key in [key for key in alike if key[1] == one.span]:
                    del alike[key]
            continue
        key = (kind, one.span, one.host)  # type: ignore[union-attr]
        found = alike.get(key)
        if found is None:
            found = alike[key] = []
            directories.append(found)
        found.append(one)  # type: ignore[arg-type]
    said: list[News] = []
    for place in directories:
        if type(place) is not list:
            said.append(place)  # type: ignore[arg-type]
        elif len(place) == 1:
            said += place
        else:
            _merge(place, said)
    return said


def _merge(pieces: list[WorkSucceeded] | list[WorkStarted], said: list[News]) -> None:
    pieces.sort(key=_start)
    first = size = 0
    for at in range(1, len(pieces) + 1):
        size += _written(pieces[at - 1])
        if at == len(pieces) or pieces[at].start != pieces[at - 1].stop or size > _MOST_WRITTEN:
            said.append(_one(pieces[first:at]) if at - first > 1 else pieces[first])
            first, size = at, 0


def _written(piece: WorkSucceeded | WorkStarted) -> int:
    """Bytes that its tasks wrote and that come with it."""
    if isinstance(piece, WorkStarted):
        return 0
    streams = [stream for detail in piece.details for stream in (detail.stdout, detail.stderr)]
    return sum(len(stream.data) for stream in streams if stream is not None)


def _one(pieces: Sequence[WorkSucceeded | WorkStarted]) -> WorkSucceeded | WorkStarted:
    first, stop = pieces[0], pieces[-1].stop
    if isinstance(first, WorkStarted):
        return WorkStarted(first.span, first.start, stop, host=first.host)
    ends = [piece for piece in pieces if isinstance(piece, WorkSucceeded)]
    details = tuple(detail for end in ends for detail in end.details)
    return WorkSucceeded(
        first.span, first.start, stop, sum(end.seconds for end in ends), None, details, host=first.host
    )
