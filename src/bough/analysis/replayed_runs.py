"""A recorded run, run again in the simulator: what it predicts against what happened, and what would be if.

A run gives a workload (tasks, what they ask for, dependencies, their own seconds and those of moving files), executors
(what they had, when they came), the limits of named queues, and what Bough itself took: from a task that could start
and a core that was free to the start (`overhead`), and from the submission to the first start (`startup`). Another run
of the same workflow can be predicted from these: with other executors, another policy, slower links.
Rule: an estimate is made of the earlier run alone; what is compared with it is never read for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import msgspec

from bough.analysis.recorded_workloads import in_order, workload_of
from bough.analysis.simulation_pictures import Bar
from bough.describe.task_graph import QueueChange, RunExecutor, TaskGraph
from bough.errors import UserError
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.sim.experiment import SimulatedHost, run_on_hosts
from bough.sim.experiment_report import Outcome
from bough.sim.policy_watch import PATIENCE
from bough.sim.schedule import Interval
from bough.sim.workload import SimulatedTask, Workload

_ANYWHERE: dict[str, Any] = {"memory": 0, "gpus": 0.0, "named": (), "sites": (), "requires": "", "queue": ""}
_LONGEST = 1.0  # seconds: a longer gap has another reason than sending, starting and reporting


class ActualTask(msgspec.Struct, frozen=True):
    """When a task ran, in seconds since the first submission."""

    name: str
    start: Seconds
    end: Seconds
    host: str = ""
    id: str = ""  # as people name it: 12, or 5.7 for an element of an array


class Calibration(msgspec.Struct, frozen=True):
    """What Bough itself takes."""

    overhead: Seconds = 0.0  # of each task, while its core waits for it
    startup: Seconds = 0.0  # until the first task starts


class RecordedRun(msgspec.Struct, frozen=True):
    """A run as the simulator takes it; tasks without an entry in `actual` have not run."""

    workload: Workload
    executors: Sequence[RunExecutor]  # times since the first submission
    policy: str
    actual: Mapping[int, ActualTask]  # by place in the workload
    staged: Sequence[Seconds]  # by place: moving files
    arrivals: Sequence[Seconds]  # by place: when it was submitted
    calibration: Calibration
    unsuccessful: frozenset[int] = frozenset()  # by place: did not succeed, and need not when it is run again
    queues: Sequence[QueueChange] = ()  # what limits named queues had when

    @property
    def makespan(self) -> Seconds:
        """From the first submission to the last end."""
        return max((one.end for one in self.actual.values()), default=0.0)

    @property
    def cores(self) -> float:
        """Of all executors."""
        return sum(one.cores for one in self.executors)


class TaskPrediction(msgspec.Struct, frozen=True):
    """One task, predicted and as it was."""

    id: str  # as people name it
    name: str
    start: Seconds
    end: Seconds
    host: str
    actual_start: Seconds
    actual_end: Seconds
    actual_host: str

    @property
    def error(self) -> Seconds:
        """How much later its end was predicted than it came."""
        return self.end - self.actual_end


class Prediction(msgspec.Struct, frozen=True):
    """A run, predicted."""

    policy: str
    cores: float
    outcome: Outcome
    intervals: Sequence[Interval]
    tasks: Sequence[TaskPrediction]  # empty: nothing is there to compare with
    hosts: Mapping[int, str] = {}  # by executor
    actual: Seconds | None = None

    @property
    def makespan(self) -> Seconds:
        """From the first submission to the last end."""
        return self.outcome.makespan

    @property
    def error(self) -> float | None:
        """The relative error of the makespan; None: there is nothing to compare."""
        return (self.makespan - self.actual) / self.actual if self.actual and self.outcome.ended else None

    @property
    def mean_error(self) -> Seconds:
        """How far ends of tasks were from their predictions, in the mean."""
        return fmean(abs(one.error) for one in self.tasks) if self.tasks else 0.0


def recorded_run(graph: TaskGraph) -> RecordedRun:
    """A graph with the times of a run, as the simulator takes it."""
    begun = [task.submitted for task in graph.tasks if task.submitted is not None]
    origin = min(begun, default=graph.opened or 0.0)
    workload = workload_of(graph, unknown=0.0)
    staged: list[Seconds] = []
    arrivals: list[Seconds] = []
    actual: dict[int, ActualTask] = {}
    tasks: list[SimulatedTask] = []
    unsuccessful: set[int] = set()
    latest = 0.0
    for place, (task, simulated) in enumerate(zip(in_order(graph), workload.tasks, strict=True)):
        latest = max(latest, (task.submitted or origin) - origin)
        arrivals.append(latest)
        staged.append(task.staged)
        if task.state not in {"", "done"}:
            unsuccessful.add(place)
        template = task.command[:200] or simulated.template  # as a submitter says it
        seconds = simulated.seconds + task.tried
        # files took their measured times: they are not moved again
        tasks.append(msgspec.structs.replace(simulated, seconds=seconds, template=template, reads=(), writes=()))
        if task.started is not None and not task.is_joint and task.seconds is not None:
            start = task.started - origin
            actual[place] = ActualTask(task.name, start, start + task.seconds, task.host, task.id)
    executors = [replace(one, joined=one.joined - origin, left=_since(one.left, origin)) for one in graph.executors]
    if not executors:
        raise UserError(f"{graph.name}: nothing has run, so that there is nothing to replay")
    made = Workload(workload.name, tasks)
    calibration = calibrate(made, executors, actual, arrivals)
    queues = [one._replace(when=max(0.0, one.when - origin)) for one in graph.queues]
    return RecordedRun(
        made, executors, graph.policy or "fifo", actual, staged, arrivals, calibration, frozenset(unsuccessful), queues
    )


def calibrate(
    workload: Workload,
    executors: Sequence[RunExecutor],
    actual: Mapping[int, ActualTask],
    arrivals: Sequence[Seconds],
) -> Calibration:
    """What Bough itself took: gaps between the moment at which a task could start on a free core, and its start."""
    if not actual:
        return Calibration()
    ready: dict[int, Seconds] = {}
    ended: list[Seconds] = []
    for place, task in enumerate(workload.tasks):
        ready[place] = max([arrivals[place], *(ended[one] for one in task.after)])
        ended.append(actual[place].end if place in actual else ready[place])
    first = min(one.start for one in actual.values())
    startup = max(0.0, first - min(ready[place] for place in actual))
    cores: dict[str, float] = {}
    for one in executors:
        cores[one.host] = cores.get(one.host, 0.0) + one.cores
    gaps: list[Seconds] = []
    free = {host: [0.0] * max(1, int(count)) for host, count in cores.items()}  # by core: until when it was busy
    for place, ran in sorted(actual.items(), key=lambda pair: (pair[1].start, pair[0])):
        lanes = free.setdefault(ran.host, [0.0])
        width = min(len(lanes), max(1, round(workload.tasks[place].cores)))
        lanes.sort()
        # the cores that were free last before it started
        chosen = [number for number, until in enumerate(lanes) if until <= ran.start + 1e-6][-width:]
        chosen = chosen or list(range(width))
        since = max([ready[place], *(lanes[number] for number in chosen)])
        if since > first:  # those that started with the first ones waited for the start-up
            gaps.append(max(0.0, ran.start - since))
        for number in chosen:
            lanes[number] = ran.end
    kept = [gap for gap in gaps if gap <= _LONGEST]
    return Calibration(fmean(kept) if kept else 0.0, startup)


def predict(
    run: RecordedRun,
    *,
    policy: str = "",
    hosts: float = 1.0,
    link: float = 1.0,
    cores: float | None = None,
    seed: int = 1,
    calibration: Calibration | None = None,
    patience: Seconds = PATIENCE,
) -> Prediction:
    """Run it again: with another policy, times as many executors, links times as fast, or one executor of some cores.

    A policy may name a replication policy behind a plus (`bough.sim.policy_texts`). Tasks are compared one by one if
    nothing but the policy differs. On one executor of some cores tasks ask for cores and nothing else.
    """
    if not 0 < hosts <= 1000 or not 0 < link <= 1e6:
        raise UserError(f"times {hosts:g} as many hosts with links times {link:g} as fast: say positive numbers")
    said = calibration or run.calibration
    tasks = [
        msgspec.structs.replace(
            task, seconds=task.seconds + run.staged[place] / link + (said.overhead if place in run.actual else 0.0)
        )
        for place, task in enumerate(run.workload.tasks)
    ]
    executors = _times(run.executors, hosts)
    if cores is not None:
        executors = [RunExecutor(1, "", "", Needs(cores))]
        tasks = [msgspec.structs.replace(task, **_ANYWHERE) for task in tasks]
    workload = Workload(run.workload.name, tasks)
    there = [
        SimulatedHost(
            one.site or "site", one.host, one.has, max(said.startup, one.joined), _leaves(one, run), one.attributes
        )
        for one in executors
    ]
    wanted = {place + 1 for place in range(len(tasks)) if place not in run.unsuccessful}
    outcome, ran = run_on_hosts(
        workload,
        there,
        policy or run.policy,
        seed,
        run.arrivals,
        queues=run.queues,
        wanted=wanted,
        patience=patience,
    )
    unchanged = hosts == 1 and link == 1 and cores is None
    names = {number: one.host for number, one in enumerate(executors, 1)}
    compared = []
    for place, was in run.actual.items() if unchanged else ():
        got = ran.get(place + 1)
        if got is not None:
            start = got.start + said.overhead
            host = names.get(got.executor, "")
            compared.append(TaskPrediction(was.id, was.name, start, got.end, host, was.start, was.end, was.host))
    return Prediction(
        policy or run.policy,
        sum(one.cores for one in executors),
        outcome,
        sorted(ran.values(), key=lambda one: (one.start, one.record)),
        compared,
        names,
        run.makespan if unchanged else None,
    )


def actual_bars(run: RecordedRun) -> list[Bar]:
    """What ran where."""
    return [Bar(one.host, one.start, one.end, run.workload.tasks[place].template) for place, one in run.actual.items()]


def predicted_bars(run: RecordedRun, prediction: Prediction) -> list[Bar]:
    """What would have run where."""
    return [
        Bar(prediction.hosts.get(one.executor, ""), one.start, one.end, run.workload.tasks[one.record - 1].template)
        for one in prediction.intervals
        if one.record - 1 in run.actual
    ]


def _times(executors: Sequence[RunExecutor], factor: float) -> list[RunExecutor]:
    """Times as many: whole copies, and the first ones once more or less."""
    wanted = max(1, round(len(executors) * factor))
    copies = []
    for number in range(wanted):
        one = executors[number % len(executors)]
        again = number // len(executors)
        copies.append(replace(one, id=number + 1, host=f"{one.host}+{again}" if again else one.host))
    return copies


def _leaves(one: RunExecutor, run: RecordedRun) -> Seconds | None:
    """When it left, if that was while others still worked."""
    return one.left if one.left is not None and one.left < run.makespan else None


def _since(when: float | None, origin: float) -> float | None:
    return None if when is None else when - origin
