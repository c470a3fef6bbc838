"""Falkon's provisioning experiments, with our core and policies in the place of its provisioner.

Two of them: 48 resources by each acquisition strategy on a site that is idle or busy, on a model of a batch system; and
the workload of 18 stages, at most 32 processors, with an allocation latency of 40 s. The stages are submitted one after
another, by a client that waits for each (`blind`), or all at once as a graph. Only our own policy sees the graph.

Source: I. Raicu, Many-Task Computing, Ph.D. thesis, University of Chicago 2009, 5.3.1 and 5.3.2. The counts of tasks
per stage are only in a plot there: they follow from the printed totals but for the last stages, which are a guess.
Rule: wasted is what executors were there for without running a task, until the last task has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bough.core.machine import Machine
from bough.model.events.facts import Submitted
from bough.model.events.news import GroupClosed
from bough.model.ids import ROOT, BlobId, GroupId, RecordId, Seconds
from bough.model.site_specs import SiteSpec
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, Kind, On, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.simulated_executor import ExecutorTraits, Fate
from bough.sim.simulated_site import Queue, SimulatedSite, after
from bough.sim.simulation import Simulation
from bough.sim.studies.study_rows import StudyRow

STAGES: Final = (  # tasks and seconds of each
    *((1, 60), (2, 60), (4, 60), (8, 60), (16, 60), (32, 60), (64, 60), (1, 120), (640, 6), (160, 12)),
    *((3, 60), (20, 60), (18, 60), (16, 60), (8, 60), (4, 60), (2, 60), (1, 60)),
)
MACHINES: Final = 32
LATENCY: Seconds = 40.0
IDEAL: Seconds = 1260.0
NEVER: Seconds = 0.0  # no executor leaves by itself
PUBLISHED: Final = {15.0: 1754.0, 60.0: 1680.0, 120.0: 1507.0, 180.0: 1484.0, NEVER: 1276.0}  # completion by idle time
UTILISATION: Final = {15.0: 0.89, 60.0: 0.75, 120.0: 0.65, 180.0: 0.59, NEVER: 0.44}

WANTED: Final = 48
STRATEGIES: Final = ("one-at-a-time", "additive", "exponential", "all-at-once")
CPU_SECONDS: Final = {  # accumulated at 180 s: idle, busy
    "one-at-a-time": (4220.0, 4205.0),
    "additive": (6048.0, 5773.0),
    "exponential": (5702.0, 4267.0),
    "all-at-once": (6156.0, 409.0),
}
MEASURED_AT: Seconds = 180.0


_STEADY: Final = after(LATENCY)


class StageRun(NamedTuple):
    """How the 18 stages went."""

    completion: Seconds
    allocated: float  # core-seconds, until then
    used: float
    requests: int

    @property
    def wasted(self) -> float:
        """Core-seconds that executors were there for and had nothing to do."""
        return self.allocated - self.used

    @property
    def utilisation(self) -> float:
        """The share of what was allocated that was used."""
        return self.used / self.allocated

    def dominates(self, other: StageRun) -> bool:
        """Whether it is no worse in both and better in one."""
        no_worse = self.completion <= other.completion + _ROUND and self.wasted <= other.wasted + _ROUND
        return no_worse and (self.completion < other.completion - _ROUND or self.wasted < other.wasted - _ROUND)


_ROUND: Final = 1e-6


def run_stages(
    policy: str, idle: Seconds, *, graph: bool = False, warm: bool = False, latency: Queue = _STEADY
) -> StageRun:
    """Run the 18 stages; `warm`: all machines are there before the first task."""
    spec = SiteSpec(kind="sim", max_pilots=MACHINES, cores_per_pilot=1.0, idle=idle)
    begin = 2 * LATENCY if warm else 0.0
    if warm:
        spec = SiteSpec(kind="sim", max_pilots=MACHINES, cores_per_pilot=1.0, idle=idle, min_pilots=MACHINES)
    site = SimulatedSite("batch", spec, latency)
    simulation = Simulation(Machine(load_policies("fifo", policy)), _length, [], [site])
    simulation.run(until=begin)
    simulation.now = begin
    if graph:
        stages = [_stage(number, gated=True) for number in range(len(STAGES))]
        simulation.at(begin, Submitted([item for stage in stages for item in stage]))
        simulation.at(begin, *(GroupClosed(GroupId(number + 1)) for number in range(len(STAGES))))
        _run_until_done(simulation)
    else:
        for number in range(len(STAGES)):
            simulation.at(simulation.now, Submitted(_stage(number, gated=False)))
            _run_until_done(simulation)
    end = simulation.now
    early = sum(max(0.0, begin - one.came) for one in site.executors)
    return StageRun(end - begin, site.allocated(end) - early, site.used(), len(site.requests))


def _run_until_done(simulation: Simulation) -> None:
    simulation.step()
    while not simulation.machine.is_idle:
        simulation.step()


def _length(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
    return Fate(float(spec.template.removeprefix("sleep ")))


def _stage(number: int, *, gated: bool) -> list[Item]:
    """The tasks of a stage; of a graph: in a group that waits for the one before."""
    first = 1 + sum(many for many, _ in STAGES[:number])
    many, seconds = STAGES[number]
    group = GroupId(number + 1) if gated else ROOT
    made: list[Item] = []
    if gated:
        made.append(GroupSpec(group, f"stage{number + 1}", ROOT, (Dep(On.GROUP, number),) if number else ()))
    numbers, template = range(first, first + many), f"sleep {seconds}"
    return made + [TaskSpec(RecordId(n), Kind.COMMAND, BlobId(b""), b"", group, template=template) for n in numbers]


# --- 48 resources ---------------------------------------------------------------------------------------------------


def batch_system(free_at: Seconds | None) -> Queue:
    """The batch system of the 48 resources, as fitted by hand to the published figures (spec 4.6).

    A request is taken every 2.2 s, the first resource is there after 40 s, and those of one request come within 22 s.
    If `free_at` is a time, one resource too few is free before: the request that needs it, and all behind it, are held.
    """
    granted = [0]

    def starts(now: Seconds, nth: int, many: int) -> Sequence[Seconds]:
        begins = now + 40.0 + 2.2 * nth
        granted[0] += many
        if free_at is not None and granted[0] >= WANTED:
            begins = max(begins, now + free_at + 0.5)
        return [begins + 22.0 * number / (WANTED - 1) for number in range(many)]

    return starts


def run_acquisition(policy: str, *, busy: bool) -> tuple[list[int], float]:
    """Ask for 48 resources: the sizes of the requests, and the accumulated processor seconds after 180 s."""
    spec = SiteSpec(kind="sim", max_pilots=96, cores_per_pilot=1.0, idle=NEVER)
    site = SimulatedSite("batch", spec, batch_system(160.0 if busy else None))
    simulation = Simulation(Machine(load_policies("fifo", policy)), lambda *_: Fate(10_000.0), [], [site])
    tasks: list[Item] = [TaskSpec(RecordId(n), Kind.COMMAND, BlobId(b""), b"") for n in range(1, WANTED + 1)]
    simulation.at(0.0, Submitted(tasks))
    simulation.run(until=MEASURED_AT)
    return site.requests, site.allocated(MEASURED_AT)


def run(*, quick: bool) -> list[StudyRow]:
    """All figures, ours beside the published ones."""
    rows: list[StudyRow] = []
    for policy in STRATEGIES:
        for busy, published in zip((False, True), CPU_SECONDS[policy], strict=True):
            requests, seconds = run_acquisition(policy, busy=busy)
            subject = f"48 resources, {policy}, {'busy' if busy else 'idle'} site: accumulated CPU time"
            note = f"{len(requests)} requests, the last one of {requests[-1]}"
            rows.append(StudyRow(subject, seconds, published, note=note))
    for idle, published in PUBLISHED.items():
        ran = run_stages("all-at-once", idle, warm=idle == NEVER)
        called = f"18 stages, idle time {idle:g} s" if idle else "18 stages, machines held"
        note = f"{ran.requests} requests"
        rows.append(StudyRow(f"{called}: completion", ran.completion, published, note=note))
        rows.append(StudyRow(f"{called}: utilisation", 100 * ran.utilisation, 100 * UTILISATION[idle], "%"))
    for graph in (False, True):
        ran = run_stages("adaptive", NEVER, graph=graph)
        called = f"18 stages, adaptive, submitted {'as a graph' if graph else 'stage by stage'}"
        note = f"ideal {IDEAL:g} s; {ran.requests} requests, {ran.wasted:.0f} core-seconds wasted"
        rows.append(StudyRow(f"{called}: completion", ran.completion, note=note))
        rows.append(StudyRow(f"{called}: utilisation", 100 * ran.utilisation, unit="%"))
    return rows
