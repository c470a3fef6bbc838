"""How tasks of the past ended, read from the journal: one pass over the turns of their runs.

Rule: what is read is what the server told, or would have told, its client then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from bough.errors import StoreFailed
from bough.journal.codec import Unreadable, decode
from bough.model.facts import ElementFailed, Fact, NotRunnable, Recalled, SpanEnded
from bough.model.outcomes import Detail
from bough.server.results import part
from bough.stores.jobs import JobsDatabase
from bough.wire.messages import Outcome, Unsuccess


class Wanted(Protocol):
    """A record to be looked for."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def run(self) -> int:
        """The run it belongs to."""


class Past:
    """The ends of some records."""

    def __init__(self, database: JobsDatabase, wanted: Iterable[Wanted]) -> None:
        self._database = database
        self._messages: dict[int, list[Outcome | Unsuccess]] = {}
        runs: dict[int, set[int]] = {}
        for record in wanted:
            runs.setdefault(record.run, set()).add(record.id)
        for run, records in runs.items():
            for facts in self._turns(run):
                for fact in facts:
                    self._take(fact, records)

    def messages(self, record: int) -> list[Outcome | Unsuccess]:
        """What was told of a record's ends, the latest of a retried task first."""
        return self._messages.get(record, [])[::-1]

    def writes(self, record: int, index: int) -> dict[str, str]:
        """Declared outputs that were made, by slot."""
        rows = self._database.rows("select slot, path from files where id = ? and idx = ?", (record, index))
        return {str(row["slot"]): str(row["path"]) for row in rows}

    def rows(self, record: int) -> PastRows:
        """The outputs of an array's elements, as far as they were made."""
        found: dict[int, dict[str, str]] = {}
        for row in self._database.rows("select idx, slot, path from files where id = ?", (record,)):
            if isinstance(row["idx"], int):
                found.setdefault(row["idx"], {})[str(row["slot"])] = str(row["path"])
        command = self._database.rows("select command from tasks where id = ?", (record,))
        return PastRows(str(command[0]["command"] or "") if command else "", found)

    def _turns(self, run: int) -> Iterator[list[Fact]]:
        bounds = self._database.rows("select run, turn from runs where run in (?, ?) order by run", (run, run + 1))
        first = bounds[0]["turn"] if bounds else 0
        last = bounds[1]["turn"] if len(bounds) > 1 else None
        at = first if isinstance(first, int) else 0
        while True:  # in pieces, because the server writes meanwhile
            rows = self._database.rows(
                "select turn, facts from journal where turn >= ? and (? is null or turn < ?) order by turn limit 500",
                (at, last, last),
            )
            if not rows:
                return
            for row in rows:
                yield _decode(row["facts"])
            at = _int(rows[-1]["turn"]) + 1

    def _take(self, fact: Fact, records: set[int]) -> None:
        if isinstance(fact, SpanEnded) and fact.record in records:
            self._add(Outcome(fact.record, fact.start, fact.stop, fact.attempt, "", fact.results, fact.details))
        elif isinstance(fact, ElementFailed) and fact.record in records and fact.retry_at < 0:
            index = fact.index
            self._add(Unsuccess(fact.record, index, index + 1, fact.attempt, fact.failure, "", fact.detail))
        elif isinstance(fact, NotRunnable) and fact.record in records:
            self._add(Unsuccess(fact.record, fact.start, fact.stop, 0, fact.failure))
        elif isinstance(fact, Recalled) and fact.record in records and fact.found:
            for message in self._recalled(fact):
                self._add(message)

    def _recalled(self, fact: Recalled) -> Iterator[Outcome]:
        rows = self._database.rows("select facts from journal where turn = ?", (fact.turn,))
        shift = fact.start - fact.source_start
        for old in _decode(rows[0]["facts"]) if rows else []:
            if isinstance(old, SpanEnded) and old.record == fact.source:
                start, stop = max(fact.start, old.start + shift), min(fact.stop, old.stop + shift)
                if start < stop:
                    details = tuple(_moved(detail, shift) for detail in old.details)
                    results = part(old, start - shift, stop - shift)
                    yield Outcome(fact.record, start, stop, old.attempt, "", results, details, reused=True)

    def _add(self, message: Outcome | Unsuccess) -> None:
        self._messages.setdefault(message.record, []).append(message)


class PastRows:
    """What an array of the past wrote."""

    def __init__(self, command: str, files: dict[int, dict[str, str]]) -> None:
        self._command = command
        self._files = files

    def text(self, index: int) -> str:
        """The template of its commands; elements' own texts are not kept."""
        return self._command if index >= 0 else ""

    def writes(self, index: int) -> dict[str, str]:
        """The outputs that an element made."""
        return self._files.get(index, {})


def _decode(data: object) -> list[Fact]:
    try:
        return decode(data if isinstance(data, bytes) else b"")
    except Unreadable as error:
        raise StoreFailed(f"the journal cannot be read: {error}") from error


def _moved(detail: Detail, shift: int) -> Detail:
    return msgspec.structs.replace(detail, index=detail.index + shift) if shift else detail


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
