"""Experiments: a workload on a platform under several policies, each with the same seeds.

A seed fixes the speeds of hosts and how far the times of tasks are from what was expected; all policies meet the same
ones, so that two of them can be compared seed by seed. The core and the policies are those of the live system.
Rule: the same seeds give the same figures, to the byte; a policy that fails is reported in its row and stops nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from random import Random
from statistics import fmean, stdev

import msgspec

from bough.core.machine import Machine
from bough.errors import BoughError, UserError
from bough.model.events.facts import Submitted
from bough.model.ids import Seconds
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.platform import Platform
from bough.sim.schedule import Interval, intervals
from bough.sim.simulated_executor import ExecutorTraits, Fate
from bough.sim.simulation import Simulation
from bough.sim.workload import Workload

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)


class Outcome(msgspec.Struct, frozen=True):
    """One simulated run."""

    policy: str
    seed: int
    makespan: Seconds
    lower_bound: Seconds  # no schedule is shorter: the critical path, or all work on all cores
    response: Seconds  # the mean from submission to end
    utilisation: float  # the share of core-seconds, until the last end, in which tasks ran
    speedup: float  # against one core of speed 1
    complaint: str = ""  # what the policy did wrong

    @property
    def ratio(self) -> float:
        """How much longer it took than the lower bound."""
        return self.makespan / self.lower_bound if self.lower_bound else 1.0


class PolicyRow(msgspec.Struct, frozen=True):
    """One policy over all seeds; `spread` is half of the 95 % confidence interval of its mean makespan."""

    policy: str
    makespan: Seconds
    spread: Seconds
    lower_bound: Seconds
    ratio: float
    response: Seconds
    utilisation: float
    speedup: float
    efficiency: float  # speed-up for each core
    complaint: str = ""


class Report(msgspec.Struct, frozen=True):
    """All runs, and a row for each policy."""

    workload: str
    tasks: int
    cores: float
    runs: Sequence[Outcome]

    def rows(self) -> list[PolicyRow]:
        """The policies in the order in which they were named."""
        by_policy: dict[str, list[Outcome]] = {}
        for run in self.runs:
            by_policy.setdefault(run.policy, []).append(run)
        return [_row(name, runs, self.cores) for name, runs in by_policy.items()]


def simulate(
    workload: Workload, platform: Platform, policies: Iterable[str], *, seeds: int = 1, noise: float = 0.0
) -> Report:
    """Run a workload under each policy and seed; `noise` 0.1: real times are 10 % off what was expected, about."""
    names = list(dict.fromkeys(policies))
    if not names:
        raise UserError("no policy is named; say one, such as fifo")
    if not 1 <= seeds <= 100_000:
        raise UserError(f"{seeds} seeds: say at least 1 and at most 100000")
    if not 0 <= noise <= 10:
        raise UserError(f"a noise of {noise:g}: say 0 to 10, where 0.1 is ten per cent")
    for name in names:
        load_policies(name)  # an unknown one is said before anything runs
    needed = max((task.cores for task in workload.tasks), default=0.0)
    largest = max(site.cores for site in platform.site.values())
    if needed > largest:
        raise UserError(f"a task of {workload.name} needs {needed:g} cores, and no host has more than {largest:g}")
    runs = [_run(workload, platform, name, seed, noise) for seed in range(1, seeds + 1) for name in names]
    return Report(workload.name, len(workload.tasks), platform.cores, runs)


def _run(workload: Workload, platform: Platform, policy: str, seed: int, noise: float) -> Outcome:
    dice = Random(f"workload {seed}")
    tasks = workload.tasks
    seconds = [task.seconds * (dice.lognormvariate(0.0, noise) if noise else 1.0) for task in tasks]

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(seconds[spec.id - 1])

    executors = list(platform.executors(seed))
    simulation = Simulation(Machine(load_policies(policy), seed=seed), model, executors)
    simulation.at(0.0, Submitted(workload.items()))
    try:
        simulation.run()
        simulation.check_complete()
    except BoughError as error:
        return Outcome(policy, seed, 0.0, 0.0, 0.0, 0.0, 0.0, str(error))
    ran = intervals(simulation)
    makespan = max((one.end for one in ran.values()), default=0.0)
    power = sum(one.traits.speed * one.traits.capacity.cores for one in executors)
    fastest = max(one.traits.speed for one in executors)
    work = sum(length * task.cores for length, task in zip(seconds, tasks, strict=True))
    bound = max(_critical_path(workload, seconds) / fastest, work / power)
    busy = sum((one.end - one.start) * tasks[one.record - 1].cores for one in ran.values())
    return Outcome(
        policy,
        seed,
        makespan,
        bound,
        _mean_end(ran.values()),
        busy / (platform.cores * makespan) if makespan else 1.0,
        work / makespan if makespan else 1.0,
        "; ".join(dict.fromkeys(simulation.complaints))[:200],
    )


def _critical_path(workload: Workload, seconds: Sequence[Seconds]) -> Seconds:
    ends: list[float] = []
    for length, task in zip(seconds, workload.tasks, strict=True):
        ends.append(length + max((ends[one] for one in task.after), default=0.0))
    return max(ends, default=0.0)


def _mean_end(ran: Iterable[Interval]) -> Seconds:
    ends = [one.end for one in ran]
    return fmean(ends) if ends else 0.0


def _row(policy: str, runs: Sequence[Outcome], cores: float) -> PolicyRow:
    spans = [run.makespan for run in runs]
    spread = 0.0
    if len(spans) > 1:
        student = _STUDENT[len(spans) - 2] if len(spans) - 2 < len(_STUDENT) else 1.96
        spread = student * stdev(spans) / sqrt(len(spans))
    speedup = fmean(run.speedup for run in runs)
    return PolicyRow(
        policy,
        fmean(spans),
        spread,
        fmean(run.lower_bound for run in runs),
        fmean(run.ratio for run in runs),
        fmean(run.response for run in runs),
        fmean(run.utilisation for run in runs),
        speedup,
        speedup / cores,
        next((run.complaint for run in runs if run.complaint), ""),
    )
