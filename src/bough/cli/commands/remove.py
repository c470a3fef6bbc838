"""`bough remove`: remove workflows that are over from a server, with all its records of them.

Rule: what goes on is refused, unless it is to be killed; files that tasks wrote are never touched.
"""

from __future__ import annotations

import argparse

from bough.cli.output import Output
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.wire import questions

EXAMPLES = ("bough remove nightly", "bough remove nightly#12 survey", "bough remove nightly --kill")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "workflows", nargs="+", metavar="WORKFLOW", help="a name (all its runs), NAME#RUN, or the number of a run"
    )
    parser.add_argument("--kill", action="store_true", help="also what goes on: its tasks are ended first")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Remove them."""
    with connect_client(args.server) as server:
        gone = server.ask(questions.Remove(args.workflows, args.kill))
    output.answer(gone, lambda: [f"removed {one['name']}, run {one['run']}" for one in gone] or ["nothing was removed"])
    return 0 if gone else 1
