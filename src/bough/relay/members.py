"""Executors behind it and the spans they have (ends a typing cycle).

Executors behind a relay that shares out work: what is free there, and what they have.

All members of a deck have the same capacity. Rule: small objects and no timers, for there may be many thousands; what
they may take is looked up in pools that are kept up to date, one for each kind of needs.

What the server gave to a relay that shares out work: lots, and the parts of them that its executors have.

Rule: every element of a lot waits here, is with one executor, or has been told of to its end.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec.structs import replace

from bough.model import ranges
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import BlobId, ExecutorId, Seconds, SpanId
from bough.model.ranges import Ranges
from bough.model.refs import cut
from bough.model.resources import Needs
from bough.model.runtimes import BACKLOG, MAX_BACKLOG, SHORT, RunTime
from bough.wire.executor_messages import RunSpan

_ROUND = 1e-9  # fractions of cores add up inexactly
_NEVER = float("inf")


class Member:
    """One executor."""

    __slots__ = (
        "blobs",
        "cores_free",
        "host",
        "is_open",
        "load",
        "long_cores",
        "number",
        "others",
        "outbox",
        "owed",
        "parts",
        "places",
        "reported",
        "until",
    )

    def __init__(self, number: ExecutorId, host: str, capacity: Needs, until: Seconds = 0) -> None:
        self.number = number
        self.host = host
        self.until = until
        self.is_open = False  # it may be given work
        self.cores_free = capacity.cores  # below 0 when something waits there behind others
        self.others: dict[str, float] | None = None  # amounts besides cores that are taken; mostly nothing is
        self.long_cores = 0.0  # held by what is not known to be short
        self.load: Seconds = 0.0  # expected seconds of short work that it has
        self.parts: dict[int, MemberSpan] = {}
        self.blobs: set[BlobId] | None = None  # those it was sent
        self.places: set[int] | None = None  # workflows of which it was told where their commands run
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
        needs = part.lot.run.needs
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
            needs = part.lot.run.needs.amounts()
            if any(amount > free.get(name, 0) + _ROUND for name, amount in needs.items()):
                break
            for name, amount in needs.items():
                free[name] = free.get(name, 0) - amount
            found.append(part)
        return found


class Pool:
    """What waits with equal needs, and the members that could take it, whoever has had room the longest first."""

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
        self.lots: deque[ServerSpan] = deque()
        self.retries: deque[Retry] = deque()  # elements that failed somewhere for reasons of the place
        self.free: OrderedDict[Member, None] = OrderedDict()  # a task could start there at once
        self.spare: OrderedDict[Member, None] = OrderedDict()  # a short task could wait there
        self._aside: dict[Member, None] = {}  # they leave too soon for what waits
        self._aside_least = _NEVER  # the shortest run time for which somebody was set aside

    @property
    def order(self) -> int:
        """Since when its first lot has waited."""
        return self.lots[0].order if self.lots else 0

    @property
    def has_late(self) -> bool:
        """Whether somebody has room, but leaves too soon for something that waits."""
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
        """It is gone."""
        self.free.pop(member, None)
        self.spare.pop(member, None)
        self._aside.pop(member, None)

    def taker(self, expected: Seconds, now: Seconds, *, short: bool, most: int) -> Member | None:
        """Who takes something that takes so long; a short one may also wait behind `most` others at most."""
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
        """Who has room and is not one of these."""
        for member in self.free:
            if member.number not in avoid:
                return member
        return None


NOTHING = SpanId(0)


class ServerSpan:
    """A span of the server's."""

    __slots__ = (
        "head",
        "is_queued",
        "left",
        "order",
        "parts",
        "queue",
        "returns",
        "run",
        "runtime",
        "share",
        "train",
        "tries",
    )

    def __init__(self, run: RunSpan, order: int, runtime: RunTime) -> None:
        self.run = run
        self.order = order
        self.runtime = runtime
        self.queue: Ranges = [[run.start, run.stop]]  # what nobody has yet
        self.left = run.stop - run.start  # elements of which nothing final was said
        self.parts: dict[int, MemberSpan] = {}
        self.is_queued = False  # it stands in the queue of its pool
        self.share = 0  # elements for each that had room when it began: fewer towards the end is the server's doing
        self.train: list[ServerSpan] | None = None  # goes with it: each is to be run behind it, or behind one before
        self.head: ServerSpan | None = None  # with which it goes
        self.returns = 0  # times in a row that something of it was given back
        self.tries: dict[int, set[ExecutorId]] | None = None  # elements that failed by the place, and where

    @property
    def mean(self) -> Seconds:
        """Expected seconds of one element."""
        return self.runtime.mean or self.run.expected

    @property
    def is_chained(self) -> bool:
        """Whether it travels with others."""
        return self.head is not None or self.train is not None


class MemberSpan:
    """A slice of a lot that an executor has, under a number of its own."""

    __slots__ = ("left", "load", "lot", "member", "number", "running")

    def __init__(self, number: SpanId, lot: ServerSpan, member: Member, start: int, stop: int) -> None:
        self.number = number
        self.lot = lot
        self.member = member
        self.left: Ranges = [[start, stop]]
        self.running: Ranges | None = None  # said to run
        mean = lot.mean
        self.load = mean * (stop - start) if 0 < mean <= SHORT else 0.0  # 0: not known to be short

    def probably_running(self, *, in_front: bool) -> list[int]:
        """The elements that were said to run, or must be next."""
        found = {i for low, high in self.running or () for i in range(low, high) if self.has(i)}
        if in_front and self.left and not self.lot.run.behind:
            found.add(self.left[0][0])
        return sorted(found)

    def has(self, index: int) -> bool:
        """Whether nothing final was heard of an element."""
        return any(low <= index < high for low, high in self.left)


class Retry:
    """An element that is to be tried elsewhere before its failure is told of."""

    __slots__ = ("failed", "index", "lot")

    def __init__(self, lot: ServerSpan, failed: WorkFailed) -> None:
        self.lot = lot
        self.index = failed.index
        self.failed = failed

    @property
    def avoid(self) -> set[ExecutorId]:
        """Where it has failed."""
        return (self.lot.tries or {}).get(self.index, set())


def part_run(lot: ServerSpan, number: SpanId, start: int, stop: int, behind: SpanId = NOTHING) -> RunSpan:
    """What an executor is told to run."""
    run = lot.run
    if not run.is_array:
        return replace(run, span=number, expected=lot.mean, behind=behind)
    pages = run.pages
    if len(pages) > 1:
        pages = tuple(page for page in pages if page.start < stop and start < page.stop)
    return replace(run, span=number, start=start, stop=stop, pages=pages, expected=lot.mean, behind=behind)


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
