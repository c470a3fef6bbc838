"""Numbers, amounts, times and paths as options of commands take them, within the bounds of what a store can hold.

Rule: a value out of bounds is refused while the command line is read, by a message that names its option; so is a
path that no file system can have.
"""

from __future__ import annotations

import argparse
import atexit
import ipaddress
import os
from typing import Literal, TypeVar

import msgspec

from bough import logs
from bough.errors import UserError
from bough.model.bounds import Amount, Count, Duration, Instant, Whole, check_path, in_plain_words
from bough.model.ids import read_seconds
from bough.model.sites.site_specs import BY_SSH

T = TypeVar("T")


def whole(text: str) -> int:
    """A whole number, also a negative one."""
    return _bounded(text, _int(text), Whole)


def count(text: str) -> int:
    """A whole number that is not negative: an id, a number of things."""
    return _bounded(text, _int(text), Count)


def amount(text: str) -> float:
    """A number that is not negative, of cores or GPUs or something else that tasks need."""
    return _bounded(text, _float(text), Amount)


def number(text: str) -> float:
    """Any finite number."""
    return _bounded(text, _float(text), Instant)


def duration(text: str) -> float:
    """Seconds, more than none."""
    try:
        seconds = read_seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a duration; say 90s, 10m or 1:30:00") from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a duration above 0")
    return _bounded(text, seconds, Duration)


def yes_or_no(text: str) -> bool:
    """Yes or no, of an option."""
    if text not in {"yes", "no"}:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is neither yes nor no")
    return text == "yes"


def yes_no_or_later(text: str) -> bool | Literal["later"]:
    """Whether outputs are kept, of an option."""
    if text == "later":
        return "later"
    if text not in {"yes", "no"}:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is none of yes, no and later")
    return text == "yes"


def given_name(text: str) -> str:
    """A name; an empty one, as of a shell's variable that is not set, would pass for none."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def path_name(text: str) -> str:
    """The name of a file or folder, or the address of a database."""
    try:
        return check_path("the path", text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def peer_address(text: str) -> str:
    """Where other executors reach a host."""
    try:
        return text if text == BY_SSH else str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r:.60} is not an address of this host; say 10.0.0.7, or {BY_SSH} for the one at which SSH came"
        ) from None


def monitor(text: str) -> str:
    """What watches a task, see `model.monitoring.monitor_text`: it is read here, so that a mistake is told at once."""
    from bough.model.monitoring.monitor_text import read_monitor  # few commands are watched

    try:
        read_monitor(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("monitor ")) from None
    return text


def add_monitor_argument(parser: argparse.ArgumentParser) -> None:
    """The option that has commands watched while they run."""
    parser.add_argument(
        "--monitor",
        action="append",
        type=monitor,
        metavar="TEXT",
        help="watch each command, and end it early: 'plateau:score=([-0-9.]+),25,1e-4', 'regex:ERROR -> fail',"
        " 'silent:10min -> restart 3', ...; more than once",
    )


def checkpoint(text: str) -> str:
    """How a task saves its state, see `api.submit.task_options.checkpoint_options`."""
    from bough.api.submit.task_options.checkpoint_options import read_checkpoint

    try:
        read_checkpoint(None, {"checkpoint": text})
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("checkpoint is ")) from None
    return text


def add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of commands that save their state before they must leave."""
    parser.add_argument(
        "--checkpoint",
        type=checkpoint,
        metavar="SIGNAL|COMMAND",
        help="have each command save its state before its site or executor leaves, and go on elsewhere from there: by a"
        " signal that it gets, as USR1, or a command that writes $BOUGH_CHECKPOINT",
    )
    parser.add_argument(
        "--checkpoint-file",
        type=path_name,
        metavar="FILE",
        help="where the state is; with --array and --each-line a folder, as states/ (default: chosen by Bough)",
    )


def checkpointed(how: str | None, file: str | None) -> dict[str, str]:
    """The options of commands that save their state."""
    if how is None:
        if file is not None:
            raise UserError("--checkpoint-file goes with --checkpoint, which says how the file is written: USR1")
        return {}
    return {"checkpoint": how} | ({"checkpoint_file": file} if file is not None else {})


def rule(text: str) -> str:
    """What compares the tasks of an array, see `model.monitoring.rule_text`."""
    from bough.model.monitoring.rule_text import read_rule

    try:
        read_rule(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("rule ")) from None
    return text


def add_rule_argument(parser: argparse.ArgumentParser) -> None:
    """The option that has the tasks of an array compared while they run."""
    parser.add_argument(
        "--rule",
        type=rule,
        metavar="TEXT",
        help="with --array or --each-line: compare the tasks while they run, and end those that need not go on:"
        " halving:loss,10/30/90, median:loss,10/30/90 or first-answer",
    )


def ruled(monitors: list[str] | None, rule_text: str | None, *, many: bool) -> dict[str, list[str]]:
    """The option `monitors` of commands that are watched, and compared by a rule."""
    if rule_text is None:
        return {"monitors": monitors} if monitors else {}
    if not many:
        raise UserError("--rule compares the tasks of an array: say --array or --each-line as well")
    from bough.model.monitoring.rule_text import read_rule, with_checkpoints

    found = with_checkpoints(monitors or [], read_rule(rule_text))
    return {"monitors": found} if found else {}


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Describe the option of processes that write a log."""
    parser.add_argument(
        "--log-level",
        choices=tuple(logs.LEVELS),
        default="",
        metavar="LEVEL",
        help="write lines of this level and above to the log: debug, info, warning, error ($BOUGH_LOG, or info)",
    )


def begin_log(args: argparse.Namespace) -> None:
    """Log from the level that was said, up to the end of the process; UserError when $BOUGH_LOG is no level."""
    said = os.environ.get(logs.VARIABLE, "")
    if args.log_level:
        logs.set_level(args.log_level)
    elif said and said not in logs.LEVELS:
        raise UserError(f"${logs.VARIABLE} is {said!r:.60}; there are: {', '.join(logs.LEVELS)}")
    atexit.register(logs.flush)


def log_level_words(args: argparse.Namespace) -> list[str]:
    """The same option for another process."""
    return ["--log-level", args.log_level] if args.log_level else []


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a whole number that can be read") from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a number") from None


def _bounded(text: str, value: object, bounds: type[T]) -> T:
    try:
        return msgspec.convert(value, bounds)
    except (msgspec.ValidationError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r:.60}: {in_plain_words(str(error))}") from None
