"""What `kill`, `cancel`, `hold`, `release` and `retry` share: find the tasks, tell the live server.

Rule: without a running session or service there is nothing to act on, and the message says what to do instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bough.cli.database import open_database
from bough.cli.finding import Place, add_store_arguments
from bough.cli.live import Deed
from bough.cli.output import Output
from bough.cli.picking import add_selector_arguments, choose_run, read_request, targets
from bough.errors import UserError
from bough.model.tasks import Dep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options that all these commands have."""
    add_selector_arguments(parser)
    add_store_arguments(parser)


def act(
    args: argparse.Namespace,
    output: Output,
    deed: Callable[[Dep, int], Deed],
    done: str,
    asleep: Callable[[Place], str],
) -> int:
    """Do one thing to all tasks that are meant; `asleep` says what to do when no session is running."""
    selectors, states = read_request(args)
    with open_database(args, acts=True) as database:
        server, place = database.server, database.place
        if server is None:
            assert isinstance(place, Place)
            raise UserError(asleep(place))
        run = choose_run(database, args, selectors)
        if not database.is_service and run != database.last_run():
            raise UserError(f"run {run} is over; only tasks of the live run {database.last_run()} can be acted on")
        aims = targets(database, selectors, states, run)
        touched = sum(server.act(deed(target, stop)) for target, stop in aims)
    output.answer({"tasks": touched}, lambda: [f"{touched} {'task' if touched == 1 else 'tasks'} {done}"])
    return 0


def nothing_runs(verb: str) -> Callable[[Place], str]:
    """The message of commands that need a running session."""
    return lambda place: f"no session of {place.name!r} is running in {place.folder}; there is nothing to {verb}"
