"""Rules about populations with real processes: the worse half ends at checkpoints, the first answer wins."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import bough
from bough.errors import BadValue, UnknownName, UserError, WrongType
from bough.model.monitoring.population_rules import PopulationRule
from bough.monitors.comparison import FirstAnswer, Halving, MedianRule, Rule

PATIENCE = 120.0
# prints its score at each of many steps, and waits at step 3 until all have come there
FOLD = """
import os, pathlib, sys, time
own, steps, here = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
for step in range(1, steps + 1):
    if step == 3:
        (here / str(own)).touch()
        until = time.monotonic() + 60
        while len(os.listdir(here)) < 4 and time.monotonic() < until:
            time.sleep(0.01)
    print(f"score={own}", flush=True)
    time.sleep(0.02)
print("end", flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "fold.py").write_text(FOLD)
    (tmp_path / "here").mkdir()
    return f"{sys.executable} {tmp_path}/fold.py {{own}} 1000 {tmp_path}/here"


def test_the_worse_half_ends_at_each_checkpoint(tmp_path: Path, script: str) -> None:
    with bough.Session(store=str(tmp_path / "store"), cores=4) as s:
        sweep = s.sweep(script, bough.product(own=[2, 0, 3, 1]))
        sweep.rule(Halving("score", at=[4, 8], pattern="score=([0-9]+)"))
        for index in (0, 2, 3):  # all but the best
            assert sweep[index].result(PATIENCE).ended_by
        assert not sweep[1].done()
        sweep[1].cancel()
        sweep.wait_all(PATIENCE)


def test_the_first_answer_wins(tmp_path: Path) -> None:
    with bough.Session(store=str(tmp_path / "store"), cores=4) as s, s.group("race") as race:
        race.rule(FirstAnswer())
        slow = s.sweep("sleep {seconds}", bough.product(seconds=[600] * 3))
        more = s.sweep("sleep {seconds}", bough.product(seconds=[600] * 5), after=[slow])
        quick = s.command("true")
        quick.result(PATIENCE)
        slow.wait_all(PATIENCE)
        more.wait_all(PATIENCE)
        assert (slow.counts()["cancelled"], more.counts()["cancelled"]) == (3, 5)


def test_bad_rules_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="must ascend: 8, 4"):
        Halving("score", at=[8, 4])
    with pytest.raises(BadValue, match="names no step"):
        MedianRule("score", at=[])
    with pytest.raises(BadValue, match="no regular expression"):
        Halving("score", at=[8], pattern="(")
    with bough.Session(store=str(tmp_path / "store"), cores=1) as s:
        array = s.sweep("true {n}", bough.product(n=[1, 2, 3]))
        with pytest.raises(UnknownName, match="known are: first-answer, halving, median"):
            array.rule(Rule(PopulationRule("halfing")))
        with pytest.raises(UserError, match="all tasks of an array"):
            array[1:].rule(FirstAnswer())
        with pytest.raises(WrongType, match="is no rule"):
            array.rule("halving")  # type: ignore[arg-type]
        array.rule(None)
        array.wait_all(PATIENCE)
