"""What an experiment has found: a run for each policy and seed, a row for each policy, and differences seed by seed.

Definitions are Falkon's (Raicu, dissertation 2009): speed-up S = T1 / TP; efficiency S / P, where P is the mean number
of cores that were there, so that hosts count for as long as they were; utilisation used / (used + wasted), where wasted
is allocated and idle; slow-down = workload time / ideal workload time (any number of hosts, free communication);
performance index = speed-up / processor-hours allocated, where the best policy has 1; response = wait + run + delivery;
provisioning latency = the time until all that was requested has joined.
Rule: a run that did not end well, with every task, counts for its complaint and for no mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import msgspec

from bough.errors import SiteError, UserError
from bough.model.ids import Seconds

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)
_NORMAL = 1.959964
_HOUR = 3600.0


class DataMeasures(msgspec.Struct, frozen=True):
    """What happened to files: bytes that tasks read, by where they came from, and what travelled."""

    local: float = 0.0  # in the cache of the host
    joined: float = 0.0  # on its way there for another task
    store: float = 0.0  # in the store of the site
    peer: float = 0.0  # from another host or site
    origin: float = 0.0  # from home
    hits: float = 0.0  # the share of bytes that were there, or on their way
    peer_hits: float = 0.0  # the share of bytes that came from another host or site
    moved: float = 0.0  # bytes that travelled
    network_waste: float = 0.0  # bytes for attempts that did not count, for each byte of input (Storage Affinity 4.8)


class Outcome(msgspec.Struct, frozen=True):
    """One simulated run."""

    policy: str
    seed: int
    makespan: Seconds = 0.0
    lower_bound: Seconds = 0.0  # no schedule is shorter: the critical path, or all work on the most cores there at once
    ideal: Seconds = 0.0  # on any number of the fastest hosts, with free communication
    response: Seconds = 0.0  # the mean from submission to end
    response_95: Seconds = 0.0  # 95 % of tasks have ended so long after their submission
    wait: Seconds = 0.0  # the mean from the moment when a task could start to its start
    delivery: Seconds = 0.0  # the mean of what inputs and outputs took
    execution: Seconds = 0.0  # the mean of what tasks took themselves
    utilisation: float = 0.0  # used / (used + wasted) core-seconds of hosts that were there
    speedup: float = 0.0  # against one core of speed 1
    efficiency: float = 0.0  # speed-up for each core, of the mean number that was there
    provisioning: Seconds = 0.0  # until all hosts that were requested had joined
    core_hours: float = 0.0  # of hosts that were there
    node_hours_used: float = 0.0  # hosts on which something ran
    node_hours_idle: float = 0.0  # hosts that were there and ran nothing
    peak_queue: int = 0  # the most tasks that could have started and waited
    cpu_waste: float = 0.0  # core-seconds of attempts that did not count, for each of those that did
    data: DataMeasures | None = None  # None: the workload has no files
    complaint: str = ""  # what the policy did wrong, or which tasks did not succeed and why
    ended: bool = True  # whether all tasks succeeded; otherwise the figures are 0

    @property
    def ratio(self) -> float:
        """How much longer it took than the lower bound."""
        return self.makespan / self.lower_bound if self.lower_bound else 1.0

    @property
    def slowdown(self) -> float:
        """How much longer it took than on any number of hosts."""
        return self.makespan / self.ideal if self.ideal else 1.0

    @property
    def execution_share(self) -> float:
        """Execution / (execution + waiting)."""
        whole = self.execution + self.wait
        return self.execution / whole if whole else 1.0


class DataRow(msgspec.Struct, frozen=True):
    """Means of what happened to files."""

    hits: float
    peer_hits: float
    bytes_local: float
    bytes_joined: float
    bytes_store: float
    bytes_peer: float
    bytes_origin: float
    bytes_moved: float
    network_waste: float


class PolicyRow(msgspec.Struct, frozen=True):
    """One policy: means over all seeds; `spreads` are halves of their 95 % confidence intervals, by column."""

    policy: str
    runs: int  # that ended well
    makespan: Seconds
    spread: Seconds  # of the makespan
    lower_bound: Seconds
    ratio: float
    response: Seconds
    response_95: Seconds
    wait: Seconds
    delivery: Seconds
    execution_share: float
    efficiency: float
    execution_efficiency: float  # the lower bound / the makespan
    speedup: float
    utilisation: float
    slowdown: float
    performance_index: float
    provisioning: Seconds
    core_hours: float
    node_hours_used: float
    node_hours_idle: float
    peak_queue: float
    cpu_waste: float
    spreads: dict[str, float]
    data: DataRow | None = None
    complaint: str = ""


class Difference(msgspec.Struct, frozen=True):
    """A policy against the first one, seed by seed: both met the same hosts and times."""

    policy: str
    against: str
    pairs: int  # seeds with which both ended well
    makespan: Seconds  # the mean difference; negative: it is faster
    spread: Seconds  # half of its 95 % confidence interval
    relative: float  # the mean of the relative differences
    faster: int  # seeds with which it took less

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.pairs > 1 and abs(self.makespan) > self.spread


class Report(msgspec.Struct, frozen=True):
    """All runs, and what follows from them."""

    workload: str
    tasks: int
    cores: float
    runs: Sequence[Outcome]
    shared: float = 0.0  # the part of all bytes of files that two or more tasks read

    def rows(self) -> list[PolicyRow]:
        """The policies in the order in which they were named."""
        made = [_row(name, runs) for name, runs in self._by_policy().items()]
        best = max((row.performance_index for row in made), default=0.0)
        if not best:
            return made
        return [
            msgspec.structs.replace(
                row,
                performance_index=row.performance_index / best,
                spreads={**row.spreads, "performance_index": row.spreads["performance_index"] / best},
            )
            for row in made
        ]

    def differences(self) -> list[Difference]:
        """Every policy against the first."""
        by_policy = self._by_policy()
        if len(by_policy) < 2:
            return []
        (first, base), *others = by_policy.items()
        return [_difference(name, runs, first, base) for name, runs in others]

    def frame(self, what: str = "policies") -> Any:
        """A pandas data frame: of `policies` (a row each), of all `runs`, or of `differences` to the first policy."""
        made = self.records(what)
        try:
            import pandas as pd
        except ImportError as error:
            raise SiteError("data frames need pandas: pip install 'bough[frames]'") from error
        return pd.DataFrame(made)

    def records(self, what: str = "policies") -> list[dict[str, Any]]:
        """The same as a list of flat dictionaries, files in columns of their own.

        Of a policy `NAME_spread` is half of the 95 % confidence interval of NAME. `shared` is of the workload.
        """
        if what == "policies":
            return [
                {**_flat(row), **{f"{name}_spread": half for name, half in row.spreads.items()}, "shared": self.shared}
                for row in self.rows()
            ]
        if what == "runs":
            derived: tuple[str, ...] = ("ratio", "slowdown", "execution_share")
            return [
                {**_flat(run), **{name: getattr(run, name) for name in derived}, "shared": self.shared}
                for run in self.runs
            ]
        if what == "differences":
            return [{**_flat(one), "is_clear": one.is_clear} for one in self.differences()]
        raise UserError(f"there is no frame of {what!r}; say policies, runs or differences")

    def _by_policy(self) -> dict[str, list[Outcome]]:
        by_policy: dict[str, list[Outcome]] = {}
        for run in self.runs:
            by_policy.setdefault(run.policy, []).append(run)
        return by_policy


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of a mean, by Student's distribution; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    return _quantile(len(values) - 1) * stdev(values) / sqrt(len(values))


def percentile(values: Iterable[float], share: float) -> float:
    """The least value that this share of the values does not exceed; 0 of none."""
    some = sorted(values)
    return some[min(len(some) - 1, max(0, -int(-share * len(some) // 1) - 1))] if some else 0.0


def _quantile(freedom: int) -> float:
    """Student's t for 95 %, both sides: from the table, and beyond it the first terms of its series."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _row(policy: str, runs: Sequence[Outcome]) -> PolicyRow:
    good = [run for run in runs if run.ended]
    spreads: dict[str, float] = {}

    def mean(name: str, of: Callable[[Outcome], float] | None = None) -> float:
        values = [float(getattr(run, name) if of is None else of(run)) for run in good]
        spreads[name] = half_interval(values)
        return fmean(values) if values else 0.0

    data = None
    kept = [run.data for run in good if run.data is not None]
    if kept:
        columns = DataRow.__struct_fields__
        read = {name: [float(getattr(one, name.removeprefix("bytes_"))) for one in kept] for name in columns}
        spreads |= {name: half_interval(values) for name, values in read.items()}
        data = DataRow(**{name: fmean(values) for name, values in read.items()})
    makespan = mean("makespan")
    return PolicyRow(
        policy=policy,
        runs=len(good),
        makespan=makespan,
        spread=spreads["makespan"],
        lower_bound=mean("lower_bound"),
        ratio=mean("ratio"),
        response=mean("response"),
        response_95=mean("response_95"),
        wait=mean("wait"),
        delivery=mean("delivery"),
        execution_share=mean("execution_share"),
        efficiency=mean("efficiency"),
        execution_efficiency=mean("execution_efficiency", lambda run: 1 / run.ratio if run.ratio else 1.0),
        speedup=mean("speedup"),
        utilisation=mean("utilisation"),
        slowdown=mean("slowdown"),
        performance_index=mean("performance_index", _index),
        provisioning=mean("provisioning"),
        core_hours=mean("core_hours"),
        node_hours_used=mean("node_hours_used"),
        node_hours_idle=mean("node_hours_idle"),
        peak_queue=mean("peak_queue"),
        cpu_waste=mean("cpu_waste"),
        spreads=spreads,
        data=data,
        complaint=next((run.complaint for run in runs if run.complaint), ""),
    )


def _index(run: Outcome) -> float:
    """Before it is divided by the best: whatever the speed-up is measured against then cancels out."""
    cost = run.makespan * run.core_hours
    return 1 / cost if cost else 0.0


def _difference(name: str, runs: Sequence[Outcome], first: str, base: Sequence[Outcome]) -> Difference:
    ended = {run.seed: run.makespan for run in base if run.ended}
    pairs = [(run.makespan, ended[run.seed]) for run in runs if run.ended and run.seed in ended]
    apart = [one - other for one, other in pairs]
    return Difference(
        name,
        first,
        len(pairs),
        fmean(apart) if apart else 0.0,
        half_interval(apart),
        fmean((one - other) / other if other else 0.0 for one, other in pairs) if pairs else 0.0,
        sum(one < other for one, other in pairs),
    )


def _flat(row: PolicyRow | Outcome | Difference) -> dict[str, Any]:
    found = {name: getattr(row, name) for name in row.__struct_fields__ if name not in {"spreads", "data"}}
    data = getattr(row, "data", None)
    return found | (msgspec.structs.asdict(data) if data is not None else {})


def hours(seconds: Seconds) -> float:
    """Seconds as hours."""
    return seconds / _HOUR
