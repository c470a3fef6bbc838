"""Measured run time by template and by size of input, and how many tasks a span holds.

Rule: a size tells a run time only where both were seen to go together. A span is a few tens of milliseconds of work,
halves towards the end, and is one task while the run time is unknown or long, so that bundling never unbalances the
load; the wait for inputs counts as work. Trust grows with what was measured: no executor gets more than twice as many
tasks at once as have been measured so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from bough.model.ids import Seconds

HAND_OUT: Seconds = 0.05  # of work in one span
FINEST: Seconds = 0.002  # of work: halving towards the end stops here, where it would cost more than it evens out
BACKLOG: Seconds = 0.2  # of short work on an executor, running and waiting, per core
SHORT: Seconds = 0.15  # tasks at most this long may wait in a backlog
MAX_SPAN = 5000  # elements in one span: bounds what one lost worker repeats and one journal row holds
MAX_BACKLOG = 2000  # spans on one executor
TRUST = 2  # tasks out at once per task measured
_TOGETHER = 64  # loose tasks in one message
_HELD_UP: Seconds = 0.005  # of work in it
_NEW = 0.3  # weight of the newest measurement
_LEAST = 1e-9  # a run time is never nothing: 0 means unknown
_NO_WAIT: Seconds = 0.001  # for inputs: less is none
_ENOUGH = 8  # tasks whose sizes and run times are compared
_SPREAD = 0.1  # of sizes around their mean, below which they say nothing
_TOGETHER_AT_LEAST = 0.5  # of the variance of run times that sizes must explain: a correlation of 0.7
_SHORTEST = 0.01  # of the mean: what a line through the measurements may say at least
_FADES_AT = 1024  # tasks: then what was measured so far counts for half


class RunTime:
    """The measured mean run time of one template, shared by its records; 0 while unknown.

    `slot` is for how long such a task has its slot: it may wait there for its inputs, and be short all the same.
    """

    __slots__ = ("mean", "seen", "slot", "wait")

    def __init__(self, mean: Seconds = 0.0, seen: int = 0, wait: Seconds = 0.0) -> None:
        self.mean = mean
        self.seen = seen  # how many tasks were measured
        self.wait = wait  # for inputs
        self.slot = mean + wait

    def believe(self, mean: Seconds, seen: int) -> None:
        """Go by what somebody else has measured."""
        self.mean = mean
        self.seen = seen
        self.slot = mean + self.wait

    def note(self, tasks: int, seconds: Seconds, waited: Seconds = 0.0) -> None:
        """Take in a report of some tasks: how long they ran, and how long they had waited for their inputs."""
        self.seen += tasks
        each = seconds / tasks
        old = self.mean
        self.mean = old + _NEW * (each - old) + _LEAST if old else each + _LEAST
        if waited or self.wait:
            wait = waited / tasks
            self.wait += (_NEW if old else 1.0) * (wait - self.wait)
            if self.wait < _NO_WAIT:
                self.wait = 0.0
        self.slot = self.mean + self.wait


class RunTimeBySize:
    """Run times of one template by the bytes of the input, as sums, and the straight line through them."""

    __slots__ = ("count", "product", "size", "square", "time", "time_square")

    def __init__(self) -> None:
        self.count = self.size = self.time = 0.0
        self.square = self.product = self.time_square = 0.0  # of sizes, of both, of times

    def note(self, size: int, seconds: Seconds) -> None:
        """A task with so many bytes of input ran for so long."""
        self.count += 1.0
        self.size += size
        self.time += seconds
        self.square += float(size) * size
        self.product += size * seconds
        self.time_square += seconds * seconds
        if self.count >= _FADES_AT:
            self.restore([one / 2 for one in self.sums()])

    def at(self, size: int) -> Seconds:
        """The run time of a task with so many bytes of input; 0: sizes do not tell."""
        count = self.count
        if count < _ENOUGH or size <= 0:
            return 0.0
        mean_size, mean = self.size / count, self.time / count
        spread, together = self.square / count - mean_size * mean_size, self.product / count - mean_size * mean
        varies = self.time_square / count - mean * mean
        if together <= 0 or varies <= 0 or spread < (_SPREAD * mean_size) ** 2:
            return 0.0
        if together * together < _TOGETHER_AT_LEAST * spread * varies:
            return 0.0
        return max(mean + together / spread * (size - mean_size), _SHORTEST * mean)

    def sums(self) -> tuple[float, ...]:
        """What is kept of it."""
        return self.count, self.size, self.time, self.square, self.product, self.time_square

    def restore(self, sums: Sequence[float]) -> None:
        """Go on with what was kept."""
        self.count, self.size, self.time, self.square, self.product, self.time_square = sums


def most_together(runtime: RunTime) -> int:
    """How many loose tasks travel as one: few, so that one that turns out to be long holds up few others."""
    return max(1, min(_TOGETHER, int(_HELD_UP / runtime.slot))) if runtime.slot > 0 else 1


def span_size(runtime: RunTime, ready: int, cores: float, most: int = MAX_SPAN) -> int:
    """How many ready elements to hand out at once, with so many cores to share them, and no more than `most`."""
    each = runtime.slot
    if each <= 0:
        return 1
    by_time = int(HAND_OUT / each)
    by_share = max(int(ready / (2 * cores)), int(FINEST / each)) if cores else by_time
    return max(1, min(by_time, by_share, TRUST * runtime.seen, most))
