"""Data diffusion with real bytes over real links: stacking by locality, one file per task by size, cost of the cache.

    python tests/bench/data_diffusion.py stacking --policy first-available --policy good-cache-compute
    python tests/bench/data_diffusion.py sizes --wan 200
    python tests/bench/data_diffusion.py overhead
    python tests/bench/data_diffusion.py scheduler

Stacking (Raicu 2009, 7.7): tasks that each read one image; of locality L each image is read by L tasks. Files are
smaller and fewer than the thesis' (they are stated), the order is random, hosts are network namespaces behind shaped
links. Hits are counted on the wire: what home has sent, against what tasks have read.
Sizes (Raicu 2009, 6.4.2 and 6.4.3): one file per task, read, or read and written, cold (0 % locality) and warm (100 %),
beside the same commands on the local disk. Executors of first-available have no cache and no peers, as Falkon's.
Overhead: tasks whose one file is in the cache, beside tasks without files, by turns. These need root, see `laboratory`.
Scheduler (Raicu 2009, 6.4.4): 32 nodes, 250,000 tasks that each read a random one of 10,000 files of one byte, through
`Machine.turn` with facts encoded, in seconds of processor; no bytes move.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

from laboratory import Laboratory, SitePlan, laboratory

import bough
from bough.core.machine import Machine
from bough.model.events import facts, news
from bough.model.events.facts import encode_facts
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.policies.policy_registry import load_policies
from bough.testing.builders import submit, task

NODES, FILES = 32, 10_000  # of the scheduler's benchmark
SCHEDULED = (  # as the thesis names them; whether tasks declare files
    ("FA (no I/O)", "first-available", False),
    ("FA", "first-available", True),
    ("MCU", "max-compute-util", True),
    ("MCH", "max-cache-hit", True),
    ("GCC", "good-cache-compute:threshold=0.8", True),
)
FALKON = {"FA (no I/O)": "2,981", "MCH": "1,322"}
LOCALITIES = (1, 2, 5, 10, 30)
SIZES = (1, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
DOES = {  # what is written is like nothing that was written before: contents that home has would not travel
    "read": "cat {x:r} > /dev/null",
    "r+w": "(echo $$ $RANDOM; cat {x:r}) > {o:w}",
}


def main() -> None:
    """Run what is asked for, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["stacking", "sizes", "overhead", "scheduler"])
    parser.add_argument("--policy", action="append", help="repeatable")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--wan", type=float, default=100.0, help="Mbit/s between home and the hosts' site")
    parser.add_argument("--tasks", type=int, default=240, help="of stacking, for each locality")
    parser.add_argument("--megabytes", type=float, default=0.5, help="of an image")
    parser.add_argument("--decisions", type=int, default=250_000, help="of scheduler: its tasks")
    parser.add_argument("--does", action="append", choices=[*DOES], help="of sizes")
    args = parser.parse_args()
    parts = {"stacking": stacking, "sizes": sizes, "overhead": overhead, "scheduler": scheduler}
    parts[args.what](args, args.policy or [])


def begin(lab: Laboratory, policy: str, *words: str) -> None:
    """A server with a policy, and an executor on each host, with some words."""
    lab.serve("--policy", policy, "--replication", "none")  # placement alone is measured
    for host in lab.hosts:
        lab.execute(host, *words)
    os.chdir(lab.work)
    os.environ["BOUGH_HOME"] = str(lab.home)


