"""Placeholders that call a server: how Trellis gave out work, as a platform for our simulator.

A placeholder runs on a host of its own. It asks the server for a job, fetches the files of it that its host does not
have, runs it, reports, and asks again (`sim.dispatched_simulation`). Copies take a start-up, and their bytes at a rate
of their own, one after the other. A phase begins when the one before has ended.
Source: M. Lamb's thesis, `spec/trellis-driver.md` 4.4 to 4.7; what the thesis leaves open is read as said there.
Rule: the same jobs give the same times, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import fmean

import msgspec

from bough.core.machine import Machine
from bough.model.events.facts import Submitted
from bough.model.ids import Seconds
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.dispatched_simulation import DispatchedSimulation
from bough.sim.platforms.dispatcher_spec import DispatcherSpec
from bough.sim.platforms.link_specs import LinkSpec, TransferRules
from bough.sim.platforms.network import Sharing
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate
from bough.sim.schedule import intervals
from bough.sim.workload import SimulatedFile, SimulatedTask, Submission, Workload

JobFile = SimulatedFile  # that a job reads or makes


class Job(msgspec.Struct, frozen=True):
    """What one call gets: a task, or a bundle of them that counts as `tasks`."""

    name: str
    seconds: Seconds
    reads: Sequence[JobFile] = ()
    makes: Sequence[JobFile] = ()
    tasks: int = 1
    expected: Seconds = 0.0  # what the policy is told of its run time; 0: the truth
    after: Sequence[int] = ()  # jobs of its phase that it waits for, by their places


class Network(msgspec.Struct, frozen=True):
    """Calls and copies: see the module. `startup` passes before a file's first byte."""

    call: Seconds
    service: Seconds
    startup: Seconds = 0.0
    rate: float = 1e12  # bytes a second
    startup_per_pair: bool = False  # it passes once for all the files that come from one host
    others: Seconds = 0.0  # what a host gives to somebody else after each turn of ours

    def platform(self, hosts: int) -> Platform:
        """With so many hosts."""
        copies = LinkSpec(self.rate, sharing=Sharing.EACH)
        rules = TransferRules(
            startup=self.startup, startup_for="source" if self.startup_per_pair else "file", streams=1, outputs="keep"
        )
        return Platform({"trellis": SitePlatform(hosts, nic=copies)}, transfers=rules, dispatcher=self.calls)

    @property
    def calls(self) -> DispatcherSpec:
        """What a call takes."""
        return DispatcherSpec(max(self.call, self.service), self.service, self.others)


class PlaceholderOutcome(msgspec.Struct, frozen=True):
    """How it went."""

    makespan: Seconds
    affinity: float  # the part of tasks that had all their files where they ran
    response: Seconds  # the mean from submission to report
    moved: int  # bytes
    ends: Sequence[Seconds]  # of the phases


def run_placeholders(policy: str, network: Network, hosts: int, phases: Sequence[Sequence[Job]]) -> PlaceholderOutcome:
    """All phases, one after the other."""
    jobs = [job for phase in phases for job in phase]
    workload, platform, calls = _workload(jobs, phases), network.platform(hosts), network.calls

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(jobs[spec.id - 1].seconds)

    data = SimulatedData(workload, platform) if workload.files else None
    simulation = DispatchedSimulation(
        Machine(load_policies(policy)), model, platform.executors(0), data=data, dispatcher=calls
    )
    whole = workload.submission(estimates=[job.expected or job.seconds for job in jobs])
    if data is not None:
        data.submitted(whole)
    first, *later = [whole.items[some[0][0] - 1 : some[-1][0]] for some in _places(phases)]
    for when, news in workload.news(Submission(first, whole.first)):
        simulation.at(when, news)
    waiting = iter(later)
    simulation.when_idle = lambda now: simulation.at(now, *(Submitted(some) for some in islice(waiting, 1)))
    simulation.run()
    simulation.check_complete()
    reported = {record: one.end for record, one in intervals(simulation).items()}
    ends = [max(reported[place] for place, _ in some) for some in _places(phases)]
    begins = [begin for begin, phase in zip([0.0, *ends], phases, strict=False) for _ in phase]
    attempts = data.attempts if data is not None else []
    elsewhere = sum(jobs[one.task].tasks for one in attempts if one.hit < one.asked)
    tasks = sum(job.tasks for job in jobs)
    return PlaceholderOutcome(
        ends[-1],
        1 - elsewhere / tasks,
        fmean(reported[place] - begin for place, begin in enumerate(begins, 1)),
        round(sum(one.moved for one in attempts)),
        ends,
    )


def _places(phases: Sequence[Sequence[Job]]) -> Iterator[list[tuple[int, Job]]]:
    """By phase: its jobs with their records, which count from 1."""
    first = 1
    for phase in phases:
        yield list(enumerate(phase, first))
        first += len(phase)


def _workload(jobs: Sequence[Job], phases: Sequence[Sequence[Job]]) -> Workload:
    files: dict[JobFile, int] = {}
    for job in jobs:
        for file in (*job.reads, *job.makes):
            files.setdefault(file, len(files))
    tasks = [
        SimulatedTask(
            job.name,
            job.seconds,
            tuple([some[0][0] - 1 + one for one in job.after]),
            reads=tuple([files[one] for one in job.reads]),
            writes=tuple([files[one] for one in job.makes]),
        )
        for some in _places(phases)
        for _, job in some
    ]
    return Workload("placeholders", tasks, list(files))
