"""Workflow files and recorded runs as workloads for the simulator.

A recorded task has its seconds; a described one takes what its `seconds` attribute says, or what is given for all that
say nothing. Rule: nothing runs, and no time is made up: a task without one is named, with what to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from bough.describe.task_graph import TaskGraph
from bough.errors import UserError
from bough.sim.workload import SimulatedTask, Workload


def workload_of(graph: TaskGraph, *, unknown: float | None = None) -> Workload:
    """A graph as a workload; `unknown`: the seconds of tasks of which none are known."""
    by_id = {task.id: task for task in graph.tasks}
    places: dict[str, int] = {}
    made: list[SimulatedTask] = []
    for name in _in_order({task.id: task.before for task in graph.tasks}, graph.name):
        task = by_id[name]
        seconds = 0.0 if task.is_joint else task.seconds if task.seconds is not None else unknown
        if seconds is None:
            raise UserError(
                f"{graph.name}: nothing is known of how long task {task.name} takes; give --seconds for such tasks,"
                " or the attribute seconds of each, or simulate a recorded run"
            )
        places[name] = len(made)
        after = tuple([places[one] for one in task.before])
        cores = 0.0 if task.is_joint else task.cores
        made.append(SimulatedTask(task.name, seconds, after, cores, 0, task.priority, _template(task.name)))
    return Workload(graph.name, made)


def _template(name: str) -> str:
    """What tasks that do the same have in common: traces number them at the end of their names."""
    return name.rstrip("0123456789").rstrip("_-.")


def _in_order(before: Mapping[str, list[str]], name: str) -> list[str]:
    """The tasks, each after those it waits for, otherwise as they stand."""
    waits = {task: len(set(some)) for task, some in before.items()}
    following: dict[str, list[str]] = {}
    for task, some in before.items():
        for one in set(some):
            following.setdefault(one, []).append(task)
    ready = [task for task, count in waits.items() if not count]
    for task in ready:  # it grows while it is walked
        for one in following.get(task, ()):
            waits[one] -= 1
            if not waits[one]:
                ready.append(one)
    if len(ready) < len(before):
        stuck = next(task for task, count in waits.items() if count)
        raise UserError(f"{name}: task {stuck} waits for itself, by others")
    return ready
