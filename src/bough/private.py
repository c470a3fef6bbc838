"""Folders, files and sockets that only their user can reach, whatever the umask says.

A user who can write to a store or a cache runs code as its owner (pickles, programs), and one who can read it sees
environments and results. So everything of ours is made with mode 0700 or 0600, and whenever it is opened it is looked
at through a descriptor that follows no symbolic link: it must be a folder and ours; what others can reach is closed
to them. Rules: no name in a folder that others can write to can be guessed; the umask is the user's own and stays as it
is, because tasks inherit it. Light to import: servers and executors load it before anything else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import time

from bough.errors import SiteError

FOLDER, FILE = 0o700, 0o600
_PARENT = 0o755  # of folders above ours that are not there yet: as the umask says, but never writable by others
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 100  # at making a folder that others take for a left one
_CREDENTIALS = struct.Struct("3i")  # process, user and group of the other end
_LOCK = "lock"  # the file by which a store in a temporary folder is held
_PAUSE = 0.05  # seconds between two looks whether a process has ended


# --- folders --------------------------------------------------------------------------------------------


def make_folder(path: str) -> bool:
    """Make a folder that only we can reach; one that is there must be ours, and is closed to others.

    Whether others could reach it before. SiteError when it is not ours, OSError when it cannot be made. A symbolic link
    in its place is followed if it is our own: people put big folders on other disks.
    """
    path = os.path.abspath(path)
    try:
        os.mkdir(path, FOLDER)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make_parents(path)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, FOLDER)
    descriptor = _open_own(path)
    try:
        return _close_to_others(descriptor, path)
    finally:
        os.close(descriptor)


def hold_folder(path: str) -> int:
    """Make a folder as `make_folder` does, and lock it with others; the descriptor holds the lock until it is closed.

    Who sweeps folders leaves alone what somebody holds.
    """
    for _ in range(_TRIES):
        make_folder(path)
        try:
            descriptor = _open_own(path)
        except FileNotFoundError:
            continue  # a sweeper was faster than we
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_same(descriptor, path):
            return descriptor
        os.close(descriptor)
    raise SiteError(f"the folder {path} is removed by another process whenever it is made: name another one")


def check_folder(path: str) -> None:
    """See that a folder that we are about to read from is ours and that no other user can write to it.

    SiteError when it is not, OSError when it is not there.
    """
    path = os.path.abspath(path)
    descriptor = _open_own(path)
    try:
        if os.fstat(descriptor).st_mode & _OTHERS_WRITE:
            raise SiteError(f"other users can write to {path}, so that it is not used: close it with chmod 700 {path}")
    finally:
        os.close(descriptor)


def is_open(path: str) -> bool:
    """Whether there is a folder of ours that others can reach."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and bool(status.st_mode & _OTHERS)


def runtime_folder() -> str:
    """$XDG_RUNTIME_DIR if it is what it is to be, ours alone; else empty."""
    path = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS
    return os.path.abspath(path) if is_ours and os.access(path, os.W_OK) else ""


def _make_parents(path: str) -> None:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _make_parents(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent, _PARENT)


