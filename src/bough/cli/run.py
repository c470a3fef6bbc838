"""`bough run`: run a workflow to its end, with live progress.

A Python script runs as `__main__`, and the options become defaults of its sessions; a flat list, and whatever else
describes a workflow, is submitted through a session of our own. Rule: with `--json` standard output carries one
object and nothing else; what a script prints goes to standard error then.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bough.cli.emulating import add_emulation_arguments, emulation_of
from bough.cli.finding import add_server_argument, store_of
from bough.cli.numbers import path_name
from bough.cli.output import Output, choose, print_json
from bough.describe.files import read_file
from bough.errors import InvalidWorkload, UserError

if TYPE_CHECKING:
    from bough.cli.descriptions import File
    from bough.describe.flat import FlatTask
    from bough.describe.lowering import Step
    from bough.describe.plan import Plan, PlanTask

EXAMPLES = (
    "bough run workflow.py --options-of the script",
    "bough run --cores 4 --fail-fast commands.txt",
    "seq 1 100 | sed 's/^/echo /' | bough run -",
    "bough run survey.py 3 4                # a description script and its arguments",
    "bough run Makefile all CFLAGS=-O3",
    "bough run trace.json --emulate --scale 0.01",
)

_DIGITS = 6  # of a number of cores
_TELLING = (b"generateGroup", b"bough.describe")  # one of these is in every description script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a Python script, a workflow description (see bough describe) or a flat list; - for stdin",
    )
    rest = parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments of the script")
    rest.required = False  # argparse would name them when the file is missing
    parser.add_argument("--cores", type=_cores, metavar="N", help="use N cores (default: all this process may use)")
    parser.add_argument("--policy", metavar="NAME", help="the placement policy, such as fifo (default) or sjf")
    parser.add_argument("--fresh", action="store_true", help="run everything, also what earlier runs have done")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
    parser.add_argument("--dry-run", action="store_true", help="show what a file would run, and run nothing")
    parser.add_argument("--name", metavar="NAME", help="the workflow's name (default: the file's stem)")
    parser.add_argument(
        "--store", type=path_name, metavar="DIR", help="the folder of its store (default: ./.bough/NAME)"
    )
    add_emulation_arguments(parser)
    parser.add_argument("--site", metavar="SITE", help=argparse.SUPPRESS)
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Run one file."""
    if is_script(args.file):
        return _run_script(args)
    from bough.cli.descriptions import File

    file = File(args.file)
    if args.args and not file.takes_arguments:
        args = _options_after_file(args)
        output = choose(json=args.json, quiet=args.quiet)
    if emulation_of(args) is None and file.reader is None:
        return _run_list(args, output, file)
    return _run_plan(args, output, file)


