"""`bough stop`: end what runs in a group and keep the rest of it from starting.

Rule: held first, so that nothing starts in between; acts on a live session or a service, see `acting`.
"""

from __future__ import annotations

import argparse
from functools import partial

from bough.cli.commands.act import act_all, add_many_arguments, nothing_runs
from bough.cli.output import Output
from bough.model.events.news import Hold, Kill

EXAMPLES = ("bough stop align", "bough stop align plot --disable")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_many_arguments(parser)
    parser.add_argument("--disable", action="store_true", help="name it disabled, so that bough enable lets it go on")


def run(args: argparse.Namespace, output: Output) -> int:
    """Stop what is meant."""
    hold = partial(Hold, disabled=args.disable)
    return act_all(args, output, {"held": hold, "killed": Kill}, nothing_runs("stop"))
