"""Generations of protein folding: a loop over live results, after the evaluation of Jole (Patterson 2009).

Each generation runs the folder with 20 seeds at once; instance i of the next one starts from structure i mod 2 of
the two best. The loop ends when the best score has improved by less than the threshold. Nothing here says that work
done earlier is to be kept: run it again, and Bough finds every finished task.

    bough run workflow.py [--generations 12] [--instances 20] [--iterations 150] [--threshold 1] [--patience 1]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import bough

# The 64-residue benchmark of Unger and Moult, "Genetic algorithms for protein folding simulations", J. Mol. Biol.
# 231 (1993) 75-81. Its optimum on the square lattice is known to be -42.
BENCHMARK = "HHHHHHHHHHHHPHPHPPHHPPHHPPHPPHHPPHHPPHPPHHPPHHPPHPHPHHHHHHHHHHHH"

FOLD = "{python} {program:r} {sequence} --seed {seed} --iterations {iterations} --out {out:w}"
FOLD_FROM = FOLD + " --start {start:r}"
PLOT = "{python} {program:r} {results:r} --out {picture:w}"


@dataclass(frozen=True)
class Instance:
    """What one run of the folder left behind."""

    energy: int
    moves: str
    path: Path


@dataclass(frozen=True)
class Generation:
    """One turn of the loop: its instances, best first, and how long it took."""

    instances: list[Instance]
    seconds: float

    @property
    def best(self) -> int:
        """The lowest energy."""
        return self.instances[0].energy

    def row(self, number: int) -> list[str]:
        """A line of the table."""
        energies = [instance.energy for instance in self.instances]
        mean, spread = statistics.mean(energies), statistics.pstdev(energies)
        return [str(number), str(self.best), f"{mean:.2f}", f"{spread:.2f}", f"{self.seconds:.2f}"]

    def parents(self) -> tuple[Path, Path]:
        """The two best structures that differ; the best one twice if all are alike."""
        first = self.instances[0]
        second = next((other for other in self.instances if other.moves != first.moves), first)
        return first.path, second.path


def read_options() -> argparse.Namespace:
    """The command line of the workflow."""
    parser = argparse.ArgumentParser(description="Fold a protein in generations.")
    parser.add_argument("--sequence", default=BENCHMARK)
    parser.add_argument("--instances", type=int, default=20, help="runs of the folder in a generation")
    parser.add_argument(
        "--seed", type=int, default=600, help="the first seed; generation g counts from 1000 g above it"
    )
    parser.add_argument("--iterations", type=int, default=150, help="iterations of a run")
    parser.add_argument("--generations", type=int, default=12, help="stop after so many in any case")
    parser.add_argument("--threshold", type=int, default=1, help="a smaller improvement counts as none")
    parser.add_argument("--patience", type=int, default=1, help="generations without improvement that end the loop")
    return parser.parse_args()


def generation(
    session: bough.Session, options: argparse.Namespace, number: int, before: Generation | None
) -> Generation:
    """Run one generation to its end, taking results as they come."""
    began = time.perf_counter()
    seeds = [options.seed + 1000 * number + i for i in range(options.instances)]
    if before is None:
        template, space = FOLD, bough.tie(seed=seeds)
    else:
        parents = before.parents()
        template, space = FOLD_FROM, bough.tie(seed=seeds, start=[parents[i % 2] for i in range(options.instances)])
    with session.group(f"generation-{number}"):
        runs = session.sweep(
            template,
            space,
            python=sys.executable,
            program="fold.py",
            sequence=options.sequence,
            iterations=options.iterations,
            out=f"folds/generation-{number}/{{seed}}.json",
        )
    found = []
    for run in runs.as_completed():
        run.result()
        path = Path(run.outputs["out"])
        result = json.loads(path.read_text())
        found.append(Instance(result["energy"], result["moves"], path))
    found.sort(key=lambda instance: (instance.energy, instance.path.name))  # not by who came first: the same every time
    return Generation(found, time.perf_counter() - began)


def evolve(session: bough.Session, options: argparse.Namespace) -> list[Generation]:
    """Generations until the best score stops improving."""
    done: list[Generation] = []
    idle = 0
    while len(done) < options.generations and idle < options.patience:
        done.append(generation(session, options, len(done), done[-1] if done else None))
        print(f"generation {len(done) - 1}: best {done[-1].best}", flush=True)
        if len(done) > 1:
            improvement = min(past.best for past in done[:-1]) - done[-1].best
            idle = 0 if improvement >= options.threshold else idle + 1
    return done


def main() -> None:
    """Run the workflow, draw the picture, show the table."""
    options = read_options()
    with bough.Session() as session:
        done = evolve(session, options)
        picture = session.command(
            PLOT,
            python=sys.executable,
            program="plot.py",
            results=[instance.path for past in done for instance in sorted(past.instances, key=lambda one: one.path)],
            picture="folding.png",
            name="plot",
        )
        picture.result()
    table = Table(title="Generations")
    for heading in ("generation", "best", "mean", "std", "seconds"):
        table.add_column(heading, justify="right")
    for number, past in enumerate(done):
        table.add_row(*past.row(number))
    console = Console()
    console.print(table)
    best = min((past.instances[0] for past in done), key=lambda one: one.energy)
    console.print(f"best energy {best.energy}: {best.moves}", soft_wrap=True, highlight=False)
    console.print("picture: folding.png")


main()
