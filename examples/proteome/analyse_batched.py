"""Analyses a proteome: BLAST against a database, keywords of the homologues, motifs with HMMER, then a prediction.

The same program with job groups: each phase issues its programs, batched, and ends with a barrier.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from bough import driver

HERE = Path(__file__).parent


def phase(name, commands, by_four=False):
    """Run the programs of a phase, a few in one submission; what fails is told, and the others go on."""
    driver.set_group(name, 4 if by_four else None)
    for command in commands:
        driver.exec_async(command, group=name)
    failed = sum(code != 0 for code in driver.wait_all())
    print(f"{name}: {len(commands)} programs, {failed} failed")


def analyse(data, out, by_four=False):
    """All phases; returns the prediction for each protein."""
    proteins = sorted((data / "proteome").glob("*.fa"))
    out.mkdir(parents=True, exist_ok=True)
    database = out / "database"
    driver.exec_sync(["makeblastdb", "-in", data / "database.fa", "-dbtype", "prot", "-out", database])
    hits = {protein: out / f"{protein.stem}.hits" for protein in proteins}
    words = {protein: out / f"{protein.stem}.json" for protein in proteins}
    fields = "6 qseqid sseqid evalue bitscore stitle"
    phase(
        "BLAST",
        [
            ["blastp", "-query", p, "-db", database, "-evalue", "1e-5", "-outfmt", fields, "-out", hits[p]]
            for p in proteins
        ],
        by_four,
    )
    phase("parsing", [[sys.executable, HERE / "extract.py", hits[p], words[p]] for p in proteins], by_four)
    motifs = find_motifs(data, out, by_four) if shutil.which("hmmsearch") else {}
    return {
        protein.stem: predict(json.loads(words[protein].read_text()), motifs.get(protein.stem)) for protein in proteins
    }


def find_motifs(data, out, by_four):
    """The family whose model fits a protein best."""
    (out / "proteome.fa").write_text("".join(path.read_text() for path in sorted((data / "proteome").glob("*.fa"))))
    families = sorted((data / "families").glob("*.afa"))
    models = {family: out / f"{family.stem}.hmm" for family in families}
    tables = {family: out / f"{family.stem}.tbl" for family in families}
    quiet = ["-o", os.devnull]
    phase("models", [["hmmbuild", *quiet, models[f], f] for f in families], by_four)
    search = ["hmmsearch", *quiet, "--cpu", "1", "-E", "1e-5", "--tblout"]
    phase("motifs", [[*search, tables[f], models[f], out / "proteome.fa"] for f in families], by_four)
    best = {}
    for family, table in tables.items():
        for line in table.read_text().splitlines():
            if not line.startswith("#"):
                protein, score = line.split()[0], float(line.split()[5])
                best[protein] = max(best.get(protein, (0.0, "")), (score, family.stem))
    return {protein: family for protein, (_, family) in best.items()}


def predict(features, motif):
    """The place with the greatest weight among the homologues, the three strongest keywords, the family."""
    places, keywords = features["places"], features["keywords"]
    strongest = sorted(keywords, key=lambda word: (-keywords[word], word))[:3]
    return {"place": max(places, key=places.get, default="unknown"), "keywords": sorted(strongest), "family": motif}


def main():
    parser = argparse.ArgumentParser(description="Predict where the proteins of a proteome work.")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--by-four", action="store_true", help="four programs in each submission; else as many as Bough sees fit"
    )
    args = parser.parse_args()
    found = analyse(args.data, args.out, args.by_four)
    (args.out / "predictions.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{len(found)} proteins: {args.out / 'predictions.json'}")


if __name__ == "__main__":
    main()
