"""Storage Affinity's real experiment (Santos-Neto 2004, section 4.4) live: BLAST over slices of a protein database.

    python tests/bench/storage_affinity_live.py --repetitions 11

20 tasks search 3 MB slices of a generated database of 60 MB. An execution is all 20 with a fresh query; four executions
follow each other, as a scientist refines a question. Slices are stored at the hosts, queries are put for each task;
under WQR, as in MyGrid, slices are put as well. Two sites of network namespaces behind shaped links stand for the two
of the thesis, with fewer slots (they are printed). Policies take turns, each repetition with empty caches.
It needs root, BLAST+ and iproute2, see `laboratory`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev

from laboratory import Laboratory, SitePlan, laboratory

import bough

SLICES, SLICE_BYTES = 20, 3_000_000
ACIDS, SHARES = "ACDEFGHIKLMNPQRSTVWY", (83, 14, 55, 68, 39, 71, 23, 59, 58, 97, 24, 41, 47, 39, 55, 66, 53, 69, 11, 29)
CONFIGURATIONS = {  # placement, replication, whether hosts keep the slices
    "storage-affinity": ("storage-affinity", "storage-affinity", True),
    "wqr": ("workqueue", "wqr", False),
    "wqr, slices kept": ("workqueue", "wqr", True),
    "xsufferage": ("xsufferage", "none", True),
    "first-available": ("first-available", "none", True),
}
COMMAND = "blastp -query query.fa -subject {slice} -evalue 1e-3 -outfmt 6 -num_threads 1 > hits"


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--executions", type=int, default=4)
    parser.add_argument("--wan", type=float, default=20.0, help="Mbit/s between home and each site")
    parser.add_argument("--only", action="append", choices=list(CONFIGURATIONS))
    args = parser.parse_args()
    sites = [SitePlan("carcara", 2, 3, wan=args.wan), SitePlan("gridlab", 2, 3, wan=args.wan)]
    slots = sum(site.hosts * site.cores for site in sites)
    print(
        f"{SLICES} BLAST tasks, {SLICE_BYTES / 1e6:g} MB slices, 2 sites, {slots} slots, WAN {args.wan:g} Mbit/s each"
    )
    database = [_slice(number) for number in range(SLICES)]
    names = args.only or list(CONFIGURATIONS)
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    sent: dict[str, list[list[float]]] = {name: [] for name in names}
    waste: dict[str, list[float]] = {name: [] for name in names}
    for repetition in range(args.repetitions):
        for name in names:
            with (
                tempfile.TemporaryDirectory(prefix="bough-lab-") as folder,
                laboratory(Path(folder), sites) as lab,
            ):
                spans, moved, wasted = _run(lab, name, args.executions, database, repetition)
                found[name].append(spans)
                sent[name].append(moved)
                waste[name].append(wasted)
            shown = " ".join(f"{span:6.1f}" for span in spans)
            print(
                f"  {repetition + 1:>2} {name:<18} {shown} s; MB {' '.join(f'{one:6.1f}' for one in moved)}", flush=True
            )
    print(f"\n{'makespans, mean (standard deviation) of ' + str(args.repetitions):<48}")
    for name in names:
        columns = [[one[nth] for one in found[name]] for nth in range(args.executions)]
        shown = "  ".join(f"{fmean(one):6.1f} ({stdev(one) if len(one) > 1 else 0:4.1f})" for one in columns)
        bytes_ = "  ".join(f"{fmean([one[nth] for one in sent[name]]):5.1f}" for nth in range(args.executions))
        print(f"{name:<18} {shown}   MB from home {bytes_}   CPU wasted {fmean(waste[name]):.1%}")


def _slice(number: int) -> str:
    dice = random.Random(f"slice {number}")
    lines, size = [], 0
    while size < SLICE_BYTES:
        body = "".join(dice.choices(ACIDS, SHARES, k=dice.randint(150, 700)))
        lines.append(f">s{number}_{len(lines)}\n{body}\n")
        size += len(lines[-1])
    return "".join(lines)


def _run(
    lab: Laboratory, name: str, executions: int, database: list[str], repetition: int
) -> tuple[list[float], list[float], float]:
    placement, replication, keeps = CONFIGURATIONS[name]
    lab.serve("--policy", placement, "--replication", replication)
    for host in lab.hosts:
        lab.execute(host)
    os.chdir(lab.work)
    os.environ["BOUGH_HOME"] = str(lab.home)
    try:
        for number, text in enumerate(database):
            Path(f"slice{number}.fa").write_text(text)
        spans, moved, used, wasted = [], [], 0.0, 0.0
        for execution in range(executions):
            dice = random.Random(f"query {repetition} {execution}")
            Path("query.fa").write_text(">q\n" + "".join(dice.choices(ACIDS, SHARES, k=600)) + "\n")
            before, begun = sum(map(lab.bytes_out, ("carcara", "gridlab"))), time.monotonic()
            with bough.Session(str(lab.folder / "submit.json"), name=f"blast{execution}", reuse="never") as session:
                for number in range(SLICES):
                    own = f"slice{number}.fa"
                    put = {"query.fa": "query.fa"} if keeps else {"query.fa": "query.fa", own: own}
                    store = [own] if keeps else []
                    where = f"$STORAGE/{own}" if keeps else own
                    session.command(
                        COMMAND.replace("{slice}", where),
                        put=put,
                        store=store,
                        get={"hits": f"hits{execution}.{number}"},
                    )
            spans.append(time.monotonic() - begun)
            moved.append((sum(map(lab.bytes_out, ("carcara", "gridlab"))) - before) / 1e6)
            said = json.loads(lab.bough("status", "--name", f"blast{execution}", "--json"))
            for one in said.get("core_hours", ()):
                used += one.get("used", 0)
                wasted += one.get("wasted", 0)
        return spans, moved, wasted / (used + wasted) if used + wasted else 0.0
    finally:
        os.chdir("/")


if __name__ == "__main__":
    main()
