"""Draw the course of a folding run and its best fold: a command-line program, run as the last task of the workflow.

The left half shows the score of every instance over the iterations of all generations, with the best and the mean of
each generation; the right half the best fold on its lattice: H filled, P hollow, contacts dotted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # no screen is needed, and none is looked for

import matplotlib.pyplot as plt

VECTORS = {"R": (1, 0), "L": (-1, 0), "U": (0, 1), "D": (0, -1)}
INK, FAINT, WARM = "#1f3a4d", "#9db4c0", "#c8553d"

Result = dict[str, Any]


def read_generations(paths: Sequence[Path]) -> list[list[Result]]:
    """The results by generation: the folder of a file, `generation-3`, says which one it is of."""
    by_number: dict[int, list[Result]] = {}
    for path in paths:
        number = int(path.parent.name.rpartition("-")[2])
        by_number.setdefault(number, []).append(json.loads(path.read_text()))
    return [by_number[number] for number in sorted(by_number)]


def draw_scores(axes: Any, generations: list[list[Result]]) -> None:
    """Every instance as a thin line, best and mean of the generations as thick ones."""
    ends, best, mean = [], [], []
    begin = 0
    for results in generations:
        for result in results:
            steps = range(begin + 1, begin + 1 + len(result["scores"]))
            axes.plot(steps, result["scores"], color=FAINT, linewidth=0.6, alpha=0.7)
        begin += max(len(result["scores"]) for result in results)
        axes.axvline(begin, color=FAINT, linewidth=0.4, linestyle=":")
        energies = [result["energy"] for result in results]
        ends.append(begin)
        best.append(min(energies))
        mean.append(sum(energies) / len(energies))
    axes.plot(ends, mean, color=INK, linewidth=1.5, marker="o", markersize=4, label="mean of the generation")
    axes.plot(ends, best, color=WARM, linewidth=1.8, marker="o", markersize=5, label="best of the generation")
    axes.set_xlabel("iterations, generation after generation")
    axes.set_ylabel("score (energy, lower is better)")
    axes.set_title(f"{len(generations)} generations of {len(generations[0])} instances")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def draw_fold(axes: Any, result: Result) -> None:
    """The chain on its lattice."""
    sequence: str = result["sequence"]
    points = [(0, 0)]
    for letter in result["moves"]:
        points.append((points[-1][0] + VECTORS[letter][0], points[-1][1] + VECTORS[letter][1]))
    where = {point: i for i, point in enumerate(points)}
    for (x, y), i in where.items():
        for dx, dy in ((1, 0), (0, 1)):
            j = where.get((x + dx, y + dy))
            if j is not None and abs(i - j) > 1 and sequence[i] == sequence[j] == "H":
                axes.plot([x, x + dx], [y, y + dy], color=WARM, linewidth=1.2, linestyle=":", zorder=1)
    axes.plot(*zip(*points, strict=True), color=INK, linewidth=2, zorder=2)
    size = 1600 / max(len(points) ** 0.5 * 2, 10)
    for kind, face in (("H", INK), ("P", "white")):
        chosen = [point for point, letter in zip(points, sequence, strict=True) if letter == kind]
        if chosen:
            axes.scatter(
                *zip(*chosen, strict=True), s=size, facecolor=face, edgecolor=INK, linewidth=1.5, zorder=3, label=kind
            )
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(f"the best fold: {-result['energy']} H-H contacts, {len(sequence)} residues")
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.12, 1.0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and write the picture."""
    parser = argparse.ArgumentParser(description="Draw the scores and the best fold of a folding run.")
    parser.add_argument("results", type=Path, nargs="+", help="files that fold.py wrote, in folders generation-N")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    options = parser.parse_args(arguments)
    generations = read_generations(options.results)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), width_ratios=[1.25, 1], layout="constrained")
    draw_scores(left, generations)
    draw_fold(
        right, min((result for results in generations for result in results), key=lambda result: result["energy"])
    )
    figure.savefig(options.out, dpi=120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