def is_script(path: str) -> bool:
    """Whether a file is a Python script that does its own submitting; it is not run to find that out."""
    if path == "-":
        return False
    try:
        if not path.endswith(".py") and not _calls_python(path):
            return False
        data = read_file(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not any(word in data for word in _TELLING):
        return True
    from bough.describe.scripts import is_description

    return not is_description(data)


def _calls_python(path: str) -> bool:
    """Whether the first line of a file says so; what a pipe holds can be read once, and is no script."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def _cores(text: str) -> int:
    if not (text.isdecimal() and len(text) <= _DIGITS and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a number of cores, 1 or more")
    return int(text)


def _refuse_elsewhere(args: argparse.Namespace) -> None:
    if args.site:
        raise UserError("--site: this version knows no sites; leave the option out")
    if args.server:
        for option in ("cores", "store"):
            if getattr(args, option):
                raise UserError(f"--{option} is for runs on this machine; with --server leave it out")


def _options_after_file(args: argparse.Namespace) -> argparse.Namespace:
    """A flat list takes no arguments: what stands behind it are options of ours."""
    from bough.cli.main import make_parser

    parser = make_parser("run", sys.modules[__name__])
    more = parser.parse_args([*args.args, "--", args.file])
    if more.args:
        raise UserError(f"a flat list takes no arguments, but options: {' '.join(args.args)}")
    given = {key: value for key, value in vars(args).items() if value and key != "args"}
    return argparse.Namespace(**(vars(more) | given))


def _options(args: argparse.Namespace) -> dict[str, object]:
    """What the sessions are to take as defaults."""
    return {
        "server": args.server,
        "name": args.name,
        "store": args.store,
        "cores": args.cores,
        "policy": args.policy,
        "fresh": args.fresh or None,
        "fail_fast": args.fail_fast or None,
    }


def _run_script(args: argparse.Namespace) -> int:
    _refuse_elsewhere(args)
    if args.dry_run:
        raise UserError("--dry-run is for flat lists; a Python script decides what to run while it runs")
    from bough.cli.running import watched_run
    from bough.cli.script import run_script

    with _prints_to_stderr(args.json):
        ended = watched_run(
            lambda: run_script(args.file, args.args), _options(args), silent=args.json or args.quiet, strict=False
        )
    if args.json:
        print_json(ended.as_json())
    return ended.exit_code


def _run_plan(args: argparse.Namespace, output: Output, file: File) -> int:
    _refuse_elsewhere(args)
    plan = file.plan(args.args, emulation_of(args), output.note)
    from bough.describe.lowering import steps

    lowered = steps(plan)
    if args.dry_run and _shows_difference(args, output, args.name or file.stem, lowered, whole=file.is_whole):
        return 0
    if args.dry_run:
        tasks = [step.task for step in lowered if step.task is not None]
        output.answer(
            [{"command": task.command, "name": task.name} for task in tasks], lambda: _flat_lines(plan, tasks)
        )
        return 0
    from bough.cli.running import submit_steps

    return _watched(args, lambda: submit_steps(lowered, args.name or file.stem, output.note, whole=file.is_whole))


def _shows_difference(
    args: argparse.Namespace, output: Output, name: str, steps: Sequence[Step], *, whole: bool = True
) -> bool:
    """Show what would be different about a workflow that goes on at a server; whether there is one."""
    from bough.api import defaults

    if not defaults.server(args.server):
        return False
    from bough.cli.amending import foresee
    from bough.cli.submission import server_address

    foreseen = foresee(server_address(args.server), name, steps, whole=whole)
    if foreseen.found is not None:
        foreseen.show(output)
    return foreseen.found is not None


def _watched(args: argparse.Namespace, submit: Callable[[], int]) -> int:
    """Run what is submitted to its end, and say how that was."""
    from bough.cli.running import watched_run

    ended = watched_run(submit, _options(args), silent=args.json or args.quiet, strict=True)
    if args.json:
        print_json(ended.as_json())
    return ended.exit_code


def _flat_lines(plan: Plan, tasks: list[PlanTask]) -> list[str]:
    """A plan as a flat list; one that a flat list cannot hold, as names and commands."""
    from bough.describe import flatplan

    try:
        return flatplan.write(plan).splitlines()
    except InvalidWorkload:
        return [f"{task.name}: {task.command}" for task in tasks]


def _run_list(args: argparse.Namespace, output: Output, file: File) -> int:
    _refuse_elsewhere(args)
    from bough.describe import flat

    tasks = flat.read(file.source.text, file.source.name)
    if args.dry_run:
        from bough.describe.flatsteps import flat_steps

        name = args.name or file.stem
        shown = _shows_difference(args, output, name, flat_steps(tasks, file.source.name))
        return 0 if shown else _foresee(tasks, args, output, file.stem)
    from bough.cli.running import submit_all

    return _watched(args, lambda: submit_all(tasks, args.name or file.stem, file.source.name, output.note))


def _foresee(tasks: list[FlatTask], args: argparse.Namespace, output: Output, name: str) -> int:
    """Show the tasks that are not done yet, as a flat list."""
    from bough.describe import flat

    left = tasks
    place = store_of(args.store, args.name or name)
    if place is not None and not args.fresh:
        from bough.cli.database import Database, catch_up
        from bough.cli.foresight import finished, would_run

        catch_up(place)
        with Database(place) as database:
            left = would_run(tasks, finished(database))
    if len(left) < len(tasks):
        output.note(f"{len(tasks) - len(left)} of {len(tasks)} tasks are done and would be reused")
    output.answer([task._asdict() for task in left], lambda: map(flat.show_task, left))
    return 0


@contextmanager
def _prints_to_stderr(wanted: bool) -> Iterator[None]:
    """Keep standard output for the final object: the script, and what it starts, writes to standard error."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
