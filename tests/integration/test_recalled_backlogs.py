"""Short tasks that wait behind long ones at one executor of a server are run by another that has nothing to do.

Each test first shows the server short tasks, so that executors are given a backlog. Then tasks come that wait for a
gate, which is opened only when all others have ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service

import bough
from bough.api.session.session import opened_sessions

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module
PATIENCE = 60.0
MANY = 60


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)
    yield made
    (tmp_path / "gate").touch()
    made.clean_up()
    opened_sessions.clear()


def passes(gate: str, number: int) -> int:
    """Wait for a gate, if one is named; otherwise take a moment."""
    deadline = time.monotonic() + 2 * PATIENCE
    time.sleep(0.005)
    while gate and not os.path.exists(gate):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return number


def test_short_tasks_do_not_wait_behind_long_ones_while_another_executor_is_idle(
    service: Service, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    service.start()
    for _ in range(2):
        service.executor(cores=2)
    with bough.Session(f"unix:{service.address}", name="w") as session:
        session.map(passes, [""] * 600, range(600)).wait_all(PATIENCE)
        loose = [session.submit(passes, str(gate) if at in {0, 1} else "", at) for at in range(MANY)]
        assert [one.result(PATIENCE) for one in loose[2:]] == list(range(2, MANY))
        assert not any(one.done() for one in loose[:2])
        gate.touch()
        assert [one.result(PATIENCE) for one in loose[:2]] == [0, 1]
