"""Storage affinity: of all pairs of a waiting task and a site with an idle executor, the one with most bytes there.

Source: Santos-Neto et al., `spec/storage-affinity.md` 3.1 and 3.2: affinity is the sum of the bytes of a task's input
that a site holds. A task is never held back for a busy site, so data spreads over executions. `affinity=frozen` counts
what a site held when the job began, `live` (the default) what it holds now. `tie` says which site is next among equals:
the last one (as the printed algorithm), a random one, each in turn by name (`round-robin`), or the one with the most
free cores (`least-loaded`). Whose turn it is, is kept with the workflow whose task has waited the longest. Where
several workflows or priorities compete, the same holds among the tasks of the one whose turn it is.
A task that is overtaken by one that became ready `patience` seconds later has a turn for that; 0: none has.
The second phase, replication of running tasks, is the replication policy of the same name, which this policy brings
along without a cap, as in the study (2.5).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Literal

import msgspec

from bough.model.bounds import Duration
from bough.policy.data_scheduling import Accept, PlaceOne, Placing, in_turn, wish_for
from bough.policy.interface import (
    MOST_REPLICAS,
    DataMatch,
    DataNeeds,
    DataTask,
    DataView,
    ExecutorView,
    Place,
    ReadyWork,
    View,
)
from bough.policy.list_scheduling import in_order, while_room

_IDLE = 4  # executors of a site that are tried
_LOOK = 64  # tasks without data at hand that are tried

Tie = Literal["last", "random", "round-robin", "least-loaded"]
_Pair = tuple[ExecutorView, DataMatch]  # an idle executor, and a task with what its site has of it


class StorageAffinity(msgspec.Struct, frozen=True):
    """See the module."""

    affinity: Literal["live", "frozen"] = "live"
    tie: Tie = "last"
    patience: Duration = 600.0

    @property
    def own_replication(self) -> str:
        """The second phase."""
        return f"storage-affinity:cap={MOST_REPLICAS}"

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds(place="site", frozen=self.affinity == "frozen", patience=self.patience, arrivals=False)

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where most bytes are, of all that is idle."""
        data = view.data
        return in_order(view) if data is None else self._place(view, data)

    def _place(self, view: View, data: DataView) -> Iterator[Place]:
        yield from in_turn(view, data, data.best_here, waits=False, place_one=self._placing_one(view, data))
        sites = _idle(view)
        ties = _Ties(self.tie, view, data, sites)
        yield from self._by_affinity(data, sites, ties)
        sites = _idle(view)
        while sites:
            name = ties.next_site(list(sites))
            executor = sites[name][0]
            task = self._next_task(data, executor) if data.has_room(executor) else None
            if task is not None:
                yield from ties.serve(task, executor)
            elif view.data is None:
                break  # nothing waits any more
            else:
                _drop(sites, name, executor)
        yield from while_room(view)

    def _next_task(self, data: DataView, executor: ExecutorView) -> DataTask | None:
        """A task that has no data at the site of an executor, which no other site with an idle one has either."""
        some = islice(data.waiting(), _LOOK)
        return data.unheld(executor) or next((one for one in some if data.could_go(one, executor)), None)

    def _placing_one(self, view: View, data: DataView) -> PlaceOne:
        """What places one task of a workflow and priority: the pair with the most, or else its first, as ties say."""
        sites: dict[str, list[ExecutorView]] = {}

        def place_one(work: ReadyWork, is_alike: Accept) -> Placing:
            if not sites:
                sites.update(_idle(view))
            for executors in sites.values():  # what has no inputs may have taken some meanwhile
                while executors and not data.has_room(executors[0]):
                    del executors[0]
            best = {name: pair for name in sites if (pair := _best_at(data, sites[name], is_alike)) is not None}
            if not best and (first := data.first_of(work)) is not None:
                best = {name: pair for name in sites if (pair := _taker_at(data, sites[name], first)) is not None}
            if not best:
                return False
            yield from _serve_best(data, sites, best, _Ties(self.tie, view, data, sites))
            return True

        return place_one

    def _by_affinity(self, data: DataView, sites: dict[str, list[ExecutorView]], ties: _Ties) -> Iterator[Place]:
        """While a task has data at a site with an idle executor: the pair with the most."""
        best: dict[str, _Pair] = {}
        stale = list(sites)
        while True:
            for name in stale:
                pair = _best_at(data, sites[name])
                if pair is not None:
                    best[name] = pair
                else:
                    best.pop(name, None)
            if not best:
                return
            name = yield from _serve_best(data, sites, best, ties)
            found = best[name][1]
            stale = [other for other, (_, one) in best.items() if other == name or one.task is found.task]


class _Ties:
    """Which of some sites with idle executors is next; made each time that the policy is asked."""

    def __init__(self, tie: Tie, view: View, data: DataView, sites: dict[str, list[ExecutorView]]) -> None:
        self._tie = tie
        self._random = view.random
        first = next(data.waiting(), None) if tie == "round-robin" else None
        self._notes = data.notes(first) if first is not None else None
        self._free: dict[str, float] = {}  # cores, by site
        if tie == "least-loaded":
            self._free = {name: sum(one.free("cores") for one in idle) for name, idle in sites.items()}

    def next_of(self, best: dict[str, _Pair]) -> str:
        """Of the best pairs of some sites, the site of the one with the most there."""
        most = max([found.here for _, found in best.values()])
        return self.next_site([name for name, (_, found) in best.items() if found.here == most])

    def next_site(self, names: list[str]) -> str:
        """The one of some sites that is next."""
        if self._tie == "random":
            return self._random.choice(names)
        if self._tie == "least-loaded":
            return max(names, key=self._free.__getitem__)
        if self._notes is not None:
            served = self._notes.served
            return min(names, key=lambda name: (name <= served, name))
        return names[-1]

    def serve(self, task: DataTask, executor: ExecutorView) -> Iterator[Place]:
        """Wish for a task to go to an executor of the site that was next."""
        if self._notes is not None:
            self._notes.served = executor.site
        before = executor.free("cores") if self._free else 0.0
        yield wish_for(task, executor)
        if self._free:
            self._free[executor.site] += executor.free("cores") - before


def _idle(view: View) -> dict[str, list[ExecutorView]]:
    """The executors with room, by site."""
    sites: dict[str, list[ExecutorView]] = {}
    for executor in view.executors():
        sites.setdefault(executor.site, []).append(executor)
    return sites


def _best_at(data: DataView, executors: list[ExecutorView], accept: Accept | None = None) -> _Pair | None:
    """The task with the most data at a site, among those that are accepted, and an idle executor that takes it."""
    for executor in executors[:_IDLE]:
        found = data.best_here(executor, accept)
        if found is not None:
            return executor, found
    return None


def _taker_at(data: DataView, executors: list[ExecutorView], task: DataTask) -> _Pair | None:
    """The first idle executor of a site that takes a task."""
    taker = next((one for one in executors[:_LOOK] if data.has_room(one) and data.could_go(task, one)), None)
    return (taker, data.match(task, taker)) if taker is not None else None


def _serve_best(
    data: DataView, sites: dict[str, list[ExecutorView]], best: dict[str, _Pair], ties: _Ties
) -> Generator[Place, None, str]:
    """Wish for the pair with the most of the best ones of some sites; its site."""
    name = ties.next_of(best)
    executor, found = best[name]
    yield from ties.serve(found.task, executor)
    if not data.has_room(executor):
        sites[name].remove(executor)
    return name


def _drop(sites: dict[str, list[ExecutorView]], name: str, executor: ExecutorView) -> None:
    sites[name].remove(executor)
    if not sites[name]:
        del sites[name]
