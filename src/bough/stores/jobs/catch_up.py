"""Bring the jobs database up to date with the journal; what cannot be folded is set aside.

Turns are folded together, as many as are cheaper to write so. When something of them cannot be folded, all of it is
undone and folded again turn by turn, and the turn that it is in fact by fact. Rule: a turn is folded as a whole, with
all of its facts but those that are set aside, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bough.journal.codec import encode_fact
from bough.model.events.facts import Fact
from bough.model.ids import Seconds
from bough.stores.jobs.fold import JobsFold
from bough.stores.maintenance import quarantine
from bough.stores.maintenance.quarantine import NOT_IN_TABLES, Quarantine, SetAside, numbers_in
from bough.stores.sql.database import Database
from bough.stores.store_errors import is_of_data

Journal = Callable[[int], Iterator[tuple[int, Seconds, list[Fact]]]]


class CatchUp:
    """See the module. The caller reports exceptions, and undoes what was begun before it goes on."""

    def __init__(
        self, database: Database, journal: Journal, aside: Quarantine, new_projector: Callable[[], JobsFold]
    ) -> None:
        self._database = database
        self._journal = journal
        self._aside = aside
        self._new_projector = new_projector
        self._projector: JobsFold | None = None
        self._turn = 0  # that is being folded
        self._left_out: dict[int, set[int]] = {}  # positions by turn of facts that are not folded

    def forget(self) -> None:
        """What is in memory may not be what is in the tables."""
        self._projector = None

    def fold(self, last: int, at_most: int = 0) -> int:
        """Fold turns up to the last one, at most so many; the last that is folded now."""
        self._turn = 0
        if self._projector is None:
            self._projector = self._new_projector()
            self._left_out = quarantine.not_in_tables(self._database)
        projector, folded = self._projector, False
        after = projector.position
        until = min(last, after + at_most) if at_most else last
        if after < until:
            for turn, time, facts in self._journal(after):
                self._turn = turn
                if turn in self._left_out or turn in self._aside.spoilt:
                    facts = self._foldable(projector, turn, facts)  # noqa: PLW2901
                projector.fold(turn, time, facts)
                folded = True
                if turn >= until:  # rows may be missing: what they said was removed
                    break
                if projector.heavy:
                    projector.commit()
                    folded = False
            if folded:
                projector.commit()
        return projector.position

    def can_go_on(self, error: BaseException) -> bool:
        """Whether folding failed because of a fact, and goes on without it."""
        return bool(self._turn) and is_of_data(error)

    def fold_what_can_be(self, roll_back: Callable[[], None]) -> None:
        """After a failure: fold up to where it happened, which may be later than what caused it."""
        self._left_out = quarantine.not_in_tables(self._database)
        projector = self._new_projector()
        while projector.position < self._turn:
            turn, time, facts = next(self._journal(projector.position))  # SQLite cannot undo in the middle of a read
            try:
                projector.fold(turn, time, self._foldable(projector, turn, facts))
                projector.commit()
            except Exception as error:
                roll_back()
                if not is_of_data(error):
                    raise
                self._fold_singly(turn, time, facts)
                projector = self._new_projector()

    def _fold_singly(self, turn: int, time: Seconds, facts: list[Fact]) -> None:
        """Fold a turn fact by fact; the caller undoes it all if this raises."""
        database, found = self._database, list[SetAside]()
        database.execute("BEGIN IMMEDIATE")
        projector = self._new_projector()
        for position, fact in enumerate(facts):
            database.execute("SAVEPOINT fact")
            try:
                projector.fold_one(turn, time, fact)
            except Exception as error:
                if not is_of_data(error):
                    raise
                database.execute("ROLLBACK TO SAVEPOINT fact")
                reason = f"{type(error).__name__}: {error}"
                found.append(SetAside(turn, position, NOT_IN_TABLES, type(fact).__name__, reason))
                projector = self._new_projector()  # the one before has seen half of it
            database.execute("RELEASE SAVEPOINT fact")
        quarantine.insert(database, found)
        self._left_out[turn] = {one.position for one in found}
        self._foldable(projector, turn, facts)
        projector.fold(turn, time, ())
        projector.commit()
        self._aside.say(found)

    def _foldable(self, projector: JobsFold, turn: int, facts: list[Fact]) -> list[Fact]:
        """The facts of a turn that are folded; numbers that the others gave away are not given again."""
        left_out = self._left_out.get(turn, set())
        for one in self._aside.spoilt.get(turn, ()):
            projector.reserve(numbers_in(one.data))
        for position in left_out:
            if position < len(facts):
                projector.reserve(numbers_in(encode_fact(facts[position])))
        return [fact for position, fact in enumerate(facts) if position not in left_out]
