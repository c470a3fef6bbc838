"""`bough watchdog`: one command with its monitors inside any batch script; needs neither store nor server.

Rule: what the command writes passes through unchanged, and its exit code is ours, unless a monitor has ended it.
"""

from __future__ import annotations

import argparse
import sys

from bough.cli.main import put_on_path
from bough.cli.option_values import add_monitor_argument
from bough.cli.output import Output
from bough.errors import UserError
from bough.model.texts.terminal_text import harmless

EXAMPLES = (
    "bough watchdog --monitor 'plateau:score=(-?[0-9.]+),25,1e-4' -- ./fold protein.pdb",
    "bough watchdog --monitor 'regex:ERROR -> fail' --monitor 'silent:10min -> restart 3' -- ./simulate",
    "bough watchdog --monitor 'memory:4GB -> fail' --monitor 'after:1h -> signal USR1' -- python3 train.py",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_monitor_argument(parser)
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="behind --: the program and its arguments. The exit code is its own; 0 when a monitor has finished it,"
        " 1 when one has failed it",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    if not args.command:
        raise UserError("say what to run behind --, as in bough watchdog --monitor after:1h -- ./program")
    if not args.monitor:
        raise UserError("say what watches it with --monitor, as in --monitor 'regex:ERROR -> fail'")
    from bough.executor.monitors.watchdog import CannotStart, watch_command
    from bough.model.monitoring.monitor_text import read_plan

    put_on_path()
    plan = read_plan(args.monitor)
    try:
        code = watch_command(args.command, plan, output.note)
    except CannotStart as error:
        print(f"bough: {harmless(str(error))}", file=sys.stderr)
        code = error.code
    if code:
        raise SystemExit(code)
    return 0
