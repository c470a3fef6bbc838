"""Falkon's studies of data diffusion: many short tasks over a shared file system, with and without caches on the nodes.

MI: arrivals that grow by 30 % a minute; tasks read one of 10,000 files of 10 MB and compute for 10 ms; 64 nodes of two
processors, caches of 1 to 4 GB. SW: arrivals like a growing sine, 100 nodes, also with nodes that come and go.
All-pairs: every pair of two lists of items of 12 MB. Stacking: images that several objects lie on (locality L).

A study of 64 nodes may be made smaller: the same arrivals, files, nodes and bandwidth of the shared file system, each
divided by `scale`; caches of a node stay as they are, so that what matters (how much of the data fits into all caches,
what one node can read, what the file system gives to each node) is the same. Of all pairs the tasks, nodes and the file
system are divided by `scale`; the data set, and with it the caches, by its root.
Constants of nodes are those that follow from the thesis (`spec/falkon.md` 5.4): a network of 1 Gbit/s, and 1.3 Gbit/s
from local caches, since 81 Gbit/s were measured on 64 nodes.
Policies decide by Falkon's rules: they look at the first 2,500 tasks of the queue (divided by `scale`, too), an
executor picks a task up when a processor is free, and no task goes anywhere because it has waited for long. Nodes of MI
come one after the other. Beside that, `rules="ours"`: the policies as they are without options.
Source: I. Raicu, 6.5 and 7.7; `spec/falkon.md` 4.8 to 4.10, 4.12, 5.6 to 5.8, 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log2, sqrt
from random import Random
from typing import Any, Final, Literal, NamedTuple

import msgspec

from bough.core.machine import Machine
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import SiteSpec
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.policy.interface import PilotSite, Policies
from bough.policy.shortage import Provisioner
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.platforms.link_specs import LinkSpec, TransferRules
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, SimulatedExecutor
from bough.sim.platforms.simulated_site import SimulatedSite, after
from bough.sim.simulation import Simulation
from bough.sim.studies.study_rows import Curve, Reference, StudyFigure, StudyResult, StudyRow
from bough.sim.study_workloads import STACKS, all_pairs, mi, stacking, sw
from bough.sim.workload import Workload

GB: Final = 1_000_000_000
GBIT: Final = 125_000_000.0  # bytes a second
NIC: Final = 1.0 * GBIT
LOCAL: Final = 1.3 * GBIT
SITE: Final = "cluster"
WINDOW: Final = 2500  # tasks
LATENCY: Final = 40.0  # seconds from a request to its node
GAP: Final = 20.0  # between nodes of MI: so that GCC with 4 GB uses the 17 CPU hours that are printed
FA: Final = "first-available"
GCC: Final = "good-cache-compute:threshold=0.9"
MCH: Final = "max-cache-hit"
MCU: Final = "max-compute-util"


class DiffusionRun(msgspec.Struct, frozen=True):
    """One configuration."""

    study: str
    policy: str
    nodes: int
    cache: float  # bytes of each node
    shared: float  # bytes a second of the shared file system
    scale: int = 1
    idle: Seconds = 0.0  # nodes come when they are wanted and leave after so long; 0: they are there
    gap: Seconds = 0.0  # they come one after the other, so far apart if all were there; 0: as many as are wanted
    rules: Literal["falkon", "ours"] = "falkon"
    chains: bool = False  # nodes send on what they are still getting
    locality: float = 0.0  # of stacking
    seconds: Seconds = 0.01  # that a task computes
    cores: int = 2  # of a node
    side: int = 500  # items of each list of all pairs
    uneven: bool = False  # tasks compute for as long in the mean, each for a time of its own, up to twice as long


class OneAfterTheOther:
    """A node is asked for when tasks wait and the one before has come."""

    def requests(self, pilots: int, site: PilotSite, /) -> Iterator[int]:
        """One, or none."""
        if not site.starting:
            yield 1


def policies_of(run: DiffusionRun) -> Policies:
    """Its policies, with Falkon's rules or as they are; a window is as much smaller as all else."""
    text = run.policy
    if run.rules == "falkon" and text != FA:
        text += f"{',' if ':' in text else ':'}window={WINDOW // run.scale},backlog=no,patience=0"
    policies = load_policies(text, "all-at-once")
    return msgspec.structs.replace(policies, provisioning=Provisioner(OneAfterTheOther())) if run.gap else policies


