"""Lamb's simulations of Data-Conscious scheduling: pipelines of BLAST and parsing over 2 to 32 placeholders.

1,000 proteins, two stages with a barrier between them, bundles of 16 proteins. BLAST reads small files from outside,
parsing reads what BLAST made: files of 5 to 85 kB, in two experiments 10 and 100 times as large. Files are copied over
a LAN or a WAN with a start-up for each; the server serves one call at a time. A figure is the mean of ten seeds.

What the thesis leaves open is read as `spec/trellis-driver.md` 4.7 says, which fitted it to the published figures:
rates for each tick of 0.01 s, a start-up for every file of a bundle, run times that are convex in the size of a
protein, and neighbours that resemble each other. So agreement of makespans in general is no evidence for these; the
orderings, and how figures change with the policy, are what our scheduler adds.
Source: M. Lamb, `spec/trellis-driver.md` 3.3 to 3.5, 4.5 to 4.7, 5.4, 5.5, 5.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from bough.model.ids import Seconds
from bough.sim.studies.placeholders import Job, JobFile, Network, PlaceholderOutcome, run_placeholders
from bough.sim.studies.study_rows import Curve, Reference, StudyFigure, StudyResult, StudyRow

SEEDS: Final = 10
PROTEINS: Final = 1000
BUNDLE: Final = 16
HOSTS: Final = (2, 4, 8, 16, 32)
SERVICE: Seconds = 0.35  # of a call, that the server takes for itself
NETWORKS: Final = {"WAN": (1.30, 1.20, 500e3), "LAN": (0.66, 0.58, 2e6)}  # call, start-up of a file, bytes/s
POLICIES: Final = ("FCFS", "SJF", "DC")
_SHARED: Final = 0.7  # how much the proteins of a bundle resemble each other
_CONVEX: Final = 1.35

MAKESPANS: Final = {  # published: network, how many times the size, hosts, service -> FCFS, SJF, DC
    ("WAN", 1, 2, SERVICE): (3780.0, 3710.0, 3390.0),
    ("WAN", 1, 8, SERVICE): (1040.0, 1050.0, 900.0),
    ("WAN", 1, 32, SERVICE): (334.0, None, 311.0),
    ("WAN", 10, 8, SERVICE): (1120.0, 1140.0, 907.0),
    ("WAN", 100, 2, SERVICE): (6330.0, None, None),
    ("WAN", 100, 16, SERVICE): (1070.0, 1090.0, 505.0),
    ("LAN", 1, 2, SERVICE): (3180.0, 3150.0, 3000.0),
    ("LAN", 1, 32, SERVICE): (288.0, 274.0, 291.0),
    ("LAN", 1, 32, 0.25): (283.0, None, 276.0),
    ("LAN", 1, 32, 0.15): (279.0, None, 267.0),
    ("LAN", 100, 2, SERVICE): (3730.0, None, None),
    ("LAN", 100, 8, SERVICE): (1070.0, None, 802.0),
}
RESPONSES: Final = {  # published mean response times
    ("WAN", 100, 32, SERVICE): (None, 162.0, 87.5),
    ("LAN", 100, 16, SERVICE): (None, 142.0, 118.0),
}


class Cell(NamedTuple):
    """One point of the grid; `options` are those of the Data-Conscious policy, beside the thesis' own."""

    policy: str
    network: str = "WAN"
    times: int = 1
    hosts: int = 8
    service: Seconds = SERVICE
    options: str = ""
    startup_per_pair: bool = False
    barrier: bool = True  # parsing begins when all of BLAST has ended; otherwise each bundle when its own has
    estimates: float = 0.0  # by how much expected run times are off, as the sigma of a lognormal factor


class CellMeans(NamedTuple):
    """Means over the seeds."""

    makespan: Seconds
    affinity: float
    response: Seconds


def run_cell(cell: Cell, seeds: int = SEEDS) -> CellMeans:
    """A point of the grid."""
    ran = [_run(cell, seed) for seed in range(1, seeds + 1)]
    return CellMeans(
        fmean(one.makespan for one in ran), fmean(one.affinity for one in ran), fmean(one.response for one in ran)
    )


