"""What a simulated run with files measured: each attempt with its times and bytes, and what was wasted.

Rule: the bytes that an attempt asked for are those it found, those it waited for with others, and those it fetched.
Waste is that of Storage Affinity, 4.8: what attempts cost that another one overtook.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bough.model.ids import Seconds


class Attempt(msgspec.Struct):
    """One try at a task that has files. Times that it did not reach are -1."""

    task: int  # its place in the workload
    record: int
    element: int
    number: int  # of the attempt
    executor: int
    site: str
    host: str
    speed: float  # of the host
    began: Seconds  # its inputs are being brought from then on
    staged: Seconds = -1.0  # it runs from then on
    ran: Seconds = -1.0  # it writes its outputs from then on
    ended: Seconds = -1.0
    outcome: str = ""  # done, failed, killed (another attempt overtook it, or it was stopped) or lost (with its host)
    asked: int = 0  # bytes of its inputs, as far as it came
    hit: int = 0  # of these: in the cache of its host
    store: int = 0  # in the store of its site
    joined: int = 0  # already on the way there for another attempt
    peer: int = 0  # fetched from another host or site
    origin: int = 0  # fetched from home
    written: int = 0  # bytes of outputs
    returned: int = 0  # of these: sent home
    moved: float = 0.0  # bytes that travelled for it, also those of transfers that were called off

    @property
    def stage_in(self) -> Seconds:
        """How long its inputs took, as far as it came."""
        return max(0.0, (self.staged if self.staged >= 0 else self.ended) - self.began)

    @property
    def run(self) -> Seconds:
        """How long it ran."""
        return max(0.0, (self.ran if self.ran >= 0 else self.ended) - self.staged) if self.staged >= 0 else 0.0

    @property
    def stage_out(self) -> Seconds:
        """How long its outputs took."""
        return max(0.0, self.ended - self.ran) if self.ran >= 0 else 0.0

    @property
    def cycles(self) -> float:
        """What it computed, in seconds of a host of speed 1."""
        return self.run * self.speed


class Measured(msgspec.Struct):
    """All attempts of a run that had files, in the order in which they ended."""

    attempts: Sequence[Attempt]

    def total(self, field: str) -> float:
        """The sum over all attempts of a field: `hit`, `origin`, `stage_in`, ..."""
        return float(sum(getattr(one, field) for one in self.attempts))

    @property
    def hit_rate(self) -> float:
        """The share of asked bytes that were where the attempt ran, or on their way there; 1 if none were asked for."""
        asked = self.total("asked")
        return (self.total("hit") + self.total("store") + self.total("joined")) / asked if asked else 1.0

    @property
    def cpu_waste(self) -> float:
        """What killed attempts computed, for each second that winning ones did."""
        won = sum(one.cycles for one in self.attempts if one.outcome == "done")
        return sum(one.cycles for one in self.attempts if one.outcome == "killed") / won if won else 0.0

    @property
    def network_waste(self) -> float:
        """Bytes that travelled for killed attempts, for each byte of input of the tasks."""
        asked = {one.task: one.asked for one in self.attempts if one.outcome == "done"}
        total = sum(asked.values())
        return sum(one.moved for one in self.attempts if one.outcome == "killed") / total if total else 0.0
