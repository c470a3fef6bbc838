"""`bough describe`: what a workflow file says, in another form; nothing is submitted.

Forms follow each other: a description script becomes a Makefile, a Makefile a flat list, a flat list the tasks that
`bough run` submits. Rule: every form that can be read gives back the same workflow.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bough.cli.output import Output
from bough.cli.recording import add_run_arguments
from bough.errors import UserError

if TYPE_CHECKING:
    from bough.describe.lowering import Step
    from bough.describe.plan import Plan

EXAMPLES = (
    "bough describe survey.py 3 4",
    "bough describe --to make survey.py 3 4 > survey.make",
    "bough describe --to flat survey.make",
    "bough describe --to dot survey.make | dot -Tsvg > survey.svg",
    "bough describe --to dot Makefile all",
    "bough describe --run survey --to wfformat > survey.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    from bough.describe.formats import WRITERS

    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a description script, a Makefile, a flat list, a .dag file or JSON; - for stdin",
    )
    rest = parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments of the script")
    rest.required = False
    parser.add_argument("--to", metavar="FORM", help=f"write it as {', '.join(WRITERS)} (default: a summary)")
    add_run_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Show one file."""
    if args.run_of is not None:
        from bough.cli.recording import show_run

        return show_run(args)
    if args.file is None:
        raise UserError("give a workflow file, or --run NAME for what has run")
    from bough.cli.descriptions import File
    from bough.cli.run import is_script
    from bough.describe.formats import write
    from bough.describe.lowering import steps

    if is_script(args.file):
        raise UserError(f"{args.file} is a Python script that submits by itself; what it does shows when it runs")
    form, words = _form_behind(args.to, args.args)
    plan = File(args.file).plan(words, note=output.note)
    lowered = steps(plan)  # which finds what is wrong with it
    if form:
        print(write(plan, form), end="")
        return 0
    output.answer(_summary(plan, lowered), lambda: _lines(plan, lowered))
    return 0


def _form_behind(form: str | None, words: list[str]) -> tuple[str | None, list[str]]:
    """`--to FORM` may also stand at the very end, behind the arguments of the file."""
    if len(words) >= 2 and words[-2] == "--to" and form is None:
        return words[-1], words[:-2]
    return form, words


def _summary(plan: Plan, lowered: list[Step]) -> dict[str, object]:
    groups = [group for path, group in plan.walk() if path]
    return {
        "levels": plan.levels,
        "groups": len(groups),
        "groups_by_level": dict(Counter(group.level for group in groups)),
        "tasks": plan.task_count,
        "declared": sum(len(group.after) for group in groups),
        "dependencies": sum(len(step.waits) for step in lowered),
    }


def _lines(plan: Plan, lowered: list[Step]) -> Iterator[str]:
    said = _summary(plan, lowered)
    yield f"{said['tasks']} tasks in {said['groups']} groups, which wait for {said['declared']} others"
    for level, number in Counter(group.level for path, group in plan.walk() if path).items():
        if level:
            yield f"  {level}: {number} groups"
    yield f"{said['dependencies']} dependencies are submitted"
