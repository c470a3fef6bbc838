"""Monitors wherever work is submitted: the plan goes along, and what watches a task counts for its memo key."""

from __future__ import annotations

from pathlib import Path

import pytest

import bough
from bough.errors import BadValue
from bough.monitors import After, Plateau, Regex

PATIENCE = 60.0


def identity(x: int) -> int:
    return x


def run(folder: Path, late: str, limit: int) -> list[bool]:
    """A run of work of every kind; which of it was reused. `limit` is a value that a function of a monitor uses."""
    with bough.Session(store=str(folder / "store"), name="flow", reuse="always") as s:
        when = Regex("stdout", "x=([0-9]+)", when=lambda groups: int(groups[0]) > limit, do="fail")
        command = s.command("echo x=1", monitors=[Plateau("score=(.*)"), when])
        call = s.options(monitors=[late]).submit(identity, 3)
        mapped = s.options(monitors=late).map(identity, range(5))
        with s.group("g", monitors=[late]):
            inner = s.submit(identity, 4)
            swept = s.sweep("echo {x}", bough.product(x=[1, 2]))
        fed = s.feed(identity, range(3), monitors=[late])
        fed.wait_all(PATIENCE)
        plain = s.submit(identity, 5)
        tasks = [command, call, mapped[4], inner, swept[1], fed[2], plain]
        for task in tasks:
            task.result(PATIENCE)
        return [task.reused for task in tasks]


def test_a_run_again_reuses_what_was_watched_alike_and_nothing_else(tmp_path: Path) -> None:
    assert run(tmp_path, "after:1h -> fail", 5) == [False] * 7
    assert run(tmp_path, "after:1h -> fail", 5) == [True] * 7
    assert run(tmp_path, "after:1h -> fail", 6) == [False, *[True] * 6]
    assert run(tmp_path, "after:2h -> fail", 6) == [True, *[False] * 5, True]


def test_monitors_are_added_to_what_is_submitted_or_runs(tmp_path: Path) -> None:
    with bough.Session(store=str(tmp_path / "store"), name="flow") as s:
        task = s.command("sleep 0.2")
        array = s.sweep("sleep {x}", bough.product(x=[0.1, 0.2, 0.3]))
        with s.group("g") as group:
            inner = s.submit(identity, 1)
        task.monitor("after:1h -> fail", After("2h"))
        array.monitor(After("1h"))
        array[1:].monitor(After("2h"))
        group.monitor("memory:1TB -> fail")
        s.array([task, inner]).monitor("after:3h")
        found = s.find(str(array.id))
        found.monitor("after:4h")
        with pytest.raises(BadValue, match="no regular expression"):
            task.monitor("regex:(")
        for one in (task, inner, *array):
            one.result(PATIENCE)


def test_a_bad_monitor_is_refused_before_anything_is_submitted(tmp_path: Path) -> None:
    with bough.Session(store=str(tmp_path / "store"), name="flow") as s:
        for bad in ("regex:(", "plateau:score,25", 3):
            for submit in (
                lambda bad=bad: s.command("true", monitors=[bad]),
                lambda bad=bad: s.sweep("true {x}", bough.product(x=[1]), monitors=[bad]),
                lambda bad=bad: s.feed(identity, [1], monitors=[bad]),
                lambda bad=bad: s.options(monitors=[bad]),
                lambda bad=bad: s.group("g", monitors=[bad]),
            ):
                with pytest.raises(BadValue):
                    submit()
        assert sum(s.progress.counts().values()) == 0
        s.group("g").close()  # its name was not taken by those that were refused
