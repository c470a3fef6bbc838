"""What a worker runs just now: the task that asks `bough.here()` in it is found by this.

Rule: as cheap as can be: one name is set for each hand-over, and the shared memory says which element it is at.
"""

from __future__ import annotations

from bough.executor.worker_protocol import INDEX
from bough.wire.executor_messages import RunSpan

run: RunSpan | None = None  # the hand-over of functions that is being run
cells: memoryview[int] | None = None  # the worker's own


def task() -> tuple[int, int, int] | None:
    """Record, index and attempt of the function that runs in this process; None: none does."""
    if run is None or cells is None:
        return None
    at = cells[INDEX]
    if not run.batch:
        return run.record, at, run.attempt
    return (run.batch[at - 1][0] if at else run.record), 0, run.attempt
