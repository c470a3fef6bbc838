"""Workloads of published applications, made from what their sources say of them.

    workload = application("moldyn:10")        # ten molecules

Counts of tasks, stages and bytes are those that were printed; what a source leaves open (mostly how long single tasks
take) is assumed here and said beside it. Sources: I. Raicu's thesis, `spec/falkon.md` 4.6 to 4.13; M. Lamb's,
`spec/trellis-driver.md` 4.6; I. Patterson's, `spec/jole.md`; M. Goldenberg's; E. Santos Neto's. Workloads that studies
run, too, are made by `sim.study_workloads` and `sim.checkers_workload`. Rule: the same name makes the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log, sqrt
from random import Random
from typing import Final, NamedTuple

from bough.errors import UserError
from bough.sim import checkers_workload
from bough.sim.study_workloads import (
    EXECUTIONS,
    MB,
    MI_TASKS,
    RESOURCE_SECONDS,
    RESOURCES,
    STAGES,
    SW_TASKS,
    all_pairs,
    mi,
    stacking,
    storage_affinity_job,
    sw,
)
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

_MOST: Final = 10_000_000  # tasks of one workload


class _Builder:
    """Tasks and files as they are added."""

    def __init__(self) -> None:
        self.tasks: list[SimulatedTask] = []
        self.files: list[SimulatedFile] = []

    def file(self, name: str, size: int) -> int:
        self.files.append(SimulatedFile(name, size))
        return len(self.files) - 1

    def task(
        self,
        template: str,
        seconds: float,
        reads: tuple[int, ...] = (),
        writes: tuple[int, ...] = (),
        after: tuple[int, ...] = (),
    ) -> int:
        name = f"{template} {len(self.tasks)}"
        self.tasks.append(SimulatedTask(name, seconds, after, template=template, reads=reads, writes=writes))
        return len(self.tasks) - 1

    def made(self, template: str, seconds: float, reads: tuple[int, ...], size: int) -> int:
        """A task that writes one file; the file."""
        file = self.file(f"{template}-{len(self.tasks)}", size)
        self.task(template, seconds, reads, (file,))
        return file


def fmri(volumes: int) -> _Builder:
    """Four stages for each volume of 200 kB; tasks of three seconds ("a few")."""
    made = _Builder()
    for volume in range(volumes):
        file = made.file(f"volume{volume}", 200_300)
        for stage in ("reorient", "align", "reslice", "smooth"):
            file = made.made(stage, 3.0, (file,), 200_300)
    return made


def montage(images: int) -> _Builder:
    """A mosaic: images of 2 MB are projected, differences of overlaps fitted, backgrounds corrected, all added twice.

    440 images have 2,200 overlaps. Run times are assumed: seconds for each image and overlap, a minute for each sum.
    """
    made, dice = _Builder(), Random("montage")
    projected = [made.made("mProject", 8.0, (made.file(f"image{n}", 2 * MB),), 4 * MB) for n in range(images)]
    fits = []
    for overlap in range(5 * images):
        one = overlap % images
        two = (one + 1 + dice.randrange(max(1, min(20, images - 1)))) % images
        difference = made.made("mDiff", 1.0, tuple(dict.fromkeys((projected[one], projected[two]))), MB)
        fits.append(made.made("mFitplane", 0.5, (difference,), 300))
    table = made.made("mConcatFit", 10.0, tuple(fits), 100_000)
    model = made.made("mBgModel", 30.0, (table,), 20_000)
    flat = [made.made("mBackground", 2.0, (one, model), 4 * MB) for one in projected]
    tiles = [
        made.made("mAddTile", 20.0, tuple(flat[at : at + 30]), 30 * MB) for at in range(0, len(flat), 30)
    ]  # the first of two sums
    whole = made.made("mAdd", 60.0, tuple(tiles), 300 * MB)
    small = made.made("mShrink", 20.0, (whole,), 10 * MB)
    made.made("mJPEG", 5.0, (small,), MB)
    return made


def moldyn(molecules: int) -> _Builder:
    """One task for all, then 84 for each molecule: 3 in a row, 68 at once, 13 to follow; 235.4 CPU minutes each.

    How the 235.4 minutes are spread is assumed: 60 s for each of those in a row, the rest over the 68.
    """
    made = _Builder()
    start = made.task("prepare", 60.0)
    for _ in range(molecules):
        before = start
        for stage in ("antechamber", "charmm-setup", "equilibrate"):
            before = made.task(stage, 60.0, after=(before,))
        each = (235.4 * 60 - 60 - 3 * 60 - 13 * 30) / 68
        runs = [made.task("perturb", each, after=(before,)) for _ in range(68)]
        gathered = [made.task("wham", 30.0, after=tuple(runs[at::12])) for at in range(12)]
        made.task("collect", 30.0, after=tuple(gathered))
    return made


class _Docking(NamedTuple):
    """How long the tasks of a docking run took: from, to, mean and deviation."""

    low: float
    high: float
    mean: float
    deviation: float

    def tasks(self, jobs: int) -> _Builder:
        """Lognormal within the bounds, which is assumed; 35 MB of static input that all share, tens of kB for each."""
        made, dice = _Builder(), Random("dock")
        static = made.file("static", 35 * MB)
        spread = sqrt(log(1 + (self.deviation / self.mean) ** 2))
        for number in range(jobs):
            drawn = dice.lognormvariate(log(self.mean) - spread * spread / 2, spread)
            made.task("dock", min(self.high, max(self.low, drawn)), (static, made.file(f"ligand{number}", 20_000)))
        return made


def mars(batches: int, runs: int = 144) -> _Builder:
    """A model of refineries: batches of 144 or 600 runs, 0.454 s each; a binary of 0.5 MB and 15 kB that all share."""
    made = _Builder()
    seconds, own = {144: (65.4, 1000), 600: (271.0, 4000)}[runs]
    binary, static = made.file("mars", MB // 2), made.file("static", 15_000)
    for number in range(batches):
        made.task("batch", seconds, (binary, static, made.file(f"in{number}", own)))
    return made


def generations(count: int) -> _Builder:
    """A genetic algorithm: generations of 20 folds, each seeded by the two best of the one before.

    Run times are assumed: 30 to 90 s, since folds settle at different times; a second to choose.
    """
    made, dice = _Builder(), Random("generations")
    chosen: tuple[int, ...] = ()
    for _ in range(count):
        folds = [made.task("fold", dice.uniform(30.0, 90.0), after=chosen) for _ in range(20)]
        chosen = (made.task("choose", 1.0, after=tuple(folds)),)
    return made


def stages(times: int) -> _Builder:
    """Falkon's 18 stages, 1,000 tasks and 17,820 CPU seconds in all, so many times as wide."""
    made = _Builder()
    before: tuple[int, ...] = ()
    for number, (many, seconds) in enumerate(STAGES, 1):
        some = [made.task(f"stage{number}", float(seconds), after=before) for _ in range(many * times)]
        before = (made.task("barrier", 0.0, after=tuple(some)),)
    return made


