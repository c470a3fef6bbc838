"""`bough submit`: hand a flat list, a Python script or one command to a server, and return at once.

A command goes into a *queue*, which is nothing but a workflow that stays open: everything that is submitted to it
by the same name is in one workflow. A file is a workflow of its own, which has finished when all of it has ended; while
it is running, the file may be changed and submitted again, and the difference is applied.
Rule: what was printed as submitted is on the server's disk.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from bough.cli.main import Command, make_parser
from bough.cli.option_values import amount, count, path_name, whole
from bough.cli.output import Output, choose
from bough.cli.targets.locate import add_server_argument
from bough.cli.workflow_files import File, is_script, stem
from bough.describe.source_files import read_file
from bough.errors import UserError
from bough.model.bounds import MOST_TASKS, Count, read_number
from bough.model.spaces import Ranges

if TYPE_CHECKING:
    from bough.cli.submit_files import Foreseen, SubmittedWork

EXAMPLES = (
    "bough submit -- sort -o sorted.txt in.txt",
    "bough submit --array 1-1000 --queue sims -- './simulate --seed {index} > out/{index}.txt'",
    "bough submit --each-line genes.txt --after 12 --wait -- 'blast {line}'",
    "bough submit commands.txt",
)

QUEUE = "default"
_RANGE = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+))?(?::(?P<step>\d+))?\Z", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "what",
        nargs=argparse.REMAINDER,
        metavar="FILE [ARGS] | -- COMMAND",
        help="a flat list or a Python script (with its arguments), or -- and a command",
    )
    parser.add_argument(
        "--queue", metavar="NAME", help=f"the workflow it joins (default: {QUEUE} for a command, a file's stem)"
    )
    parser.add_argument("--name", metavar="NAME", help="of the task; with a file, of the workflow")
    parser.add_argument("--cores", type=amount, metavar="N", help="cores that each task needs")
    parser.add_argument("--memory", metavar="AMOUNT", help="memory that each task needs, such as 4GB")
    parser.add_argument("--gpus", type=amount, metavar="N", help="GPUs that each task needs")
    parser.add_argument(
        "--resource", action="append", metavar="NAME=N", help="another resource that each task needs; more than once"
    )
    parser.add_argument("--timeout", metavar="TIME", help="end a task after this time, such as 1h")
    parser.add_argument("--retries", type=count, metavar="N", help="try a failed task again so often")
    parser.add_argument(
        "--replay",
        metavar="TIME",
        help="send it again when nothing is heard of it for so long; give more than it ever runs",
    )
    parser.add_argument("--priority", type=whole, metavar="N", help="higher goes first")
    parser.add_argument(
        "--array", metavar="RANGE", help="a task for each number of 1-1000 or 1,5,10-20: {index}, $BOUGH_INDEX"
    )
    parser.add_argument(
        "--each-line", type=path_name, metavar="FILE", help="a task for each line of a file: {line}; - for stdin"
    )
    parser.add_argument("--after", metavar="ID,...", help="wait for tasks of the same workflow: ids, names, group/*")
    parser.add_argument("--group", metavar="PATH", help="the group it joins, such as align/sub; made if need be")
    parser.add_argument("--dry-run", action="store_true", help="show what a file would add or change, and do nothing")
    parser.add_argument("--wait", action="store_true", help="show progress and return when all of it has ended")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Submit, and wait if asked to."""
    words: list[str] = args.what
    if not words or words == ["--"]:
        raise UserError("give a FILE, or -- and a COMMAND; see bough submit --help")
    from bough.cli.submit_files import Foreseen

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
        return wait_for(args, submitted, output)
    output.answer(submitted.as_json(), lambda: [submitted.line()])
    return 0


# --- one command ----------------------------------------------------------------------------------------


