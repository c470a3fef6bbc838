"""Workloads: tasks with their times, needs and dependencies, as a simulation submits them to the core.

They come from recorded runs, from workflow files with estimates, or from generators. Rule: tasks stand after those they
wait for, and are named by their place in the list.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bough.errors import UserError
from bough.model.ids import BlobId, RecordId, Seconds
from bough.model.resources import Needs
from bough.model.tasks import Dep, Item, Kind, On, TaskSpec


class SimulatedTask(msgspec.Struct, frozen=True, gc=False):
    """One task. `seconds` are those of a host of speed 1."""

    name: str
    seconds: Seconds
    after: tuple[int, ...] = ()
    cores: float = 1.0
    memory: int = 0
    priority: int = 0
    template: str = ""  # tasks of one template are expected to run equally long


class Workload(msgspec.Struct, frozen=True):
    """Tasks in an order in which they could run."""

    name: str
    tasks: Sequence[SimulatedTask]

    def __post_init__(self) -> None:
        for place, task in enumerate(self.tasks):
            if any(not 0 <= one < place for one in task.after):
                raise UserError(f"workload {self.name}: task {task.name} does not stand after all that it waits for")
            if not 0 <= task.seconds <= 1e15:
                raise UserError(f"workload {self.name}: task {task.name} takes {task.seconds:g} s")

    @property
    def core_seconds(self) -> float:
        """All work, at speed 1."""
        return sum(task.seconds * task.cores for task in self.tasks)

    @property
    def critical_path(self) -> Seconds:
        """The longest chain of tasks that wait for each other, at speed 1."""
        ends: list[float] = []
        for task in self.tasks:
            ends.append(task.seconds + max((ends[one] for one in task.after), default=0.0))
        return max(ends, default=0.0)

    def items(self) -> list[Item]:
        """What is submitted: a record for each task, numbered from 1."""
        needs: dict[tuple[float, int], Needs] = {}
        made: list[Item] = []
        for place, task in enumerate(self.tasks, 1):
            wanted = needs.setdefault((task.cores, task.memory), Needs(cores=task.cores, memory=task.memory))
            after = tuple([Dep(On.TASK, one + 1) for one in task.after])
            made.append(
                TaskSpec(
                    RecordId(place), Kind.COMMAND, BlobId(b""), b"", name=task.name[:200], template=task.template[:200],
                    needs=wanted, priority=task.priority, after=after,
                )
            )  # fmt: skip
        return made
