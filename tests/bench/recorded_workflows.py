"""Recorded workflows of several sciences under every policy: the makespan as a multiple of the lower bound.

    python tests/bench/recorded_workflows.py FOLDER_OF_WFFORMAT_FILES [--links] [--policy A,B] [--seeds 5]

The platform is 4 hosts of 8 cores (more if a task needs more) with speeds from 0.8 to 1.2, or with `--links` also a
link of 1 Gbit/s for each host and of 100 Mbit/s for home; outputs stay where they were made. No schedule is shorter
than the lower bound (the critical path on the fastest host, or all work on all cores), so that 1.000 is optimal; what
is above it may be, too. Recorded workflows are those of WfCommons (WfInstances, WfFormat 1.5). The table is Markdown.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import geometric_mean

from bough.analysis.recorded_workloads import workload_of
from bough.describe.formats import Source, find_reader, read
from bough.describe.task_graph import of_plan
from bough.policies.policy_registry import placement_names
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import Platform, read_platform
from bough.sim.workload import SimulatedTask, Workload

LINKS = '[home]\nbandwidth = "100Mbit/s"\nlatency = 0.01\n[transfers]\noutputs = "keep"\n'
NIC = 'nic = {bandwidth = "1Gbit/s"}\n'


def workload(path: Path, *, files: bool) -> Workload | None:
    """A recorded workflow; None: the file is none."""
    source = Source(str(path), path.read_text(), ())
    reader = find_reader(source)
    if reader is None:
        return None
    made = workload_of(of_plan(read(source, reader), path.stem))
    if files:
        return made
    return Workload(made.name, [_without_files(task) for task in made.tasks])


def _without_files(task: SimulatedTask) -> SimulatedTask:
    return SimulatedTask(task.name, task.seconds, task.after, task.cores, 0, task.priority, task.template)


def platform(cores: float, *, links: bool) -> Platform:
    """Where it runs."""
    site = f"[site.a]\nhosts = 4\ncores = {max(8, cores):g}\nspeed = [0.8, 1.2]\n"
    return read_platform(LINKS + site + NIC if links else site)


def main() -> None:
    """Simulate all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--policy", help="instead of all")
    parser.add_argument("--seeds", type=int, default=5, help="other speeds of hosts; the figures are means")
    parser.add_argument("--links", action="store_true", help="files travel over links")
    parser.add_argument("--most-bytes", type=int, default=1_300_000, help="of a file; longer ones are left out")
    args = parser.parse_args()
    policies = args.policy.split(",") if args.policy else placement_names()
    print(f"| workflow | tasks | lower bound s | {' | '.join(policies)} |")
    print(f"|---|---|---|{'---|' * len(policies)}")
    ratios: dict[str, list[float]] = {name: [] for name in policies}
    for path in sorted(args.folder.glob("*.json")):
        if path.stat().st_size > args.most_bytes:
            continue
        work = workload(path, files=args.links)
        if work is None:
            continue
        begun = time.monotonic()
        where = platform(max(task.cores for task in work.tasks), links=args.links)
        rows = simulate(work, where, policies, seeds=args.seeds).rows()
        for row in rows:
            if row.runs:
                ratios[row.policy].append(row.ratio)
        words = [f"{row.ratio:.3f}" if row.runs else "failed" for row in rows]
        print(f"| {path.stem} | {len(work.tasks)} | {rows[0].lower_bound:.0f} | {' | '.join(words)} |", flush=True)
        print(f"{path.stem}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
        for row in rows:
            if row.complaint:
                print(f"{path.stem}: {row.policy}: {row.complaint}", file=sys.stderr)
    means = [f"{geometric_mean(some):.3f}" if some else "" for some in ratios.values()]
    print(f"| geometric mean | | | {' | '.join(means)} |")


if __name__ == "__main__":
    main()
