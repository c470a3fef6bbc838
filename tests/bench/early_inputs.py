"""How long slots wait for inputs: of tasks that compute for two seconds, over a link that takes one for each input.

    python tests/bench/early_inputs.py --policy fifo --policy bough --policy storage-affinity
    python tests/bench/early_inputs.py --policy fifo --policy bough --urls

Policies that look at data announce inputs to busy executors, so that they travel meanwhile. Printed are the seconds of
stage-in of the first task of each host, and of all others together. With `--urls` the inputs are at an HTTP server at
home. It needs root, see `laboratory`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from laboratory import SitePlan, laboratory, until

import bough

_PORT = "8931"
ROWS = "select stage_in from staging join attempts using (id, idx, attempt) order by started"


def main() -> None:
    """Run it with each policy; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", help="repeatable")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--megabytes", type=int, default=9, help="of each input")
    parser.add_argument("--wan", type=float, default=160.0, help="Mbit/s between home and the hosts' site")
    parser.add_argument("--urls", action="store_true", help="inputs are at URLs")
    args = parser.parse_args()
    print(f"{args.tasks} tasks of 2 s on {args.hosts} hosts of 1 core, {args.megabytes} MB each, {args.wan:g} Mbit/s")
    print(f"{'policy':<20} {'first, each':>12} {'others, all':>12}")
    for policy in args.policy or ["fifo", "bough"]:
        first, others = _stage_in(policy, args)
        print(f"{policy:<20} {sum(first) / len(first):12.2f} {sum(others):12.2f}", flush=True)


def _stage_in(policy: str, args: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Seconds of stage-in of the first task of each host, and of the others."""
    sites = [SitePlan("site", args.hosts, wan=args.wan)]
    with tempfile.TemporaryDirectory(prefix="bough-lab-") as folder, laboratory(Path(folder), sites) as lab:
        os.chdir(lab.work)
        os.environ["BOUGH_HOME"] = str(lab.home)
        web = [sys.executable, "-m", "http.server", _PORT, "--bind", lab.address, "--directory", str(lab.work)]
        serving = subprocess.Popen(web, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if args.urls else None
        where = f"http://{lab.address}:{_PORT}/" if args.urls else ""
        try:
            lab.serve("--policy", policy, "--replication", "none")
            for host in lab.hosts:
                lab.execute(host)
            for number in range(args.tasks):
                (lab.work / f"{number}.bin").write_bytes(os.urandom(args.megabytes * 1_000_000))
            with bough.Session(str(lab.folder / "submit.json"), name="early") as s:
                for task in [s.command("sleep 2; wc -c < {x:r}", x=f"{where}{n}.bin") for n in range(args.tasks)]:
                    task.result(600)
            until(lambda: len(json.loads(lab.bough("sql", ROWS, "--json"))) == args.tasks, "the jobs database")
            found = [float(row["stage_in"]) for row in json.loads(lab.bough("sql", ROWS, "--json"))]
        finally:
            os.chdir("/")
            if serving is not None:
                serving.kill()
                serving.wait()
    return found[: args.hosts], found[args.hosts :]


if __name__ == "__main__":
    main()
