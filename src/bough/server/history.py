"""When and where a task ran last, from the jobs database: its attempts in this run, else those of its namesake before.

Rule: it is read in a thread once the tables have caught up; the core never waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bough.core.records import Record
from bough.errors import BoughError
from bough.server.log import log
from bough.server.shell import Shell

if TYPE_CHECKING:
    from bough.stores.jobs import Row

Past = dict[str, str | float | None]

_OWN = """
SELECT coalesce(started, placed) AS started, ended, host FROM attempts WHERE id = ? AND idx = ?
UNION ALL SELECT started, ended, host FROM tasks WHERE id = ? AND is_array = 0
UNION ALL SELECT started, ended, host FROM elements WHERE id = ? AND idx = ?
UNION ALL SELECT coalesce(spans.started, spans.placed), spans.ended, executors.host FROM spans
  LEFT JOIN executors ON executors.id = spans.executor WHERE spans.id = ? AND spans.start <= ? AND spans.stop > ?
"""
_NAMESAKES = """
SELECT tasks.id FROM tasks JOIN runs ON runs.run = tasks.run
  LEFT JOIN groups ON groups.run = tasks.run AND groups.id = tasks.grp
WHERE tasks.id < ? AND tasks.name = ? AND runs.name = ? AND coalesce(groups.path, '') = ?
ORDER BY tasks.id DESC LIMIT 3
"""


class History:
    """See the module. `where`: the store's folder or database."""

    def __init__(self, shell: Shell, where: str) -> None:
        self._shell = shell
        self._where = where

    def find(self, record: Record, index: int, then: Callable[[Past], None]) -> None:
        """Call back with `lastStart`, `lastCompletion` and `lastHost`, as far as they are known."""
        group = record.group
        wanted = (record.id, index, record.spec.name, group.workflow.name, group.path)
        self._shell.upkeep.when_folded(lambda: self._begin(wanted, then))

    def _begin(self, wanted: tuple[int, int, str, str, str], then: Callable[[Past], None]) -> None:
        asked = self._shell.loop.run_in_executor(None, self._read, wanted)
        asked.add_done_callback(lambda done: then(_result(done)))

    def _read(self, wanted: tuple[int, int, str, str, str]) -> Past:
        from bough.stores.opening import open_jobs

        record, index, name, workflow, path = wanted
        with open_jobs(self._where) as jobs:
            rows = jobs.rows(_OWN, (record, index, record, record, index, record, index, index))
            namesakes = jobs.rows(_NAMESAKES, (record, name, workflow, path)) if name and not _ended(rows) else []
            for one in namesakes:
                before = one["id"]
                rows += jobs.rows(_OWN, (before, index, before, before, index, before, index, index))
                if _ended(rows):
                    break
        last = max(_ended(rows), key=_end, default=None)
        starts = [start for row in rows if isinstance(start := row["started"], float)]
        return {
            "lastStart": max(starts, default=None),
            "lastCompletion": _end(last) if last is not None else None,
            "lastHost": str(last["host"] or "") if last is not None else None,
        }


def _ended(rows: list[Row]) -> list[Row]:
    return [row for row in rows if isinstance(row["ended"], float)]


def _end(row: Row) -> float:
    ended = row["ended"]
    assert isinstance(ended, float)
    return ended


def _result(done: asyncio.Future[Past]) -> Past:
    error = done.exception()
    if error is None:
        return done.result()
    if not isinstance(error, BoughError):
        raise error
    log(f"when a task ran last cannot be read: {error}")
    return {"lastStart": None, "lastCompletion": None, "lastHost": None}
