"""`bough run`: run a workflow to its end, with live progress.

A Python script runs as `__main__`, and the options become defaults of its sessions. A flat list, and every other form
that describes a workflow, is submitted through a session of our own. `--emulate` replays a recorded workflow: tasks
sleep or compute instead of running their commands. `--dry-run` shows what would run: a command of a flat list is
reused when the n-th command of its text succeeded in an earlier run, and all it comes after is reused.
Rule: with `--json` standard output carries one object and nothing else; what a script prints goes to standard error
then. `--dry-run` changes nothing. Modules are imported when a form needs them, because a session loads its own part
while its server starts.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bough.cli.main import Command, make_parser
from bough.cli.option_values import path_name
from bough.cli.output import Output, choose, print_json
from bough.cli.targets.locate import add_server_argument, store_of
from bough.cli.workflow_files import File, is_script, stem
from bough.errors import InvalidWorkload, UserError

if TYPE_CHECKING:
    from bough.cli.targets.jobs_database import OpenDatabase
    from bough.describe.flat_list import FlatTask
    from bough.describe.plan import Plan, PlanTask
    from bough.describe.steps import Step
    from bough.describe.wfformat import TraceReplay

EXAMPLES = (
    "bough run workflow.py --options-of the script",
    "bough run --cores 4 --fail-fast commands.txt",
    "seq 1 100 | sed 's/^/echo /' | bough run -",
    "bough run survey.py 3 4                # a description script and its arguments",
    "bough run Makefile all CFLAGS=-O3",
    "bough run trace.json --emulate --scale 0.01",
)

_DIGITS = 6  # of a number of cores
_KINDS = ("sleep", "cpu")  # of emulated tasks

Twin = tuple[str, int]  # the text of a command, and which one of this text in its run


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
    _add_emulation_arguments(parser)
    parser.add_argument("--site", metavar="SITE", help=argparse.SUPPRESS)
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Run one file."""
    if is_script(args.file):
        return _run_script(args)
    file = File(args.file)
    if args.args and not file.takes_arguments:
        args = _options_after_file(args)
        output = choose(json=args.json, quiet=args.quiet)
    if _emulation_of(args) is None and file.reader is None:
        return _run_list(args, output, file)
    return _run_plan(args, output, file)


def _refuse_elsewhere(args: argparse.Namespace) -> None:
    if args.site:
        raise UserError("--site: this version knows no sites; leave the option out")
    if args.server:
        for option in ("cores", "store"):
            if getattr(args, option):
                raise UserError(f"--{option} is for runs on this machine; with --server leave it out")


def _options_after_file(args: argparse.Namespace) -> argparse.Namespace:
    """A flat list takes no arguments: what stands behind it are options of ours."""
    parser = make_parser("run", Command(EXAMPLES, add_arguments, run))
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
    from bough.cli.run_script import run_script
    from bough.cli.run_sessions import watched_run

    with _prints_to_stderr(args.json):
        ended = watched_run(
            lambda: run_script(args.file, args.args), _options(args), silent=args.json or args.quiet, strict=False
        )
    if args.json:
        print_json(ended.as_json())
    return ended.exit_code


def _run_plan(args: argparse.Namespace, output: Output, file: File) -> int:
    _refuse_elsewhere(args)
    plan = file.plan(args.args, _emulation_of(args), output.note)
    from bough.describe.steps import steps

    lowered = steps(plan)
    if args.dry_run and _shows_difference(args, output, args.name or file.stem, lowered, whole=file.is_whole):
        return 0
    if args.dry_run:
        tasks = [step.task for step in lowered if step.task is not None]
        output.answer(
            [{"command": task.command, "name": task.name} for task in tasks], lambda: _flat_lines(plan, tasks)
        )
        return 0
    from bough.cli.run_sessions import submit_steps

    return _watched(args, lambda: submit_steps(lowered, args.name or file.stem, output.note, whole=file.is_whole))


def _shows_difference(
    args: argparse.Namespace, output: Output, name: str, steps: Sequence[Step], *, whole: bool = True
) -> bool:
    """Show what would be different about a workflow that is running at a server; whether there is one."""
    from bough.api.session import launch

    if not launch.server_address(args.server):
        return False
    from bough.cli.submit_files import foresee, server_address

    foreseen = foresee(server_address(args.server), name, steps, whole=whole)
    if foreseen.found is not None:
        foreseen.show(output)
    return foreseen.found is not None


