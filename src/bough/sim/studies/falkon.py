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
from statistics import fmean
from typing import Final, NamedTuple

from bough.core.machine import Machine
from bough.model.events.facts import ExecutorLost, PilotEnded, Submitted
from bough.model.events.news import GroupClosed
from bough.model.ids import ROOT, BlobId, GroupId, RecordId, Seconds
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, Kind, On, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, Finish, Model, News, Stage
from bough.sim.platforms.simulated_site import PilotExecutor, Queue, SimulatedSite, after
from bough.sim.schedule import intervals
from bough.sim.simulation import Simulation
from bough.sim.studies.study_rows import Curve, Reference, StudyFigure, StudyResult, StudyRow
from bough.sim.study_workloads import RESOURCE_SECONDS, RESOURCES, STAGES

MACHINES: Final = 32
LATENCY: Seconds = 40.0
IDEAL: Seconds = 1260.0
NEVER: Seconds = 0.0  # no executor leaves by itself
PUBLISHED: Final = {15.0: 1754.0, 60.0: 1680.0, 120.0: 1507.0, 180.0: 1484.0, NEVER: 1276.0}  # completion by idle time
QUEUED: Final = {15.0: 87.3, 60.0: 83.9, 120.0: 74.7, 180.0: 44.4, NEVER: 43.5}  # mean seconds before a task starts
GRAM: Final = (4904.0, 30.0, 611.1)  # each task a job of its own: completion, utilisation, mean seconds in the queue
GRAM_EVERY: Seconds = 2.2  # one job is taken after another: as for the 48 resources
GRAM_OVERHEAD: Seconds = 38.6  # of a job beside its task: printed run time 56.5 s, of tasks of 17.9 s
UTILISATION: Final = {15.0: 0.89, 60.0: 0.75, 120.0: 0.65, 180.0: 0.59, NEVER: 0.44}

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
    queued: Seconds  # the mean from the submission of a stage to the start of its tasks

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
    policy: str,
    idle: Seconds,
    *,
    graph: bool = False,
    warm: bool = False,
    latency: Queue = _STEADY,
    machines: int = MACHINES,
    times: int = 1,
) -> StageRun:
    """Run the 18 stages; `warm`: all machines are there before the first task; `times`: so many tasks for each."""
    most = machines if warm else 0
    spec = SiteSpec(kind="sim", max_pilots=machines, cores_per_pilot=1.0, idle=idle, min_pilots=most)
    begin = 2 * LATENCY if warm else 0.0
    site = SimulatedSite("batch", spec, latency)
    return _run_at(site, policy, _length, begin=begin, graph=graph, times=times)


def run_as_jobs() -> StageRun:
    """Each task is a job of the batch system by itself, as with GRAM4 and PBS: about 100 machines are free."""
    spec = SiteSpec(kind="sim", max_pilots=100, cores_per_pilot=1.0, idle=NEVER)
    taken = [0.0]

    def starts(now: Seconds, nth: int, many: int) -> Sequence[Seconds]:
        begins = []
        for _ in range(many):
            taken[0] = max(taken[0], now) + GRAM_EVERY
            begins.append(taken[0] + LATENCY)
        return begins

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(_length(spec, index, attempt, where).seconds + GRAM_OVERHEAD)

    ran = _run_at(_OneTaskEach("batch", spec, starts), "all-at-once", model)
    return ran._replace(used=ran.used - GRAM_OVERHEAD * sum(many for many, _ in STAGES))


class _OneTaskPilot(PilotExecutor):
    """Ends with its first task."""

    def finish(self, end: Finish, model: Model) -> tuple[list[News], list[Finish | Stage]]:
        """Report, and be gone before anything else can be sent."""
        news, started = super().finish(end, model)
        self.left = self.now
        return [*news, ExecutorLost(self.id, "its job has ended"), PilotEnded(self.pilot, "its job has ended")], started


class _OneTaskEach(SimulatedSite):
    def make_executor(self, pilot: PilotId, now: Seconds) -> PilotExecutor:
        """One that ends with its first task."""
        return _OneTaskPilot(pilot, self.name, self.spec.cores_per_pilot, now)


def _run_at(
    site: SimulatedSite, policy: str, model: Model, *, begin: Seconds = 0.0, graph: bool = False, times: int = 1
) -> StageRun:
    simulation = Simulation(Machine(load_policies("fifo", policy)), model, [], [site])
    submitted: list[Seconds] = []
    simulation.run(until=begin)
    simulation.now = begin
    if graph:
        stages = [_stage(number, gated=True, times=times) for number in range(len(STAGES))]
        simulation.at(begin, Submitted([item for stage in stages for item in stage]))
        simulation.at(begin, *(GroupClosed(GroupId(number + 1)) for number in range(len(STAGES))))
        _run_until_done(simulation)
    else:
        for number in range(len(STAGES)):
            submitted += [simulation.now] * STAGES[number][0] * times
            simulation.at(simulation.now, Submitted(_stage(number, gated=False, times=times)))
            _run_until_done(simulation)
    end = simulation.now
    early = sum(max(0.0, begin - one.came) for one in site.executors)
    ran = intervals(simulation)
    queued = fmean(one.start - submitted[one.record - 1] for one in ran.values()) if submitted else 0.0
    return StageRun(end - begin, site.allocated(end) - early, site.used(), len(site.requests), queued)