def proteome(proteins: int) -> _Builder:
    """Proteome Analyst: BLAST over a database of 64 MB, then parsing of 5 to 85 kB of homologues, for each protein."""
    made, dice = _Builder(), Random("proteome")
    database = made.file("swissprot", 64 * MB)
    for number in range(proteins):
        size = dice.random()
        sequence = made.file(f"sequence{number}", round(250 + 600 * size))
        found = made.made("blast", 2.0 + 6.0 * size**1.35, (database, sequence), round(5e3 + 8e4 * size**1.35))
        made.made("parse", 0.5 + 0.2 * size, (found,), 1000)
    return made


def resources(count: int) -> _Builder:
    """Falkon's 48 resources: a task for each, which outlasts the measurement."""
    made = _Builder()
    for _ in range(count):
        made.task("hold", RESOURCE_SECONDS)
    return made


def six_executions(kind: str, grain: int) -> Workload:
    """Storage Affinity's job, run six times one after the other: what an execution reads, all the others read, too.

    The sizes of tasks are spread by half, as in the middle of the design.
    """
    once = storage_affinity_job(kind, grain, 0.5, f"{kind} {grain} 4 0.5 0")
    made: list[SimulatedTask] = []
    before: tuple[int, ...] = ()
    for number in range(EXECUTIONS):
        first = len(made)
        made += [
            SimulatedTask(
                f"{task.name} of {number + 1}", task.seconds, before, template=task.template, reads=task.reads
            )
            for task in once.tasks
        ]
        before = (len(made),)
        made.append(SimulatedTask(f"end of {number + 1}", 0.0, tuple(range(first, len(made))), cores=0.0))
    return Workload(kind, made[:-1], once.files)


