"""`bough submit`: hand a flat list, a Python script or one command to a server, and return at once.

A command goes into a workflow that stays open: everything that is submitted `--into` the same name is in one
workflow. `--queue` names the queue of the server that its tasks go through, see `bough queue`. A file is a workflow of
its own, which has finished when all of it has ended; while it is running, the file may be changed and submitted again,
and the difference is applied.
Rule: what was printed as submitted is on the server's disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from bough.cli.main import Command, make_parser
from bough.cli.option_values import (
    add_checkpoint_arguments,
    add_monitor_argument,
    add_rule_argument,
    amount,
    checkpointed,
    count,
    given_name,
    path_name,
    ruled,
    whole,
    yes_no_or_later,
    yes_or_no,
)
from bough.cli.output import Output, choose
from bough.cli.runs.command_texts import many_commands, one_command
from bough.cli.runs.profiles import add_profile_argument, apply_profiles
from bough.cli.targets.locate import add_server_argument
from bough.describe.workflow_files import File, is_script, stem
from bough.errors import UserError

if TYPE_CHECKING:
    from bough.cli.runs.submit_files import Foreseen, SubmittedWork

EXAMPLES = (
    "bough submit -- sort -o sorted.txt in.txt",
    "bough submit --array 1-1000 --into sims --queue night -- './simulate --seed {index} > out/{index}.txt'",
    "bough submit --each-line genes.txt --after 12 --wait -- 'blast {} > {line.stem}.out'",
    "bough submit --monitor 'plateau:score=(-?[0-9.]+),25,1e-4' -- ./fold protein.pdb",
    "bough submit commands.txt",
)

WORKFLOW = "default"
_WHERE = ("sites", "requires")
_AMOUNTS = ("cores", "memory", "gpus", "timeout", "retries", "replay", "priority")
OF_COMMANDS = (
    *("array", "each_line", "after", "cores", "memory", "gpus", "resource", "timeout", "retries", "replay", "priority"),
    *("group", "monitor", "rule", "checkpoint", "checkpoint_file", "sites", "requires", "setup", "container"),
    *("idempotent", "keep"),
    *("teardown", "environment", "input", "output"),
)
_AROUND = {  # options, and the keywords of `Session.command` that they are
    **{name: name for name in ("setup", "container", "teardown", "environment")},
    "input": "inputs",
    "output": "outputs",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "what",
        nargs=argparse.REMAINDER,
        metavar="FILE [ARGS] | -- COMMAND",
        help="a flat list or a Python script (with its arguments), or -- and a command",
    )
    parser.add_argument(
        "--into",
        type=given_name,
        metavar="NAME",
        help=f"the workflow that it joins (a command: {WORKFLOW}; a file: its name without the ending)",
    )
    parser.add_argument("--queue", metavar="NAME", help="the queue that its tasks go through, see bough queue list")
    parser.add_argument("--name", type=given_name, metavar="NAME", help="of the task; with a file, of the workflow")
    parser.add_argument("--cores", type=amount, metavar="N", help="cores that each task needs")
    parser.add_argument("--memory", metavar="AMOUNT", help="memory of each task, as 4GB; 4GB*2: doubled by retries")
    parser.add_argument("--gpus", type=amount, metavar="N", help="GPUs that each task needs")
    parser.add_argument(
        "--resource", action="append", metavar="NAME=N", help="another resource that each task needs; more than once"
    )
    parser.add_argument("--timeout", metavar="TIME", help="end a task after this time, as 1h; 1h*2: doubled by retries")
    parser.add_argument("--retries", type=count, metavar="N", help="try a task that failed up to N more times")
    parser.add_argument(
        "--replay",
        metavar="TIME",
        help="send it again when nothing was heard of it for so long; give more than it ever runs",
    )
    parser.add_argument(
        "--idempotent",
        type=yes_or_no,
        metavar="yes|no",
        help="no: never run it twice at the same time, yes: it may; see bough server start --replication",
    )
    parser.add_argument(
        "--keep",
        type=yes_no_or_later,
        metavar="yes|no|later",
        help="no: what it writes is temporary, and is removed when its last reader is done;"
        " later: what depends on it need not wait until it is safe, it is written back with others",
    )
    add_monitor_argument(parser)
    add_rule_argument(parser)
    add_checkpoint_arguments(parser)
    parser.add_argument("--sites", metavar="NAME,...", help="run it at one of these sites")
    parser.add_argument(
        "--requires", metavar="TEXT", help="what the executor must have: \"memory_gb >= 64 and 'avx512' in cpu\""
    )
    parser.add_argument("--setup", metavar="TEXT", help="shell commands that run first, on its host: 'module load gcc'")
    parser.add_argument("--container", metavar="RUNTIME:IMAGE", help="run it in apptainer:IMAGE or docker:IMAGE")
    parser.add_argument("--teardown", metavar="TEXT", help="shell commands that run after it, however it ended")
    parser.add_argument(
        "--environment", metavar="FILE", help="the archive of an environment, unpacked there and put first on PATH"
    )
    parser.add_argument(
        "--input",
        action="append",
        metavar="PATH",
        help="a file, folder or pattern that it reads, with {} as in the command; more than once",
    )
    parser.add_argument(
        "--output",
        action="append",
        metavar="PATH",
        help="a file, folder or pattern that it writes, as --input; more than once",
    )
    parser.add_argument("--priority", type=whole, metavar="N", help="higher goes first")
    parser.add_argument(
        "--array", metavar="RANGE", help="a task for each number of 1-1000 or 1,5,10-20: {} or {index}, $BOUGH_INDEX"
    )
    parser.add_argument(
        "--each-line", type=path_name, metavar="FILE", help="a task for each line of a file: {} or {line}; - for stdin"
    )
    parser.add_argument("--after", metavar="ID,...", help="wait for tasks of the same workflow: ids, names, group/*")
    parser.add_argument("--group", metavar="PATH", help="the group it joins, such as align/sub; made if need be")
    parser.add_argument("--dry-run", action="store_true", help="show what a file would add or change, and do nothing")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="show progress until all of it has ended and its files are here; the exit code is the command's",
    )
    add_profile_argument(parser)
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Submit, and wait if asked to."""
    words: list[str] = args.what
    if not words or words == ["--"]:
        raise UserError("give a FILE, or -- and a COMMAND; see bough submit --help")
    from bough.cli.runs.submit_files import Foreseen

    submitted: SubmittedWork | Foreseen | None
    if words[0] == "--":
        submitted = submit_command(args, words[1:])
    else:
        args, submitted = submit_file(args, words[0], words[1:])
        output = choose(json=args.json, quiet=args.quiet)
    if submitted is None:
        return 1
    if isinstance(submitted, Foreseen):
        submitted.show(output)
        return 0
    if args.wait:
        from bough.cli.commands.watch import wait_for

        if not args.json:
            output.note(submitted.line())
        is_command = words[0] == "--" and not args.array and not args.each_line
        return wait_for(args, submitted, output, is_command=is_command)
    output.answer(submitted.as_json(), lambda: [submitted.line()])
    return 0


