"""Messages that a relay which shares out work passes on between its executors and the server, with numbers exchanged.

An executor's request numbers are its own: to the server they are told together with the executor's index, so that the
answer finds its way without anything being remembered. Rule: the server hears of its own spans only, and an executor of
its own only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from msgspec.structs import replace

from bough.model.ids import ExecutorId
from bough.relay.visitors import Visitor
from bough.relay.wide import Wide
from bough.wire.filemessages import Get, Kept, Located, Offer, Piece, Want
from bough.wire.work import Fetch, Fetched, HereAnswer, HereAsk

_INDEX = 24  # bits of a request's number that say whose it is
_MASK = (1 << _INDEX) - 1
_ANSWERS = {Want: Located, Offer: Kept, HereAsk: HereAnswer}
_MADE_BY = re.compile(r"x(\d+)-")  # how executors name their output files


class Errands:
    """See the module. `find` gives the executor of an index, `known` the one of a number."""

    def __init__(self, find: Callable[[int], Visitor | None], known: Callable[[ExecutorId], Visitor | None]) -> None:
        self._find = find
        self._known = known
        self._fetches: dict[int, tuple[Wide, int, Visitor]] = {}  # whose question, its number there, who is asked
        self._last = 0

    def up(self, visitor: Visitor, message: Want | Get | Piece | Offer | HereAsk) -> None:
        """An executor says something about files, or one of its tasks something of itself."""
        wide = visitor.wide
        if wide is None:
            return
        visitor.carries = True
        request = message.request << _INDEX | visitor.index
        if isinstance(message, Want | Offer | HereAsk):
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

    def down(self, message: Located | Get | Piece | Kept | HereAnswer) -> None:
        """The server answers, or wants a piece of something that was offered."""
        visitor = self._find(message.request & _MASK)
        if visitor is not None and visitor.link is not None:
            visitor.link.send([replace(message, request=message.request >> _INDEX)])

    def fetch(self, wide: Wide, message: Fetch) -> None:
        """Somebody wants to see what a task wrote: ask whoever has it."""
        visitor = self._who_has(wide, message)
        if visitor is None or visitor.link is None:
            waits = self._is_waiting(wide, message)
            what = "the executor that has this output is not here" if message.path else "the task does not run here"
            wide.say(Fetched(message.request, b"", more=waits, error="" if waits else what))
            return
        self._last += 1
        self._fetches[self._last] = (wide, message.request, visitor)
        visitor.link.send([replace(message, request=self._last)])

    def fetched(self, message: Fetched) -> None:
        """The executor's answer."""
        asked = self._fetches.pop(message.request, None)
        if asked is not None:
            asked[0].say(replace(message, request=asked[1]))

    def lost(self, visitor: Visitor) -> None:
        """What an executor was asked for will not come."""
        for number in [number for number, asked in self._fetches.items() if asked[2] is visitor]:
            wide, request, _ = self._fetches.pop(number)
            wide.say(Fetched(request, b"", error="the executor that has this output is gone"))

    def _who_has(self, wide: Wide, message: Fetch) -> Visitor | None:
        if message.path:
            made = _MADE_BY.match(os.path.basename(message.path))
            return self._known(ExecutorId(int(made[1]))) if made else None
        for lot in wide.deck.lots.values():
            if lot.run.record == message.record:
                for part in lot.parts.values():
                    if part.has(message.index):
                        return self._known(part.member.number)
        return None

    def _is_waiting(self, wide: Wide, message: Fetch) -> bool:
        """Whether a task is here and has not been handed out."""
        return not message.path and any(lot.run.record == message.record for lot in wide.deck.lots.values())
