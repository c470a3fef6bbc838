"""`bough hold`: keep tasks that have not started from starting.

Rule: acts on a live session alone; see `acting`.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.act import act, add_arguments, nothing_runs
from bough.cli.output import Output
from bough.model.events.news import Hold

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("bough hold all", "bough hold 12", "bough hold align/*")


def run(args: argparse.Namespace, output: Output) -> int:
    """Hold the tasks that are meant."""
    return act(args, output, Hold, "held", nothing_runs("hold"))