def _run_until_done(simulation: Simulation) -> None:
    simulation.step()
    while not simulation.machine.is_idle:
        simulation.step()


def _length(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
    return Fate(float(spec.template.removeprefix("sleep ")))


def _stage(number: int, *, gated: bool, times: int = 1) -> list[Item]:
    """The tasks of a stage; of a graph: in a group that waits for the one before."""
    first = 1 + times * sum(many for many, _ in STAGES[:number])
    many, seconds = STAGES[number][0] * times, STAGES[number][1]
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
        if free_at is not None and granted[0] >= RESOURCES:
            begins = max(begins, now + free_at + 0.5)
        return [begins + 22.0 * number / (RESOURCES - 1) for number in range(many)]

    return starts


def run_acquisition(policy: str, *, busy: bool) -> tuple[list[int], float]:
    """Ask for 48 resources: the sizes of the requests, and the accumulated processor seconds after 180 s."""
    spec = SiteSpec(kind="sim", max_pilots=96, cores_per_pilot=1.0, idle=NEVER)
    site = SimulatedSite("batch", spec, batch_system(160.0 if busy else None))
    simulation = Simulation(Machine(load_policies("fifo", policy)), lambda *_: Fate(RESOURCE_SECONDS), [], [site])
    tasks: list[Item] = [TaskSpec(RecordId(n), Kind.COMMAND, BlobId(b""), b"") for n in range(1, RESOURCES + 1)]
    simulation.at(0.0, Submitted(tasks))
    simulation.run(until=MEASURED_AT)
    return site.requests, site.allocated(MEASURED_AT)


def _size_rows(*, quick: bool) -> list[StudyRow]:
    """Our policy beside the thesis' own at other sizes: as many times the tasks as there are machines for 32."""
    rows = []
    for machines in (10,) if quick else (10, 100, 1000):
        times = max(1, machines // MACHINES)
        for called, policy, idle in (
            ("all at once, idle time 60 s", "all-at-once", 60.0),
            ("all at once, idle time 180 s", "all-at-once", 180.0),
            ("adaptive", "adaptive", NEVER),
        ):
            ran = run_stages(policy, idle, machines=machines, times=times)
            note = f"{100 * ran.utilisation:.0f} % used, {ran.wasted:.0f} core-seconds wasted, {ran.requests} requests"
            rows.append(
                StudyRow(f"18 stages x{times}, {machines} machines, {called}: completion", ran.completion, note=note)
            )
    return rows


def run(*, quick: bool) -> StudyResult:
    """All figures, ours beside the published ones."""
    rows: list[StudyRow] = []
    stages: list[tuple[float, float]] = []
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
        stages.append((100 * ran.utilisation, ran.completion))
        rows.append(StudyRow(f"{called}: completion", ran.completion, published, note=note))
        rows.append(StudyRow(f"{called}: utilisation", 100 * ran.utilisation, 100 * UTILISATION[idle], "%"))
        rows.append(StudyRow(f"{called}: mean time in the queue", ran.queued, QUEUED[idle]))
    ideal = run_stages("all-at-once", NEVER, warm=True)
    rows.append(StudyRow("18 stages, ideal: completion", ideal.completion, IDEAL))
    rows.append(StudyRow("18 stages, ideal: mean time in the queue", ideal.queued, 42.24, note="printed as 42.2",
                         of=Reference.FOLLOWS))  # fmt: skip
    jobs = run_as_jobs()
    rows.append(StudyRow("18 stages, GRAM4+PBS: completion", jobs.completion, GRAM[0], note="a job for each task"))
    rows.append(StudyRow("18 stages, GRAM4+PBS: utilisation", 100 * jobs.utilisation, GRAM[1], "%"))
    rows.append(StudyRow("18 stages, GRAM4+PBS: mean time in the queue", jobs.queued, GRAM[2]))
    own: list[tuple[float, float]] = []
    for graph in (False, True):
        ran = run_stages("adaptive", NEVER, graph=graph)
        called = f"18 stages, adaptive, submitted {'as a graph' if graph else 'stage by stage'}"
        note = f"ideal {IDEAL:g} s; {ran.requests} requests, {ran.wasted:.0f} core-seconds wasted"
        rows.append(StudyRow(f"{called}: completion", ran.completion, note=note))
        rows.append(StudyRow(f"{called}: utilisation", 100 * ran.utilisation, unit="%"))
        own.append((100 * ran.utilisation, ran.completion))
    rows += _size_rows(quick=quick)
    printed = [(100 * UTILISATION[idle], seconds) for idle, seconds in PUBLISHED.items()]
    curves = [
        Curve("all at once", stages),
        Curve("all at once", printed, of=Reference.PUBLISHED),
        Curve("adaptive", own),
    ]
    title = "18 stages: what is gained by holding machines longer (idle time 15, 60, 120, 180 s, always)"
    return StudyResult(rows, [StudyFigure("stages", title, "utilisation, %", "completion, s", curves)])
