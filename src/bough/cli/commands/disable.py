"""`bough disable`: keep a group, or tasks, from starting until somebody enables it.

Rule: what runs goes on; acts on a live session or a service, see `acting`.
"""

from __future__ import annotations

import argparse
from functools import partial

from bough.cli.commands.act import act, nothing_runs
from bough.cli.commands.act import add_many_arguments as add_arguments
from bough.cli.output import Output
from bough.model.events.news import Hold

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("bough disable align", "bough disable align/sub plot", "bough disable nightly:pack")


def run(args: argparse.Namespace, output: Output) -> int:
    """Disable what is meant."""
    return act(args, output, partial(Hold, disabled=True), "disabled", nothing_runs("disable"))
