"""What the index of where data is costs in memory, for each pair of a content and a host that holds it.

Run: `.venv/bin/python -m tests.bench.data_index_size [--files N] [--hosts N] [--copies N ...] [--quick]`

Hosts report their caches to a machine as executors do, each content being held by so many hosts (`--copies`). Printed
is by how much the process grew, for each pair; each number of copies has a process of its own. With `--traced` also
what Python allocated. The bound is 100 bytes a pair.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import tracemalloc
from pathlib import Path
from time import process_time

from bough.core.machine import Machine
from bough.model.events import facts, news
from bough.model.events.facts import ExecutorJoined
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.policies.policy_registry import load_policies

REPORT = 10_000  # contents that a host reports at once
BOUND = 100  # bytes a pair


def digest(file: int) -> bytes:
    """The digest of a file's content."""
    return file.to_bytes(8, "little") * 4


def resident() -> int:
    """Bytes of memory that this process has."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def held_by(host: int, files: int, hosts: int, copies: int) -> range:
    """The files that a host holds: each file has so many holders, which are spread over all hosts."""
    step = max(1, hosts // copies)
    return range(host % step, files, step)


def measure(files: int, hosts: int, copies: int, *, traced: bool) -> None:
    """Print the bytes of the index for each pair."""
    machine = Machine(load_policies("fifo"))
    machine.turn(0.0, [facts.RunOpened(1, "bench", "h", 1)])
    joined = [ExecutorJoined(ExecutorId(one + 1), "s", f"h{one}", 1, Needs(cores=1)) for one in range(hosts)]
    machine.turn(0.0, joined)
    gc.collect()
    if traced:
        tracemalloc.start()
    before, spent = tracemalloc.get_traced_memory()[0] if traced else resident(), 0.0
    for host in range(hosts):
        held = held_by(host, files, hosts, copies)
        for start in range(0, len(held), REPORT):
            some = tuple(news.HeldContent(digest(file), 1000) for file in held[start : start + REPORT])
            begin = process_time()
            machine.turn(0.0, [news.CacheChanged(ExecutorId(host + 1), some)])
            spent += process_time() - begin
            del some
    gc.collect()
    used = (tracemalloc.get_traced_memory()[0] if traced else resident()) - before
    data = machine.state.data
    way = "allocated" if traced else "resident"
    pace = "" if traced else f", {spent / data.pairs * 1e6:.2f} us of CPU a pair"
    verdict = "" if used <= BOUND * data.pairs else f"  ABOVE {BOUND}"
    print(
        f"{data.contents.count:>9} contents, {hosts} hosts, {copies:>4} holders each, {data.pairs:>9} pairs:"
        f" {used / data.pairs:>6.1f} bytes a pair {way} ({used / 1e6:.0f} MB{pace}){verdict}",
        flush=True,
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--copies", type=int, nargs="*", default=[1, 3, 10, 100])
    parser.add_argument("--traced", action="store_true", help="also by what Python allocated, which takes longer")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the files, a tenth of the hosts")
    args = parser.parse_args()
    files, hosts = (args.files // 100, args.hosts // 10) if args.quick else (args.files, args.hosts)
    context = multiprocessing.get_context("spawn")
    for copies in args.copies:
        for traced in (False, True) if args.traced or args.quick else (False,):
            process = context.Process(target=measure, args=(files, hosts, copies), kwargs={"traced": traced})
            process.start()
            process.join()


if __name__ == "__main__":
    main()
