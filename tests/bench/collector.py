"""Small outputs that are gathered and written back in bulk, beside direct writes and writes that stay in memory.

    python tests/bench/collector.py [--tasks 200] [--sizes 1000 10000 100000 1000000] [--times 3] [--rate 100mbit]
    python tests/bench/collector.py --sleep 1 --cores 16 --tasks 128

The table of Falkon 4.11. One executor with some cores, on a host that is a network namespace and does not see the
script's directory. *Direct*: each task is done when its output is safe with the server and in its place (`keep=True`).
*Collector*: the output is held by the host, and written back with others (`keep="later"`); the clock stops when all are
in their places. *Held*: temporary outputs, which stay in the cache of the host (`keep=False`). *RAM only*: the command
writes to /dev/shm, and nothing comes back. *In place*: an executor that sees the directory, whose commands write there.
Each is an array of commands that sleep for a while and write so many bytes. The table has tasks a second, the best of
several turns, and in brackets the part of what RAM only reaches; below, the milliseconds of processor that the server
took for a task, the least of the turns. It needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from linked_hosts import LinkedHosts, LinkedService

import bough

KEEP = {"direct": True, "collector": "later", "held": False, "in place": True}
WAYS = ("direct", "collector", "held", "RAM only", "in place")


def measure(session: bough.Session, way: str, size: int, tasks: int, turn: int, begin: str = "") -> float:
    """Tasks a second; `begin`: what each does first."""
    space = bough.product(n=range(tasks))
    where = {"resources": {"here" if way == "in place" else "far": 1}}
    begun = time.monotonic()
    if way == "RAM only":
        text = f"{begin}head -c {size} /dev/zero > /dev/shm/bough-collector-{os.getpid()}-{{n}}; : {turn}"
        session.sweep(text, space, **where).wait_all()
    else:
        text = f"{begin}head -c {size} /dev/zero > {{o:w}}; echo {{n}}.{size}.{turn} >> {{o:w}}"
        name = f"{way.replace(' ', '-')}/{turn}-{size}-{{n}}"
        session.sweep(text, space, o=name, keep=KEEP[way], **where).wait_all()
        if way != "held":
            missing = [n for n in range(tasks) if not os.path.exists(name.replace("{n}", str(n)))]
            assert not missing, f"{way}: {len(missing)} outputs are not in their places"
    seconds = time.monotonic() - begun
    for path in Path("/dev/shm").glob(f"bough-collector-{os.getpid()}-*"):
        path.unlink()
    return tasks / seconds


def server_seconds(service: LinkedService) -> float:
    """Processor time that the server has taken so far."""
    pid = json.loads((service.home / "server" / "server.json").read_text())["pid"]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds of each task before it writes")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--rate", default="", help="of each link, as tc writes it; as fast as the machine is")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bough-collector-", dir=os.environ.get("BOUGH_BENCH_DIR")))
    hosts = LinkedHosts(folder, 2, args.rate)
    try:
        service = LinkedService(hosts, folder)
        os.chdir(service.here)
        cores = str(args.cores)
        service.executor(1, "--cores", cores, "--resource", f"far={cores}")
        near = ["--server", str(service.access), "--cores", cores, "--resource", f"here={cores}"]
        hosts.spawn(0, [*service.python, "executor", "start", *near, "--work", str(folder / "near")], "near.log")
        service.await_executors(2)
        links = f", links of {args.rate}" if args.rate else ""
        print(f"tasks a second, {args.tasks} tasks of {args.sleep:g} s, {cores} cores, best of {args.times}{links}")
        print(f"{'bytes':>9}" + "".join(f"{way:>16}" for way in args.ways))
        with bough.Session(service.socket, name="collector") as session:
            for way in args.ways:
                measure(session, way, 1, 2 * args.cores, 0)
            for size in args.sizes:
                rates, costs = dict.fromkeys(args.ways, 0.0), dict.fromkeys(args.ways, 1e9)
                begin = f"sleep {args.sleep:g}; " if args.sleep else ""
                for turn in range(1, args.times + 1):
                    for way in args.ways:
                        before = server_seconds(service)
                        rates[way] = max(rates[way], measure(session, way, size, args.tasks, turn, begin))
                        costs[way] = min(costs[way], 1000 * (server_seconds(service) - before) / args.tasks)
                best = rates.get("RAM only", 0.0) or max(rates.values())
                shares = [f"{rate:.1f} ({100 * rate / best:.0f}%)" for rate in rates.values()]
                print(f"{size:>9}" + "".join(f"{share:>16}" for share in shares), flush=True)
                print(f"{'server':>9}" + "".join(f"{cost:>13.1f} ms" for cost in costs.values()), flush=True)
    finally:
        hosts.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
