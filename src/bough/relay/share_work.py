"""A relay that shares out work: lets executors in, one turn a round of the loop.

Turns of a relay that shares out work: hand out what waits, then say to each executor all there is in one frame.

Rule: whatever arrives within one round of the loop leads to one turn; an acknowledgement waits for work to travel with.

A relay that shares out work: lets executors in itself and is one wide executor for each kind of them.

Rule: one look at all of them for each fraction of the heartbeat, and nothing else that walks them; an executor whose
connection is lost goes on working and has a time to come back.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from msgspec.structs import replace

from bough.errors import UserError
from bough.model.ids import ExecutorId, Seconds
from bough.relay.member_connections import MemberConnection, MemberPeer, MessageRelay
from bough.relay.members import Member
from bough.relay.relay_executor import MemberKind, RelayExecutor
from bough.relay.relay_log import log
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
    ReadOutput,
    Ready,
    Report,
    SpansHeld,
    TaskRequest,
)
from bough.wire.file_messages import FilePiece, GetPiece, OfferFiles, WantFile
from bough.wire.relay_channels import RelayHello

_OWED = 1.0  # seconds that an acknowledgement may wait
_MOST_SENT = 1 << 24  # bytes that are put into the connections of one kind before they are given a chance to leave


class RelayTurns:
    """See the module."""

    def __init__(self, visitors: dict[ExecutorId, MemberPeer]) -> None:
        self._visitors = visitors
        self._loop = asyncio.get_running_loop()
        self._owing: set[MemberPeer] = set()
        self._timer: asyncio.TimerHandle | None = None

    def want(self, wide: RelayExecutor) -> None:
        """Take a turn, once all that has arrived is taken in."""
        if not wide.scheduled:
            wide.scheduled = True
            self._loop.call_soon(self._take, wide)

    def _take(self, wide: RelayExecutor) -> None:
        wide.scheduled = False
        deck = wide.deck
        deck.deal(time.time())
        size = 0
        while deck.speaking and size < _MOST_SENT:
            member, _ = deck.speaking.popitem()
            visitor = self._visitors.get(member.number)
            if visitor is None or visitor.link is None:
                member.outbox.clear()  # it will say what it has when it is back
            elif member.outbox:
                messages, member.outbox = member.outbox, []
                if member.owed:
                    messages.insert(0, Acknowledged(member.owed))
                    member.owed = 0
                size += visitor.link.send(messages)
            elif member.owed:
                self.owe(visitor)
        if deck.speaking:
            self.want(wide)
        wide.flush()

    def owe(self, visitor: MemberPeer) -> None:
        """Acknowledge its reports in a moment, if nothing else is said to it before."""
        self._owing.add(visitor)
        if self._timer is None:
            self._timer = self._loop.call_later(_OWED, self._pay)

    def _pay(self) -> None:
        self._timer = None
        owing, self._owing = self._owing, set()
        for visitor in owing:
            member = visitor.member
            if member.owed and visitor.link is not None:
                visitor.link.send([Acknowledged(member.owed)])
                member.owed = 0


_NUMBERS = 20  # bits of an executor's number that are its own, below the scope's
_SILENCE = 5.0  # seconds after which the server is told that we live
_LOOK = 1.0  # seconds between looks, at most


class WorkSharing:
    """See the module. `patience`: seconds that a missing executor has to come back."""

    def __init__(self, patience: Seconds) -> None:
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._terms: ExecutorWelcome | None = None  # what the server said first; executors are told the same
        self._scope = 0  # the server's number of our first wide executor: no other relay ever has it
        self._line: RelayLine | None = None
        self._credentials: Access | None = None
        self._wides: list[RelayExecutor] = []
        self._kinds: dict[MemberKind, RelayExecutor] = {}  # those that take in new members
        self._visitors: dict[ExecutorId, MemberPeer] = {}
        self._by_index: dict[int, MemberPeer] = {}
        self._indexes = itertools.count(1)
        self._waiting: dict[MemberConnection, ExecutorHello] = {}  # said hello before the server has said anything
        self._errands = MessageRelay(self._by_index.get, self._visitors.get)
        self._turns = RelayTurns(self._visitors)
        self._looked = self._loop.time()
        self._hear: dict[type, Callable[..., None]] = {
            Heartbeat: self._on_alive,
            SpansHeld: self._on_holding,
            Leaving: self._on_leaving,
            Ready: lambda _visitor, _message: None,
            OutputRead: lambda _, message: self._errands.fetched(message),
            **dict.fromkeys((WantFile, GetPiece, FilePiece, OfferFiles, TaskRequest), self._errands.up),
        }
        self._loop.call_later(self._pause, self._look)

    # --- what the relay calls ----------------------------------------------------------------------

    def linked(self, line: RelayLine, credentials: Access) -> None:
        """There is a line to the server."""
        self._line, self._credentials = line, credentials
        for wide in self._wides:
            wide.link(line, credentials)

    def cut_off(self) -> None:
        """The line is gone; executors go on."""
        self._line = None

    def token(self, role: str) -> bytes:
        """What executors must know."""
        if role != "execute" or self._credentials is None:
            raise UserError("a relay that shares out work lets in executors only, once it has its server")
        return token_bytes(self._credentials.token, "the access file")

    @property
    def executors(self) -> int:
        """How many are connected."""
        return sum(wide.deck.open for wide in self._wides)

    def receive(self) -> MemberConnection:
        """Somebody has proven to know the token."""
        return MemberConnection(self)

    def close(self) -> None:
        """The relay ends: give everything back."""
        for wide in self._wides:
            wide.deck.abandon("its relay was ended")
            wide.leave("its relay was ended")
            wide.end()

    # --- what executors say ------------------------------------------------------------------------

    def heard(self, link: MemberConnection, messages: list[FromExecutor | RelayHello]) -> None:
        """An executor spoke."""
        visitor = link.visitor
        if visitor is None:
            self._greet(link, messages[0])
            visitor, messages = link.visitor, messages[1:]
            if visitor is None or not messages:
                return
        visitor.heard_at = self._loop.time()
        if len(messages) == 1 and type(messages[0]) is Heartbeat:  # most of what thousands of idle ones say
            self._on_alive(visitor, messages[0])
            return
        wide = visitor.wide
        for message in messages:
            if type(message) is Report:
                self._on_report(visitor, message)
                continue
            handler = self._hear.get(type(message))
            if handler is None:
                link.refuse(f"an executor may not say {type(message).__name__}", "ProtocolError")
                return
            handler(visitor, message)
        wide = wide or visitor.wide
        if wide is not None:
            self.turn(wide)

    def _greet(self, link: MemberConnection, hello: FromExecutor | RelayHello) -> None:
        if not isinstance(hello, ExecutorHello):
            link.refuse(
                "a relay that shares out work lets in executors only, no clients and no relays", "ProtocolError"
            )
        elif hello.version != VERSION:
            text = f"the relay speaks version {VERSION} and the executor {hello.version}; use the same bough"
            link.refuse(text, "ProtocolError")
        elif self._terms is None:
            self._waiting[link] = hello
            self._kind(MemberKind(hello.site, hello.capacity, hello.python, None))
        else:
            self._appoint(link, hello, self._terms)

    def _appoint(self, link: MemberConnection, hello: ExecutorHello, terms: ExecutorWelcome) -> None:
        """Let an executor in; one that was here before keeps its number, whichever relay it was given by."""
        if hello.executor and hello.marker != terms.marker:
            link.refuse("the executor belongs to another server, or to another store; start it anew", "UnknownName")
            return
        visitor = self._visitors.get(hello.executor) if hello.executor else None
        if visitor is None:
            index = next(self._indexes)
            number = hello.executor or ExecutorId(self._scope << _NUMBERS | index)
            member = Member(number, hello.host, hello.capacity, hello.until)
            visitor = self._visitors[number] = self._by_index[index] = MemberPeer(hello, member, index)
        elif visitor.link is not None:  # its old connection broke without a word
            visitor.link.visitor = None
            visitor.link.abort()
            self._miss(visitor)
        visitor.link, link.visitor = link, visitor
        visitor.heard_at, visitor.missing_until = self._loop.time(), 0.0
        link.send([replace(terms, executor=visitor.member.number, embedded=False, piggyback=True)])

    def _on_report(self, visitor: MemberPeer, report: Report) -> None:
        if visitor.wide is not None:
            visitor.wide.deck.report(visitor.member, report)
        else:  # it was somebody else's: nobody here knows what it is about
            visitor.member.reported = visitor.member.owed = report.number
            self._turns.owe(visitor)

    def _on_alive(self, visitor: MemberPeer, _: Heartbeat) -> None:
        if visitor.link is not None:
            visitor.link.send([Acknowledged(visitor.member.reported)])  # so that it knows that we live
            visitor.member.owed = 0

    def _on_holding(self, visitor: MemberPeer, message: SpansHeld) -> None:
        """It has said all; now it may be given work."""
        wide, hello = visitor.wide, visitor.hello
        if wide is None:
            wide = visitor.wide = self._kind(MemberKind(hello.site, hello.capacity, hello.python, message.shared))
            wide.deck.members[visitor.member.number] = visitor.member
            wide.begin()
        wide.deck.back(visitor.member, set(message.spans), leaving=bool(visitor.leaving))
        if wide.ending and not visitor.leaving and visitor.link is not None:
            visitor.link.send([Drain()])
        wide.resized()

    def _on_leaving(self, visitor: MemberPeer, message: Leaving) -> None:
        visitor.leaving = message.reason or "it left"
        if visitor.wide is not None:
            visitor.wide.deck.shut(visitor.member)
            visitor.wide.deck.say(visitor.member, Drain())
            visitor.wide.resized()

    def lost(self, link: MemberConnection) -> None:
        """A connection is gone."""
        self._waiting.pop(link, None)
        visitor = link.visitor
        if visitor is not None and visitor.link is link:
            visitor.link = None
            self._miss(visitor)

    def _miss(self, visitor: MemberPeer) -> None:
        """It is given nothing until it is back; when it said that it leaves, or had nothing, it is gone."""
        self._errands.lost(visitor)
        wide = visitor.wide
        visitor.missing_until = self._loop.time() + self._patience
        if wide is not None:
            wide.deck.shut(visitor.member)
            wide.resized()
        if visitor.leaving or wide is None:
            self._lose(visitor, visitor.leaving or "it left")

    def _lose(self, visitor: MemberPeer, reason: str) -> None:
        del self._visitors[visitor.member.number]
        self._by_index.pop(visitor.index, None)
        wide = visitor.wide
        if wide is not None:
            wide.deck.lose(visitor.member, reason)
            self.turn(wide)

    # --- kinds of executors ------------------------------------------------------------------------

    def _kind(self, kind: MemberKind) -> RelayExecutor:
        """The wide executor of which one is a member."""
        found = self._kinds.get(kind)
        if found is None and kind.shared is not None:  # one of which only this was not known
            found = self._kinds.pop(kind._replace(shared=None), None)
            if found is not None:
                found.kind = kind
                self._kinds[kind] = found
        if found is None:
            found = self._kinds[kind] = RelayExecutor(kind, self)
            found.number_from(self._scope)
            self._wides.append(found)
            if self._line is not None and self._credentials is not None:
                found.link(self._line, self._credentials)
        return found

    def appointed(self, wide: RelayExecutor, appointed: ExecutorWelcome) -> None:
        """The server has let one in; after the first, executors can be."""
        log(f"executor {wide.number} of the server: {wide.kind.site}, {wide.kind.capacity} each")
        if self._terms is None:
            self._terms, self._scope = appointed, int(appointed.executor)
            for each in self._wides:
                each.number_from(self._scope)
            waiting, self._waiting = self._waiting, {}
            for link, hello in waiting.items():
                self._appoint(link, hello, appointed)
        for visitor in [v for v in self._visitors.values() if v.carries and v.wide is wide and v.link is not None]:
            visitor.carries = False
            visitor.link.abort()  # type: ignore[union-attr]  # it asks again when it is back

    def refused(self, wide: RelayExecutor, refusal: Refused) -> None:
        """The server does not want such executors, or does not know them any more."""
        self._end(wide)
        if refusal.kind == "UnknownName":
            self._terms, self._scope = None, 0  # it is another server, or has another store
        for link, hello in list(self._waiting.items()):
            if MemberKind(hello.site, hello.capacity, hello.python, None) == wide.kind:
                link.refuse(refusal.message, refusal.kind)
        for visitor in [visitor for visitor in self._visitors.values() if visitor.wide is wide]:
            if visitor.link is not None:
                visitor.link.refuse(refusal.message, refusal.kind)
            visitor.wide = None
            self._lose(visitor, refusal.message)

    def pass_on(self, wide: RelayExecutor, message: object) -> None:
        """Something of the server's for one executor, or for all of a kind."""
        if isinstance(message, ReadOutput):
            self._errands.fetch(wide, message)
        elif isinstance(message, Drain | Leave):
            self._dismiss(wide, message)
        else:
            self._errands.down(message)  # type: ignore[arg-type]

    def _dismiss(self, wide: RelayExecutor, message: Drain | Leave) -> None:
        """All of a kind shall go; when none is left the wide executor goes, too."""
        if wide.ending and not wide.deck.members:  # the answer to our own word
            self._end(wide)
            return
        is_order_to_leave = isinstance(message, Leave)
        wide.is_dismissed = wide.is_dismissed or is_order_to_leave
        self._retire(wide, "it was stopped" if is_order_to_leave else "it was drained")
        for visitor in [visitor for visitor in self._visitors.values() if visitor.wide is wide]:
            if is_order_to_leave:
                visitor.leaving = visitor.leaving or wide.ending
                wide.deck.shut(visitor.member)
            wide.deck.say(visitor.member, message)
        wide.resized()

    def _retire(self, wide: RelayExecutor, reason: str) -> None:
        """Let nobody else become its member."""
        wide.ending = wide.ending or reason
        if self._kinds.get(wide.kind) is wide:
            del self._kinds[wide.kind]

    def _end(self, wide: RelayExecutor) -> None:
        self._retire(wide, "it left")
        wide.end()
        if wide in self._wides:
            self._wides.remove(wide)

    def _consider_end(self, wide: RelayExecutor) -> None:
        """A wide executor without members leaves, once everything was heard."""
        if wide.deck.members or wide.kind.shared is None or not wide.is_done:
            return
        if wide.is_dismissed:
            self._end(wide)
        else:
            self._retire(wide, "no executor is left behind its relay")
            wide.leave(wide.ending)

    def turn(self, wide: RelayExecutor) -> None:
        """Something may be handed out, or is to be said."""
        self._turns.want(wide)

    # --- by the clock ------------------------------------------------------------------------------

    @property
    def _heartbeat(self) -> Seconds:
        return self._terms.heartbeat if self._terms is not None else 4 * _LOOK

    @property
    def _pause(self) -> Seconds:
        return min(_LOOK, self._heartbeat / 4)

    def _look(self) -> None:
        """Look for silent ones, and for those whose time to come back is over."""
        pause, heartbeat = self._pause, self._heartbeat
        self._loop.call_later(pause, self._look)
        now = self._loop.time()
        if now - self._looked > 2 * pause + 1:  # we were stopped ourselves: what was said meanwhile is not read yet
            for visitor in self._visitors.values():
                visitor.heard_at = now
        self._looked = now
        for visitor in list(self._visitors.values()):
            if visitor.link is not None:
                if now - visitor.heard_at > heartbeat:
                    visitor.link.abort()
            elif now > visitor.missing_until:
                log(f"the executor on {visitor.hello.host}, pid {visitor.hello.pid}, is lost: it did not come back")
                self._lose(visitor, f"it did not come back within {self._patience:g} s")
        for wide in list(self._wides):
            wide.tick(min(_SILENCE, heartbeat / 4))
            self._consider_end(wide)