class Application(NamedTuple):
    """How an application is made, how large it was, and how many tasks one unit of its size is at most."""

    make: Callable[[int], _Builder | Workload]
    size: int
    about: str
    tasks_each: float = 1.0
    most: int = _MOST  # the largest size, if that is not a matter of tasks

    @property
    def largest(self) -> int:
        """The largest size that may be asked for."""
        return min(self.most, int(_MOST / self.tasks_each))


_SIX = "six executions of a job of 2 GB, tasks of N MB (3)"
APPLICATIONS: Final = {
    "fmri": Application(fmri, 120, "brain images, 4 stages for each of N volumes (120)", 4),
    "montage": Application(montage, 440, "a mosaic of the sky of N images (440)", 13),
    "moldyn": Application(moldyn, 244, "molecular dynamics of N molecules (244): 1 + 84 N tasks", 85),
    "dock": Application(_Docking(5.8, 4178, 660, 478.8).tasks, 92_000, "docking, N tasks of 5.8 to 4178 s (92,000)"),
    "dock-synthetic": Application(
        _Docking(17.3, 17.3, 17.3, 0.0).tasks, 5760, "docking of one ligand again and again, N tasks of 17.3 s (5,760)"
    ),
    "dock5": Application(_Docking(1, 5030, 713, 560).tasks, 934_803, "DOCK5, N tasks of 1 to 5030 s (934,803)"),
    "dock6": Application(
        _Docking(23, 2802, 783, 300).tasks, 138_159, "DOCK6, compounds by proteins, N tasks of 23 to 2802 s (138,159)"
    ),
    "mars": Application(mars, 49_000, "an economic model, N batches of 144 runs, 65.4 s (49,000)"),
    "mars-600": Application(
        partial(mars, runs=600), 1_000_000, "the same in N batches of 600 runs, 271 s (1,000,000)"
    ),
    "generations": Application(generations, 10, "a genetic algorithm, N generations of 20 (10)", 21),
    "stages": Application(stages, 1, "Falkon's 18 stages, N times as wide (1)", 1018),
    "resources": Application(resources, RESOURCES, "Falkon's 48 resources, N tasks of 10,000 s (48)"),
    "mi": Application(
        lambda tasks: mi(tasks, MI_TASKS), MI_TASKS, "Falkon's MI, N tasks that arrive ever faster in 1415 s (250,000)"
    ),
    "sw": Application(
        lambda tasks: sw(tasks, SW_TASKS), SW_TASKS, "Falkon's SW, N tasks that arrive in waves in 6505 s (2,000,000)"
    ),
    "proteome": Application(proteome, 1000, "BLAST and parsing of N proteins (1,000)", 2),
    "all-pairs": Application(all_pairs, 100, "all pairs of two lists of N items (100)", 10_000),
    "stacking": Application(
        lambda objects: stacking(objects, max(1, objects // 5)), 60_590,
        "N cut-outs of images with five objects each (60,590)",
    ),
    "checkers": Application(
        checkers_workload.tasks, checkers_workload.PARTS,
        "checkers databases of 4 against 3 pieces, the first N of 638 parts: 2 N tasks", 2, checkers_workload.PARTS,
    ),
    "storage-affinity": Application(
        partial(six_executions, "visualization"), 3, f"Storage Affinity's {_SIX}, cost by size", most=2048
    ),
    "storage-affinity-search": Application(
        partial(six_executions, "search"), 3, "the same, any cost up to that", most=2048
    ),
}  # fmt: skip


def application(text: str) -> Workload:
    """An application by its name, or NAME:N for another size."""
    name, colon, digits = text.partition(":")
    if name not in APPLICATIONS:
        raise UserError(f"there is no workload {name!r}; there are: {', '.join(APPLICATIONS)}")
    found = APPLICATIONS[name]
    size = found.size
    if colon:
        most = found.largest
        if not digits.isdecimal() or not 1 <= int(digits[:20]) <= most:
            raise UserError(f"--workload {text}: the size is a whole number, 1 to {most}, as in {name}:{found.size}")
        size = int(digits)
    made = found.make(size)
    return Workload(text, made.tasks, made.files)
