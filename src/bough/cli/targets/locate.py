"""Finding what a command is about: a service, or a store `./.bough/NAME`, by name or the one used last.

A command looks in this order: --server, $BOUGH_SERVER, a live session in ./.bough, the user's own service, a store
of a session that has ended. Rule: looking never makes anything; a store is a folder that holds a `journal.db`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import NamedTuple

from bough import private
from bough.cli.option_values import given_name, path_name
from bough.errors import UnknownName, UserError
from bough.stores.folder.store_folder import OPENED

HOME = ".bough"
JOURNAL = "journal.db"


class ServerLocation(NamedTuple):
    """A store's folder and the name of its workflow."""

    folder: str
    name: str

    @property
    def journal(self) -> str:
        """The SQLite file."""
        return os.path.join(self.folder, JOURNAL)

    @property
    def server_file(self) -> str:
        """Where a live server says how to reach it."""
        return os.path.join(self.folder, "server.json")


class ServiceAddress(NamedTuple):
    """A running service."""

    address: str  # as it was named; empty: the user's own

    @property
    def label(self) -> str:
        """For people."""
        return f"the server at {self.address}" if self.address else "your server"


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """The options by which people say which store or service they mean."""
    parser.add_argument(
        "--name",
        "--queue",
        dest="name",
        type=given_name,
        metavar="NAME",
        help="the workflow, when there are several (a script's stem, or what was submitted into)",
    )
    parser.add_argument(
        "--store", type=path_name, metavar="DIR", help=f"where stores are, or one store itself (default: ./{HOME})"
    )
    add_server_argument(parser)


def add_server_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names a service."""
    parser.add_argument(
        "--server", metavar="ADDRESS", help="a running server: unix:PATH, HOST:PORT or an access file ($BOUGH_SERVER)"
    )


def find_target(args: argparse.Namespace) -> ServerLocation | ServiceAddress:
    """What the options name, or what is there."""
    if args.store:
        return find_store(args)
    named = args.server or os.environ.get("BOUGH_SERVER")
    if named:
        return ServiceAddress(named)
    places = _own_stores()
    mine = [place for place in places if args.name in {None, place.name}]
    live = [place for place in mine if _is_live(place)]
    if live:
        return max(live, key=_last_run)
    if has_service() and not (args.name and mine):
        return ServiceAddress("")
    return find_store(args)


def has_service() -> bool:
    """Whether the user's own service says that it is there; if it runs on this host, its process must be."""
    from bough.transport.home import read_note

    note = read_note()
    if note is None:
        return False
    import socket

    return note.host != socket.gethostname() or is_running(note.pid)


def find_store(args: argparse.Namespace) -> ServerLocation:
    """The store that the options name, or that of a live session, or the one used last."""
    home = args.store or HOME
    if os.path.isfile(os.path.join(home, JOURNAL)):
        return _itself(home, args.name)
    places = {place.name: place for place in (stores_in(home) if args.store else _own_stores())}
    if args.name:
        if args.name not in places:
            there = f"there are {', '.join(sorted(places))}" if places else "there is none"
            raise UnknownName(f"no store of the name {args.name!r} in {home}; {there}")
        return places[args.name]
    if not places:
        raise UnknownName(f"no store in {home}; run a workflow here first (bough run FILE), or name one with --store")
    return max(places.values(), key=lambda place: (_is_live(place), _last_run(place)))


def store_of(store: str | None, name: str) -> ServerLocation | None:
    """The store that a workflow of this name would use, if it is there."""
    folder = os.path.abspath(store or os.path.join(HOME, name))
    return ServerLocation(folder, name) if os.path.isfile(os.path.join(folder, JOURNAL)) else None


def _itself(folder: str, name: str | None) -> ServerLocation:
    place = ServerLocation(os.path.abspath(folder), os.path.basename(os.path.abspath(folder)))
    if name and name != place.name:
        raise UnknownName(f"{folder} is the store of {place.name!r}, not of {name!r}; leave one option out")
    return place


def own_stores(*, live: bool = False) -> list[ServerLocation]:
    """The stores in the present directory, the one that was run last first; `live`: only those of running sessions."""
    places = [place for place in _own_stores() if not live or _is_live(place)]
    return sorted(places, key=lambda place: (_is_live(place), _last_run(place)), reverse=True)


def _own_stores() -> list[ServerLocation]:
    """The stores in the present directory; SiteError when another user can have put them there."""
    with contextlib.suppress(OSError):  # which the next step tells
        private.check_folder(HOME)
    return stores_in(HOME)


def stores_in(home: str) -> list[ServerLocation]:
    """The stores in a folder, by name."""
    try:
        entries = sorted(os.scandir(home), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"cannot look into {home}: {error.strerror}") from error
    return [
        ServerLocation(os.path.abspath(entry.path), entry.name)
        for entry in entries
        if os.path.isfile(os.path.join(entry.path, JOURNAL))
    ]


class ServerFile(NamedTuple):
    """What a live session's server says of itself in the store."""

    pid: int
    socket: str


def server_of(place: ServerLocation) -> ServerFile | None:
    """What the store's `server.json` says; None when there is none, or it makes no sense."""
    import json

    try:
        with open(place.server_file, "rb", opener=_at_once) as file:
            said = json.loads(file.read(_LONGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("pid"), int) or not 0 < said["pid"] < _PIDS:
        return None
    socket = said.get("socket")
    return ServerFile(said["pid"], socket if isinstance(socket, str) else "")


_LONGEST = 65_536  # bytes of that file
_PIDS = 1 << 31


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # something that is no file must not keep us waiting


def _is_live(place: ServerLocation) -> bool:
    """Whether a session's server says that it is there, and its process is."""
    said = server_of(place)
    return said is not None and is_running(said.pid)


def is_running(pid: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _last_run(place: ServerLocation) -> float:
    """When its latest run was opened, which looking does not change; of an earlier version's store: as `last_used`."""
    said = os.path.join(place.folder, OPENED)
    with contextlib.suppress(OSError, ValueError), open(said, "rb", opener=_at_once) as file:
        return float(file.read(_LONGEST))
    return last_used(place)


def last_used(place: ServerLocation) -> float:
    """When something was last written in a store."""
    times = [0.0]
    for path in (place.journal, place.journal + "-wal", place.server_file):
        try:
            times.append(os.stat(path).st_mtime)
        except OSError:
            continue
    return max(times)
