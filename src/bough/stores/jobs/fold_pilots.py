"""Folds facts about pilots: one row a pilot, from the moment on at which it was asked for.

Rule: a pilot's row has the run of the service, because its numbers are that run's; a site that is removed leaves the
rows of its pilots as they are.
"""

from __future__ import annotations

from typing import Final

from bough.model.events import facts as f
from bough.stores.jobs.rows import shown
from bough.stores.jobs.tables import JobsTables

_ASKED: Final = """
INSERT INTO pilots (run, id, site, state, allocation, cores, asked, reason) VALUES (?, ?, ?, 'asked', ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
_QUEUED: Final = """
UPDATE pilots SET state = CASE WHEN state = 'asked' THEN 'queued' ELSE state END, queued = ?, handle = ?
WHERE run = ? AND id = ?"""
_STARTED: Final = """
UPDATE pilots SET state = 'running', started = COALESCE(started, ?), executors = executors + 1,
cores = CASE WHEN executors = 0 THEN ? ELSE cores + ? END WHERE run = ? AND id = ? AND site = ? AND ended IS NULL"""
_RELEASED: Final = "UPDATE pilots SET released = ? WHERE run = ? AND id = ?"
_ENDED: Final = """
UPDATE pilots SET state = ?, ended = ?, message = ?, core_seconds = ?, startup = ?, used = ?, wasted = ?
WHERE run = ? AND id = ?"""


class PilotFold:
    """See the module."""

    def __init__(self, tables: JobsTables) -> None:
        self._tables = tables

    def asked(self, now: float, fact: f.PilotAsked) -> None:
        """A pilot is wanted."""
        values = (shown(fact.site), fact.allocation or fact.pilot, fact.cores or None, now, shown(fact.reason))
        self._tables.execute(_ASKED, (self._run, fact.pilot, *values))

    def queued(self, now: float, fact: f.PilotQueued) -> None:
        """Its site has taken it."""
        self._tables.execute(_QUEUED, (now, shown(fact.handle), self._run, fact.pilot))

    def started(self, now: float, fact: f.ExecutorJoined) -> None:
        """It has brought an executor."""
        cores = fact.capacity.cores
        self._tables.execute(_STARTED, (now, cores, cores, self._run, fact.pilot, shown(fact.site)))

    def released(self, fact: f.PilotReleased) -> None:
        """It is not wanted any more."""
        self._tables.execute(_RELEASED, (shown(fact.reason), self._run, fact.pilot))

    def ended(self, now: float, fact: f.PilotEnded) -> None:
        """It is gone."""
        state = "failed" if fact.failed else "ended"
        self._tables.execute(_ENDED, (state, now, shown(fact.reason), *fact.usage, self._run, fact.pilot))

    @property
    def _run(self) -> int:
        return self._tables.marks.run
