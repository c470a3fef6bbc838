"""Storage Affinity's simulations: six executions of a data-intensive bag of tasks over a grid of sites.

A grid has 2 to 12 sites with processors of a total speed of 1000 (about 100 of them), and one link of 1 Mbit/s between
the home machine and all sites. A job has 2 GB of input in tasks of 3, 15 or 75 MB; it is run six times, and what a
site has fetched stays there. Storage Affinity, WQR and XSufferage meet the same grids, jobs and loads.

The dissertation does not say which traces of load it used, how the link is shared, or what XSufferage knows. The loads
here are made: each processor is available for 0.4 to 1.0 of its time, changing about every twenty minutes; the link
for 0.9 of it, and it is shared fairly (`spec/storage-affinity.md` 8, row H). So orderings and shapes can be compared,
and levels only roughly. WQR stages the input of each copy anew, as the text says.
Source: E. Santos Neto, 2004; `spec/storage-affinity.md` 3, 4, 5, 8, 9.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Any, Final, Literal

import msgspec

from bough.core.machine import Machine
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.policy.interface import Policies
from bough.sim.data.measured_attempts import Attempt
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.platforms.link_specs import LinkSpec, TransferRules
from bough.sim.platforms.network import Sharing
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, SimulatedExecutor
from bough.sim.simulation import Simulation
from bough.sim.studies.static_xsufferage import PlannedLink, StaticXSufferage
from bough.sim.studies.study_rows import Curve, Reference, StudyFigure, StudyResult, StudyRow
from bough.sim.study_workloads import EXECUTIONS, JOB_BYTES, storage_affinity_job
from bough.sim.workload import Workload

GRAINS: Final = (3, 15, 75)  # megabytes of a task, in the mean
SPREADS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the sizes of tasks
SPEEDS: Final = {1: (10.0, 10.0), 2: (6.7, 13.4), 4: (4.0, 16.0), 8: (2.2, 17.6)}
POWER: Final = 1000.0
LINK: Final = 125_000.0  # bytes a second
REPETITIONS: Final = 25
HEURISTICS: Final = {
    "SA": ("storage-affinity", "storage-affinity:cap=100"),
    "WQR": ("workqueue:order=random", "wqr:cap=100"),
}
SIGMA: Final = 0.3  # of the error of noisy information, about 30 %


class Sufferage(msgspec.Struct, frozen=True):
    """XSufferage with its options: when it decides, what it knows of run times, and how it thinks of the link."""

    plan: Literal["static", "on-event"] = "static"
    info: Literal["snapshot", "forecast", "oracle", "noisy"] = "snapshot"
    link: PlannedLink = "serial"

    def __str__(self) -> str:
        return f"XSufferage ({self.plan}, {self.info}, {self.link})"


Heuristic = str | Sufferage


class Scenario(msgspec.Struct, frozen=True):
    """One simulation: a grid and a job."""

    kind: str = "visualization"  # cost by size; or search: anything up to that
    grain: int = 3
    heterogeneity: int = 4
    spread: float = 0.5
    repetition: int = 0
    cpu: tuple[float, float] = (0.4, 1.0)
    link: float = 0.9

    @property
    def seed(self) -> str:
        """What makes its dice."""
        return f"{self.kind} {self.grain} {self.heterogeneity} {self.spread} {self.repetition}"


class ExecutionOutcome(msgspec.Struct, frozen=True):
    """One of the six."""

    makespan: Seconds
    cpu_waste: float
    network_waste: float


class Load:
    """How much of a processor is there for us: constant for a while, then another value."""

    def __init__(self, seed: str, low: float, high: float, every: Seconds = 1200.0) -> None:
        self._dice = Random(seed)
        self._low, self._high, self._every = low, high, every
        self._times: list[Seconds] = [0.0]
        self._values: list[float] = [self._dice.uniform(low, high)]
        self._done: list[float] = [0.0]  # integral up to each time

    def at(self, when: Seconds) -> float:
        """The part that is there at a time."""
        self._extend(when)
        return self._values[bisect_right(self._times, when) - 1]

    def mean(self, when: Seconds) -> float:
        """The part that was there until a time, in the mean."""
        now = self.at(when)
        place = bisect_right(self._times, when) - 1
        return (self._done[place] + (when - self._times[place]) * now) / when if when > 0 else now

    def length(self, start: Seconds, work: float) -> Seconds:
        """How long work takes that begins at a time, on a processor of speed 1."""
        self._extend(start)
        place = bisect_right(self._times, start) - 1
        wanted = self._done[place] + (start - self._times[place]) * self._values[place] + work
        while self._done[-1] < wanted:
            self._add()
        place = bisect_right(self._done, wanted) - 1
        return self._times[place] + (wanted - self._done[place]) / self._values[place] - start

    def lengths(self, starts: Any, works: Any) -> Any:
        """The same for arrays of numpy."""
        import numpy as np

        self.length(float(starts.max()), float(works.max()))
        times, done = np.array(self._times), np.array(self._done)
        return np.interp(np.interp(starts, times, done) + works, done, times) - starts

    def _extend(self, when: Seconds) -> None:
        while self._times[-1] <= when:
            self._add()

    def _add(self) -> None:
        last = self._times[-1] + self._dice.expovariate(1 / self._every)
        self._done.append(self._done[-1] + (last - self._times[-1]) * self._values[-1])
        self._times.append(last)
        self._values.append(self._dice.uniform(self._low, self._high))


def grid(scenario: Scenario) -> list[tuple[str, float]]:
    """The site and the speed of each processor."""
    dice = Random(f"grid {scenario.seed}")
    sites = dice.randint(2, 12)
    speeds: list[float] = []
    while sum(speeds) < POWER:
        speeds.append(dice.uniform(*SPEEDS[scenario.heterogeneity]))
    return [(f"site{number * sites // len(speeds) + 1:02}", speed) for number, speed in enumerate(speeds)]


def grid_platform(scenario: Scenario, *, reuses: bool = True, sharing: str = "fair") -> Platform:
    """The grid as a platform, without loads; `reuses`: what a site has fetched stays there."""
    speeds: dict[str, list[float]] = {}
    for where, speed in grid(scenario):
        speeds.setdefault(where, []).append(speed)
    kept = SitePlatform(store="site") if reuses else SitePlatform(cache=0.0)
    sites = {name: msgspec.structs.replace(kept, hosts=len(some), speeds=some) for name, some in sorted(speeds.items())}
    home = LinkSpec(LINK * scenario.link, sharing=Sharing(sharing))
    return Platform(sites, home, TransferRules(peers="none", killed="end"))


def job(scenario: Scenario) -> Workload:
    """The tasks and their files."""
    return storage_affinity_job(scenario.kind, scenario.grain, scenario.spread, scenario.seed)


def run_heuristic(name: Heuristic, scenario: Scenario, *, sharing: str = "fair") -> list[ExecutionOutcome]:
    """Six executions under one heuristic."""
    reuses = name != "WQR"
    processors, workload = grid(scenario), job(scenario)
    platform = grid_platform(scenario, reuses=reuses, sharing=sharing)
    loads = {number: Load(f"load {number} {scenario.seed}", *scenario.cpu) for number in range(1, len(processors) + 1)}
    executors = [
        SimulatedExecutor(number, Needs(cores=1.0), speed, f"p{number}", where)
        for number, (where, speed) in enumerate(processors, 1)
    ]

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        work = workload.tasks[(spec.id - 1) % len(workload.tasks)].seconds
        return Fate(loads[where.id].length(simulation.now, work / where.speed) * where.speed)

    knows: _Knowledge | None = None
    plan: StaticXSufferage | None = None

    def foresee(record: int, element: int, host: str) -> Seconds:
        assert knows is not None
        cost = workload.tasks[(record - 1) % len(workload.tasks)].seconds
        return knows.expected_now(int(host.removeprefix("p")), cost, simulation.now)

    if isinstance(name, Sufferage):
        knows = _Knowledge(name.info, scenario.seed, executors, loads)
        if name.plan == "static":
            plan = StaticXSufferage([one.traits.site for one in executors], knows.expected, name.link)
            policies = Policies(plan)
        else:
            policies = msgspec.structs.replace(
                load_policies(f"xsufferage:plan=on-event,info=oracle,link={name.link},ageing=0"),
                foresight=foresee,
            )
    else:
        placement, replication = HEURISTICS[name]
        policies = load_policies(placement, replication=replication)
    machine = Machine(policies, seed=scenario.repetition)
    data = SimulatedData(workload, platform)
    simulation: Simulation = Simulation(machine, model, executors, data=data)
    outcomes = []
    for execution in range(EXECUTIONS):
        begin = simulation.now
        done = len(data.attempts)
        first = 1 + execution * len(workload.tasks)
        if knows is not None:
            knows.begin(begin)
        if plan is not None:
            held = {name: frozenset(data.stores.get((name, ""), ())) for name in platform.site}
            times = [file.size / (LINK * scenario.link) for file in workload.files]
            plan.plan(first, [task.seconds for task in workload.tasks], begin, partial(_travel_time, held, times))
        simulation.submit(begin, workload, first=first)
        simulation.run()
        simulation.check_complete()
        outcomes.append(_outcome(begin, data.attempts[done:]))
    return outcomes


def _travel_time(held: Mapping[str, Container[int]], times: Sequence[Seconds], task: int, site: str) -> Seconds:
    return 0.0 if task in held[site] else times[task]


class _Knowledge:
    """What XSufferage knows of run times, by the option `info`.

    `snapshot`: the loads of processors when it looks; `forecast`: the means of their loads so far; `oracle`: all that
    is to come; `noisy`: the same with an error for each processor, drawn anew for each job. It looks when a job begins,
    or, if it decides at each event, each time.
    """

    def __init__(self, info: str, seed: str, executors: Sequence[SimulatedExecutor], loads: Mapping[int, Load]) -> None:
        self._info = info
        self._dice = Random(f"noise {seed}")
        self._speeds: dict[int, float] = {one.id: one.traits.speed for one in executors}
        self._loads = loads
        self._looked: Seconds = 0.0
        self._off = dict.fromkeys(loads, 1.0)

    def begin(self, now: Seconds) -> None:
        """A job begins."""
        self._looked = now
        if self._info == "noisy":
            self._off = {number: self._dice.lognormvariate(0.0, SIGMA) for number in self._loads}

    def expected(self, processor: int, costs: Any, begins: Any) -> Any:
        """How long tasks would run, for a plan: arrays of numpy."""
        if self._sees_all:
            return self._off[processor] * self._loads[processor].lengths(begins, costs / self._speeds[processor])
        return costs / self._seen(processor, self._looked)

    def expected_now(self, processor: int, cost: float, now: Seconds) -> Seconds:
        """How long one task would run that begins now."""
        if self._sees_all:
            return self._off[processor] * self._loads[processor].length(now, cost / self._speeds[processor])
        return cost / self._seen(processor, now)

    @property
    def _sees_all(self) -> bool:
        return self._info in {"oracle", "noisy"}

    def _seen(self, processor: int, when: Seconds) -> float:
        load = self._loads[processor]
        return self._speeds[processor] * (load.mean(when) if self._info == "forecast" else load.at(when))


def _outcome(begin: Seconds, attempts: Sequence[Attempt]) -> ExecutionOutcome:
    won = [one for one in attempts if one.outcome == "done"]
    lost = [one for one in attempts if one.outcome == "killed"]
    return ExecutionOutcome(
        max(one.ended for one in won) - min(one.began for one in won),
        sum(one.cycles for one in lost) / sum(one.cycles for one in won),
        sum(one.moved for one in lost) / JOB_BYTES,
    )


# --- the campaign ---------------------------------------------------------------------------------------------------

PLANNED: Final = Sufferage()
COMPARED: Final[tuple[Heuristic, ...]] = ("SA", "WQR", PLANNED)
# beside SA at 3 and 15 MB: how much less SA takes, in %, in the probe of our specification (section 8)
VARIANTS: Final[Mapping[Sufferage, float | None]] = {
    Sufferage("static", "snapshot", "alone"): 11.0,
    Sufferage("static", "oracle", "alone"): -7.0,
    Sufferage("static", "oracle", "serial"): 1.0,
    Sufferage("static", "snapshot", "fair-share"): None,
    Sufferage("static", "forecast", "serial"): None,
    Sufferage("static", "noisy", "serial"): None,
}
# The live policy, whose table has 24 tasks by 24 processors. Slow: a minute for the middle of the design
AT_EVENTS: Final[Mapping[Sufferage, float | None]] = {
    Sufferage("on-event", "snapshot", "alone"): 30.0,
    Sufferage("on-event", "snapshot", "fair-share"): None,
    Sufferage("on-event", "snapshot", "serial"): None,
    Sufferage("on-event", "oracle", "alone"): None,
}
MAKESPANS: Final[Mapping[Heuristic, tuple[float, float]]] = {  # all, fine grain
    "SA": (14377.0, 8054.0),
    "WQR": (42919.0, 27482.0),
    PLANNED: (14665.0, 12229.0),
}
WASTE: Final[Mapping[str, Mapping[Heuristic, tuple[float, float]]]] = {  # in %: all, fine grain
    "CPU": {"SA": (59.243, 32.837), "WQR": (1.0175, 1.0856)},
    "network": {"SA": (3.1937, 2.5612), "WQR": (130.88, 52.758)},
}
FIELDS: Final = {"CPU": "cpu_waste", "network": "network_waste"}
LATER: Final[Mapping[Heuristic, Mapping[int, float]]] = {
    "SA": {75: 20228.45, 15: 6228.56, 3: 3667.91},
    PLANNED: {75: 14449.315, 15: 10009.04, 3: 6542.88},
}

Found = Mapping[tuple[Heuristic, Scenario], Sequence[ExecutionOutcome]]
Each = Callable[
    [Callable[[tuple[Heuristic, Scenario]], list[ExecutionOutcome]], Sequence[tuple[Heuristic, Scenario]]], Any
]


def scenarios(*, quick: bool, full: bool) -> list[Scenario]:
    """All 120 cells of the design, once or 25 times; quick: two kinds of jobs in three grains."""
    if quick:
        return [Scenario(kind, grain) for kind in ("visualization", "search") for grain in GRAINS]
    return [
        Scenario(kind, grain, heterogeneity, spread, repetition)
        for repetition in range(REPETITIONS if full else 1)
        for kind in ("visualization", "search")
        for grain in GRAINS
        for heterogeneity in SPEEDS
        for spread in SPREADS
    ]


def run_case(case: tuple[Heuristic, Scenario]) -> list[ExecutionOutcome]:
    """One heuristic on one scenario."""
    return run_heuristic(*case)


def run(*, quick: bool, full: bool = False, each: Each = map) -> StudyResult:
    """The campaign; `each` runs the simulations, which do not know of each other."""
    chosen = scenarios(quick=quick, full=full)
    middle = [one for one in chosen if one.heterogeneity == 4 and one.spread == 0.5 and not one.repetition]
    variants = VARIANTS if quick else {**VARIANTS, **AT_EVENTS}
    cases: list[tuple[Heuristic, Scenario]] = [(name, one) for one in chosen for name in COMPARED]
    cases += [(name, one) for one in middle for name in variants]
    found = dict(zip(cases, each(run_case, cases), strict=True))
    rows = [*_level_rows(found), *_grain_rows(found), *_shape_rows(found), *_variant_rows(found, variants)]
    if not quick:
        rows += _heterogeneity_rows(found)
    return StudyResult(rows, [_figure(found, grain) for grain in GRAINS])


def _select(found: Found, name: Heuristic, **fields: object) -> list[Sequence[ExecutionOutcome]]:
    return [
        outcomes
        for (heuristic, one), outcomes in found.items()
        if heuristic == name and all(getattr(one, field) == value for field, value in fields.items())
    ]


def _mean(some: Sequence[Sequence[ExecutionOutcome]], field: str = "makespan", since: int = 0, until: int = 6) -> float:
    return fmean(getattr(one, field) for outcomes in some for one in outcomes[since:until])


def _fine(found: Found, name: Heuristic) -> list[Sequence[ExecutionOutcome]]:
    return [*_select(found, name, grain=3), *_select(found, name, grain=15)]


def _level_rows(found: Found) -> list[StudyRow]:
    """Means over all grains, and over the fine ones."""
    rows = []
    for name in COMPARED:
        every, fine = _select(found, name), _fine(found, name)
        called = _called(name)
        note = f"{len(every)} simulations of {EXECUTIONS} executions"
        rows.append(StudyRow(f"{called}: makespan", _mean(every), MAKESPANS[name][0], note=note))
        rows.append(StudyRow(f"{called}: makespan, 3 and 15 MB", _mean(fine), MAKESPANS[name][1]))
        for what, table in WASTE.items() if isinstance(name, str) else ():
            rows.append(StudyRow(f"{called}: {what} waste", 100 * _mean(every, FIELDS[what]), table[name][0], "%"))
            ours = 100 * _mean(fine, FIELDS[what])
            rows.append(StudyRow(f"{called}: {what} waste, 3 and 15 MB", ours, table[name][1], "%"))
    return rows


def _grain_rows(found: Found) -> list[StudyRow]:
    """By the size of tasks: what is printed of all and of fine grains implies 75 MB, if all weigh the same."""
    rows = []
    for name in COMPARED:
        called = _called(name)
        for grain in GRAINS:
            some = _select(found, name, grain=grain)
            rows.append(_implied(f"{called}: makespan, {grain} MB", _mean(some), MAKESPANS[name], grain))
        for grain, published in LATER.get(name, {}).items():
            ours = _mean(_select(found, name, grain=grain), since=1)
            note = "if the table covers these executions only, which the dissertation does not say"
            rows.append(StudyRow(f"{called}: makespan of executions 2 to 6, {grain} MB", ours, published, note=note))
        for what, table in WASTE.items() if isinstance(name, str) else ():
            for grain in GRAINS:
                ours = 100 * _mean(_select(found, name, grain=grain), FIELDS[what])
                rows.append(_implied(f"{called}: {what} waste, {grain} MB", ours, table[name], grain, "%"))
    return rows


def _implied(subject: str, ours: float, printed: tuple[float, float], grain: int, unit: str = "s") -> StudyRow:
    every, fine = printed
    return StudyRow(subject, ours, 3 * every - 2 * fine if grain == 75 else None, unit, of=Reference.FOLLOWS)


def _shape_rows(found: Found) -> list[StudyRow]:
    """The relations that can be compared although loads differ."""
    times = _mean(_select(found, "WQR")) / _mean(_select(found, "SA"))
    rows = [StudyRow("WQR's makespan for SA's", times, 42919 / 14377, "times", of=Reference.FOLLOWS)]
    for name in COMPARED:
        some = _select(found, name)
        subject = f"{_called(name)}: execution 2 for execution 1"
        note = "flat" if name == "WQR" else "a sharp drop; the figures are lost"
        rows.append(StudyRow(subject, _mean(some, since=1, until=2) / _mean(some, until=1), unit="times", note=note))
    gain = 1 - _mean(_fine(found, "SA")) / _mean(_fine(found, PLANNED))
    note = "of table 4.6; the text says 42 and 32 %"
    rows.append(StudyRow("SA's gain over XSufferage, 3 and 15 MB", 100 * gain, 34.1, "%", note, Reference.FOLLOWS))
    for grain in GRAINS:
        for since, what in ((0, ""), (1, ", executions 2 to 6")):
            own, other = (_mean(_select(found, one, grain=grain), since=since) for one in ("SA", PLANNED))
            printed = 1 - LATER["SA"][grain] / LATER[PLANNED][grain] if since else None
            rows.append(
                StudyRow(f"SA's gain over XSufferage, {grain} MB{what}", 100 * (1 - own / other),
                         None if printed is None else 100 * printed, "%", of=Reference.FOLLOWS)
            )  # fmt: skip
    for name in ("SA", "WQR"):
        for kind in ("visualization", "search"):
            waste = 100 * _mean(_select(found, name, kind=kind), "cpu_waste")
            note = f"published: more in {'search' if name == 'SA' else 'visualization'}"
            rows.append(StudyRow(f"{name}: CPU waste, {kind}", waste, unit="%", note=note))
    return rows


def _variant_rows(found: Found, variants: Mapping[Sufferage, float | None]) -> list[StudyRow]:
    """What XSufferage knows decides about the gap."""
    middle = {"heterogeneity": 4, "spread": 0.5, "repetition": 0}
    rows = []
    for name, modelled in {PLANNED: 33.0, **variants}.items():
        fine, own = (
            _mean([run for grain in (3, 15) for run in _select(found, one, grain=grain, **middle)])
            for one in (name, "SA")
        )
        coarse = _mean(_select(found, name, grain=75, **middle))
        note = f"{fine:.0f} s; at 75 MB {coarse:.0f} s"
        if name.plan == "on-event":
            note += "; the live policy, which compares 24 tasks with 24 processors at a time"
        subject = f"SA's gain over {name}, 3 and 15 MB"
        rows.append(StudyRow(subject, 100 * (1 - own / fine), modelled, "%", note, Reference.MODEL))
    return rows


def _heterogeneity_rows(found: Found) -> list[StudyRow]:
    """How much the grid, and the spread of sizes, matter; the published figures are lost."""
    rows = []
    for name in COMPARED:
        for field, what, levels in (("heterogeneity", "grid", SPEEDS), ("spread", "spread of sizes", SPREADS)):
            means = {level: _mean(_select(found, name, **{field: level})) for level in levels}
            note = ", ".join(f"{level:g}: {seconds:.0f} s" for level, seconds in means.items())
            ratio = max(means.values()) / min(means.values())
            rows.append(StudyRow(f"{_called(name)}: slowest {what} for fastest", ratio, unit="times", note=note))
    for name in ("SA", "WQR"):
        for level in SPEEDS:
            some = _select(found, name, heterogeneity=level)
            for what, field in FIELDS.items():
                subject = f"{name}: {what} waste, grid of {level} times"
                rows.append(StudyRow(subject, 100 * _mean(some, field), unit="%"))
    return rows


def _called(name: Heuristic) -> str:
    return name if isinstance(name, str) else "XSufferage"


def _figure(found: Found, grain: int) -> StudyFigure:
    curves = []
    for name in COMPARED:
        some = _select(found, name, grain=grain)
        points = [(float(at + 1), _mean(some, since=at, until=at + 1)) for at in range(EXECUTIONS)]
        curves.append(Curve(_called(name), points))
    return StudyFigure(
        f"executions-{grain}", f"Makespan of six executions, tasks of {grain} MB", "execution", "s", curves
    )
