"""`bough describe`: what a workflow file says, or what has run, in another form; nothing is submitted.

Forms follow each other: a description script becomes a Makefile, a Makefile a flat list, a flat list the tasks that
`bough run` submits. `--run` writes a workflow that has run, with its times, machines and files, as WfFormat or DOT
(`analysis.run_records`).
Rule: every form that can be read gives back the same workflow.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bough.cli.option_values import path_name
from bough.cli.output import Output
from bough.cli.targets.locate import add_server_argument
from bough.describe.workflow_files import File, is_script
from bough.errors import UserError
from bough.model.bounds import Count, read_number
from bough.model.texts.plurals import counted

if TYPE_CHECKING:
    from bough.describe.plan import Plan
    from bough.describe.steps import Step

EXAMPLES = (
    "bough describe survey.py 3 4",
    "bough describe --to make survey.py 3 4 > survey.make",
    "bough describe --to flat survey.make",
    "bough describe --to dot survey.make | dot -Tsvg > survey.svg",
    "bough describe --to dot Makefile all",
    "bough describe --check survey.make",
    "bough describe --run survey --to wfformat > survey.json",
)
_RUN_FORMS = ("wfformat", "dot")  # in which a run can be written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a description script, a Makefile, a flat list, a .dag file or JSON; - for stdin",
    )
    rest = parser.add_argument(
        "args",
        nargs=argparse.REMAINDER,
        metavar="ARGS",
        help="arguments of the script, or targets of the Makefile; options stand before a script",
    )
    rest.required = False
    _add_form_arguments(parser)
    parser.add_argument("--node", metavar="NAME", help=argparse.SUPPRESS)  # of a .dag file: the shell text of its jobs
    _add_run_arguments(parser)


def _add_form_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that may also stand behind the file."""
    from bough.describe.formats import WRITERS

    parser.add_argument("--to", metavar="FORM", help=f"write it as {', '.join(WRITERS)} (default: a summary)")
    parser.add_argument(
        "--check", action="store_true", help="name redundant dependencies, and what each supergroup costs by model runs"
    )
    parser.add_argument("--seconds", metavar="TIME", help="with --check: what tasks take that say nothing (1s)")


def run(args: argparse.Namespace, output: Output) -> int:
    """Show one file."""
    if args.run_of is not None:
        return _show_run(args)
    if args.file is None:
        raise UserError("give a workflow file, or --run NAME for what has run")
    if args.node is not None:
        from bough.describe.dagman.dag_plan import node_text

        print(node_text(args.file, args.node))
        return 0
    from bough.describe.formats import left_out, write
    from bough.describe.steps import steps

    if is_script(args.file):
        raise UserError(f"{args.file} is a Python script that submits by itself; what it does shows when it runs")
    file = File(args.file)
    words = _options_behind(args, file)
    form = args.to
    if args.check and form:
        raise UserError("--check and --to exclude each other; give one")
    if args.seconds is not None and not args.check:
        raise UserError("--seconds goes with --check; give both, or leave --seconds out")
    plan = file.plan(words, note=output.note)
    lowered = steps(plan)  # which finds what is wrong with it
    if args.check:
        return _check(plan, args.seconds, output)
    if form:
        print(write(plan, form), end="")
        if lost := left_out(plan, form):
            output.note(lost)
        return 0
    output.answer(_summary(plan, lowered), lambda: _lines(plan, lowered))
    return 0


def _check(plan: Plan, seconds: str | None, output: Output) -> int:
    """What it could do without."""
    from bough.analysis.description_check import check_lines, redundant_edges, supergroup_costs
    from bough.model.ids import read_seconds

    try:
        unknown = read_seconds(seconds if seconds is not None else "1s")
    except ValueError as error:
        raise UserError(f"--seconds {seconds!r} is no time: {error}") from None
    edges, costs = redundant_edges(plan), supergroup_costs(plan, unknown=unknown)
    value = {
        "redundant": [
            {"waiting": one.waiting, "on": one.on, "because": one.because, "line": one.where.line} for one in edges
        ],
        "supergroups": [
            {
                "group": one.path,
                "subgroups": one.subgroups,
                "makespan": one.makespan,
                "free": one.free,
                "matched": one.matched,
                "cost": one.cost,
            }
            for one in costs
        ],
    }
    output.answer(value, lambda: check_lines(edges, costs))
    return 0


def _options_behind(args: argparse.Namespace, file: File) -> list[str]:
    """Read the options that stand behind the file into `args`; what is left are the arguments of the file.

    A script may have options of its own, of the same names: behind one only `--to FORM` at the very end is ours, and
    `--seconds TIME` if it is checked.
    """
    words: list[str] = args.args
    if file.reader is not None and file.reader.form == "script":
        last = words[-2] if len(words) >= 2 else ""
        if last == "--to" and args.to is None:
            args.to = words[-1]
        elif last == "--seconds" and args.check and args.seconds is None:
            args.seconds = words[-1]
        else:
            return words
        return words[:-2]
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    _add_form_arguments(parser)
    try:
        given, left = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from None
    args.to, args.seconds = args.to or given.to, args.seconds or given.seconds
    args.check = args.check or given.check
    return left


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
    groups = [group for path, group in plan.walk() if path]
    inside = f" in {counted(len(groups), 'group')}" if groups else ""
    waits = sum(len(step.waits) for step in lowered)
    yield f"{counted(plan.task_count, 'task')}{inside}, with {counted(waits, 'dependency', 'dependencies')}"
    for level, number in Counter(group.level for group in groups).items():
        if level:
            yield f"  {level}: {counted(number, 'group')}"


# --- what has run -------------------------------------------------------------------------------------


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run", dest="run_of", metavar="NAME", help="a workflow that has run (NAME:N: its run N) instead of a file"
    )
    parser.add_argument(
        "--store", type=path_name, metavar="DIR", help="with --run: where stores are, or one store itself"
    )
    add_server_argument(parser)


def _show_run(args: argparse.Namespace) -> int:
    if args.check or args.seconds is not None:
        raise UserError(f"--run {args.run_of}: --check is of a workflow file; leave --check and --seconds out")
    if args.file is not None:
        raise UserError(f"--run {args.run_of}: a run is described without a file; leave {args.file} out")
    form = args.to or "wfformat"
    if form not in _RUN_FORMS:
        raise UserError(f"a run is written as {' or '.join(_RUN_FORMS)}, not as {form!r}")
    name, colon, number = args.run_of.rpartition(":")
    if not colon:
        name, number = args.run_of, ""
    if colon and not number.isdecimal():
        raise UserError(f"--run {args.run_of}: give a name, or a name and the number of a run, such as survey:2")
    from bough.analysis.run_records import read_record
    from bough.cli.targets.jobs_database import open_database
    from bough.cli.targets.selection import choose_run

    run = read_number("the number of the run", number or "0", Count)
    asked = argparse.Namespace(name=name or None, run=run, store=args.store, server=args.server)
    with open_database(asked) as database:
        record = read_record(database, choose_run(database, asked), database.label)
    if form == "dot":
        from bough.describe.dot import write

        print(write(record), end="")
        return 0
    from bough import __version__
    from bough.describe import wfformat

    print(wfformat.write(record, version=__version__), end="")
    return 0
