"""Turns of a relay that shares out work: hand out what waits, then say to each executor all there is in one frame.

Rule: whatever arrives within one round of the loop leads to one turn; an acknowledgement waits for work to travel with.
"""

from __future__ import annotations

import asyncio
import time

from bough.model.ids import ExecutorId
from bough.relay.visitors import Visitor
from bough.relay.wide import Wide
from bough.wire.work import Heard

_OWED = 1.0  # seconds that an acknowledgement may wait
_MOST_SENT = 1 << 24  # bytes that are put into the connections of one kind before they are given a chance to leave


class Turns:
    """See the module."""

    def __init__(self, visitors: dict[ExecutorId, Visitor]) -> None:
        self._visitors = visitors
        self._loop = asyncio.get_running_loop()
        self._owing: set[Visitor] = set()
        self._timer: asyncio.TimerHandle | None = None

    def want(self, wide: Wide) -> None:
        """Take a turn, once all that has arrived is taken in."""
        if not wide.scheduled:
            wide.scheduled = True
            self._loop.call_soon(self._take, wide)

    def _take(self, wide: Wide) -> None:
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
                    messages.insert(0, Heard(member.owed))
                    member.owed = 0
                size += visitor.link.send(messages)
            elif member.owed:
                self.owe(visitor)
        if deck.speaking:
            self.want(wide)
        wide.flush()

    def owe(self, visitor: Visitor) -> None:
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
                visitor.link.send([Heard(member.owed)])
                member.owed = 0
