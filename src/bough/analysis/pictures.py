"""Pictures of runs: what ran on each host (a Gantt chart) and the degree of concurrency, alone or over another run.

Rule: matplotlib is loaded here and nowhere else, and only when a picture is asked for; the name of the file says which
kind it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from bough.analysis.picture_folder import make_picture_folder
from bough.analysis.run_report import Analysis, RunInterval
from bough.errors import SiteError, UserError

KINDS = (".png", ".svg", ".pdf")
_LABELLED = 60  # bars on a picture that still have room for their ids


def draw(path: str, one: Analysis, other: Analysis | None = None, seconds: float = 0.0) -> None:
    """Write a picture; of the first `seconds` of each run, if that is not 0."""
    if not path.endswith(KINDS):
        raise UserError(f"--plot {path}: the name of a picture ends with .png, .svg or .pdf")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SiteError("pictures need matplotlib: pip install 'bough[plot]'") from error
    hosts = _hosts([one, *([other] if other is not None else [])])
    figure = Figure(figsize=(11, 4.2 + 0.32 * sum(hosts.values())), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[max(1.2, 0.32 * sum(hosts.values())), 2.2])
    _gantt(upper, one, other, hosts)
    _curve(lower, one, other)
    if seconds:
        lower.set_xlim(0, seconds)
    else:
        lower.set_xlim(left=0)
    folder = os.path.dirname(os.path.abspath(path))
    make_picture_folder(folder)
    figure.savefig(path, dpi=150)


def lanes(intervals: Sequence[RunInterval]) -> list[tuple[int, RunInterval]]:
    """Each interval with the first lane of its host that is free then."""
    free: dict[str, list[float]] = {}
    found = []
    for one in intervals:
        ends = free.setdefault(one.host, [])
        lane = next((number for number, end in enumerate(ends) if end <= one.start), len(ends))
        if lane == len(ends):
            ends.append(one.end)
        else:
            ends[lane] = one.end
        found.append((lane, one))
    return found


def _hosts(runs: Sequence[Analysis]) -> dict[str, int]:
    """How many lanes each host needs."""
    hosts: dict[str, int] = {}
    for run in runs:
        for lane, one in lanes(run.intervals):
            hosts[one.host] = max(hosts.get(one.host, 1), lane + 1)
    return dict(sorted(hosts.items())) or {"": 1}


def _gantt(axes: Any, one: Analysis, other: Analysis | None, hosts: dict[str, int]) -> None:
    base, at = {}, 0
    for host, count in hosts.items():
        base[host] = at
        at += count
    begun = min((ran.start for ran in one.intervals), default=0.0)
    critical = {step.label for step in one.path}
    for lane, ran in lanes(one.intervals):
        place, left, width = base[ran.host] + lane, ran.start - begun, ran.end - ran.start
        colour = "#d1495b" if ran.label in critical else "#4f81bd"
        axes.barh(place, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.4)
        if len(one.intervals) <= _LABELLED and width > one.makespan / 60:
            axes.text(
                left + width / 2,
                place,
                ran.label,
                ha="center",
                va="center",
                fontsize=6,
                color="white",
                clip_on=True,
                in_layout=False,
            )
    if other is not None:
        begun = min((ran.start for ran in other.intervals), default=0.0)
        for lane, ran in lanes(other.intervals):
            place = base[ran.host] + lane
            axes.plot([ran.start - begun, ran.end - begun], [place, place], color="black", linewidth=1.4, marker="|")
    axes.set_yticks([base[host] + (count - 1) / 2 for host, count in hosts.items()], list(hosts))
    axes.set_ylim(at - 0.4, -0.6)
    for host in hosts:
        if base[host]:
            axes.axhline(base[host] - 0.5, color="#cccccc", linewidth=0.6)
    over = f"; run {other.run} as lines" if other is not None else ""
    axes.set_title(f"run {one.run}: what ran where, the critical path in red{over}", fontsize=10, loc="left")


def _curve(axes: Any, one: Analysis, other: Analysis | None) -> None:
    curves = [(f"run {one.run}", one.measured, "-", "#4f81bd"), ("minimal schedule", one.model, ":", "#888888")]
    if other is not None:
        curves.append((f"run {other.run}", other.measured, "--", "black"))
    for label, busy, style, colour in curves:
        if busy.steps:
            begun = busy.steps[0][0]
            times, degrees = [when - begun for when, _ in busy.steps], [degree for _, degree in busy.steps]
            axes.step(times, degrees, where="post", linestyle=style, color=colour, label=label, linewidth=1.4)
    highest = max(busy.highest for _, busy, style, _ in curves if style != ":")
    axes.set_ylim(0, 1.08 * max(1, min(one.model.highest, 4 * highest), highest))
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("seconds")
    axes.set_ylabel("running at once")
    if axes.lines:
        axes.legend(fontsize=8)
