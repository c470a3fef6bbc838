"""What replicas of running tasks have cost a run, from the jobs database: the formulas of Storage Affinity, 4.8.

CPU waste is the run time of attempts that were ended because another one of the same task had succeeded, for each hour
of those that succeeded, in percent; the wait for inputs counts for neither. Network waste is the bytes of inputs that
were moved for the former, for each byte of input of the attempts that succeeded, moved or not. Rule: what a store does
not know counts as 0.
"""

from __future__ import annotations

from bough.api.display.surroundings import show_seconds
from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.task_rows import Fields
from bough.model.sites.resources import show_bytes
from bough.model.texts.plurals import counted

_ENDED = """
select count(*) as attempts, sum(case when a.ended - a.started > coalesce(s.stage_in, 0)
  then (a.ended - a.started - coalesce(s.stage_in, 0)) * t.cores end) as seconds
from attempts a join tasks t on t.id = a.id
  left join staging s on s.id = a.id and s.idx = a.idx and s.attempt = a.attempt
where t.run = ? and a.state = 'superseded'"""
_MOVED = """
select sum(s.from_peers + s.from_origin) as bytes from staging s join attempts a
  on a.id = s.id and a.idx = s.idx and a.attempt = s.attempt join tasks t on t.id = s.id
where t.run = ? and a.state = 'superseded'"""
_INPUT = """
select sum(s.cached + s.from_peers + s.from_origin + coalesce(s.from_shared, 0)) as bytes
from staging s join tasks t on t.id = s.id
where t.run = ? and not exists (select 1 from attempts a
  where a.id = s.id and a.idx = s.idx and a.attempt = s.attempt and a.state != 'done')"""
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
    moved, read = (_whole(database.rows(asked, [run])[0]["bytes"]) for asked in (_MOVED, _INPUT))
    return {
        "superseded": attempts,
        "core_seconds": seconds,
        "useful_core_seconds": useful,
        "cpu_waste": 100 * seconds / useful if useful else 0.0,
        "bytes": moved,
        "input_bytes": read,
        "network_waste": 100 * moved / read if read else 0.0,
    }


def _whole(value: object) -> int:
    """A sum, which is none over no rows, and has a type of its own in PostgreSQL."""
    return int(str(value)) if value is not None else 0


def waste_line(waste: Fields) -> str:
    """The same in a line."""
    seconds, percent, attempts = waste["core_seconds"], waste["cpu_waste"], waste["superseded"]
    assert isinstance(seconds, float)
    assert isinstance(percent, float)
    assert isinstance(attempts, int)
    said = counted(attempts, "attempt was", "attempts were")
    line = f"replicas: {said} superseded, {show_seconds(seconds)} of cores wasted ({percent:.1f} % of what succeeded)"
    moved = waste["bytes"]
    assert isinstance(moved, int)
    return f"{line}, {show_bytes(moved)} moved in vain ({waste['network_waste']:.1f} % of all input)" if moved else line
