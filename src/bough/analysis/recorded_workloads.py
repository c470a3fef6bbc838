"""Workflow files and recorded runs as workloads for the simulator.

A recorded task has its seconds; a described one takes what its `seconds` attribute says, or what is given for all that
say nothing. What a task asks for (cores, memory, GPUs, other resources, sites, requirements, its named queue) it asks
for in a simulation, too; what memory it used is no request.
Rule: nothing runs, and no time is made up: a task without one is named, with what to do.
"""

from __future__ import annotations

from bough.describe.task_graph import RecordedTask, TaskGraph
from bough.errors import UserError
from bough.model.sites.resources import Needs
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload


def workload_of(graph: TaskGraph, *, unknown: float | None = None) -> Workload:
    """A graph as a workload; `unknown`: the seconds of tasks of which none are known."""
    places: dict[str, int] = {}
    made: list[SimulatedTask] = []
    files = _Files(graph)
    for task in in_order(graph):
        seconds = 0.0 if task.is_joint else task.seconds if task.seconds is not None else unknown
        if seconds is None:
            raise UserError(
                f"{graph.name}: nothing is known of how long task {task.name} takes; give --seconds for such tasks,"
                " or the attribute seconds of each, or simulate a recorded run"
            )
        places[task.id] = len(made)
        after = tuple([places[one] for one in task.before])
        needs = _JOINT if task.is_joint else task.needs
        reads, writes = files.of(task)
        template = _template(task.name)
        made.append(
            SimulatedTask(
                task.name, seconds, after, needs.cores, needs.memory, task.priority, template, reads, writes,
                sites=needs.sites, requires=needs.requires, gpus=needs.gpus, named=needs.named, queue=needs.queue,
            )
        )  # fmt: skip
    return Workload(graph.name, made, files.listed)


_JOINT = Needs(0.0)


class _Files:
    """The files of a graph by their places in a list.

    Traces say of some tasks that they read what they write themselves, or what is written later: they brought it along,
    and it does not count. Of several writers of a file the first counts.
    """

    def __init__(self, graph: TaskGraph) -> None:
        self.listed: list[SimulatedFile] = []
        self._places: dict[str, int] = {}
        self._written: set[str] = set()
        self._writable = {name for task in graph.tasks for name in task.outputs}

    def of(self, task: RecordedTask) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What a task reads and writes; tasks are asked for in the order in which they could run."""
        reads = [
            self._place(name, size)
            for name, size in task.inputs.items()
            if name and (name not in self._writable or name in self._written)
        ]
        own = [name for name in task.outputs if name and name not in self._written]
        self._written.update(own)
        return tuple(reads), tuple([self._place(name, task.outputs[name]) for name in own])

    def _place(self, name: str, size: int) -> int:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self.listed)
            self.listed.append(SimulatedFile(name, min(max(size, 0), 1 << 60)))
        return place


def _template(name: str) -> str:
    """What tasks that do the same have in common: traces number them at the end of their names."""
    return name.rstrip("0123456789").rstrip("_-.")


def in_order(graph: TaskGraph) -> list[RecordedTask]:
    """The tasks as they stand, but each after those it waits for: policies that go by the order see the same one."""
    by_id = {task.id: task for task in graph.tasks}
    found: dict[str, RecordedTask] = {}
    entered: set[str] = set()
    for root in sorted(graph.tasks, key=lambda task: task.is_joint):  # joints: before the first that waits for them
        stack = [root]
        while stack:
            task = stack[-1]
            missing = [] if task.id in found else [by_id[one] for one in task.before if one not in found]
            if not missing:
                found[task.id] = task
                stack.pop()
                continue
            if task.id in entered:
                raise UserError(f"{graph.name}: task {task.id} waits for itself, by others")
            entered.add(task.id)
            stack += reversed(missing)
    return list(found.values())