def submit_command(args: argparse.Namespace, words: Sequence[str]) -> SubmittedWork:
    """Submit a command, or an array of them, to a queue."""
    from bough.cli.submit_files import SubmittedWork, Work, open_queue, put

    if args.dry_run:
        raise UserError("--dry-run is for a file; a command is run as it stands")
    if args.array and args.each_line:
        raise UserError("--array and --each-line exclude each other; give one")
    work = Work(
        words=list(words),
        indices=read_range(args.array) if args.array else None,
        lines=_lines(args.each_line) if args.each_line else None,
        after=args.after or "",
        group=args.group or "",
        options={
            name: value
            for name in ("cores", "memory", "gpus", "timeout", "retries", "replay", "priority", "name")
            if (value := getattr(args, name)) is not None
        }
        | ({"resources": _resources(args.resource)} if args.resource else {}),
    )
    with open_queue(args.server, args.queue or QUEUE) as session:
        record, tasks = put(session, work)
        return SubmittedWork(session.name, session.welcome.run, [record] if tasks else [], tasks)


def read_range(text: str) -> Sequence[int]:
    """Numbers written as 1-1000, 1-9:2 (every second) or a comma list of these; they are not unfolded."""
    parts: list[range] = []
    for part in text.split(","):
        found = _RANGE.match(part.strip())
        if found is None:
            raise UserError(f"--array {text:.60}: {part!r:.60} is not a number or a range such as 1-1000 or 1-99:2")
        first, last, step = (
            read_number(f"--array {text:.60}: a number", said or "0", Count) for said in found.groups()
        )
        if found["step"] and not step:
            raise UserError(f"--array {text:.60}: {part!r:.60} has steps of 0; give 1 or more")
        parts.append(range(first, (last if found["last"] else first) + 1, step or 1))
    total = sum(map(len, parts))
    if not total:
        raise UserError(f"--array {text:.60} holds no number; write the smaller one first")
    if total > MOST_TASKS:
        raise UserError(f"--array {text:.60} holds {total} numbers; an array has at most {MOST_TASKS} tasks")
    return parts[0] if len(parts) == 1 else Ranges(*parts)


def _lines(path: str) -> list[str]:
    try:
        text = read_file(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise UserError(f"{path} holds no lines; there is nothing to submit")
    return lines


# --- a file ---------------------------------------------------------------------------------------------


def submit_file(
    args: argparse.Namespace, path: str, rest: list[str]
) -> tuple[argparse.Namespace, SubmittedWork | Foreseen | None]:
    """Submit what a file says, or what a script submits; the options, which may stand behind the file, come back."""
    from bough.cli.submit_files import SubmittedWork, foresee, hand_over, run_detached, server_address, told

    file = None if is_script(path) else File(path)
    if rest and file is not None and not file.takes_arguments:
        args, rest = _options_after(args, rest), []
    for option in (
        "array",
        "each_line",
        "after",
        "cores",
        "memory",
        "gpus",
        "resource",
        "timeout",
        "retries",
        "replay",
        "priority",
        "group",
    ):
        if getattr(args, option) is not None:
            raise UserError(f"--{option.replace('_', '-')} is for a command; say it in the file, for its tasks")
    name = args.queue or args.name
    if file is None:
        if args.dry_run:
            raise UserError("--dry-run is for descriptions; a Python script decides what to run while it runs")
        return args, run_detached(server_address(args.server), name or stem(path), path, rest)
    from bough.describe.plan import without_gc

    address = server_address(args.server)
    with without_gc(for_ever=True):
        steps = file.steps(rest)
        if args.dry_run:
            return args, foresee(address, name or file.stem, steps, whole=file.is_whole)
        session, ids, amendment = hand_over(address, name or file.stem, steps, whole=file.is_whole)
    submitted = SubmittedWork(session.name, session.welcome.run, list(ids), len(ids))
    if amendment is not None:
        note = told(session.name, amendment)
        submitted = msgspec.structs.replace(submitted, amended=amendment.as_json(), note=note)
    return args, submitted


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
