"""What was measured of tasks, for policies that need estimates: run times and output sizes.

Run times are kept by template and host, and, for policies that compare completion times, by the size of the input;
sizes of outputs by template. They are advice: no
fact is written of them, and they are kept in snapshots, so that a server that is started again has them. Bandwidths are
in `data_index`, the mean run time of a template over all hosts in `State.runtimes`.
Rule: what was measured closest to a task counts: tasks with as much input on this host, tasks with as much input, tasks
on this host, tasks of the template, and then the user's estimate. Each answer says which of them it is.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

import msgspec

from bough.model.arrays.runtimes import RunTime, RunTimeBySize
from bough.model.ids import Seconds

_MOST: Final = 10_000  # templates and hosts of which something is remembered, of each kind
_ANYWHERE: Final = ""  # in the place of a host
Template = str | int  # its name, or the number of an array that has none

K = TypeVar("K")
V = TypeVar("V")


class Basis(Enum):
    """Where an estimate of a run time comes from."""

    SIZE_HERE = "by the size of its input, as such tasks ran on {host}"
    SIZE = "by the size of its input, as such tasks ran on any host"
    HOST = "the mean of such tasks on {host}"
    TEMPLATE = "the mean of such tasks on any host"
    USER = "the estimate that it was submitted with"
    NOTHING = "nothing"


class KeptEstimates(msgspec.Struct, array_like=True):
    """What a snapshot has of them."""

    host_times: list[tuple[Template, str, Seconds, int]] = []
    outputs: list[tuple[Template, float, int]] = []
    by_size: list[tuple[Template, str, tuple[float, float, float, float, float, float]]] = []


class Estimates:
    """See the module."""

    def __init__(self) -> None:
        self._host_times: dict[tuple[Template, str], RunTime] = {}
        self._outputs: dict[Template, RunTime] = {}  # bytes that a task leaves
        self._by_size: dict[tuple[Template, str], RunTimeBySize] = {}  # by host, and over all

    def note_runtime(self, template: Template, host: str, tasks: int, seconds: Seconds) -> None:
        """Tasks ran on a host."""
        key = template, host
        runtime = self._host_times.get(key)
        if runtime is None:
            runtime = _added(self._host_times, key, RunTime())
        runtime.note(tasks, seconds)

    def note_size(self, template: Template, host: str, size: int, seconds: Seconds) -> None:
        """A task with so many bytes of input ran on a host."""
        for key in ((template, host), (template, _ANYWHERE)):
            line = self._by_size.get(key)
            if line is None:
                line = _added(self._by_size, key, RunTimeBySize())
            line.note(size, seconds)

    def note_outputs(self, template: Template, tasks: int, size: int) -> None:
        """Tasks left so many bytes together."""
        mean = self._outputs.get(template)
        if mean is None:
            mean = _added(self._outputs, template, RunTime())
        mean.note(tasks, size)

    def output_size(self, template: Template) -> int:
        """The bytes that a task leaves; 0: unknown."""
        mean = self._outputs.get(template)
        return int(mean.mean) if mean is not None else 0

    def run_time(self, template: Template, host: str, size: int) -> tuple[Seconds, Basis]:
        """The run time of a task on a host, with so many bytes of input (0: not known); 0: nothing was measured."""
        if size and self._by_size:
            for where in (host, _ANYWHERE):
                line = self._by_size.get((template, where))
                if line is not None and (seconds := line.at(size)):
                    return seconds, Basis.SIZE_HERE if where else Basis.SIZE
        runtime = self._host_times.get((template, host))
        return (runtime.mean, Basis.HOST) if runtime is not None else (0.0, Basis.NOTHING)

    def kept(self) -> KeptEstimates:
        """For a snapshot: what is known of templates that have a name; a number may never come again."""
        times, outputs, lines = self._host_times.items(), self._outputs.items(), self._by_size.items()
        return KeptEstimates(
            [(name, host, one.mean, one.seen) for (name, host), one in times if isinstance(name, str)],
            [(name, one.mean, one.seen) for name, one in outputs if isinstance(name, str)],
            [(name, host, one.sums()) for (name, host), one in lines if isinstance(name, str)],  # type: ignore[misc]
        )

    def restore(self, kept: KeptEstimates) -> None:
        """Go on with what a snapshot had."""
        self._host_times.update({(name, host): RunTime(mean, seen) for name, host, mean, seen in kept.host_times})
        self._outputs.update({name: RunTime(mean, seen) for name, mean, seen in kept.outputs})
        for name, host, sums in kept.by_size:
            line = self._by_size[name, host] = RunTimeBySize()
            line.restore(sums)


def _added(known: dict[K, V], key: K, value: V) -> V:
    """Put something new into a table, in which the oldest makes room."""
    if len(known) >= _MOST:
        del known[next(iter(known))]
    known[key] = value
    return value
