"""`bough status --analyse`: what a run took, the least it could have taken, and a picture of it.

Rule: looks and changes nothing but the picture that was asked for.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bough.cli.database import Database
from bough.cli.numbers import amount, count
from bough.cli.output import Output, show_seconds, table_lines
from bough.cli.picking import choose_run
from bough.errors import UnknownName, UserError

if TYPE_CHECKING:
    from bough.analysis import Analysis

_LONGEST = 40  # tasks of a critical path that are shown; JSON has all


def add_analysis_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the analysis."""
    parser.add_argument("--analyse", action="store_true", help="critical path, lower bound, degree of concurrency")
    parser.add_argument("--plot", metavar="FILE", help="with --analyse: draw it, as FILE.png, FILE.svg or FILE.pdf")
    parser.add_argument(
        "--with", dest="other", type=count, metavar="RUN", help="with --analyse: draw another run over it"
    )
    parser.add_argument(
        "--first", type=amount, default=0.0, metavar="SECONDS", help="with --plot: only so much of the beginning"
    )


def show_analysis(database: Database, args: argparse.Namespace, output: Output) -> int:
    """Analyse a run, and perhaps another one."""
    if args.first < 0:
        raise UserError(f"--first {args.first:g}: say how many seconds, above 0")
    one = _analysed(database, choose_run(database, args))
    other = _analysed(database, args.other) if args.other is not None else None
    if args.plot:
        from bough.analysis.drawing import draw

        draw(args.plot, one, other, args.first)
    value = one.as_json()
    if other is not None:
        value["other"] = other.as_json()
    output.answer(value, lambda: _text(one, other))
    if args.plot:
        output.note(f"drawn: {args.plot}")
    return 0


def _analysed(database: Database, run: int) -> Analysis:
    if not database.rows("select run from runs where run = ?", [run]):
        raise UnknownName(f"there is no run {run} in {database.label}; the latest is {database.last_run()}")
    from bough.analysis import analyse

    return analyse(database.rows, run)


def _text(one: Analysis, other: Analysis | None) -> list[str]:
    lines = _figures(one)
    if other is not None:
        lines += ["", *_figures(other)]
    if one.path:
        longest = sorted(one.path, key=lambda step: -step.seconds)[:_LONGEST]
        shown = [step for step in one.path if step in longest]
        left = len(one.path) - len(shown)
        more = f", the {len(shown)} longest of {len(one.path)}" if left else ""
        lines += ["", f"critical path{more}:"]
        rows = [[step.label, step.name, round(step.start, 3), round(step.seconds, 3)] for step in shown]
        lines += table_lines(["TASK", "NAME", "START", "SECONDS"], rows)
    return lines


def _figures(one: Analysis) -> list[str]:
    ratio = f", {one.over_bound:.2f} times the lower bound" if one.over_bound is not None else ""
    at = ", ".join(f"{degree}: {show_seconds(seconds)}" for degree, seconds in one.measured.at.items())
    return [
        f"run {one.run}: {show_seconds(one.makespan)} from the first start to the last end{ratio}",
        f"minimal schedule: {show_seconds(one.minimal)} on any number of cores, at most {one.model.highest} at once",
        f"work: {show_seconds(one.work)} on {one.cores:g} cores, at least {show_seconds(one.bound)}",
        f"running at once: {one.measured.mean:.2f} on average, {one.measured.highest} at most; {at or 'nothing ran'}",
    ]
