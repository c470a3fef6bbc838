"""When work of earlier runs counts: the three modes of a session, and where a run looks because of its mode.

A run *ended well* if its session was left without an error and none of its tasks failed; otherwise it is unfinished.
Rule: the values of `ReuseScope` are in journals and never change their meaning.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal

ReuseMode = Literal["resume", "always", "never"]
RESUME: Final = "resume"  # what unfinished earlier runs have done
ALWAYS: Final = "always"  # what any earlier run has done
NEVER: Final = "never"  # nothing
MODES: Final[tuple[ReuseMode, ...]] = (RESUME, ALWAYS, NEVER)


class ReuseScope(IntEnum):
    """In which earlier runs a task looks for its twin; one that says `always` looks in all of them."""

    NONE = 0  # none is unfinished
    UNFINISHED = 1  # those since the last script run that ended well
    ALL = 2
