"""How much of a host or a link there is for us over time: traces, from files and from a generator.

    availability = {step = 10, values = [1, 0.5, 0]}            # each for 10 seconds
    availability = {times = [0, 60, 90], values = [1, 0.5]}     # from each time on; the last one says where it ends
    availability = {file = "load.txt", shift = true}            # the same from a file, beside the platform's
    availability = {file = "load-{host}.txt"}                   # each host its own: load-lab1.txt, load-lab2.txt
    availability = [{file = "a.txt"}, {file = "b.txt"}]         # hosts take them in turn
    availability = {mean = 0.7, deviation = 0.2}                # from the generator

A trace is a step function: from each time on a share of the full speed, up to the next; after its end it begins again.
A file has a line for each step, `SECONDS SHARE`, from 0 on; the last line says where it ends; `#` begins a comment.
All hosts of a site (or both ways of a link) have what a file says; with `shift` each begins at a place of its own,
which the seed says. The generator draws a first-order autoregressive process, as loads of shared hosts were found to be
by the Network Weather Service and by Dinda: each value is the mean, and a part of how far the last one was from it, and
noise.
Rules: a host of speed s that is there by a(t) has done a task of cost C when s times the integral of a over its run is
C (Storage Affinity, 3.8). A trace that is never above 0 is refused: nothing would end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.errors import UserError
from bough.model.ids import Seconds

Share = Annotated[float, Meta(ge=0, le=1)]
MOST_STEPS = 10_000_000
HOST = "{host}"  # in the name of a file: the host whose trace it has
LONGEST: Seconds = 1e12


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

    def shifted(self, by: Seconds) -> Trace:
        """The same, which begins where this one is after a time."""
        within = by % self.length
        at = bisect_right(self._times, within) - 1
        times = [0.0, *(time - within for time in self._times[at + 1 :])]
        times += [time + self.length - within for time in self._times[: at + 1]]
        values = [*self._values[at:], *self._values[: at + 1]]
        ends = [*times[1:], self.length]
        steps = [step for step in zip(times, values, ends, strict=True) if step[0] < step[2]]  # a cut leaves empty ones
        return Trace([time for time, *_ in steps], [value for _, value, _ in steps], self.length)

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
    """What a platform says: values, each for `step` seconds or from a time on; a file; or what the generator needs."""

    step: Annotated[float, Meta(gt=0, le=1e9)] = 10.0
    values: Annotated[list[Share], Meta(max_length=MOST_STEPS)] = []
    mean: Share = 1.0
    deviation: Share = 0.0
    correlation: Annotated[float, Meta(ge=0, lt=1)] = 0.9  # of a value with the one before
    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] = 10_000
    times: Annotated[list[Annotated[float, Meta(ge=0, le=LONGEST)]], Meta(max_length=MOST_STEPS + 1)] = []
    file: Annotated[str, Meta(max_length=4096)] = ""  # see `platform_files`, which reads it
    shift: bool = False  # each begins at a place of its own

    def problem(self) -> str:
        """What is wrong with it, as a user should read it; nothing: it can be made."""
        if self.file and (self.values or self.times):
            return "a file and values exclude each other; give one"
        if self.times and len(self.times) != len(self.values) + 1:
            return f"{len(self.times)} times and {len(self.values)} values: give one time for each, and one for the end"
        if self.values and not any(self.values):
            return "its values are all 0, so that nothing would ever end; give one above 0"
        if self.times and (self.times[0] or any(high <= low for low, high in pairwise(self.times))):
            return "its times begin with 0 and grow"
        return ""

    def make(self, dice: Random) -> Trace:
        """A trace like this."""
        if self.file:
            raise UserError(f"the trace of availability {self.file} was not read: use bough.sim.load_platform")
        values = self.values or autoregressive(dice, self.steps, self.mean, self.deviation, self.correlation)
        *times, length = self.times or [at * self.step for at in range(len(values) + 1)]
        made = Trace(times, values, length)
        return made.shifted(dice.uniform(0.0, length)) if self.shift else made

    def with_trace(self, trace: Trace) -> TraceSpec:
        """The same with what its file says in the place of that."""
        return msgspec.structs.replace(self, file="", times=[*trace._times, trace.length], values=list(trace._values))


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
        if not 0 <= value <= 1:
            raise UserError(f"{where}, line {number}: the share {words[1][:80]} is not from 0 to 1")
        if not (times[-1] < time <= LONGEST if times else time == 0):
            wanted = f"times grow, from {times[-1]:g} to at most {LONGEST:g}" if times else "the first time is 0"
            raise UserError(f"{where}, line {number}: the time is {words[0][:80]}; {wanted}")
        times.append(time)
        values.append(value)
    if not 2 <= len(times) <= MOST_STEPS:
        raise UserError(f"{where}: two lines are needed, up to {MOST_STEPS}; the last says where it ends")
    if not any(values[:-1]):
        raise UserError(f"{where}: its shares are all 0, so that nothing would ever end; give one above 0")
    return Trace(times[:-1], values[:-1], times[-1])


def write_trace(trace: Trace) -> str:
    """The text that `read_trace` reads."""
    lines = [f"{time!r} {value!r}" for time, value in zip(trace._times, trace._values, strict=True)]
    return "\n".join([*lines, f"{trace.length!r} {trace._values[-1]!r}", ""])
