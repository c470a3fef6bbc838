"""XSufferage: as sufferage, between sites, with the transfer of a task's missing input counted.

Source: Casanova et al. 2000, `spec/storage-affinity.md` 3.6. The completion time at a site is that of its best one.
With one site it is sufferage between executors. `link` says how transfers that are assigned in one turn share the link:
each alone, all fairly, or one after the other. `info=noisy` multiplies run times by a random factor of spread `sigma`,
`snapshot` takes what was measured. The plan is made anew at each event (`plan=on-event`).
Needs estimates, which come from history by template and host, and from measured bandwidths: see
`policy.batch_heuristics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from bough.policy.batch_heuristics import Link, Table, TableHeuristic, by_table
from bough.policy.interface import Place, View


class XSufferage(TableHeuristic, frozen=True):
    """See the module."""

    plan: Literal["on-event"] = "on-event"
    info: Literal["snapshot", "noisy"] = "snapshot"
    link: Link = "alone"
    sigma: Annotated[float, Meta(ge=0, le=10)] = 0.5

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        return by_table(
            view, self.window, self.choose, link=self.link, noise=self.sigma if self.info == "noisy" else 0.0
        )

    def choose(self, table: Table) -> tuple[int, int]:
        """The task with the greatest difference between its two best sites; of equal ones the first."""
        several = len({executor.site for executor in table.executors}) > 1
        chosen, most = (0, table.best(0)), -1.0
        for task in range(len(table.tasks)):
            best: dict[str | int, tuple[float, int]] = {}
            for number, executor in enumerate(table.executors):
                place = executor.site if several else number
                entry = table.completion(task, number), number
                best[place] = min(best.get(place, entry), entry)
            times = sorted(best.values())
            suffering = times[1][0] - times[0][0] if len(times) > 1 else 0.0
            if suffering > most:
                chosen, most = (task, times[0][1]), suffering
        return chosen
