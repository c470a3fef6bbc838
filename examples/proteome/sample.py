"""Makes the sample data: a database of protein families with keywords, and a proteome of their distant relatives.

Nothing here is a real protein: ancestors are random, with the usual frequencies of amino acids, and relatives differ
from them by substitutions only, so that members of a family are aligned as they stand. The same seed gives the same
files.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

ACIDS = "ALGVESIKRDTPNQFYMHCW"
WEIGHTS = (8, 10, 7, 7, 7, 7, 6, 6, 5, 5, 5, 5, 4, 4, 4, 3, 2, 2, 1, 1)
KEYWORDS = ("Membrane", "Transport", "Kinase", "Ribosome", "Hydrolase", "Periplasm", "Chaperone", "DNA-binding", "Zinc")
PLACES = ("cytoplasm", "inner-membrane", "periplasm", "outer-membrane", "extracellular")


def sequence(dice: random.Random, length: int) -> str:
    return "".join(dice.choices(ACIDS, WEIGHTS, k=length))


def relative(dice: random.Random, ancestor: str, changed: float) -> str:
    return "".join(dice.choice(ACIDS) if dice.random() < changed else acid for acid in ancestor)


def make(folder: Path, proteins: int, families: int = 20, members: int = 12, seed: int = 1) -> None:
    """Write database.fa, families/*.afa and proteome/*.fa."""
    dice = random.Random(seed)
    (folder / "families").mkdir(parents=True, exist_ok=True)
    (folder / "proteome").mkdir(exist_ok=True)
    ancestors = [sequence(dice, dice.randint(200, 500)) for _ in range(families)]
    with (folder / "database.fa").open("w") as database:
        for family, ancestor in enumerate(ancestors):
            place = PLACES[family % len(PLACES)]
            words = ",".join(sorted(dice.sample(KEYWORDS, 3)))
            aligned = []
            for member in range(members):
                text = relative(dice, ancestor, 0.4)
                database.write(f">F{family:02}M{member:02} place={place} keywords={words}\n{text}\n")
                aligned.append(f">F{family:02}M{member:02}\n{text}\n")
            (folder / "families" / f"F{family:02}.afa").write_text("".join(aligned))
    for protein in range(proteins):
        text = relative(dice, dice.choice(ancestors), 0.5)
        (folder / "proteome" / f"P{protein:04}.fa").write_text(f">P{protein:04}\n{text}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make sample data for the example.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--proteins", type=int, default=60)
    args = parser.parse_args()
    make(args.folder, args.proteins)
