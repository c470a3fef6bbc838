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

_MOST_COMPARED = 200  # running tasks whose affinities are compared for one wish
_MOST_SITES = 50


class AffinityReplication:
    """See the module."""

    def __init__(self, cap: int = 1, age: Seconds = 0.0) -> None:
        self.cap = cap
        self.age = age

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate]:
        """One wish after the other, each chosen anew: the world changes with each."""
        last: tuple[int, int, int] | None = None
        while (best := _best(view)) is not None:
            affinity, work, executor = best
            wish = (work.id, work.index, executor.id)
            if wish == last:
                return  # it was not carried out
            last = wish
            yield Replicate(*wish, f"{affinity} bytes of its input are at {executor.site}")


def _best(view: ReplicationView) -> tuple[int, RunningWork, ExecutorView] | None:
    """The pair of greatest affinity among the least replicated tasks that have any."""
    places = _first_of_each_site(view)
    best: tuple[int, RunningWork, ExecutorView] | None = None
    for work in islice(view.running(), _MOST_COMPARED):
        if best is not None and work.replicas > best[1].replicas:
            break
        for executor in places:
            affinity = view.affinity(work, executor)
            if affinity > (best[0] if best is not None else 0) and view.may_run(work, executor):
                best = affinity, work, executor
    return best


def _first_of_each_site(view: ReplicationView) -> list[ExecutorView]:
    """Affinity is with a site; which of its executors runs it makes no difference."""
    found: dict[str, ExecutorView] = {}
    for executor in view.executors():
        found.setdefault(executor.site, executor)
        if len(found) >= _MOST_SITES:
            break
    return list(found.values())
