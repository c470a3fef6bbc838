"""When an executor is suspended, and for how long: the same rule for the server and for relays that share out work.

Rule: a failure counts against the place of it only when the same task has worked elsewhere; what works there clears it.
"""

from __future__ import annotations

from typing import Final

from bough.model.ids import Seconds

TROUBLED: Final = 5  # tasks in a row that failed at a place and worked elsewhere
_REST: Final = 60.0  # seconds, the first time
_LONGEST_REST: Final = 3600.0
_DOUBLED: Final = 6  # times, after which it is the longest
SPACE_REST: Final[Seconds] = 2.0  # of an executor whose disk is full
_LONGEST_WAIT: Final[Seconds] = 60.0  # of a task for which there was no space


def rest_after(suspensions: int) -> Seconds:
    """How long an executor gets nothing that was suspended so often before: twice as long each time."""
    return min(_REST * 2.0 ** min(suspensions, _DOUBLED), _LONGEST_REST)


def wait_for_space(attempt: int) -> Seconds:
    """How long a task waits for which there was no space: longer each time, so that others get their turn there."""
    return min(SPACE_REST * attempt, _LONGEST_WAIT)


def describe_trouble(trouble: int) -> str:
    """Why it is suspended."""
    return f"{trouble} tasks in a row failed there and worked elsewhere"
