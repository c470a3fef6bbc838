"""Waiting for a command: for its end, and for the executor's order to end it.

Most commands are short, and to watch one costs more than to wait for it. So a wait begins as a plain one that a clock
breaks off after a moment; only what runs on is watched. The executor keeps the limits: it orders the end of a command
that is over one, with the verdict. Rule: an order of the executor is heard within a moment, and the end of a process
is looked at here and taken in by the caller, so that breaking off a wait loses nothing. Of a command that takes long
the caller is told once, so that it can give back what waits behind it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from bough.executor.host.processes import kill_group
from bough.executor.worker.worker_channel import LONG, WorkerInbox, WorkerReports
from bough.executor.worker_protocol import Verdict
from bough.model.ids import Seconds

_MOMENT = 0.01  # seconds between looks at what is said while short commands run
_TELL = (0.01, 0.05)  # seconds that news of short commands wait for the next: at least, at most
_TOGETHER = 5  # ends of commands that are told together when there are more to come
NEVER = float("inf")
_ENDED = os.WEXITED | os.WNOWAIT


class _Moment(Exception):
    """Breaks off a plain wait."""


class CommandEnd(NamedTuple):
    """A command is being ended."""

    verdict: Verdict
    kill_at: float = NEVER  # monotonic seconds


class CommandWait:
    """Waits for the commands of one worker, one after the other."""

    def __init__(self, inbox: WorkerInbox, reports: WorkerReports) -> None:
        self._inbox = inbox
        self._reports = reports
        self._poll = select.poll()
        self._poll.register(inbox.sock, select.POLLIN)
        self._ticks = False  # the clock runs
        self._plain = False  # a plain wait may be broken off
        self._before: object = None  # what SIGALRM did before; None: it is not ours now
        self.end: CommandEnd | None = None  # why the command is being ended
        self.max_wait = _TELL[0]  # seconds that news may wait while more commands follow
        self._on_long: Callable[[], None] | None = None

    def wait(self, pid: int, number: int, index: int, on_long: Callable[[], None] | None = None) -> None:
        """Return when the process has ended, by itself or by us. `on_long` is called once if it takes `LONG`."""
        self.end = None
        self._on_long = on_long
        if not self._ticks:
            self._start_clock()
        try:
            self._plain = True
            os.waitid(os.P_PID, pid, _ENDED)
            self._plain = False
        except _Moment:
            self._watch(pid, number, index)

    def lasted(self, seconds: float) -> None:
        """How long a command took: its news may wait as long again a few times."""
        least, most = _TELL
        self.max_wait = min(max(least, _TOGETHER * seconds), most)

    def _start_clock(self) -> None:
        if self._before is None:
            self._before = signal.signal(signal.SIGALRM, self._on_alarm) or signal.SIG_DFL
        self._ticks = True
        signal.setitimer(signal.ITIMER_REAL, _MOMENT, _MOMENT)  # again and again: the first may come too early

    def _on_alarm(self, _number: int, _frame: object) -> None:
        if self._plain:
            self._plain = False
            raise _Moment

    def rest(self) -> None:
        """Nothing is waited for now."""
        if self._ticks:
            self._ticks = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def leave(self) -> None:
        """Functions follow, which may want the alarm for themselves."""
        self.rest()
        if self._before is not None:
            signal.signal(signal.SIGALRM, self._before)  # type: ignore[arg-type]
            self._before = None

    def _watch(self, pid: int, number: int, index: int) -> None:
        """Wait for what takes longer."""
        self.rest()
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.POLLIN)
        long_at = time.monotonic() + LONG if self._on_long is not None else NEVER
        try:
            while True:
                ready = [fd for fd, _ in self._poll.poll(self._milliseconds(long_at))]
                if pidfd in ready:
                    if len(ready) > 1:
                        self._inbox.read()
                    return
                if ready:
                    self._read(pid, number, index)
                if self._on_long is not None and time.monotonic() >= long_at:
                    self._on_long()
                    self._on_long, long_at = None, NEVER
                if self._reports.due(self.max_wait):
                    self._reports.flush()
                if self.end and time.monotonic() >= self.end.kill_at:
                    kill_group(pid)
                    self.end = CommandEnd(self.end.verdict)
        finally:
            self._poll.unregister(pidfd)
            os.close(pidfd)

    def _milliseconds(self, long_at: float) -> float | None:
        """How long to wait for something to happen; None: as long as it takes."""
        until = min(self.end.kill_at, long_at) if self.end else long_at
        if until == NEVER:
            return self.max_wait * 1000 if self._reports.waiting else None
        now = time.monotonic()
        if self._reports.waiting:
            until = min(until, now + self.max_wait)
        return max(0.0, until - now) * 1000 + 1

    def _read(self, pid: int, number: int, index: int) -> None:
        self._inbox.read()
        order = self._inbox.stopped_by(number, index)
        verdict = self._inbox.verdict_on(number, index)
        if self._inbox.quit is not None:
            self._end_with(pid, None, self._inbox.quit)
        elif self.end:
            return
        elif order:
            self._end_with(pid, None, order.grace)
        elif verdict:
            self._end_with(pid, verdict.verdict, verdict.grace)

    def _end_with(self, pid: int, verdict: Verdict, grace: Seconds) -> None:
        self.end = CommandEnd(verdict, time.monotonic() + grace)
        kill_group(pid, signal.SIGTERM if grace > 0 else signal.SIGKILL)
