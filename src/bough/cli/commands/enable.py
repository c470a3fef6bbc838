"""`bough enable`: let a group start that was disabled.

Rule: acts on disabled groups alone (and on held tasks); acts on a live session or a service, see `acting`.
"""

from __future__ import annotations

import argparse
from functools import partial

from bough.cli.commands.act import act, nothing_runs
from bough.cli.commands.act import add_many_arguments as add_arguments
from bough.cli.output import Output
from bough.model.events.news import Release

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("bough enable align", "bough enable align/sub plot")


def run(args: argparse.Namespace, output: Output) -> int:
    """Enable what is meant."""
    return act(args, output, partial(Release, enabled=True), "enabled", nothing_runs("enable"))
