"""`bough retry`: try again what failed, was cancelled or did not run.

Rule: in a live session only; without one, running the workflow again does exactly that.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.act import act, add_arguments
from bough.cli.output import Output
from bough.cli.targets.locate import ServerLocation
from bough.model.events.news import Retry

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = ("bough retry 12", "bough retry --failed", "bough retry align/*", "bough retry --failed --skipped")


def run(args: argparse.Namespace, output: Output) -> int:
    """Try the tasks that are meant again."""
    return act(args, output, Retry, "to be tried again", _asleep)


def _asleep(place: ServerLocation) -> str:
    return (
        f"no session of {place.name!r} is running in {place.folder};"
        " bough run FILE again runs what failed and reuses what is done"
    )
