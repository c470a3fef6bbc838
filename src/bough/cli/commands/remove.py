"""`bough remove` and `bough prune`: remove finished workflows from a server, by name or by age, with their records.

Rule: `remove` refuses a running workflow unless `--kill` is given; `prune` leaves running workflows and open queues
alone. Files that tasks wrote are never touched.
"""

from __future__ import annotations

import argparse
import time

from bough.cli.main import Command
from bough.cli.option_values import duration
from bough.cli.output import Output, show_seconds
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.wire import questions


def _add_remove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workflows", nargs="+", metavar="WORKFLOW", help="a name (all its runs), NAME#RUN, or the number of a run"
    )
    parser.add_argument("--kill", action="store_true", help="also a running one: its tasks are ended first")
    add_server_argument(parser)


def _remove(args: argparse.Namespace, output: Output) -> int:
    with connect_client(args.server) as server:
        gone = server.ask(questions.Remove(args.workflows, args.kill))
    output.answer(gone, lambda: [f"removed {one['name']}, run {one['run']}" for one in gone] or ["nothing was removed"])
    return 0 if gone else 1


def _add_prune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=duration, required=True, metavar="TIME", help="those that ended longer ago, as 30d or 12h"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say which")
    add_server_argument(parser)


def _prune(args: argparse.Namespace, output: Output) -> int:
    with connect_client(args.server) as server:
        old = server.ask(questions.Prune(args.older_than, args.dry_run))
    verb = "would remove" if args.dry_run else "removed"

    def text() -> list[str]:
        now = time.time()
        return [
            f"{verb} {one['name']}, run {one['run']}, finished {show_seconds(max(0.0, now - one['closed']))} ago"
            for one in old
        ] or ["nothing is that old"]

    output.answer(old, text)
    return 0


SUBCOMMANDS = {
    "remove": Command(
        ("bough remove nightly", "bough remove nightly#12 survey", "bough remove nightly --kill"),
        _add_remove_arguments,
        _remove,
    ),
    "prune": Command(
        ("bough prune --older-than 30d --dry-run", "bough prune --older-than 30d"),
        _add_prune_arguments,
        _prune,
    ),
}
