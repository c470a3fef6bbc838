"""What `Popen` was asked to start, read as `subprocess` reads it: words, directory, environment.

Rule: what cannot be done for a process that runs elsewhere is refused by name, with the kind of exception `subprocess`
raises for what a platform cannot do; what a task has anyway (a process group of its own) is taken without a word.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, NamedTuple


class Asked(NamedTuple):
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


class Request(NamedTuple):
    """A process to be started."""

    words: list[str]
    program: str  # what is executed: the first word, unless `executable` says otherwise
    cwd: str | None
    env: dict[str, str] | None  # all of it; None: as this process' own
    umask: int  # -1: as it is
    restores_signals: bool  # False: what Python ignores is ignored


def read_request(asked: Asked) -> Request:
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
    return Request(words, program, cwd, env, asked.umask, bool(asked.restore_signals))


def _refuse(asked: Asked) -> None:
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


def check_startable(request: Request) -> None:
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
