"""Numbers that tasks report of themselves, from inside to the script: `bough.here().report` and `bough here report`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bough
from bough.errors import TaskFailed, UserError

PATIENCE = 60.0


def until(met: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def climbs(steps: int) -> int:
    here = bough.here()
    for step in range(1, steps + 1):
        here.report(step=step, total=steps, score=step / 2, loss=-step)
    return steps


def waits_after_reporting(flag: str) -> None:
    bough.here().report(score=3.0)
    while not Path(flag).exists():
        time.sleep(0.02)


def reports(value: object) -> None:
    bough.here().report(score=value)  # type: ignore[arg-type]


@pytest.fixture
def session(tmp_path: Path) -> bough.Session:
    return bough.Session(store=str(tmp_path / "store"), name="flow")


def test_what_functions_report_is_a_series_of_their_task_also_after_the_session(session: bough.Session) -> None:
    with session as s:
        one = s.submit(climbs, 5)
        many = s.map(climbs, [1, 2, 3])
        loose = [s.submit(climbs, 2) for _ in range(50)]
        assert many.results(timeout=PATIENCE) == [1, 2, 3]
        assert one.result(PATIENCE) == 5
        assert [(point.step, point.value) for point in one.series("score")][-1] == (5, 2.5)
        assert [[point.value for point in found] for found in many.series("loss")] == [[-1], [-1, -2], [-1, -2, -3]]
        assert [len(found) for found in many[1:].series("loss")] == [2, 3]
        for task in loose:
            task.result(PATIENCE)
            assert [point.value for point in task.series("score")] == [0.5, 1.0]
        assert s.array(loose[:2]).series("score") == [task.series("score") for task in loose[:2]]
        assert one.series("nothing") == []
    assert one.progress == (5, 5, 1.0, {"score": 2.5, "loss": -5.0})
    assert [len(found) for found in many.series("score")] == [1, 2, 3]


def test_it_is_there_while_the_task_runs(session: bough.Session, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with session as s:
        task = s.submit(waits_after_reporting, str(flag))
        until(lambda: task.series("score"))
        assert not task.done()
        assert task.progress == (1, None, None, {"score": 3.0})
        flag.touch()
        task.result(PATIENCE)


def test_commands_report_by_their_own_words(session: bough.Session) -> None:
    here = f"{sys.executable} -m bough.cli.main here report"
    text = f"for i in 1 2 3; do {here} step=$((10*i)) energy=-$i.5 --total 30; done"
    with session as s:
        task = s.command(text)
        task.result(PATIENCE)
        assert [(point.step, point.value) for point in task.series("energy")] == [(10, -1.5), (20, -2.5), (30, -3.5)]
        assert task.progress.share == 1.0
        for wrong, message in (
            ("energy", "NAME=N"),
            ("=3", "NAME=N"),
            ("e=nan", "finite"),
            ("step=1", "needs numbers"),
        ):
            failed = s.command(f"{here} {wrong}")
            with pytest.raises(TaskFailed, match="exit code 2"):
                failed.result(PATIENCE)
            assert message in failed.stderr


@pytest.mark.parametrize(
    ("value", "message"), [("much", "report numbers"), (float("inf"), "finite"), (1e301, "bounds")]
)
def test_what_is_no_number_is_refused_in_the_task(session: bough.Session, value: object, message: str) -> None:
    with session as s, pytest.raises(UserError, match=message):
        s.submit(reports, value).result(PATIENCE)


def test_a_later_attempt_begins_a_series_of_its_own(session: bough.Session, tmp_path: Path) -> None:
    def fails_once(flag: str) -> None:
        there = Path(flag).exists()
        bough.here().report(score=2.0 if there else 1.0)
        Path(flag).touch()
        if not there:
            raise ValueError("as it should")

    with session as s:
        task = s.options(retries=1).submit(fails_once, str(tmp_path / "flag"))
        task.result(PATIENCE)
        assert [point.value for point in task.series("score")] == [2.0]
