"""`bough kill`: end running tasks; their attempt fails, without a retry.

Rule: acts on a live session alone; see `acting`.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.act import act, add_arguments, nothing_runs
from bough.cli.output import Output
from bough.model.events.news import Kill

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("bough kill 12", "bough kill 12.3-40", "bough kill align/* --running")


def run(args: argparse.Namespace, output: Output) -> int:
    """End the running tasks that are meant."""
    return act(args, output, Kill, "killed", nothing_runs("kill"))
