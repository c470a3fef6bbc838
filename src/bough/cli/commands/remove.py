"""`bough remove` and `bough prune`: remove finished workflows by name or by age, from a server or from this folder.

At a server that is a workflow with its records, in a folder the store `.bough/NAME` of sessions that have ended. A
server that is named, by `--server` or $BOUGH_SERVER, is asked; `--store` means a folder. Otherwise `remove` looks for
stores of the names in ./.bough, and `prune` at the stores there if the user has no server.

Rule: `remove` refuses a running workflow unless `--kill` is given, and a store that a session has; `prune` leaves
running workflows, open queues and such stores alone. Files that tasks wrote are never touched.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence

from bough.api.display.surroundings import show_seconds
from bough.cli.main import Command
from bough.cli.option_values import duration, path_name
from bough.cli.output import Output
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.cli.targets.locate import HOME, ServerLocation, has_service, last_used, stores_in
from bough.errors import SiteError, UnknownName, UserError
from bough.wire import questions


def _add_remove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workflows", nargs="+", metavar="WORKFLOW", help="a name (all its runs); at a server also NAME#RUN, or a run"
    )
    parser.add_argument("--kill", action="store_true", help="also a running one of a server: its tasks are ended first")
    _add_place_arguments(parser)


def _add_place_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=path_name, metavar="DIR", help=f"the folder of stores (default: ./{HOME})")
    add_server_argument(parser)


def _remove(args: argparse.Namespace, output: Output) -> int:
    places = {place.name: place for place in _local_stores(args)}
    if places.keys() & {*args.workflows} or _is_local(args):
        return _remove_stores(args, output, places)
    with connect_client(args.server) as server:
        gone = server.ask(questions.Remove(args.workflows, args.kill))
    output.answer(gone, lambda: [f"removed {one['name']}, run {one['run']}" for one in gone] or ["nothing was removed"])
    return 0 if gone else 1


def _is_local(args: argparse.Namespace) -> bool:
    """Whether a folder is meant: it is named, or there is no server."""
    return bool(args.store) or not (args.server or os.environ.get("BOUGH_SERVER") or has_service())


def _local_stores(args: argparse.Namespace) -> list[ServerLocation]:
    if args.server and args.store:
        raise UserError("--store is for stores of sessions in a folder; with --server leave it out")
    if args.server or (os.environ.get("BOUGH_SERVER") and not args.store):
        return []
    return stores_in(args.store or HOME)


def _remove_stores(args: argparse.Namespace, output: Output, places: dict[str, ServerLocation]) -> int:
    missing = [name for name in args.workflows if name not in places]
    if missing:
        there = f"there are {', '.join(sorted(places))}" if places else "there is none"
        raise UnknownName(f"no store of the name {missing[0]!r} in {args.store or HOME}; {there}")
    chosen = [places[name] for name in dict.fromkeys(args.workflows)]
    held = [place for place in chosen if _holder(place)]
    if held:  # before any of them is removed
        raise UserError(f"{held[0].name} is in use: {_holder(held[0])}; wait for it or end it")
    gone = [place for place in chosen if _delete(place)]
    if len(gone) < len(chosen):
        raise SiteError(f"{next(one for one in chosen if one not in gone).folder} could not be removed")
    output.answer(
        [{"name": place.name, "store": place.folder} for place in gone],
        lambda: [f"removed {place.name}, the store {place.folder}" for place in gone],
    )
    return 0


def _holder(place: ServerLocation) -> str:
    """Who has a store; nothing if no process does."""
    from bough.stores.folder.store_lock import is_held, who_holds

    return who_holds(place.folder) if is_held(place.folder) else ""


def _delete(place: ServerLocation) -> bool:
    from bough.api.session.session_store import remove_store

    return remove_store(place.folder)


def _add_prune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=duration, required=True, metavar="TIME", help="those that ended longer ago, as 30d or 12h"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say which")
    _add_place_arguments(parser)


def _prune(args: argparse.Namespace, output: Output) -> int:
    places = _local_stores(args)
    if _is_local(args):
        return _prune_stores(args, output, places)
    with connect_client(args.server) as server:
        old = server.ask(questions.Prune(args.older_than, args.dry_run))
    verb = "would remove" if args.dry_run else "removed"

    def text() -> list[str]:
        now = time.time()
        return [
            f"{verb} {one['name']}, run {one['run']}, finished {show_seconds(max(0.0, now - one['closed']))} ago"
            for one in old
        ] or ["nothing is that old"]

    output.answer(old, text)
    return 0


def _prune_stores(args: argparse.Namespace, output: Output, places: Sequence[ServerLocation]) -> int:
    now = time.time()
    old = {place: now - last_used(place) for place in places if now - last_used(place) > args.older_than}
    gone = [place for place in old if not _holder(place) and (args.dry_run or _delete(place))]
    verb = "would remove" if args.dry_run else "removed"
    output.answer(
        [{"name": place.name, "store": place.folder} for place in gone],
        lambda: (
            [f"{verb} {place.name}, last used {show_seconds(old[place])} ago" for place in gone]
            or ["nothing is that old"]
        ),
    )
    return 0


SUBCOMMANDS = {
    "remove": Command(
        ("bough remove nightly", "bough remove nightly#12 survey", "bough remove nightly --kill"),
        _add_remove_arguments,
        _remove,
    ),
    "prune": Command(
        ("bough prune --older-than 30d --dry-run", "bough prune --older-than 30d"),
        _add_prune_arguments,
        _prune,
    ),
}
