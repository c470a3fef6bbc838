"""A limit on the time that one monitor's code takes: a pattern that never ends, a function that loops.

A regular expression looks for signals while it matches, so that an alarm can break it off. Rule: the alarm raises only
while a monitor's code runs; what it cannot break off is for others to end.
"""

from __future__ import annotations

import signal

from bough.executor.monitors.evaluation.engine import MonitorHangs

LIMIT = 5.0  # seconds of processor time


class CodeTimer:
    """One for a process: it takes SIGPROF."""

    def __init__(self) -> None:
        self._runs = False
        signal.signal(signal.SIGPROF, self._on_alarm)

    def start(self) -> None:
        """A monitor's code begins."""
        self._runs = True
        signal.setitimer(signal.ITIMER_PROF, LIMIT)

    def stop(self) -> None:
        """It has ended."""
        self._runs = False
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _on_alarm(self, _number: int, _frame: object) -> None:
        if self._runs:
            self._runs = False
            raise MonitorHangs(f"it took more than {LIMIT:g} s; it is set aside")
