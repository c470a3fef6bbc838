"""Bough's own folder of a user, and files in it that only the user may read.

`$BOUGH_HOME`, or `$XDG_STATE_HOME/bough`, or `~/.local/state/bough`. Its folder `server/` holds what
the user's server is known by: `server.json`, the certificate and its key, the tokens; `relay/` the same of a
relay. Rule: a secret that others can read is not used, and a file is there complete or not at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

import msgspec

from bough.errors import SiteError, UserError


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
    named = os.environ.get("BOUGH_HOME", "")
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
    return make_private_dir(server_dir())


def make_private_dir(path: str) -> str:
    """A folder, made if need be, closed to others."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            os.chmod(path, 0o700)
    except OSError as error:
        raise SiteError(f"the folder {path} cannot be made: {error.strerror}") from error
    return path


def write_note(note: ServerNote) -> None:
    """Say in `server.json` where the server is."""
    write_private(os.path.join(make_server_dir(), "server.json"), msgspec.json.encode(note))


def read_note() -> ServerNote | None:
    """What `server.json` says, or nothing when there is none or it makes no sense."""
    try:
        with open(os.path.join(server_dir(), "server.json"), "rb") as file:
            return msgspec.json.decode(file.read(), type=ServerNote)
    except (OSError, msgspec.MsgspecError):
        return None


def remove_note() -> None:
    """Remove `server.json`: nobody is to be found there any more."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(server_dir(), "server.json"))


def write_private(path: str, data: bytes) -> None:
    """Write a file of mode 0600, complete or not at all, on the disk when this returns."""
    hidden = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(hidden)
            raise
    except OSError as error:
        raise SiteError(f"{path} cannot be written: {error.strerror}") from error


def read_private(path: str, what: str, limit: int = 1 << 20) -> bytes:
    """Read a secret; `what` it is goes into the error when it is missing, or when others could have read it."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{what} {path} is not a file")
            if stat.S_IMODE(status.st_mode) & 0o077:
                raise UserError(f"{what} {path} can be read by others: chmod 600 {path}")
            return file.read(limit)
    except OSError as error:
        raise UserError(f"{what} {path} cannot be read: {error.strerror}") from error
