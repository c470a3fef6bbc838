"""Live runs predicted from an earlier run with other cores and another policy: predicted, actual, error.

    python tests/bench/prediction.py checkers --runs 5
    python tests/bench/prediction.py blast --runs 5

`checkers` is all 638 databases of 4 against 3 pieces (`sim.checkers_workload`), each computed and verified;
a task sleeps for its time over `--scale`. `blast` searches proteins of EMBOSS' test data (open reading frames of human
DNA) for relatives; it needs ncbi-blast+, emboss and emboss-test. The earlier run of checkers has 4 cores under `fifo`,
those predicted have 8 under `critical-path`; of BLAST 1 core under `fifo` and 2 under `ljf`, one earlier run before
each, since other users of the machine come and go.
Rule: what is predicted is written down before the run that it is compared with begins; tasks' times, dependencies and
what Bough itself takes come from the journal of the earlier run alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

import bough
from bough.analysis.replayed_runs import RecordedRun, predict, recorded_run
from bough.cli.commands.simulate import recorded_graph
from bough.sim.checkers_workload import advanced, depth_first, lengths_of, parts, promoted, slices

SWISS = Path("/usr/share/EMBOSS/test/swiss/seq.dat")
HUMAN = Path("/usr/share/EMBOSS/test/embl/hum1.dat")
BLAST = "blastp -query {q:r} -db db.fa -num_threads 1 -word_size 2 -evalue 10 -outfmt 6 -out {o:w}"


def checkers(name: str, cores: int, policy: str, scale: float) -> None:
    """The workflow of 638 groups, live."""
    with bough.Session(name=name, cores=cores, policy=policy, reuse="never") as session:
        groups: dict[tuple[int, ...], bough.Group] = {}
        for one in depth_first(slices(), promoted):
            above = session.group("_".join(map(str, one)), after=[groups[other] for other in promoted(one)])
            groups[one] = above
            with above:
                for part in depth_first(parts(one), advanced):
                    group = session.group("_".join(map(str, part)), after=[groups[other] for other in advanced(part)])
                    groups[part] = group
                    with group:
                        run, check = lengths_of(part)
                        done = group.command(f"sleep {run / scale:.4f}", name="run", release=True)
                        group.command(f"sleep {check / scale:.4f}", name="ver", after=[done])


def prepare_blast(folder: Path, pieces: int, searched: int) -> list[str]:
    """A database of proteins, and queries in files of unlike sizes."""
    for program in ("seqret", "getorf", "makeblastdb", "blastp"):
        if shutil.which(program) is None:
            raise SystemExit(f"there is no {program}: apt-get install ncbi-blast+ emboss emboss-test")
    frames = ["-minsize", "300", "-find", "1", "-outseq", "orf.fa", "-auto"]
    for words in (
        ["seqret", "-sequence", str(SWISS), "-sformat", "swiss", "-outseq", "sw.fa", "-osformat", "fasta", "-auto"],
        ["getorf", "-sequence", str(HUMAN), "-sformat", "embl", *frames],
    ):
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
    proteins = (folder / "orf.fa").read_text().split(">")[1:]
    (folder / "all.fa").write_text((folder / "sw.fa").read_text() + "".join(f">{one}" for one in proteins))
    names, at = [], 0
    searched = min(searched, len(proteins))
    for number in range(pieces):
        many = max(1, round(searched * 2 * (number + 1) / (pieces * (pieces + 1))))  # the last is the longest
        names.append(f"q{number:02d}.fa")
        (folder / names[-1]).write_text("".join(f">{one}" for one in proteins[at : at + many]))
        at += many
    return names


def blast(name: str, cores: int, policy: str, queries: list[str]) -> None:
    """Make the database, search, gather; live."""
    with bough.Session(name=name, cores=cores, policy=policy, reuse="never") as session:
        made = session.command("makeblastdb -in all.fa -dbtype prot -out db.fa -logfile db.log", name="database")
        hits = [
            session.command(BLAST, q=query, o=f"{name}/{query}.hits", after=[made], name=f"search-{query[1:3]}")
            for query in queries
        ]
        session.command(f"cat {name}/*.hits | sort -k11,11g > {name}/best.txt", after=hits, name="gather")


def recorded(folder: Path, name: str) -> RecordedRun:
    """The run that a store holds."""
    return recorded_run(recorded_graph(str(folder / name)))


def main() -> None:
    """Run what is asked for, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["checkers", "blast"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=500.0, help="of checkers: how much faster than the thesis")
    parser.add_argument("--pieces", type=int, default=24, help="of BLAST: files of queries")
    parser.add_argument("--proteins", type=int, default=500, help="of BLAST: how many are looked for")
    parser.add_argument("--folder", help="where to work; the journals stay there")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = study(args.what, args)
    if args.json:
        print(json.dumps(found))
        return
    print(f"{'run':>3} {'earlier s':>10} {'predicted s':>12} {'actual s':>9} {'error':>7} {'load':>6}")
    for number, one in enumerate(found, 1):
        print(
            f"{number:>3} {one['earlier']:>10.2f} {one['predicted']:>12.2f} {one['actual']:>9.2f}"
            f" {one['error']:>+7.1%} {one['load']:>6.1f}"
        )
    print(f"mean of |error| {fmean(abs(one['error']) for one in found):.1%}")


def study(what: str, args: argparse.Namespace) -> list[dict[str, float]]:
    """Earlier runs, predictions, runs."""
    folder = Path(args.folder or tempfile.mkdtemp(prefix="bough-prediction-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    store = folder / ".bough"
    queries = prepare_blast(folder, args.pieces, args.proteins) if what == "blast" else []

    def run(name: str, cores: int, policy: str) -> RecordedRun:
        if what == "checkers":
            checkers(name, cores, policy, args.scale)
        else:
            (folder / name).mkdir()
            blast(name, cores, policy, queries)
        return recorded(store, name)

    found: list[dict[str, float]] = []
    earlier = None
    for number in range(1, args.runs + 1):
        if earlier is None or what == "blast":
            earlier = run(f"earlier{number}", *((4, "fifo") if what == "checkers" else (1, "fifo")))
        cores, policy = (8, "critical-path") if what == "checkers" else (2, "ljf")
        expected = predict(earlier, cores=cores, policy=policy).makespan
        actual = run(f"run{number}", cores, policy).makespan
        error = (expected - actual) / actual
        load = os.getloadavg()[0]
        found.append(
            {"earlier": earlier.makespan, "predicted": expected, "actual": actual, "error": error, "load": load}
        )
        print(f"run {number}: {expected:.2f} predicted, {actual:.2f} actual", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
