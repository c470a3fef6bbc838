"""Numbers that tasks report of themselves, from inside to the script: `bough.here().report` and `bough here report`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bough
from bough.errors import TaskFailed, UserError
from bough.monitors import Metric, Plateau, Reported

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


def levels_off(floor: float) -> str:
    here = bough.here()
    for step in range(1, 201):
        here.report(step=step, total=200, score=max(floor, 1 / step))
        time.sleep(0.001)
    return "whole"


def test_monitors_watch_what_tasks_report(session: bough.Session) -> None:
    here = f"{sys.executable} -m bough.cli.main here report"
    with session as s:
        flat = Plateau(metric="score", window=10, below=1e-6, total=200)
        one = s.options(monitors=[flat]).submit(levels_off, 0.1)
        many = s.options(monitors=["plateau:reported:score,10,1e-6"]).map(levels_off, [0.2, 0.5])
        low = s.options(monitors=[Reported("score", below=0.05, do="fail too low")]).submit(levels_off, 0.0)
        both = "reported:loss,below=1.5 then reported:loss,above=1.5"
        command = s.command(f"for i in 2 1 2; do {here} loss=$i; done; exec sleep 600", monitors=[both])
        assert one.result(PATIENCE).ended_by == "ended by plateau after 19 of 200 values: std 0 < 0.000001"
        assert [task.result(PATIENCE).monitor for task in many.tasks()] == ["plateau", "plateau"]
        with pytest.raises(TaskFailed, match=r"too low \(ended by reported: 0.0476 < 0.05\)"):
            low.result(PATIENCE)
        assert command.result(PATIENCE).ended_by == "ended by reported: 2 > 1.5"
        assert one.series("score")[-1].value == 0.1


def test_monitors_of_reported_numbers_are_checked_when_they_are_made(tmp_path: Path) -> None:
    for wrong, message in (
        (Plateau, "needs a pattern"),
        (lambda: Plateau(metric=""), "metric is ''"),
        (lambda: Plateau(metric="score", where="run.log"), "found by a pattern"),
        (lambda: Reported(""), "metric is ''"),
        (lambda: Metric("score=(.*)", where="reported"), "recorded already"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()


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
