"""Executors behind a relay that shares out work, and the spans that they have.

A member is such an executor; all members of one distributor have the same capacity. A span of the server waits here,
in whole or in part, and goes in parts to members. What members may take is looked up in pools that are kept up to
date, one for each kind of needs.

Rules: small objects and no timers, for there may be many thousands. Every element of a server's span waits here, is
with one executor, or has been reported to its end.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec.structs import replace

from bough.model.arrays import ranges
from bough.model.arrays.ranges import Ranges
from bough.model.arrays.result_lists import cut
from bough.model.arrays.runtimes import BACKLOG, MAX_BACKLOG, SHORT, RunTime
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import BlobId, ExecutorId, Seconds, SpanId
from bough.model.sites.resources import Needs
from bough.wire.executor_messages import EndElements, RunSpan, WatchElements

_ROUND = 1e-9  # fractions of cores add up inexactly
_NEVER = float("inf")


class Member:
    """One executor."""

    __slots__ = (
        "blobs",
        "cores_free",
        "directories",
        "host",
        "is_open",
        "is_present",
        "load",
        "long_cores",
        "number",
        "others",
        "outbox",
        "owed",
        "parts",
        "reported",
        "suspended",
        "suspensions",
        "trouble",
        "until",
    )

    def __init__(self, number: ExecutorId, host: str, capacity: Needs, until: Seconds = 0) -> None:
        self.number = number
        self.host = host
        self.until = until
        self.is_present = False  # it is connected, and does not leave
        self.suspended: Seconds = 0.0  # until when it gets nothing, because too much went wrong there
        self.suspensions = 0
        self.trouble = 0  # tasks in a row that failed there and worked elsewhere
        self.is_open = False  # it may be given work: it is present and not suspended
        self.cores_free = capacity.cores  # below 0 when something waits there behind others
        self.others: dict[str, float] | None = None  # amounts besides cores that are taken; mostly nothing is
        self.long_cores = 0.0  # held by what is not known to be short
        self.load: Seconds = 0.0  # expected seconds of short work that it has
        self.parts: dict[int, MemberSpan] = {}
        self.blobs: set[BlobId] | None = None  # those it was sent
        self.directories: set[int] | None = None  # workflows of which it was told where their commands run
        self.reported = 0  # its latest report that was taken in
        self.owed = 0  # a report it was not yet told to forget
        self.outbox: list[object] = []

    def add(self, part: MemberSpan) -> None:
        """It is given something."""
        self.parts[part.number] = part
        self._occupy(part, 1)

    def drop(self, part: MemberSpan) -> None:
        """It has something no more."""
        if self.parts.pop(part.number, None) is not None:
            self._occupy(part, -1)

    def _occupy(self, part: MemberSpan, sign: int) -> None:
        needs = part.server_span.run.needs
        self.cores_free -= sign * needs.cores
        if part.load:
            self.load += sign * part.load
        else:
            self.long_cores += sign * needs.cores
        if needs.memory or needs.gpus or needs.named:
            taken = self.others = self.others or {}
            for name, amount in needs.amounts().items():
                if name != "cores":
                    taken[name] = taken.get(name, 0) + sign * amount

    def front(self, capacity: Needs) -> list[MemberSpan]:
        """What runs there, or starts next: what fits together, in the order it came."""
        free = capacity.amounts()
        found: list[MemberSpan] = []
        for part in self.parts.values():
            needs = part.server_span.run.needs.amounts()
            if any(amount > free.get(name, 0) + _ROUND for name, amount in needs.items()):
                break
            for name, amount in needs.items():
                free[name] = free.get(name, 0) - amount
            found.append(part)
        return found


class Pool:
    """What waits with equal needs, and the members that could take it: first the one that has had room the longest."""

    def __init__(self, needs: Needs, capacity: Needs) -> None:
        self.needs = needs
        self.cores = needs.cores
        self.fits_at_all = all(
            amount <= capacity.amounts().get(name, 0) + _ROUND for name, amount in needs.amounts().items()
        )
        self._others = [(name, amount) for name, amount in needs.amounts().items() if name != "cores"]
        self._capacity = capacity.amounts()
        self._all_cores = capacity.cores
        self._backlog = BACKLOG * capacity.cores
        self.server_spans: deque[ServerSpan] = deque()
        self.retries: deque[Retry] = deque()  # elements that failed on one for reasons of the site
        self.free: OrderedDict[Member, None] = OrderedDict()  # a task could start there at once
        self.spare: OrderedDict[Member, None] = OrderedDict()  # a short task could wait there
        self._aside: dict[Member, None] = {}  # they leave too soon for what waits
        self._aside_least = _NEVER  # the shortest run time for which a member was set aside

    @property
    def order(self) -> int:
        """The order in which its first span came."""
        return self.server_spans[0].order if self.server_spans else 0

    @property
    def has_late(self) -> bool:
        """Whether a member has room, but leaves too soon for something that waits."""
        return bool(self._aside)

    def consider(self, member: Member) -> None:
        """Something has changed with a member."""
        self._aside.pop(member, None)
        if not member.is_open or not self.fits_at_all:
            self.free.pop(member, None)
            self.spare.pop(member, None)
        elif self.cores <= member.cores_free + _ROUND and (not self._others or self._has_others(member)):
            self.spare.pop(member, None)
            self.free[member] = None
        else:
            self.free.pop(member, None)
            if (
                member.load < self._backlog
                and len(member.parts) < MAX_BACKLOG
                and self.cores <= self._all_cores - member.long_cores + _ROUND
            ):
                self.spare[member] = None
            else:
                self.spare.pop(member, None)

    def _has_others(self, member: Member) -> bool:
        taken = member.others or {}
        return all(amount <= self._capacity[name] - taken.get(name, 0) + _ROUND for name, amount in self._others)

    def forget(self, member: Member) -> None:
        """It was lost."""
        self.free.pop(member, None)
        self.spare.pop(member, None)
        self._aside.pop(member, None)

    def taker(self, expected: Seconds, now: Seconds, *, short: bool, most: int) -> Member | None:
        """The member that takes what takes so long; something short may also wait behind `most` others at most."""
        if expected < self._aside_least:
            self._aside_least = _NEVER
            for waiting in list(self._aside):
                self.consider(waiting)
        member = self._first(self.free, expected, now)
        if member is None and short:
            member = self._first(self.spare, expected, now)
            if member is not None and len(member.parts) >= most:
                return None
        return member

    def _first(self, members: OrderedDict[Member, None], expected: Seconds, now: Seconds) -> Member | None:
        while members:
            member = next(iter(members))
            if not member.until or now + expected <= member.until:
                return member
            del members[member]
            self._aside[member] = None
            self._aside_least = min(self._aside_least, expected)
        return None

    def other_taker(self, avoid: set[ExecutorId]) -> Member | None:
        """A member that has room and is not one of these."""
        for member in self.free:
            if member.number not in avoid:
                return member
        return None


NOTHING = SpanId(0)


class ServerSpan:
    """A span of the server's."""

    __slots__ = (
        "chain",
        "chain_head",
        "is_queued",
        "later",
        "left",
        "order",
        "parts",
        "queue",
        "returns",
        "run",
        "runtime",
        "share",
        "tries",
    )

    def __init__(self, run: RunSpan, order: int, runtime: RunTime) -> None:
        self.run = run
        self.order = order
        self.runtime = runtime
        self.queue: Ranges = [[run.start, run.stop]]  # what no member has yet
        self.left = run.stop - run.start  # elements of which nothing final was said
        self.parts: dict[int, MemberSpan] = {}
        self.is_queued = False  # it stands in the queue of its pool
        self.share = 0  # elements for each member that had room when it began; the server gives less towards the end
        self.chain: list[ServerSpan] | None = None  # goes with it: each is run after it, or after one before
        self.chain_head: ServerSpan | None = None  # with which it goes
        self.returns = 0  # times in a row that something of it was given back
        self.tries: dict[int, set[ExecutorId]] | None = None  # elements that failed for reasons of the site, and where
        self.later: tuple[WatchElements, ...] = ()  # what watches it besides what it came with

    @property
    def mean(self) -> Seconds:
        """Expected seconds for which one element has its slot."""
        return self.runtime.slot or self.run.expected

    @property
    def is_chained(self) -> bool:
        """Whether it travels with others."""
        return self.chain_head is not None or self.chain is not None


