"""A simulated site: when the pilots of a request start there, and which executors they bring.

Executors leave by themselves when they were idle for as long as the site's definition says, as real ones do. How long a
request waits is a function of the site, so that a batch system with its habits can stand behind it.
Rule: it decides nothing; what it is told and when that happens is all it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bough.model.events.facts import ExecutorJoined, SiteDefined
from bough.model.ids import ExecutorId, Seconds
from bough.model.resources import Needs
from bough.model.site_specs import PilotId, SiteSpec
from bough.sim.simulated_executor import SimulatedExecutor

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


class PilotExecutor(SimulatedExecutor):
    """An executor that a pilot brings. `left` is None while it is there."""

    def __init__(self, pilot: PilotId, site: str, cores: float, now: Seconds) -> None:
        super().__init__(FIRST + pilot, Needs(cores=cores), site=site)
        self.pilot = pilot
        self.came = now
        self.left: Seconds | None = None
        self.idle_since = now

    def hello(self) -> ExecutorJoined:
        """What it says when it joins."""
        return ExecutorJoined(self.id, self.traits.site, self.host, 1, self.traits.capacity, pilot=self.pilot)


class SimulatedSite:
    """See the module. `requests` are the sizes of those that were made."""

    def __init__(self, name: str, spec: SiteSpec, queue: Queue) -> None:
        self.name = name
        self.spec = spec
        self.requests: list[int] = []
        self.executors: list[PilotExecutor] = []
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
        executor = PilotExecutor(pilot, self.name, self.spec.cores_per_pilot, now)
        self.executors.append(executor)
        return executor

    def end(self, pilot: PilotId, now: Seconds) -> PilotExecutor | None:
        """A pilot ends; its executor, if it has one."""
        self._gone.add(pilot)
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


def after(latency: Seconds) -> Queue:
    """Whatever is asked for starts after the same time."""
    return lambda now, nth, many: [now + latency] * many
