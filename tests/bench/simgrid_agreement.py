"""How far both ways to share links are from SimGrid's model CM02 on the random platforms of the tests.

    python -m tests.bench.simgrid_agreement

It needs python3-simgrid. `rtt` is what the tests hold to their bounds; `max-min` has no such bound, since CM02 shares
by round-trip times. The table is Markdown: for each the median, the 95th percentile and the largest difference.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bough.sim.experiment_report import percentile
from tests.e2e import test_simgrid, test_simgrid_makespans

PLATFORMS = 30
RULES: tuple[Literal["rtt", "max-min"], ...] = ("rtt", "max-min")


def simgrid(driver: Path, asked: dict[str, Any]) -> list[float]:
    """What SimGrid says."""
    said = subprocess.run(
        [test_simgrid.SYSTEM_PYTHON, str(driver)], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(said.stdout)
    return found


def differences(ours: list[float], theirs: list[float]) -> list[float]:
    """Of each time, as a part of SimGrid's."""
    return [abs(one - other) / other for one, other in zip(ours, theirs, strict=True) if other > 0]


def main() -> None:
    """Compare all, print the table."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(PLATFORMS):
        asked = test_simgrid.random_platform(seed)
        starts = [start for start, *_ in asked["transfers"]]
        theirs = simgrid(test_simgrid.DRIVER, asked)
        case = test_simgrid_makespans.Case(seed)
        their_ends = simgrid(test_simgrid_makespans.DRIVER, case.asked())
        for rule in RULES:
            ours = test_simgrid.our_ends(asked, rule)
            lengths = ([end - start for end, start in zip(ends, starts, strict=True)] for ends in (ours, theirs))
            found.setdefault((rule, "transfers"), []).extend(differences(*lengths))
            our_ends = test_simgrid_makespans.our_ends(case, rule)
            found.setdefault((rule, "makespans"), []).extend(differences([max(our_ends)], [max(their_ends)]))
    print("| `fairness` | compared | how many | median | 95 % | largest |\n|---|---|---|---|---|---|")
    for (rule, what), some in sorted(found.items(), reverse=True):
        figures = (median(some), percentile(some, 0.95), max(some))
        print(f"| `{rule}` | {what} | {len(some)} | {' | '.join(f'{100 * one:.2f} %' for one in figures)} |")


if __name__ == "__main__":
    main()