# --- one command ----------------------------------------------------------------------------------------


def submit_command(args: argparse.Namespace, words: Sequence[str]) -> SubmittedWork:
    """Submit a command, or an array of them, into a workflow that stays open."""
    from bough.api.submit.command_lines.command_plan import read_around
    from bough.api.submit.task_options.options import DEFAULTS, read_options
    from bough.cli.runs.submit_files import SubmittedWork, Work, open_workflow, put

    if args.dry_run:
        raise UserError("--dry-run is for a file; a command is run as it stands")
    apply_profiles(args, "submit", "")
    around = {keyword: value for name, keyword in _AROUND.items() if (value := getattr(args, name)) is not None}
    files: dict[str, list[str]] = {one: around[one] for one in ("inputs", "outputs") if one in around}
    many = many_commands(words, args.array, args.each_line, files)
    work = Work(
        command=one_command(words),
        many=many,
        after=args.after or "",
        group=args.group or "",
        options={
            name: value
            for name in (*_AMOUNTS, "idempotent", "keep", "name", *_WHERE)
            if (value := getattr(args, name)) is not None
        }
        | ({"resources": _resources(args.resource)} if args.resource else {})
        | ruled(args.monitor, args.rule, many=bool(args.array or args.each_line))
        | checkpointed(args.checkpoint, args.checkpoint_file),
        rule=args.rule or "",
        around=around if many is None else {**around, **many.files},
    )
    read_around(work.around)
    read_options(DEFAULTS, work.options)  # what is wrong with them is said before there is a workflow
    with through_queue(args), open_workflow(args.server, args.into or WORKFLOW) as session:
        record, tasks = put(session, work)
        indices = work.many.indices if work.many is not None else ""
        return SubmittedWork(
            session.name,
            session.welcome.run,
            [record] if tasks else [],
            tasks,
            indices=indices,
            is_far=not session.welcome.shared,
        )