def run_chains(network: str, hosts: int, chains: int, seeds: int = SEEDS) -> Seconds:
    """The baseline that the thesis lacks: bundles of whole pipelines, first come first served; the mean makespan."""
    ends = []
    for seed in range(1, seeds + 1):
        jobs = []
        proteins = _proteins(seed, 1)
        for at in range(0, PROTEINS, chains):
            some = proteins[at : at + chains]
            seconds = sum(one.blast + one.parse for one in some)
            jobs.append(Job(f"chain{at}", seconds, [one.sequence for one in some], tasks=len(some)))
        ends.append(run_placeholders("fifo", _network(Cell("FCFS", network)), hosts, [jobs]).makespan)
    return fmean(ends)


class _Protein(NamedTuple):
    sequence: JobFile
    homologues: JobFile
    blast: Seconds
    parse: Seconds


@cache
def _proteins(seed: int, times: int) -> Sequence[_Protein]:
    dice = Random(seed)
    made = []
    shared = 0.0
    for number in range(PROTEINS):
        if number % BUNDLE == 0:
            shared = dice.random()
        size = _SHARED * shared + (1 - _SHARED) * dice.random()
        work = size**_CONVEX
        made.append(
            _Protein(
                JobFile(f"sequence{number}", round(250 + 600 * size)),
                JobFile(f"homologues{number}", round((5e3 + 8e4 * work) * times)),
                2.0 + 6.0 * work,
                0.5 + 0.2 * size,
            )
        )
    return made


def _phases(cell: Cell, seed: int) -> list[list[Job]]:
    proteins = _proteins(seed, cell.times)
    bundles = [proteins[at : at + BUNDLE] for at in range(0, PROTEINS, BUNDLE)]
    dice = Random(f"estimates {seed}")

    def job(kind: str, number: int, seconds: Seconds, reads: list[JobFile], makes: list[JobFile]) -> Job:
        off = dice.lognormvariate(0.0, cell.estimates) if cell.estimates else 1.0
        return Job(f"{kind}{number}", seconds, reads, makes, len(reads), expected=seconds * off)

    blast, parse = [], []
    for number, some in enumerate(bundles):
        sequences, homologues = [one.sequence for one in some], [one.homologues for one in some]
        blast.append(job("blast", number, sum(one.blast for one in some), sequences, homologues))
        parse.append(job("parse", number, sum(one.parse for one in some), homologues, []))
    if cell.barrier:
        return [blast, parse]
    own = [msgspec.structs.replace(job, after=(place,)) for place, job in enumerate(parse)]
    return [[*blast, *own]]


def _network(cell: Cell) -> Network:
    call, startup, rate = NETWORKS[cell.network]
    return Network(call, cell.service, startup, rate, cell.startup_per_pair)


def _run(cell: Cell, seed: int) -> PlaceholderOutcome:
    network = _network(cell)
    startup = network.startup / BUNDLE if cell.startup_per_pair else network.startup
    own = f",{cell.options}" if cell.options else ""
    conscious = f"data-conscious:hold=0,latency={network.call},startup={startup},rate={network.rate}{own}"
    policy = {"FCFS": "fifo", "SJF": "sjf:ageing=0", "DC": conscious}[cell.policy]
    return run_placeholders(policy, network, cell.hosts, _phases(cell, seed))


def run(*, quick: bool) -> StudyResult:
    """The published points; then all of the grid, the baseline of whole pipelines, and what each choice is worth."""
    seeds = 2 if quick else SEEDS
    rows = [*_two_hosts_rows(), *_published_rows(seeds)]
    figures = []
    if not quick:
        grid = {
            (network, times, policy): [run_cell(Cell(policy, network, times, hosts)) for hosts in HOSTS]
            for network in NETWORKS
            for times in (1, 10, 100)
            for policy in POLICIES
        }
        rows += _ordering_rows(grid)
        figures = [_grid_figure(network, times, grid) for network in NETWORKS for times in (1, 10, 100)]
        rows += _chain_rows()
        rows += _ablation_rows()
        locality, figure = _locality()
        rows += locality
        figures.append(figure)
    return StudyResult(rows, figures)


def run_two_hosts(policy: str) -> Seconds:
    """The worked example: three proteins on two hosts that give a second to others after each turn of ours."""
    blast, parse, sizes = (3.8, 3.3, 3.0), (0.5, 0.6, 0.7), (1_100_000, 1_100_000, 1_000_000)
    jobs = []
    for number in range(3):
        made = [JobFile(f"homologues{number}", sizes[number])]
        jobs.append(Job(f"blast{number}", blast[number], makes=made))
        jobs.append(Job(f"parse{number}", parse[number], made, after=(2 * number,)))
    return run_placeholders(policy, Network(0.0, 0.0, rate=1e6, others=1.0), 2, [jobs]).makespan


