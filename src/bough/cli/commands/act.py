"""What `kill`, `hold`, `disable`, `reset` and their like share: find the tasks, tell the live server.

Rule: without a running session or service there is nothing to act on, and the message says what to do instead. A deed
applies to the largest lawful part of what is meant; what was left out is said, line by line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from bough.cli.output import Output
from bough.cli.targets.jobs_database import open_database
from bough.cli.targets.live_server import Deed
from bough.cli.targets.locate import ServerLocation, add_store_arguments
from bough.cli.targets.selection import add_selector_arguments, choose_run, read_request, targets
from bough.errors import UserError
from bough.model.tasks import Dep

Make = Callable[[Dep, int], Deed]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options that all these commands have."""
    add_selector_arguments(parser)
    add_store_arguments(parser)


def add_many_arguments(parser: argparse.ArgumentParser) -> None:
    """As `add_arguments`, for commands that take several selectors."""
    parser.add_argument("selectors", nargs="*", metavar="SELECTOR", help="a group, as align or align/sub, or tasks")
    add_selector_arguments(parser, positional=False)
    add_store_arguments(parser)


def act(
    args: argparse.Namespace, output: Output, deed: Make, done: str, asleep: Callable[[ServerLocation], str]
) -> int:
    """Do one thing to all tasks that are meant; `asleep` says what to do when no session is running."""
    return act_all(args, output, {done: deed}, asleep)


def act_all(
    args: argparse.Namespace, output: Output, doing: dict[str, Make], asleep: Callable[[ServerLocation], str]
) -> int:
    """Do several things, one after the other, each by the words that say what it did to how many tasks."""
    if getattr(args, "selectors", None):
        args.selector = ",".join(args.selectors)
    selectors, states = read_request(args)
    left_out: list[str] = []
    with open_database(args, acts=True) as database:
        server, place = database.server, database.place
        if server is None:
            assert isinstance(place, ServerLocation)
            raise UserError(asleep(place))
        run = choose_run(database, args, selectors)
        if not database.is_service and run != database.last_run():
            raise UserError(f"run {run} is over; only tasks of the live run {database.last_run()} can be acted on")
        aims = targets(database, selectors, states, run)
        touched = {
            word: sum(server.act(make(target, stop), left_out) for target, stop in aims) for word, make in doing.items()
        }
    value: dict[str, object] = {"tasks": sum(touched.values())}
    if left_out:
        value["left_out"] = left_out
    output.answer(value, lambda: _lines(touched, left_out))
    return 1 if left_out and not any(touched.values()) else 0


def _lines(touched: dict[str, int], left_out: Sequence[str]) -> list[str]:
    said = [f"{number} {'task' if number == 1 else 'tasks'} {word}" for word, number in touched.items()]
    return [", ".join(said), *(f"left out: {line}" for line in left_out)]


def nothing_runs(verb: str) -> Callable[[ServerLocation], str]:
    """The message of commands that need a running session."""
    return lambda place: f"no session of {place.name!r} is running in {place.folder}; there is nothing to {verb}"
