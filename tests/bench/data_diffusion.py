"""Data diffusion with real bytes over real links: stacking by locality, and one file per task by size.

    python tests/bench/data_diffusion.py stacking --policy first-available --policy good-cache-compute
    python tests/bench/data_diffusion.py sizes --policy max-compute-util

Stacking (Raicu 2009, 7.7): tasks that each read one image; of locality L each image is read by L tasks. Files are
smaller and fewer than the thesis' (they are stated), the order is random, hosts are network namespaces behind shaped
links. Hits are counted on the wire: what home has sent, against what tasks have read.
Sizes (Raicu 2009, 6.4.3): one file per task, read, or read and written, cold (0 % locality) and warm (100 %), beside
the same command on the local disk. It needs root, see `laboratory`.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

from laboratory import Laboratory, SitePlan, laboratory

import bough

LOCALITIES = (1, 2, 5, 10, 30)
SIZES = (1, 1_000, 100_000, 1_000_000, 10_000_000, 100_000_000)


def main() -> None:
    """Run what is asked for, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["stacking", "sizes"])
    parser.add_argument("--policy", action="append", help="repeatable")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--wan", type=float, default=100.0, help="Mbit/s between home and the hosts' site")
    parser.add_argument("--tasks", type=int, default=240, help="of stacking, for each locality")
    parser.add_argument("--megabytes", type=float, default=0.5, help="of an image")
    args = parser.parse_args()
    policies = args.policy or ["first-available", "max-compute-util", "good-cache-compute"]
    {"stacking": stacking, "sizes": sizes}[args.what](args, policies)


def begin(lab: Laboratory, policy: str, *words: str) -> None:
    """A server with a policy, and an executor on each host."""
    lab.serve("--policy", policy, *words)
    for host in lab.hosts:
        lab.execute(host)
    os.chdir(lab.work)
    os.environ["BOUGH_HOME"] = str(lab.home)


def stacking(args: argparse.Namespace, policies: list[str]) -> None:
    """Hit ratio and bytes from home, by locality."""
    print(
        f"stacking: {args.tasks} tasks, images of {args.megabytes:g} MB, {args.hosts} hosts of 1 core, WAN {args.wan:g}"
    )
    print(f"{'policy':<20} {'L':>3} {'seconds':>8} {'read MB':>8} {'home MB':>8} {'hits':>6} {'ideal':>6} {'of it':>6}")
    size = int(args.megabytes * 1e6)
    for policy in policies:
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
    """Megabits a second that tasks get, by size of their file."""
    print(f"one file per task, {args.hosts} hosts of 1 core, WAN {args.wan:g} Mbit/s; Mbit/s in all")
    print(f"{'policy':<20} {'bytes':>10} {'does':<6} {'cold':>8} {'warm':>8} {'local disk':>10}")
    for policy in policies:
        for size in SIZES:
            tasks = max(args.hosts, min(40, int(4e8 / max(size, 1) / 10)))
            for does, command in (("read", "cat {x:r} > /dev/null"), ("r+w", "cat {x:r} > {o:w}")):
                with (
                    tempfile.TemporaryDirectory(prefix="bough-lab-") as folder,
                    laboratory(Path(folder), [SitePlan("site", args.hosts, wan=args.wan)]) as lab,
                ):
                    begin(lab, policy)
                    for number in range(tasks):
                        Path(f"f{number}").write_bytes(random.Random(number).randbytes(size))
                    took = [_pass(lab, command, tasks, nth) for nth in range(2)]
                    local = _locally(command, tasks)
                    rates = [tasks * size * 8 / 1e6 / seconds for seconds in (*took, local)]
                    print(
                        f"{policy:<20} {size:>10} {does:<6} {rates[0]:8.1f} {rates[1]:8.1f} {rates[2]:10.1f}",
                        flush=True,
                    )
                    os.chdir("/")


def _pass(lab: Laboratory, command: str, tasks: int, nth: int) -> float:
    """Every task once; the seconds."""
    begun = time.monotonic()
    more = {"o": f"out{nth}/{{x.stem}}"} if "{o:w}" in command else {}
    with bough.Session(str(lab.folder / "submit.json"), name=f"pass{nth}", reuse="never") as session:
        session.sweep(command, bough.tie(x=[f"f{number}" for number in range(tasks)]), **more).wait_all()
    return time.monotonic() - begun


def _locally(command: str, tasks: int) -> float:
    """The same commands one after the other on the local disk, without Bough."""
    Path("local").mkdir()
    begun = time.monotonic()
    for number in range(tasks):
        text = command.replace("{x:r}", f"f{number}").replace("{o:w}", f"local/{number}")
        subprocess.run(text, shell=True, check=True)
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
