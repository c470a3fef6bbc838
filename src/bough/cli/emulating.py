"""The options that replay a recorded workflow: what tasks do instead of their commands, how long, with what files.

Rule: without `--emulate` the other two mean nothing, and are refused.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from bough.errors import UserError

if TYPE_CHECKING:
    from bough.describe.wfformat import Emulation

_KINDS = ("sleep", "cpu")


def add_emulation_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--emulate",
        nargs="?",
        const="sleep",
        type=_kind,
        metavar="KIND",
        help="replay a recorded workflow (WfFormat): sleep (default) or cpu, as long as each task took",
    )
    parser.add_argument("--scale", type=_factor, metavar="F", help="with --emulate: times the recorded run times")
    parser.add_argument(
        "--files", type=_factor, metavar="F", help="with --emulate: read and write files of F times the recorded sizes"
    )


def emulation_of(args: argparse.Namespace) -> Emulation | None:
    """What the options ask for."""
    if args.emulate is None:
        for option in ("scale", "files"):
            if getattr(args, option) is not None:
                raise UserError(f"--{option} goes with --emulate")
        return None
    from bough.cli.descriptions import stem
    from bough.describe.wfformat import Emulation

    scale = 1.0 if args.scale is None else args.scale
    return Emulation(args.emulate, scale, args.files or 0.0, f"{args.name or stem(args.file)}.files")


def _kind(text: str) -> str:
    if text not in _KINDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join(_KINDS)}; write --emulate behind the file, or as --emulate=sleep"
        )
    return text


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 <= factor < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor; give a number such as 0.01")
    return factor