def _watched(args: argparse.Namespace, submit: Callable[[], int]) -> int:
    """Run what is submitted to its end, and say how that was."""
    from bough.cli.run_sessions import watched_run

    ended = watched_run(submit, _options(args), silent=args.json or args.quiet, strict=True)
    if args.json:
        print_json(ended.as_json())
    return ended.exit_code


def _flat_lines(plan: Plan, tasks: list[PlanTask]) -> list[str]:
    """A plan as a flat list; one that a flat list cannot hold, as names and commands."""
    from bough.describe import grouped_list

    try:
        return grouped_list.write(plan).splitlines()
    except InvalidWorkload:
        return [f"{task.name}: {task.command}" for task in tasks]


def _run_list(args: argparse.Namespace, output: Output, file: File) -> int:
    _refuse_elsewhere(args)
    from bough.describe import flat_list

    tasks = flat_list.read(file.source.text, file.source.name)
    if args.dry_run:
        name = args.name or file.stem
        shown = _shows_difference(args, output, name, flat_list.flat_steps(tasks, file.source.name))
        return 0 if shown else _show_unfinished(tasks, args, output, file.stem)
    from bough.cli.run_sessions import submit_all

    return _watched(args, lambda: submit_all(tasks, args.name or file.stem, file.source.name, output.note))


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


# --- numbers and emulation ----------------------------------------------------------------------------


def _cores(text: str) -> int:
    if not (text.isdecimal() and len(text) <= _DIGITS and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a number of cores, 1 or more")
    return int(text)


def _add_emulation_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--emulate",
        nargs="?",
        const="sleep",
        type=_kind,
        metavar="KIND",
        help="replay a recorded workflow (WfFormat): sleep (default) or cpu, as long as each task took",
    )
    parser.add_argument("--scale", type=_factor, metavar="F", help="with --emulate: times the recorded run times")
    parser.add_argument(
        "--files", type=_factor, metavar="F", help="with --emulate: read and write files of F times the recorded sizes"
    )


def _emulation_of(args: argparse.Namespace) -> TraceReplay | None:
    if args.emulate is None:
        for option in ("scale", "files"):
            if getattr(args, option) is not None:
                raise UserError(f"--{option} goes with --emulate")
        return None
    from bough.describe.wfformat import TraceReplay

    scale = 1.0 if args.scale is None else args.scale
    return TraceReplay(args.emulate, scale, args.files or 0.0, f"{args.name or stem(args.file)}.files")


def _kind(text: str) -> str:
    if text not in _KINDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join(_KINDS)}; write --emulate behind the file, or as --emulate=sleep"
        )
    return text


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 <= factor < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor; give a number such as 0.01")
    return factor


# --- what a flat list would run -----------------------------------------------------------------------


def _show_unfinished(tasks: list[FlatTask], args: argparse.Namespace, output: Output, name: str) -> int:
    """Show the tasks that are not done yet, as a flat list."""
    from bough.describe import flat_list

    left = tasks
    place = store_of(args.store, args.name or name)
    if place is not None and not args.fresh:
        from bough.cli.targets.jobs_database import OpenDatabase, catch_up

        catch_up(place)
        with OpenDatabase(place) as database:
            left = would_run(tasks, finished(database))
    if len(left) < len(tasks):
        output.note(f"{len(tasks) - len(left)} of {len(tasks)} tasks are done and would be reused")
    output.answer([task._asdict() for task in left], lambda: map(flat_list.show_task, left))
    return 0


def plain(command: str) -> str:
    """A text as the jobs database may hold it: a command that needs no shell is kept as words."""
    try:
        return shlex.join(shlex.split(command))
    except ValueError:
        return command


def finished(database: OpenDatabase) -> set[Twin]:
    """The loose commands of all runs that were done."""
    rows = database.rows("select run, command, state from tasks where kind = 'command' and not is_array order by id")
    seen: Counter[tuple[object, str]] = Counter()
    done: set[Twin] = set()
    for row in rows:
        command = plain(str(row["command"]))
        number = seen[row["run"], command]
        seen[row["run"], command] += 1
        if row["state"] == "done":
            done.add((command, number))
    return done


def would_run(tasks: Sequence[FlatTask], done: Iterable[Twin]) -> list[FlatTask]:
    """The tasks, dependencies first, that are not expected to be reused."""
    known = set(done)
    seen: Counter[str] = Counter()
    run: list[FlatTask] = []
    names: set[str] = set()  # of tasks that run
    for task in tasks:
        command = plain(task.command)
        twin = (command, seen[command])
        seen[command] += 1
        if twin not in known or any(other in names for other in task.after):
            run.append(task)
            names.add(task.name)
    return run
