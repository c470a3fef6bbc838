"""Pictures of Jole's evaluation: how many instances ran at each site, and the best score over time.

Rule: the first seed is drawn; the table has them all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bough.analysis.picture_folder import make_picture_folder
from bough.errors import SiteError

if TYPE_CHECKING:
    from bough.analysis.jole_study import Measured, Results

_COLOURS = {"A": "#4f81bd", "B": "#d1495b"}


def draw(folder: str, found: Results) -> None:
    """Write `instances.png` and `scores.png` into a folder."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SiteError("pictures need matplotlib: pip install 'bough[plot]'") from error
    make_picture_folder(folder)
    first = {name: runs[0] for name, runs in found.items()}
    figure = Figure(figsize=(10, 2.1 * len(first)), layout="constrained")
    for axes, (name, measured) in zip(figure.subplots(len(first), 1, squeeze=False)[:, 0], first.items(), strict=True):
        _instances(axes, name, measured)
    figure.savefig(os.path.join(folder, "instances.png"), dpi=150)
    figure = Figure(figsize=(10, 5), layout="constrained")
    _scores(figure.subplots(), first)
    figure.savefig(os.path.join(folder, "scores.png"), dpi=150)


def running(ran: Sequence[tuple[str, float, float]], site: str) -> list[tuple[float, int]]:
    """When the number of running instances at a site changed, and to what."""
    changes: dict[float, int] = {}
    for where, start, end in ran:
        if where == site:
            changes[start] = changes.get(start, 0) + 1
            changes[end] = changes.get(end, 0) - 1
    steps, now = [(0.0, 0)], 0
    for when in sorted(changes):
        now += changes[when]
        steps.append((when, now))
    return steps


def _instances(axes: Any, name: str, measured: Measured) -> None:
    for site, colour in _COLOURS.items():
        steps = running(measured.ran, site)
        axes.step(
            [when for when, _ in steps],
            [number for _, number in steps],
            where="post",
            color=colour,
            label=f"site {site}",
        )
    axes.set_title(name, fontsize=10, loc="left")
    axes.set_xlim(0, measured.makespan)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("instances")
    axes.set_xlabel("seconds")
    axes.legend(fontsize=8, loc="lower right")


def _scores(axes: Any, first: dict[str, Measured]) -> None:
    for name, measured in first.items():
        times = [when for when, _ in measured.scores] + [measured.makespan]
        scores = [score for _, score in measured.scores] + [measured.best]
        axes.step(times, scores, where="post", label=name)
    axes.set_xlabel("seconds")
    axes.set_ylabel("best score so far (lower is better)")
    axes.legend(fontsize=8)
