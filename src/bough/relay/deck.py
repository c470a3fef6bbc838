"""The deck of a relay that shares out work: told the time and the news, it says what goes to whom.

It keeps what the server gave for executors of one kind, and tells the server what became of it in the server's own
numbers. Rule: every element is told of to its end once, or was stopped, whatever happens to the executor that had it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from bough.core import ranges
from bough.core.timing import MAX_BACKLOG, RunTime
from bough.model.facts import CallsEnded, ElementFailed, SpanEnded, SpanReturned, SpanStarted
from bough.model.ids import RecordId, SpanId
from bough.model.outcomes import Cause, Failure
from bough.model.resources import Needs
from bough.relay.dealing import ALL, Dealer
from bough.relay.lots import Lot, Part, Retry, success
from bough.relay.members import Member
from bough.wire.work import Report, Run, Stop

_MOST_TRIES = 3  # executors on which something may fail for reasons of the place before that is told
_MOST_RETURNS = 20  # times in a row that something is given back before the server hears of it
_MOST_ARRAYS = 1000  # whose run time is remembered


class Deck(Dealer):
    """See the module."""

    def __init__(self, capacity: Needs) -> None:
        super().__init__(capacity)
        self._runtimes: OrderedDict[RecordId, RunTime] = OrderedDict()
        self._order = 0
        self._hear: dict[type, Callable[..., None]] = {
            SpanEnded: self._on_ended,
            ElementFailed: self._on_failed,
            SpanStarted: self._on_started,
            SpanReturned: self._on_returned,
        }

    # --- from the server ---------------------------------------------------------------------------

    def run(self, run: Run) -> None:
        """Take a span; it is handed out by `deal`."""
        self._order += 1
        lot = Lot(run, self._order, self._runtime(run))
        if run.behind:
            before = self.lots.get(run.behind)
            head = (before.head or before) if before is not None else None
            if head is None or head.parts or not head.queue:  # what it is to follow was handed out already
                self.news.append(SpanReturned(run.span, run.start, run.stop))
                return
            head.train = head.train or []
            head.train.append(lot)
            lot.head = head
        else:
            self._enqueue(lot)
        self.lots[run.span] = lot

    def _runtime(self, run: Run) -> RunTime:
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

    def stop(self, order: Stop) -> None:
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
                self.say(part.member, Stop(part.number, low, high, order.grace))
            self._settle_part(part)
            self._refresh(part.member)
        self._settle_lot(lot, dropped + gone)

    def _uncouple(self, lot: Lot) -> None:
        """A lot will not be handed out: what was to follow it goes back, the rest of its train goes without."""
        train, behind = (lot.head or lot).train or [], {lot.run.span}
        for following in train:
            if following.run.behind in behind:
                behind.add(following.run.span)
                self._give_back(following)
        train[:] = [following for following in train if following.run.span not in behind]

    def _forget_tries(self, lot: Lot, start: int, stop: int) -> int:
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
                self.say(member, Stop(span, 0, ALL))
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
                self.news.append(ElementFailed(span, index, failure, host=member.host))
                self._settle_lot(part.lot, 1)
            self._take_back(part)
        for pool in self._pools.values():
            pool.forget(member)
        self.speaking.pop(member, None)

    def _take_back(self, part: Part) -> None:
        """What is left of a part goes to others; what was to follow something goes back to the server."""
        for low, high in ranges.take(part.left, 0, ALL):
            self._requeue(part.lot, low, high)
        self._settle_part(part)

    def _requeue(self, lot: Lot, start: int, stop: int) -> None:
        if lot.is_chained:
            self.news.append(SpanReturned(lot.run.span, start, stop))
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

    def _on_ended(self, part: Part, news: SpanEnded) -> None:
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
                self._on_ended(part, SpanEnded(SpanId(number), 0, 1, seconds, results))

    def _on_failed(self, part: Part, news: ElementFailed) -> None:
        lot, index, host = part.lot, news.index, part.member.host
        if not ranges.take(part.left, index, index + 1):
            return
        self._settle_part(part)
        said = ElementFailed(lot.run.span, index, news.failure, news.detail, host=host)
        if news.failure.site and not lot.is_chained:
            tries = lot.tries = lot.tries or {}
            tries.setdefault(index, set()).add(part.member.number)
            if len(tries[index]) < min(_MOST_TRIES, self.open):
                self._pool(lot.run.needs).retries.append(Retry(lot, said))
                return
        self.news.append(said)
        self._settle_lot(lot, 1)

    def _on_started(self, part: Part, news: SpanStarted) -> None:
        running = part.running = part.running or []
        ranges.take(running, news.start, news.stop)
        ranges.add(running, news.start, news.stop)
        self.news.append(SpanStarted(part.lot.run.span, news.start, news.stop, host=part.member.host))

    def _on_returned(self, part: Part, news: SpanReturned) -> None:
        lot = part.lot
        lot.returns += 1
        for low, high in ranges.take(part.left, news.start, news.stop):
            if lot.returns > _MOST_RETURNS:
                self.news.append(SpanReturned(lot.run.span, low, high))
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
