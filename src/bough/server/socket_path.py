"""Where a server can be found: its socket, and the file that says so.

Imports stay light because the socket is bound before anything else is loaded. Rule: only the user
whose store it is can connect (mode 0600), and a socket never lies on a network file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket

from bough import logs, private
from bough.errors import SiteError
from bough.filesystems import is_network_filesystem
from bough.server.cleanup import is_running
from bough.stores.folder.store_folder import CLOSED, FOLDERS, OPENED, make_store_folder

LONGEST = 100  # bytes; the kernel's own limit is 108
_BACKLOG = 128  # connections that may wait in the kernel
_held: dict[str, int] = {}  # short folders of this process, and the descriptors that lock them
_SOCKET = "socket"  # the file that says where a service had its socket, when there was no place for it in its folder


def make_store(store_dir: str) -> None:
    """Make the folder of a store; one that others could reach is closed to them, and the log says so."""
    if make_store_folder(store_dir):
        logs.warning("folder-closed", CLOSED.format(store_dir))


def is_new(store_dir: str) -> bool:
    """Whether no run was ever opened in a store."""
    return not os.path.isdir(os.path.join(store_dir, FOLDERS[0]))


def bind(store_dir: str) -> tuple[socket.socket, str]:
    """A listening socket of our own, and its path."""
    return _bind(_socket_path(store_dir))


def bind_lasting(folder: str, name: str = "server") -> tuple[socket.socket, str]:
    """A listening socket with the same path whenever a server of this folder runs; only for the holder of its lock."""
    return _bind(_lasting_path(folder, name))


def _bind(path: str) -> tuple[socket.socket, str]:
    return private.bind_socket(path, _BACKLOG), path


def short_folder(folder: str, name: str) -> str:
    """A private folder for sockets that others make, with a path that leaves room for their names."""
    path = os.path.join(os.path.abspath(folder), name)
    if len(os.fsencode(path)) > LONGEST - 40 or is_network_filesystem(folder):
        mark = hashlib.blake2b(os.fsencode(os.path.realpath(path)), digest_size=8).hexdigest()
        place = private.runtime_folder() or _short_folder()
        path = os.path.join(place, f"bough-{os.geteuid()}-{mark}")
        if path not in _held:
            from bough.sites.head.far_side import sweep_sockets  # the one other that makes such folders

            _held[path] = private.hold_folder(path)
            sweep_sockets(place)
            return path
    private.make_folder(path)
    return path


def leave_short_folders() -> None:
    """Nobody here makes sockets any more: remove their folders, unless a socket in them is to outlive us."""
    while _held:
        path, descriptor = _held.popitem()
        with contextlib.suppress(OSError):
            os.rmdir(path)
        os.close(descriptor)


def unbind(path: str) -> None:
    """Remove a socket, and its folder if that was made for it."""
    _remove(path)
    folder = os.path.dirname(path)
    if os.path.basename(folder).startswith("bough-"):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def remove_stale_sockets(store_dir: str, own: str) -> None:
    """Remove what dead servers of this store left; only for the holder of the lock.

    A server binds its socket before it waits for the lock: one that lives is the next holder, and needs it then.
    """
    for name in os.listdir(store_dir):
        path = os.path.join(store_dir, name)
        if name.startswith("server-") and name.endswith(".sock") and path != own:
            pid = name.removeprefix("server-").removesuffix(".sock")
            if not (pid.isdecimal() and is_running(int(pid))):
                _remove(path)


def store_id(store_dir: str) -> str:
    """What tells this store's processes from all others on this machine."""
    status = os.stat(store_dir)
    text = f"{os.path.realpath(store_dir)}:{status.st_dev}:{status.st_ino}"
    return hashlib.blake2b(os.fsencode(text), digest_size=8).hexdigest()


def publish(store_dir: str, facts: dict[str, object]) -> None:
    """Write `server.json`, complete or not at all; a full disk only keeps others from finding us."""
    import msgspec

    path = os.path.join(store_dir, "server.json")
    hidden = f"{path}.{os.getpid()}"
    try:
        with open(hidden, "wb", opener=private.opener) as file:
            file.write(msgspec.json.encode(facts))
        os.replace(hidden, path)
    except OSError as error:
        logs.warning("note-not-written", f"{path} could not be written: {error.strerror}")
        _remove(hidden)


def note_opened(store_dir: str, now: float) -> None:
    """Write when the latest run was opened: by it commands find the store that was run last."""
    with contextlib.suppress(OSError):  # on a full disk the older note has to do
        private.write_file(os.path.join(store_dir, OPENED), b"%.6f\n" % now)


def published(store_dir: str) -> dict[str, object]:
    """What `server.json` says, or nothing."""
    import msgspec

    try:
        with open(os.path.join(store_dir, "server.json"), "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError):
        return {}


def withdraw(store_dir: str) -> None:
    """Remove `server.json`: no server is to be found here any more."""
    _remove(os.path.join(store_dir, "server.json"))


def _socket_path(store_dir: str) -> str:
    name = f"server-{os.getpid()}.sock"
    path = os.path.join(os.path.abspath(store_dir), name)
    if len(os.fsencode(path)) < LONGEST and not is_network_filesystem(store_dir):
        return path
    return _in_runtime_folder(f"bough-{name}") or os.path.join(
        private.TemporaryFolder("socket", _short_folder()).make(), name
    )


def _in_runtime_folder(name: str) -> str:
    """The path of a socket in $XDG_RUNTIME_DIR; empty if there is none, or if it is too deep."""
    runtime = private.runtime_folder()
    path = os.path.join(runtime, name)
    return path if runtime and len(os.fsencode(path)) < LONGEST else ""


def _short_folder() -> str:
    """Where temporary files go, or, if that is too deep for a socket's name, where they usually do."""
    usual = private.temporary_place()
    return usual if len(os.fsencode(usual)) < LONGEST - 60 else "/tmp"


def _lasting_path(folder: str, name: str) -> str:
    path = os.path.join(os.path.abspath(folder), f"{name}.sock")
    if len(os.fsencode(path)) < LONGEST and not is_network_filesystem(folder):
        return path
    known = os.path.realpath(folder) if name == "server" else os.path.join(os.path.realpath(folder), name)
    mark = hashlib.blake2b(os.fsencode(known), digest_size=8).hexdigest()
    note = _SOCKET if name == "server" else f"{name}.{_SOCKET}"
    return _in_runtime_folder(f"bough-{mark}.sock") or _remembered_path(os.path.join(folder, note))


def _remembered_path(note: str) -> str:
    """Where it was the last time, if that place is still ours; else in a new folder, whose name cannot be guessed."""
    with contextlib.suppress(OSError, SiteError):
        with open(note, encoding="utf-8", errors="surrogateescape") as file:
            path = file.read(2 * LONGEST)
        if os.path.isabs(path) and len(os.fsencode(path)) < LONGEST:
            private.make_folder(os.path.dirname(path))
            return path
    path = os.path.join(_short_folder(), f"bough-{os.urandom(8).hex()}", "server.sock")
    private.make_folder(os.path.dirname(path))
    private.write_file(note, os.fsencode(path))
    return path


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
