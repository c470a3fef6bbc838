"""The files of a simulated run: where they are, how they travel, and what executors tell the core of it.

When an element of a span begins, its inputs are looked for as a live executor does: in the cache of its host (or the
store of its site), then with peers, then at home. Each input costs one transfer: a read of the disk if it is there, or
a copy over the links from where it is. Who wants what is on its way to the same cache already waits for that. Then the
task runs; its outputs are written to the cache, and sent home if the platform says so. The only copy of an output is
never evicted; if it is lost with its host, a reader finds that out, and its task makes it again. If the platform says
so, inputs of tasks that the core announces travel early (`announced_inputs`).
With chains a store follows another one that is still getting the same file: it has the file no earlier than that one,
and no faster than the link between them carries it. Each is followed by one, so that a file that all want at once
passes along a line of stores at the speed of one copy. A file that nobody is sending yet is sent by who has it.
Rules: the core learns of caches, contents and transfers by the same news as live (`CacheChanged`, `FilesIdentified`,
`BytesMoved`), and by nothing else. What happens depends on the order of calls alone, so that a run repeats exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from random import Random

from bough.errors import InternalError
from bough.model.events.news import (
    BytesMoved,
    CacheChanged,
    DataNews,
    FilesIdentified,
    HeldContent,
    NamedContent,
    OutputLost,
)
from bough.model.events.orders import AnnounceInputs, SendSpan
from bough.model.ids import ExecutorId, RecordId, Seconds
from bough.model.outcomes import Cause, Failure
from bough.policies.eviction.eviction_names import load_eviction
from bough.sim.data.announced_inputs import AnnouncedInputs, AnnouncedTask
from bough.sim.data.index_lookups import index_of
from bough.sim.data.measured_attempts import Attempt, Measured
from bough.sim.data.simulated_store import SimulatedStore
from bough.sim.data.topology import Topology
from bough.sim.platforms.network import Link, Transfer
from bough.sim.platforms.platform import Platform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Finish
from bough.sim.workload import RUN, Submission, Workload

ORIGIN = "origin"
_LOOKED_AT = 8  # holders of a file that are compared when one is to send it
_KNOWN = 64  # elements of a span that has not begun whose inputs count as wanted


class Staging:
    """An attempt that has begun: what it waits for, and what it keeps from being evicted."""

    __slots__ = (
        "active", "announced", "arrivals", "attempt", "failure", "finish", "lost", "order", "own", "pinned", "sources",
        "store", "traits", "wanted",
    )  # fmt: skip

    def __init__(self, attempt: Attempt, order: SendSpan, traits: ExecutorTraits, store: SimulatedStore) -> None:
        self.attempt = attempt
        self.order = order
        self.traits = traits
        self.store = store
        self.wanted: deque[int] = deque()  # inputs that it has not asked for yet
        self.announced: AnnouncedTask | None = None  # what was brought because it might come
        self.active = 0  # transfers that it waits for
        self.own: dict[Transfer, None] = {}  # those that are for it alone
        self.arrivals: dict[Arrival, None] = {}  # those that others may wait for, too
        self.pinned: list[int] = []
        self.sources: set[SimulatedStore | None] = set()  # who sent it something, if that is counted; None: home
        self.finish: Finish | None = None  # once it has run: how
        self.failure: Failure | None = None  # why its inputs cannot come
        self.lost: OutputLost | None = None  # that another task had made one of them, which nobody has

    @property
    def element(self) -> int:
        """Which element of its span it is."""
        return self.attempt.element

    @property
    def has_run(self) -> bool:
        """Whether only its outputs are on their way."""
        return self.finish is not None


class Arrival:
    """A file on its way to a store."""

    __slots__ = (
        "announced", "began", "executor", "file", "follower", "follows", "has_landed", "payer", "pins", "source",
        "store", "transfer", "waiting",
    )  # fmt: skip

    def __init__(self, file: int, store: SimulatedStore, executor: int, now: Seconds) -> None:
        self.file = file
        self.store = store
        self.executor = executor  # who fetches it
        self.began = now
        self.source: SimulatedStore | None = None  # None: home
        self.transfer: Transfer | None = None
        self.waiting: list[Staging] = []
        self.payer: Attempt | None = None  # whose its bytes are
        self.announced: AnnouncedTask | None = None  # for which it is brought early
        self.pins = False  # it keeps the file at its source
        self.follows: Arrival | None = None  # in a chain: how its source gets the file, until it has it
        self.follower: Arrival | None = None  # who gets the file from this store, before it is all there
        self.has_landed = False  # it waits for nothing but the one that it follows


class Expected:
    """A span with an executor, and its elements from `next` on that will read their inputs."""

    __slots__ = ("next", "order", "store")

    def __init__(self, store: SimulatedStore, order: SendSpan) -> None:
        self.store = store
        self.order = order
        self.next = order.start


class SimulatedData:
    """See the module. `everywhere`: what the store of a site holds is told as held by each of its hosts."""

    def __init__(self, workload: Workload, platform: Platform, *, seed: int = 0, everywhere: bool = True) -> None:
        self.workload = workload
        self.rules = platform.transfers
        self.network = platform.network()
        self._lookups = index_of(platform)
        self.topology = Topology(platform, seed)
        self._varied: dict[Link, Seconds] = {}  # by link with a trace: when it changes next
        self.everywhere = everywhere
        self.uses_caches = True  # False: the policies have every input sent for every task
        self.attempts: list[Attempt] = []  # those that have ended
        self.running: dict[int, Staging] = {}  # by span
        self.stores: dict[tuple[str, str], SimulatedStore] = {}  # by site and host; no host: of the site
        self._made_by: dict[int, tuple[int, int]] = {}  # by file: the record and element that wrote it last
        self._announced = AnnouncedInputs()
        self._store_by_executor: dict[int, SimulatedStore] = {}  # of `stores`
        self._dice = Random(f"eviction {seed}")
        self._tasks = workload.tasks
        self._sizes = [file.size for file in workload.files]
        self._digests: dict[int, bytes] = {}
        written = workload.writers()
        self._at_home = {file for file in range(len(self._sizes)) if file not in written}
        self._submitted: dict[int, int] = {}  # by record: its first task
        self._expected: dict[int, Expected] = {}  # spans that have not begun, or not with all elements
        self._holders: dict[int, dict[str, dict[SimulatedStore, None]]] = {}  # by file and site
        self._coming: dict[SimulatedStore, dict[int, Arrival]] = {}
        self._ends: dict[int, dict[Arrival, None]] = {}  # with chains, by file: the ends of those on their way
        self._hosts: dict[tuple[str, str], dict[int, None]] = {}  # executors that are there
        self._of_site: dict[str, dict[tuple[str, str], None]] = {}  # hosts that are there
        self._added: dict[SimulatedStore, dict[int, None]] = {}  # what the core is to be told
        self._removed: dict[SimulatedStore, dict[int, None]] = {}
        self._news: list[DataNews] = []
        self._pending: dict[Staging, None] = {}  # what `advance` will return, because a source has gone

    # --- what there is -----------------------------------------------------------------------------

    def submitted(self, submission: Submission) -> None:
        """Records with these tasks are submitted."""
        tasks = self._tasks
        for item in submission.items:
            first = submission.first[item.id]
            length = getattr(item, "length", 1)
            if any(tasks[place].reads or tasks[place].writes for place in range(first, first + length)):
                self._submitted[item.id] = first

    def has_files(self, order: SendSpan) -> bool:
        """Whether tasks of a span may have files; others pay nothing here."""
        return order.spec.id in self._submitted

    def joined(self, traits: ExecutorTraits) -> list[DataNews]:
        """An executor is there: what it says of the cache that it finds."""
        key = traits.site, traits.host
        executors = self._hosts.setdefault(key, {})
        is_new = not executors
        executors[traits.id] = None
        hosts = self._of_site.setdefault(traits.site, {})
        hosts[key] = None
        store = self._store_of(traits)
        if not is_new or not len(store) or (not store.name and not self.everywhere and len(hosts) > 1):
            return []
        return [CacheChanged(traits.id, tuple([self._content(file) for file in store]), whole=True)]

    def preload(self, site: str, host: str, files: Iterable[int]) -> None:
        """A host, or a site that shares its store, holds files before executors join there."""
        store = self._store(site, host)
        for file in files:
            if store.fits(self._sizes[file]) and file not in store:
                store.add(file, self._sizes[file], 0.0)
                self._holders.setdefault(file, {}).setdefault(site, {})[store] = None
        for file in store.make_room():
            self._forget_holder(file, store)

    def measured(self) -> Measured:
        """What there is to say of all attempts that have ended."""
        return Measured(self.attempts)

    def next_time(self) -> Seconds | None:
        """When a transfer ends, or begins to move."""
        if self._pending:
            return self.network.now
        when = self.network.next_time()
        if self._varied and self.network.is_busy:
            change = min(self._varied.values())
            return change if when is None else min(when, change)
        return when

    def _vary(self, now: Seconds) -> None:
        """Links with traces get the bandwidth of this time."""
        for link, (full, trace) in self.topology.varying.items():
            if self._varied.get(link, -1.0) <= now:
                self.network.set_bandwidth(now, link, full * trace.at(now))
                self._varied[link] = trace.next_change(now)

    def news(self) -> list[DataNews]:
        """What executors have to tell since the last time."""
        if not (self._news or self._added or self._removed):
            return []
        said, self._news = self._news, []
        if self._added or self._removed:
            for store in dict.fromkeys((*self._added, *self._removed)):
                added = tuple([self._content(file) for file in self._added.get(store, ())])
                removed = tuple([self._digest(file) for file in self._removed.get(store, ())])
                said += [CacheChanged(ExecutorId(one), added, removed) for one in self._tellers(store)]
            self._added.clear()
            self._removed.clear()
        return said

    def _tellers(self, store: SimulatedStore) -> list[int]:
        """The executors that tell of a store: one for each host that reads it."""
        if store.name:
            hosts: Iterable[tuple[str, str]] = [(store.site, store.name)]
        else:
            hosts = self._of_site.get(store.site, {})
        found = [next(iter(some)) for host in hosts if (some := self._hosts.get(host))]
        return found if self.everywhere else found[:1]

    # --- attempts ----------------------------------------------------------------------------------

    def expect(self, order: SendSpan, traits: ExecutorTraits) -> None:
        """A span is with an executor, and will read its inputs."""
        store = self._store_of(traits)
        if store.heeds_wants:
            self._expected[order.span] = known = Expected(store, order)
            self._want(known, order.stop, 1)

    def returned(self, span: int) -> None:
        """What of a span has not begun is not with an executor any more."""
        if (known := self._expected.pop(span, None)) is not None:
            self._want(known, known.order.stop, -1)

    def _want(self, known: Expected, stop: int, change: int) -> None:
        order = known.order
        for element in range(known.next, min(stop, order.start + _KNOWN)):
            for file in self._tasks[self._submitted[order.spec.id] + element].reads:
                known.store.want(file, change)

    def begin(self, now: Seconds, order: SendSpan, element: int, traits: ExecutorTraits) -> Staging:
        """An element of a span begins. If nothing is `active`, it waits for nothing."""
        known = self._expected.get(order.span)
        if known is not None:
            self._want(known, element + 1, -1)
            known.next = element + 1
            if known.next >= order.stop:
                del self._expected[order.span]
        place = self._submitted[order.spec.id] + element
        attempt = Attempt(
            place, order.spec.id, element, order.attempt, traits.id, traits.site, traits.host, traits.speed, now
        )
        staging = Staging(attempt, order, traits, self._store_of(traits))
        if self._announced.by_executor:
            staging.announced = self._announced.begins(traits.id, (order.spec.id, element))
        reads = self._tasks[place].reads
        staging.wanted.extend(reads if len(reads) < 2 else dict.fromkeys(reads))  # each once
        self.running[order.span] = staging
        self._ask(now, staging)
        if len(self._varied) < len(self.topology.varying):  # a link was made for it
            self._vary(now)
        if not staging.active:
            attempt.staged = now
        return staging

    def _ask(self, now: Seconds, staging: Staging) -> None:
        """Ask for as many of the inputs as may travel at once."""
        streams, store, attempt = self.rules.streams, staging.store, staging.attempt
        while staging.wanted and (not streams or staging.active < streams):
            file = staging.wanted.popleft()
            size = self._sizes[file]
            if file in store:
                attempt.asked += size
                self._read_here(now, staging, file, size)
                continue
            arrival = self._coming.get(store, {}).get(file)
            if arrival is not None and arrival.payer is not None:
                attempt.joined += size
            else:
                if arrival is None:
                    arrival = Arrival(file, store, staging.traits.id, now)
                    if not self._fetch(now, arrival, staging):
                        self._fail(staging, file)
                        return
                arrival.payer, arrival.announced = attempt, None  # it may have been on its way because it was announced
                if arrival.source is None:
                    attempt.origin += size
                else:
                    attempt.peer += size
            attempt.asked += size
            arrival.waiting.append(staging)
            staging.arrivals[arrival] = None
            staging.active += 1

    def _fail(self, staging: Staging, file: int) -> None:
        staging.wanted.clear()
        known, made = self.workload.files[file], self._made_by.get(file)
        if made is None:
            staging.failure = Failure(Cause.LOST, f"no copy is left of {known.name}")
        else:
            staging.failure = Failure(Cause.INPUT_LOST, f"no copy is left of {known.name}", lost=known.path)
            staging.lost = OutputLost(RecordId(made[0]), made[1], f"its output {known.path} was lost")

    def _read_here(self, now: Seconds, staging: Staging, file: int, size: int) -> None:
        store, traits, attempt = staging.store, staging.traits, staging.attempt
        from_home = staging.announced.came.pop(file, None) if staging.announced is not None else None
        if from_home is not None:  # it was brought for this very task
            attempt.moved += size
            if from_home:
                attempt.origin += size
            else:
                attempt.peer += size
        elif store.name:
            attempt.hit += size
        else:
            attempt.store += size
        store.use(file, now)
        self._pin(staging, file)
        route = self.topology.reading(traits.site, traits.host, shared=not store.name)
        if route and size:
            staging.own[self.network.start(now, route, size, staging)] = None
            staging.active += 1

    def _pin(self, staging: Staging, file: int) -> None:
        staging.store.pin(file)
        staging.pinned.append(file)

    def _fetch(self, now: Seconds, arrival: Arrival, staging: Staging | None = None) -> bool:
        """Begin to bring a file to a store, for an attempt if that has begun; False: nobody has it."""
        file, store, topology = arrival.file, arrival.store, self.topology
        source = arrival.source = self._source(file, store)
        end = self._end_of_chain(arrival) if self.rules.chains and (source is None or source.serving) else None
        if end is not None:
            source = arrival.source = end.store
            end.follower, arrival.follows = arrival, end
        elif source is None and file not in self._at_home:
            return False
        route = topology.from_home(store) if source is None else topology.between(source, store)
        if source is not None:
            source.serving += 1
            if end is None:
                source.use(file, now)
                source.pin(file)
                arrival.pins = True
        if self.rules.chains:
            ends = self._ends.setdefault(file, {})
            if end is not None:
                del ends[end]
            if arrival.follower is None:
                ends[arrival] = None
        delay = self._startup(source, staging) + self._lookups(now)
        arrival.transfer = self.network.start(now, route, self._sizes[file], arrival, delay)
        self._coming.setdefault(store, {})[file] = arrival
        return True

    def _startup(self, source: SimulatedStore | None, staging: Staging | None) -> Seconds:
        """What passes before the first byte."""
        if self.rules.startup_for == "source" and staging is not None:
            if source in staging.sources:
                return 0.0
            staging.sources.add(source)
        return self.rules.startup

    def _end_of_chain(self, arrival: Arrival) -> Arrival | None:
        """The last who is getting the same file and is followed by nobody. What is followed follows nobody anew."""
        ends = self._ends.get(arrival.file) if arrival.follower is None else None
        if not ends or self.rules.peers == "none":
            return None
        for end in islice(reversed(ends), _LOOKED_AT):
            if end.store.site == arrival.store.site or self.rules.peers == "all":
                return end
        return None

    def _unfollow(self, arrival: Arrival) -> None:
        """An arrival follows nobody, and is nobody's to follow."""
        ends, before = self._ends[arrival.file], arrival.follows
        ends.pop(arrival, None)
        if before is not None:
            before.follower = arrival.follows = None
            ends[before] = None

    def _leave_chain(self, arrival: Arrival) -> Arrival | None:
        """A file is not on its way to a store any more: who gets it from there meanwhile."""
        if not self.rules.chains:
            return None
        self._unfollow(arrival)
        if not self._ends[arrival.file]:
            del self._ends[arrival.file]
        follower, arrival.follower = arrival.follower, None
        if follower is not None:
            follower.follows = None
        return follower

    def _source(self, file: int, store: SimulatedStore) -> SimulatedStore | None:
        """Who sends a file to a store; None: home. Of some peers the one that sends least now, near ones first."""
        holders, peers = self._holders.get(file), self.rules.peers
        if not holders or (peers == "none" and file in self._at_home):
            return None
        near = holders.get(store.site)
        if near:
            return _least_busy(near)
        if peers == "site" and file in self._at_home:
            return None
        found = [_least_busy(some) for some in list(holders.values())[:_LOOKED_AT] if some]
        return min(found, key=_serving, default=None)

    def advance(self, now: Seconds) -> list[Staging]:
        """Let time pass: the attempts that wait for nothing more, to run or to end."""
        ready, self._pending = self._pending, {}
        ended = self.network.advance(now)
        if self.topology.varying:
            self._vary(now)
        for transfer in ended:
            payload = transfer.payload
            if isinstance(payload, Arrival):
                payload.has_landed = True
                self._landed(now, payload, ready)
            elif isinstance(payload, Staging):
                del payload.own[transfer]
                payload.active -= 1
                self._go_on(now, payload, ready)
            else:
                raise InternalError(f"a transfer for {payload!r}")
        return list(ready)

    def _go_on(self, now: Seconds, staging: Staging, ready: dict[Staging, None]) -> None:
        if not staging.has_run and staging.wanted:
            self._ask(now, staging)
        if not staging.active:
            if not staging.has_run:
                staging.attempt.staged = now
            ready[staging] = None

    def _landed(self, now: Seconds, arrival: Arrival | None, ready: dict[Staging, None]) -> None:
        """A file has come, and with it to those along the chain who waited for nothing else."""
        while arrival is not None and arrival.has_landed and arrival.follows is None:
            follower = self._leave_chain(arrival)
            self._arrived(now, arrival, follower, ready)
            arrival = follower

    def _arrived(self, now: Seconds, arrival: Arrival, follower: Arrival | None, ready: dict[Staging, None]) -> None:
        file, store, source = arrival.file, arrival.store, arrival.source
        size = self._sizes[file]
        self._release_source(arrival)
        arrival.transfer = None  # which knows the arrival: who looks for cycles need not look at these
        del self._coming[store][file]
        name = ORIGIN if source is None else source.name or source.site
        self._news.append(BytesMoved(ExecutorId(arrival.executor), name, size, now - arrival.began))
        if arrival.payer is not None:
            arrival.payer.moved += size
        elif arrival.announced is not None:
            arrival.announced.came[file] = source is None
        if store.fits(size):
            self._keep(now, store, file)
            for staging in arrival.waiting:
                self._pin(staging, file)
            if follower is not None:
                store.pin(file)
                follower.pins = True
            self._make_room(store)
        for staging in arrival.waiting:
            del staging.arrivals[arrival]
            staging.active -= 1
            self._go_on(now, staging, ready)
        if self._announced.by_executor:
            self._bring_announced(now, store, arrival.executor)

    # --- inputs of tasks that may come ---------------------------------------------------------------

    def announce(self, now: Seconds, order: AnnounceInputs, traits: ExecutorTraits) -> None:
        """A task may come to an executor: its inputs are brought there while no task waits for its own."""
        first = self._submitted.get(order.record)
        if first is None:
            return
        store = self._store_of(traits)
        files = {file: self._sizes[file] for file in self._tasks[first + order.index].reads if file not in store}
        self._announced.announce(traits.id, (order.record, order.index), files, store.limit)
        self._bring_announced(now, store, traits.id)

    def _bring_announced(self, now: Seconds, store: SimulatedStore, executor: int) -> None:
        coming = self._coming.get(store, {})
        if any(one.waiting and one.executor == executor for one in coming.values()):
            return  # a task waits for what it needs itself
        for task, file in self._announced.to_bring(executor):
            if file not in store and file not in self._coming.get(store, ()):
                arrival = Arrival(file, store, executor, now)
                arrival.announced = task
                self._fetch(now, arrival)  # if nobody has it, its task will say so

    def _release_source(self, arrival: Arrival) -> None:
        source = arrival.source
        if source is not None:
            source.serving -= 1
            if arrival.pins:
                arrival.pins = False
                source.unpin(arrival.file)
                self._make_room(source)

    # --- outputs and ends --------------------------------------------------------------------------

    def ran(self, now: Seconds, staging: Staging, finish: Finish) -> bool:
        """An attempt has run: whether its outputs are written at once. If not, `advance` tells when they are."""
        staging.finish = finish
        attempt = staging.attempt
        attempt.ran = now
        writes = self._tasks[attempt.task].writes
        if finish.failures or not writes:
            return True
        traits, store, network = staging.traits, staging.store, self.network
        writing = self.topology.writing(traits.site, traits.host, shared=not store.name)
        for file in writes:
            size = self._sizes[file]
            attempt.written += size
            routes = [writing] if writing and store.fits(size) and size else []
            if self.rules.outputs == "home" or not store.fits(size):
                attempt.returned += size
                attempt.moved += size
                routes.append(self.topology.to_home(store))
            for route in routes:
                delay = 0.0 if route is writing else self.rules.startup
                staging.own[network.start(now, route, size, staging, delay)] = None
                staging.active += 1
        return not staging.active

    def end(self, now: Seconds, staging: Staging, outcome: str) -> None:
        """An attempt ends; what a successful one wrote is kept, and known."""
        attempt = staging.attempt
        attempt.ended, attempt.outcome = now, outcome
        self.attempts.append(attempt)
        del self.running[staging.order.span]
        self._pending.pop(staging, None)
        store = staging.store
        for file in staging.pinned:
            store.unpin(file)
        if outcome == "done":
            self._keep_outputs(now, staging)
        if store.held > store.limit:
            self._make_room(store)

    def _keep_outputs(self, now: Seconds, staging: Staging) -> None:
        store, files, writes = staging.store, self.workload.files, self._tasks[staging.attempt.task].writes
        if not writes:
            return
        named: list[NamedContent] = []
        for file in writes:
            self._made_by[file] = staging.attempt.record, staging.attempt.element
            size = self._sizes[file]
            if self.rules.outputs == "home" or not store.fits(size):
                self._at_home.add(file)
            if store.fits(size) and file not in store:
                self._keep(now, store, file)
                if file not in self._at_home and not self._is_held_elsewhere(file, store):
                    store.pin(file)  # the only copy stays
            named.append(NamedContent(files[file].path, self._digest(file), size))
        if named:
            self._news.append(FilesIdentified(RUN, (), tuple(named)))

    def kill(self, now: Seconds, span: int, start: int, stop: int) -> Staging | None:
        """Elements of a span are stopped: the one of them that had begun, which ends."""
        staging = self.running.get(span)
        if staging is None or not start <= staging.element < stop:
            return None
        self._break_off(now, staging, "killed", stay=self.rules.killed == "stay")
        return staging

    def _break_off(self, now: Seconds, staging: Staging, outcome: str, *, stay: bool) -> None:
        network, attempt = self.network, staging.attempt
        for transfer in staging.own:
            network.cancel(now, transfer)
        staging.own.clear()
        for arrival in staging.arrivals:
            arrival.waiting.remove(staging)
            if arrival.waiting:
                arrival.payer = arrival.waiting[0].attempt if arrival.payer is attempt else arrival.payer
            elif not stay:
                assert arrival.transfer is not None
                if arrival.payer is not None:
                    arrival.payer.moved += network.moved_by(now, arrival.transfer)
                self._call_off(now, arrival)
        staging.arrivals.clear()
        self.end(now, staging, outcome)

    def _call_off(self, now: Seconds, arrival: Arrival) -> None:
        assert arrival.transfer is not None
        self.network.cancel(now, arrival.transfer)
        del self._coming[arrival.store][arrival.file]
        follower = self._leave_chain(arrival)
        self._release_source(arrival)
        if follower is not None:
            self._release_source(follower)
            self._fetch_again(now, follower)

    def lost(self, now: Seconds, traits: ExecutorTraits) -> None:
        """An executor is gone with all it ran; with the last one of a host the host's cache is."""
        for staging in [one for one in self.running.values() if one.traits.id == traits.id]:
            self._break_off(now, staging, "lost", stay=False)
        for span in [span for span, known in self._expected.items() if known.order.executor == traits.id]:
            self.returned(span)
        key = traits.site, traits.host
        self._announced.lost(traits.id)
        executors = self._hosts.get(key, {})
        executors.pop(traits.id, None)
        if executors:
            return
        self._hosts.pop(key, None)
        self._of_site.get(traits.site, {}).pop(key, None)
        store = self.stores.get(key)
        if store is not None:
            self._lose_store(now, store)
        elif not self.everywhere and (shared := self.stores.get((traits.site, ""))) is not None:
            self._added.setdefault(shared, {}).update(dict.fromkeys(shared))  # somebody else tells of it from now on

    def _lose_store(self, now: Seconds, store: SimulatedStore) -> None:
        for file in store:
            self._forget_holder(file, store)
        del self.stores[store.site, store.name]
        self._store_by_executor.clear()
        self._added.pop(store, None)
        self._removed.pop(store, None)
        for arrival in list(self._coming.pop(store, {}).values()):
            assert arrival.transfer is not None
            self.network.cancel(now, arrival.transfer)
            self._leave_chain(arrival)
            self._release_source(arrival)
        for arrival in [one for some in self._coming.values() for one in some.values() if one.source is store]:
            self._fetch_again(now, arrival)

    def _fetch_again(self, now: Seconds, arrival: Arrival) -> None:
        """Its source is gone: another one sends all of it."""
        transfer = arrival.transfer
        assert transfer is not None
        if arrival.payer is not None:
            arrival.payer.moved += self.network.moved_by(now, transfer)
        self.network.cancel(now, transfer)
        arrival.has_landed = arrival.pins = False
        if self.rules.chains:
            self._unfollow(arrival)
        if self._fetch(now, arrival):
            return
        del self._coming[arrival.store][arrival.file]
        follower = self._leave_chain(arrival)
        for staging in arrival.waiting:
            del staging.arrivals[arrival]
            staging.active -= 1
            self._fail(staging, arrival.file)
            if not staging.active:
                self._pending[staging] = None
        if follower is not None:
            self._release_source(follower)
            self._fetch_again(now, follower)

    # --- where files are -----------------------------------------------------------------------------

    def _keep(self, now: Seconds, store: SimulatedStore, file: int) -> None:
        store.add(file, self._sizes[file], now)
        self._holders.setdefault(file, {}).setdefault(store.site, {})[store] = None
        removed = self._removed.get(store)
        if removed is not None:
            removed.pop(file, None)
        self._added.setdefault(store, {})[file] = None

    def _make_room(self, store: SimulatedStore) -> None:
        for file in store.make_room():
            self._forget_holder(file, store)
            if (added := self._added.get(store)) is not None:
                added.pop(file, None)
            self._removed.setdefault(store, {})[file] = None

    def _forget_holder(self, file: int, store: SimulatedStore) -> None:
        at_site = self._holders[file][store.site]
        del at_site[store]
        if not at_site:
            del self._holders[file][store.site]
            if not self._holders[file]:
                del self._holders[file]

    def _is_held_elsewhere(self, file: int, store: SimulatedStore) -> bool:
        return any(one is not store for some in self._holders.get(file, {}).values() for one in some)

    def _store_of(self, traits: ExecutorTraits) -> SimulatedStore:
        store = self._store_by_executor.get(traits.id)
        if store is None:
            store = self._store_by_executor[traits.id] = self._store(traits.site, traits.host)
        return store

    def _store(self, site: str, host: str) -> SimulatedStore:
        spec = self.topology.site(site)
        key = site, host if spec.store == "host" else ""
        store = self.stores.get(key)
        if store is None:
            policy = load_eviction(spec.eviction)
            size = spec.cache_bytes if self.uses_caches else 0.0
            store = self.stores[key] = SimulatedStore(key[1], site, size, policy, self._dice)
        return store

    def _content(self, file: int) -> HeldContent:
        return HeldContent(self._digest(file), self._sizes[file])

    def _digest(self, file: int) -> bytes:
        digest = self._digests.get(file)
        if digest is None:
            digest = self._digests[file] = self.workload.files[file].digest
        return digest


def _serving(store: SimulatedStore) -> int:
    return store.serving


def _least_busy(holders: dict[SimulatedStore, None]) -> SimulatedStore:
    """Of the first few the one that sends least; it goes to the end, so that all take their turns."""
    best: SimulatedStore | None = None
    for number, store in enumerate(holders):
        if best is None or store.serving < best.serving:
            best = store
        if not best.serving or number + 1 == _LOOKED_AT:
            break
    assert best is not None
    if len(holders) > 1:
        del holders[best]
        holders[best] = None
    return best