class DiffusionOutcome(msgspec.Struct, frozen=True):
    """How it went."""

    completion: Seconds
    ideal: Seconds
    hit: float  # parts of all bytes that were read: at the node, from other nodes, from the shared file system
    peer: float
    miss: float
    read: float  # bytes
    node_hours: float
    response: Seconds  # the mean from arrival to end
    longest_queue: int

    @property
    def efficiency(self) -> float:
        """The ideal time for ours."""
        return self.ideal / self.completion


def workload_of(run: DiffusionRun) -> Workload:
    """The tasks and their files, made as much smaller as the run says."""
    match run.study:
        case "MI":
            return mi(1, run.scale, run.seconds)
        case "SW":
            return sw(1, run.scale, run.seconds)
        case "AP":
            return all_pairs(round(run.side / sqrt(run.scale)), run.seconds)
        case _:
            objects, images = STACKS[run.locality]
            return stacking(objects // run.scale, images // run.scale, run.seconds, str(run.locality))


def ideal_time(run: DiffusionRun, workload: Workload) -> Seconds:
    """Until the last second of arrivals is over, or what all processors need to compute."""
    if workload.arrives:
        return workload.tasks[-1].arrival + 1.0
    return len(workload.tasks) * run.seconds / (run.nodes * run.cores)


def run_diffusion(run: DiffusionRun) -> DiffusionOutcome:
    """Run one configuration."""
    workload = workload_of(run)
    uses_caches = run.policy != FA
    site = SitePlatform(
        hosts=run.nodes, cores=run.cores, cache=run.cache if uses_caches else 0.0, eviction="lru",
        disk_read=LOCAL, nic=LinkSpec(NIC),
    )  # fmt: skip
    platform = Platform({SITE: site}, LinkSpec(run.shared), TransferRules(peers="all", chains=run.chains))
    data = SimulatedData(workload, platform)
    capacity = Needs(cores=float(run.cores))
    fixed, sites = [], []
    if run.idle:
        spec = SiteSpec(kind="sim", max_pilots=run.nodes, cores_per_pilot=float(run.cores), idle=run.idle)
        sites = [SimulatedSite(SITE, spec, after(run.gap * run.scale or LATENCY))]
    else:
        fixed = [SimulatedExecutor(n, capacity, host=f"n{n}", site=SITE) for n in range(1, run.nodes + 1)]

    dice = Random("computing")
    lengths = [run.seconds * (2 * dice.random() if run.uneven else 1) for _ in workload.tasks]

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(lengths[spec.id - 1])

    simulation = Simulation(Machine(policies_of(run)), model, fixed, sites, data=data)
    simulation.submit(0.0, workload)
    simulation.run(until=workload.tasks[-1].arrival)
    while not simulation.machine.is_idle:
        simulation.step()
    end = max(one.ended for one in data.attempts)
    measured = data.measured()
    asked = measured.total("asked") or 1.0
    arrived = [task.arrival for task in workload.tasks]
    response = sum(one.ended - arrived[one.task] for one in data.attempts) / len(data.attempts)
    hours = sites[0].allocated(end) / run.cores / 3600 if sites else run.nodes * end / 3600
    return DiffusionOutcome(
        end, ideal_time(run, workload),
        (measured.total("hit") + measured.total("joined")) / asked, measured.total("peer") / asked,
        measured.total("origin") / asked, asked, hours, response,
        _longest_queue(arrived, [one.began for one in data.attempts]),
    )  # fmt: skip


def _longest_queue(arrived: Sequence[Seconds], began: Sequence[Seconds]) -> int:
    waiting = longest = 0
    for _, change in sorted([*((when, 1) for when in arrived), *((when, -1) for when in began)]):
        waiting += change
        longest = max(longest, waiting)
    return longest


# --- the figures ----------------------------------------------------------------------------------------------------

MI_PUBLISHED: Final = {  # policy and cache in GB: completion, efficiency in %, local hits in %
    (FA, 4.0): (5011.0, 28.0, None),
    (GCC, 1.0): (3762.0, 38.0, 31.0),
    (GCC, 1.5): (1596.0, 89.0, 78.0),
    (GCC, 2.0): (1436.0, 98.5, None),
    (GCC, 4.0): (1427.0, 99.2, 88.0),
    (MCH, 4.0): (2888.0, 49.0, 95.0),
    (MCU, 4.0): (2037.0, 69.0, None),
}
SW_PUBLISHED: Final = {  # policy and idle time: completion, efficiency in %, CPU hours
    (FA, 0.0): (20491.0, 32.0, 1138.0),
    (GCC, 0.0): (6505.0, 100.0, 361.0),
    (GCC, 30.0): (6697.0, 97.0, 253.0),
}


class PairsCase(NamedTuple):
    """All pairs as published: the machine, efficiencies in %, and gigabytes read at nodes, between them and shared.

    Two of the machines were emulated there; their caches hold a part of the data set only.
    """

    called: str
    side: int
    seconds: Seconds
    nodes: int
    cores: int
    cache: float  # GB
    shared: float  # Gbit/s
    scale: int  # without --full
    diffusion: float
    moved: tuple[float, float, float]
    throughput: float | None = None  # Gbit/s that all tasks read
    active: float | None = None  # active storage at its best, which was computed
    pushed: float = 1536.0  # between nodes, by active storage
    plain: float | None = None  # the shared file system alone

    @property
    def data_set(self) -> float:
        """Bytes."""
        return 2 * self.side * 12e6

    def run(self, policy: str, *, full: bool) -> DiffusionRun:
        """A part of it has as many tasks for a node, and caches as large beside the data set."""
        scale = 1 if full else self.scale
        cache = self.cache * GB / sqrt(scale)
        return DiffusionRun("AP", policy, self.nodes // scale, cache, self.shared * GBIT / scale, scale,
                            seconds=self.seconds, cores=self.cores, side=self.side)  # fmt: skip


PAIRS: Final = (
    PairsCase("500 x 500, 1 s", 500, 1.0, 100, 2, 50.0, 8.0, 4, 80.0, (6000.0, 1698.0, 34.0), None, 96.0, plain=26.0),
    PairsCase("500 x 500, 0.1 s", 500, 0.1, 100, 2, 50.0, 8.0, 4, 75.0, (6000.0, 1528.0, 62.0), 55.0),
    PairsCase("1000 x 1000, 4 s, 1024 nodes", 1000, 4.0, 1024, 4, 2.0, 64.0, 16, 86.0, (24_000.0, 4676.0, 384.0),
              180.0, 35.0, 12_288.0),
    PairsCase("1000 x 1000, 4 s, 972 nodes", 1000, 4.0, 972, 6, 3.6, 4.0, 16, 27.0, (24_000.0, 3867.0, 906.0),
              90.0, 27.0, 12_288.0),
)  # fmt: skip
STACK_BYTES: Final = {1.0: (2.0, 0.0), 30.0: (0.066, 0.421)}  # MB a stack, by locality: shared, between nodes
Each = Callable[[Callable[[DiffusionRun], DiffusionOutcome], Sequence[DiffusionRun]], Any]


def cases(*, quick: bool, full: bool) -> list[DiffusionRun]:
    """What is run; quick: a part of MI and stacking, made small."""
    small = 1 if full else 8 if quick else 4
    made = [
        DiffusionRun("MI", policy, 64 // small, cache * GB, 4.4 * GBIT / small, small, idle=60.0, gap=GAP)
        for policy, cache in MI_PUBLISHED
        if not quick or cache == 4
    ]
    if not quick:  # what each of the assumptions does
        seen = [one for one in made if (one.policy, one.cache) in {(GCC, 1.0 * GB), (GCC, 1.5 * GB)}]
        made += [msgspec.structs.replace(one, gap=0.0) for one in seen]
        seen += [one for one in made if one.policy in {MCH, MCU}]
        made += [msgspec.structs.replace(one, rules="ours") for one in seen]
    thin = 1 if full else 8 if quick else 4
    for locality in STACKS if not quick else (1.0, 5.0, 30.0):
        made += [
            DiffusionRun(
                "stacking", policy, 64 // thin, 50.0 * GB, 3.4 * GBIT / thin, thin, locality=locality, seconds=0.05
            )
            for policy in (MCU, FA)
        ]
    if quick:
        return made
    many = 1 if full else 10
    made += [
        DiffusionRun("SW", policy, 100 // many, 50.0 * GB, 8.0 * GBIT / many, many, idle)
        for policy, idle in SW_PUBLISHED
    ]
    made += [case.run(policy, full=full) for case in PAIRS for policy in (FA, GCC)]
    made.append(msgspec.structs.replace(PAIRS[0].run(GCC, full=full), rules="ours", chains=True))
    short = PAIRS[1].run(GCC, full=full)  # whether it matters that tasks of a row begin together
    made += [msgspec.structs.replace(short, chains=True), msgspec.structs.replace(short, uneven=True)]
    return made


def run(*, quick: bool, full: bool = False, each: Each = map) -> StudyResult:
    """All of them; `each` runs those that do not know of each other."""
    chosen = cases(quick=quick, full=full)
    found = dict(zip(chosen, each(run_diffusion, chosen), strict=True))
    rows: list[StudyRow] = []
    for one, outcome in found.items():
        rows += _ROWS[one.study](one, outcome)
    if not quick:
        rows += _active_rows()
    rows += _order_rows(found)
    return StudyResult(rows, _figures(found))


def _called(run: DiffusionRun) -> str:
    name = {FA: "FA", GCC: "GCC", MCH: "MCH", MCU: "MCU"}[run.policy]
    small = f", 1/{run.scale}" if run.scale > 1 else ""
    ours = ", ours without the window" if run.rules == "ours" else ""
    chains = " and with chains" if run.chains else ""
    uneven = ", tasks of uneven length" if run.uneven else ""
    at_once = ", nodes at once" if run.study == "MI" and not run.gap else ""
    return f"{run.study}{small}, {name}{ours}{chains}{uneven}{at_once}"


def _bytes_note(outcome: DiffusionOutcome) -> str:
    return f"local {100 * outcome.hit:.0f}, peers {100 * outcome.peer:.0f}, shared {100 * outcome.miss:.0f} % of bytes"


def _mi_rows(run: DiffusionRun, outcome: DiffusionOutcome) -> list[StudyRow]:
    completion, efficiency, hits = MI_PUBLISHED[run.policy, run.cache / GB]
    called = f"{_called(run)}, caches of {run.cache / GB:g} GB"
    hours = outcome.node_hours * run.cores * run.scale
    note = f"{_bytes_note(outcome)}; mean response {outcome.response:.1f} s; longest queue {outcome.longest_queue}"
    note += f"; {hours:.0f} CPU hours"
    rows = [
        StudyRow(f"{called}: completion", outcome.completion, completion, note=note),
        StudyRow(f"{called}: efficiency", 100 * outcome.efficiency, efficiency, "%"),
    ]
    if hits is not None:
        rows.append(StudyRow(f"{called}: local hits", 100 * outcome.hit, hits, "%"))
    return rows


def _sw_rows(run: DiffusionRun, outcome: DiffusionOutcome) -> list[StudyRow]:
    completion, efficiency, hours = SW_PUBLISHED[run.policy, run.idle]
    called = f"{_called(run)}, {'nodes that come and go' if run.idle else 'nodes held'}"
    ours = outcome.node_hours * run.cores * run.scale
    return [
        StudyRow(f"{called}: completion", outcome.completion, completion, note=_bytes_note(outcome)),
        StudyRow(f"{called}: efficiency", 100 * outcome.efficiency, efficiency, "%"),
        StudyRow(f"{called}: CPU hours", ours, hours, "h", f"times {run.scale}" if run.scale > 1 else ""),
    ]


def _ap_rows(run: DiffusionRun, outcome: DiffusionOutcome) -> list[StudyRow]:
    case = next(one for one in PAIRS if (one.side, one.seconds, one.cores) == (run.side, run.seconds, run.cores))
    called = _called(run).replace("AP", f"AP {case.called}", 1)
    efficiency, gigabytes = 100 * outcome.efficiency, outcome.read / GB
    if run.policy == FA:
        note = f"{_bytes_note(outcome)}; what tasks of a node read at the same time is read once"
        shared = case.moved[0] / run.scale
        return [
            StudyRow(f"{called}: efficiency", efficiency, case.plain, "%"),
            StudyRow(f"{called}: read from the shared file system", outcome.miss * gigabytes, shared, "GB", note,
                     Reference.FOLLOWS),
        ]  # fmt: skip
    rows = [StudyRow(f"{called}: efficiency", efficiency, case.diffusion, "%", _bytes_note(outcome))]
    if case.throughput is not None:
        speed = run.scale * 8 * gigabytes / outcome.completion
        note = f"times {run.scale}" if run.scale > 1 else ""
        rows.append(StudyRow(f"{called}: read by all tasks, in the mean", speed, case.throughput, "Gbit/s", note))
    of = Reference.SCALED if run.scale > 1 else Reference.PUBLISHED
    found = (
        ("read at the nodes", gigabytes, 1.0, "tasks"),
        ("moved between nodes", outcome.peer * gigabytes, 1.5, "nodes and data set"),
        ("read from the shared file system", outcome.miss * gigabytes, 0.5, "data set"),
    )
    for (what, ours, power, by), whole in zip(found, case.moved, strict=True):
        note = f"{whole:g} GB published, divided by {run.scale**power:g} as {by}" if run.scale > 1 else ""
        rows.append(StudyRow(f"{called}: {what}", ours, whole / run.scale**power, "GB", note, of))
    return rows


def _active_rows() -> list[StudyRow]:
    """Active storage pushes the whole data set to every node along a tree, before the first task: arithmetic only."""
    rows = []
    for case in PAIRS:
        called = f"AP {case.called}, active storage"
        if case.active is not None:
            ideal = case.side**2 * case.seconds / (case.nodes * case.cores)
            once, shared = case.data_set / NIC, case.data_set / (case.shared * GBIT)
            for how, pushed in (("all levels at once", once), ("level by level", once * log2(case.nodes))):
                best = 100 * ideal / (ideal + shared + pushed)
                rows.append(StudyRow(f"{called}, {how}: efficiency", best, case.active, "%", "computed, here as there"))
        note = "the source does not say how it counts; ours: nodes times data set"
        moved = case.nodes * case.data_set / GB
        rows.append(StudyRow(f"{called}: moved between nodes", moved, case.pushed, "GB", note))
        rows.append(
            StudyRow(f"{called}: read from the shared file system", case.data_set / GB, case.data_set / GB, "GB")
        )
    return rows


def _stacking_rows(run: DiffusionRun, outcome: DiffusionOutcome) -> list[StudyRow]:
    called = f"{_called(run)}, L={run.locality:g}"
    rows = [StudyRow(f"{called}: completion", outcome.completion, note=_bytes_note(outcome))]
    if run.policy != FA:
        ideal = 100 * (1 - 1 / run.locality)
        hits = 100 * (outcome.hit + outcome.peer)
        note = "published: within 90 % of it"
        rows.append(
            StudyRow(f"{called}: hits, beside the 1 - 1/L of the ideal", hits, ideal, "%", note, Reference.IDEAL)
        )
        shared, peers = STACK_BYTES.get(run.locality, (None, None))
        rows.append(StudyRow(f"{called}: read from the shared file system, a stack", 2 * outcome.miss, shared, "MB"))
        rows.append(StudyRow(f"{called}: moved between nodes, a stack", 2 * outcome.peer, peers, "MB"))
    return rows


_ROWS: Final = {"MI": _mi_rows, "SW": _sw_rows, "AP": _ap_rows, "stacking": _stacking_rows}


def _order_rows(found: dict[DiffusionRun, DiffusionOutcome]) -> list[StudyRow]:
    """What the thesis says of the three policies with caches of 4 GB."""
    mi = {
        run.policy: outcome
        for run, outcome in found.items()
        if run.study == "MI" and run.cache == 4 * GB and run.rules == "falkon"
    }
    gcc, mch, mcu = (mi[name] for name in (GCC, MCH, MCU))
    order = [
        ("GCC before MCU before MCH in time", gcc.completion <= mcu.completion <= mch.completion),
        ("MCH has the most local hits", mch.hit >= max(gcc.hit, mcu.hit)),
        ("MCU moves the most bytes between nodes", mcu.peer >= max(gcc.peer, mch.peer)),
    ]
    return [
        StudyRow(f"MI, 4 GB: {what}", float(holds), 1.0, "", "1: it holds", Reference.RELATION) for what, holds in order
    ]


def _figures(found: dict[DiffusionRun, DiffusionOutcome]) -> list[StudyFigure]:
    caches, whole = (
        sorted(
            (run.cache / GB, 100 * one.efficiency)
            for run, one in found.items()
            if run.study == "MI" and run.policy == GCC and run.gap and run.rules == rules
        )
        for rules in ("falkon", "ours")
    )
    printed = [(cache, value[1]) for (policy, cache), value in MI_PUBLISHED.items() if policy == GCC]
    stacks = sorted(
        (run.locality, 100 * (one.hit + one.peer))
        for run, one in found.items()
        if run.study == "stacking" and run.policy != FA
    )
    ideal = [(locality, 100 * (1 - 1 / locality)) for locality, _ in stacks]
    return [
        StudyFigure("mi", "MI: efficiency by the size of a node's cache", "GB", "%",
                    [Curve("GCC", caches), Curve("GCC, ours without the window", whole),
                     Curve("GCC", printed, of=Reference.PUBLISHED)]),
        StudyFigure("stacking", "Stacking: hits by locality", "locality", "%",
                    [Curve("MCU", stacks), Curve("1 - 1/L", ideal, of=Reference.IDEAL)], log_x=True),
    ]  # fmt: skip
