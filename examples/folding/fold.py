"""Fold a protein on the square lattice with a genetic algorithm: a command-line program, standard library only.

The model is the hydrophobic-polar (HP) model: a protein is a string of H and P, a fold is a self-avoiding walk on
the lattice, and its energy is minus the number of H-H pairs that are neighbours on the lattice but not in the chain.
The search is that of Unger and Moult (J. Mol. Biol. 231, 1993): each iteration mutates every fold of the population
by a few Metropolis steps, crosses the better folds with each other, and keeps the best. The mutation is the pull move
of Lesh, Mitzenmacher and Whitesides (RECOMB 2003), which stays self-avoiding by construction.

Rules: everything random comes from `--seed`, so the same command always prints and writes the same. A program that is
told to end (SIGTERM) writes what it has found so far.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

WIDTH = 1024  # a lattice point (x, y) is the one number x + WIDTH * y: sets of ints are fast
STEPS = {"R": 1, "L": -1, "U": WIDTH, "D": -WIDTH}
LETTERS = {step: letter for letter, step in STEPS.items()}
AROUND = tuple(STEPS.values())
LONGEST = 400  # a longer chain could wrap round the lattice

Fold = list[int]  # the lattice point of each residue


class Chain:
    """What is known of a sequence before it is folded, laid out for counting contacts quickly."""

    def __init__(self, sequence: str) -> None:
        if not sequence or set(sequence) - {"H", "P"}:
            raise ValueError("a sequence consists of the letters H and P")
        if not 4 <= len(sequence) <= LONGEST:
            raise ValueError(f"a sequence has 4 to {LONGEST} residues, this one has {len(sequence)}")
        self.sequence = sequence
        # Neighbours on a square lattice lie an odd number of residues apart, so contacts are even-odd pairs.
        self.even = [i for i, kind in enumerate(sequence) if kind == "H" and i % 2 == 0]
        self.odd = [i for i, kind in enumerate(sequence) if kind == "H" and i % 2 == 1]
        self.bonded = sum(a == b == "H" for a, b in itertools.pairwise(sequence))

    def energy(self, fold: Fold) -> int:
        """Minus the number of H-H contacts; the search's fast count (`checked_energy` is the slow one)."""
        odd = {fold[i] for i in self.odd}
        found = 0
        for i in self.even:
            here = fold[i]
            found += (here + 1 in odd) + (here - 1 in odd) + (here + WIDTH in odd) + (here - WIDTH in odd)
        return self.bonded - found


def checked_energy(sequence: str, moves: str) -> int:
    """The energy of a walk given as moves, from the definition: every pair of residues is looked at.

    Independent of the search: plain coordinates, no shortcuts. ValueError if the walk is not a fold of the sequence.
    """
    if len(moves) != len(sequence) - 1:
        raise ValueError(f"{len(sequence)} residues need {len(sequence) - 1} moves, not {len(moves)}")
    vectors = {"R": (1, 0), "L": (-1, 0), "U": (0, 1), "D": (0, -1)}
    points = [(0, 0)]
    for letter in moves:
        dx, dy = vectors[letter]
        points.append((points[-1][0] + dx, points[-1][1] + dy))
    if len(set(points)) != len(points):
        raise ValueError("the walk crosses itself")
    contacts = 0
    for i in range(len(points)):
        for j in range(i + 2, len(points)):
            apart = abs(points[i][0] - points[j][0]) + abs(points[i][1] - points[j][1])
            contacts += apart == 1 and sequence[i] == sequence[j] == "H"
    return -contacts


def moves_of(fold: Fold) -> str:
    """A fold as a string of R, L, U, D, first step to the right, first turn up: one name per shape."""
    steps = [b - a for a, b in itertools.pairwise(fold)]
    turned = {steps[0]: "R", -steps[0]: "L"}
    for step in steps:
        if step not in turned:
            turned |= {step: "U", -step: "D"}
            break
    return "".join(turned[step] for step in steps)


