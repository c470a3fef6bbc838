"""The parsing stage for one protein: BLAST's table of homologues becomes weighted keywords and places, as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path


def extract(table: str) -> dict[str, dict[str, float]]:
    keywords: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for line in table.splitlines():
        _, _, _, score, title = line.split("\t")
        facts = dict(word.split("=", 1) for word in title.split() if "=" in word)
        places[facts["place"]] += float(score)
        for keyword in facts["keywords"].split(","):
            keywords[keyword] += float(score)
    return {"keywords": dict(sorted(keywords.items())), "places": dict(sorted(places.items()))}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(json.dumps(extract(source.read_text())) + "\n")
