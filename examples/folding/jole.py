"""The workloads of Jole's evaluation (Patterson 2009): a static one, and those that steer themselves while they run.

    static        instances with other seeds, each to its last iteration
    dl            the same, but a monitor ends an instance whose score has not moved for 25 iterations
    dlg           generations of short instances: the two best folds seed the next one, until that brings too little
    adjusting     the same, with two instances for every processor that is there when a generation begins

    bough run jole.py static
    bough run jole.py dlg --instances 10

`bough study jole` runs all of them on two sites, one of which leaves and returns, and puts the figures beside the
published ones. The folder is `torsion.py`, whose scores are real numbers, as those of the thesis' folder were.
Rule: what a workload does depends on its seeds and on the processors that are there, nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import bough
from bough.monitors import Plateau

HERE = Path(__file__).parent
FOLD = "{python} {program:r} --seed {seed} --iterations {iterations} --pad {pad} --out {out:w}"
FOLD_FROM = FOLD + " --start {start:r}"
WINDOW = 25  # scores whose standard deviation is looked at
ITERATIONS = 300


@dataclass(frozen=True)
class Workload:
    """One row of the evaluation."""

    name: str
    instances: int  # in a generation; 0: two for every processor that is there
    cutoff: float | None = None  # of the standard deviation; None: no monitor
    threshold: float | None = None  # a generation must improve the best score by so much; None: there is only one


STATIC = Workload("static", 20)
DL = Workload("dl", 20, cutoff=1e-4)
DLG = Workload("dlg", 20, cutoff=1e-3, threshold=0.1)
CONSTANT = Workload("constant", 20, cutoff=1e-3, threshold=0.02)  # for processors that come and go
ADJUSTING = Workload("adjusting", 0, cutoff=1e-3, threshold=0.02)
WORKLOADS = {one.name: one for one in (STATIC, DL, DLG, CONSTANT, ADJUSTING)}


@dataclass(frozen=True)
class Instance:
    """What one run of the folder found."""

    score: float
    iterations: int
    path: Path


def run(
    session: bough.Session, workload: Workload, *, seed: int, pad: float = 0.0, folder: Path = Path("folds")
) -> list[list[Instance]]:
    """Run a workload to its end; its generations, each with its best instance first."""
    generations: list[list[Instance]] = []
    best = math.inf
    while True:
        count = workload.instances or max(2, round(2 * sum(session.processors().values())))
        starts = [one.path for one in generations[-1][:2]] if generations else []
        generations.append(_generation(session, workload, count, seed + 1000 * len(generations), starts, pad, folder))
        score = generations[-1][0].score
        if workload.threshold is None or best - score < workload.threshold:
            return generations
        best = score


def _generation(
    session: bough.Session, workload: Workload, count: int, seed: int, starts: list[Path], pad: float, folder: Path
) -> list[Instance]:
    """Run the folder with some seeds at once; instance i begins with start i mod 2."""
    seeds = range(seed, seed + count)
    watch = []
    if workload.cutoff is not None:
        watch = [
            Plateau(
                r"score (-?[\d.]+)",
                window=WINDOW,
                below=workload.cutoff,
                metric="score",
                total=ITERATIONS,
                name="plateau",
            )
        ]
    runs = session.sweep(
        FOLD_FROM if starts else FOLD,
        bough.tie(seed=seeds, start=[starts[i % 2] for i in range(count)]) if starts else bough.tie(seed=seeds),
        python=sys.executable,
        program=HERE / "torsion.py",
        iterations=ITERATIONS,
        pad=pad,
        out=f"{folder}/{workload.name}/{{seed}}.json",
        monitors=watch,
    )
    found = []
    for task in runs.as_completed():
        task.result()
        path = Path(task.outputs["out"])
        written = json.loads(path.read_text())
        found.append(Instance(written["score"], len(written["scores"]), path))
    return sorted(found, key=lambda one: (one.score, one.path.name))  # not by who came first: the same every time


def main() -> None:
    """Run one workload and say what it found."""
    parser = argparse.ArgumentParser(description="Run a workload of Jole's evaluation.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--instances", type=int, help="in a generation")
    parser.add_argument("--seed", type=int, default=600)
    parser.add_argument("--pad", type=float, default=0.0, help="let an iteration last at least so many seconds")
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    if options.instances is not None:
        workload = Workload(workload.name, options.instances, workload.cutoff, workload.threshold)
    with bough.Session() as session:
        generations = run(session, workload, seed=options.seed, pad=options.pad)
    for number, generation in enumerate(generations):
        iterations = sum(one.iterations for one in generation)
        print(f"generation {number}: {len(generation)} instances, {iterations} iterations, best {generation[0].score}")


if __name__ == "__main__":
    main()