def fold_of(moves: str) -> Fold:
    """The lattice points of a string of moves, from the middle of the lattice."""
    fold = [WIDTH * WIDTH // 2 + WIDTH // 2]
    for letter in moves:
        fold.append(fold[-1] + STEPS[letter])
    return fold


def pulled(fold: Fold, dice: random.Random) -> Fold | None:
    """The fold after one random pull move, or None where the drawn one is not possible."""
    flipped = dice.random() < 0.5  # pull towards either end of the chain
    chain = fold[::-1] if flipped else fold[:]
    taken = set(chain)
    i = int(dice.random() * (len(chain) - 1))
    moved = _pull_end(chain, taken, dice) if i == 0 else _pull_inside(chain, taken, i, dice)
    if not moved:
        return None
    return chain[::-1] if flipped else chain


def _pull_end(chain: Fold, taken: set[int], dice: random.Random) -> bool:
    """Move the first two residues to free points and let the rest follow; or only swing the first one."""
    if dice.random() < 0.5:
        spot = chain[1] + AROUND[int(dice.random() * 4)]
        if spot in taken:
            return False
        chain[0] = spot
        return True
    near = chain[0] + AROUND[int(dice.random() * 4)]
    far = near + AROUND[int(dice.random() * 4)]
    if near in taken or far in taken:
        return False
    old = chain[:]
    chain[0], chain[1] = far, near
    chain[2:] = old[:-2]
    return True


def _pull_inside(chain: Fold, taken: set[int], i: int, dice: random.Random) -> bool:
    """Move residue i across the square it shares with i+1, and pull those before it until they touch again."""
    bond = chain[i + 1] - chain[i]
    side = (WIDTH if abs(bond) == 1 else 1) * (1 if dice.random() < 0.5 else -1)
    corner = chain[i] + side
    spot = chain[i + 1] + side
    if spot in taken:
        return False
    if chain[i - 1] == corner:  # the corner flips, nothing is pulled
        chain[i] = spot
        return True
    if corner in taken:
        return False
    old = chain[:]
    chain[i], chain[i - 1] = spot, corner
    j = i - 2
    while j >= 0 and abs(chain[j] - chain[j + 1]) not in (1, WIDTH):
        chain[j] = old[j + 2]
        j -= 1
    return True


def crossed(one: Fold, other: Fold, dice: random.Random) -> Fold | None:
    """The head of one fold and the tail of another, joined in the first of three directions that is free of knots."""
    cut = dice.randrange(2, len(one) - 2)
    head = one[:cut]
    taken = set(head)
    steps = [b - a for a, b in zip(other[cut - 1 :], other[cut:], strict=False)]
    back = head[-2] - head[-1]
    directions = [step for step in AROUND if step != back]
    dice.shuffle(directions)
    for direction in directions:
        turn = _turning(steps[0], direction)
        child = head[:]
        for step in steps:
            spot = child[-1] + turn[step]
            if spot in taken:
                break
            child.append(spot)
        else:
            return child
    return None


def _turning(first: int, wanted: int) -> dict[int, int]:
    """The rotation of the lattice that takes one direction to another."""
    circle = (1, WIDTH, -1, -WIDTH)
    by = circle.index(wanted) - circle.index(first)
    return {step: circle[(k + by) % 4] for k, step in enumerate(circle)}


class Population:
    """Folds with their energies, best first."""

    def __init__(self, chain: Chain, start: Fold, size: int, dice: random.Random) -> None:
        self.chain = chain
        self.dice = dice
        self.members = [(chain.energy(start), start)]
        for kicks in range(1, size):  # the others a little and a lot away from it
            fold = start
            for _ in range(kicks):
                fold = pulled(fold, dice) or fold
            self.members.append((chain.energy(fold), fold))
        self.members.sort(key=_energy)

    def iterate(self, heat: float) -> None:
        """One iteration: mutate all but the best, cross the better ones, keep the best of old and new."""
        size = len(self.members)
        elite = self.members[:2]
        mutants = [self._mutated(member, heat) for member in self.members]
        mutants.sort(key=_energy)
        children = []
        for _ in range(size // 2):
            one, other = self._chosen(mutants), self._chosen(mutants)
            child = crossed(one[1], other[1], self.dice)
            if child is not None:
                energy = self.chain.energy(child)
                parents = (one[0] + other[0]) / 2
                if energy <= parents or self.dice.random() < math.exp((parents - energy) / heat):
                    children.append((energy, child))
        self.members = _distinct(sorted(elite + mutants + children, key=_energy), size)

    def _mutated(self, member: tuple[int, Fold], heat: float, tries: int = 12) -> tuple[int, Fold]:
        """A walk of Metropolis steps from a fold."""
        energy, fold = member
        for _ in range(tries):
            changed = pulled(fold, self.dice)
            if changed is None:
                continue
            new = self.chain.energy(changed)
            if new <= energy or self.dice.random() < math.exp((energy - new) / heat):
                energy, fold = new, changed
        return energy, fold

    def _chosen(self, members: list[tuple[int, Fold]]) -> tuple[int, Fold]:
        """The better of two drawn at random; members are sorted."""
        return members[min(int(self.dice.random() * len(members)), int(self.dice.random() * len(members)))]


def _energy(member: tuple[int, Fold]) -> int:
    return member[0]


def _distinct(members: list[tuple[int, Fold]], size: int) -> list[tuple[int, Fold]]:
    """The best folds, no shape twice as long as there are enough others: a population of clones finds nothing."""
    seen: set[tuple[int, ...]] = set()
    first: list[tuple[int, Fold]] = []
    again: list[tuple[int, Fold]] = []
    for member in members:
        fold = member[1]
        shape = tuple(point - fold[0] for point in fold)
        (again if shape in seen else first).append(member)
        seen.add(shape)
    return (first + again)[:size]


def search(
    sequence: str, *, seed: int, iterations: int, population: int = 20, start: str | None = None
) -> Iterator[tuple[int, str]]:
    """Search for a good fold; after each iteration, the best energy so far and the moves of that fold."""
    chain = Chain(sequence)
    folds = Population(chain, fold_of(start or "R" * (len(sequence) - 1)), population, random.Random(seed))
    for iteration in range(iterations):
        # Warm first, to leave the straight line or the given fold behind; cooler towards the end, to settle.
        folds.iterate(heat=0.5 + 0.5 * (1 - iteration / iterations))
        energy, best = folds.members[0]
        yield energy, moves_of(best)


def read_moves(path: Path, sequence: str) -> str:
    """The fold in a file this program wrote earlier, for the same sequence."""
    written = json.loads(path.read_text())
    if written["sequence"] != sequence:
        raise ValueError(f"{path} holds a fold of another sequence")
    checked_energy(sequence, written["moves"])
    return str(written["moves"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, fold, print a line per iteration, write the result."""
    parser = argparse.ArgumentParser(description="Fold an HP sequence on the square lattice with a genetic algorithm.")
    parser.add_argument("sequence", help="the protein as letters H and P")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--population", type=int, default=20)
    parser.add_argument("--start", type=Path, help="begin with the fold in this file, not with a straight line")
    parser.add_argument("--out", type=Path, help="write the best fold and the scores here, as JSON")
    parser.add_argument("--pad", type=float, default=0.0, help="let an iteration last at least so many seconds")
    options = parser.parse_args(arguments)
    if options.iterations < 1 or options.population < 4:
        parser.error("needs at least 1 iteration and a population of 4")
    try:
        Chain(options.sequence)
        start = read_moves(options.start, options.sequence) if options.start else None
    except (OSError, ValueError, KeyError) as error:
        parser.error(str(error))
    scores, moves = [], ""
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told_to_end.append(number))
    due = time.monotonic()
    for score, moves in search(  # noqa: B007 - the moves of the last iteration are the result
        options.sequence,
        seed=options.seed,
        iterations=options.iterations,
        population=options.population,
        start=start,
    ):
        scores.append(score)
        print(f"iteration {len(scores):4d}  score {score}", flush=True)
        due = max(due + options.pad, time.monotonic())
        if options.pad and not told_to_end:
            time.sleep(max(0.0, due - time.monotonic()))
        if told_to_end:
            break
    energy = checked_energy(options.sequence, moves)
    if energy != scores[-1]:
        print(f"the search counted {scores[-1]}, the definition says {energy}", file=sys.stderr)
        return 1
    if options.out:
        result = {
            "sequence": options.sequence,
            "seed": options.seed,
            "energy": energy,
            "moves": moves,
            "scores": scores,
        }
        options.out.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
