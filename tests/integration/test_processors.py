"""Scripts that are told when processors come or go: at a service, and in a session of their own."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import Service, until

import bough
from bough.api.session.session import opened_sessions
from bough.errors import UserError

PATIENCE = 60.0


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made.start()
    yield made
    made.clean_up()
    opened_sessions.clear()


def test_a_script_hears_of_executors_and_sites_that_come_and_go(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    service.executor("--site", "a", cores=2)
    told: queue.Queue[dict[str, float]] = queue.Queue()
    seen: list[object] = []

    def hear(now: dict[str, float]) -> None:
        told.put(now)
        if now == {"a": 2, "b": 1}:
            raise RuntimeError("a script's own mistake")

    with bough.Session(f"unix:{service.address}", name="w") as s:
        s.on_processors(hear)
        s.on_processors(lambda now: seen.append((now, s.command("echo seen").result().stdout)))  # it may wait for tasks
        service.executor("--site", "b")
        assert told.get(timeout=PATIENCE) == {"a": 2, "b": 1}
        service.bough("site", "away", "b")
        assert told.get(timeout=PATIENCE) == {"a": 2}
        service.kill()
        service.start()
        service.bough("site", "back", "b")
        while told.get(timeout=PATIENCE) != {"a": 2, "b": 1}:  # after the restart they reconnect one by one
            continue
        until(lambda: len(seen) >= 2, "the second function")
        assert seen[:2] == [({"a": 2, "b": 1}, "seen\n"), ({"a": 2}, "seen\n")]
        with pytest.raises(UserError, match="give a function"):
            s.on_processors("print")  # type: ignore[arg-type]
    assert "a function of on_processors raised" in capfd.readouterr().err


def test_a_session_of_its_own_hears_of_its_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: queue.Queue[dict[str, float]] = queue.Queue()
    with bough.Session(cores=1) as s:
        s.on_processors(told.put)
        victim = s.submit(os.getppid).result()
        os.kill(victim, signal.SIGKILL)  # its executor, which is started again
        heard = [told.get(timeout=PATIENCE)]
        while heard[-1] != {"local": 1}:
            heard.append(told.get(timeout=PATIENCE))
        assert s.submit(sum, [1, 2]).result() == 3