def _open_own(path: str) -> int:
    """A descriptor of a folder of ours."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        if status.st_uid != os.geteuid():
            raise SiteError(f"{path} is a symbolic link of uid {status.st_uid}, not yours: name another folder")
        path = os.path.realpath(path)
    descriptor = os.open(path, _LOOK)
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        os.close(descriptor)
        raise SiteError(f"the folder {path} belongs to uid {owner}, not to you: name another one, or have it removed")
    return descriptor


def _close_to_others(descriptor: int, path: str) -> bool:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & 0o777 == FOLDER:
        return False
    if mode & stat.S_ISVTX or path == os.sep:  # root owns /tmp: it is not to be closed
        raise SiteError(f"{path} is a folder for the files of all users: name a folder of its own in it")
    os.fchmod(descriptor, mode & ~0o777 | FOLDER)
    if os.fstat(descriptor).st_mode & _OTHERS:
        raise SiteError(f"{path} cannot be closed to other users on its file system: name a folder on another one")
    return bool(mode & _OTHERS)


# --- files and sockets ----------------------------------------------------------------------------------


def opener(path: str, flags: int) -> int:
    """For `open(path, mode, opener=opener)`: a file that only we can reach, also if it was there before.

    OSError when it is a symbolic link, no plain file, or another user's.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "it is not a file of yours", path)
        if status.st_mode & 0o777 != FILE:
            os.fchmod(descriptor, FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_file(path: str, *parts: bytes | bytearray) -> None:
    """Write a file that only we can reach, complete or not at all, on the disk when this returns."""
    hidden = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(hidden, "xb", opener=opener) as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise


def sync_folder(path: str) -> None:
    """Have the names in a folder on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def close_file(path: str) -> None:
    """Close a file of ours that may be there to others; it is not opened, since SQLite's locks would be lost."""
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & _OTHERS:
            os.chmod(path, FILE)


def bind_socket(path: str, backlog: int) -> socket.socket:
    """A socket that only we can connect to, in place of one that a dead process left; before there are threads."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)  # the socket has its mode from the beginning
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def other_end(sock: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket; a name without a file can be anybody's."""
    pid, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


# --- folders for the time of one process ----------------------------------------------------------------


class TemporaryFolder:
    """A private folder of a name that cannot be guessed, for as long as its process lives.

    It is locked until then (which also keeps systemd-tmpfiles away). Whoever makes the next one of its kind removes
    those that no process holds any more, of this user and host. Nothing is made before `make`.
    """

    def __init__(self, kind: str, where: str = "") -> None:
        self._kind = kind
        self._where = where or temporary_place()
        self._lock = -1
        self._owner = 0  # the process that made it: those it forks leave it alone
        self.path = f"{self._where}/{_mark(kind)}{os.urandom(8).hex()}"

    def make(self) -> str:
        """Make it, if it is not there; its path."""
        if self._lock < 0:
            if not os.path.isdir(self._where):
                make_folder(self._where)
            _check_place(self._where)
            sweep(self._kind, self._where)
            self._lock = self._make()
            self._owner = os.getpid()
        return self.path

    def _make(self) -> int:
        for _ in range(_TRIES):
            os.mkdir(self.path, FOLDER)
            try:
                descriptor = _open_own(self.path)
            except FileNotFoundError:
                continue  # a sweeper was faster than we
            _close_to_others(descriptor, self.path)
            with contextlib.suppress(OSError):  # a file system without locks: nothing is ever swept there
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same(descriptor, self.path):
                return descriptor
            os.close(descriptor)
        raise SiteError(
            f"the folder {self.path} is removed by another process whenever it is made: set $TMPDIR to another place"
        )

    def others(self) -> list[str]:
        """Those of the same kind beside it whose processes live."""
        mark, own = _mark(self._kind), os.path.basename(self.path)
        try:
            names = [name for name in os.listdir(self._where) if name.startswith(mark) and name != own]
        except OSError:
            return []
        return [path for name in names if _lives(path := f"{self._where}/{name}")]

    def remove(self) -> None:
        """Remove it with all that is in it."""
        if self._lock >= 0 and self._owner == os.getpid():
            remove_tree(self.path)
            os.close(self._lock)
            self._lock = -1


def temporary_place() -> str:
    """The folder for temporary files."""
    import tempfile

    return tempfile.gettempdir()


def sweep(kind: str, where: str = "", patience: float = 0.0) -> None:
    """Remove the temporary folders of a kind whose processes have ended; those that end within so many seconds, too."""
    where = where or temporary_place()
    mark, deadline = _mark(kind), time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError):
            for name in os.listdir(where):
                if name.startswith(mark):
                    _remove_if_left(f"{where}/{name}")
            if time.monotonic() < deadline and any(name.startswith(mark) for name in os.listdir(where)):
                time.sleep(_PAUSE)
                continue
        return


def remove_tree(path: str) -> None:
    """Delete a folder, also one whose folders were made read-only; what cannot be deleted now is tried once more."""
    import shutil

    for attempt in range(2):
        shutil.rmtree(path, onerror=_make_writable)
        if not os.path.lexists(path):
            return
        if not attempt:
            time.sleep(0.01)


def _mark(kind: str) -> str:
    """How the names of a kind begin on this host: locks of some network file systems are not seen on others."""
    from hashlib import blake2b

    return f"bough-{kind}-{blake2b(os.fsencode(socket.gethostname()), digest_size=4).hexdigest()}-"


def _check_place(path: str) -> None:
    """In a folder that everybody can write to, others could put theirs in the place of ours, unless it is sticky."""
    mode = os.stat(path).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise SiteError(f"everybody can replace folders in {path}: chmod +t {path}, or name another with $TMPDIR")


def _remove_if_left(path: str) -> None:
    try:
        descriptor = os.open(path, _LOOK)
    except OSError:
        return
    try:
        if os.fstat(descriptor).st_uid != os.geteuid() or _is_held(descriptor):
            return
        if not _holds_store(path) and _is_same(descriptor, path):
            remove_tree(path)
    finally:
        os.close(descriptor)


def _lives(path: str) -> bool:
    """Whether a process still has a temporary folder."""
    try:
        descriptor = os.open(path, _LOOK)
    except OSError:
        return False
    try:
        return _is_held(descriptor)
    finally:
        os.close(descriptor)


def _holds_store(path: str) -> bool:
    """Whether a server that has lost its script is still about to leave its store in there."""
    try:
        descriptor = os.open(f"{path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_held(descriptor)
    finally:
        os.close(descriptor)


def _is_held(descriptor: int) -> bool:
    """Whether another process has the lock; if none has, we do until the descriptor is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _is_same(descriptor: int, path: str) -> bool:
    """Whether a path still stands for what was opened."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _make_writable(_function: object, path: str, _error: object) -> None:
    """Folders only: what a link leads to, and what has another name elsewhere, stays as it is."""
    try:
        os.chmod(os.path.dirname(path), FOLDER)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, FOLDER)
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        return
