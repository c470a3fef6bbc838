"""A thousand pilots against one real Slurm: how fast they are submitted, and that none is lost or doubled.

    python tests/bench/many_pilots.py --pilots 1000

Three runs, each at a Slurm of its own whose node is drained, so that jobs only wait: `sbatch` in a loop; Bough; and
Bough at a Slurm that takes little more than half of the jobs until its slurmctld is started anew, with an `sbatch` in
front of which every twentieth call answers slowly, errs, is silent or times out after it has accepted. What squeue has
is held against the pilots of the server. It needs root and Slurm, as `tests/e2e/test_many_pilots.py` does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from faulty_sbatch import calls, install_faulty_sbatch, tally
from slurm_clusters import SlurmCluster, need_slurm
from workshop import Workshop

import bough

DEADLINE = 1200.0  # seconds


class Row(NamedTuple):
    """One run."""

    name: str
    pilots: int
    seconds: float
    calls: int | str  # of sbatch
    most: int  # jobs at a time
    doubled: int
    lost: int


def bare(pilots: int) -> Row:
    """`sbatch` in a loop."""
    cluster = _drained("bare", pilots + 1000)
    try:
        script = cluster.folder / "job"
        script.write_text("#!/bin/bash\n#SBATCH --job-name=bough-0-0\nexec python3 -c pass\n")
        begun = time.monotonic()
        for _ in range(pilots):
            subprocess.run(["sbatch", script], env=cluster.environment, stdout=subprocess.DEVNULL, check=True)
        took = time.monotonic() - begun
        return Row("sbatch in a loop", pilots, took, pilots, len(cluster.jobs()), 0, pilots - len(cluster.jobs()))
    finally:
        cluster.stop()


def with_bough(name: str, pilots: int, every: int, limit: int) -> Row:
    """Tasks that want so many pilots; faults every so many calls, and a limit until that is reached, 0: none."""
    cluster = _drained("many", limit or pilots + 1000)
    folder = Path(tempfile.mkdtemp(prefix="bough-many-"))
    shop = Workshop(folder)
    if every:
        install_faulty_sbatch(cluster.bin, every)
    own = {"SLURM_CONF": str(cluster.conf), "XDG_CACHE_HOME": str(folder / "cache"), "BOUGH_HOME": str(shop.home)}
    own["PATH"] = f"{cluster.bin}:{os.environ['PATH']}"
    before = {key: os.environ.get(key) for key in own}
    shop.environment.update(own)
    os.environ.update(own)
    try:
        shop.start()
        words = ["site", "add", "slurm", "--batch", "slurm", "--cores-per-pilot", "1", "--max-pilots", str(pilots)]
        _bough(shop, *words, "--walltime", "1h", "--submit-rate", "1000", "--patience", "5s")
        with bough.Session(shop.address, name="many") as session:
            begun, most, restarted = time.monotonic(), 0, 0.0
            tasks = [session.command("true") for _ in range(pilots)]
            while True:
                jobs, site = len(cluster.jobs()), _site(shop)
                most = max(most, jobs)
                if limit and not restarted and "takes no more jobs" in str(site["problem"]):
                    print(f"Slurm was full: at most {most} jobs", file=sys.stderr)
                    cluster.restart_controller(MaxJobCount=pilots + 1000)
                    restarted = time.monotonic() - begun
                taken = [pilot for pilot in site["pilots"] if pilot["handle"]]
                if len(taken) == pilots:
                    break
                if time.monotonic() > begun + DEADLINE:
                    print(f"only {len(taken)} within {DEADLINE:g} s", file=sys.stderr)
                    break
                time.sleep(0.5)
            took = time.monotonic() - begun
            found = tally(cluster.says("squeue", "-h", "-o", "%i %j"), _site(shop)["pilots"])
            lost = len(found.lost) + len(found.strange) + (pilots - len(taken))
            for task in tasks:
                task.cancel()
        if restarted:
            print(f"it was given more room {restarted:.0f} s after the begin", file=sys.stderr)
        called = calls(cluster.bin) if every else "not counted"
        return Row(name, pilots, took, called, max(most, found.jobs), len(found.doubled), lost)
    finally:
        shop.clean_up()
        cluster.stop()
        for key, value in before.items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})


def _drained(name: str, limit: int) -> SlurmCluster:
    cluster = SlurmCluster(name, 1, 2, f"MaxJobCount={limit}")
    cluster.says("scontrol", "update", f"NodeName={name[0]}1", "State=DRAIN", "Reason=bench")
    return cluster


def _bough(shop: Workshop, *words: str) -> str:
    words = (sys.executable, "-m", "bough.cli.main", *words)
    done = subprocess.run(words, env=shop.environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def _site(shop: Workshop) -> dict[str, object]:
    return shop.ask("sites")[0]


def main() -> None:
    """Run all three, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pilots", type=int, default=1000)
    args = parser.parse_args()
    need_slurm()
    runs = [
        lambda: bare(args.pilots),
        lambda: with_bough("Bough", args.pilots, 0, 0),
        lambda: with_bough("Bough, faults and a limit", args.pilots, 20, args.pilots * 6 // 10),
    ]
    print("| run | pilots | seconds | submissions/s | calls of sbatch | most jobs at a time | doubled | lost |")
    print("|---|---|---|---|---|---|---|---|")
    for run in runs:
        row = run()
        rate = row.pilots / row.seconds
        print(
            f"| {row.name} | {row.pilots} | {row.seconds:.1f} | {rate:.1f} | {row.calls} | {row.most} | {row.doubled}"
            f" | {row.lost} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
