"""The folder of Jole's evaluation: its energies are honest, its dice are seeded, and it may be ended at any time."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[3] / "examples" / "folding" / "torsion.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("folding_torsion", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


torsion = _load()


def test_bonds_have_length_one_and_bends_are_the_angles() -> None:
    chain = torsion.Chain("ABBABBAB")
    dice = random.Random(3)
    angles = [dice.uniform(-3, 3) for _ in range(chain.genes)]
    points = chain.points(angles)
    bonds = [[q - p for p, q in zip(one, other, strict=True)] for one, other in itertools.pairwise(points)]
    assert [math.hypot(*bond) for bond in bonds] == pytest.approx([1.0] * 7)
    cosines = [sum(p * q for p, q in zip(one, other, strict=True)) for one, other in itertools.pairwise(bonds)]
    assert cosines == pytest.approx([math.cos(angle) for angle in angles[:6]])


def test_the_search_counts_what_the_definition_says() -> None:
    chain = torsion.Chain(torsion.FIBONACCI)
    dice = random.Random(5)
    for _ in range(50):
        angles = [dice.uniform(-1, 1) for _ in range(chain.genes)]
        assert chain.energy(angles) == pytest.approx(torsion.checked_energy(chain.sequence, chain.points(angles)))


def test_a_stretched_chain_of_three_has_the_energy_of_the_formula() -> None:
    straight = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (2.0, 0.0, 0.0)]
    assert torsion.checked_energy("ABA", straight) == pytest.approx(4 * (2**-12 - 2**-6))
    assert torsion.checked_energy("ABB", straight) == pytest.approx(4 * (2**-12 + 0.5 * 2**-6))


def test_scores_never_rise_and_depend_on_the_seed_alone() -> None:
    def scores(seed: int) -> list[float]:
        search = torsion.Search(torsion.Chain(torsion.FIBONACCI), random.Random(seed), None)
        found = []
        for _ in range(20):
            search.iterate()
            found.append(search.best[0])
        return found

    assert scores(1) == scores(1) == sorted(scores(1), reverse=True)
    assert scores(1) != scores(2)


def test_a_search_goes_on_from_a_fold_and_may_be_ended(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    command = [sys.executable, str(PROGRAM), "--seed", "7"]
    subprocess.run([*command, "--iterations", "5", "--out", str(first)], check=True, capture_output=True)
    more = [*command, "--iterations", "100000", "--pad", "0.01", "--start", str(first), "--out", str(second)]
    with subprocess.Popen(more, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for _ in range(3):
            running.stdout.readline()
        running.terminate()
        rest = running.stdout.read().splitlines()
    assert running.returncode == 0
    start, found = json.loads(first.read_text()), json.loads(second.read_text())
    assert found["score"] <= start["score"]
    assert len(found["scores"]) == 3 + len(rest)


def test_a_fold_of_another_sequence_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "fold.json"
    command = [sys.executable, str(PROGRAM), "--seed", "1", "--iterations", "2", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    refused = subprocess.run(
        [*command, "--sequence", "ABAB", "--start", str(out)], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "another sequence" in refused.stderr
