"""`bough browse`: walk through the groups of a workflow in the terminal, and act on them.

Rule: without a running session it can be looked at only; textual is loaded here and nowhere else.
"""

from __future__ import annotations

import argparse
import sys

from bough.cli.option_values import count
from bough.cli.output import Output
from bough.cli.targets.jobs_database import open_database
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.selection import choose_run
from bough.errors import SiteError, UserError

EXAMPLES = ("bough browse", "bough browse --name nightly")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("--run", type=count, metavar="N", help="look at run N of the workflow (default: the latest)")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Show the browser until the user leaves it."""
    try:
        from bough.cli.browser import Browser
    except ImportError as error:
        raise SiteError("the browser needs textual: pip install 'bough[tui]'") from error
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("browse needs a terminal; see bough status")
    from bough.cli.targets.group_levels import Levels

    with open_database(args, acts=True) as database:
        Browser(Levels(database, choose_run(database, args))).run()
    return 0
