"""Workloads of published applications, made from what their sources say of them.

    workload = application("moldyn:10")        # ten molecules

Counts of tasks, stages and bytes are those that were printed; what a source leaves open (mostly how long single tasks
take) is assumed here and said beside it. Sources: I. Raicu's thesis, `spec/falkon.md` 4.7, 4.10, 4.12, 4.13; M. Lamb's,
`spec/trellis-driver.md` 4.6; I. Patterson's, `spec/jole.md`. Rule: the same name makes the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, sqrt
from random import Random
from typing import Final, NamedTuple

from bough.errors import UserError
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

MB: Final = 1_000_000
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


def dock(jobs: int) -> _Builder:
    """Docking on the SiCortex: 5.8 to 4178 s, mean 660, deviation 478.8; 35 MB of static input that all share."""
    made, dice = _Builder(), Random("dock")
    static = made.file("static", 35 * MB)
    spread = sqrt(log(1 + (478.8 / 660.0) ** 2))
    for number in range(jobs):
        seconds = min(4178.0, max(5.8, dice.lognormvariate(log(660.0) - spread * spread / 2, spread)))
        made.task("dock", seconds, (static, made.file(f"ligand{number}", 20_000)))
    return made


def mars(batches: int) -> _Builder:
    """A model of refineries: batches of 144 runs, 65.4 s each; a binary of 0.5 MB and 15 kB that all share."""
    made = _Builder()
    binary, static = made.file("mars", MB // 2), made.file("static", 15_000)
    for number in range(batches):
        made.task("batch", 65.4, (binary, static, made.file(f"in{number}", 1000)))
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
    rows = (
        *((1, 60), (2, 60), (4, 60), (8, 60), (16, 60), (32, 60), (64, 60), (1, 120), (640, 6), (160, 12)),
        *((3, 60), (20, 60), (18, 60), (16, 60), (8, 60), (4, 60), (2, 60), (1, 60)),
    )
    for number, (many, seconds) in enumerate(rows, 1):
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


def all_pairs(side: int) -> _Builder:
    """Every pair of two lists of items of 12 MB, a second for each."""
    made = _Builder()
    one, two = ([made.file(f"{name}{n}", 12 * MB) for n in range(side)] for name in "ab")
    for row in one:
        for column in two:
            made.task("compare", 1.0, (row, column))
    return made


def stacking(objects: int) -> _Builder:
    """Cut-outs of sky images of 2 MB, five objects on each in the mean; 50 ms for each, which is assumed."""
    made, dice = _Builder(), Random("stacking")
    images = [made.file(f"image{n}", 2 * MB) for n in range(max(1, objects // 5))]
    for number in range(objects):
        made.task("stack", 0.05, (images[number % len(images)],))
    dice.shuffle(made.tasks)
    return made


class Application(NamedTuple):
    """How an application is made, how large it was, and how many tasks one unit of its size is at most."""

    make: Callable[[int], _Builder]
    size: int
    about: str
    tasks_each: float = 1.0


APPLICATIONS: Final = {
    "fmri": Application(fmri, 120, "brain images, 4 stages for each of N volumes (120)", 4),
    "montage": Application(montage, 440, "a mosaic of the sky of N images (440)", 13),
    "moldyn": Application(moldyn, 244, "molecular dynamics of N molecules (244): 1 + 84 N tasks", 85),
    "dock": Application(dock, 92_000, "docking, N tasks of 5.8 to 4178 s (92,000)"),
    "mars": Application(mars, 49_000, "an economic model, N batches of 65.4 s (49,000)"),
    "generations": Application(generations, 10, "a genetic algorithm, N generations of 20 (10)", 21),
    "stages": Application(stages, 1, "Falkon's 18 stages, N times as wide (1)", 1018),
    "proteome": Application(proteome, 1000, "BLAST and parsing of N proteins (1,000)", 2),
    "all-pairs": Application(all_pairs, 100, "all pairs of two lists of N items (100)", 10_000),
    "stacking": Application(stacking, 60_590, "N cut-outs of images with five objects each (60,590)"),
}


def application(text: str) -> Workload:
    """An application by its name, or NAME:N for another size."""
    name, colon, digits = text.partition(":")
    if name not in APPLICATIONS:
        raise UserError(f"there is no workload {name!r}; there are: {', '.join(APPLICATIONS)}")
    found = APPLICATIONS[name]
    size = found.size
    if colon:
        if not digits.isdecimal() or not 1 <= int(digits[:20]) <= _MOST / found.tasks_each:
            most = int(_MOST / found.tasks_each)
            raise UserError(f"--workload {text}: the size is a whole number, 1 to {most}, as in {name}:{found.size}")
        size = int(digits)
    made = found.make(size)
    return Workload(text, made.tasks, made.files)
