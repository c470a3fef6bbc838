"""Looking for successes of earlier runs: loose tasks together, arrays alone, nothing where nothing can be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bough.errors import StoreFailed
from bough.model.events.facts import MemoLookedUp
from bough.model.events.orders import LookUpMemo
from bough.model.ids import MemoKey, RecordId
from bough.model.tasks import Reuse
from bough.server.turns.memo_lookups import MemoLookups


class Shelf:
    """A store that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.projected = 0
        self.broken = False

    def project(self, at_most: int = 0) -> bool:
        self.projected += 1
        return True

    def look_up(
        self, record: int, start: int, stop: int, key: bytes, reuse: object, run: int = 0
    ) -> list[MemoLookedUp]:
        self.asked.append((record,))
        return [MemoLookedUp(RecordId(record), start, stop, found=True)]

    def look_up_tasks(self, wanted: list[tuple[int, bytes]], run: int = 0) -> list[MemoLookedUp]:
        if self.broken:
            raise StoreFailed("it is gone")
        self.asked.append(tuple(record for record, _ in wanted))
        return [MemoLookedUp(RecordId(record), 0, 1, found=True) for record, _ in wanted]


def lookups(shelf: Shelf, records: range, *, memos: bool = True, runs: dict[int, int] | None = None) -> MemoLookups:
    queries = SimpleNamespace(has_record=records.__contains__, run_of=lambda record: (runs or {})[record])
    info = SimpleNamespace(memos=memos, embedded=runs is None)
    return MemoLookups(cast(Any, shelf), cast(Any, queries), cast(Any, info))


def loose(record: int) -> LookUpMemo:
    return LookUpMemo(RecordId(record), 0, 1, MemoKey(b"k" * 16))


def answered(looking: MemoLookups) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    while looking.waiting:  # as many turns as it takes: each has its slice of time
        found += [(fact.record, fact.found) for fact in looking.answers()]
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
