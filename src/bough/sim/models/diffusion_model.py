"""The abstract model of data diffusion (Raicu 2009, 6.3.1, equations 3 to 11), with its errata put right.

Tasks read one object each: from the cache of their own node, from that of another node, or from persistent storage. The
model says how long a task takes, how long a workload does, and which rate of arrival the nodes can take.
Errata (section 3.7 of the specification): equation 6 has to be divided by the number of processors; the two ends of
equation 9 are printed in the wrong order; equation 10 is consistent with 11 as `A = U N P / T`.
Rule: costs are seconds of one access, ratios add up to 1.
"""

from __future__ import annotations

import msgspec

from bough.errors import UserError
from bough.model.ids import Seconds


class AccessCosts(msgspec.Struct, frozen=True):
    """Mean seconds of one access: R_l, R_c and R_s; `compute` is C, what a task computes beside it."""

    local: Seconds
    peer: Seconds
    storage: Seconds
    compute: Seconds = 0.0


class HitRatios(msgspec.Struct, frozen=True):
    """Which share of the accesses goes where: HR_l, HR_c and HR_s."""

    local: float
    peer: float
    storage: float

    def __post_init__(self) -> None:
        if min(self.local, self.peer, self.storage) < 0 or abs(self.local + self.peer + self.storage - 1) > 1e-9:
            raise UserError(f"hit ratios of {self.local:g}, {self.peer:g} and {self.storage:g} do not add up to 1")


class Bounds(msgspec.Struct, frozen=True):
    """Between what and what something lies."""

    low: float
    high: float


def ideal_hit_ratio(locality: float) -> float:
    """Of a workload that reads each file so often on the average: 1 - 1/L."""
    return 1.0 - 1.0 / max(1.0, locality)


def storage_cost(size: float, latency: Seconds, bandwidth: float, readers: int = 1, aggregate: float = 0.0) -> Seconds:
    """R_s of an object while so many read at once: one stream is bounded by `bandwidth`, all by `aggregate`."""
    alone = latency + size / bandwidth
    return max(alone, readers * size / aggregate) if aggregate else alone


def contended_storage(costs: AccessCosts, ratios: HitRatios, processors: int, occupied: Seconds) -> AccessCosts:
    """The costs with R_s as it is when all processors read through one link, which an object occupies so long.

    How many read at once follows from the costs: the readers of `storage_cost` are those that are found reading, which
    is `processors HR_s R_s / TK`. So a task takes as long as without contention, or, if that is longer, as the link
    takes for what all processors read from storage meanwhile.
    """
    lacking = processors * ratios.storage * occupied - task_time(costs, ratios)
    if lacking <= 0:
        return costs
    return msgspec.structs.replace(costs, storage=costs.storage + lacking / ratios.storage)


def undirected_ratios(locality: int, nodes: int) -> HitRatios:
    """Expected, if tasks go to any node, caches hold all and each object is read so often: the first is from storage.

    The n-th reader finds the object at its own node unless all readers before it were on others.
    """
    local = sum(1.0 - (1.0 - 1.0 / nodes) ** before for before in range(locality)) / locality
    storage = 1.0 / locality
    return HitRatios(local, max(0.0, 1.0 - storage - local), storage)


def task_bounds(costs: AccessCosts, cache: float, working_set: float) -> Bounds:
    """Equation 3: the seconds of a task when the caches hold all of the working set, or do not."""
    low, high = (costs.local, costs.peer) if cache >= working_set else (costs.peer, costs.storage)
    return Bounds(low + costs.compute, high + costs.compute)


def task_time(costs: AccessCosts, ratios: HitRatios) -> Seconds:
    """Equation 5, which merges the two of 4: the mean seconds of a task."""
    access = costs.local * ratios.local + costs.peer * ratios.peer + costs.storage * ratios.storage
    return costs.compute + access


def workload_time(costs: AccessCosts, ratios: HitRatios, tasks: int, processors: int) -> Seconds:
    """Equation 6, for some processors: all tasks, evenly spread."""
    return task_time(costs, ratios) * tasks / processors


def speedup(one: Seconds, many: Seconds) -> float:
    """Equation 7."""
    return one / many


def efficiency(one: Seconds, many: Seconds, processors: int) -> float:
    """Equation 8."""
    return speedup(one, many) / processors


def arrival_bounds(costs: AccessCosts, cache: float, working_set: float, processors: int, speed: float = 1.0) -> Bounds:
    """Equation 9: between which rates of arrival, in tasks a second, the highest lies that the processors can take."""
    seconds = task_bounds(costs, cache, working_set)
    return Bounds(processors * speed / seconds.high, processors * speed / seconds.low)


def highest_arrival(seconds: Seconds, processors: int, speed: float = 1.0) -> float:
    """Equation 10 at full use: tasks a second that processors can take if one takes so long."""
    return processors * speed / seconds


def utilisation(arrival: float, seconds: Seconds, processors: int, speed: float = 1.0) -> float:
    """Equation 11: which share of the processors is in use; moving data counts as use."""
    return arrival * seconds / (processors * speed)
