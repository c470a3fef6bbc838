"""The small experiment of the study `trellisdag`: six pipelines of three jobs on four hosts, with and without affinity.

A placeholder runs one job and ends; the next one of its host comes after a gap, which the thesis does not tell: one
second fits the run without affinity, so that only the one with it is a check. Here a placeholder is an executor that
leaves after one task; a second executor of the host, too small for any task, keeps the host in being meanwhile,
since tasks may insist on it. The times are the means of what the thesis printed for each stage.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from bough.core.machine import Machine
from bough.model.facts import ExecutorLost, Submitted
from bough.model.ids import BlobId, RecordId, Seconds
from bough.model.outcomes import Failure
from bough.model.resources import Needs
from bough.model.tasks import PLAIN, ArraySpec, Dep, Item, Kind, On, TaskSpec, Terms
from bough.policies.placement.fifo import Fifo
from bough.sim.driver import Simulation
from bough.sim.executor import Finish, Model, News, SimulatedExecutor
from bough.sim.schedule import intervals

STAGES = (1.35, 2.82, 6.52)
OVERHEAD = 2.65  # of every job, within its placeholder
STARTS = ((0.0, 2), (3.0, 2), (6.0, 0))  # when two more pipelines are submitted, and how many hosts come with them


class Outcome(NamedTuple):
    """How it went."""

    makespan: Seconds
    jobs: list[int]  # how many each host ran, ascending


class _Placeholder(SimulatedExecutor):
    """Runs one task and leaves."""

    def __init__(self, id_: int, host: str, leaves: Callable[[str], None]) -> None:
        super().__init__(id_, Needs(cores=1), host=host)
        self._leaves = leaves

    def finish(self, end: Finish, model: Model) -> tuple[list[News], list[Finish]]:
        """Report, and be gone before anything else can be sent."""
        news, started = super().finish(end, model)
        self._leaves(self.host)
        return [*news, ExecutorLost(self.id, "its placeholder has ended")], started


def replay(*, gap: Seconds, affinity: bool) -> Outcome:
    """Run the experiment."""
    hosts: dict[int, str] = {}
    numbers = count(1)

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int) -> tuple[Seconds, Failure | None]:
        return STAGES[(spec.id - 1) % len(STAGES)] + OVERHEAD, None

    simulation = Simulation(Machine(Fifo()), model, [])

    def start(when: Seconds, host: str) -> None:
        number = next(numbers)
        hosts[number] = host
        simulation.join(when, _Placeholder(number, host, lambda host: start(simulation.now + gap, host)))

    for group, (when, more) in enumerate(STARTS):
        for host in (f"host{group}{number}" for number in range(more)):
            simulation.join(when, SimulatedExecutor(next(numbers), Needs(cores=0.5), host=host))
            start(when, host)
        simulation.at(
            when, Submitted([*_pipeline(2 * group, affinity=affinity), *_pipeline(2 * group + 1, affinity=affinity)])
        )
    simulation.run()
    simulation.check_complete()
    ran = intervals(simulation).values()
    where = [hosts[one.executor] for one in ran]
    return Outcome(max(one.end for one in ran), sorted(where.count(host) for host in set(where)))


def _pipeline(number: int, *, affinity: bool) -> list[Item]:
    first = len(STAGES) * number + 1
    made: list[Item] = []
    for record in range(first, first + len(STAGES)):
        after = (Dep(On.TASK, record - 1),) if record > first else ()
        terms = Terms(near=record - 1) if after and affinity else PLAIN
        made.append(TaskSpec(RecordId(record), Kind.COMMAND, BlobId(b""), b"", after=after, terms=terms))
    return made
