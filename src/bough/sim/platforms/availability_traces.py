"""How much of a host or a link there is for us over time: traces, from files and from a generator.

A trace is a step function: from each time on a share of the full speed, up to the next; after its end it begins again.
A file has a line for each step, `SECONDS SHARE`, from 0 on; the last line says where it ends. The generator draws a
first-order autoregressive process, as loads of shared hosts were found to be by the Network Weather Service and by
Dinda: each value is the mean, and a part of how far the last one was from it, and noise.
Rules: a host of speed s that is there by a(t) has done a task of cost C when s times the integral of a over its run is
C (Storage Affinity, 3.8). A trace that is never above 0 is refused: nothing would end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import sqrt
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.errors import UserError
from bough.model.ids import Seconds

Share = Annotated[float, Meta(ge=0, le=1)]


class Trace:
    """See the module. `times` begin with 0; each value lasts until the next time, the last one until `length`."""

    def __init__(self, times: Sequence[Seconds], values: Sequence[float], length: Seconds) -> None:
        if not times or times[0] != 0 or len(times) != len(values):
            raise UserError("a trace of availability begins at 0 seconds and has a share for each time")
        if any(high <= low for low, high in zip(times, [*times[1:], length], strict=True)):
            raise UserError("the times of a trace of availability grow")
        if not all(0 <= value <= 1 for value in values) or not any(values):
            raise UserError("the shares of a trace of availability are from 0 to 1, and not all 0")
        self.length = length
        self._times = list(times)
        self._values = list(values)
        self._sums = [0.0]  # integrals up to each time
        for at, value in enumerate(values):
            end = times[at + 1] if at + 1 < len(times) else length
            self._sums.append(self._sums[-1] + value * (end - times[at]))

    @property
    def mean(self) -> float:
        """Over all its length."""
        return self._sums[-1] / self.length

    def at(self, when: Seconds) -> float:
        """The share at a time."""
        return self._values[bisect_right(self._times, when % self.length) - 1]

    def next_change(self, when: Seconds) -> Seconds:
        """The first time after one at which the share may be another."""
        rounds, within = divmod(when, self.length)
        at = bisect_right(self._times, within)
        base = rounds * self.length
        following = base + (self._times[at] if at < len(self._times) else self.length)
        return following if following > when else base + self.length + (self._times[1] if len(self._times) > 1 else 0)

    def integral(self, when: Seconds) -> float:
        """From 0 to a time."""
        rounds, within = divmod(when, self.length)
        at = bisect_right(self._times, within) - 1
        return rounds * self._sums[-1] + self._sums[at] + self._values[at] * (within - self._times[at])

    def end(self, start: Seconds, work: float) -> Seconds:
        """When so many seconds at full speed have been done that began at a time."""
        if not work:
            return start
        wanted = self.integral(start) + work
        rounds, left = divmod(wanted, self._sums[-1])
        if not left:  # at the very end of a round, or before a share of 0 there
            rounds, left = rounds - 1, self._sums[-1]
        at = next(
            at for at in range(len(self._values)) if self._values[at] and self._sums[at + 1] >= left * (1 - 1e-15)
        )
        return max(start, rounds * self.length + self._times[at] + (left - self._sums[at]) / self._values[at])


class TraceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a platform says: values, each for `step` seconds; or what the generator draws them by."""

    step: Annotated[float, Meta(gt=0, le=1e9)] = 10.0
    values: Annotated[list[Share], Meta(max_length=10_000_000)] = []
    mean: Share = 1.0
    deviation: Share = 0.0
    correlation: Annotated[float, Meta(ge=0, lt=1)] = 0.9  # of a value with the one before
    steps: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000

    def make(self, dice: Random) -> Trace:
        """A trace like this."""
        values = self.values or autoregressive(dice, self.steps, self.mean, self.deviation, self.correlation)
        return Trace([at * self.step for at in range(len(values))], values, len(values) * self.step)


def autoregressive(dice: Random, steps: int, mean: float, deviation: float, correlation: float) -> list[float]:
    """So many values of a first-order process, each within 0.01 and 1."""
    noise = deviation * sqrt(1 - correlation * correlation)
    found, value = [], dice.gauss(mean, deviation)
    for _ in range(steps):
        found.append(min(1.0, max(0.01, value)))
        value = mean + correlation * (value - mean) + dice.gauss(0.0, noise)
    return found


def read_trace(text: str, where: str = "the trace") -> Trace:
    """A trace from the text of a file."""
    times: list[float] = []
    values: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            time, value = (float(word) for word in words)
        except ValueError:
            raise UserError(f"{where}, line {number}: SECONDS SHARE is expected, not {line.strip()[:80]!r}") from None
        times.append(time)
        values.append(value)
    if len(times) < 2:
        raise UserError(f"{where}: at least two lines are needed, the last of which says where it ends")
    try:
        return Trace(times[:-1], values[:-1], times[-1])
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def write_trace(trace: Trace) -> str:
    """The text that `read_trace` reads."""
    lines = [f"{time!r} {value!r}" for time, value in zip(trace._times, trace._values, strict=True)]
    return "\n".join([*lines, f"{trace.length!r} {trace._values[-1]!r}", ""])