# --- a file ---------------------------------------------------------------------------------------------


def submit_file(
    args: argparse.Namespace, path: str, rest: list[str]
) -> tuple[argparse.Namespace, SubmittedWork | Foreseen | None]:
    """Submit what a file says, or what a script submits; the options, which may stand behind the file, come back."""
    from bough.cli.runs.submit_files import SubmittedWork, foresee, hand_over, run_detached, server_address, told

    file = None if is_script(path) else File(path)
    if rest and file is not None and not file.takes_arguments:
        args, rest = _options_after(args, rest), []
    for option in OF_COMMANDS:
        if getattr(args, option) is not None:
            raise UserError(f"--{option.replace('_', '-')} is for a command; say it in the file, for its tasks")
    apply_profiles(args, "submit", path, OF_COMMANDS)
    if file is None and args.dry_run:
        raise UserError("--dry-run is for descriptions; a Python script decides what to run while it runs")
    from bough.describe.plan import without_gc

    address = server_address(args.server)
    with through_queue(args):
        name = args.into or args.name
        if file is None:
            return args, run_detached(address, name or stem(path), path, rest)
        with without_gc(for_ever=True):
            steps = file.steps(rest)
            if args.dry_run:
                return args, foresee(address, name or file.stem, steps, whole=file.is_whole)
            session, ids, amendment = hand_over(address, name or file.stem, steps, whole=file.is_whole)
    is_far = not session.welcome.shared
    submitted = SubmittedWork(session.name, session.welcome.run, list(ids), len(ids), is_far=is_far)
    if amendment is not None:
        note = told(session.name, amendment)
        submitted = msgspec.structs.replace(submitted, amended=amendment.as_json(), note=note)
    return args, submitted


@contextmanager
def through_queue(args: argparse.Namespace) -> Iterator[None]:
    """Let all that is submitted meanwhile go through the queue that was named.

    A name that no queue has is taken as that of a workflow, as in versions before this one, and a note says so.
    """
    from bough.api.session import launch
    from bough.cli.targets.live_server import connect_client
    from bough.wire import questions

    if args.queue is not None and args.into is None:
        with connect_client(args.server, "submit") as server:
            there = {one["queue"] for one in server.ask(questions.Queues()) if one["defined"]}
        if args.queue not in there:
            choose(json=args.json, quiet=args.quiet).note(
                f"there is no queue {args.queue}: it is taken as the name of a workflow; say --into {args.queue}"
            )
            args.into, args.queue = args.queue, None
    with launch.run_defaults({"queue": args.queue}):
        yield


def _options_after(args: argparse.Namespace, rest: list[str]) -> argparse.Namespace:
    """A flat list takes no arguments: what stands behind it are options of ours."""
    more = make_parser("submit", Command(EXAMPLES, add_arguments, run)).parse_args(rest)
    if more.what:
        raise UserError(f"a flat list takes no arguments, but options: {' '.join(rest)}")
    given = {key: value for key, value in vars(args).items() if value}
    return argparse.Namespace(**(vars(more) | given))


def _resources(said: list[str]) -> dict[str, float]:
    """What --resource NAME=N says."""
    found: dict[str, float] = {}
    for text in said:
        name, _, amount = text.partition("=")
        try:
            found[name] = float(amount)
        except ValueError:
            raise UserError(f"--resource {text!r} is not of the form NAME=N, such as licence=1") from None
    return found
