"""Looking for successes of earlier runs: loose tasks together, arrays alone, nothing where nothing can be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bough.errors import StoreFailed, UserError
from bough.model.events.arriving import Recalled
from bough.model.events.facts import MemoLookedUp
from bough.model.events.orders import LookUpMemo
from bough.model.ids import MemoKey, RecordId
from bough.model.monitoring.observations import Fired, Points, SeenTask, Trouble
from bough.model.tasks import Reuse
from bough.server.turns.memo_lookups import MemoLookups


class Shelf:
    """A store that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.projected = 0
        self.broken = False
        self.seen: dict[int, list[SeenTask]] = {}

    def project(self, at_most: int = 0) -> bool:
        self.projected += 1
        return True

    def look_up(
        self, record: int, start: int, stop: int, key: bytes, reuse: object, run: int = 0, *, always: bool = True
    ) -> list[MemoLookedUp]:
        self.asked.append((record,))
        return [MemoLookedUp(RecordId(record), start, stop, found=True)]

    def look_up_tasks(
        self, wanted: list[tuple[int, bytes]], run: int = 0, *, always: bool = True
    ) -> list[MemoLookedUp]:
        if self.broken:
            raise StoreFailed("it is gone")
        self.asked.append(tuple(record for record, _ in wanted))
        return [MemoLookedUp(RecordId(record), 0, 1, found=True) for record, _ in wanted]

    def watched_sources(self, found: object) -> set[int]:
        return set(self.seen)

    def observations(self, record: int, start: int, stop: int) -> list[SeenTask]:
        if self.broken:
            raise StoreFailed("it is gone")
        if stop - start > 40:
            raise UserError("ask for fewer")
        return [seen for seen in self.seen[record] if start <= seen.index < stop]


def lookups(shelf: Shelf, records: range, *, memos: bool = True, runs: dict[int, int] | None = None) -> MemoLookups:
    queries = SimpleNamespace(has_record=records.__contains__, run_of=lambda record: (runs or {})[record])
    info = SimpleNamespace(memos=memos, embedded=runs is None)
    return MemoLookups(cast(Any, shelf), cast(Any, queries), cast(Any, info))


def loose(record: int, *, always: bool = True) -> LookUpMemo:
    return LookUpMemo(RecordId(record), 0, 1, MemoKey(b"k" * 16), (), always)


def answered(looking: MemoLookups) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    while looking.is_waiting:  # as many turns as it takes: each has its slice of time
        found += [(fact.record, fact.found) for fact in looking.answers() if isinstance(fact, MemoLookedUp)]
    return found


def test_loose_tasks_are_looked_up_together_and_arrays_in_between_in_order() -> None:
    shelf = Shelf()
    looking = lookups(shelf, range(1, 1000))
    array = LookUpMemo(RecordId(4), 0, 9, MemoKey(b"a"), (Reuse(0, 9, RecordId(77), 0),))
    looking.waiting += [loose(1), loose(2), loose(3), array, loose(5), loose(6)]
    assert answered(looking) == [(record, True) for record in range(1, 7)]
    assert shelf.asked == [(1, 2, 3), (4,), (5, 6)]
    assert shelf.projected == 1
    looking.waiting += map(loose, range(10, 900))
    assert len(answered(looking)) == 890
    assert max(map(len, shelf.asked)) == 256
    assert shelf.projected == 1


def test_what_is_gone_and_what_cannot_be_asked_is_not_found() -> None:
    shelf = Shelf()
    looking = lookups(shelf, range(1, 3))
    looking.waiting += [loose(1), loose(9), loose(2)]
    assert answered(looking) == [(1, True), (9, False), (2, True)]
    shelf.broken = True
    looking.waiting += [loose(1), loose(2)]
    assert answered(looking) == [(1, False), (2, False)]
    without = lookups(shelf, range(1, 3), memos=False)
    without.waiting += [loose(1), loose(2)]
    assert answered(without) == [(1, False), (2, False)]


def test_tasks_of_several_workflows_are_looked_up_apart() -> None:
    shelf = Shelf()
    looking = lookups(shelf, range(1, 6), runs={1: 7, 2: 7, 3: 8, 4: 7, 5: 7})
    looking.waiting += map(loose, range(1, 6))
    assert len(answered(looking)) == 5
    assert shelf.asked == [(1, 2), (3,), (4, 5)]
    looking.refresh()
    looking.waiting.append(loose(1))
    answered(looking)
    assert shelf.projected == 2


def test_tasks_that_look_in_all_runs_are_looked_up_apart_from_those_that_do_not() -> None:
    shelf = Shelf()
    looking = lookups(shelf, range(1, 6))
    looking.waiting += [loose(1), loose(2, always=False), loose(3, always=False), loose(4)]
    assert len(answered(looking)) == 4
    assert shelf.asked == [(1,), (2, 3), (4,)]


class WatchedShelf(Shelf):
    """A store that finds an array of 100, all of it as elements 5 to 105 of record 77."""

    def look_up(
        self, record: int, start: int, stop: int, key: bytes, reuse: object, run: int = 0, *, always: bool = True
    ) -> list[MemoLookedUp]:
        return [MemoLookedUp(RecordId(record), start, stop, True, RecordId(77), start + 5, 2, 9)]


def recalled(shelf: Shelf) -> list[MemoLookedUp | Recalled]:
    looking = lookups(shelf, range(1, 10))
    looking.waiting.append(LookUpMemo(RecordId(4), 0, 100, MemoKey(b"a"), (Reuse(0, 100, RecordId(77), 5),)))
    told: list[MemoLookedUp | Recalled] = []
    while looking.is_waiting:
        told += looking.answers()
    return told


def test_what_was_seen_of_reused_tasks_comes_with_them_in_pieces() -> None:
    shelf = WatchedShelf()
    tag, trouble = Fired(1.0, "slow", action="tag", name="slow"), Trouble(2.0, "m", "it raised")
    long = [(float(step), 1.0, 0.5) for step in range(700)]
    shelf.seen[77] = [
        SeenTask(5, 1, fired=[tag]),
        SeenTask(5, 2, {"score": long}, {"score": 700}, ["slow"], [tag], [trouble]),
        SeenTask(104, 2, {"score": long[:3]}),
    ]
    told = recalled(shelf)
    assert all(isinstance(one, Recalled) for one in told)
    places = [(one.found.start, one.found.stop, one.found.source_start) for one in told if isinstance(one, Recalled)]
    assert places == [(0, 64, 5), (64, 100, 69)]
    first, last = (one.seen for one in told if isinstance(one, Recalled))
    assert [(fact.span, fact.record, fact.index, fact.attempt) for fact in first] == [(0, 4, 0, 1), (0, 4, 0, 2)]
    assert first[0].observations == [tag]
    assert [type(one) for one in first[1].observations] == [Points, Points, Fired, Trouble]
    points = [point for one in first[1].observations if isinstance(one, Points) for point in one.points]
    assert points == long
    assert [(fact.index, fact.attempt) for fact in last] == [(99, 2)]


def test_tasks_whose_observations_cannot_be_read_run_again() -> None:
    shelf = WatchedShelf()
    shelf.seen[77], shelf.broken = [], True
    told = recalled(shelf)
    assert [(one.start, one.stop, one.found) for one in told if isinstance(one, MemoLookedUp)] == [
        (0, 64, False),
        (64, 100, False),
    ]
