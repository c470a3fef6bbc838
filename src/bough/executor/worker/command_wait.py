"""Waiting for a command: its end, its limits, and whoever wants it ended meanwhile.

Most commands are short, and to watch one costs more than to wait for it. So a wait begins as a plain one that a clock
breaks off after a moment; only what runs on is watched. Rule: what the executor says is heard within a moment, and
the end of a process is looked at here and taken in by the caller, so that breaking off a wait loses nothing.
"""

from __future__ import annotations

import os
import select
import signal
import time

from bough.executor.processes import group_memory, kill_group
from bough.executor.worker.worker_channel import WorkerInbox, WorkerReports
from bough.model.outcomes import Cause, Failure
from bough.model.resources import show_bytes
from bough.wire.executor_messages import RunSpan

_MOMENT = 0.01  # seconds between looks at what is said while short commands run
_TELL = (0.01, 0.05)  # seconds that news of short commands wait for the next: at least, at most
_TOGETHER = 5  # ends of commands that are told together when there are more to come
_TERM_GRACE = 2.0  # seconds between TERM and KILL when a limit is passed
_LOOK = 0.1  # seconds between looks at the memory of a group
NEVER = float("inf")
_ENDED = os.WEXITED | os.WNOWAIT


class _Moment(Exception):
    """Breaks off a plain wait."""


class CommandWait:
    """Waits for the commands of one worker, one after the other."""

    def __init__(self, inbox: WorkerInbox, speaker: WorkerReports) -> None:
        self._inbox = inbox
        self._speaker = speaker
        self._poll = select.poll()
        self._poll.register(inbox.sock, select.POLLIN)
        self._ticks = False  # the clock runs
        self._plain = False  # a plain wait may be broken off
        self._before: object = None  # what SIGALRM did before; None: it is not ours now
        self.end: tuple[Failure | None, float] | None = None  # why the command is being ended, and when it gets KILL
        self.patience = _TELL[0]  # seconds that news may wait while more commands follow

    def wait(self, pid: int, number: int, run: RunSpan, index: int) -> None:
        """Return when the process has ended, by itself or by us."""
        self.end = None
        limits = run.limits
        if limits.timeout or limits.memory:
            self._watch(pid, number, run, index)
            return
        if not self._ticks:
            self._start_clock()
        try:
            self._plain = True
            os.waitid(os.P_PID, pid, _ENDED)
            self._plain = False
        except _Moment:
            self._watch(pid, number, run, index)

    def lasted(self, seconds: float) -> None:
        """How long a command took: who waits for its end does not mind as much again a few times."""
        least, most = _TELL
        self.patience = min(max(least, _TOGETHER * seconds), most)

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

    def _watch(self, pid: int, number: int, run: RunSpan, index: int) -> None:
        """Wait for what takes longer, or has limits."""
        self.rest()
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.POLLIN)
        now = time.monotonic()
        deadline = now + run.limits.timeout if run.limits.timeout else NEVER
        look = now + _LOOK if run.limits.memory else NEVER
        try:
            while True:
                ready = [fd for fd, _ in self._poll.poll(self._patience(deadline, look))]
                if pidfd in ready:
                    if len(ready) > 1:
                        self._inbox.read()
                    return
                if ready:
                    self._hear(pid, number, index)
                if self._speaker.due(self.patience):
                    self._speaker.flush()
                now = time.monotonic()
                if self.end:
                    if now >= self.end[1]:
                        kill_group(pid)
                        self.end = (self.end[0], NEVER)
                elif now >= deadline:
                    self._finish(pid, Failure(Cause.TIMEOUT, f"ran longer than {run.limits.timeout:g} s"), _TERM_GRACE)
                elif now >= look:
                    look = now + _LOOK
                    self._weigh(pid, run.limits.memory)
        finally:
            self._poll.unregister(pidfd)
            os.close(pidfd)

    def _patience(self, deadline: float, look: float) -> float | None:
        """Milliseconds to wait for something to happen; None: as long as it takes."""
        until = self.end[1] if self.end else min(deadline, look)
        if until == NEVER:
            return self.patience * 1000 if self._speaker.waiting else None
        now = time.monotonic()
        if self._speaker.waiting:
            until = min(until, now + self.patience)
        return max(0.0, until - now) * 1000 + 1

    def _weigh(self, pid: int, limit: int) -> None:
        """End a group that uses too much memory."""
        used = group_memory(pid)
        if used > limit:
            failure = Failure(Cause.MEMORY, f"used {show_bytes(used)}, the limit is {show_bytes(limit)}")
            self._finish(pid, failure, _TERM_GRACE)

    def _hear(self, pid: int, number: int, index: int) -> None:
        self._inbox.read()
        halt = self._inbox.halted(number, index)
        if self._inbox.quit is not None:
            self._finish(pid, None, self._inbox.quit)
        elif halt and not self.end:
            self._finish(pid, None, halt.grace)

    def _finish(self, pid: int, failure: Failure | None, grace: float) -> None:
        self.end = (failure, time.monotonic() + grace)
        kill_group(pid, signal.SIGTERM if grace > 0 else signal.SIGKILL)
