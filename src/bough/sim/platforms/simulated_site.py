"""A simulated site: when the pilots of a request start there, and which executors they bring.

Executors leave by themselves when they were idle for as long as the site's definition says, as real ones do. How long a
request waits is a function of the site, so that a batch system with its habits can stand behind it.
Rule: it decides nothing; what it is told and when that happens is all it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import NamedTuple

from bough.model.events.facts import ExecutorJoined, SiteDefined
from bough.model.ids import ExecutorId, Seconds
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.sim.platforms.simulated_executor import UNSAID_MEMORY, Node, SimulatedExecutor

FIRST: int = 1_000_000  # executors of pilots are numbered from here
# when the pilots of a request start, that was made at a time; `nth` counts requests from 0
Queue = Callable[[Seconds, int, int], Sequence[Seconds]]


class PilotStart(NamedTuple):
    """A pilot starts now, on the agenda."""

    site: str
    pilot: PilotId


class IdleCheck(NamedTuple):
    """An executor has been idle for as long as it may, if it has been idle since then."""

    executor: ExecutorId
    since: Seconds


class PilotOver(NamedTuple):
    """The batch system ends a pilot now, or its host fails, if it is still there."""

    site: str
    pilot: PilotId
    reason: str


_ANY = Node()


class PilotExecutor(SimulatedExecutor):
    """An executor that a pilot brings. `left` is None while it is there; `until`: when it must leave, 0: never."""

    def __init__(
        self, pilot: PilotId, site: str, cores: float, now: Seconds, until: Seconds = 0.0, *, node: Node = _ANY
    ) -> None:
        capacity = node.has or Needs(cores=cores, memory=UNSAID_MEMORY)
        super().__init__(FIRST + pilot, capacity, node.speed, f"{site}-{pilot}", site)
        self.availability, self.attributes = node.availability, node.attributes
        self.until = until
        self.fails: Seconds = inf  # when its host does, which nobody knows before
        self.pilot = pilot
        self.came = now
        self.left: Seconds | None = None
        self.idle_since = now

    def hello(self) -> ExecutorJoined:
        """What it says when it joins."""
        traits = self.traits
        return ExecutorJoined(
            self.id,
            traits.site,
            self.host,
            1,
            traits.capacity,
            self.until,
            pilot=self.pilot,
            attributes=self.attributes,
        )


class SimulatedSite:
    """See the module. `requests` are the sizes of those that were made. `walltime`: of each pilot, 0: no limit.

    `nodes`: its hosts, if they are not all alike; a pilot gets the first that no other has. `lifetimes`: for how long
    the host of the next pilot lives; None: all live.
    """

    def __init__(
        self, name: str, spec: SiteSpec, queue: Queue, walltime: Seconds = 0.0, nodes: Sequence[Node] = ()
    ) -> None:
        self.name = name
        self._nodes = nodes
        self._free = list(range(len(nodes)))  # a heap
        self._taken: dict[PilotId, int] = {}
        self.walltime = walltime
        self.spec = spec
        self.requests: list[int] = []
        self.executors: list[PilotExecutor] = []
        self.lifetimes: Callable[[], Seconds] | None = None
        self._queue = queue
        self._gone: set[PilotId] = set()

    def definition(self) -> SiteDefined:
        """The fact by which the core knows of it."""
        return SiteDefined(self.name, self.spec)

    def request(self, now: Seconds, pilots: Sequence[PilotId]) -> list[tuple[Seconds, PilotStart]]:
        """Take a request: when which pilot starts."""
        starts = self._queue(now, len(self.requests), len(pilots))
        self.requests.append(len(pilots))
        return [(when, PilotStart(self.name, pilot)) for when, pilot in zip(starts, pilots, strict=True)]

    def start(self, pilot: PilotId, now: Seconds) -> PilotExecutor | None:
        """A pilot starts, unless it was withdrawn."""
        if pilot in self._gone:
            return None
        executor = self.make_executor(pilot, now)
        if self.lifetimes is not None:
            executor.fails = now + self.lifetimes()
        self.executors.append(executor)
        return executor

    def ends(self, executor: PilotExecutor) -> tuple[Seconds, PilotOver] | None:
        """How a pilot that starts ends at the latest: with its wall time or its host; None: by nothing of these."""
        if executor.fails < (executor.until or inf):
            return executor.fails, PilotOver(self.name, executor.pilot, "its host failed")
        return (
            (executor.until, PilotOver(self.name, executor.pilot, "its wall time was over")) if executor.until else None
        )

    def make_executor(self, pilot: PilotId, now: Seconds) -> PilotExecutor:
        """What a pilot brings."""
        until = now + self.walltime if self.walltime else 0.0
        return PilotExecutor(pilot, self.name, self.spec.cores_per_pilot, now, until, node=self._take_node(pilot))

    def _take_node(self, pilot: PilotId) -> Node:
        """The first that is free; one that is like it, should there be more pilots than nodes."""
        if not self._nodes:
            return _ANY
        if not self._free:
            return self._nodes[pilot % len(self._nodes)]
        self._taken[pilot] = number = heappop(self._free)
        return self._nodes[number]

    def is_there(self, pilot: PilotId) -> bool:
        """Whether a pilot has not ended."""
        return pilot not in self._gone

    def end(self, pilot: PilotId, now: Seconds) -> PilotExecutor | None:
        """A pilot ends; its executor, if it has one."""
        self._gone.add(pilot)
        if (node := self._taken.pop(pilot, None)) is not None:
            heappush(self._free, node)
        for executor in self.executors:
            if executor.pilot == pilot and executor.left is None:
                executor.left = now
                return executor
        return None

    def allocated(self, until: Seconds) -> float:
        """Core-seconds for which executors were there, up to a time."""
        cores = self.spec.cores_per_pilot
        ends = ((x.came, until if x.left is None else min(x.left, until)) for x in self.executors)
        return sum(cores * max(0.0, end - start) for start, end in ends)

    def used(self) -> float:
        """Core-seconds in which they worked."""
        return sum(executor.busy for executor in self.executors)


def lifetimes(mean: Seconds, seed: str) -> Callable[[], Seconds]:
    """For how long hosts live, one after the other: exponential, with this mean."""
    dice = Random(f"lifetimes {seed}")
    return lambda: dice.expovariate(1 / mean)


def after(latency: Seconds) -> Queue:
    """Whatever is asked for starts after the same time."""
    return lambda now, nth, many: [now + latency] * many
