"""Tail: a task that runs longer than tasks like it is run again elsewhere, when executors idle at the end.

A task is late when it has run for `factor` times what is expected of it, by the mean of its template or the user's
estimate; one of which nothing is expected, once it is as old as the policy asks. The latest goes first. It is our own
rule, after the backup tasks of J. Dean and S. Ghemawat, "MapReduce", OSDI 2004: few replicas, of the stragglers only.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from bough.model.ids import Seconds
from bough.policy.interface import AskAgain, Replicate, ReplicationView, RunningWork

_MOST_COMPARED = 1000  # running tasks that are looked at in one turn
USUAL_AGE: Seconds = 5.0  # what is shorter is not worth a second attempt


class Tail:
    """See the module."""

    def __init__(self, cap: int = 1, age: Seconds = USUAL_AGE, factor: float = 1.5, measured: int = 0) -> None:
        """`measured`: how many tasks of its template must have been for a task to be late."""
        self.cap = cap
        self.age = age
        self._factor = factor
        self._measured = measured

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate | AskAgain]:
        """The latest first; and again when the next one is late."""
        works = [work for work in islice(view.running(), _MOST_COMPARED) if work.measured >= self._measured]
        works.sort(key=self._late_at)
        for work in works:
            late_at = self._late_at(work)
            if late_at > view.now:
                yield AskAgain(late_at)
                return
            executor = view.executor_for(work)
            if executor is not None:
                ran, expected = view.now - work.since, work.expected
                than = f", {ran / expected:.1f} times what is expected" if expected else ""
                yield Replicate(work.id, work.index, executor.id, f"it had run for {ran:.0f} s{than}")
            if not view.executors():
                return

    def _late_at(self, work: RunningWork) -> Seconds:
        """When a task is late."""
        return work.since + max(self.age, self._factor * work.expected)
