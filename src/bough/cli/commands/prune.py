"""`bough prune`: remove workflows that have been over for a while.

Rule: as `bough remove`; what goes on, and queues that stay open, are left alone.
"""

from __future__ import annotations

import argparse
import time

from bough.cli.option_values import duration
from bough.cli.output import Output, show_seconds
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.wire import questions

EXAMPLES = ("bough prune --older-than 30d --dry-run", "bough prune --older-than 30d")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--older-than", type=duration, required=True, metavar="TIME", help="those that ended longer ago, as 30d or 12h"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say which")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Remove them, or say which."""
    with connect_client(args.server) as server:
        old = server.ask(questions.Prune(args.older_than, args.dry_run))
    verb = "would remove" if args.dry_run else "removed"

    def text() -> list[str]:
        now = time.time()
        return [
            f"{verb} {one['name']}, run {one['run']}, over for {show_seconds(max(0.0, now - one['closed']))}"
            for one in old
        ] or ["nothing is that old"]

    output.answer(old, text)
    return 0
