"""A relay that shares out work: it lets executors in itself, and is one relay executor for each kind of them.

All that arrives within one round of the loop leads to one turn: what waits is handed out, then each executor gets all
there is for it in one frame. An acknowledgement waits for work to travel with. An executor whose connection is lost
goes on working and has a time to reconnect.

Rule: all executors are looked at once in a fraction of the heartbeat; nothing else walks them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from msgspec.structs import replace

from bough import logs
from bough.errors import UserError
from bough.model.ids import ExecutorId, Seconds
from bough.relay.member_connections import MemberConnection, MemberPeer, MessageRelay
from bough.relay.member_doors import MemberDoors
from bough.relay.member_sources import MemberSources
from bough.relay.members import Member
from bough.relay.relay_executor import MemberKind, RelayExecutor
from bough.transport.access import Access, token_bytes
from bough.transport.relay_line import RelayLine
from bough.wire.client_messages import VERSION, Refused
from bough.wire.executor_messages import (
    Acknowledged,
    Drain,
    ExecutorHello,
    ExecutorWelcome,
    FromExecutor,
    Heartbeat,
    Leave,
    Leaving,
    OutputRead,
    ProbeAnswer,
    ProbeTask,
    ReadOutput,
    Ready,
    Report,
    SpaceAwaited,
    SpansHeld,
    TaskRequest,
)
from bough.wire.file_messages import (
    CacheReport,
    CheckContent,
    DropContent,
    FilePiece,
    FindPeers,
    GetPiece,
    ListShared,
    NamePeers,
    OfferFiles,
    OfferPeer,
    WantFile,
)
from bough.wire.relay_channels import RelayHello

_NUMBERS = 20  # bits of an executor's number that are its own, below the scope's
_SILENCE = 5.0  # seconds after which the server is told that we live
_LOOK = 1.0  # seconds between looks, at most
_OWED = 1.0  # seconds that an acknowledgement may wait
_MOST_SENT = 1 << 24  # bytes that are put into the connections of one kind before they are given a chance to leave


class RelayTurns:
    """See the module."""

    def __init__(self, peers: dict[ExecutorId, MemberPeer]) -> None:
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._owing: set[MemberPeer] = set()
        self._timer: asyncio.TimerHandle | None = None

    def want(self, relay_executor: RelayExecutor) -> None:
        """Take a turn, once all that has arrived is taken in."""
        if not relay_executor.scheduled:
            relay_executor.scheduled = True
            self._loop.call_soon(self._take, relay_executor)

    def _take(self, relay_executor: RelayExecutor) -> None:
        relay_executor.scheduled = False
        distributor = relay_executor.distributor
        distributor.distribute(time.time())
        self._tell_suspended(relay_executor)
        size = 0
        while distributor.speaking and size < _MOST_SENT:
            member, _ = distributor.speaking.popitem()
            peer = self._peers.get(member.number)
            if peer is None or peer.connection is None:
                member.outbox.clear()  # it will say what it has when it is back
            elif member.outbox:
                messages, member.outbox = member.outbox, []
                if member.owed:
                    messages.insert(0, Acknowledged(member.owed))
                    member.owed = 0
                size += peer.connection.send(messages)
            elif member.owed:
                self.owe(peer)
        if distributor.speaking:
            self.want(relay_executor)
        relay_executor.flush()

    def _tell_suspended(self, relay_executor: RelayExecutor) -> None:
        distributor = relay_executor.distributor
        if distributor.suspended:
            suspended, distributor.suspended = distributor.suspended, []
            for member, rest, reason in suspended:
                logs.warning(
                    "executor-suspended", f"the executor on {member.host} is suspended for {rest:.0f} s: {reason}"
                )
        if distributor.has_resized:
            distributor.has_resized = False
            relay_executor.resized()

    def owe(self, peer: MemberPeer) -> None:
        """Acknowledge its reports in a moment, if nothing else is said to it before."""
        self._owing.add(peer)
        if self._timer is None:
            self._timer = self._loop.call_later(_OWED, self._pay)

    def _pay(self) -> None:
        self._timer = None
        owing, self._owing = self._owing, set()
        for peer in owing:
            member = peer.member
            if member.owed and peer.connection is not None:
                peer.connection.send([Acknowledged(member.owed)])
                member.owed = 0


class WorkSharing:
    """See the module. `reconnect_within`: seconds that a missing executor has to reconnect."""

    def __init__(self, reconnect_within: Seconds) -> None:
        self._reconnect_within = reconnect_within
        self._loop = asyncio.get_running_loop()
        self._welcome: ExecutorWelcome | None = None  # what the server said first; executors are told the same
        self._scope = 0  # the server's number of our first relay executor: no other relay ever has it
        self._line: RelayLine | None = None
        self._credentials: Access | None = None
        self._relay_executors: list[RelayExecutor] = []
        self._kinds: dict[MemberKind, RelayExecutor] = {}  # those that take in new members
        self._peers: dict[ExecutorId, MemberPeer] = {}
        self._by_index: dict[int, MemberPeer] = {}
        self._indexes = itertools.count(1)
        self._waiting: dict[MemberConnection, ExecutorHello] = {}  # said hello before the server has said anything
        self._doors = MemberDoors()
        self._sources = MemberSources(self._peers, lambda: self._relay_executors, self._doors)
        self._message_relay = MessageRelay(self._by_index.get, self._peers.get, self._sources.located)
        self._turns = RelayTurns(self._peers)
        self._looked = self._loop.time()
        self._handlers: dict[type, Callable[..., None]] = {
            Heartbeat: self._on_alive,
            SpansHeld: self._on_holding,
            Leaving: self._on_leaving,
            Ready: lambda _peer, _message: None,
            OfferPeer: self._sources.offered,
            CacheReport: self._sources.reported,
            FindPeers: self._on_find_peers,
            SpaceAwaited: self._on_space_awaited,
            **dict.fromkeys((OutputRead, ProbeAnswer), self._message_relay.on_answer),
            **dict.fromkeys((WantFile, GetPiece, FilePiece, OfferFiles, TaskRequest), self._message_relay.up),
        }
        self._loop.call_later(self._pause, self._look)

    # --- what the relay calls ----------------------------------------------------------------------

    def linked(self, line: RelayLine, credentials: Access) -> None:
        """There is a line to the server."""
        self._line, self._credentials = line, credentials
        self._doors.address = line.own_address
        for relay_executor in self._relay_executors:
            relay_executor.open_channel(line, credentials)

    def cut_off(self) -> None:
        """The line was lost; executors go on."""
        self._line = None

    def token(self, role: str) -> bytes:
        """What executors must know."""
        if role != "execute" or self._credentials is None:
            raise UserError("a relay that shares out work lets in executors only, once it has its server")
        return token_bytes(self._credentials.token, "the access file")

    @property
    def executors(self) -> int:
        """How many are connected."""
        return sum(relay_executor.distributor.open for relay_executor in self._relay_executors)

    def receive(self) -> MemberConnection:
        """A peer has proven to know the token."""
        return MemberConnection(self)

    def close(self) -> None:
        """The relay ends: give everything back."""
        self._doors.close()
        for relay_executor in self._relay_executors:
            relay_executor.distributor.abandon("its relay was ended")
            relay_executor.leave("its relay was ended")
            relay_executor.end()

    # --- what executors say ------------------------------------------------------------------------

    def on_messages(self, connection: MemberConnection, messages: list[FromExecutor | RelayHello]) -> None:
        """An executor spoke."""
        peer = connection.peer
        if peer is None:
            self._on_hello(connection, messages[0])
            peer, messages = connection.peer, messages[1:]
            if peer is None or not messages:
                return
        peer.heard_at = self._loop.time()
        if len(messages) == 1 and type(messages[0]) is Heartbeat:  # most of what thousands of idle ones say
            self._on_alive(peer, messages[0])
            return
        relay_executor = peer.relay_executor
        for message in messages:
            if type(message) is Report:
                self._on_report(peer, message)
                continue
            handler = self._handlers.get(type(message))
            if handler is None:
                connection.refuse(f"an executor may not say {type(message).__name__}", "ProtocolError")
                return
            handler(peer, message)
        relay_executor = relay_executor or peer.relay_executor
        if relay_executor is not None:
            self.turn(relay_executor)

    def _on_hello(self, connection: MemberConnection, hello: FromExecutor | RelayHello) -> None:
        if not isinstance(hello, ExecutorHello):
            connection.refuse(
                "a relay that shares out work lets in executors only, no clients and no relays", "ProtocolError"
            )
        elif hello.version != VERSION:
            text = f"the relay speaks version {VERSION} and the executor {hello.version}; use the same bough"
            connection.refuse(text, "ProtocolError")
        elif self._welcome is None:
            self._waiting[connection] = hello
            self._kind(MemberKind.of(hello))
        else:
            self._accept(connection, hello, self._welcome)

    def _accept(self, connection: MemberConnection, hello: ExecutorHello, welcome: ExecutorWelcome) -> None:
        """Let an executor in; one that was here before keeps its number, also one that another relay gave."""
        if hello.executor and hello.marker != welcome.marker:
            connection.refuse(
                "the executor belongs to another server, or to another store; start it anew", "UnknownName"
            )
            return
        peer = self._peers.get(hello.executor) if hello.executor else None
        if peer is None:
            index = next(self._indexes)
            number = hello.executor or ExecutorId(self._scope << _NUMBERS | index)
            member = Member(number, hello.host, hello.capacity, hello.until)
            peer = self._peers[number] = self._by_index[index] = MemberPeer(hello, member, index)
        elif peer.connection is not None:  # its old connection broke without a word
            peer.connection.peer = None
            peer.connection.abort()
            self._miss(peer)
        peer.connection, connection.peer = connection, peer
        peer.heard_at, peer.missing_until = self._loop.time(), 0.0
        self._sources.joined(peer)
        connection.send([replace(welcome, executor=peer.member.number, embedded=False, piggyback=True)])

    def _on_report(self, peer: MemberPeer, report: Report) -> None:
        if peer.relay_executor is not None:
            peer.relay_executor.distributor.report(peer.member, report)
        else:  # it was another relay's: here it is not known what it is about
            peer.member.reported = peer.member.owed = report.number
            self._turns.owe(peer)

    def _on_alive(self, peer: MemberPeer, _: Heartbeat) -> None:
        if peer.connection is not None:
            peer.connection.send([Acknowledged(peer.member.reported)])  # so that it knows that we live
            peer.member.owed = 0

    def _on_holding(self, peer: MemberPeer, message: SpansHeld) -> None:
        """It has said all; now it may be given work."""
        relay_executor, hello = peer.relay_executor, peer.hello
        if relay_executor is None:
            relay_executor = peer.relay_executor = self._kind(MemberKind.of(hello, shared=message.shared))
            relay_executor.distributor.members[peer.member.number] = peer.member
            relay_executor.begin()
        relay_executor.distributor.back(peer.member, set(message.spans), leaving=bool(peer.leaving))
        if relay_executor.ending and not peer.leaving and peer.connection is not None:
            peer.connection.send([Drain()])
        relay_executor.resized()

    def _on_space_awaited(self, peer: MemberPeer, message: SpaceAwaited) -> None:
        if peer.relay_executor is not None:
            peer.relay_executor.distributor.await_space(peer.member, message.spans)

    def _on_find_peers(self, peer: MemberPeer, message: FindPeers) -> None:
        """The peers that an executor was told of have failed: others behind this relay, or the server names some."""
        found = self._sources.find(peer, message)
        if isinstance(found, FindPeers):
            self._message_relay.up(peer, found)
        elif peer.connection is not None:
            peer.connection.send([found])

    def _on_leaving(self, peer: MemberPeer, message: Leaving) -> None:
        peer.leaving = message.reason or "it left"
        if peer.relay_executor is not None:
            peer.relay_executor.distributor.shut(peer.member)
            peer.relay_executor.distributor.say(peer.member, Drain())
            peer.relay_executor.resized()

    def on_lost(self, connection: MemberConnection) -> None:
        """A connection was lost."""
        self._waiting.pop(connection, None)
        peer = connection.peer
        if peer is not None and peer.connection is connection:
            peer.connection = None
            self._miss(peer)

    def _miss(self, peer: MemberPeer) -> None:
        """It is given nothing until it is back; when it said that it leaves, or had nothing, it is lost."""
        self._message_relay.on_lost(peer)
        self._sources.missing(peer)
        relay_executor = peer.relay_executor
        peer.missing_until = self._loop.time() + self._reconnect_within
        if relay_executor is not None:
            relay_executor.distributor.shut(peer.member)
            relay_executor.resized()
        if peer.leaving or relay_executor is None:
            self._lose(peer, peer.leaving or "it left")

    def _lose(self, peer: MemberPeer, reason: str) -> None:
        if self._peers.pop(peer.member.number, None) is None:
            return  # it was refused, and has hung up since
        self._by_index.pop(peer.index, None)
        self._sources.lost(peer)
        relay_executor = peer.relay_executor
        if relay_executor is not None:
            relay_executor.distributor.lose(peer.member, reason)
            self.turn(relay_executor)

    # --- kinds of executors ------------------------------------------------------------------------

    def _kind(self, kind: MemberKind) -> RelayExecutor:
        """The relay executor of a kind."""
        found = self._kinds.get(kind)
        if found is None and kind.shared is not None:  # one of which only this was not known
            found = self._kinds.pop(kind._replace(shared=None), None)
            if found is not None:
                found.kind = kind
                self._kinds[kind] = found
        if found is None:
            found = self._kinds[kind] = RelayExecutor(kind, self)
            found.number_from(self._scope)
            self._relay_executors.append(found)
            if self._line is not None and self._credentials is not None:
                found.open_channel(self._line, self._credentials)
        return found

    def on_welcome(self, relay_executor: RelayExecutor, welcome: ExecutorWelcome) -> None:
        """The server has let one in; after the first, executors can be."""
        kind = relay_executor.kind
        logs.info(
            "members-joined", f"executor {relay_executor.number} of the server: {kind.site}, {kind.capacity} each"
        )
        if self._welcome is None:
            self._welcome, self._scope = welcome, int(welcome.executor)
            for each in self._relay_executors:
                each.number_from(self._scope)
            waiting, self._waiting = self._waiting, {}
            for connection, hello in waiting.items():
                self._accept(connection, hello, welcome)
        for peer in list(self._peers.values()):
            if peer.carries and peer.relay_executor is relay_executor and peer.connection is not None:
                peer.carries = False
                peer.connection.abort()  # it asks again when it is back

    def on_begun(self, relay_executor: RelayExecutor) -> None:
        """The server hears it."""
        self._sources.tell_all(relay_executor)

    def on_refused(self, relay_executor: RelayExecutor, refusal: Refused) -> None:
        """The server refuses such executors, or does not know them any more."""
        self._end(relay_executor)
        if refusal.kind == "UnknownName":
            self._welcome, self._scope = None, 0  # it is another server, or has another store
        for connection, hello in list(self._waiting.items()):
            if MemberKind.of(hello) == relay_executor.kind:
                connection.refuse(refusal.message, refusal.kind)
        for peer in [peer for peer in self._peers.values() if peer.relay_executor is relay_executor]:
            if peer.connection is not None:
                peer.connection.refuse(refusal.message, refusal.kind)
            peer.relay_executor = None
            self._lose(peer, refusal.message)

    def on_cut_off(self, relay_executor: RelayExecutor) -> None:
        """Its server is gone: nobody waits for what it has asked."""
        self._message_relay.forget(relay_executor)

    def pass_on(self, relay_executor: RelayExecutor, message: object) -> None:
        """Something of the server's for one executor, or for all of a kind."""
        if isinstance(message, ReadOutput | ProbeTask):
            self._message_relay.ask(relay_executor, message)
        elif isinstance(message, Drain | Leave):
            self._dismiss(relay_executor, message)
        elif isinstance(message, CheckContent | DropContent | ListShared):
            self._sources.pass_down(relay_executor, message)
        elif isinstance(message, NamePeers):
            relay_executor.say(self._sources.name(relay_executor, message))
        else:
            self._message_relay.down(message)  # type: ignore[arg-type]

    def _dismiss(self, relay_executor: RelayExecutor, message: Drain | Leave) -> None:
        """All of a kind shall leave; when none is left the relay executor leaves, too."""
        if relay_executor.ending and not relay_executor.distributor.members:  # the answer to our own word
            self._end(relay_executor)
            return
        is_order_to_leave = isinstance(message, Leave)
        relay_executor.is_dismissed = relay_executor.is_dismissed or is_order_to_leave
        self._retire(relay_executor, "it was stopped" if is_order_to_leave else "it was drained")
        for peer in [peer for peer in self._peers.values() if peer.relay_executor is relay_executor]:
            if is_order_to_leave:
                peer.leaving = peer.leaving or relay_executor.ending
                relay_executor.distributor.shut(peer.member)
            relay_executor.distributor.say(peer.member, message)
        relay_executor.resized()

    def _retire(self, relay_executor: RelayExecutor, reason: str) -> None:
        """Let no other executor become its member."""
        relay_executor.ending = relay_executor.ending or reason
        if self._kinds.get(relay_executor.kind) is relay_executor:
            del self._kinds[relay_executor.kind]

    def _end(self, relay_executor: RelayExecutor) -> None:
        self._retire(relay_executor, "it left")
        relay_executor.end()
        if relay_executor in self._relay_executors:
            self._relay_executors.remove(relay_executor)

    def _consider_end(self, relay_executor: RelayExecutor) -> None:
        """A relay executor without members leaves, once everything was acknowledged."""
        if relay_executor.distributor.members or relay_executor.kind.shared is None or not relay_executor.is_done:
            return
        if relay_executor.is_dismissed:
            self._end(relay_executor)
        else:
            self._retire(relay_executor, "no executor is left behind its relay")
            relay_executor.leave(relay_executor.ending)

    def turn(self, relay_executor: RelayExecutor) -> None:
        """Something may be handed out, or is to be said."""
        self._turns.want(relay_executor)

    # --- by the clock ------------------------------------------------------------------------------

    @property
    def _heartbeat(self) -> Seconds:
        return self._welcome.heartbeat if self._welcome is not None else 4 * _LOOK

    @property
    def _pause(self) -> Seconds:
        return min(_LOOK, self._heartbeat / 4)

    def _look(self) -> None:
        """Look for silent ones, and for those whose time to come back is over."""
        pause, heartbeat = self._pause, self._heartbeat
        self._loop.call_later(pause, self._look)
        now = self._loop.time()
        if now - self._looked > 2 * pause + 1:  # we were stopped ourselves: what was said meanwhile is not read yet
            for peer in self._peers.values():
                peer.heard_at = now
        self._looked = now
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                if now - peer.heard_at > heartbeat:
                    peer.connection.abort()
            elif now > peer.missing_until:
                logs.warning(
                    "executor-lost",
                    f"the executor on {peer.hello.host}, pid {peer.hello.pid}, is lost: it did not reconnect",
                )
                self._lose(peer, f"it did not reconnect within {self._reconnect_within:g} s")
        for relay_executor in list(self._relay_executors):
            relay_executor.tick(min(_SILENCE, heartbeat / 4))
            self._consider_end(relay_executor)
