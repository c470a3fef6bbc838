"""Storage affinity: of all pairs of a waiting task and a site with an idle executor, the one with most bytes there.

Source: Santos-Neto et al., `spec/storage-affinity.md` 3.1 and 3.2: affinity is the sum of the bytes of a task's input
that a site holds. A task is never held back for a busy site, so data spreads over executions. `affinity=frozen` counts
what a site held when the job began, `live` (the default) what it holds now. `tie` says which site is next among equals:
the last one (as the printed algorithm), a random one, each in turn by name (`round-robin`), or the one with the most
free cores (`least-loaded`). Whose turn it is, is kept with the workflow whose task has waited the longest.
A task that is overtaken by one that became ready `patience` seconds later has a turn for that; 0: none has.
The second phase, replication of running tasks, is the replication policy of the same name, which this policy brings
along without a cap, as in the study (2.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

import msgspec

from bough.model.bounds import Duration
from bough.policy.data_scheduling import in_turn, wish_for
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
        return DataNeeds(place="site", frozen=self.affinity == "frozen", patience=self.patience)

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where most bytes are, of all that is idle."""
        data = view.data
        return in_order(view) if data is None else self._place(view, data)

    def _place(self, view: View, data: DataView) -> Iterator[Place]:
        yield from in_turn(view, data, data.best_here, waits=False)
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
            else:
                _drop(sites, name, executor)
        yield from while_room(view)

    def _next_task(self, data: DataView, executor: ExecutorView) -> DataTask | None:
        """A task that has no data at the site of an executor, which no other site with an idle one has either."""
        some = islice(data.waiting(), _LOOK)
        return data.unheld(executor) or next((one for one in some if data.could_go(one, executor)), None)

    def _by_affinity(self, data: DataView, sites: dict[str, list[ExecutorView]], ties: _Ties) -> Iterator[Place]:
        """While a task has data at a site with an idle executor: the pair with the most."""
        best: dict[str, tuple[ExecutorView, DataMatch]] = {}
        stale = list(sites)
        while True:
            for name in stale:
                best.pop(name, None)
                for executor in sites[name][:_IDLE]:
                    found = data.best_here(executor)
                    if found is not None:
                        best[name] = executor, found
                        break
            if not best:
                return
            most = max([found.here for _, found in best.values()])
            name = ties.next_site([name for name, (_, found) in best.items() if found.here == most])
            executor, found = best[name]
            yield from ties.serve(found.task, executor)
            if not data.has_room(executor):
                sites[name].remove(executor)
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


def _drop(sites: dict[str, list[ExecutorView]], name: str, executor: ExecutorView) -> None:
    sites[name].remove(executor)
    if not sites[name]:
        del sites[name]
