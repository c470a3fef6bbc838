"""The heuristics that compare completion times, by a table that is small enough to be worked out by hand.

`spec/storage-affinity.md` 3.5 to 3.7. Three tasks and three executors, the first two of which are at one site:

              a1    a2    b1    best   host suffers   site suffers
    task 0     3     4    12     3          1              9
    task 1     2     6     7     2          4              5
    task 2     6     5     5.5   5          0.5            0.5
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bough.policies.policy_registry import load_placement
from bough.policy.batch_heuristics import Table

TIMES = [[3.0, 4.0, 12.0], [2.0, 6.0, 7.0], [6.0, 5.0, 5.5]]
LENGTHS = [1.0, 2.0, 9.0]


class Worked(Table):
    """The table above."""

    def __init__(self, sites: str) -> None:
        self.tasks = [SimpleNamespace(work=SimpleNamespace(expected=one, path_below=one)) for one in LENGTHS]
        self.executors = [SimpleNamespace(site=site) for site in sites]
        self.free_in = [4.0, 3.0, 1.0]

    def completion(self, task: int, executor: int) -> float:
        return TIMES[task][executor]

    def credit(self, task: int) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("policy", "sites", "choice"),
    [
        ("mct", "aab", (0, 0)),
        ("olb", "aab", (0, 2)),
        ("min-min", "aab", (1, 0)),
        ("max-min", "aab", (2, 1)),
        ("fpltf", "aab", (2, 1)),
        ("heft", "aab", (2, 1)),
        ("sufferage", "aab", (1, 0)),
        ("xsufferage", "aab", (0, 0)),
        ("xsufferage", "aaa", (1, 0)),  # with one site it is sufferage
    ],
)
def test_the_choice_is_that_of_the_table(policy: str, sites: str, choice: tuple[int, int]) -> None:
    assert load_placement(policy).choose(Worked(sites)) == choice


class World:
    """Two tasks that run for 2 s: 100 bytes of the first travel for 10 s, 40 of the second for 4 s."""

    def __init__(self) -> None:
        self.first, self.second = (
            SimpleNamespace(work=SimpleNamespace(id=number, expected=2.0), element=0) for number in (1, 2)
        )
        self.travel = {1: (100, 10.0), 2: (40, 4.0)}
        self.random = SimpleNamespace(lognormvariate=lambda mean, spread: 3.0 if (mean, spread) == (0.0, 0.7) else 0.0)
        self.kept = SimpleNamespace(measured={})

    def candidates(self, most: int) -> list[object]:
        return [self.first, self.second]

    def free_in(self, most: int) -> list[tuple[float, object]]:
        return [(5.0, SimpleNamespace(id=7)), (0.0, SimpleNamespace(id=8))]

    def missing(self, task: SimpleNamespace, executor: object) -> tuple[int, float]:
        return self.travel[task.work.id]

    def expected_on(self, task: object, executor: object) -> float:
        return 2.0

    def return_time(self, task: object, executor: object) -> float:
        return 0.5

    def notes(self, task: object) -> SimpleNamespace:
        return self.kept

    def table(self, **options: object) -> Table:
        return Table(self, self, 24, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("link", "second"), [("alone", 4.0), ("fair-share", 2 * 4.0), ("serial", 10.0 + 4.0)])
def test_transfers_that_are_planned_together_share_the_link_as_the_option_says(link: str, second: float) -> None:
    table = World().table(link=link)
    assert table.completion(0, 0) == 5.0 + 10.0 + 2.0 + 0.5  # free, staged, run, its output at home
    table.assign(0, 0)
    assert table.free_in == [17.5, 0.0]
    assert table.completion(0, 1) == second + 2.0 + 0.5


def test_noise_multiplies_the_run_time() -> None:
    assert World().table(info="noisy", noise=0.7).completion(0, 1) == 10.0 + 3.0 * 2.0 + 0.5


def test_a_snapshot_keeps_the_pace_of_a_link_and_knows_what_is_missing_now() -> None:
    world = World()
    assert world.table(info="snapshot").completion(0, 1) == 10.0 + 2.0 + 0.5
    world.travel[1] = (50, 50.0)  # half of it is there now, and the link is ten times slower
    assert world.table(info="snapshot").completion(0, 1) == 5.0 + 2.0 + 0.5
    assert world.table(info="forecast").completion(0, 1) == 50.0 + 2.0 + 0.5
