"""The distributor of a relay that shares out work: told the time and the news, it says what goes to which executor.

It keeps what the server gave for executors of one kind, its members, and tells the server what became of it in the
server's own numbers. It has no clock and no socket.

Rules: every element is reported to its end once, or was stopped, whatever happens to the executor that had it. To hand
something out, nothing walks all members or all spans; the member that was given something comes last. A member on which
much failed that worked elsewhere is suspended by the server's own rule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from bough.model.arrays import ranges
from bough.model.arrays.runtimes import MAX_BACKLOG, MAX_SPAN, SHORT, TRUST, RunTime, span_size
from bough.model.events.news import (
    CallsEnded,
    WorkFailed,
    WorkObserved,
    WorkReturned,
    WorkStarted,
    WorkStopped,
    WorkSucceeded,
)
from bough.model.ids import BlobId, ExecutorId, RecordId, Seconds, SpanId
from bough.model.outcomes import Cause, Failure, waited_in
from bough.model.sites.resources import Needs
from bough.model.sites.suspension import TROUBLED, describe_trouble, rest_after
from bough.relay.members import NOTHING, Member, MemberSpan, Pool, Retry, ServerSpan, part_run, success
from bough.wire.client_messages import Blob
from bough.wire.executor_messages import (
    ClearOut,
    EndElements,
    GiveBacklog,
    Report,
    RunSpan,
    StayOn,
    StopElements,
    WatchElements,
)
from bough.wire.file_messages import WorkDirectory
from bough.wire.framing import News

ALL = 1 << 62  # an element that no span reaches
_LOOKS = 8  # spans, or elements to be tried elsewhere, for which no member was found in one round
_MOST_POOLS = 8  # kinds of needs that are kept although nothing waits
_MOST_TRIES = 3  # executors on which something may fail for reasons of the site before that is reported
_MOST_RETURNS = 20  # times in a row that something is given back before the server hears of it
_MOST_ENDINGS = 64  # that are said again to an executor which comes back
_MOST_ARRAYS = 1000  # whose run time is remembered


class Distributor:
    """See the module. All members have the same capacity."""

    def __init__(self, capacity: Needs) -> None:
        self.capacity = capacity
        self.members: dict[ExecutorId, Member] = {}
        self.open = 0  # members that may be given work
        self.troubled = TROUBLED  # tasks in a row that failed with a member and worked elsewhere: it is suspended
        self.max_span = MAX_SPAN  # most tasks of an array that a member is given at once
        self.server_spans: dict[SpanId, ServerSpan] = {}
        self.blobs: dict[BlobId, bytes] = {}
        self.directories: dict[int, WorkDirectory] = {}
        self.news: list[News] = []  # for the server
        self.suspended: list[tuple[Member, Seconds, str]] = []  # since it was looked at last: whom, how long, and why
        self.has_resized = False  # members were suspended, or are so no more
        self.speaking: dict[Member, None] = {}  # members with something in their outbox
        self._lacking_space: dict[ExecutorId, list[SpanId]] = {}  # what waits for space on the disk of the store
        self._pools: dict[Needs, Pool] = {}
        self._last_span = 0
        self._untils: dict[Seconds, int] = {}  # of open members: when they leave, and how many then
        self._runtimes: OrderedDict[RecordId, RunTime] = OrderedDict()
        self._order = 0
        self._troubled: dict[Member, None] = {}  # are to be suspended
        self._resting: dict[Member, None] = {}  # are suspended
        self._cleared: ClearOut | None = None  # the site was taken back: nothing is handed out
        self._handlers: dict[type, Callable[..., None]] = {
            WorkSucceeded: self._on_ended,
            WorkFailed: self._on_failed,
            WorkStarted: self._on_started,
            WorkReturned: self._on_returned,
            WorkObserved: self._on_observed,
        }

    def number_from(self, first: SpanId) -> None:
        """Number spans from there, so that no other relay's have the same numbers."""
        self._last_span = max(self._last_span, int(first))

    def until(self) -> Seconds:
        """When the last of the members leaves, 0: never, or unknown."""
        return 0.0 if not self._untils or 0 in self._untils else max(self._untils)

    @property
    def is_starved(self) -> bool:
        """Whether a member has room and nothing waits."""
        return any(pool.free for pool in self._pools.values()) and not any(p.server_spans for p in self._pools.values())

    # --- from the server --------------------------------------------------------------------------

    def run(self, run: RunSpan) -> None:
        """Take a span; it is handed out by `distribute`."""
        self._cleared = None  # the site may be used again
        self._order += 1
        server_span = ServerSpan(run, self._order, self._runtime(run))
        if run.after_span:
            before = self.server_spans.get(run.after_span)
            head = (before.chain_head or before) if before is not None else None
            if head is None or head.parts or not head.queue:  # what it is to follow was handed out already
                self.news.append(WorkReturned(run.span, run.start, run.stop))
                return
            head.chain = head.chain or []
            head.chain.append(server_span)
            server_span.chain_head = head
        else:
            self._enqueue(server_span)
        self.server_spans[run.span] = server_span

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
            found.believe(run.expected, 1)
        return found

    def stop(self, order: StopElements) -> None:
        """End elements of a span, in every member that has some."""
        server_span = self.server_spans.get(order.span)
        if server_span is None:
            return
        dropped = ranges.size(ranges.take(server_span.queue, order.start, order.stop))
        if dropped and server_span.is_chained:
            self._break_chain(server_span)
        gone = self._forget_tries(server_span, order.start, order.stop)
        for part in list(server_span.parts.values()):
            for low, high in ranges.take(part.left, order.start, order.stop):
                gone += high - low
                self.say(part.member, StopElements(part.number, low, high, order.grace))
            self._drop_finished(part)
            self._refresh(part.member)
        self._account_for(server_span, dropped + gone)

    def clear(self, order: ClearOut) -> None:
        """The site was taken back: what waits goes back to the server, and members give back what they have."""
        self._cleared = order
        for pool in self._pools.values():
            self._empty(pool)
        for member in self.members.values():
            self.say(member, order)

    def stay(self, order: StayOn) -> None:
        """The site may be used again: what still runs goes on."""
        self._cleared = None
        for member in self.members.values():
            self.say(member, order)

    def give_backlog(self, order: GiveBacklog) -> None:
        """Another executor of the server has nothing to do: what waits here goes back."""
        for pool in self._pools.values():
            self._empty(pool)

    def watch(self, order: WatchElements) -> None:
        """Have elements of a span watched by one more plan, where they are and where they will go."""
        server_span = self.server_spans.get(order.span)
        if server_span is not None:
            server_span.later = tuple(dict.fromkeys((*server_span.later, order)))
            for part in server_span.parts.values():
                self._say_later(part, [order])

    def end(self, order: EndElements) -> None:
        """Have elements of a span that run ended by a verdict; what waits here is left alone."""
        server_span = self.server_spans.get(order.span)
        for part in server_span.parts.values() if server_span is not None else ():
            part.endings = (*part.endings, order)[-_MOST_ENDINGS:]
            self._say_later(part, [order])

    def _say_later(self, part: MemberSpan, orders: Iterable[WatchElements | EndElements]) -> None:
        """Tell a member what came after a span, as far as it has the elements; it is harmless to hear it twice."""
        for order in orders:
            for low, high in part.left:
                start, stop = max(low, order.start), min(high, order.stop)
                if start < stop:
                    if isinstance(order, WatchElements):
                        self._say_blob(part.member, order.plan)
                    self.say(part.member, replace(order, span=part.number, start=start, stop=stop))

    def _say_blob(self, member: Member, blob: BlobId) -> None:
        if blob and blob in self.blobs and blob not in (member.blobs or ()):
            member.blobs = (member.blobs or set()) | {blob}
            self.say(member, Blob(blob, self.blobs[blob]))

    def _break_chain(self, server_span: ServerSpan) -> None:
        """A span will not be handed out: what was to follow it goes back, the rest of its chain goes without."""
        chain, after_span = (server_span.chain_head or server_span).chain or [], {server_span.run.span}
        for following in chain:
            if following.run.after_span in after_span:
                after_span.add(following.run.span)
                self._give_back(following)
        chain[:] = [following for following in chain if following.run.span not in after_span]

    def _forget_tries(self, server_span: ServerSpan, start: int, stop: int) -> int:
        """Elements that wait to be tried elsewhere are not; how many."""
        if not server_span.tries:
            return 0
        pool = self._pool(server_span.run.needs)
        wanted = [r for r in pool.retries if r.server_span is server_span and start <= r.index < stop]
        for retry in wanted:
            pool.retries.remove(retry)
        return len(wanted)

    # --- members ----------------------------------------------------------------------------------

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
        member.blobs = member.directories = None  # the last that was sent may have been lost
        self._lacking_space.pop(member.number, None)  # it says so again
        for part in member.parts.values():
            self._say_later(part, (*part.server_span.later, *part.endings))
        if self._cleared is not None:
            self.say(member, self._cleared)
        if leaving:
            self._refresh(member)
        else:
            self._open(member)

    def lose(self, member: Member, reason: str) -> None:
        """An executor is lost for good: what surely or probably ran there has failed, others get the rest."""
        self.shut(member)
        self.members.pop(member.number, None)
        self._lacking_space.pop(member.number, None)
        self._troubled.pop(member, None)
        self._resting.pop(member, None)
        failure = Failure(Cause.LOST, f"the executor on {member.host} was lost: {reason}")
        front = set(member.front(self.capacity))
        for part in list(member.parts.values()):
            span = part.server_span.run.span
            for index in part.probably_running(in_front=part in front):
                ranges.take(part.left, index, index + 1)
                self.news.append(WorkFailed(span, index, failure, host=member.host))
                self._account_for(part.server_span, 1)
            self._take_back(part)
        for pool in self._pools.values():
            pool.forget(member)
        self.speaking.pop(member, None)

    def _take_back(self, part: MemberSpan) -> None:
        """What is left of a part goes to others; what was to follow something goes back to the server."""
        for low, high in ranges.take(part.left, 0, ALL):
            self._requeue(part.server_span, low, high)
        self._drop_finished(part)

    def _requeue(self, server_span: ServerSpan, start: int, stop: int) -> None:
        if server_span.is_chained or self._cleared is not None:
            self.news.append(WorkReturned(server_span.run.span, start, stop))
            self._account_for(server_span, stop - start)
            return
        ranges.add(server_span.queue, start, stop)
        if not server_span.is_queued:
            self._enqueue(server_span, first=True)

    def _open(self, member: Member) -> None:
        member.is_present = True
        self._update_open(member)

    def shut(self, member: Member) -> None:
        """An executor shall be given nothing for now: its connection is gone, or it is leaving."""
        member.is_present = False
        self._update_open(member)

    def _update_open(self, member: Member) -> None:
        may = member.is_present and not member.suspended
        if may is member.is_open:
            return
        member.is_open = may
        self.open += 1 if may else -1
        count = self._untils.get(member.until, 0) + (1 if may else -1)
        if count:
            self._untils[member.until] = count
        else:
            del self._untils[member.until]
        self._refresh(member)

    # --- members that are suspended ---------------------------------------------------------------

    def _compare_members(self, member: Member, server_span: ServerSpan, start: int, stop: int) -> None:
        """What worked with this one had failed with others: that speaks against those, and for this one."""
        member.trouble = 0
        tries = server_span.tries or {}
        some = range(start, stop) if stop - start < len(tries) else list(tries)
        for index in [index for index in some if index in tries and start <= index < stop]:
            for number in tries.pop(index):
                other = self.members.get(number)
                if other is not None and other is not member:
                    other.trouble += 1
                    if other.trouble >= self.troubled:
                        self._troubled[other] = None

    def _suspend(self, now: Seconds) -> None:
        """Give a rest to those on which much failed that worked elsewhere; a longer one each time."""
        troubled, self._troubled = self._troubled, {}
        for member in troubled:
            if not member.suspended and member.trouble >= self.troubled:
                rest = rest_after(member.suspensions)
                self.suspended.append((member, rest, describe_trouble(member.trouble)))
                member.suspended = now + rest
                member.suspensions += 1
                member.trouble = 0
                self._resting[member] = None
                self._update_open(member)
                self.has_resized = True

    def end_rests(self, now: Seconds) -> bool:
        """Give members work again whose rest is over; whether there were some."""
        rested = [member for member in self._resting if member.suspended <= now]
        for member in rested:
            del self._resting[member]
            member.suspended = 0.0
            self._update_open(member)
            self.has_resized = True
        return bool(rested)

    def _has_other(self, tried: set[ExecutorId]) -> bool:
        """Whether a member that may be given work is not one of these."""
        known = (self.members.get(number) for number in tried)
        return self.open > sum(member is not None and member.is_open for member in known)

    def _refresh(self, member: Member) -> None:
        for pool in self._pools.values():
            pool.consider(member)

    def say(self, member: Member, message: object) -> None:
        """Send something to a member, with the next frame."""
        member.outbox.append(message)
        self.speaking[member] = None

    # --- news of members --------------------------------------------------------------------------

    def await_space(self, member: Member, spans: list[SpanId]) -> None:
        """A member says which of its parts wait for space on the disk of the store, all of them."""
        self._lacking_space.pop(member.number, None)
        if spans:
            self._lacking_space[member.number] = spans

    def space_awaited(self) -> list[SpanId]:
        """The server's spans of which a part waits for space."""
        found: dict[SpanId, None] = {}
        for number, spans in self._lacking_space.items():
            parts = self.members[number].parts if number in self.members else {}
            found.update((parts[span].server_span.run.span, None) for span in spans if span in parts)
        return list(found)

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
            if type(news) is WorkStopped:  # its span may be forgotten: it names its task
                self.news.append(replace(news, span=SpanId(0), host=member.host))
                continue
            part = member.parts.get(news.span)
            if part is not None:
                self._handlers[type(news)](part, news)
        self._refresh(member)

    def _on_ended(self, part: MemberSpan, news: WorkSucceeded) -> None:
        server_span = part.server_span
        for low, high in ranges.take(part.left, news.start, news.stop):
            self.news.append(success(news, server_span.run.span, low, high, part.member.host))
            self._account_for(server_span, high - low)
            if part.member.trouble or server_span.tries:
                self._compare_members(part.member, server_span, low, high)
        server_span.returns = 0
        server_span.runtime.note(max(1, news.stop - news.start), news.seconds, waited_in(news.details))
        self._drop_finished(part)

    def _on_calls_ended(self, member: Member, news: CallsEnded) -> None:
        """Tasks under consecutive numbers succeeded."""
        ends = zip(news.seconds, news.results, strict=True)
        for number, (seconds, results) in enumerate(ends, news.span + news.start):
            part = member.parts.get(number)
            if part is not None:
                self._on_ended(part, WorkSucceeded(SpanId(number), 0, 1, seconds, results))

    def _on_failed(self, part: MemberSpan, news: WorkFailed) -> None:
        server_span, index, host = part.server_span, news.index, part.member.host
        if not ranges.take(part.left, index, index + 1):
            return
        self._drop_finished(part)
        said = WorkFailed(server_span.run.span, index, news.failure, news.detail, host=host)
        if news.failure.site and not server_span.is_chained:
            tries = server_span.tries = server_span.tries or {}
            tries.setdefault(index, set()).add(part.member.number)
            if len(tries[index]) < _MOST_TRIES and self._has_other(tries[index]):
                self._pool(server_span.run.needs).retries.append(Retry(server_span, said))
                return
        self.news.append(said)
        self._account_for(server_span, 1)

    def _on_started(self, part: MemberSpan, news: WorkStarted) -> None:
        running = part.running = part.running or []
        ranges.take(running, news.start, news.stop)
        ranges.add(running, news.start, news.stop)
        self.news.append(WorkStarted(part.server_span.run.span, news.start, news.stop, host=part.member.host))

    def _on_observed(self, part: MemberSpan, news: WorkObserved) -> None:
        if part.has(news.index):
            if not any(low <= news.index < high for low, high in part.running or ()):  # or nobody would know where
                self._on_started(part, WorkStarted(part.number, news.index, news.index + 1))
            self.news.append(replace(news, span=part.server_span.run.span))

    def _on_returned(self, part: MemberSpan, news: WorkReturned) -> None:
        server_span = part.server_span
        server_span.returns += 1
        for low, high in ranges.take(part.left, news.start, news.stop):
            if server_span.returns > _MOST_RETURNS:
                self.news.append(WorkReturned(server_span.run.span, low, high))
                self._account_for(server_span, high - low)
            else:
                self._requeue(server_span, low, high)
        self._drop_finished(part)

    def abandon(self, reason: str) -> None:
        """The relay ends: what runs is lost to it, the rest goes back."""
        for member in list(self.members.values()):
            self.lose(member, reason)
        for server_span in list(self.server_spans.values()):
            self._give_back(server_span)

    # --- what waits -------------------------------------------------------------------------------

    def _pool(self, needs: Needs) -> Pool:
        pool = self._pools.get(needs)
        if pool is None:
            if len(self._pools) > _MOST_POOLS:  # those of long ago cost every hand-out a look
                self._pools = {n: p for n, p in self._pools.items() if p.server_spans or p.retries}
            pool = self._pools[needs] = Pool(needs, self.capacity)
            for member in self.members.values():
                pool.consider(member)
        return pool

    def _enqueue(self, server_span: ServerSpan, *, first: bool = False) -> None:
        pool = self._pool(server_span.run.needs)
        server_span.is_queued = True
        if first:
            pool.server_spans.appendleft(server_span)
        else:
            pool.server_spans.append(server_span)

    def _return_chain(self, server_span: ServerSpan) -> None:
        """A span goes back, and with it what was to follow."""
        self._give_back(server_span)
        for following in server_span.chain or ():
            self._give_back(following)

    def _give_back(self, server_span: ServerSpan) -> None:
        """Give back to the server what of a span was not handed out."""
        waiting = ranges.take(server_span.queue, 0, ALL)
        for low, high in waiting:
            self.news.append(WorkReturned(server_span.run.span, low, high))
        self._account_for(server_span, ranges.size(waiting))

    def _drop_finished(self, part: MemberSpan) -> None:
        if not part.left:
            part.member.drop(part)
            part.server_span.parts.pop(part.number, None)

    def _account_for(self, server_span: ServerSpan, count: int) -> None:
        server_span.left -= count
        if not server_span.left:
            self.server_spans.pop(server_span.run.span, None)

    # --- handing out ------------------------------------------------------------------------------

    def distribute(self, now: Seconds) -> None:
        """Hand out what waits, as far as there is room."""
        if self._troubled:
            self._suspend(now)
        if self._resting:
            self.end_rests(now)
        pools = [pool for pool in self._pools.values() if pool.server_spans or pool.retries]
        if len(pools) > 1:
            pools.sort(key=lambda pool: pool.order)
        for pool in pools:
            if not self.open or not pool.fits_at_all:
                self._empty(pool)
                continue
            if pool.retries:
                self._distribute_retries(pool)
            self._distribute_spans(pool, now)

    def _distribute_spans(self, pool: Pool, now: Seconds) -> None:
        server_spans = pool.server_spans
        passed: list[ServerSpan] = []
        while server_spans:
            server_span = server_spans[0]
            if server_span.queue:
                runtime, mean = server_span.runtime, server_span.mean
                short = 0 < mean <= SHORT
                member = pool.taker(mean, now, short=short, most=min(TRUST * runtime.seen, MAX_BACKLOG))
                if member is None:
                    if pool.has_late and len(passed) < _LOOKS:  # too long for those with room: others may not be
                        passed.append(server_spans.popleft())
                        continue
                    break
                start, stop = server_span.queue[0]
                if server_span.run.is_array:
                    if not server_span.share:
                        takers = len(pool.free) + (len(pool.spare) if short else 0)
                        server_span.share = -(-ranges.size(server_span.queue) // takers)
                    stop = min(stop, start + span_size(runtime, 2 * server_span.share, 1, self.max_span))
                self._give_to(pool, server_span, member, start, stop)
            if not server_span.queue:
                server_spans.popleft()
                server_span.is_queued = False
        server_spans.extendleft(reversed(passed))

    def _give_to(self, pool: Pool, server_span: ServerSpan, member: Member, start: int, stop: int) -> None:
        """Give elements that wait to a member, and with them what is to follow."""
        ranges.take(server_span.queue, start, stop)
        number = self._send_span(server_span, member, start, stop, NOTHING)
        if server_span.chain:
            numbers = {server_span.run.span: number}
            for following in server_span.chain:
                following.queue.clear()
                run = following.run
                numbers[run.span] = self._send_span(following, member, run.start, run.stop, numbers[run.after_span])
        pool.free.pop(member, None)  # it comes last now
        pool.spare.pop(member, None)
        self._refresh(member)

    def _send_span(self, server_span: ServerSpan, member: Member, start: int, stop: int, after_span: SpanId) -> SpanId:
        self._last_span += 1
        number, run = SpanId(self._last_span), server_span.run
        part = server_span.parts[number] = MemberSpan(number, server_span, member, start, stop)
        member.add(part)
        say = member.outbox.append
        self.speaking[member] = None
        if run.run and run.run in self.directories and run.run not in (member.directories or ()):
            member.directories = (member.directories or set()) | {run.run}
            say(self.directories[run.run])
        for blob in (run.body, run.table, *run.watch):
            self._say_blob(member, blob)
        say(part_run(server_span, number, start, stop, after_span))
        self._say_later(part, server_span.later)
        return number

    def _distribute_retries(self, pool: Pool) -> None:
        """Try elsewhere what failed for reasons of the site, or report it if there is nowhere else."""
        for _ in range(min(_LOOKS, len(pool.retries))):
            retry = pool.retries.popleft()
            member = pool.other_taker(retry.avoid)
            if member is not None:
                self._give_to(pool, retry.server_span, member, retry.index, retry.index + 1)
            elif not self._has_other(retry.avoid):
                self._tell(retry)
            else:
                pool.retries.append(retry)

    def _tell(self, retry: Retry) -> None:
        self.news.append(retry.failed)
        self._account_for(retry.server_span, 1)

    def _empty(self, pool: Pool) -> None:
        """No member can take any of it: the server may have other executors."""
        for retry in pool.retries:
            self._tell(retry)
        pool.retries.clear()
        for server_span in pool.server_spans:
            self._return_chain(server_span)
            server_span.is_queued = False
        pool.server_spans.clear()

    def give_back_late(self, now: Seconds) -> None:
        """Give back what cannot end any more before the last member leaves."""
        until = self.until()
        for pool in self._pools.values() if until else ():
            for server_span in [one for one in pool.server_spans if one.queue and now + one.mean > until]:
                self._return_chain(server_span)