class MemberSpan:
    """A part of a server's span that an executor has, under a number of its own."""

    __slots__ = ("endings", "left", "load", "member", "number", "running", "server_span")

    def __init__(self, number: SpanId, server_span: ServerSpan, member: Member, start: int, stop: int) -> None:
        self.number = number
        self.server_span = server_span
        self.member = member
        self.left: Ranges = [[start, stop]]
        self.running: Ranges | None = None  # said to run
        self.endings: tuple[EndElements, ...] = ()  # asked for, and not known to have been heard
        mean = server_span.mean
        self.load = mean * (stop - start) if 0 < mean <= SHORT else 0.0  # 0: not known to be short

    def probably_running(self, *, in_front: bool) -> list[int]:
        """The elements that were said to run, or must be next."""
        found = {i for low, high in self.running or () for i in range(low, high) if self.has(i)}
        if in_front and self.left and not self.server_span.run.after_span:
            found.add(self.left[0][0])
        return sorted(found)

    def has(self, index: int) -> bool:
        """Whether nothing final was reported of an element."""
        return any(low <= index < high for low, high in self.left)


class Retry:
    """An element that is to be tried elsewhere before its failure is reported."""

    __slots__ = ("failed", "index", "server_span")

    def __init__(self, server_span: ServerSpan, failed: WorkFailed) -> None:
        self.server_span = server_span
        self.index = failed.index
        self.failed = failed

    @property
    def avoid(self) -> set[ExecutorId]:
        """Where it has failed."""
        return (self.server_span.tries or {}).get(self.index, set())


def part_run(server_span: ServerSpan, number: SpanId, start: int, stop: int, after_span: SpanId = NOTHING) -> RunSpan:
    """What an executor is told to run."""
    run = server_span.run
    if not run.is_array:
        return replace(run, span=number, expected=server_span.mean, after_span=after_span)
    pages = run.pages
    if len(pages) > 1:
        pages = tuple(page for page in pages if page.start < stop and start < page.stop)
    return replace(
        run, span=number, start=start, stop=stop, pages=pages, expected=server_span.mean, after_span=after_span
    )


def success(news: WorkSucceeded, span: SpanId, start: int, stop: int, host: str) -> WorkSucceeded:
    """What the server is told of the elements [start, stop) of an executor's news."""
    seconds, results, details = news.seconds, news.results, news.details
    if (start, stop) != (news.start, news.stop):
        if isinstance(results, bytes):
            results = cut(results, start - news.start, stop - start)
        seconds = seconds * (stop - start) / (news.stop - news.start)
        details = tuple(detail for detail in details if start <= detail.index < stop)
    return WorkSucceeded(span, start, stop, seconds, results, details, host=host)


def whole(left: Ranges) -> int:
    """How many elements there are."""
    return ranges.size(left)
