"""Options of `bough server start` for what a service offers besides running tasks, and for how it hands them out.

Rule: each option can be said again to another process in the same words, for `--detach`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bough.cli.numbers import amount, count, duration
from bough.errors import UserError

if TYPE_CHECKING:
    from bough.server.services import Extras


def add_extra_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--metrics", default="", metavar="[HOST:]PORT", help="serve GET /metrics for Prometheus (on 127.0.0.1)"
    )
    parser.add_argument(
        "--notify", default="", metavar="COMMAND", help="run this when something is to be known; see $BOUGH_TEXT"
    )
    parser.add_argument("--notify-mail", default="", metavar="ADDRESS", help="the same by this machine's mail program")
    parser.add_argument(
        "--notify-on",
        default="",
        metavar="EVENTS",
        help="only of these: finished, stuck, overlong, silent, suspended, lost (all)",
    )
    parser.add_argument(
        "--overlong",
        type=amount,
        default=10.0,
        metavar="N",
        help="a task is overlong at N times its estimate or measured mean (10)",
    )
    parser.add_argument(
        "--overlong-least", type=duration, default=600.0, metavar="TIME", help="and not before this time (10m)"
    )
    parser.add_argument(
        "--keep", type=duration, default=0.0, metavar="TIME", help="remove workflows that ended longer ago (never)"
    )
    parser.add_argument(
        "--query-time",
        type=duration,
        default=30.0,
        metavar="TIME",
        help="how long a statement of bough sql may take (30s)",
    )


def add_knobs(parser: argparse.ArgumentParser) -> None:
    """Describe what is best left alone, but for measuring."""
    parser.add_argument(
        "--pickup", type=count, default=0, metavar="N", help="hand out at most N tasks at once (as run times suggest)"
    )
    parser.add_argument(
        "--no-piggyback",
        action="store_true",
        help="acknowledge results in messages of their own, and send work only when it is asked for",
    )


def check_knobs(args: argparse.Namespace) -> None:
    """UserError when a knob makes no sense."""
    if args.pickup < 0:
        raise UserError(f"--pickup {args.pickup}: say at most how many tasks go together, 1 or more")


def knob_words(args: argparse.Namespace) -> list[str]:
    """The same knobs for another process."""
    words = [f"--pickup={args.pickup}"] if args.pickup else []
    return words + (["--no-piggyback"] if args.no_piggyback else [])


def read_extras(args: argparse.Namespace) -> Extras:
    """What was asked for; UserError when it makes no sense."""
    from bough.server.messenger import Messenger
    from bough.server.metrics import read_address
    from bough.server.notices import KINDS, Rules, read_kinds
    from bough.server.services import Extras

    if args.metrics:
        read_address(args.metrics)
    Messenger(args.notify, args.notify_mail)
    kinds = read_kinds(args.notify_on) if args.notify_on else KINDS
    rules = Rules(kinds, args.overlong, args.overlong_least)
    return Extras(args.metrics, args.notify, args.notify_mail, rules, args.keep, args.query_time)


def extra_words(args: argparse.Namespace) -> list[str]:
    """The same options for another process."""
    words = [f"--overlong={args.overlong:g}", f"--overlong-least={args.overlong_least:g}"]
    words.append(f"--query-time={args.query_time:g}")
    for name in ("metrics", "notify", "notify_mail", "notify_on"):
        value = getattr(args, name)
        if value:
            words.append(f"--{name.replace('_', '-')}={value}")
    if args.keep:
        words.append(f"--keep={args.keep:g}")
    return words
