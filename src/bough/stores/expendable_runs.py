"""Which runs of a session's store cannot be asked for any more, so that what they left on the disk can go.

A run is needed while its script lives, whose futures may ask for its results; while it is unfinished, so that the next
run continues it; and while a later run may reuse what it did: all of it if its session said "always" or "never", else
the tasks that said so themselves. Rule: a success that a needed run reuses is needed, too. Of work that was done again
with the same key, only the latest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from bough.model.reuse_scope import ReuseScope
from bough.stores.database import Database

_RUNS: Final = "SELECT run, host, script, closed, reuse FROM runs ORDER BY run"
_LOOKED_AT: Final = 20_000  # tasks of a run; one of which more were done again stays
_IS_LATEST: Final = "NOT EXISTS (SELECT 1 FROM memo AS later WHERE later.key = memo.key AND later.turn > memo.turn)"
_ARRAY_IS_LATEST: Final = """EXISTS (SELECT 1 FROM memo WHERE memo.record = arrays.record)
AND NOT EXISTS (SELECT 1 FROM arrays AS later WHERE later.key = arrays.key AND later.record > arrays.record
  AND later.length >= arrays.length)"""
# by whether all tasks of the run may be reused, or only those that said so
_TASKS: Final = {
    True: f"SELECT {_IS_LATEST} FROM tasks JOIN memo ON memo.record = tasks.id"
    f" WHERE tasks.run = ? AND tasks.is_array = 0 LIMIT {_LOOKED_AT}",
    False: f"SELECT {_IS_LATEST} FROM lasting JOIN memo ON memo.record = lasting.record"
    f" WHERE lasting.run = ? AND lasting.is_array = 0 LIMIT {_LOOKED_AT}",
}
_ARRAYS: Final = {
    True: f"SELECT 1 FROM arrays WHERE arrays.run = ? AND {_ARRAY_IS_LATEST} LIMIT 1",
    False: "SELECT 1 FROM lasting JOIN arrays ON arrays.record = lasting.record"
    f" WHERE lasting.run = ? AND lasting.is_array = 1 AND {_ARRAY_IS_LATEST} LIMIT 1",
}
_RECORDS: Final = "SELECT min(id), max(id) FROM tasks WHERE run = ?"
_EXECUTORS: Final = "SELECT id FROM executors WHERE run = ?"
_LENDERS: Final = """
SELECT DISTINCT tasks.run FROM borrowed JOIN tasks ON tasks.id = borrowed.source WHERE borrowed.run = ?"""


class ExpendableRuns(msgspec.Struct, frozen=True):
    """Runs that nothing can ask for, and the numbers of what they made, by which their files are named."""

    runs: tuple[int, ...]
    records: tuple[tuple[int, int], ...]  # first and last
    executors: frozenset[int]
    ended: tuple[tuple[int, int], ...]  # records of all runs whose script is gone: these need no arguments any more


class ScriptRun(msgspec.Struct, frozen=True):
    """The process that opened a run."""

    host: str
    script: str
    closed: float  # when the run ended; 0: it has not


def find_expendable(
    database: Database, needed: Collection[int], script: str, is_alive: Callable[[ScriptRun], bool], *, spare_last: bool
) -> ExpendableRuns:
    """The runs that are not needed; `needed` are unfinished ones, `script` is the one that asks.

    With `spare_last` the last script run is needed as well.
    """
    rows = database.execute(_RUNS).fetchall()
    last = rows[-1][2] if rows and spare_last else None
    ended, kept, found = [], set(needed), []
    for run, host, opened_by, closed, reuse in rows:
        if opened_by == script or is_alive(ScriptRun(host or "", opened_by or "", closed or 0.0)):
            kept.add(run)
            continue
        ended.append(run)
        if opened_by == last or run in kept or _may_be_reused(database, run, all_of_it=reuse == ReuseScope.ALL):
            kept.add(run)
        else:
            found.append(run)
    lenders = {row[0] for run in kept for row in database.execute(_LENDERS, (run,))}
    found = [run for run in found if run not in lenders]
    executors = {row[0] for run in found for row in database.execute(_EXECUTORS, (run,))}
    return ExpendableRuns(tuple(found), _records(database, found), frozenset(executors), _records(database, ended))


def _records(database: Database, runs: Iterable[int]) -> tuple[tuple[int, int], ...]:
    found = [database.execute(_RECORDS, (run,)).fetchone() for run in runs]
    return tuple((low, high) for low, high in found if low is not None)


def _may_be_reused(database: Database, run: int, *, all_of_it: bool) -> bool:
    if database.execute(_ARRAYS[all_of_it], (run,)).fetchone():
        return True
    seen = 0
    for (is_latest,) in database.execute(_TASKS[all_of_it], (run,)):
        if is_latest:
            return True
        seen += 1
    return seen >= _LOOKED_AT
