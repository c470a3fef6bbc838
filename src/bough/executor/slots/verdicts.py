"""What it means for a task that a monitor, or somebody elsewhere, ends it.

Rule: the reason is one line, the same for a success and a failure.
"""

from __future__ import annotations

from bough.model.monitoring.monitors import Fail, Finish, Restart
from bough.model.monitoring.observations import Fired, ended_by
from bough.model.outcomes import Cause, EndedEarly, Failure


def verdict_of(action: Finish | Fail | Restart, fired: Fired) -> Failure | EndedEarly:
    """The outcome of a task that is ended by this."""
    why = ended_by(fired)
    match action:
        case Finish():
            return EndedEarly(why, fired.monitor, fired.value, fired.text)
        case Fail():
            return Failure(Cause.MONITOR, f"{action.message} ({why})" if action.message else why)
        case Restart():
            return Failure(Cause.MONITOR, why, restarts=action.times)
