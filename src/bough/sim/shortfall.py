"""Which tasks of a simulated run did not succeed, and why, as one sentence for people.

    40 of 43 tasks failed, 2 were skipped; the first: task 2 (split) failed: ... its wall time was over
    2 of 6 tasks never ran: no host is left that could take them

Rules: the reason is what the core itself says of the first such task, as `bough explain` does. Tasks that occupy no
core are joints, which do nothing, and are not counted.
"""

from __future__ import annotations

from collections.abc import Container

from bough.core.machine import Machine
from bough.model.arrays import ranges
from bough.model.states import OPEN, TaskState, as_bytes
from bough.model.texts.plurals import counted

_FAILED = as_bytes({TaskState.FAILED})
_LEFT_OUT = as_bytes({TaskState.SKIPPED, TaskState.CANCELLED})
_OPEN = as_bytes(OPEN)
_READY = as_bytes({TaskState.READY})


def shortfall(machine: Machine, wanted: Container[int] | None = None) -> str:
    """The sentence; empty: all tasks succeeded. `wanted`: only these records have to, whatever became of others."""
    counts = machine.counts()
    if counts["done"] == sum(counts.values()):
        return ""
    return _Run(machine, wanted).shortfall()


class _Run:
    """The records that count of a run that has come to its end."""

    def __init__(self, machine: Machine, wanted: Container[int] | None) -> None:
        self._machine = machine
        self._records = [
            record
            for record in machine.state.records.values()
            if record.spec.needs.cores and (wanted is None or record.id in wanted)
        ]

    def shortfall(self) -> str:
        failed, left_out, never = (self._count(states) for states in (_FAILED, _LEFT_OUT, _OPEN))
        found = [(failed, "failed")] * bool(failed)
        found += [(left_out, "was skipped" if left_out == 1 else "were skipped")] * bool(left_out)
        found += [(never, "never ran")] * bool(never)
        if not found:
            return ""
        total = counted(sum(record.length for record in self._records), "task")
        (first, verb), *others = found
        said = ", ".join([f"{first} of {total} {verb}", *(f"{many} {verb}" for many, verb in others)])
        if never and not failed:
            return f"{said}: {self._why_never()}"
        return f"{said}; the first: {self._explain(_FAILED if failed else _LEFT_OUT)}"

    def _why_never(self) -> str:
        """Why what is ready was given to nobody; what waits for other tasks waits for these."""
        state = self._machine.state
        there = state.executors.values()
        ready = next((record for record in self._records if record.runs(_READY, 0, record.length)), None)
        if ready is not None and any(one.fits(ready) and one.ends_before(ready, state.now) for one in there):
            return f"the policy gave {ready.spec.name or f'task {ready.id}'} to no host, though one has room for it"
        said = self._explain(_READY) or self._explain(_OPEN)
        if there:
            return said
        _, _, pilots = said.partition("; ")  # of sites with queues: why no pilot is asked for
        return f"no host comes that could take them; {pilots}" if pilots else "no host is left that could take them"

    def _explain(self, states: bytes) -> str:
        """All that the core says of the first task in one of these states."""
        for record in self._records:
            for start, _ in record.runs(states, 0, record.length)[:1]:
                return "; ".join(self._machine.explain(record.id, start))
        return ""

    def _count(self, states: bytes) -> int:
        return sum(ranges.size(record.runs(states, 0, record.length)) for record in self._records)
