"""Brings the jobs database up to date with the journal, and sets aside facts that cannot be folded.

Turns are folded together, as many as are cheaper to write so. When one of their facts cannot be folded, the transaction
is rolled back, the turns are folded again one by one, and the turn with that fact is folded fact by fact.
Rule: a turn is folded as a whole, with all of its facts but those that are set aside, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bough.journal.codec import encode_fact
from bough.model.events.facts import Fact
from bough.model.ids import Seconds
from bough.stores import quarantine
from bough.stores.database import Database
from bough.stores.jobs.fold import JobsFold
from bough.stores.quarantine import NOT_IN_TABLES, Quarantine, SetAside, numbers_in
from bough.stores.store_errors import is_of_data

Journal = Callable[[int], Iterator[tuple[int, Seconds, list[Fact]]]]


class CatchUp:
    """Folds turns. The caller reports exceptions, and rolls back an open transaction before it calls again."""

    def __init__(
        self, database: Database, journal: Journal, aside: Quarantine, new_fold: Callable[[], JobsFold]
    ) -> None:
        self._database = database
        self._journal = journal
        self._aside = aside
        self._new_fold = new_fold
        self._fold: JobsFold | None = None
        self._turn = 0  # the one that is being folded
        self._not_folded: dict[int, set[int]] = {}  # positions by turn of facts that are not folded

    def forget(self) -> None:
        """Drop the rows in memory: they may differ from the tables."""
        self._fold = None

    def fold(self, last: int, at_most: int = 0) -> int:
        """Fold turns up to the last one, at most so many; the last that is folded now."""
        self._turn = 0
        if self._fold is None:
            self._fold = self._new_fold()
            self._not_folded = quarantine.not_in_tables(self._database)
        fold, folded = self._fold, False
        after = fold.position
        until = min(last, after + at_most) if at_most else last
        if after < until:
            for turn, time, facts in self._journal(after):
                self._turn = turn
                if turn in self._not_folded or turn in self._aside.spoilt:
                    facts = self._foldable(fold, turn, facts)  # noqa: PLW2901
                fold.fold(turn, time, facts)
                folded = True
                if turn >= until:  # rows may be missing: what they said was removed
                    break
                if fold.heavy:
                    fold.commit()
                    folded = False
            if folded:
                fold.commit()
        return fold.position

    def can_go_on(self, error: BaseException) -> bool:
        """Whether folding failed because of a fact, and can continue without it."""
        return bool(self._turn) and is_of_data(error)

    def fold_what_can_be(self, roll_back: Callable[[], None]) -> None:
        """After a failure: fold up to the turn where it happened; its cause may lie in an earlier turn."""
        self._not_folded = quarantine.not_in_tables(self._database)
        fold = self._new_fold()
        while fold.position < self._turn:
            turn, time, facts = next(self._journal(fold.position))  # SQLite cannot undo in the middle of a read
            try:
                fold.fold(turn, time, self._foldable(fold, turn, facts))
                fold.commit()
            except Exception as error:
                roll_back()
                if not is_of_data(error):
                    raise
                self._fold_singly(turn, time, facts)
                fold = self._new_fold()

    def _fold_singly(self, turn: int, time: Seconds, facts: list[Fact]) -> None:
        """Fold a turn fact by fact; the caller undoes it all if this raises."""
        database, found = self._database, list[SetAside]()
        database.execute("BEGIN IMMEDIATE")
        fold = self._new_fold()
        for position, fact in enumerate(facts):
            database.execute("SAVEPOINT fact")
            try:
                fold.fold_one(turn, time, fact)
            except Exception as error:
                if not is_of_data(error):
                    raise
                database.execute("ROLLBACK TO SAVEPOINT fact")
                reason = f"{type(error).__name__}: {error}"
                found.append(SetAside(turn, position, NOT_IN_TABLES, type(fact).__name__, reason))
                fold = self._new_fold()  # the other one has half of that fact
            database.execute("RELEASE SAVEPOINT fact")
        quarantine.insert(database, found)
        self._not_folded[turn] = {one.position for one in found}
        self._foldable(fold, turn, facts)
        fold.fold(turn, time, ())
        fold.commit()
        self._aside.say(found)

    def _foldable(self, fold: JobsFold, turn: int, facts: list[Fact]) -> list[Fact]:
        """The facts of a turn that are folded; ids that the others gave are reserved."""
        not_folded = self._not_folded.get(turn, set())
        for one in self._aside.spoilt.get(turn, ()):
            fold.reserve(numbers_in(one.data))
        for position in not_folded:
            if position < len(facts):
                fold.reserve(numbers_in(encode_fact(facts[position])))
        return [fact for position, fact in enumerate(facts) if position not in not_folded]
