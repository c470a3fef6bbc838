"""Storage affinity: of all pairs of a waiting task and a site with an idle executor, the one with most bytes there.

Source: Santos-Neto et al., `spec/storage-affinity.md` 3.1 and 3.2: affinity is the sum of the bytes of a task's input
that a site holds. A task is never held back for a busy site, so data spreads over executions. `affinity=frozen` counts
what a site held when the job began, `live` (the default) what it holds now. `tie` says which site is next among equals:
the last one (as the printed algorithm), a random one, each in turn, or the one with the most idle executors.
A task that is overtaken by one that became ready `patience` seconds later has a turn for that; 0: none has.
The second phase, replication of running tasks, belongs to the family `replication`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

import msgspec

from bough.model.bounds import Duration
from bough.policy.data_scheduling import in_turn, wish_for
from bough.policy.interface import DataMatch, DataNeeds, DataTask, DataView, ExecutorView, Place, ReadyWork, View
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
        yield from self._by_affinity(view, data, _idle(view))
        sites, turn = _idle(view), 0
        while sites:
            name = self._next_site(view, sites, list(sites), turn)
            turn += 1
            executor = sites[name][0]
            task = self._next_task(data, executor) if data.has_room(executor) else None
            if task is not None:
                yield wish_for(task, executor)
            else:
                _drop(sites, name, executor)
        yield from while_room(view)

    def _next_task(self, data: DataView, executor: ExecutorView) -> DataTask | None:
        """A task that has no data at the site of an executor, which no other site with an idle one has either."""
        some = islice(data.waiting(), _LOOK)
        return data.unheld(executor) or next((one for one in some if data.could_go(one, executor)), None)

    def _by_affinity(self, view: View, data: DataView, sites: dict[str, list[ExecutorView]]) -> Iterator[Place]:
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
            name = self._next_site(view, sites, [name for name, (_, found) in best.items() if found.here == most], 0)
            executor, found = best[name]
            yield wish_for(found.task, executor)
            if not data.has_room(executor):
                sites[name].remove(executor)
            stale = [other for other, (_, one) in best.items() if other == name or one.task is found.task]

    def _next_site(self, view: View, sites: dict[str, list[ExecutorView]], names: list[str], turn: int) -> str:
        """The one of some sites with idle executors that is next."""
        if self.tie == "last":
            return names[-1]
        if self.tie == "random":
            return view.random.choice(names)
        if self.tie == "round-robin":
            return names[turn % len(names)]
        return max(names, key=lambda name: len(sites[name]))


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
