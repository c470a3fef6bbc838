"""What becomes of a task whose attempt failed: another attempt, and when, or the end.

Rule: failures of its own count against the retries the user allowed; a failure of the place counts for nothing as long
as there is another place; executors and workers that die under it count against a limit of their own, so that a
poisonous task stops, and bad luck does not.
"""

from __future__ import annotations

import msgspec

from bough.core.loose import TaskRecord
from bough.core.room import Span
from bough.core.state import State
from bough.core.storable import latest, shortened
from bough.model.ids import Seconds
from bough.model.outcomes import Cause, Failure

NEVER = -1.0
_MOST_DOUBLED = 60  # times that a wait is doubled: a float holds no more than 1,023


def verdict(state: State, span: Span, index: int, failure: Failure) -> tuple[Failure, Seconds]:
    """The failure as it shall be recorded, and when the next attempt may start (`NEVER`: not at all)."""
    record, now = span.record, state.now
    failures, losses = record.failures_of(index)
    limits = record.spec.limits
    if failure.site:
        if _can_go_elsewhere(state, span, index):
            return failure, now
        failure = msgspec.structs.replace(failure, site=False)  # wherever it could go it failed: it is the task's fault
    if failure.cause is Cause.LOST:
        if losses + 1 < limits.losses:
            return failure, now
        message = shortened(f"{losses + 1} executors or workers died while running it: {failure.message}")
        return msgspec.structs.replace(failure, message=message), NEVER
    if failures >= limits.retries or failure.cause in {Cause.KILLED, Cause.CANCELLED}:
        return failure, NEVER
    return failure, latest(now + limits.backoff * 2 ** min(failures, _MOST_DOUBLED))


def _can_go_elsewhere(state: State, span: Span, index: int) -> bool:
    """Whether there is an executor that could run it and on which it has not failed yet."""
    record = span.record
    tried = {span.executor.id, *(record.avoid if isinstance(record, TaskRecord) else record.shunned.get(index, ()))}
    others = (executor for executor in state.executors.values() if executor.id not in tried and not executor.draining)
    return any(executor.could_fit(record.needs) for executor in others)
