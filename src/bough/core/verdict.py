"""What becomes of a task whose attempt failed: another attempt, and when, or the end.

Rule: failures of its own count against the retries the user allowed; executors and workers that die
under it count against a limit of their own, so that a poisonous task stops, and bad luck does not.
"""

from __future__ import annotations

import msgspec

from bough.core.records import Record
from bough.model.ids import Seconds
from bough.model.outcomes import Cause, Failure

NEVER = -1.0


def verdict(record: Record, index: int, failure: Failure, now: Seconds) -> tuple[Failure, Seconds]:
    """The failure as it shall be recorded, and when the next attempt may start (`NEVER`: not at all)."""
    failures, losses = record.failures_of(index)
    limits = record.spec.limits
    if failure.cause is Cause.LOST:
        if losses + 1 < limits.losses:
            return failure, now
        message = f"{losses + 1} executors or workers died while running it: {failure.message}"
        return msgspec.structs.replace(failure, message=message), NEVER
    if failures >= limits.retries or failure.cause in {Cause.KILLED, Cause.CANCELLED}:
        return failure, NEVER
    return failure, now + limits.backoff * 2**failures
