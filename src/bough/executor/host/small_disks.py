"""When a disk is too small for a task, so that waiting for space on it cannot help.

A task that ended for want of space needs more than it could have: what is free when it is gone, the cache is emptied,
and what it read itself is counted as free. If that is nearly the whole disk, nobody is left to wait for. What others
keep there may go, so it is waited for, but not for ever. Of what is brought before a task runs the bytes are known: if
these would fit, others had the space, or the user's quota is used up, which no disk tells.
Rule: a task is sent away only after two failures of which nothing else can have been the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from bough.model.ids import Seconds
from bough.model.sites.resources import show_bytes

LITTLE: Final = 10  # what others keep is worth waiting for if it is more than this part of the disk
_FAILURES: Final = 2
_PATIENCE: Final[Seconds] = 600.0  # for which it is waited for what others keep
_GROWN: Final = 16  # the part of a disk by which there must be more space than before, so that counting begins anew
_COPIES: Final = 4  # times its inputs a task may need before it runs: in the cache, beside it, unpacked
_KNOWN: Final = 10_000  # tasks, and kinds of them

Task = tuple[int, int]  # record and index
K = TypeVar("K")
V = TypeVar("V")


class DiskSpace(NamedTuple):
    """What a task could have of a disk if it ran there alone."""

    folder: str
    free: int
    whole: int

    @property
    def is_nearly_all(self) -> bool:
        """Whether others keep too little to be waited for."""
        return (self.whole - self.free) * LITTLE <= self.whole


class Shortage(NamedTuple):
    """A task ended for want of space."""

    inputs: int  # bytes
    disks: tuple[DiskSpace, ...]  # on which its files lie
    began: Seconds
    ended: Seconds
    alone: bool  # nothing else runs there now
    evicted: int  # bytes of other tasks' files that the cache has given up for it
    ran: bool = True  # its command had begun, and written nobody knows how much


class _Failures(NamedTuple):
    """Of one task, with at most so much space."""

    free: int
    since: Seconds
    times: int


class SmallDisks:
    """What ended for want of space on this host, as far as nothing else was the reason."""

    def __init__(self) -> None:
        self._failures: dict[Task, _Failures] = {}
        self._too_big: dict[int, int] = {}  # records, with the fewest bytes that one of their tasks reads
        self._last: tuple[Task, Seconds] = ((0, 0), 0.0)  # the last shortage, whatever the reason

    def why_too_small(self, task: Task, one: Shortage) -> str:
        """Why a task that ended for want of space can never run here; empty: it may, later."""
        (other, when), self._last = self._last, (task, one.ended)
        if not one.disks or (other != task and when >= one.began):
            return ""  # two that ran at once: each may have space when it is alone
        disk = min(one.disks, key=lambda disk: disk.free)
        if not one.ran and _COPIES * one.inputs <= disk.free:
            return ""  # it needed its inputs only: others had the space, or the user's quota is used up
        if one.evicted * _GROWN > disk.whole or not (one.alone or disk.is_nearly_all):
            return ""
        before = self._failures.pop(task, None)
        if before is None or disk.free - before.free > disk.whole // _GROWN:
            is_known = one.inputs >= self._too_big.get(task[0], one.inputs + 1)
            before = _Failures(disk.free, one.ended, 1 if is_known else 0)
        count = before.times + 1
        if count < _FAILURES or not (disk.is_nearly_all or one.ended - before.since >= _PATIENCE):
            _note(self._failures, task, _Failures(max(before.free, disk.free), before.since, count))
            return ""
        _note(self._too_big, task[0], min(one.inputs, self._too_big.get(task[0], one.inputs)))
        return _describe(one.inputs, disk)


def _note(known: dict[K, V], key: K, value: V) -> None:
    """Remember something; what was noted first is forgotten when there is too much."""
    known.pop(key, None)
    if len(known) >= _KNOWN:
        del known[next(iter(known))]
    known[key] = value


def _describe(inputs: int, disk: DiskSpace) -> str:
    """What was needed, what there was, and what to do."""
    reads = f"its inputs have {show_bytes(inputs)}, and " if inputs else ""
    kept = "" if disk.is_nearly_all else f", of which others keep {show_bytes(disk.whole - disk.free)}"
    return (
        f"{reads}with what it writes it needs more than the {show_bytes(disk.free)} that it could have on the disk of"
        f" {disk.folder} ({show_bytes(disk.whole)}{kept}): run it where --work lies on a bigger disk"
    )


def spaces_of(folders: Iterable[tuple[str, int]]) -> tuple[DiskSpace, ...]:
    """The disks of folders, each once; with each folder the bytes there that count as free."""
    found: dict[int, DiskSpace] = {}
    for folder, own in folders:
        try:
            device, state = os.stat(folder).st_dev, os.statvfs(folder)
        except OSError:
            continue
        before = found.get(device)
        free = before.free if before is not None else state.f_bavail * state.f_frsize
        whole = (state.f_blocks - state.f_bfree + state.f_bavail) * state.f_frsize  # some is for root alone
        found[device] = DiskSpace(folder, min(whole, free + own), whole)
    return tuple(one for one in found.values() if one.whole > 0)