def stacking(args: argparse.Namespace, policies: list[str]) -> None:
    """Hit ratio and bytes from home, by locality."""
    print(
        f"stacking: {args.tasks} tasks, images of {args.megabytes:g} MB, {args.hosts} hosts of 1 core, WAN {args.wan:g}"
    )
    print(f"{'policy':<20} {'L':>3} {'seconds':>8} {'read MB':>8} {'home MB':>8} {'hits':>6} {'ideal':>6} {'of it':>6}")
    size = int(args.megabytes * 1e6)
    for policy in policies or ["first-available", "max-compute-util", "good-cache-compute"]:
        for locality in LOCALITIES:
            with (
                tempfile.TemporaryDirectory(prefix="bough-lab-") as folder,
                laboratory(Path(folder), [SitePlan("site", args.hosts, wan=args.wan)]) as lab,
            ):
                begin(lab, policy)
                files = max(1, args.tasks // locality)
                dice = random.Random(locality)
                for number in range(files):
                    Path(f"image{number}").write_bytes(dice.randbytes(size))
                objects = [number % files for number in range(args.tasks)]
                dice.shuffle(objects)
                before, begun = lab.bytes_out("site"), time.monotonic()
                with bough.Session(str(lab.folder / "submit.json"), name="stacking", reuse="never") as session:
                    session.sweep(
                        "md5sum {image:r}", bough.tie(image=[f"image{number}" for number in objects])
                    ).wait_all()
                seconds, sent = time.monotonic() - begun, lab.bytes_out("site") - before
                read = args.tasks * size
                hits, ideal = 1 - sent / read, 1 - 1 / locality
                of_it = f"{hits / ideal:6.2f}" if ideal else "     -"
                print(
                    f"{policy:<20} {locality:>3} {seconds:8.1f} {read / 1e6:8.1f} {sent / 1e6:8.1f}"
                    f" {hits:6.2f} {ideal:6.2f} {of_it}",
                    flush=True,
                )
                os.chdir("/")


def sizes(args: argparse.Namespace, policies: list[str]) -> None:
    """Megabits and tasks a second, by size of the one file of a task."""
    print(f"one file per task, {args.hosts} hosts of 1 core, WAN {args.wan:g} Mbit/s; Mbit/s (tasks/s) in all")
    print("| policy | bytes | tasks | does | cold | warm | local disk |")
    print("|---|---|---|---|---|---|---|")
    for policy in policies or ["first-available", "first-cache-available", "max-compute-util"]:
        words = ("--cache-size", "1B", "--no-peers") if policy == "first-available" else ()
        with (
            tempfile.TemporaryDirectory(prefix="bough-lab-") as folder,
            laboratory(Path(folder), [SitePlan("site", args.hosts, wan=args.wan)]) as lab,
        ):
            begin(lab, policy, *words)
            try:
                for size in SIZES:
                    for does in args.does or DOES:
                        _sizes_row(lab, policy, size, does, DOES[does])
            finally:
                os.chdir("/")


def _sizes_row(lab: Laboratory, policy: str, size: int, does: str, command: str) -> None:
    """Make files that no host has, use them twice there and once here, and print it."""
    tasks = max(len(lab.hosts), min(100, int(8e7 / size)))
    names = [f"{does[-1]}{size}-{number}" for number in range(tasks)]
    for name in names:
        Path(name).write_bytes(os.urandom(size))
    took = [_pass(lab, command, names, f"{does[-1]}{size}-{nth}") for nth in range(2)]
    took.append(_locally(command, names))
    rates = (f"{tasks * size * 8 / 1e6 / seconds:.3g} ({tasks / seconds:.3g})" for seconds in took)
    print(f"| {policy} | {size} | {tasks} | {does} |", " | ".join(rates), "|", flush=True)
    for name in names:
        os.unlink(name)


def _pass(lab: Laboratory, command: str, names: list[str], label: str) -> float:
    """Every task once; the seconds from the submission to the last end."""
    more = {"o": f"out-{label}/{{x.name}}"} if "{o:w}" in command else {}
    with bough.Session(str(lab.folder / "submit.json"), name=label, reuse="never") as session:
        begun = time.monotonic()
        session.sweep(command, bough.tie(x=names), **more).wait_all()
        return time.monotonic() - begun


def overhead(args: argparse.Namespace, policies: list[str]) -> None:
    """What a file in the cache adds to a task: from sweeps with and without files, by turns, and from the database."""
    files = 1000
    for policy in policies or ["bough"]:
        with (
            tempfile.TemporaryDirectory(prefix="bough-lab-") as folder,
            laboratory(Path(folder), [SitePlan("site", 1, wan=args.wan)]) as lab,
        ):
            begin(lab, policy)
            try:
                names = [f"f{number}" for number in range(files)]
                for name in names:
                    Path(name).write_bytes(os.urandom(1000))
                _pass(lab, "test -r {x:r}", names, "cold")
                rounds = [
                    (_pass(lab, "test -n {x}", names, f"none{nth}"), _pass(lab, "test -r {x:r}", names, f"warm{nth}"))
                    for nth in range(3)
                ]
                rows = json.loads(lab.bough("sql", "select stage_in as s, cached from staging", "--json"))
                warm = sorted(float(row["s"]) for row in rows if row["cached"])
                none, cached = map(min, zip(*rounds, strict=True))
                print(
                    f"{policy}: {files} tasks without files {none:.2f} s, with a cached file each {cached:.2f} s:"
                    f" {1e3 * (cached - none) / files:.2f} ms a file; stage-in of {len(warm)} cached files, median"
                    f" {1e3 * warm[len(warm) // 2]:.2f} ms",
                    flush=True,
                )
            finally:
                os.chdir("/")


def scheduler(args: argparse.Namespace, policies: list[str]) -> None:
    """Decisions a second of Falkon's policies, on its own benchmark."""
    print("| policy | decisions/s | of Falkon | hits | nodes that got one, of those free |")
    print("|---|---|---|---|---|")
    for label, policy, reads in SCHEDULED:
        if not policies or policy.partition(":")[0] in policies:
            made, spent, hits, rooms = _decide(policy, reads=reads, tasks=args.decisions)
            falkon = FALKON.get(label, "between")
            print(
                f"| {label} | {made / spent:,.0f} | {falkon} | {f'{hits / made:.0%}' if reads else '-'}"
                f" | {made / rooms:.0%} |",
                flush=True,
            )


def _decide(policy: str, *, reads: bool, tasks: int) -> tuple[int, float, int, int]:
    """Place all tasks; how many, in how many seconds, how many with their file there, on how many free nodes."""
    dice, machine = random.Random(1), Machine(load_policies(policy))
    spent, now, wants = 0.0, 0.0, dict[int, int]()
    running: list[facts.Placed] = []

    def turn(*said: object) -> int:
        nonlocal spent
        begun = time.process_time()
        done = machine.turn(now, said)  # type: ignore[arg-type]
        encode_facts(done.facts)
        spent += time.process_time() - begun
        assert not done.complaints, done.complaints[0]
        placed = [fact for fact in done.facts if isinstance(fact, facts.Placed)]
        running.extend(placed)
        return len(placed)

    turn(facts.RunOpened(1, "bench", "h", 1))
    for first in range(1, tasks + 1, 5000):
        numbers = range(first, min(first + 5000, tasks + 1))
        wants.update({number: dice.randrange(FILES) for number in numbers})
        paths = {number: (f"/data/{wants[number]}",) if reads else () for number in numbers}
        turn(submit(*(task(number, template="work", reads=paths[number]) for number in numbers)))
    known = machine.state.workflows[1].files.all() if reads else ()
    digests = {file.id: int(file.path.rpartition("/")[2]).to_bytes(32, "big") for file in known}
    turn(news.FilesIdentified(1, tuple(news.IdentifiedFile(file, digest, 1) for file, digest in digests.items())))
    gc.collect()
    gc.freeze()
    caches: list[set[int]] = [set() for _ in range(NODES)]
    spent, made, hits, rooms = 0.0, 0, 0, NODES
    made += turn(
        *(facts.ExecutorJoined(ExecutorId(one + 1), "s", f"h{one}", 1, Needs(cores=1)) for one in range(NODES))
    )
    while running:
        ended, running = running, []
        said: list[object] = []
        for fact in ended:
            file, cache = wants[fact.record], caches[fact.executor - 1]
            if reads and file in cache:
                hits += 1
            elif reads:
                cache.add(file)
                said.append(news.CacheChanged(fact.executor, (news.HeldContent(file.to_bytes(32, "big"), 1),)))
            said.append(news.WorkSucceeded(fact.span, 0, 1, 10.0))  # so long that none is given out ahead
        now += 1.0
        rooms += min(NODES, tasks - made)
        made += turn(*said)
    gc.unfreeze()
    return made, spent, hits, rooms


def _locally(command: str, names: list[str]) -> float:
    """The same commands one after the other on the local disk, without Bough."""
    Path("local").mkdir(exist_ok=True)
    begun = time.monotonic()
    for name in names:
        text = command.replace("{x:r}", name).replace("{o:w}", f"local/{name}")
        subprocess.run(text, shell=True, check=True, executable="/bin/bash")
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
