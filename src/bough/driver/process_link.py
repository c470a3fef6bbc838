"""What `Popen` was asked for, and what it needs of a process that runs as a task, wherever that is.

A request is read as `subprocess` reads it: words, directory, environment, streams. Threads copy between a pipe and a
descriptor that cannot be opened again, such as a socket. Rule: the return code is what the process itself left: its
exit code, or the negated number of the signal that ended it; a process that was lost with its executor has none, and
waiting for it raises. What cannot be done for a process that runs elsewhere is refused by name, with the kind of
exception that `subprocess` raises for what a platform cannot do. A copying thread ends by itself, when one of its
sides does, and closes what it was given.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bough.errors import BoughError, TaskFailed
from bough.model.outcomes import Cause
from bough.wire.client_messages import TasksFailed

if TYPE_CHECKING:
    from bough.api.futures.task import Task

NOT_FOUND = 127  # what shells say of a program that cannot be started
_ENDED_BY_US = {Cause.TIMEOUT: signal.SIGTERM, Cause.KILLED: signal.SIGKILL, Cause.MEMORY: signal.SIGKILL}
INHERITED = -1  # a stream that is this process' own
_PIECE = 1 << 16  # bytes copied at a time


# --- what was asked for -------------------------------------------------------------------------------


class AskedProcess(NamedTuple):
    """The arguments with which `subprocess.Popen` has its child executed, in its order."""

    args: Any
    executable: Any
    preexec_fn: Any
    close_fds: Any
    pass_fds: Any
    cwd: Any
    env: Any
    startupinfo: Any
    creationflags: Any
    shell: Any
    p2cread: int
    p2cwrite: int
    c2pread: int
    c2pwrite: int
    errread: int
    errwrite: int
    restore_signals: Any
    gid: Any
    gids: Any
    uid: Any
    umask: Any
    start_new_session: Any
    process_group: Any = -1


class ProcessRequest(NamedTuple):
    """A process to be started."""

    words: list[str]
    program: str  # what is executed: the first word, unless `executable` says otherwise
    cwd: str | None
    env: dict[str, str] | None  # all of it; None: as this process' own
    umask: int  # -1: as it is
    restores_signals: bool  # False: what Python ignores is ignored


def read_request(asked: AskedProcess) -> ProcessRequest:
    """Check what was asked for."""
    _refuse(asked)
    args, shell = asked.args, asked.shell
    if isinstance(args, str | bytes):
        args = [args]
    elif isinstance(args, os.PathLike):
        if shell:
            raise TypeError("path-like args is not allowed when shell is true")
        args = [args]
    words = [os.fsdecode(word) for word in args]
    executable = None if asked.executable is None else os.fsdecode(asked.executable)
    if shell:
        words = ["/bin/sh", "-c", *words]
        if executable:
            words[0] = executable
    program = executable or words[0]
    if any("\0" in word for word in (program, *words)):
        raise ValueError("embedded null byte")
    cwd = None if asked.cwd is None else os.fsdecode(asked.cwd)
    env = None if asked.env is None else _environment(asked.env)
    return ProcessRequest(words, program, cwd, env, asked.umask, bool(asked.restore_signals))


def _refuse(asked: AskedProcess) -> None:
    elsewhere = "the process is not a child of this one"
    if asked.preexec_fn is not None:
        raise ValueError(f"preexec_fn is not supported by bough.driver: {elsewhere}")
    if asked.pass_fds:
        raise ValueError(f"pass_fds is not supported by bough.driver: {elsewhere}")
    if asked.uid is not None or asked.gid is not None or asked.gids is not None:
        raise ValueError("user, group and extra_groups are not supported by bough.driver: tasks run as the executor's")
    if asked.process_group not in {-1, 0}:
        raise ValueError("process_group is not supported by bough.driver: every task has a process group of its own")


def _environment(env: Mapping[Any, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in env.items():
        key, text = os.fsdecode(name), os.fsdecode(value)
        if "=" in key:
            raise ValueError("illegal environment variable name")
        if "\0" in key or "\0" in text:
            raise ValueError("embedded null byte")
        found[key] = text
    return found


def check_startable(request: ProcessRequest) -> None:
    """Raise what `subprocess` raises when the program or the directory is not there, on this machine."""
    if request.cwd is not None:
        _check_directory(request.cwd)
    program = request.program
    if os.path.dirname(program):
        places = [os.path.join(request.cwd or ".", program)]
    else:
        places = [os.path.join(folder, program) for folder in os.get_exec_path(request.env)]
    worst = errno.ENOENT
    for path in places:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return
        if os.path.exists(path):
            worst = errno.EACCES
    raise OSError(worst, os.strerror(worst), program)


def _check_directory(cwd: str) -> None:
    try:
        is_folder = os.path.isdir(cwd)
        if not is_folder:
            os.stat(cwd)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), cwd) from None
    if not is_folder:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), cwd)
    if not os.access(cwd, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cwd)


class Streams(NamedTuple):
    """Descriptors, in this process, of what a process reads and writes."""

    stdin: int
    stdout: int
    stderr: int
    pipes: frozenset[int]  # those that lead to this process alone

    def is_merged(self) -> bool:
        """Whether standard error goes where standard output goes."""
        return self.stderr != INHERITED and self.stderr == self.stdout

    def is_stage(self) -> bool:
        """Whether a stream comes from, or goes to, another process, which waits for this one to run."""
        return any(fd != INHERITED and fd not in self.pipes and _is_pipe(fd) for fd in self[:3])


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


# --- a process that is a task -------------------------------------------------------------------------


class ProcessLink(Protocol):
    """The process of a `Popen`."""

    def pid(self) -> int | None:
        """Its number on its machine, once it has begun; None if it never will, or cannot be known."""

    def ended(self) -> bool:
        """Whether it has."""

    def wait(self, timeout: float | None) -> int:
        """Wait for its end and return its return code; TimeoutError when it takes longer."""

    def signal(self, number: int) -> None:
        """Send it a signal."""

    def abandon(self) -> None:
        """End it: the program that started it ends."""


def wait_for(task: Task, timeout: float | None) -> None:
    """Wait until a task has ended, in whatever way; TimeoutError when it takes longer."""
    with contextlib.suppress(CancelledError):
        task.exception(None if timeout is None else max(0.0, timeout))


def return_code(task: Task, sent: int = signal.SIGTERM) -> int:
    """How a task that has ended ended; `sent`: the signal it was cancelled for."""
    try:
        error = task.exception()
    except CancelledError:
        return -sent
    if error is None:
        return 0
    if isinstance(error, TaskFailed):
        if error.signal is not None:
            return -error.signal
        if error.returncode is not None:
            return error.returncode
    cause = cause_of(task)
    if cause in _ENDED_BY_US:
        return -_ENDED_BY_US[cause]
    if cause is Cause.NOT_STARTED:
        return NOT_FOUND
    raise error if isinstance(error, BoughError) else TaskFailed(str(error))


def cause_of(task: Task) -> Cause | None:
    """Why a task did not succeed."""
    message = task._heard()
    return message.failure.cause if isinstance(message, TasksFailed) else None


# --- threads that copy --------------------------------------------------------------------------------


def copy_in(fd: int, *, is_file: bool) -> tuple[int, threading.Thread]:
    """A pipe's end from which comes what `fd` gives; a file is read from its place, which stays where it is."""
    read, write = os.pipe()
    at = os.lseek(fd, 0, os.SEEK_CUR) if is_file else 0

    def copy() -> None:
        place = at
        with contextlib.suppress(OSError):
            while piece := os.pread(fd, _PIECE, place) if is_file else os.read(fd, _PIECE):
                place += len(piece)
                write_all(write, piece)
        os.close(fd)
        os.close(write)

    return read, _start(copy)


def copy_out(fd: int) -> tuple[int, threading.Thread]:
    """A pipe's end; what is written there goes to `fd`."""
    read, write = os.pipe()

    def copy() -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(read, _PIECE):
                write_all(fd, piece)
        os.close(read)
        os.close(fd)

    return write, _start(copy)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however often that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _start(copy: object) -> threading.Thread:
    thread = threading.Thread(target=copy, name="bough-driver-copy", daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread
