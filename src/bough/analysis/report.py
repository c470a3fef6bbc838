"""The analysis of one run: what it took, the least it could have taken, what held it up, how much ran at once.

Rule: the lower bound is the larger of the minimal schedule and the work divided by the cores that were used.
"""

from __future__ import annotations

import msgspec

from bough.analysis.graph import minimal
from bough.analysis.reading import Ask, Interval, Recorded
from bough.model.concurrency import Concurrency, concurrency


class Step(msgspec.Struct, frozen=True):
    """One task of the critical path, with its place in the minimal schedule."""

    label: str
    name: str
    start: float
    seconds: float


class Analysis(msgspec.Struct):
    """See the module. Times in seconds."""

    run: int
    makespan: float  # from the first start to the last end
    minimal: float  # on any number of processors, without overheads
    work: float  # of all that ran, times cores
    cores: float  # of the executors that ran something
    path: list[Step]
    measured: Concurrency
    model: Concurrency  # of the minimal schedule
    intervals: list[Interval]

    @property
    def bound(self) -> float:
        """No schedule on these cores is shorter."""
        return max(self.minimal, self.work / self.cores if self.cores else 0.0)

    @property
    def over_bound(self) -> float | None:
        """How many times the lower bound it took."""
        return self.makespan / self.bound if self.bound else None

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "run": self.run,
            "makespan": self.makespan,
            "minimal": self.minimal,
            "work": self.work,
            "cores": self.cores,
            "bound": self.bound,
            "over_bound": self.over_bound,
            "critical_path": [msgspec.structs.asdict(step) for step in self.path],
            "concurrency": {
                "highest": self.measured.highest,
                "mean": self.measured.mean,
                "seconds_at": {str(degree): seconds for degree, seconds in self.measured.at.items()},
            },
            "minimal_concurrency": {
                "highest": self.model.highest,
                "mean": self.model.mean,
                "seconds_at": {str(degree): seconds for degree, seconds in self.model.at.items()},
            },
        }


def analyse(ask: Ask, run: int) -> Analysis:
    """Analyse a run; `ask` puts a question in SQL, with its values, to a jobs database."""
    recorded = Recorded(ask, run)
    schedule = minimal(recorded.nodes)
    ran = recorded.intervals()
    used = {one.executor for one in ran if one.executor}
    cores = sum(row["cores"] or 0 for row in ask("select id, cores from executors", []) if row["id"] in used)
    path = [
        Step(recorded.label(key[1], key[2]), recorded.names[key[1]], schedule.finish[key] - node.seconds, node.seconds)
        for key in schedule.path()
        if key[0] == "task" and (node := recorded.nodes[key]).seconds > 0
    ]
    best = [
        (schedule.finish[key] - node.seconds, schedule.finish[key], recorded.many.get(key, 1))
        for key, node in recorded.nodes.items()
        if key[0] == "task" and node.seconds > 0
    ]
    makespan = max(one.end for one in ran) - min(one.start for one in ran) if ran else 0.0
    work = sum((one.end - one.start) * one.cores for one in ran)
    busy = concurrency((one.start, one.end, 1) for one in ran)
    return Analysis(run, makespan, schedule.makespan, work, cores, path, busy, concurrency(best), ran)