def _two_hosts_rows() -> list[StudyRow]:
    return [
        StudyRow("two hosts, three proteins, FCFS: makespan", run_two_hosts("fifo"), 12.2),
        StudyRow("two hosts, three proteins, DC: makespan", run_two_hosts("data-conscious:rate=1e6"), 10.6),
    ]


def _published_rows(seeds: int) -> list[StudyRow]:
    rows = []
    for what, table in (("makespan", MAKESPANS), ("mean response", RESPONSES)):
        for (network, times, hosts, service), published in table.items():
            for policy, figure in zip(POLICIES, published, strict=True):
                if figure is not None:
                    found = run_cell(Cell(policy, network, times, hosts, service), seeds)
                    ours = found.makespan if what == "makespan" else found.response
                    delay = f", delay {service:g} s" if service != SERVICE else ""
                    note = f"affinity {found.affinity:.3f}"
                    rows.append(
                        StudyRow(f"{network} x{times}, P={hosts}{delay}, {policy}: {what}", ours, figure, note=note)
                    )
    return rows


Grid = dict[tuple[str, int, str], list[CellMeans]]


def _ordering_rows(grid: Grid) -> list[StudyRow]:
    """In how many points of the grid each published ordering holds; the reference is all of them."""

    def count(subject: str, holds: Sequence[bool], note: str = "") -> StudyRow:
        return StudyRow(
            f"ordering: {subject}", float(sum(holds)), float(len(holds)), "points", note, Reference.RELATION
        )

    wan = [(size, at) for size in (1, 10, 100) for at in range(len(HOSTS))]
    cells = [(network, size, at) for network in NETWORKS for size, at in wan]
    last = len(HOSTS) - 1
    rows = [
        count(
            "WAN: DC before FCFS and SJF in makespan",
            [
                grid["WAN", size, "DC"][at].makespan
                < min(grid["WAN", size, "FCFS"][at].makespan, grid["WAN", size, "SJF"][at].makespan)
                for size, at in wan
            ],
        ),
        count(
            "DC's gain over FCFS grows with the size of files",
            [
                _gain(grid, network, 1, at) < _gain(grid, network, 10, at) < _gain(grid, network, 100, at)
                for network in NETWORKS
                for at in range(len(HOSTS))
            ],
        ),
        count(
            "LAN x1, P=32: SJF before FCFS before DC",
            [
                grid["LAN", 1, "SJF"][last].makespan
                < grid["LAN", 1, "FCFS"][last].makespan
                < grid["LAN", 1, "DC"][last].makespan
            ],
            "DC's loss",
        ),
        count("DC's affinity is 0.5", [grid[n, size, "DC"][at].affinity > 0.4995 for n, size, at in cells]),
        count(
            "FCFS has the worst mean response",
            [
                grid[n, s, "FCFS"][at].response > max(grid[n, s, p][at].response for p in ("SJF", "DC"))
                for n, s, at in cells
            ],
        ),
        count(
            "LAN x1: SJF responds before DC",
            [grid["LAN", 1, "SJF"][at].response < grid["LAN", 1, "DC"][at].response for at in range(len(HOSTS))],
        ),
        count(
            "x100: DC responds before SJF",
            [
                grid[n, 100, "DC"][at].response < grid[n, 100, "SJF"][at].response
                for n in NETWORKS
                for at in range(len(HOSTS))
            ],
        ),
    ]
    fast = {policy: run_cell(Cell(policy, "LAN", 1, 32, 0.15)).makespan for policy in ("FCFS", "DC")}
    rows.append(count("LAN x1, P=32, delay 0.15 s: DC before FCFS", [fast["DC"] < fast["FCFS"]]))
    return rows


def _gain(grid: Grid, network: str, times: int, at: int) -> float:
    slow = grid[network, times, "FCFS"][at].makespan
    return (slow - grid[network, times, "DC"][at].makespan) / slow


def _grid_figure(network: str, times: int, grid: Grid) -> StudyFigure:
    curves = []
    for place, policy in enumerate(POLICIES):
        found = grid[network, times, policy]
        curves.append(Curve(policy, [(float(hosts), one.makespan) for hosts, one in zip(HOSTS, found, strict=True)]))
        printed = [
            (float(hosts), figure)
            for (net, size, hosts, service), row in MAKESPANS.items()
            if (net, size, service) == (network, times, SERVICE) and (figure := row[place]) is not None
        ]
        if printed:
            curves.append(Curve(policy, printed, of=Reference.PUBLISHED))
    title = f"{network}, files x{times}: makespan of 1,000 pipelines, mean of {SEEDS} seeds"
    return StudyFigure(f"{network.lower()}-x{times}", title, "placeholders", "s", curves, log_x=True, log_y=True)


