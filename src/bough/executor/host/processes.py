"""What Linux knows of processes: death signals, adoption of orphans, groups and their memory.

Rule: nothing here waits; a process that has ended already is not an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Collection
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # libc has no function for it
_libc = ctypes.CDLL(None, use_errno=True)
_killpg = _libc.killpg


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal to this process when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be found and ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def fork_deaf() -> int:
    """Fork; no signal reaches the child until it says `hear_signals`.

    A signal that came before the child has handlers of its own would be told to this process, by the descriptor that
    both have for it: as one of ours.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def hear_signals() -> None:
    """In a child that has its own handlers now."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


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


def give_way(nice: int, turn: float) -> None:
    """Have a lower priority by so much, and turns of so many seconds: it gets little, and gets that soon.

    Kernels before 6.12 know no turns, and only lower the priority.
    """
    with contextlib.suppress(OSError):
        os.nice(nice)
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is not None:
        now = os.getpriority(os.PRIO_PROCESS, 0)
        plain, flags = 0, 0
        attributes = struct.pack("IIQiIQQQ", 48, plain, flags, now, 0, int(turn * 1e9), 0, 0)
        _libc.syscall(number, 0, attributes, 0)


def children() -> list[int]:
    """Children of this single-threaded process, adopted ones and zombies included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def group_memory(group: int) -> int:
    """Resident bytes of all processes of a group."""
    return groups_memory({group})[group]


def groups_memory(groups: Collection[int]) -> dict[int, int]:
    """The same of several groups, in one look at all processes."""
    total = dict.fromkeys(groups, 0)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        group = int(fields[2])
        if group in total:
            total[group] += int(fields[21]) * _PAGE
    return total


class Unstartable(Exception):
    """A command could not be started; the message says why. `of_site`: it might be started elsewhere.

    `lost`: the path of an input that another task had made, and that is nowhere any more. `full`: the disk is.
    """

    def __init__(self, message: str, *, of_site: bool = True, lost: str = "", full: bool = False) -> None:
        super().__init__(message)
        self.of_site = of_site
        self.lost = lost
        self.full = full
