"""The 18 stages of Falkon (Raicu 2009, 5.3.2) live: a server, a Slurm of 32 declared processors, sleeping tasks.

    python tests/bench/provisioning_live.py --scale 5 15 60 120 180 held adaptive adaptive-graph

Times are divided by the scale, the latency of 40 s included: pilots sleep before their executor starts for what their
start lacks of it. It needs root and Slurm, as `tests/e2e/test_batch_sites.py` does, and a machine that is left alone:
executors that start together share its cores. What was wasted is what executors were there for, less what tasks used,
at the moment at which the last task has ended; both are printed in the thesis' seconds. Where others work, too, it is
to be started by `chrt -r 1`: Slurm's daemons and all that they start inherit that. (A priority by `nice` counts only
within a session where the kernel groups processes by that, and each executor has one of its own.)

    python tests/bench/provisioning_live.py requests

asks the same Slurm for 48 resources (5.3.1) by each strategy, and compares the sizes of its requests with the formulas.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from slurm_clusters import SlurmCluster, need_slurm
from workshop import Workshop

import bough
from bough.sim.studies.falkon import LATENCY, MACHINES
from bough.sim.study_workloads import RESOURCES, STAGES

CONFIGURATIONS = {  # provisioning, idle time in the thesis' seconds (0: never), all stages submitted at once
    "15": ("all-at-once", 15.0, False),
    "60": ("all-at-once", 60.0, False),
    "120": ("all-at-once", 120.0, False),
    "180": ("all-at-once", 180.0, False),
    "held": ("static", 0.0, False),
    "adaptive": ("adaptive", 0.0, False),
    "adaptive-graph": ("adaptive", 0.0, True),
}


@contextlib.contextmanager
def open_shop(cpus: int, *words: str) -> Iterator[tuple[Workshop, SlurmCluster]]:
    """A cluster of its own, and a server that knows its commands."""
    folder = Path(tempfile.mkdtemp(prefix="bough-provisioning-"))
    shop, cluster = Workshop(folder), SlurmCluster("falkon", 1, cpus)
    own = {"SLURM_CONF": str(cluster.conf), "XDG_CACHE_HOME": str(folder / "cache")}
    own["PATH"] = f"{cluster.bin}:{os.environ['PATH']}"
    shop.environment.update(own)
    os.environ.update({**own, "BOUGH_HOME": str(shop.home)})
    try:
        shop.start(*words)
        yield shop, cluster
    finally:
        shop.clean_up()
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def count_requests(policy: str) -> list[int]:
    """The sizes of the requests for 48 resources: none of them is there before the last one was asked for."""
    with open_shop(RESOURCES, "--provisioning", policy) as (shop, cluster):
        cluster.says("scontrol", "update", "NodeName=f1", "State=DRAIN", "Reason=busy")
        words = [
            "site",
            "add",
            "slurm",
            "--batch",
            "slurm",
            "--cores-per-pilot",
            "1",
            "--max-pilots",
            str(2 * RESOURCES),
        ]
        _bough(shop, *words, "--poll", "1s", "--walltime", "1h", "--submit-rate", "50")
        with bough.Session(shop.address, name="requests", on_failure="ignore") as session:
            array = session.sweep("true {number}", bough.product(number=range(RESOURCES)))  # all of them at once
            while len(cluster.jobs()) < RESOURCES:
                time.sleep(0.2)
            [site] = shop.ask("sites")
            sizes = Counter(pilot["allocation"] for pilot in site["pilots"])
            assert sum(sizes.values()) == len(cluster.jobs()) == RESOURCES
            array.cancel()
        return [sizes[first] for first in sorted(sizes)]


def show_requests() -> None:
    """Compare them with the formulas of the thesis (3.2.1, 5.2.1)."""
    n = RESOURCES
    formulas = {
        "all-at-once": 1,
        "one-at-a-time": n,
        "additive": math.ceil((math.sqrt(8 * n + 1) - 1) / 2),
        "exponential": math.ceil(math.log2(n + 1)),
    }
    for policy, formula in formulas.items():
        sizes = count_requests(policy)
        print(policy, f"requests {len(sizes)} formula {formula} the last one of {sizes[-1]}", flush=True)


def run(name: str, scale: float, starts_in: float) -> dict[str, float]:
    """One configuration, on a cluster and a server of its own."""
    policy, idle, graph = CONFIGURATIONS[name]
    with open_shop(MACHINES, "--provisioning", policy) as (shop, _):
        words = ["site", "add", "slurm", "--batch", "slurm", "--cores-per-pilot", "1", "--max-pilots", str(MACHINES)]
        words += ["--poll", "0.3s", "--walltime", "1h", "--submit-rate", "50", "--idle", f"{idle / scale or 36000:g}s"]
        words += ["--setup", f"sleep {max(0.0, LATENCY / scale - starts_in):g}"]
        words += ["--min-pilots", str(MACHINES)] if name == "held" else []
        _bough(shop, *words)
        if name == "held":
            while _site(shop)["executors"] < MACHINES:
                time.sleep(0.2)
        before, begun = _hours(shop), time.monotonic()
        with bough.Session(shop.address, name="stages") as session:
            if graph:
                for task in _submit_graph(session, scale):
                    task.result()
            else:
                for tasks, seconds in STAGES:
                    made = [session.command(f"sleep {seconds / scale:g}") for _ in range(tasks)]
                    for task in made:
                        task.result()
            took, after = time.monotonic() - begun, _hours(shop)
            waits = _site(shop)["waits"]
        allocated, used = ((after[key] - before[key]) * 3600 * scale for key in ("all", "used"))
        waited = sorted(waits)[len(waits) // 2] * scale if waits else 0.0
        return {"completion": took * scale, "wasted": allocated - used, "used": used, "waited": waited}


def _submit_graph(session: bough.Session, scale: float) -> list[bough.Task]:
    before: list[bough.Group] = []
    made: list[bough.Task] = []
    for number, (tasks, seconds) in enumerate(STAGES, 1):
        with session.group(f"stage{number}", after=before) as group:
            made += [session.command(f"sleep {seconds / scale:g}") for _ in range(tasks)]
        before = [group]
    return made


def _bough(shop: Workshop, *words: str) -> str:
    words = (sys.executable, "-m", "bough.cli.main", *words)
    done = subprocess.run(words, env=shop.environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def _site(shop: Workshop) -> dict[str, object]:
    return json.loads(_bough(shop, "site", "show", "slurm", "--json"))


def _hours(shop: Workshop) -> dict[str, float]:
    return _site(shop)["core_hours"]  # type: ignore[return-value]


def main() -> None:
    """Run the configurations that are named, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CONFIGURATIONS), metavar="CONFIGURATION")
    parser.add_argument("--scale", type=float, default=5.0, help="times are divided by it")
    parser.add_argument("--starts-in", type=float, default=1.5, help="seconds that a pilot takes by itself")
    args = parser.parse_args()
    need_slurm()
    for name in args.names:
        if name == "requests":
            show_requests()
            continue
        found = run(name, args.scale, args.starts_in)
        print(name, *(f"{key} {value:.0f}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
