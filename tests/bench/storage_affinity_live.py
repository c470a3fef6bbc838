"""Storage Affinity's real experiment (Santos-Neto 2004, section 4.4) live: BLAST over slices of a protein database.

    python tests/bench/storage_affinity_live.py --results storage-affinity.jsonl --repetitions 11

20 tasks search slices of 3 MB of a database of 60 MB that is generated from a seed and formatted by makeblastdb. An
execution is all 20 with a fresh query; four executions follow each other, as a scientist refines a question. Slices are
stored at the hosts, the query is put for each task. Two sites of network namespaces behind shaped links stand for the
two of the thesis, with fewer slots (they are printed). A search of a formatted slice takes a tenth of a second of a
core, so that transfers dominate and not the cores of this machine. WQR sends all input with every copy, as in MyGrid
(`wqr:reuse=no`); first-available reads from home always (Falkon). Policies take turns, in another order in each
repetition, each with empty caches.

Each turn is a line in the file of results. Running it again goes on where it was; `--report` only prints the tables.
Makespan is from the first placement to the last success, by the jobs database; waste is by the formulas of
`storage-affinity.md` 4.8: CPU seconds of superseded attempts for each of those that succeeded, and bytes that were
moved for the former for each byte of input of the latter. It needs root, BLAST+ and iproute2, see `laboratory`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from laboratory import Laboratory, SitePlan, laboratory, until

import bough

SLICES, FASTA_BYTES = 20, 2_580_000  # formatted, a slice has 3.0 MB
ACIDS, SHARES = "ACDEFGHIKLMNPQRSTVWY", (83, 14, 55, 68, 39, 71, 23, 59, 58, 97, 24, 41, 47, 39, 55, 66, 53, 69, 11, 29)
CONFIGURATIONS = {  # placement and replication, which is not limited, as in the thesis
    "storage-affinity": ("storage-affinity", "storage-affinity:cap=100"),
    "wqr": ("workqueue", "wqr:reuse=no,cap=100"),
    "xsufferage": ("xsufferage", "none"),
    "first-available": ("first-available", "none"),
    "wqr-with-reuse": ("workqueue", "wqr:cap=100"),
}
USUAL = ("storage-affinity", "wqr", "xsufferage", "first-available")
# BLAST waits for a report of its use to be sent, unless that is turned off
COMMAND = "BLAST_USAGE_REPORT=false blastp -query query.fa -db $STORAGE/slice{0}/s -evalue 1e-3 -outfmt 6 > hits"
SPANS = """select r.name as name, min(a.placed) as first, max(t.ended) as last, count(distinct t.id) as tasks,
(select count(*) from staging) as staged from attempts a join tasks t on t.id = a.id join runs r on r.run = t.run
where t.state = 'done' group by r.name order by r.name"""
T95 = (math.inf, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # by degrees of freedom


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--executions", type=int, default=4)
    parser.add_argument("--wan", type=float, default=30.0, help="Mbit/s between home and each site")
    parser.add_argument("--hosts", type=int, default=2, help="of each site")
    parser.add_argument("--cores", type=int, default=2, help="slots of each host")
    parser.add_argument("--only", action="append", choices=list(CONFIGURATIONS))
    parser.add_argument("--results", type=Path, default=Path("storage-affinity.jsonl"))
    parser.add_argument("--report", action="store_true", help="print the tables of what was measured")
    args = parser.parse_args()
    names = args.only or list(USUAL)
    setting = [args.executions, args.wan, args.hosts, args.cores]
    lines = args.results.read_text().splitlines() if args.results.exists() else []
    found = [one for one in map(json.loads, lines) if one["setting"] == setting]
    print(
        f"{SLICES} BLAST tasks, slices of 3 MB, 2 sites of {args.hosts} hosts with {args.cores} slots each "
        f"({2 * args.hosts * args.cores} in all), WAN {args.wan:g} Mbit/s to each site, {os.cpu_count()} cores",
        flush=True,
    )
    if not args.report:
        with tempfile.TemporaryDirectory(prefix="bough-slices-") as database:
            for number in range(SLICES):
                _make_slice(Path(database), number)
            for repetition in range(args.repetitions):
                turns = names[repetition % len(names) :] + names[: repetition % len(names)]
                for name in turns:
                    if any((one["repetition"], one["name"]) == (repetition, name) for one in found):
                        continue
                    sites = [SitePlan(site, args.hosts, args.cores, wan=args.wan) for site in ("carcara", "gridlab")]
                    with (
                        tempfile.TemporaryDirectory(prefix="bough-lab-") as folder,
                        laboratory(Path(folder), sites) as lab,
                    ):
                        executions = _run(lab, name, args.executions, Path(database), repetition)
                    found.append({"setting": setting, "repetition": repetition, "name": name, "executions": executions})
                    with args.results.open("a") as file:
                        file.write(json.dumps(found[-1]) + "\n")
                    spans = " ".join(f"{one['seconds']:5.1f}" for one in executions)
                    moved = " ".join(f"{one['megabytes']:5.1f}" for one in executions)
                    print(f"  {repetition + 1:>2} {name:<18} {spans} s; MB {moved}", flush=True)
    report(found, names, args.executions)


def report(found: Sequence[dict[str, object]], names: Sequence[str], executions: int) -> None:
    """Makespans with their spread, and what was wasted."""
    for title, field, digits in (
        ("makespan, s: mean (SD) +- half of the 95 % CI", "seconds", 1),
        ("MB into the sites", "megabytes", 1),
        ("CPU waste, % of the CPU time that counted", "cpu_waste", 1),
        ("network waste, % of the input", "network_waste", 1),
        ("attempts superseded", "superseded", 1),
    ):
        print(
            f"\n{title}\n{'':<18} {'n':>3} "
            + "".join(f"{'execution ' + str(nth + 1):>20}" for nth in range(executions))
        )
        for name in names:
            runs = [one["executions"] for one in found if one["name"] == name]
            if not runs:
                continue
            shown = "".join(f"{_spread([run[nth][field] for run in runs], digits):>20}" for nth in range(executions))  # type: ignore[index]
            print(f"{name:<18} {len(runs):>3} {shown}")
    print("\nover all executions: makespan of the last as a part of the first; waste")
    for name in names:
        runs = [one["executions"] for one in found if one["name"] == name]
        if runs:
            both = [[sum(one[field] for one in run) for field in _SUMMED] for run in runs]  # type: ignore[index, attr-defined]
            wasted, useful, moved, read = (sum(one[nth] for one in both) for nth in range(len(_SUMMED)))
            ratio = fmean(run[-1]["seconds"] / run[0]["seconds"] for run in runs)  # type: ignore[index]
            print(
                f"{name:<18} {ratio:5.2f}; CPU {100 * wasted / useful if useful else 0:.1f} %, "
                f"network {100 * moved / read if read else 0:.1f} %"
            )


_SUMMED = ("core_seconds", "useful_core_seconds", "bytes", "input_bytes")


def _spread(values: Sequence[float], digits: int) -> str:
    mean = fmean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    deviation = stdev(values)
    degrees = len(values) - 1
    half = (T95[degrees] if degrees < len(T95) else 1.96 + 2.7 / degrees) * deviation / math.sqrt(len(values))
    return f"{mean:.{digits}f} ({deviation:.{digits}f}) +-{half:.{digits}f}"


def _make_slice(folder: Path, number: int) -> None:
    dice = random.Random(f"slice {number}")
    lines, size = [], 0
    while size < FASTA_BYTES:
        body = "".join(dice.choices(ACIDS, SHARES, k=dice.randint(150, 700)))
        lines.append(f">s{number}_{len(lines)}\n{body}\n")
        size += len(lines[-1])
    source = folder / "slice.fa"
    source.write_text("".join(lines))
    words = ["makeblastdb", "-in", str(source), "-dbtype", "prot", "-blastdb_version", "4"]
    subprocess.run([*words, "-out", str(folder / f"slice{number}" / "s")], check=True, capture_output=True)
    source.unlink()


def _run(lab: Laboratory, name: str, executions: int, database: Path, repetition: int) -> list[dict[str, float]]:
    placement, replication = CONFIGURATIONS[name]
    lab.serve("--policy", placement, "--replication", replication)
    lab.execute_all()
    os.chdir(lab.work)
    os.environ["BOUGH_HOME"] = str(lab.home)
    try:
        shutil.copytree(database, lab.work, dirs_exist_ok=True)
        found = [_execute(lab, repetition, execution) for execution in range(executions)]
        for execution, (one, seconds) in enumerate(zip(found, _makespans(lab, executions), strict=True)):
            one["seconds"] = seconds
            one.update(_waste(lab, execution))
        return found
    finally:
        os.chdir("/")


def _execute(lab: Laboratory, repetition: int, execution: int) -> dict[str, float]:
    dice = random.Random(f"query {repetition} {execution}")
    Path("query.fa").write_text(">q\n" + "".join(dice.choices(ACIDS, SHARES, k=200)) + "\n")
    before, load = _sent(lab), os.getloadavg()[0]
    with bough.Session(str(lab.folder / "submit.json"), name=f"blast{execution}", reuse="never") as session:
        job = session.group("job")
        session.hold(job)  # as in MyGrid, the scheduler sees the job as a whole
        for number in range(SLICES):
            job.command(
                COMMAND.format(number),
                put={"query.fa": "query.fa"},
                store=[f"slice{number}"],
                get={"hits": f"hits{execution}.{number}"},
            )
        job.close()
        session.release(job)
    return {"seconds": 0.0, "megabytes": (_sent(lab) - before) / 1e6, "load": load}


def _makespans(lab: Laboratory, executions: int) -> list[float]:
    """From the first placement to the last success of each execution, when no more is said of attempts that ended."""
    last: list[dict[str, float]] = []
    said: list[dict[str, float]] = []

    def is_settled() -> bool:
        last[:] = said
        said[:] = json.loads(lab.bough("sql", SPANS, "--json"))
        return said == last and [one["tasks"] for one in said] == [SLICES] * executions

    until(is_settled, "the jobs database")
    return [one["last"] - one["first"] for one in said]


def _sent(lab: Laboratory) -> int:
    return sum(map(lab.bytes_out, ("carcara", "gridlab")))


def _waste(lab: Laboratory, execution: int) -> dict[str, float]:
    said = json.loads(lab.bough("status", "--name", f"blast{execution}", "--json"))
    fields = ("superseded", "cpu_waste", "network_waste", *_SUMMED)
    return {field: said.get("replication", {}).get(field, 0) for field in fields}


if __name__ == "__main__":
    main()
