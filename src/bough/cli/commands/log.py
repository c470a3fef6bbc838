"""`bough log`: what tasks wrote to their standard output and standard error, and tracebacks of functions that raised.

A task's output is a range of bytes of a file that many tasks share; that of a service's task may lie anywhere, and
is asked for through the server. That of a task that runs comes from its executor. What monitors saw is in the jobs
database. Rule: bytes are passed on as they are to a file or a pipe, see `output_writer`; only where several tasks are
followed at once each line has its task's name before it.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from operator import attrgetter

from bough.cli.option_values import count
from bough.cli.output import Output
from bough.cli.output_writer import OutputWriter
from bough.cli.targets.follow_output import follow_output
from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.seen_rows import event_lines, seen_json, seen_of
from bough.cli.targets.selection import Selected, add_selector_arguments, open_selected, pick, read_request
from bough.cli.targets.task_rows import Fields
from bough.cli.targets.task_streams import (
    StreamPart,
    ended_rows,
    given_back_lines,
    raised_by,
    read_part,
    read_streams,
    running_parts,
    stream_parts,
)
from bough.errors import UserError

EXAMPLES = (
    "bough log last",
    "bough log 12.3 --stderr",
    "bough log --failed --tail 20",
    "bough log -f 12",
    "bough log -f align/*",
    "bough log 12.3 --monitors",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    parser.add_argument("--stdout", action="store_true", help="standard output only")
    parser.add_argument("--stderr", action="store_true", help="standard error only")
    parser.add_argument("--monitors", action="store_true", help="instead: what monitors and metrics saw")
    parser.add_argument("-f", "--follow", action="store_true", help="follow what tasks write until they have ended")
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines of each")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the output of the tasks that are meant."""
    if args.tail is not None and args.tail < 0:
        raise UserError(f"--tail {args.tail}: give a number of lines, 0 or more")
    selectors, states = read_request(args)
    wanted = [name for name in ("stdout", "stderr") if getattr(args, name)] or ["stdout", "stderr"]
    with open_selected(args, selectors, output) as (database, number):
        picks = pick(database, selectors, states, number)
        if args.monitors:
            return _show_seen(database, picks, args.tail, output)
        if args.follow:
            return follow_output(database, picks, wanted, as_json=args.json)
        if args.json:
            output.answer(_as_json(database, picks, wanted, args.tail), lambda: ())
            return 0
        raised = raised_by(database, picks) if "stderr" in wanted else {}
        parts: list[StreamPart] = []
        for row in ended_rows(database, picks):
            parts += stream_parts(database, row, wanted)
            if row["id"] in raised:
                parts.append(raised[str(row["id"])].part())
        parts += running_parts(database, picks, wanted)
        if not args.quiet:
            _print(parts, headed=len(parts) > 1, tail=args.tail)
            for line in given_back_lines(database, picks):
                output.note(line)
            if not parts:
                output.note("these tasks wrote nothing" if picks else "no task is meant")
    return 0


def _show_seen(database: OpenDatabase, picks: list[Selected], tail: int | None, output: Output) -> int:
    """What monitors and metrics saw of tasks."""
    told: list[Fields] = []
    lines: list[str] = []
    for one in picks:
        for index, seen in groupby(seen_of(database, one), key=attrgetter("index")):
            attempts, label = list(seen), one.label_of(index) if one.is_array else one.label
            found = event_lines(label, attempts)
            lines += found if tail is None else found[max(0, len(found) - tail) :]
            told.append({"id": label, "seen": seen_json(attempts)})
    output.answer(told, lambda: lines or ["nothing was seen of these tasks: they have no monitors, or did not start"])
    return 0


def _as_json(database: OpenDatabase, picks: list[Selected], wanted: list[str], tail: int | None) -> list[Fields]:
    """What tasks wrote, and what is kept of functions that raised."""
    told = read_streams(database, picks, wanted, tail)
    raised = raised_by(database, picks)
    for one in told:
        error = raised.get(str(one["id"]))
        if error is not None:
            one.update(parameters=error.parameters, traceback=error.traceback)
    return told


def _print(parts: list[StreamPart], *, headed: bool, tail: int | None) -> None:
    stdout = OutputWriter(sys.stdout)
    last = b"\n"
    for number, part in enumerate(parts):
        if headed:
            gap = (b"" if last.endswith(b"\n") else b"\n") + (b"\n" if number else b"")
            stdout.write(gap + f"{part.header}\n".encode(errors="replace"))
        for piece in read_part(part, tail):
            stdout.write(piece)
            last = piece
        stdout.end()
