"""The checkers example: real endgame databases, from all three forms of the workflow, whoever dies meanwhile.

`BOUGH_FULL=1` computes those of four pieces, too, which takes half a minute.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from workshop import Workshop

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler: apt-get install gcc")

EXAMPLE = Path(__file__).parents[2] / "examples" / "checkers"
FULL = bool(os.environ.get("BOUGH_FULL"))
TWO = {"1100": (230, 108, 654), "0110": (53, 241, 574), "1001": (331, 6, 531), "0011": (102, 47, 611)}
THREE = TWO | {
    "2100": (14846, 0, 34),
    "1200": (412, 13018, 1450),
    "2001": (13018, 0, 2),
    "0210": (58, 12248, 714),
    "1110": (25941, 10, 89),
    "1101": (1103, 22349, 2588),
    "1011": (22792, 1, 7),
    "0111": (154, 21181, 1465),
    "0120": (11215, 4, 121),
    "1002": (687, 9411, 1242),
    "0021": (9928, 0, 8),
    "0012": (96, 9083, 757),
}
KILLER = """#!/bin/sh
case "$*" in
"1 1 0 0 0 0" | "0 0 1 1 3 2")  # the worker that runs it is killed, once
    if mkdir "killed $*" 2>/dev/null; then kill -9 $PPID; sleep 60; fi ;;
esac
exec ./solve run "$@"
"""


def _bough(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BOUGH", "CHECKERS"))}
    return subprocess.run(
        [sys.executable, "-m", "bough.cli.main", *words],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _run(folder: Path, script: str, *words: str, **environment: str) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    done = _bough(folder, "run", "--json", *words[1:], str(EXAMPLE / script), words[0], **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    counts: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return counts


def _solve(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["./solve", *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def _table(text: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(map(int, counts)) for name, *counts in map(str.split, text.splitlines())}


def _databases(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "databases").iterdir()}


def test_three_pieces_have_the_wins_losses_and_draws_that_are_known(tmp_path: Path) -> None:
    assert _run(tmp_path, "checkers.py", "3")["done"] == 355  # all verifications among them
    assert _table(_solve(tmp_path, "table", "3").stdout) == THREE
    assert sum(map(sum, THREE.values())) == 3488 + 196032  # positions in which both sides have pieces


def _told() -> dict[str, tuple[int, ...]]:
    """The tables of the page about the example."""
    found: dict[str, tuple[int, ...]] = {}
    for line in (EXAMPLE / "README.md").read_text().splitlines():
        words = [word.strip() for word in line.strip("| ").split("|")]
        for some in (words[:4], words[4:]):
            if len(some) == 4 and all(word.isdecimal() for word in some):
                found[some[0]] = tuple(map(int, some[1:]))
    return found


def test_the_page_tells_what_is_known() -> None:
    told = _told()
    assert {name: counts for name, counts in told.items() if sum(map(int, name)) < 4} == THREE
    assert len(told) == 16 + 25
    assert sum(map(sum, told.values())) == 3488 + 196032 + 6209316


@pytest.mark.skipif(not FULL, reason="half a minute of computing: BOUGH_FULL=1 includes it")
def test_four_pieces_have_the_wins_losses_and_draws_that_the_page_tells_with_any_number_of_workers(
    tmp_path: Path,
) -> None:
    killer = tmp_path / "killer"
    killer.write_text(KILLER.replace("./solve", f"{tmp_path}/two/solve"))
    killer.chmod(0o755)
    assert _run(tmp_path / "one", "checkers.py", "4", "--cores", "1")["done"] == 2 * 515 + 1
    assert _run(tmp_path / "two", "checkers.py", "4", "--cores", "3", CHECKERS_RUN=str(killer))["done"] == 2 * 515 + 1
    assert _databases(tmp_path / "one") == _databases(tmp_path / "two")
    assert len(list((tmp_path / "two").glob("killed *"))) == 2
    assert _table(_solve(tmp_path / "one", "table", "4").stdout) == _told()


def test_databases_do_not_depend_on_the_form_the_cores_or_a_killed_worker(tmp_path: Path) -> None:
    killer = tmp_path / "killer"
    killer.write_text(KILLER)
    killer.chmod(0o755)
    assert _run(tmp_path / "then", "checkers.py", "2", "--cores", "1")["done"] == 115
    assert _run(tmp_path / "now", "checkers_modern.py", "2", "--cores", "4")["done"] == 115
    assert _run(tmp_path / "killed", "checkers.py", "2", CHECKERS_RUN=str(killer))["done"] == 115
    _run(tmp_path / "script", "workflow.py", "2")
    assert len(list((tmp_path / "killed").glob("killed *"))) == 2
    found = [_databases(tmp_path / name) for name in ("then", "now", "killed", "script")]
    assert found == found[:1] * 4
    assert _table(_solve(tmp_path / "then", "table", "2").stdout) == TWO


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    made.clean_up()


def test_three_pieces_on_executors_of_which_one_is_killed(shop: Workshop) -> None:
    work = shop.folder / "work"
    work.mkdir()
    shop.start()
    first, *_ = [shop.executor() for _ in range(3)]
    shop.bough("submit", "--server", shop.address, "--name", "checkers", str(EXAMPLE / "checkers.py"), "3", cwd=work)
    shop.until((work / "databases" / "2100.00").exists, "the first database of three pieces")
    first.kill()

    def counts() -> dict[str, int]:
        return dict(json.loads(shop.bough("status", "--name", "checkers", "--json").stdout)["counts"])

    shop.until(lambda: counts()["done"] == 355, "the end")
    assert _table(_solve(work, "table", "3").stdout) == THREE


def test_the_script_prints_the_table_and_computes_again_only_what_was_removed(tmp_path: Path) -> None:
    done = _bough(tmp_path, "run", str(EXAMPLE / "workflow.py"), "2")
    assert done.returncode == 0, done.stderr
    assert _table(done.stdout) == TWO
    before = _databases(tmp_path)
    (tmp_path / "databases" / "1001.03").unlink()
    counts = _run(tmp_path, "workflow.py", "2")
    assert _databases(tmp_path) == before
    assert counts["done"] == int(str(counts["reused"])) + 3  # a part is computed and verified, and the table is made


def test_a_wrong_value_a_missing_database_and_a_half_one_are_found(tmp_path: Path) -> None:
    _run(tmp_path, "checkers.py", "2")
    file = tmp_path / "databases" / "1100.00"
    whole = file.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 3]) + whole[1:])
    wrong = _solve(tmp_path, "ver", "1", "1", "0", "0", "0", "0")
    assert wrong.returncode == 1
    assert "1100.00: position 0 has the value" in wrong.stderr
    file.write_bytes(whole[:-1])
    assert "does not have 248 bytes" in _solve(tmp_path, "ver", "1", "1", "0", "0", "0", "0").stderr
    file.unlink()
    assert "1100.00 is needed and not there" in _solve(tmp_path, "run", "0", "1", "1", "0", "6", "0").stderr


@pytest.mark.parametrize(
    "words", [(), ("run", "1"), ("run", *"110010"), ("ver", *"100000"), ("table", "x"), ("run", *"1100000a")]
)
def test_the_solver_refuses_what_makes_no_sense(tmp_path: Path, words: tuple[str, ...]) -> None:
    subprocess.run(["cc", "-o", tmp_path / "solve", EXAMPLE / "solve.c"], check=True)
    refused = _solve(tmp_path, *words)
    assert refused.returncode == 2
    assert refused.stderr.startswith("solve: ")
