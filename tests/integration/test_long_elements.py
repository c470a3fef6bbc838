"""Elements that turn out to be long: nothing of their span waits behind them while there is a free slot.

Spans hold elements that were short so far. Each test first shows Bough short ones, then gives it a span whose first
element waits for a gate, which is opened only when all others have ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bough

PATIENCE = 60.0
MANY = 40


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bough.Session]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    with bough.Session(cores=2) as made:
        yield made
        (tmp_path / "gate").touch()  # also after a test that failed, whose tasks still wait


def passes(gate: str, number: int) -> int:
    """Wait for a gate, if one is named."""
    deadline = time.monotonic() + 2 * PATIENCE
    while gate and not os.path.exists(gate):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return number


def fails_behind(gate: str, number: int) -> int:
    if passes(gate, number) % 2:
        raise ValueError(number)
    return number


def gates(path: Path) -> list[str]:
    return [str(path), *[""] * (MANY - 1)]


def test_functions_do_not_wait_behind_a_long_one(session: bough.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    session.map(passes, [""] * 2000, range(2000)).wait_all(PATIENCE)
    array = session.map(passes, gates(gate), range(MANY))
    assert [task.result(PATIENCE) for task in array[1:].tasks()] == list(range(1, MANY))
    assert not array[0].done()
    gate.touch()
    assert array.results() == list(range(MANY))
    assert {task.attempts for task in array.tasks()} == {1}


def test_functions_with_a_limit_do_not_either(session: bough.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    limited = session.options(timeout=4 * PATIENCE)
    limited.map(passes, [""] * 2000, range(2000)).wait_all(PATIENCE)
    array = limited.map(passes, gates(gate), range(MANY))
    assert [task.result(PATIENCE) for task in array[1:].tasks()] == list(range(1, MANY))
    gate.touch()
    assert array.results() == list(range(MANY))


def test_a_long_one_that_fails_costs_nobody_else(session: bough.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    session.map(fails_behind, [""] * 2000, range(0, 4000, 2)).wait_all(PATIENCE)
    array = session.map(fails_behind, gates(gate), range(1, MANY + 1))
    assert array[1].result(PATIENCE) == 2
    gate.touch()
    found = array.results(errors="return")
    assert [isinstance(one, ValueError) for one in found] == [number % 2 == 1 for number in range(1, MANY + 1)]


def test_loose_calls_do_not_wait_behind_a_long_one(session: bough.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    for task in [session.submit(passes, "", number) for number in range(500)]:
        task.result(PATIENCE)
    first, *others = [session.submit(passes, wait, number) for number, wait in enumerate(gates(gate))]
    assert [task.result(PATIENCE) for task in others] == list(range(1, MANY))
    gate.touch()
    assert first.result(PATIENCE) == 0


def test_commands_do_not_wait_behind_a_long_one(session: bough.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    template = "{text:raw}"
    session.sweep(template, bough.tie(text=["exit 0"] * 500)).wait_all(PATIENCE)
    array = session.sweep(template, bough.tie(text=[wait, *["exit 0"] * (MANY - 1)]))
    for task in array[1:]:
        task.result(PATIENCE)
    assert not array[0].done()
    gate.touch()
    assert array.wait_all(PATIENCE)
    assert not array.failed()
