"""What replicas of running tasks have cost a run, from the jobs database: the formulas of Storage Affinity, 4.8.

CPU waste is the time of attempts that were ended because another one of the same task had succeeded, for each hour of
those that succeeded, in percent; network waste the bytes that were moved for the former, for each byte of the job's
input. Rule: what a store does not know counts as 0; the bytes of an attempt are not known yet.
"""

from __future__ import annotations

from bough.api.display.surroundings import show_seconds
from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.task_rows import Fields
from bough.model.plurals import counted

_ENDED = """
select count(*) as attempts, sum((a.ended - coalesce(a.started, a.placed)) * t.cores) as seconds
from attempts a join tasks t on t.id = a.id where t.run = ? and a.state = 'superseded'"""
_WON = "select sum(seconds * cores) as seconds from tasks where run = ? and done > 0 and reused < done"


def replica_waste(database: OpenDatabase, run: int) -> Fields | None:
    """What the replicas of a run have cost; None: no attempt was superseded."""
    ended = database.rows(_ENDED, [run])[0]
    attempts, wasted = ended["attempts"], ended["seconds"]
    if not isinstance(attempts, int) or not attempts:
        return None
    seconds = max(0.0, float(wasted)) if isinstance(wasted, int | float) else 0.0
    won = database.rows(_WON, [run])[0]["seconds"]
    useful = float(won) if isinstance(won, int | float) else 0.0
    return {
        "superseded": attempts,
        "core_seconds": seconds,
        "useful_core_seconds": useful,
        "cpu_waste": 100 * seconds / useful if useful else 0.0,
        "bytes": 0,
        "network_waste": 0.0,
    }


def waste_line(waste: Fields) -> str:
    """The same in a line."""
    seconds, percent, attempts = waste["core_seconds"], waste["cpu_waste"], waste["superseded"]
    assert isinstance(seconds, float)
    assert isinstance(percent, float)
    assert isinstance(attempts, int)
    said = counted(attempts, "attempt was", "attempts were")
    return f"replicas: {said} superseded, {show_seconds(seconds)} of cores wasted ({percent:.1f} % of what succeeded)"
