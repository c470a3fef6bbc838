"""Class `Distributor`, whole again: told the time and the news, it says what goes to which executor.

Handing out: what waits, whoever has room for it, and what goes back because nobody has.

Rule: nothing here walks all members or all lots to hand something out; whoever was given something comes last.

The deck of a relay that shares out work: told the time and the news, it says what goes to whom.

It keeps what the server gave for executors of one kind, and tells the server what became of it in the server's own
numbers. Rule: every element is told of to its end once, or was stopped, whatever happens to the executor that had it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from bough.model import ranges
from bough.model.events.news import CallsEnded, WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.ids import BlobId, ExecutorId, RecordId, Seconds, SpanId
from bough.model.outcomes import Cause, Failure
from bough.model.resources import Needs
from bough.model.runtimes import MAX_BACKLOG, MAX_SPAN, SHORT, TRUST, RunTime, span_size
from bough.relay.members import NOTHING, Member, MemberSpan, Pool, Retry, ServerSpan, part_run, success
from bough.wire.client_messages import Blob
from bough.wire.executor_messages import Report, RunSpan, StopElements
from bough.wire.file_messages import WorkDirectory
from bough.wire.framing import News

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
        self.lots: dict[SpanId, ServerSpan] = {}
        self.blobs: dict[BlobId, bytes] = {}
        self.places: dict[int, WorkDirectory] = {}
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

    def _enqueue(self, lot: ServerSpan, *, first: bool = False) -> None:
        pool = self._pool(lot.run.needs)
        lot.is_queued = True
        if first:
            pool.lots.appendleft(lot)
        else:
            pool.lots.append(lot)

    def _return_chain(self, lot: ServerSpan) -> None:
        """A lot goes back, and with it what was to follow."""
        self._give_back(lot)
        for following in lot.train or ():
            self._give_back(following)

    def _give_back(self, lot: ServerSpan) -> None:
        """Give back to the server what nobody has yet of a lot."""
        waiting = ranges.take(lot.queue, 0, ALL)
        for low, high in waiting:
            self.news.append(WorkReturned(lot.run.span, low, high))
        self._settle_lot(lot, ranges.size(waiting))

    def _settle_part(self, part: MemberSpan) -> None:
        if not part.left:
            part.member.drop(part)
            part.lot.parts.pop(part.number, None)

    def _settle_lot(self, lot: ServerSpan, count: int) -> None:
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
        passed: list[ServerSpan] = []
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

    def _give(self, pool: Pool, lot: ServerSpan, member: Member, start: int, stop: int) -> None:
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

    def _hand(self, lot: ServerSpan, member: Member, start: int, stop: int, behind: SpanId) -> SpanId:
        self._last_span += 1
        number, run = SpanId(self._last_span), lot.run
        part = lot.parts[number] = MemberSpan(number, lot, member, start, stop)
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


_MOST_TRIES = 3  # executors on which something may fail for reasons of the place before that is told
_MOST_RETURNS = 20  # times in a row that something is given back before the server hears of it
_MOST_ARRAYS = 1000  # whose run time is remembered


class Distributor(Dealer):
    """See the module."""

    def __init__(self, capacity: Needs) -> None:
        super().__init__(capacity)
        self._runtimes: OrderedDict[RecordId, RunTime] = OrderedDict()
        self._order = 0
        self._hear: dict[type, Callable[..., None]] = {
            WorkSucceeded: self._on_ended,
            WorkFailed: self._on_failed,
            WorkStarted: self._on_started,
            WorkReturned: self._on_returned,
        }

    # --- from the server ---------------------------------------------------------------------------

    def run(self, run: RunSpan) -> None:
        """Take a span; it is handed out by `deal`."""
        self._order += 1
        lot = ServerSpan(run, self._order, self._runtime(run))
        if run.behind:
            before = self.lots.get(run.behind)
            head = (before.head or before) if before is not None else None
            if head is None or head.parts or not head.queue:  # what it is to follow was handed out already
                self.news.append(WorkReturned(run.span, run.start, run.stop))
                return
            head.train = head.train or []
            head.train.append(lot)
            lot.head = head
        else:
            self._enqueue(lot)
        self.lots[run.span] = lot

    def _runtime(self, run: RunSpan) -> RunTime:
        """What is known of the run time of its tasks; of an array, what was measured here, once something was."""
        if not run.is_array:  # the server knows which single tasks are alike
            return RunTime(run.expected, MAX_BACKLOG if run.expected else 0)
        found = self._runtimes.get(run.record)
        if found is None:
            found = self._runtimes[run.record] = RunTime(run.expected, run.stop - run.start if run.expected else 0)
            if len(self._runtimes) > _MOST_ARRAYS:
                self._runtimes.popitem(last=False)
        elif run.expected and not found.seen:
            found.mean, found.seen = run.expected, 1
        return found

    def stop(self, order: StopElements) -> None:
        """End elements of a span, whoever has them."""
        lot = self.lots.get(order.span)
        if lot is None:
            return
        dropped = ranges.size(ranges.take(lot.queue, order.start, order.stop))
        if dropped and lot.is_chained:
            self._uncouple(lot)
        gone = self._forget_tries(lot, order.start, order.stop)
        for part in list(lot.parts.values()):
            for low, high in ranges.take(part.left, order.start, order.stop):
                gone += high - low
                self.say(part.member, StopElements(part.number, low, high, order.grace))
            self._settle_part(part)
            self._refresh(part.member)
        self._settle_lot(lot, dropped + gone)

    def _uncouple(self, lot: ServerSpan) -> None:
        """A lot will not be handed out: what was to follow it goes back, the rest of its train goes without."""
        train, behind = (lot.head or lot).train or [], {lot.run.span}
        for following in train:
            if following.run.behind in behind:
                behind.add(following.run.span)
                self._give_back(following)
        train[:] = [following for following in train if following.run.span not in behind]

    def _forget_tries(self, lot: ServerSpan, start: int, stop: int) -> int:
        """Elements that wait to be tried elsewhere are not; how many."""
        if not lot.tries:
            return 0
        pool = self._pool(lot.run.needs)
        wanted = [r for r in pool.retries if r.lot is lot and start <= r.index < stop]
        for retry in wanted:
            pool.retries.remove(retry)
        return len(wanted)

    # --- members -----------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """An executor is there to be given work."""
        self.members[member.number] = member
        self._open(member)

    def back(self, member: Member, spans: set[SpanId], *, leaving: bool = False) -> None:
        """An executor is back, and has said all it had to say: these spans are there."""
        for part in [part for number, part in member.parts.items() if number not in spans]:
            self._take_back(part)
        for span in spans:
            if span not in member.parts:
                self.say(member, StopElements(span, 0, ALL))
        member.blobs = member.places = None  # the last that was sent may have been lost
        if leaving:
            self._refresh(member)
        else:
            self._open(member)

    def lose(self, member: Member, reason: str) -> None:
        """An executor is gone for ever: what surely or probably ran there has failed, others get the rest."""
        self.shut(member)
        self.members.pop(member.number, None)
        failure = Failure(Cause.LOST, f"the executor on {member.host} was lost: {reason}")
        front = set(member.front(self.capacity))
        for part in list(member.parts.values()):
            span = part.lot.run.span
            for index in part.probably_running(in_front=part in front):
                ranges.take(part.left, index, index + 1)
                self.news.append(WorkFailed(span, index, failure, host=member.host))
                self._settle_lot(part.lot, 1)
            self._take_back(part)
        for pool in self._pools.values():
            pool.forget(member)
        self.speaking.pop(member, None)

    def _take_back(self, part: MemberSpan) -> None:
        """What is left of a part goes to others; what was to follow something goes back to the server."""
        for low, high in ranges.take(part.left, 0, ALL):
            self._requeue(part.lot, low, high)
        self._settle_part(part)

    def _requeue(self, lot: ServerSpan, start: int, stop: int) -> None:
        if lot.is_chained:
            self.news.append(WorkReturned(lot.run.span, start, stop))
            self._settle_lot(lot, stop - start)
            return
        ranges.add(lot.queue, start, stop)
        if not lot.is_queued:
            self._enqueue(lot, first=True)

    # --- news of members ---------------------------------------------------------------------------

    def report(self, member: Member, report: Report) -> None:
        """Take in what an executor says; what it said before counts once."""
        member.owed = max(member.owed, report.number)
        self.speaking[member] = None
        if report.number <= member.reported:
            return
        member.reported = report.number
        for news in report.news:
            if type(news) is CallsEnded:
                self._on_calls_ended(member, news)
                continue
            part = member.parts.get(news.span)
            if part is not None:
                self._hear[type(news)](part, news)
        self._refresh(member)

    def _on_ended(self, part: MemberSpan, news: WorkSucceeded) -> None:
        lot = part.lot
        for low, high in ranges.take(part.left, news.start, news.stop):
            self.news.append(success(news, lot.run.span, low, high, part.member.host))
            self._settle_lot(lot, high - low)
        lot.returns = 0
        lot.runtime.note(max(1, news.stop - news.start), news.seconds)
        self._settle_part(part)

    def _on_calls_ended(self, member: Member, news: CallsEnded) -> None:
        """Tasks under consecutive numbers succeeded."""
        ends = zip(news.seconds, news.results, strict=True)
        for number, (seconds, results) in enumerate(ends, news.span + news.start):
            part = member.parts.get(number)
            if part is not None:
                self._on_ended(part, WorkSucceeded(SpanId(number), 0, 1, seconds, results))

    def _on_failed(self, part: MemberSpan, news: WorkFailed) -> None:
        lot, index, host = part.lot, news.index, part.member.host
        if not ranges.take(part.left, index, index + 1):
            return
        self._settle_part(part)
        said = WorkFailed(lot.run.span, index, news.failure, news.detail, host=host)
        if news.failure.site and not lot.is_chained:
            tries = lot.tries = lot.tries or {}
            tries.setdefault(index, set()).add(part.member.number)
            if len(tries[index]) < min(_MOST_TRIES, self.open):
                self._pool(lot.run.needs).retries.append(Retry(lot, said))
                return
        self.news.append(said)
        self._settle_lot(lot, 1)

    def _on_started(self, part: MemberSpan, news: WorkStarted) -> None:
        running = part.running = part.running or []
        ranges.take(running, news.start, news.stop)
        ranges.add(running, news.start, news.stop)
        self.news.append(WorkStarted(part.lot.run.span, news.start, news.stop, host=part.member.host))

    def _on_returned(self, part: MemberSpan, news: WorkReturned) -> None:
        lot = part.lot
        lot.returns += 1
        for low, high in ranges.take(part.left, news.start, news.stop):
            if lot.returns > _MOST_RETURNS:
                self.news.append(WorkReturned(lot.run.span, low, high))
                self._settle_lot(lot, high - low)
            else:
                self._requeue(lot, low, high)
        self._settle_part(part)

    def abandon(self, reason: str) -> None:
        """The relay ends: what runs is lost to it, the rest goes back."""
        for member in list(self.members.values()):
            self.lose(member, reason)
        for lot in list(self.lots.values()):
            self._give_back(lot)
