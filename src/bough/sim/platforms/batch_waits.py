"""How long requests wait in a batch queue, and when hosts are lost: what stands behind a simulated site.

Waits are fixed (`simulated_site.after`), sampled from a distribution, or those of the jobs of a recorded log in the
Standard Workload Format (Feitelson): 18 columns, `;` before comments, of which the third is the wait in seconds and the
fifth the number of processors. `startup` is what passes between the start of the job and its first executor.
Rule: dice come with a seed, so that a run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log, sqrt
from random import Random

import msgspec

from bough.errors import UserError
from bough.model.events.facts import ExecutorLost
from bough.model.ids import ExecutorId, Seconds
from bough.sim.platforms.simulated_site import Queue

_COLUMNS = 18
_LONGEST: Seconds = 1e9


class RecordedJob(msgspec.Struct, frozen=True, gc=False):
    """One job of a log."""

    submitted: Seconds
    wait: Seconds
    run: Seconds
    processors: int


def read_swf(text: str, where: str = "the log") -> list[RecordedJob]:
    """The jobs of a log in the Standard Workload Format whose wait is known."""
    found: list[RecordedJob] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition(";")[0].split()
        if not words:
            continue
        try:
            _, submitted, wait, run, count = (float(word) for word in words[:5])
            processors = int(count)
        except (ValueError, OverflowError):
            raise UserError(f"{where}, line {number}: this is no job of the Standard Workload Format") from None
        if len(words) != _COLUMNS:
            raise UserError(f"{where}, line {number}: a job has {_COLUMNS} columns, and this one has {len(words)}")
        if 0 <= wait <= _LONGEST:  # -1: not known
            found.append(RecordedJob(submitted, wait, max(0.0, run), max(0, processors)))
    if not found:
        raise UserError(f"{where} has no job whose wait is known")
    return found


def sampled(seed: int, mean: Seconds, deviation: Seconds = 0.0, startup: Seconds = 0.0) -> Queue:
    """Each request waits for a time of its own, with this mean: log-normal, or exponential if no deviation is said."""
    if not 0 < mean <= 1e9 or not 0 <= deviation <= 1e9:
        raise UserError(f"a mean wait of {mean:g} s and a deviation of {deviation:g} s: say times above 0")
    dice = Random(f"waits {seed}")
    spread = sqrt(log(1 + (deviation / mean) ** 2))
    middle = log(mean) - spread * spread / 2

    def queue(now: Seconds, nth: int, many: int) -> list[Seconds]:
        wait = dice.lognormvariate(middle, spread) if deviation else dice.expovariate(1 / mean)
        return [now + wait + startup] * many

    return queue


def recorded(waits: Sequence[Seconds], seed: int = 0, startup: Seconds = 0.0) -> Queue:
    """Requests wait as the jobs of a log did, one after the other, from one that the seed says; then from its start."""
    first = Random(f"log {seed}").randrange(len(waits)) if seed else 0

    def queue(now: Seconds, nth: int, many: int) -> list[Seconds]:
        return [now + waits[(first + nth) % len(waits)] + startup] * many

    return queue


def failures(
    executors: Iterable[int], mean: Seconds, until: Seconds, seed: int | str = 0, reason: str = "its host failed"
) -> list[tuple[Seconds, ExecutorLost]]:
    """When which executors are lost, up to a time: each after a time of its own with this mean. For `Simulation.at`."""
    dice = Random(f"failures {seed}")
    drawn = [(dice.expovariate(1 / mean), ExecutorLost(ExecutorId(number), reason)) for number in executors]
    return sorted([one for one in drawn if one[0] <= until], key=lambda one: (one[0], one[1].executor))
