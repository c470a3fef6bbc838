"""XSufferage: as sufferage, between sites, with the transfer of a task's missing input counted.

Source: Casanova et al. 2000, `spec/storage-affinity.md` 3.6. The completion time at a site is that of its best one.
With one site it is sufferage between executors. Its options are those that decide how it compares with others:

- `plan`: anew at each event (`on-event`), or once for each task, when it is first seen (`static`);
- `info`: what is known of times: means of the past, the newest counting most (`forecast`), the same as it was when the
  task was first compared (`snapshot`), true run times, which only a simulator has (`oracle`; live as `forecast`), or
  the forecast times a random factor of spread `sigma` (`noisy`);
- `link`: how transfers that are assigned together share the link: each `alone`, `fair-share`, or `serial`.

Needs estimates, which come from history by template and host, and from measured bandwidths: see
`policy.batch_heuristics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from bough.policy.batch_heuristics import AgeingHeuristic, Info, Link, Table, by_static_plan, by_table
from bough.policy.interface import Place, View


class XSufferage(AgeingHeuristic, frozen=True):
    """See the module."""

    plan: Literal["on-event", "static"] = "on-event"
    info: Info = "forecast"
    link: Link = "alone"
    sigma: Annotated[float, Meta(ge=0, le=10)] = 0.5

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        if self.plan == "static":
            return by_static_plan(view, self.window, self.choose, link=self.link, info=self.info, noise=self.sigma)
        return by_table(
            view,
            self.window,
            self.choose,
            link=self.link,
            info=self.info,
            noise=self.sigma,
            ageing=self.ageing,
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
            suffering = table.credit(task) + (times[1][0] - times[0][0] if len(times) > 1 else 0.0)
            if suffering > most:
                chosen, most = (task, times[0][1]), suffering
        return chosen
