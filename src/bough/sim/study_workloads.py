"""Workloads of the studies, which a study runs and `bough simulate --workload` offers, from one generator each.

Two of them have arrivals: MI, whose rate grows by 30 % a minute, and SW, whose rate is a growing sine. Both may be made
in part: the same arrivals and files, so many for each of so many.
Sources: I. Raicu, `spec/falkon.md` 4.6 to 4.10, 4.12; E. Santos Neto, `spec/storage-affinity.md` 4.4.
Rule: the same arguments make the same tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil, floor, sin, sqrt
from random import Random
from typing import Final

from bough.model.ids import Seconds
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

MB: Final = 1_000_000
Arrivals = Sequence[tuple[Seconds, int]]  # a time, and how many tasks arrive then

STAGES: Final = (  # Falkon's 18: tasks and seconds of each
    *((1, 60), (2, 60), (4, 60), (8, 60), (16, 60), (32, 60), (64, 60), (1, 120), (640, 6), (160, 12)),
    *((3, 60), (20, 60), (18, 60), (16, 60), (8, 60), (4, 60), (2, 60), (1, 60)),
)
RESOURCES: Final = 48  # that Falkon's provisioner is asked for: as many tasks, which outlast the measurement
RESOURCE_SECONDS: Seconds = 10_000.0
MI_TASKS: Final = 250_000
SW_TASKS: Final = 2_000_000
STACKS: Final = {  # locality: objects and files
    1.0: (111_700, 111_700),
    1.38: (154_345, 111_699),
    2.0: (97_999, 49_000),
    3.0: (88_857, 29_620),
    4.0: (76_575, 19_145),
    5.0: (60_590, 12_120),
    10.0: (46_480, 4_650),
    20.0: (40_460, 2_025),
    30.0: (23_695, 790),
}
MEGABYTE: Final = 1 << 20
JOB_BYTES: Final = 2 << 30  # of input, of Storage Affinity's job
EXECUTIONS: Final = 6
COST: Final = 0.001602171  # seconds a byte on a processor of speed 1


def increasing() -> Arrivals:
    """MI: how many tasks arrive in each second, 250,000 in all."""
    rate, left, made = 1, MI_TASKS, []
    for interval in range(24):
        for second in range(60):
            many = min(rate, left)
            left -= many
            if many:
                made.append((float(60 * interval + second), many))
        rate = min(ceil(1.3 * rate), 1000)
    return made


@cache
def sine() -> Arrivals:
    """SW: two million tasks in 6505 seconds."""
    made = []
    for second in range(6505):
        minutes = second / 60 + 0.11
        made.append((float(second), max(0, floor((sin(sqrt(minutes) * 2.859678) + 1) * minutes * 5.705))))
    return made


def count(arrivals: Arrivals) -> int:
    """How many arrive in all."""
    return sum(many for _, many in arrivals)


def thinned(arrivals: Arrivals, part: int, of: int) -> Arrivals:
    """So many tasks for each of so many, spread evenly."""
    made, seen = [], 0
    for when, many in arrivals:
        before, seen = seen, seen + many
        if kept := seen * part // of - before * part // of:
            made.append((when, kept))
    return made


def mi(part: int = 1, of: int = 1, seconds: Seconds = 0.01) -> Workload:
    """Tasks that arrive ever faster, each reads one of 10,000 files of 10 MB."""
    return _arriving("MI", thinned(increasing(), part, of), max(1, 10_000 * part // of), seconds)


def sw(part: int = 1, of: int = 1, seconds: Seconds = 0.01) -> Workload:
    """Tasks that arrive in waves, each reads one of 100,000 files of 10 MB."""
    return _arriving("SW", thinned(sine(), part, of), max(1, 100_000 * part // of), seconds)


def _arriving(name: str, arrivals: Arrivals, files: int, seconds: Seconds) -> Workload:
    dice = Random(f"{name} 0.0")
    tasks: list[SimulatedTask] = []
    for when, many in arrivals:
        for number in range(len(tasks), len(tasks) + many):
            reads = (dice.randrange(files),)
            tasks.append(SimulatedTask(f"t{number}", seconds, reads=reads, template=name, arrival=when))
    return Workload(name, tasks, [SimulatedFile(f"f{number}", 10 * MB) for number in range(files)])


def all_pairs(side: int, seconds: Seconds = 1.0) -> Workload:
    """Every pair of two lists of items of 12 MB, row by row."""
    files = [SimulatedFile(f"{name}{number}", 12 * MB) for name in "ab" for number in range(side)]
    pairs = ((row, side + column) for row in range(side) for column in range(side))
    tasks = [SimulatedTask(f"t{n}", seconds, reads=some, template="AP") for n, some in enumerate(pairs)]
    return Workload("AP", tasks, files)


def stacking(objects: int, images: int, seconds: Seconds = 0.05, seed: str = "5.0") -> Workload:
    """Cut-outs of sky images of 2 MB, in no order; 50 ms for each are assumed."""
    reads = [(number % images,) for number in range(objects)]
    Random(f"stacking {seed}").shuffle(reads)
    tasks = [SimulatedTask(f"t{n}", seconds, reads=some, template="stacking") for n, some in enumerate(reads)]
    return Workload("stacking", tasks, [SimulatedFile(f"image{number}", 2 * MB) for number in range(images)])


def storage_affinity_job(kind: str, grain: int, spread: float, seed: str) -> Workload:
    """A job with 2 GB of input, in tasks of so many megabytes in the mean; the last task has what is left.

    The cost of a task is that of its bytes (`visualization`), or anything up to that (`search`).
    """
    dice = Random(f"job {seed}")
    mean = grain * MEGABYTE
    files: list[SimulatedFile] = []
    tasks: list[SimulatedTask] = []
    left = JOB_BYTES
    while left > 0:
        size = min(left, max(1, round(dice.uniform(mean * (1 - spread / 2), mean * (1 + spread / 2)))))
        left -= size
        cost = COST * size if kind == "visualization" else dice.uniform(1.0, COST * size)
        number = len(tasks)
        files.append(SimulatedFile(f"slice{number}", size))
        tasks.append(SimulatedTask(f"task{number}", cost, reads=(number,), template=f"task{number}"))
    return Workload("job", tasks, files)
