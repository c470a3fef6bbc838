"""The executor of a session's server: when it is started, with a real process that only waits."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest

from bough.server.embedded import local_executor
from bough.server.embedded.local_executor import ExecutorCommand, LocalExecutor

PATIENCE = 60.0


class Sleeper(ExecutorCommand):
    """Starts something that waits to be ended."""

    __slots__ = ("started",)

    def __init__(self) -> None:
        self.started: list[int] = []

    def start(self) -> int:
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        self.started.append(os.posix_spawn(sys.executable, words, dict(os.environ)))
        return self.started[-1]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def end(loop: asyncio.AbstractEventLoop, supervisor: LocalExecutor) -> None:
    supervisor.kill()
    loop.run_until_complete(supervisor.gone(PATIENCE))


def test_one_that_was_started_before_is_not_started_again(loop: asyncio.AbstractEventLoop) -> None:
    command = Sleeper()
    pid = command.start()
    supervisor = LocalExecutor(loop, command, pid, lambda: None)
    supervisor.need()
    assert command.started == [pid]
    end(loop, supervisor)


def test_one_that_was_spared_starts_when_it_is_needed_and_once(loop: asyncio.AbstractEventLoop) -> None:
    command = Sleeper()
    supervisor = LocalExecutor(loop, command, 0, lambda: None)
    assert command.started == []
    supervisor.need()
    supervisor.need()
    assert command.started == [supervisor.pid]
    end(loop, supervisor)


def test_one_that_nobody_needs_starts_after_a_while(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_executor, "_SPARE", 0.01)
    command = Sleeper()
    supervisor = LocalExecutor(loop, command, 0, lambda: None)

    async def started() -> None:
        while not supervisor.pid:
            await asyncio.sleep(0.005)

    loop.run_until_complete(asyncio.wait_for(started(), PATIENCE))
    supervisor.need()
    assert len(command.started) == 1
    end(loop, supervisor)


def test_a_session_that_ends_before_starts_none(loop: asyncio.AbstractEventLoop) -> None:
    command = Sleeper()
    supervisor = LocalExecutor(loop, command, 0, lambda: None)
    supervisor.retire()
    supervisor.need()
    loop.run_until_complete(supervisor.gone(PATIENCE))
    assert command.started == []
