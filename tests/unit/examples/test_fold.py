"""The protein folder of the example: its energies are honest, its folds are folds, its dice are seeded."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[3] / "examples" / "folding" / "fold.py"
TWENTY = "HPHPPHHPHPPHPHHPPHPH"  # the 20-residue benchmark of Unger and Moult (1993), optimum -9


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("folding_fold", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fold = _load()


def _points(moves: str) -> list[complex]:
    points = [0j]
    for letter in moves:
        points.append(points[-1] + {"R": 1, "L": -1, "U": 1j, "D": -1j}[letter])
    return points


def _random_folds(length: int, count: int) -> list[list[int]]:
    dice = random.Random(5)
    walk = fold.fold_of("R" * (length - 1))
    found = []
    for _ in range(count):
        for _ in range(30):
            walk = fold.pulled(walk, dice) or walk
        found.append(walk)
    return found


def _is_walk(folded: list[int]) -> bool:
    bonds = {abs(b - a) for a, b in itertools.pairwise(folded)}
    return len(set(folded)) == len(folded) and bonds <= {1, fold.WIDTH}


def test_the_definition_counts_the_contact_of_a_square() -> None:
    assert fold.checked_energy("HHHH", "RUL") == -1
    assert fold.checked_energy("HHHP", "RUL") == 0
    assert fold.checked_energy("HHHH", "RRR") == 0


def test_the_definition_refuses_a_walk_that_crosses_itself() -> None:
    with pytest.raises(ValueError, match="crosses itself"):
        fold.checked_energy("HHHHH", "RULD")


def test_the_definition_refuses_a_walk_of_another_length() -> None:
    with pytest.raises(ValueError, match="5 residues need 4 moves, not 3"):
        fold.checked_energy("HHHHH", "RUL")


def test_pull_moves_keep_the_chain_whole_and_self_avoiding() -> None:
    assert all(_is_walk(folded) for folded in _random_folds(40, 300))


def test_pull_moves_reach_compact_folds_and_stretched_ones() -> None:
    widths = {len({point % fold.WIDTH for point in folded}) for folded in _random_folds(12, 300)}
    assert min(widths) <= 4
    assert max(widths) >= 8


def test_crossing_gives_whole_self_avoiding_chains() -> None:
    dice = random.Random(7)
    folds = _random_folds(30, 60)
    children = [fold.crossed(one, other, dice) for one, other in itertools.pairwise(folds)]
    born = [child for child in children if child is not None]
    assert born
    assert all(_is_walk(child) and len(child) == 30 for child in born)


def test_the_fast_energy_equals_the_definition() -> None:
    dice = random.Random(3)
    for folded in _random_folds(36, 200):
        sequence = "".join(dice.choice("HP") for _ in folded)
        assert fold.Chain(sequence).energy(folded) == fold.checked_energy(sequence, fold.moves_of(folded))


def test_a_fold_keeps_its_shape_as_moves() -> None:
    for folded in _random_folds(25, 50):
        moves = fold.moves_of(folded)
        assert fold.moves_of(fold.fold_of(moves)) == moves
        assert moves[0] == "R"


def test_scores_never_get_worse_and_match_the_fold() -> None:
    history = list(fold.search(TWENTY, seed=4, iterations=30))
    scores = [score for score, _ in history]
    assert scores == sorted(scores, reverse=True)
    assert len(set(_points(history[-1][1]))) == len(TWENTY)
    assert all(score == fold.checked_energy(TWENTY, moves) for score, moves in history)


def test_the_twenty_residue_benchmark_reaches_its_known_optimum() -> None:
    assert list(fold.search(TWENTY, seed=1, iterations=100))[-1][0] == -9


def test_a_search_that_starts_from_a_fold_is_never_worse_than_it() -> None:
    energy, moves = list(fold.search(TWENTY, seed=2, iterations=20))[-1]
    assert next(fold.search(TWENTY, seed=9, iterations=1, start=moves))[0] <= energy


@pytest.mark.parametrize("sequence", ["", "HPX", "HPH", "H" * 401])
def test_a_sequence_that_is_no_chain_of_h_and_p_is_refused(sequence: str) -> None:
    with pytest.raises(ValueError, match="a sequence"):
        fold.Chain(sequence)


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), TWENTY, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_same_seed_prints_and_writes_the_same(tmp_path: Path) -> None:
    runs = [_run(tmp_path, "--seed", "3", "--iterations", "20", "--out", name) for name in ("a.json", "b.json")]
    assert [run.returncode for run in runs] == [0, 0]
    assert runs[0].stdout == runs[1].stdout
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_it_prints_a_line_per_iteration_and_writes_the_last_score(tmp_path: Path) -> None:
    run = _run(tmp_path, "--seed", "3", "--iterations", "12", "--out", "a.json")
    lines = run.stdout.splitlines()
    written = json.loads((tmp_path / "a.json").read_text())
    assert len(lines) == 12
    assert lines[-1].split() == ["iteration", "12", "score", str(written["energy"])]
    assert fold.checked_energy(TWENTY, written["moves"]) == written["energy"] == written["scores"][-1]


def test_it_starts_from_a_written_fold(tmp_path: Path) -> None:
    _run(tmp_path, "--seed", "3", "--iterations", "40", "--out", "a.json")
    run = _run(tmp_path, "--seed", "8", "--iterations", "5", "--start", "a.json", "--out", "b.json")
    assert run.returncode == 0
    first, second = (json.loads((tmp_path / name).read_text())["energy"] for name in ("a.json", "b.json"))
    assert second <= first


def test_a_start_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    run = _run(tmp_path, "--seed", "3", "--start", "missing.json")
    assert run.returncode == 2
    assert "missing.json" in run.stderr


def test_a_program_that_is_told_to_end_writes_what_it_has_found(tmp_path: Path) -> None:
    out = tmp_path / "fold.json"
    command = [sys.executable, str(PROGRAM), "HPHPPHHPHPPHPHHPPHPH", "--seed", "7", "--iterations", "100000"]
    with subprocess.Popen([*command, "--pad", "0.01", "--out", str(out)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for _ in range(5):
            running.stdout.readline()
        running.terminate()
        rest = running.stdout.read().splitlines()
    assert running.returncode == 0
    written = json.loads(out.read_text())
    assert len(written["scores"]) == 5 + len(rest)
    assert written["energy"] == fold.checked_energy("HPHPPHHPHPPHPHHPPHPH", written["moves"])