CHAINS: Final = {  # what the model of the specification gives: no published figures
    ("WAN", 8): (977.0, 898.0, 862.0, 865.0),
    ("WAN", 32): (363.0, 259.0, 250.0, 268.0),
    ("LAN", 32): (360.0, 233.0, 224.0, 245.0),
}


def _chain_rows() -> list[StudyRow]:
    rows = []
    for (network, hosts), expected in CHAINS.items():
        for chains, figure in zip((2, 4, 8, 16), expected, strict=True):
            subject = f"{network} x1, P={hosts}, bundles of {chains} whole pipelines, FCFS: makespan"
            rows.append(StudyRow(subject, run_chains(network, hosts, chains), figure, of=Reference.MODEL))
    return rows


def _ablation_rows() -> list[StudyRow]:
    """What single choices are worth; beside them what the model of our specification gives."""
    rows = [
        StudyRow("one start-up for each pair of hosts, WAN x1, P=8, FCFS: makespan",
                 run_cell(Cell("FCFS", startup_per_pair=True)).makespan, 760.0, of=Reference.MODEL),
        StudyRow("one start-up for each pair of hosts, WAN x1, P=8, DC: makespan",
                 run_cell(Cell("DC", startup_per_pair=True)).makespan, 745.0, of=Reference.MODEL),
    ]  # fmt: skip
    for policy in POLICIES:
        found = run_cell(Cell(policy, barrier=False))
        rows.append(StudyRow(f"no barrier between the stages, WAN x1, P=8, {policy}: makespan", found.makespan,
                             note=f"affinity {found.affinity:.3f}"))  # fmt: skip
    points = (("WAN", 1, 8), ("WAN", 1, 32), ("LAN", 1, 32), ("WAN", 100, 16))
    expected = {
        "penalty=1": (910.0, 301.0, 279.0, 525.0),
        "penalty=5": (893.0, 305.0, 281.0, 506.0),
        "penalty=100": (911.0, 305.0, 294.0, 508.0),
        "arrivals=1": (908.0, 315.0, 279.0, 611.0),
        "arrivals=4": (905.0, 315.0, 279.0, 611.0),
        "window=16": (893.0, 305.0, 291.0, 505.0),
    }
    for options, figures in expected.items():
        for (network, times, hosts), figure in zip(points, figures, strict=True):
            found = run_cell(Cell("DC", network, times, hosts, options=options))
            subject = f"DC with {options}, {network} x{times}, P={hosts}: makespan"
            rows.append(
                StudyRow(subject, found.makespan, figure, note=f"affinity {found.affinity:.3f}", of=Reference.MODEL)
            )
    for sigma in (0.5, 1.0):
        for policy in ("SJF", "DC"):
            found = run_cell(Cell(policy, estimates=sigma))
            rows.append(
                StudyRow(
                    f"expected run times off by {sigma:g} (lognormal), WAN x1, P=8, {policy}: makespan", found.makespan
                )
            )
    return rows


def _locality() -> tuple[list[StudyRow], StudyFigure]:
    """Throughput by the locality that a penalty enforces (3.5), which the thesis only sketches."""
    curves, rows = [], []
    for network, times, hosts in (("LAN", 1, 32), ("WAN", 1, 32), ("WAN", 100, 16)):
        points = []
        for penalty in (0, 0.1, 0.3, 1, 3, 10, 25, 100):
            found = run_cell(Cell("DC", network, times, hosts, options=f"penalty={penalty}"))
            points.append((200 * found.affinity, PROTEINS / found.makespan))
        best = max(points, key=lambda point: point[1])
        rows.append(
            StudyRow(f"{network} x{times}, P={hosts}: locality at which throughput peaks", best[0], unit="%",
                     note=f"{best[1]:.2f} proteins/s; by sweeping DC's penalty")
        )  # fmt: skip
        curves.append(Curve(f"{network} x{times}, P={hosts}", sorted(points)))
    title = "Throughput by the locality that Data-Conscious scheduling enforces"
    return rows, StudyFigure("locality", title, "parsing tasks with local data, %", "proteins a second", curves)
