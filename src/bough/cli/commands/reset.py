"""`bough reset`: what has ended is as if it had not started, also what is done.

Rule: what runs is not reset, nor what something that has started depends on, unless that is reset, too.
"""

from __future__ import annotations

import argparse
from functools import partial

from bough.cli.commands.act import act, add_many_arguments, nothing_runs
from bough.cli.output import Output
from bough.model.events.news import Reset

EXAMPLES = ("bough reset align", "bough reset align --cascade", "bough reset 12 17.3")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_many_arguments(parser)
    parser.add_argument("--cascade", action="store_true", help="reset also what has started and depends on it")


def run(args: argparse.Namespace, output: Output) -> int:
    """Reset what is meant."""
    return act(args, output, partial(Reset, cascade=args.cascade), "reset", nothing_runs("reset"))
