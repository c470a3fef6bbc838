"""Running a workload of known lengths: our scheduler on simulated hosts, without overhead.

Rule: everything is submitted at the beginning, and ready tasks go out in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bough.core.machine import Machine
from bough.model.facts import GroupClosed, Submitted
from bough.model.ids import Seconds
from bough.model.outcomes import Failure
from bough.model.resources import Needs
from bough.model.tasks import ArraySpec, GroupSpec, Item, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.sim.driver import Simulation
from bough.sim.executor import SimulatedExecutor
from bough.sim.schedule import Interval, intervals


def replay(items: Sequence[Item], lengths: Mapping[int, Seconds], hosts: int = 0) -> dict[int, Interval]:
    """Run loose tasks of these lengths: on hosts of one processor each, or (0) with a processor for every task."""

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int) -> tuple[Seconds, Failure | None]:
        return lengths[spec.id], None

    sizes = [1] * hosts or [len(lengths)]
    executors = [SimulatedExecutor(number, Needs(cores=size)) for number, size in enumerate(sizes, 1)]
    simulation = Simulation(Machine(Fifo()), model, executors)
    closed = [GroupClosed(item.id) for item in items if isinstance(item, GroupSpec)]
    simulation.at(0.0, Submitted(list(items)), *closed)
    simulation.run()
    simulation.check_complete()
    return intervals(simulation)


def makespan(ran: Mapping[int, Interval]) -> Seconds:
    """When the last one ended."""
    return max(one.end for one in ran.values())
