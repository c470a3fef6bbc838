"""Sessions as a display looks at them: one picture of all that they hold.

Rule: the sessions' own counts are read, and no server is asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bough.api.display.progress_display import Picture, with_parents

if TYPE_CHECKING:
    from bough.api.futures.progress import Progress
    from bough.api.session.session import Session

TO_DO = "to do"  # tasks that have not started


def picture_of(sessions: Sequence[Session], begun: float) -> Picture:
    """How things stand; `begun` in monotonic seconds."""
    progresses: list[Progress] = [one.progress for one in sessions]
    groups = [(line.path, _in_words(line.counts)) for one in progresses for line in one.groups()]
    return Picture(
        with_parents(groups),
        reused=sum(one.reused for one in progresses),
        seconds=time.monotonic() - begun,
        rate=sum(one.rate() for one in progresses),
        title=", ".join(one.name for one in sessions),
    )


def _in_words(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts as they are shown: a session does not know which of the tasks that have not started could run."""
    return {TO_DO if state == "waiting" else state: number for state, number in counts.items()}
