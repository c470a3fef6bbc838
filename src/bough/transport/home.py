"""Bough's own folder of a user, and the secrets in it.

`$BOUGH_HOME`, or `$XDG_STATE_HOME/bough`, or `~/.local/state/bough`. Its folder `server/` holds what
the user's server is known by: `server.json`, the certificate and its key, the tokens; `relay/` the same of a
relay. Rule: a secret that others can read is not used, and a file is there complete or not at all.
"""

from __future__ import annotations

import contextlib
import os
import stat

import msgspec

from bough import private
from bough.errors import SiteError, UserError
from bough.model.bounds import check_path

_OURS = frozenset({"server", "relay"})


class ServerNote(msgspec.Struct, frozen=True):
    """What `server.json` says of the user's server."""

    address: str  # HOST:PORT, or empty when it listens on its Unix socket only
    socket: str  # path of its Unix socket
    pid: int
    host: str
    fingerprint: str = ""
    store: str = ""
    started: float = 0.0


def home() -> str:
    """Where Bough keeps what belongs to the user, not to one project."""
    named = check_path("$BOUGH_HOME", os.environ.get("BOUGH_HOME", ""))
    if named:
        return os.path.abspath(os.path.expanduser(named))
    state = os.environ.get("XDG_STATE_HOME", "") or os.path.expanduser("~/.local/state")
    return os.path.join(os.path.abspath(state), "bough")


def server_dir() -> str:
    """The folder of the user's server, there or not."""
    return os.path.join(home(), "server")


def relay_dir() -> str:
    """The folder of the user's relay, there or not."""
    return os.path.join(home(), "relay")


def make_server_dir() -> str:
    """The folder of the user's server, made if need be, closed to others."""
    return _make(server_dir())


def make_relay_dir() -> str:
    """The folder of the user's relay, made if need be, closed to others."""
    return _make(relay_dir())


def _make(path: str) -> str:
    try:
        _make_home(home())
        private.make_folder(path)
    except OSError as error:
        raise SiteError(f"the folder {path} cannot be made: {error.strerror}") from error
    return path


def _make_home(path: str) -> None:
    """A folder in which the user keeps other things, too, is not closed: our own in it are."""
    if os.path.isdir(path) and not _OURS.issuperset(os.listdir(path)):
        private.check_folder(path)
    else:
        private.make_folder(path)


def write_note(note: ServerNote) -> None:
    """Say in `server.json` where the server is."""
    write_private(os.path.join(make_server_dir(), "server.json"), msgspec.json.encode(note))


def has_note() -> bool:
    """Whether there is a `server.json`, whatever it says."""
    return os.path.exists(os.path.join(server_dir(), "server.json"))


def read_note() -> ServerNote | None:
    """What `server.json` says, or nothing when there is none or it makes no sense; SiteError if others may write it."""
    try:
        private.check_folder(server_dir())
        with open(os.path.join(server_dir(), "server.json"), "rb") as file:
            return msgspec.json.decode(file.read(), type=ServerNote)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def remove_note() -> None:
    """Remove `server.json`: no server is to be found there any more."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(server_dir(), "server.json"))


def write_private(path: str, data: bytes) -> None:
    """Write a file of mode 0600, complete or not at all, on the disk when this returns."""
    try:
        private.write_file(path, data)
    except OSError as error:
        raise SiteError(f"{path} cannot be written: {error.strerror}") from error


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe without a writer must not keep us waiting


def read_private(path: str, what: str, limit: int = 1 << 20) -> bytes:
    """Read a secret; `what` it is goes into the error when it is missing, or when others could have read it."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{what} {path} is not a file")
            if status.st_uid != os.geteuid():
                raise UserError(f"{what} {path} belongs to uid {status.st_uid}, not to you: make a copy of your own")
            if stat.S_IMODE(status.st_mode) & 0o077:
                raise UserError(f"{what} {path} can be read by others: chmod 600 {path}")
            return file.read(limit)
    except OSError as error:
        raise UserError(f"{what} {path} cannot be read: {error.strerror}") from error
