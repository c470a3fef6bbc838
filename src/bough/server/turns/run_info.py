"""What a server knows of the run it serves, and its clock.

The clock starts at the system's time and is steady from then on, so that no wait (for a retry, for a suspended
executor) ends early or late because the system's clock was set. Rule: `now` never goes back, and advances as fast as
time does, also while the machine sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import msgspec

from bough.model.arrays.dispatch_tuning import DispatchTuning
from bough.model.ids import ExecutorId, Seconds
from bough.model.reuse_scope import ReuseScope

_NOTED = 5.0  # seconds of difference that are spoken of
_boot_time = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class RunInfo(msgspec.Struct, frozen=True):
    """One run of one workflow, as its server knows it."""

    run: int
    store_dir: str  # absolute
    marker: str  # in the environment of everything an executor starts
    first_record: int = 1  # the numbers that a session's clients and executors get; a service keeps a book of its own
    first_group: int = 1
    first_executor: ExecutorId = ExecutorId(1)
    memos: bool = False  # earlier runs may hold results to reuse
    reuse: ReuseScope = ReuseScope.ALL  # where tasks look that do not say `always`; a service's workflows say it
    embedded: bool = True
    tuning: DispatchTuning = DispatchTuning()
    policy: str = "fifo"  # the placement policy, as it was named
    replication: str = "none"  # likewise
    token: str = ""  # of a service: the content of the file `token` in its store's folder

    def folder(self, name: str) -> str:
        """A folder of the store."""
        return f"{self.store_dir}/{name}"


class Clock:
    """See the module."""

    def __init__(self, wall: Callable[[], Seconds] = time.time, steady: Callable[[], Seconds] = _boot_time) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()
        self._noted = 0.0

    def now(self) -> Seconds:
        """Seconds since the epoch."""
        return self._offset + self._steady()

    def jump(self) -> Seconds:
        """By how much the system's clock was set since the last time this was asked; 0: not to speak of."""
        apart = self._wall() - self.now()
        if abs(apart - self._noted) < _NOTED:
            return 0.0
        jumped, self._noted = apart - self._noted, apart
        return jumped
