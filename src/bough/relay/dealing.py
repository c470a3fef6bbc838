"""Handing out: what waits, whoever has room for it, and what goes back because nobody has.

Rule: nothing here walks all members or all lots to hand something out; whoever was given something comes last.
"""

from __future__ import annotations

from bough.core import ranges
from bough.core.timing import MAX_BACKLOG, MAX_SPAN, SHORT, TRUST, span_size
from bough.model.facts import SpanReturned
from bough.model.ids import BlobId, ExecutorId, Seconds, SpanId
from bough.model.resources import Needs
from bough.relay.lots import NOTHING, Lot, Part, Retry, part_run
from bough.relay.members import Member, Pool
from bough.wire.filemessages import Workplace
from bough.wire.messages import Blob
from bough.wire.reports import News

ALL = 1 << 62  # an element that no span reaches
_LOOKS = 8  # lots, or elements to be tried elsewhere, for which nobody was found in one round
_MOST_POOLS = 8  # kinds of needs that are kept although nothing waits


class Dealer:
    """What a deck has, and to whom it goes; all members have the same capacity."""

    def __init__(self, capacity: Needs) -> None:
        self.capacity = capacity
        self.members: dict[ExecutorId, Member] = {}
        self.open = 0  # members that may be given work
        self.pickup = MAX_SPAN  # most tasks of an array in one hand-out
        self.lots: dict[SpanId, Lot] = {}
        self.blobs: dict[BlobId, bytes] = {}
        self.places: dict[int, Workplace] = {}
        self.news: list[News] = []  # for the server
        self.speaking: dict[Member, None] = {}  # members with something in their outbox
        self._pools: dict[Needs, Pool] = {}
        self._last_span = 0
        self._untils: dict[Seconds, int] = {}  # of open members: when they leave, and how many then

    def number_from(self, first: SpanId) -> None:
        """Number spans from there, so that no other relay's have the same numbers."""
        self._last_span = max(self._last_span, int(first))

    def until(self) -> Seconds:
        """When the last of the members leaves, 0: never, or unknown."""
        return 0.0 if not self._untils or 0 in self._untils else max(self._untils)

    @property
    def is_starved(self) -> bool:
        """Whether somebody has room and nothing waits."""
        return any(pool.free for pool in self._pools.values()) and not any(p.lots for p in self._pools.values())

    # --- what waits ----------------------------------------------------------------------------------

    def _pool(self, needs: Needs) -> Pool:
        pool = self._pools.get(needs)
        if pool is None:
            if len(self._pools) > _MOST_POOLS:  # those of long ago cost every hand-out a look
                self._pools = {n: p for n, p in self._pools.items() if p.lots or p.retries}
            pool = self._pools[needs] = Pool(needs, self.capacity)
            for member in self.members.values():
                pool.consider(member)
        return pool

    def _enqueue(self, lot: Lot, *, first: bool = False) -> None:
        pool = self._pool(lot.run.needs)
        lot.is_queued = True
        if first:
            pool.lots.appendleft(lot)
        else:
            pool.lots.append(lot)

    def _return_chain(self, lot: Lot) -> None:
        """A lot goes back, and with it what was to follow."""
        self._give_back(lot)
        for following in lot.train or ():
            self._give_back(following)

    def _give_back(self, lot: Lot) -> None:
        """Give back to the server what nobody has yet of a lot."""
        waiting = ranges.take(lot.queue, 0, ALL)
        for low, high in waiting:
            self.news.append(SpanReturned(lot.run.span, low, high))
        self._settle_lot(lot, ranges.size(waiting))

    def _settle_part(self, part: Part) -> None:
        if not part.left:
            part.member.drop(part)
            part.lot.parts.pop(part.number, None)

    def _settle_lot(self, lot: Lot, count: int) -> None:
        lot.left -= count
        if not lot.left:
            self.lots.pop(lot.run.span, None)

    # --- members -------------------------------------------------------------------------------------

    def _open(self, member: Member) -> None:
        if not member.is_open:
            member.is_open = True
            self.open += 1
            self._untils[member.until] = self._untils.get(member.until, 0) + 1
            self._refresh(member)

    def shut(self, member: Member) -> None:
        """An executor shall be given nothing for now: its connection is gone, or it is leaving."""
        if member.is_open:
            member.is_open = False
            self.open -= 1
            self._untils[member.until] -= 1
            if not self._untils[member.until]:
                del self._untils[member.until]
            self._refresh(member)

    def _refresh(self, member: Member) -> None:
        for pool in self._pools.values():
            pool.consider(member)

    def say(self, member: Member, message: object) -> None:
        """Tell a member something."""
        member.outbox.append(message)
        self.speaking[member] = None

    # --- handing out ---------------------------------------------------------------------------------

    def deal(self, now: Seconds) -> None:
        """Hand out what waits, as far as there is room."""
        pools = [pool for pool in self._pools.values() if pool.lots or pool.retries]
        if len(pools) > 1:
            pools.sort(key=lambda pool: pool.order)
        for pool in pools:
            if not self.open or not pool.fits_at_all:
                self._empty(pool)
                continue
            if pool.retries:
                self._deal_retries(pool)
            self._deal_lots(pool, now)

    def _deal_lots(self, pool: Pool, now: Seconds) -> None:
        lots = pool.lots
        passed: list[Lot] = []
        while lots:
            lot = lots[0]
            if lot.queue:
                runtime, mean = lot.runtime, lot.mean
                short = 0 < mean <= SHORT
                member = pool.taker(mean, now, short=short, most=min(TRUST * runtime.seen, MAX_BACKLOG))
                if member is None:
                    if pool.has_late and len(passed) < _LOOKS:  # too long for those with room: others may not be
                        passed.append(lots.popleft())
                        continue
                    break
                start, stop = lot.queue[0]
                if lot.run.is_array:
                    if not lot.share:
                        takers = len(pool.free) + (len(pool.spare) if short else 0)
                        lot.share = -(-ranges.size(lot.queue) // takers)
                    stop = min(stop, start + span_size(runtime, 2 * lot.share, 1, self.pickup))
                self._give(pool, lot, member, start, stop)
            if not lot.queue:
                lots.popleft()
                lot.is_queued = False
        lots.extendleft(reversed(passed))

    def _give(self, pool: Pool, lot: Lot, member: Member, start: int, stop: int) -> None:
        """Give elements that wait to a member, and with them what is to follow."""
        ranges.take(lot.queue, start, stop)
        number = self._hand(lot, member, start, stop, NOTHING)
        if lot.train:
            numbers = {lot.run.span: number}
            for following in lot.train:
                following.queue.clear()
                run = following.run
                numbers[run.span] = self._hand(following, member, run.start, run.stop, numbers[run.behind])
        pool.free.pop(member, None)  # whoever is given something comes last
        pool.spare.pop(member, None)
        self._refresh(member)

    def _hand(self, lot: Lot, member: Member, start: int, stop: int, behind: SpanId) -> SpanId:
        self._last_span += 1
        number, run = SpanId(self._last_span), lot.run
        part = lot.parts[number] = Part(number, lot, member, start, stop)
        member.add(part)
        say = member.outbox.append
        self.speaking[member] = None
        if run.run and run.run in self.places and run.run not in (member.places or ()):
            member.places = (member.places or set()) | {run.run}
            say(self.places[run.run])
        for blob in (run.body, run.table):
            if blob and blob in self.blobs and blob not in (member.blobs or ()):
                member.blobs = (member.blobs or set()) | {blob}
                say(Blob(blob, self.blobs[blob]))
        say(part_run(lot, number, start, stop, behind))
        return number

    def _deal_retries(self, pool: Pool) -> None:
        """Try elsewhere what failed for reasons of the place, or tell of it if there is nowhere else."""
        for _ in range(min(_LOOKS, len(pool.retries))):
            retry = pool.retries.popleft()
            member = pool.other_taker(retry.avoid)
            if member is not None:
                self._give(pool, retry.lot, member, retry.index, retry.index + 1)
            elif len(retry.avoid) >= self.open:
                self._tell(retry)
            else:
                pool.retries.append(retry)

    def _tell(self, retry: Retry) -> None:
        self.news.append(retry.failed)
        self._settle_lot(retry.lot, 1)

    def _empty(self, pool: Pool) -> None:
        """Nobody here can take any of it: the server may have others."""
        for retry in pool.retries:
            self._tell(retry)
        pool.retries.clear()
        for lot in pool.lots:
            self._return_chain(lot)
            lot.is_queued = False
        pool.lots.clear()

    def give_back_late(self, now: Seconds) -> None:
        """Give back what can end before the last member leaves no more."""
        until = self.until()
        for pool in self._pools.values() if until else ():
            for lot in [lot for lot in pool.lots if lot.queue and now + lot.mean > until]:
                self._return_chain(lot)
