"""`bough cancel`, `kill`, `hold`, `release`, `disable`, `enable`, `stop`, `reset` and `retry`: one table, one way.

A verb finds the tasks that are meant and sends one or two actions for each to the live server. Rule: without a running
session or service there is nothing to act on, and the message says what to do instead. An action applies to the
largest lawful part of what is meant; each part that was not changed is printed with its reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bough.cli.main import Command
from bough.cli.output import Output
from bough.cli.targets.live_server import MakeAction
from bough.cli.targets.locate import ServerLocation, add_store_arguments
from bough.cli.targets.selection import add_selector_arguments, open_selected, read_request, targets
from bough.errors import UserError
from bough.model.events.news import Cancel, Hold, Kill, Release, Reset, Retry
from bough.model.ids import BlobId

Actions = Mapping[str, MakeAction]  # actions, by the words that say what was done to so many tasks


class Verb(NamedTuple):
    """What one of the commands does, and what it takes."""

    examples: tuple[str, ...]
    actions: Callable[[argparse.Namespace], Actions]  # in this order
    takes_several: bool = False  # selectors
    flag: tuple[str, str] | None = None  # an option of its own, and its help
    otherwise: str = ""  # what to do if no session is running, if it is not only that there is nothing to act on
    none: str = ""  # why it may have concerned no task


_VERBS = {
    "cancel": Verb(
        ("bough cancel last", "bough cancel 5-9", "bough cancel align/* --waiting"),
        lambda args: {"cancelled": Cancel},
        none="all of them have ended",
    ),
    "kill": Verb(
        ("bough kill 12", "bough kill 12.3-40", "bough kill align/* --running"),
        lambda args: {"killed": Kill},
        none="none of them is running; bough cancel is for those that wait",
    ),
    "hold": Verb(
        ("bough hold all", "bough hold 12", "bough hold align/*"),
        lambda args: {"held": Hold},
        none="none of them can still start",
    ),
    "release": Verb(
        ("bough release all", "bough release 12", "bough release --held"),
        lambda args: {"released": Release},
        none="none of them is held",
    ),
    "disable": Verb(
        ("bough disable align", "bough disable align/sub plot", "bough disable nightly:pack"),
        lambda args: {"disabled": partial(Hold, disabled=True)},
        takes_several=True,
        none="none of them can still start",
    ),
    "enable": Verb(
        ("bough enable align", "bough enable align/sub plot"),
        lambda args: {"enabled": partial(Release, enabled=True)},
        takes_several=True,
        none="none of them is disabled",
    ),
    "stop": Verb(
        ("bough stop align", "bough stop align plot --disable"),
        # Hold first, so that nothing starts in between.
        lambda args: {"held": partial(Hold, disabled=args.disable), "killed": Kill},
        takes_several=True,
        flag=("--disable", "name it disabled, so that bough enable lets it start"),
        none="all of them have ended",
    ),
    "reset": Verb(
        ("bough reset align", "bough reset align --cascade", "bough reset 12 17.3"),
        lambda args: {"reset": partial(Reset, cascade=args.cascade)},
        takes_several=True,
        flag=("--cascade", "reset also what has started and depends on it"),
        none="none of them has started",
    ),
    "retry": Verb(
        ("bough retry 12", "bough retry --failed", "bough retry align/*", "bough retry --failed --skipped"),
        lambda args: {"will be retried": Retry},
        otherwise="bough run FILE again runs what failed and reuses what is done",
        none="none of them has failed, or was cancelled or skipped",
    ),
}


def _add_arguments(verb: Verb, parser: argparse.ArgumentParser) -> None:
    if verb.takes_several:
        parser.add_argument("selectors", nargs="*", metavar="SELECTOR", help="a group, as align or align/sub, or tasks")
    add_selector_arguments(parser, positional=not verb.takes_several)
    add_store_arguments(parser)
    if verb.flag is not None:
        option, text = verb.flag
        parser.add_argument(option, action="store_true", help=text)


def _run(name: str, verb: Verb, args: argparse.Namespace, output: Output) -> int:
    return act(args, output, verb.actions(args), verb.otherwise or f"there is nothing to {name}", none=verb.none)


SUBCOMMANDS = {
    name: Command(verb.examples, partial(_add_arguments, verb), partial(_run, name, verb))
    for name, verb in _VERBS.items()
}


def act(
    args: argparse.Namespace,
    output: Output,
    actions: Actions,
    otherwise: str,
    *,
    blob: tuple[BlobId, bytes] | None = None,
    none: str = "",
) -> int:
    """Do one thing after the other to all tasks that are meant; `otherwise` follows if no session is running.

    The server gets the blob that the actions name before. `none` says why no task may have been concerned.
    """
    if getattr(args, "selectors", None):
        args.selector = ",".join(args.selectors)
    selectors, states = read_request(args)
    left_out: list[str] = []
    with open_selected(args, selectors, output, acts=True) as (database, run):
        server, place = database.server, database.place
        if server is None:
            assert isinstance(place, ServerLocation)
            raise UserError(f"no session of {place.name!r} is running in {place.folder}; {otherwise}")
        if not database.is_service and run != database.last_run():
            raise UserError(f"run {run} has finished; only tasks of the live run {database.last_run()} can be acted on")
        aims = targets(database, selectors, states, run)
        if blob is not None:
            server.put_blob(*blob)
        touched = {
            word: sum(server.act(make(target, stop), left_out) for target, stop in aims)
            for word, make in actions.items()
        }
    value: dict[str, object] = {"tasks": sum(touched.values())}
    if left_out:
        value["left_out"] = left_out
    output.answer(value, lambda: _lines(touched, left_out, none))
    return 1 if left_out and not any(touched.values()) else 0


def _lines(touched: dict[str, int], left_out: Sequence[str], none: str) -> list[str]:
    said = [f"{number} {'task' if number == 1 else 'tasks'} {word}" for word, number in touched.items()]
    why = f": {none}" if none and not any(touched.values()) and not left_out else ""
    return [", ".join(said) + why, *(f"not changed: {line}" for line in left_out)]
