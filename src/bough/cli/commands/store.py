"""`bough store`: copy a store to another place, back it up while it is used, look whether it is sound, and repair it.

Rule: a store that a session or server holds is backed up and checked, never copied or written to.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import msgspec

from bough.cli.main import add_verb
from bough.cli.option_values import path_name
from bough.cli.output import Output
from bough.cli.targets.locate import ServiceAddress, add_store_arguments, find_target
from bough.errors import UnknownName, UserError

if TYPE_CHECKING:
    from bough.stores.quarantine import SetAside

EXAMPLES = (
    "bough store copy .bough/sweep postgresql://me@db.example.org/jobs",
    "bough store copy postgresql:///jobs /data/bough",
    "bough store backup /backup/monday",
    "bough store backup --store postgresql:///jobs /backup/monday",
    "bough store check --json",
    "bough store repair --store .bough/sweep",
)
_DAMAGED = 3  # the exit code of what is the world's fault
_MOST = 20  # facts named one by one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    copied = add_verb(verbs, "copy", "copy a store that is not used to a place where there is none", EXAMPLES[:2])
    copied.add_argument("source", type=path_name, metavar="FROM", help="a store's folder, or postgresql://...")
    copied.add_argument("target", type=path_name, metavar="TO", help="a folder, or postgresql://...")
    saved = add_verb(verbs, "backup", "copy a store as it is now into a folder, also while it is used", EXAMPLES[2:4])
    saved.add_argument(
        "target", type=path_name, metavar="FOLDER", help="where the backup is made; it must hold no store yet"
    )
    add_store_arguments(saved)
    checked = add_verb(verbs, "check", "read a whole store and tell what is wrong with it", EXAMPLES[4:5])
    add_store_arguments(checked)
    summary = "set aside what cannot be read in a store that is not used, so that the rest of it serves"
    repaired = add_verb(verbs, "repair", summary, EXAMPLES[5:])
    repaired.add_argument(
        "--rebuild", action="store_true", help="make the jobs database again from the journal, whatever is wrong"
    )
    add_store_arguments(repaired)


def run(args: argparse.Namespace, output: Output) -> int:
    """Do what the verb says."""
    return {"copy": _copy, "backup": _backup, "check": _check, "repair": _repair}[args.verb](args, output)


def _copy(args: argparse.Namespace, output: Output) -> int:
    from bough.stores.maintenance.copies import copy

    made = copy(args.source, args.target)
    said = f"copied {made.turns} turns and {made.blobs} blobs from {made.source} to {made.target}; they are equal"
    output.answer(msgspec.to_builtins(made), lambda: [said])
    return 0


def _backup(args: argparse.Namespace, output: Output) -> int:
    from bough.stores.maintenance.copies import backup

    made = backup(_where(args), args.target)
    said = f"backed up {made.turns} turns and {made.blobs} blobs of {made.source} in {made.target}"
    output.answer(msgspec.to_builtins(made), lambda: [said])
    return 0


def _check(args: argparse.Namespace, output: Output) -> int:
    from bough.stores.maintenance.copies import check

    found = check(_where(args))
    said = [f"{found.store}: {found.turns} turns, {found.blobs} blobs, {found.snapshots} snapshots"]
    said += _named(found.set_aside)
    said += found.problems or ["nothing is wrong with it" if not found.set_aside else "nothing else is wrong with it"]
    output.answer(msgspec.to_builtins(found), lambda: said)
    return _DAMAGED if found.problems else 0


def _repair(args: argparse.Namespace, output: Output) -> int:
    from bough.stores.maintenance.repair import repair

    done = repair(_where(args), rebuild=args.rebuild)
    said = _named(done.set_aside)
    if done.rebuilt:
        said.append("the jobs database was made again from the journal")
    if done.resnapshot:
        said.append("the running run was replayed, and its state saved as a new snapshot")
    said = said or ["there was nothing to repair"]
    said += done.problems or ["nothing is wrong with it now"]
    output.answer(msgspec.to_builtins(done), lambda: [f"{done.store}: {said[0]}", *said[1:]])
    return _DAMAGED if done.problems else 0


def _named(found: list[SetAside]) -> list[str]:
    """What is set aside, a line each, as far as people read."""
    said = [f"set aside, {one}" for one in found[:_MOST]]
    return said if len(found) <= _MOST else [*said, f"and {len(found) - _MOST} more: --json names all"]


def _where(args: argparse.Namespace) -> str:
    """The place of the store that is meant: a folder or a database's address."""
    from bough.stores.open import is_postgres

    if args.store and (is_postgres(args.store) or os.path.isfile(os.path.join(args.store, "journal.db"))):
        return str(args.store)
    place = find_target(args)
    if not isinstance(place, ServiceAddress):
        return place.folder
    if place.address:
        raise UserError("--server: a store is looked at where it is; name it with --store on the server's machine")
    from bough.transport.home import read_note

    note = read_note()
    if note is None or not note.store:
        raise UnknownName("your server does not say where its store is; name it with --store")
    return note.store
