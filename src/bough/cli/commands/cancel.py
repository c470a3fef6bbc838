"""`bough cancel`: cancel tasks, whatever they are doing; final at once.

Rule: acts on a live session alone; see `acting`.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.act import act, add_arguments, nothing_runs
from bough.cli.output import Output
from bough.model.events.news import Cancel

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("bough cancel last", "bough cancel 5-9", "bough cancel align/* --waiting")


def run(args: argparse.Namespace, output: Output) -> int:
    """Cancel the tasks that are meant."""
    return act(args, output, Cancel, "cancelled", nothing_runs("cancel"))
