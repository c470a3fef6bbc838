"""2Mark: caches that cooperate, and what they cost beside the best that knows the future (Raicu 2009, 6.3.2).

Some stores hold equally many objects of one size; requests name an object and a store. To load an object from another
store costs 1, from persistent storage s. A store that is full exchanges objects with another one, so that an object is
never in two stores. Marks say what was asked for in the current phase: at a store since M different objects were asked
for there (local), in the whole system since N M were (global).
The printed bound on the ratio does not follow from the two inequalities of its proof; these do, for each global phase:
2Mark pays at most s N M + 2 v M + N M, where the best pays at least s + v and v of that for exchanges.
Rule: an object is in one store at most, and no store has more than its room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec


class Request(NamedTuple):
    """Somebody at a store wants an object."""

    item: int
    store: int


class PhaseCost(msgspec.Struct):
    """What 2Mark did in one global phase."""

    loads: int = 0  # from persistent storage, s each
    moves: int = 0  # between stores, 1 each
    items: set[int] = msgspec.field(default_factory=set)  # the objects that were asked for
    requests: list[Request] = msgspec.field(default_factory=list)

    def cost(self, storage: float) -> float:
        """In units of a move."""
        return self.loads * storage + self.moves


class TwoMark:
    """See the module. `phases` are the global ones, the current one last."""

    def __init__(self, stores: int, room: int) -> None:
        self.stores = stores
        self.room = room
        self.held: list[dict[int, None]] = [{} for _ in range(stores)]  # objects of each store, in order of arrival
        self.phases = [PhaseCost()]
        self._where: dict[int, int] = {}
        self._local: list[set[int]] = [set() for _ in range(stores)]
        self._global: set[int] = set()

    def request(self, item: int, store: int) -> None:
        """Bring an object to a store, and mark it."""
        if self._where.get(item) != store:
            if len(self.held[store]) < self.room:
                self._fill(item, store)
            else:
                self._replace(item, store)
        self._global.add(item)
        self._local[store].add(item)
        phase = self.phases[-1]
        phase.items.add(item)
        phase.requests.append(Request(item, store))

    def run(self, requests: Iterable[Request]) -> Sequence[PhaseCost]:
        """Serve all requests; the global phases."""
        for item, store in requests:
            self.request(item, store)
        return self.phases

    def _fill(self, item: int, store: int) -> None:
        """There is room."""
        source = self._where.get(item)
        if source is None:
            self._load(item, store)
        else:
            self._take_away(item, source)
            self._put(item, store)
            self.phases[-1].moves += 1

    def _replace(self, item: int, store: int) -> None:
        """There is no room."""
        if self._local[store] >= self.held[store].keys():
            self._local[store].clear()
        source = self._where.get(item)
        if source is not None:
            given = next(one for one in self.held[store] if one not in self._local[store])
            was_marked = item in self._local[source]
            self._take_away(item, source)
            self._take_away(given, store)
            self._put(item, store)
            self._put(given, source)
            if was_marked:
                self._local[source].add(given)
            self.phases[-1].moves += 1
            return
        if self._global >= self._where.keys() and len(self._where) == self.stores * self.room:
            self._begin_phase()
        unmarked = [one for one in self.held[store] if one not in self._global]
        if unmarked:
            self._take_away(unmarked[0], store)
        else:
            self._make_room(store)
        self._load(item, store)

    def _make_room(self, store: int) -> None:
        """All that a store has is marked globally: one that is not marked there goes to another store."""
        given = next((one for one in self.held[store] if one not in self._local[store]), next(iter(self.held[store])))
        for other, held in enumerate(self.held):
            spare = next((one for one in held if one not in self._global), None)
            if other != store and (len(held) < self.room or spare is not None):
                if len(held) >= self.room and spare is not None:
                    self._take_away(spare, other)
                self._take_away(given, store)
                self._put(given, other)
                self.phases[-1].moves += 1
                return
        raise AssertionError("all objects are marked, and no new phase was begun")

    def _begin_phase(self) -> None:
        self.phases.append(PhaseCost())
        self._global.clear()
        for marks in self._local:
            marks.clear()

    def _load(self, item: int, store: int) -> None:
        self._put(item, store)
        self.phases[-1].loads += 1

    def _put(self, item: int, store: int) -> None:
        self.held[store][item] = None
        self._where[item] = store

    def _take_away(self, item: int, store: int) -> None:
        del self.held[store][item]
        del self._where[item]
        self._local[store].discard(item)
