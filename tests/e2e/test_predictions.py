"""A live run predicted from an earlier one with other cores and another policy, and a run replayed (small versions).

`tests/bench/prediction.py` does it with 638 groups and with BLAST. Tasks sleep, so that load matters little; the bound
is loose, and far from what a wrong number of cores or lost dependencies would give.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from workshop import Workshop

from bough.sim.platforms.platform import read_platform

LINES = [f"a{n}: :: sleep {0.05 * (1 + n % 5):.2f}" for n in range(20)]
LINES += [f"b{n}: after=a{n} :: sleep 0.10" for n in range(20)]
LINES += [f"end: after={','.join(f'b{n}' for n in range(20))} :: sleep 0.5"]
WORK = sum(0.05 * (1 + n % 5) + 0.10 for n in range(20))


def _bough(folder: Path, *words: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BOUGH")}
    done = subprocess.run(
        [sys.executable, "-m", "bough.cli.main", *words],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("predicted")
    (made / "early.txt").write_text("\n".join(LINES) + "\n")
    (made / "late.txt").write_text("\n".join(LINES) + "\n")
    _bough(made, "run", "early.txt", "--cores", "2", "--policy", "fifo")
    _bough(made, "run", "late.txt", "--cores", "6", "--policy", "ljf")
    return made


def _replay(folder: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_bough(folder, "simulate", "--json", *words))
    return found


def test_a_run_is_predicted_from_an_earlier_one_with_other_cores_and_another_policy(folder: Path) -> None:
    # three executors of two cores each stand for one of six
    said = _replay(folder, "--replay", "early", "--scale-hosts", "3", "--policy", "ljf")
    (predicted,) = said["what_if"]
    assert (predicted["cores"], predicted["policy"]) == (6, "ljf")
    actual = _replay(folder, "--replay", ".bough/late")["actual"]
    assert actual >= WORK / 6 + 0.5
    assert predicted["makespan"] == pytest.approx(actual, rel=0.25)
    assert predicted["makespan"] < 0.7 * said["actual"]


def test_a_replay_meets_the_run_that_was_task_by_task(folder: Path) -> None:
    said = _replay(folder, "--replay", ".bough/early/journal.db")
    assert (said["policy"], said["cores"], said["tasks"]) == ("fifo", 2, 41)
    assert abs(said["error"]) < 0.2
    by_name = {one["name"]: one for one in said["by_task"]}
    assert len(by_name) == 41
    for number in range(20):
        assert by_name[f"b{number}"]["start"] >= by_name[f"a{number}"]["end"] - 1e-6
    assert by_name["end"]["end"] == pytest.approx(said["predicted"])
    assert said["calibration"]["startup"] >= 0


def test_a_store_is_a_workload_like_any_file(folder: Path) -> None:
    (row,) = json.loads(_bough(folder, "simulate", ".bough/early", "--cores", "1", "--json"))["policies"]
    assert WORK + 0.5 <= row["makespan"] < 2 * (WORK + 0.5)


def test_the_sites_of_a_service_become_a_platform(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop")
    try:
        shop.start()
        shop.executor("--site", "lab", cores=2)
        shop.executor("--site", "lab", cores=2)
        shop.executor("--site", "desk", cores=1)
        shop.bough("submit", "--wait", "--", "true")
        text = shop.bough("site", "list", "--as-platform").stdout
        platform = read_platform(text)
        assert {name: site.cores for name, site in platform.site.items()} == {"lab": 4, "desk": 1}
        (shop.folder / "mine.toml").write_text(text)
        (shop.folder / "list.txt").write_text("".join(f"t{n}: attr.seconds=3 :: true\n" for n in range(5)))
        said = json.loads(shop.bough("simulate", "list.txt", "--platform", "mine.toml", "--json").stdout)
        assert said["policies"][0]["makespan"] == 3.0  # five cores
    finally:
        shop.clean_up()
