"""Fold a protein by its angles with a genetic algorithm: a command-line program, standard library only.

The model is the three-dimensional off-lattice AB model: a chain of A (hydrophobic) and B (polar) residues with bonds of
length 1. Its energy is a quarter of the sum of 1 - cos of the bend angles, plus 4 (r^-12 - C r^-6) for every two
residues that are not neighbours in the chain; C is 1 for two A, 1/2 for two B and -1/2 for one of each (Stillinger,
Head-Gordon and Hirshfeld, Phys. Rev. E 48, 1993; in three dimensions as in Hsu, Mehra and Grassberger, Phys. Rev. E 68,
2003). The genes of a fold are its bend and torsion angles. Each iteration crosses and changes some folds of the
population, keeps the best ones, and prints a line with the best score so far; lower is better.

    python torsion.py --seed 7 --iterations 300 --out fold.json [--start fold.json] [--pad 0.02] [--sequence ABBA...]

Rules: everything random comes from `--seed`. A program that is told to end (SIGTERM) writes what it has found so far.
Before a fold is written its energy is counted once more, by a function that shares nothing with the search.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FIBONACCI = "ABBABBABABBAB"  # 13 residues, the shortest of the sequences that the literature compares
POPULATION = 16
OFFSPRING = 24  # new folds in an iteration
CLOSEST = 0.05  # of squared distances: nearer residues have the energy of this one, so that nothing overflows

Angles = list[float]  # bend angles, then torsion angles
Point = tuple[float, float, float]


class Chain:
    """What is known of a sequence before it is folded."""

    def __init__(self, sequence: str) -> None:
        if set(sequence) - {"A", "B"} or not 4 <= len(sequence) <= 200:
            raise ValueError("a sequence has 4 to 200 letters, A and B")
        self.sequence = sequence
        self.genes = 2 * len(sequence) - 5
        strengths = {"AA": 1.0, "BB": 0.5, "AB": -0.5, "BA": -0.5}
        self._attractions = [[strengths[one + other] for other in sequence[:i]] for i, one in enumerate(sequence)]

    def points(self, angles: Angles) -> list[Point]:
        """Where the residues are: each bond is the one before, turned by a bend and a torsion angle."""
        bends = len(self.sequence) - 2
        points = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0)]
        x, y, z = points[1]
        ux, uy, uz = 1.0, 0.0, 0.0  # along the last bond
        vx, vy, vz = 0.0, 1.0, 0.0  # across it, in the plane of the last two
        for i in range(bends):
            cosine, sine = math.cos(angles[i]), math.sin(angles[i])
            twist = angles[bends + i - 1] if i else 0.0
            ct, st = math.cos(twist), math.sin(twist)
            wx, wy, wz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
            nx, ny, nz = ct * vx + st * wx, ct * vy + st * wy, ct * vz + st * wz
            tx, ty, tz = cosine * ux + sine * nx, cosine * uy + sine * ny, cosine * uz + sine * nz
            vx, vy, vz = cosine * nx - sine * ux, cosine * ny - sine * uy, cosine * nz - sine * uz
            ux, uy, uz = tx, ty, tz
            x, y, z = x + ux, y + uy, z + uz
            points.append((x, y, z))
        return points

    def energy(self, angles: Angles) -> float:
        """The score of a fold."""
        points = self.points(angles)
        bends = len(points) - 2
        bending = bends - sum(map(math.cos, angles[:bends]))
        pairs = 0.0
        for i in range(2, len(points)):
            x, y, z = points[i]
            for (a, b, c), attraction in zip(points[: i - 1], self._attractions[i], strict=False):
                near = (x - a) * (x - a) + (y - b) * (y - b) + (z - c) * (z - c)
                third = 1.0 / (near * near * near) if near > CLOSEST else 1.0 / CLOSEST**3
                pairs += third * (third - attraction)
        return bending / 4 + 4 * pairs


def checked_energy(sequence: str, points: Sequence[Sequence[float]]) -> float:
    """The energy by its definition, from coordinates alone."""
    total = 0.0
    for i in range(len(points) - 2):
        before = [q - p for p, q in zip(points[i], points[i + 1], strict=True)]
        behind = [q - p for p, q in zip(points[i + 1], points[i + 2], strict=True)]
        cosine = sum(p * q for p, q in zip(before, behind, strict=True)) / (math.hypot(*before) * math.hypot(*behind))
        total += (1 - cosine) / 4
    for i in range(len(points)):
        for j in range(i + 2, len(points)):
            apart = math.dist(points[i], points[j])
            pair = sequence[i] + sequence[j]
            attraction = 1.0 if pair == "AA" else 0.5 if pair == "BB" else -0.5
            total += 4 * (apart**-12 - attraction * apart**-6)
    return total


class Search:
    """A population of folds, best first."""

    def __init__(self, chain: Chain, dice: random.Random, start: Angles | None) -> None:
        self._chain = chain
        self._dice = dice
        folds = [self._random() if start is None else self._changed(start) for _ in range(POPULATION)]
        if start is not None:
            folds[0] = start
        self._folds = sorted((chain.energy(fold), fold) for fold in folds)

    @property
    def best(self) -> tuple[float, Angles]:
        """The lowest score, and its fold."""
        return self._folds[0]

    def iterate(self) -> None:
        """Make new folds of the old ones, and keep the best of all."""
        made = []
        for _ in range(OFFSPRING):
            child = self._parent()
            if self._dice.random() < 0.5:
                at = self._dice.randrange(len(child))
                child = child[:at] + self._parent()[at:]
            child = self._changed(child)
            made.append((self._chain.energy(child), child))
        self._folds = sorted(self._folds + made)[:POPULATION]

    def _parent(self) -> Angles:
        """The better of two."""
        return min(self._dice.choice(self._folds), self._dice.choice(self._folds))[1]

    def _random(self) -> Angles:
        """A random coil: no bond turns back."""
        return [self._dice.uniform(-math.pi / 2, math.pi / 2) for _ in range(self._chain.genes)]

    def _changed(self, angles: Angles) -> Angles:
        """One to three angles are turned, by little or much: the width of a change has no scale of its own."""
        child = angles[:]
        width = 10 ** self._dice.uniform(-3, 0.3)
        for _ in range(self._dice.randint(1, 3)):
            child[self._dice.randrange(len(child))] += self._dice.gauss(0, width)
        return child


def read_start(path: Path, chain: Chain) -> Angles:
    """The fold in a file this program wrote earlier, for the same sequence."""
    written = json.loads(path.read_text())
    if written["sequence"] != chain.sequence:
        raise ValueError(f"{path} holds a fold of another sequence")
    return [float(angle) for angle in written["angles"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, fold, print a line per iteration, write the result."""
    parser = argparse.ArgumentParser(description="Fold an AB sequence by its angles with a genetic algorithm.")
    parser.add_argument("--sequence", default=FIBONACCI, help="the protein as letters A and B")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--start", type=Path, help="begin with the fold in this file, not with random ones")
    parser.add_argument("--out", type=Path, required=True, help="write the best fold and the scores here, as JSON")
    parser.add_argument("--pad", type=float, default=0.0, help="let an iteration last at least so many seconds")
    options = parser.parse_args(arguments)
    try:
        chain = Chain(options.sequence)
        start = read_start(options.start, chain) if options.start else None
    except (OSError, ValueError, KeyError) as error:
        parser.error(str(error))
    search = Search(chain, random.Random(options.seed), start)
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told_to_end.append(number))
    scores: list[float] = []
    due = time.monotonic()
    while len(scores) < options.iterations and not told_to_end:
        search.iterate()
        scores.append(search.best[0])
        print(f"iteration {len(scores):4d}  score {scores[-1]:.6f}", flush=True)
        due = max(due + options.pad, time.monotonic())
        if options.pad and not told_to_end:
            time.sleep(max(0.0, due - time.monotonic()))
    score, angles = search.best
    counted = checked_energy(chain.sequence, chain.points(angles))
    if abs(counted - score) > 1e-6 * max(1.0, abs(score)):
        print(f"the search counted {score}, the definition says {counted}", file=sys.stderr)
        return 1
    result = {"sequence": chain.sequence, "seed": options.seed, "score": score, "angles": angles, "scores": scores}
    options.out.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
