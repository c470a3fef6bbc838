"""Storage Affinity's second phase: a replica goes only to a site that holds some of the task's input.

Of the tasks that have an affinity with a site where an executor idles, the least replicated ones are looked at, and of
these that with the greatest affinity goes first. So replicas bring few bytes over the network. Source: Santos Neto
2004, 3.3 of the specification; of equal affinities the first one that is seen wins, as printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from bough.model.ids import Seconds
from bough.policy.interface import ExecutorView, Replicate, ReplicationView, RunningWork

_MOST_COMPARED = 100  # running tasks with some affinity that are compared for one wish
_MOST_LOOKED_AT = 1000  # running tasks of which it is found out whether they have any
_MOST_SITES = 20


class AffinityReplication:
    """See the module."""

    def __init__(self, cap: int = 1, age: Seconds = 0.0) -> None:
        self.cap = cap
        self.age = age

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate]:
        """One wish after the other, each chosen anew: the world changes with each."""
        last: tuple[int, int, int] | None = None
        strangers: set[tuple[int, int]] = set()  # tasks that have no affinity with any site where an executor idles
        while (best := _best(view, strangers)) is not None:
            affinity, work, executor = best
            wish = (work.id, work.index, executor.id)
            if wish == last:
                return  # it was not carried out
            last = wish
            yield Replicate(*wish, f"{affinity} bytes of its input are at {executor.site}")


def _best(view: ReplicationView, strangers: set[tuple[int, int]]) -> tuple[int, RunningWork, ExecutorView] | None:
    """The pair of greatest affinity among the least replicated tasks that have any."""
    sites = _by_site(view)
    best: tuple[int, RunningWork, ExecutorView] | None = None
    compared = 0
    for work in islice(view.running(), _MOST_LOOKED_AT):
        if compared >= _MOST_COMPARED or (best is not None and work.replicas > best[1].replicas):
            break
        if (work.id, work.index) in strangers:
            continue
        affinities = [view.affinity(work, executors[0]) for executors in sites]
        if not any(affinities):
            strangers.add((work.id, work.index))
            continue
        compared += 1
        for affinity, executors in zip(affinities, sites, strict=True):
            if affinity <= (best[0] if best is not None else 0):
                continue
            found = next((executor for executor in executors if view.may_run(work, executor)), None)
            if found is not None:
                best = affinity, work, found
    return best


def _by_site(view: ReplicationView) -> list[list[ExecutorView]]:
    """Affinity is with a site: its idle executors, of which the first one that may runs a task."""
    found: dict[str, list[ExecutorView]] = {}
    for executor in view.executors():
        if executor.site in found or len(found) < _MOST_SITES:
            found.setdefault(executor.site, []).append(executor)
    return list(found.values())
