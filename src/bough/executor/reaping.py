"""Ends of processes: of workers, of what they left behind, and of orphans that became ours.

Rule: nobody is waited for who has not ended, except a worker whose end was seen.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from bough.executor.board import GROUP
from bough.executor.processes import children, kill_group
from bough.executor.slots import Slot


class Reaper:
    """Keeps how workers ended that were reaped before they were missed."""

    def __init__(self) -> None:
        self._statuses: dict[int, int] = {}

    def status(self, pid: int) -> int:
        """How a worker ended."""
        status = self._statuses.pop(pid, None)
        if status is None:
            try:
                status = os.waitpid(pid, 0)[1]
            except ChildProcessError:
                status = 0
        return status

    def end_orphans(self, slots: Collection[Slot]) -> None:
        """End what a dead worker had just started and not yet put on its board: it is our child now."""
        workers = {slot.pid for slot in slots}
        groups = workers | {slot.board[GROUP] for slot in slots}
        own = os.getsid(0)
        for pid in children():
            try:
                group = os.getpgid(pid)
                if pid not in workers and group not in groups and os.getsid(pid) == own and group != os.getpgrp():
                    kill_group(group)
            except ProcessLookupError:
                continue

    def reap_adopted(self, slots: Collection[Slot]) -> None:
        """Reap orphans that became ours; they are children of commands whose own parent has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if any(slot.pid == pid for slot in slots):
                self._statuses[pid] = status
