"""`bough monitor`: have tasks watched that are submitted or run already, in a service or a session that runs here.

Rule: what the texts say is checked before a server is asked. Of a group also what is still to be submitted is watched;
what has ended cannot be watched, and is told.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.act import act
from bough.cli.option_values import monitor
from bough.cli.output import Output
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.selection import add_selector_arguments
from bough.model.blobs import blob_id
from bough.model.events.news import AddMonitors
from bough.model.tasks import Dep

EXAMPLES = (
    "bough monitor 12 'plateau:score=(-?[0-9.]+),25,1e-4'",
    "bough monitor align/* 'silent:10min -> restart 3' 'regex:ERROR -> fail'",
    "bough monitor all 'after:2h -> fail too slow' --running",
    "bough monitor 7.3-9 'metric:loss=([0-9.]+)'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("selector", metavar="SELECTOR", help="which tasks: an id, a name, 5-9, group/*, last or all")
    parser.add_argument(
        "texts",
        nargs="+",
        type=monitor,
        metavar="TEXT",
        help="what to watch for, and what to do then: 'regex:ERROR -> fail', 'after:1h', ...",
    )
    add_selector_arguments(parser, positional=False)
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Send the plan, and name it to what is meant."""
    from bough.model.monitoring.monitor_text import read_plan
    from bough.model.monitoring.monitors import encode_plan

    plan = encode_plan(read_plan(args.texts))
    blob = blob_id(plan)

    def watch(target: Dep, stop: int) -> AddMonitors:
        return AddMonitors(target, blob, stop)

    return act(args, output, {"watched": watch}, "there is nothing to watch", blob=(blob, plan))
