"""`bough release`: let held tasks start.

Rule: acts on a live session alone; see `acting`.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.act import act, add_arguments, nothing_runs
from bough.cli.output import Output
from bough.model.events.news import Release

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("bough release all", "bough release 12", "bough release --held")


def run(args: argparse.Namespace, output: Output) -> int:
    """Release the tasks that are meant."""
    return act(args, output, Release, "released", nothing_runs("release"))
