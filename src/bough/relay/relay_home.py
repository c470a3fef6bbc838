"""Where a relay lives: its folder with certificate, key, lock, note and the access file that executors are given.

Rule: one relay for each `$BOUGH_HOME`, and at the next start it is found at the same address.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

import msgspec

from bough import private
from bough.errors import SiteError, StoreHeld, UserError
from bough.stores.folder.store_lock import StoreLock, holder, is_held, who_holds
from bough.transport import home
from bough.transport.access import UNIX, Access, reachable_address, read_access, split_address, write_access
from bough.transport.own_addresses import own_addresses

NOTE, ACCESS, PORT, SOCKET = "relay.json", "access.json", "port", "relay.sock"
_LONGEST = 100  # bytes of a socket's path
_BACKLOG = 4096  # connections that may wait in the kernel
_EVERYWHERE = "0.0.0.0"
_GLANCE = 0.5  # seconds in which a lock that is only looked at is free again


class RelayNote(msgspec.Struct, frozen=True):
    """What `relay.json` says."""

    pid: int
    host: str
    address: str  # where executors connect
    access: str  # the file that says all they need
    server: str  # where it connects itself
    started: float
    linked: bool = False  # it has its server
    connections: int = 0  # of executors, and of relays behind it
    dispatches: bool = False  # it shares out work


def access_path() -> str:
    """The file for executors."""
    return os.path.join(home.relay_dir(), ACCESS)


def lock_folder() -> StoreLock:
    """Make sure that there is one relay only."""
    folder = home.make_relay_dir()
    until = time.monotonic() + _GLANCE
    while True:
        try:
            return StoreLock(folder)
        except StoreHeld:
            if time.monotonic() < until:  # another process may only be looking whether a relay runs
                time.sleep(0.01)
                continue
            raise StoreHeld(
                f"a relay runs already in {home.home()}: {who_holds(folder)};"
                " end it with bough relay stop, or set $BOUGH_HOME for another"
            ) from None


def running() -> RelayNote | None:
    """The relay that runs here, if one does."""
    folder = home.relay_dir()
    try:
        with open(os.path.join(folder, NOTE), "rb") as file:
            note = msgspec.json.decode(file.read(), type=RelayNote)
    except (OSError, msgspec.MsgspecError):
        return None
    return note if is_held(folder) and holder(folder)[0] == note.pid else None  # else a killed one left its note


def write_note(note: RelayNote) -> None:
    """Say what is so now."""
    home.write_private(os.path.join(home.relay_dir(), NOTE), msgspec.json.encode(note))


def remove_note() -> None:
    """Nobody is here any more."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(home.relay_dir(), NOTE))


def publish_access(access: Access) -> None:
    """Write the file for executors, unless it says the same."""
    path = access_path()
    with contextlib.suppress(UserError):
        if read_access(path) == access:
            return
    write_access(path, access)


def bind(listen: str) -> tuple[socket.socket, str, tuple[str, ...]]:
    """A listening socket, and the address by which executors reach it: HOST:PORT, or unix:PATH if no port is wanted.

    And, if it listens everywhere, other addresses for those who do not know the name of this host.
    """
    if not listen or listen.startswith(UNIX):
        return *_bind_unix(listen.removeprefix(UNIX) or os.path.join(home.relay_dir(), SOCKET)), ()
    host, wanted = split_address(listen)
    listener = _bind_before(host) if not wanted else None
    if listener is None:
        try:
            listener = _bind(host, wanted)
        except OSError as error:
            raise SiteError(f"cannot listen on {listen}: {error.strerror or error}") from error
    port = int(listener.getsockname()[1])
    if not wanted:
        home.write_private(os.path.join(home.relay_dir(), PORT), f"{port}\n".encode())
    also = tuple(f"{address}:{port}" for address in own_addresses()) if host == _EVERYWHERE else ()
    return listener, reachable_address(host, port), also


def _bind(host: str, port: int) -> socket.socket:
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def _bind_before(host: str) -> socket.socket | None:
    """At the port of the last time, if it is free: executors look for us there."""
    try:
        with open(os.path.join(home.relay_dir(), PORT), encoding="ascii") as file:
            return _bind(host, int(file.read(10)))
    except (OSError, ValueError, OverflowError):
        return None


def _bind_unix(path: str) -> tuple[socket.socket, str]:
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > _LONGEST:
        raise UserError(f"the path of the socket {path} is too long: name a shorter one with --listen unix:PATH")
    try:
        return private.bind_socket(
            path, _BACKLOG
        ), f"{UNIX}{path}"  # a killed one may have left its own: we hold the lock
    except OSError as error:
        raise SiteError(f"cannot listen on {path}: {error.strerror}") from error
