"""`bough log`: what tasks wrote to their standard output and standard error.

A task's output is a range of bytes of a file that many tasks share; that of a service's task may lie anywhere, and
is asked for through the server. Rule: bytes are passed on as they are.
"""

from __future__ import annotations

import argparse
import sys

from bough.cli.option_values import count
from bough.cli.output import Output
from bough.cli.targets.jobs_database import open_database
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.selection import add_selector_arguments, choose_run, pick, read_request
from bough.cli.targets.task_rows import stream_rows
from bough.cli.targets.task_streams import StreamPart, follow_one, read_part, read_streams, running_parts, stream_parts
from bough.errors import UserError

EXAMPLES = (
    "bough log last",
    "bough log 12.3 --stderr",
    "bough log --failed --tail 20",
    "bough log -f 12",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    parser.add_argument("--stdout", action="store_true", help="standard output only")
    parser.add_argument("--stderr", action="store_true", help="standard error only")
    parser.add_argument("-f", "--follow", action="store_true", help="follow what a running task writes to its end")
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines of each")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the output of the tasks that are meant."""
    if args.tail is not None and args.tail < 0:
        raise UserError(f"--tail {args.tail}: give a number of lines, 0 or more")
    selectors, states = read_request(args)
    wanted = [name for name in ("stdout", "stderr") if getattr(args, name)] or ["stdout", "stderr"]
    with open_database(args) as database:
        picks = pick(database, selectors, states, choose_run(database, args, selectors))
        if args.follow:
            return follow_one(database, picks, wanted)
        if args.json:
            output.answer(read_streams(database, picks, wanted, args.tail), lambda: ())
            return 0
        rows = [row for row in stream_rows(database, picks) if not (database.is_service and row["state"] == "running")]
        parts = [part for row in rows for part in stream_parts(database, row, wanted)]
        if database.is_service:
            parts += running_parts(database, picks, wanted)
        if not args.quiet:
            _print(parts, headed=len(parts) > 1, tail=args.tail)
            if not parts:
                output.note("these tasks wrote nothing" if picks else "no task is meant")
    return 0


def _print(parts: list[StreamPart], *, headed: bool, tail: int | None) -> None:
    sys.stdout.flush()
    stdout = sys.stdout.buffer
    last = b"\n"
    for number, part in enumerate(parts):
        if headed:
            gap = (b"" if last.endswith(b"\n") else b"\n") + (b"\n" if number else b"")
            stdout.write(gap + part.header.encode() + b"\n")
        for piece in read_part(part, tail):
            stdout.write(piece)
            last = piece
    stdout.flush()
