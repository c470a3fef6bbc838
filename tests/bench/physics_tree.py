"""The shape of an analysis in particle physics: a map over a big shared input, and a tree that accumulates.

    python tests/bench/physics_tree.py --policy fifo --policy bough --dask

Each task of the map reads the shared input and makes a histogram file; the tree adds four of these at a time until one
is left (the workload with which TaskVine shows local data, peer transfers and resident functions). Hosts are network
namespaces behind a shaped WAN, with a LAN between them. Dask has its scheduler and its client at home and a worker on
each host, and moves the input by `scatter(broadcast=True)`. It needs root, see `laboratory`; Dask only if asked for.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from laboratory import Laboratory, SitePlan, laboratory, until

import bough

MAP = """
import sys
data = open(sys.argv[1], "rb").read()
seed, size = int(sys.argv[2]), int(sys.argv[3])
step = max(1, len(data) // size)
open(sys.argv[4], "wb").write(bytes((byte + seed) & 255 for byte in data[: size * step : step]))
"""
ADD = """
import sys
parts = [open(name, "rb").read() for name in sys.argv[2:]]
open(sys.argv[1], "wb").write(bytes(sum(column) & 255 for column in zip(*parts)))
"""
WIDTH = 4  # files that are added at a time


def main() -> None:
    """Run it with each policy and, if asked for, with Dask; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", help="repeatable")
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--wan", type=float, default=100.0, help="Mbit/s between home and the hosts' site")
    parser.add_argument("--megabytes", type=int, default=200, help="of the shared input")
    parser.add_argument("--maps", type=int, default=32)
    parser.add_argument("--histogram", type=int, default=1_000_000, help="bytes of a file that a map task makes")
    args = parser.parse_args()
    print(
        f"map of {args.maps} over {args.megabytes} MB, files of {args.histogram} bytes added {WIDTH} at a time,"
        f" {args.hosts} hosts of 1 core, WAN {args.wan:g} Mbit/s, LAN 1000"
    )
    print(f"{'who':<20} {'seconds':>8} {'home sent MB':>13}")
    for policy in args.policy or ["fifo", "bough"]:
        with _laboratory(args) as lab:
            lab.serve("--policy", policy)
            for host in lab.hosts:
                lab.execute(host)
            _tell(policy, lab, lambda lab: _with_bough(lab, args))
    if args.dask:
        with _laboratory(args) as lab:
            _tell("dask", lab, lambda lab: _with_dask(lab, args))


class _laboratory:  # noqa: N801 it is used as a function
    """A laboratory in a folder of its own, both until the block is left."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bough-lab-")
        self._lab = laboratory(Path(self._folder.name), [SitePlan("site", args.hosts, wan=args.wan)])

    def __enter__(self) -> Laboratory:
        lab = self._lab.__enter__()
        os.chdir(lab.work)
        os.environ["BOUGH_HOME"] = str(lab.home)
        return lab

    def __exit__(self, *error: object) -> None:
        os.chdir("/")
        self._lab.__exit__(None, None, None)
        self._folder.cleanup()


def _tell(name: str, lab: Laboratory, run: object) -> None:
    before = lab.bytes_out("site")
    seconds = run(lab)  # type: ignore[operator]
    print(f"{name:<20} {seconds:8.1f} {(lab.bytes_out('site') - before) / 1e6:13.1f}", flush=True)


def _with_bough(lab: Laboratory, args: argparse.Namespace) -> float:
    Path("events").write_bytes(random.Random(1).randbytes(args.megabytes * 1_000_000))
    Path("map.py").write_text(MAP)
    Path("add.py").write_text(ADD)
    begun = time.monotonic()
    with bough.Session(str(lab.folder / "submit.json"), name="physics", reuse="never") as session:
        made = [
            session.command(
                "python3 {p:r} {d:r} {i} {n} {o:w}", p="map.py", d="events", i=number, n=args.histogram, o=f"h{number}"
            )
            for number in range(args.maps)
        ]
        count = 0
        while len(made) > 1:
            level = []
            for start in range(0, len(made), WIDTH):
                count += 1
                parts = made[start : start + WIDTH]
                level.append(session.command("python3 {p:r} {o:w} {x:r}", p="add.py", x=parts, o=f"sum{count}"))
            made = level
        made[0].result(900)
    seconds = time.monotonic() - begun
    assert Path(f"sum{count}").stat().st_size == args.histogram
    return seconds


def _with_dask(lab: Laboratory, args: argparse.Namespace) -> float:
    from distributed import Client

    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", lab.address, "--port", "18786"]
    log = open(lab.folder / "dask.log", "ab")  # noqa: SIM115 it ends with the process
    started = [subprocess.Popen([*dask, "--no-dashboard"], stdout=log, stderr=log)]
    try:
        for host in lab.hosts:
            words = [sys.executable, "-m", "distributed.cli.dask_worker", f"{lab.address}:18786", "--nthreads", "1"]
            words += ["--no-nanny", "--no-dashboard", "--local-directory", str(host.folder), "--host", host.address]
            inside = ["ip", "netns", "exec", host.namespace]
            started.append(subprocess.Popen([*inside, *words], stdout=log, stderr=log))
        with Client(f"{lab.address}:18786") as client:
            until(lambda: len(client.scheduler_info()["workers"]) == len(lab.hosts), "Dask's workers")
            data = random.Random(1).randbytes(args.megabytes * 1_000_000)
            begun = time.monotonic()
            shared = client.scatter(data, broadcast=True)
            made = [client.submit(_map, shared, number, args.histogram) for number in range(args.maps)]
            while len(made) > 1:
                made = [client.submit(_add, made[start : start + WIDTH]) for start in range(0, len(made), WIDTH)]
            assert len(made[0].result(900)) == args.histogram
            return time.monotonic() - begun
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)
        log.close()


def _map(data: bytes, seed: int, size: int) -> bytes:
    step = max(1, len(data) // size)
    return bytes((byte + seed) & 255 for byte in data[: size * step : step])


def _add(parts: list[bytes]) -> bytes:
    return bytes(sum(column) & 255 for column in zip(*parts, strict=True))


if __name__ == "__main__":
    main()
