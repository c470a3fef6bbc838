"""The abstract model of data diffusion against live runs: hosts behind shaped links, tasks that read one file each.

    python tests/bench/diffusion_model_live.py calibrate --results calibration.jsonl
    python tests/bench/diffusion_model_live.py measure --results measured.jsonl
    python tests/bench/diffusion_model_live.py table --calibration calibration.jsonl --results measured.jsonl
    python tests/bench/diffusion_model_live.py constants --calibration calibration.jsonl --results measured.jsonl

Runs vary locality (tasks that read a file), hosts, cache and link. A task reads its file and sleeps. The policy is
first-cache-available: it looks at no data, so that some files come from other hosts, and no host fetches ahead.
Calibration has other hosts, localities, rates and sizes than what is measured. The model's costs come from it alone; a
measured run gives its hit ratios and the seconds between its first placement and its last end.
`constants` prints the tables that `bough.sim.studies.diffusion_model_study` holds. It needs root, see `laboratory`.
Rule: a run that is in the file of results is not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

from laboratory import Laboratory, SitePlan, laboratory

import bough
from bough.sim.studies.diffusion_model_study import CalibrationRun, LiveRun, Plan, calibrate, compare, summary

SMALL = 3.5  # files that a small cache has room for


class Link(NamedTuple):
    """What bounds reading, in Mbit/s: each host's own link, and the one that home has to all of them; 0: unbounded."""

    host: float
    home: float


LINKS = {Link(20, 0): 750_000, Link(40, 0): 1_500_000, Link(30, 50): 750_000}  # with the bytes of a file
CALIBRATIONS = (  # 3 hosts; the last reads each file 4 times on the average, the others as it says
    Plan(3, 1, 0, 25, 0, 300_000, 45, 0.25),
    Plan(3, 1, 0, 25, 0, 1_200_000, 36, 0.25),
    Plan(3, 3, 0, 25, 0, 600_000, 45, 0.25),
    Plan(3, 3, 0, 50, 0, 1_200_000, 45, 0.25),
    Plan(3, 4, 0, 25, 0, 1_000, 60, 0.25),
    Plan(3, 1, 0, 50, 0, 1_200_000, 36, 0.25),
)


def plans() -> list[Plan]:
    """What is measured."""
    return [
        Plan(hosts, locality, SMALL if small else 0.0, link.host, link.home, LINKS[link], 20 * hosts, 0.25)
        for link, hosts, small, locality in product(LINKS, (2, 4), (False, True), (1, 2, 5, 10))
    ]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["calibrate", "measure", "table", "constants"])
    parser.add_argument("--results", type=Path, required=True, help="file of JSON lines, appended to")
    parser.add_argument("--calibration", type=Path, help="of table and constants")
    parser.add_argument("--most", type=int, default=1000, help="runs to do now")
    args = parser.parse_args()
    if args.what in ("calibrate", "measure"):
        measure(plans() if args.what == "measure" else [*CALIBRATIONS], args.results.resolve(), args.most)
        return
    calibration = [
        CalibrationRun(LiveRun(Plan(*row["plan"]), *row["run"]), *row["stage_in"]) for row in _rows(args.calibration)
    ]
    runs = [LiveRun(Plan(*row["plan"]), *row["run"]) for row in _rows(args.results)]
    if args.what == "constants":
        print("CALIBRATION: tuple[CalibrationRun, ...] = (")
        for one in calibration:
            print(f"    CalibrationRun({_literal(one.run)}, {', '.join(f'{seconds:g}' for seconds in one[1:])}),")
        print(")", "RUNS: tuple[LiveRun, ...] = (", *(f"    {_literal(one)}," for one in runs), ")", sep="\n")
        return
    constants = calibrate(calibration)
    print(constants)
    print(
        "| hosts | L | cache | link | local | peer | storage | measured s | predicted s | error |",
        "|---" * 10 + "|",
        sep="\n",
    )
    for one in compare(constants, runs):
        plan, run = one.run.plan, one.run
        print(
            f"| {plan.hosts} | {plan.locality} | {plan.cache or 'all'} | {plan.host_link:g}/{plan.home_link:g}"
            f" | {run.local} | {run.peer} | {run.storage} | {run.seconds:.2f} | {one.predicted:.2f}"
            f" | {one.error:+.1%} |"
        )
    print(summary(compare(constants, runs)))


def _rows(path: Path) -> list[dict[str, list[float]]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _literal(run: LiveRun) -> str:
    return f"LiveRun(Plan({', '.join(f'{value:g}' if value < 1e5 else f'{value:_}' for value in run.plan)}), " + (
        ", ".join(f"{value:g}" for value in run[1:]) + ")"
    )


def measure(wanted: list[Plan], results: Path, most: int) -> None:
    """Do the runs that are not there yet; those on the same hosts, cache and link one after the other."""
    done = [Plan(*row["plan"]) for row in _rows(results)]
    missing = [plan for plan in wanted if plan not in done][:most]
    while missing:
        same = [plan for plan in missing if _platform(plan) == _platform(missing[0])]
        missing = [plan for plan in missing if plan not in same]
        first = same[0]
        site = SitePlan("site", first.hosts, lan=first.host_link, wan=first.home_link)
        with tempfile.TemporaryDirectory(prefix="bough-lab-") as folder, laboratory(Path(folder), [site]) as lab:
            lab.serve("--policy", "first-cache-available")
            lab.execute_all(*(["--cache-size", f"{int(first.cache * first.size)}B"] if first.cache else []))
            os.chdir(lab.work)
            os.environ["BOUGH_HOME"] = str(lab.home)
            try:
                for plan in same:
                    row = {"plan": plan, **run_live(lab, plan)}
                    with results.open("a") as out:
                        out.write(json.dumps(row) + "\n")
                    print(row, flush=True)
            finally:
                os.chdir("/")


def _platform(plan: Plan) -> tuple[float, ...]:
    return (plan.hosts, plan.cache, plan.cache and plan.size, plan.host_link, plan.home_link)


def run_live(lab: Laboratory, plan: Plan) -> dict[str, list[float]]:
    """One workload over hosts whose caches do not have its files."""
    name = f"l{plan.locality}s{plan.size}"
    files, dice = plan.tasks // plan.locality, random.Random(plan.locality)
    for number in range(files):
        Path(f"{name}-{number}").write_bytes(os.urandom(plan.size))
    objects = [number % files for number in range(plan.tasks)]
    dice.shuffle(objects)
    with bough.Session(str(lab.folder / "submit.json"), name=name, reuse="never") as session:
        command = f"cat {{x:r}} > /dev/null; sleep {plan.compute}"
        session.sweep(command, bough.tie(x=[f"{name}-{number}" for number in objects])).wait_all()
    run = f"(select max(run) from runs where name = '{name}')"
    mine = f"id in (select id from tasks where run = {run})"
    rows = json.loads(
        lab.bough("sql", f"select stage_in as s, hits, peer_hits, misses from staging where {mine}", "--json")
    )
    ends = json.loads(lab.bough("sql", f"select min(placed) as a, max(ended) as b from spans where {mine}", "--json"))
    for number in range(files):
        os.unlink(f"{name}-{number}")
    kinds = [[float(row["s"]) for row in rows if int(row[kind])] for kind in ("hits", "peer_hits", "misses")]
    assert sum(map(len, kinds)) == plan.tasks, (plan, [len(kind) for kind in kinds])
    return {
        "run": [*map(len, kinds), round(float(ends[0]["b"]) - float(ends[0]["a"]), 3)],
        "stage_in": [round(sum(kind), 4) for kind in kinds],
    }


if __name__ == "__main__":
    main()
