"""Choosing measurements and running them, with ones that measure nothing."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import bough.bench
from bough.bench import timed_functions
from bough.bench.bench_setup import BenchSetting
from bough.bench.catalogue import CATALOGUE, Measure, choose, run
from bough.bench.timing import BenchRow
from bough.errors import UserError


def _row(name: str) -> BenchRow:
    return BenchRow(name, "1", "", "", None)


def _measure(setting: BenchSetting) -> Iterator[BenchRow]:
    yield _row("first" if setting.full else "quick")
    yield _row(str("BOUGH_SERVER" in os.environ))


def test_without_names_the_usual_ones_are_chosen_and_all_for_the_full_form() -> None:
    assert "restart" not in choose([])
    assert list(choose([], full=True)) == list(CATALOGUE)


def test_names_are_chosen_in_the_order_of_the_catalogue() -> None:
    assert list(choose(["restart", "map"])) == ["map", "restart"]


def test_an_unknown_name_is_the_users_error_and_the_others_are_told() -> None:
    with pytest.raises(UserError, match=r"no measurement 'mop'; there are map, submit"):
        choose(["mop"])


def test_rows_are_told_as_they_come_and_no_server_of_the_user_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOUGH_SERVER", "unix:elsewhere")
    told: list[tuple[int, str, str | None]] = []
    outcome = run(
        {"a": Measure("", _measure), "b": Measure("", _measure)},
        folder=str(tmp_path),
        tell=lambda number, name, row: told.append((number, name, row and row.subject)),
    )
    assert [row.subject for row in outcome.rows] == ["quick", "False"] * 2
    assert told[:4] == [(1, "a", None), (1, "a", "quick"), (1, "a", "False"), (2, "b", None)]
    assert os.environ["BOUGH_SERVER"] == "unix:elsewhere"
    assert list(tmp_path.iterdir()) == []


def test_a_measurement_that_fails_stops_no_other(tmp_path: Path) -> None:
    def broken(setting: BenchSetting) -> Iterator[BenchRow]:
        yield _row("half")
        raise OSError("no\nport")

    rows, failures = run({"a": Measure("", broken), "b": Measure("", _measure)}, folder=str(tmp_path))
    assert [row.subject for row in rows][:2] == ["half", "quick"]
    assert failures == {"a": "OSError: no port"}


def test_every_measurement_can_be_imported() -> None:
    folder = Path(bough.bench.__file__).parent
    for path in folder.glob("[a-z]*.py"):
        importlib.import_module(f"bough.bench.{path.stem}")


def test_a_setting_that_opened_nothing_closes_nothing(tmp_path: Path) -> None:
    with BenchSetting(str(tmp_path), full=True) as setting:
        assert setting.size(1, 2) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_loops_say_how_long_they_took(tmp_path: Path) -> None:
    assert timed_functions.spawn_loop(1) > 0
    assert timed_functions.run_loop(1) > 0
    assert timed_functions.sleep_loop(2, 0.001) >= 0.002
    (tmp_path / "gate").touch()
    timed_functions.wait_for(str(tmp_path / "gate"))
