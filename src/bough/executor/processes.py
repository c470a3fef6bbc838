"""What Linux knows of processes: death signals, adoption of orphans, groups and their memory.

Rule: nothing here waits; a process that has ended already is not an error.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)
_killpg = _libc.killpg


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal to this process when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be found and ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(group: int, number: int = signal.SIGKILL) -> bool:
    """Signal a process group; False if nothing of it is left."""
    return bool(_killpg(group, number) == 0)  # not by `os`: mostly nothing is left, and exceptions cost


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process that may have ended."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def die(group: int) -> NoReturn:
    """End this process, after the process group that depends on it (0: none)."""
    if group:
        kill_group(group)
    os._exit(1)


def children() -> list[int]:
    """Children of this single-threaded process, adopted ones and zombies included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def group_memory(group: int) -> int:
    """Resident bytes of all processes of a group."""
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            total += int(fields[21]) * _PAGE
    return total


class Unstartable(Exception):
    """A command could not be started; the message says why. `of_site`: it might be started elsewhere."""

    def __init__(self, message: str, *, of_site: bool = True) -> None:
        super().__init__(message)
        self.of_site = of_site
