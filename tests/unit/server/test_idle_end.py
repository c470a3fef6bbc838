"""When a server that was started for a session ends: nobody is connected, and nothing is left to do, for a while."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from bough.core.queries.facade import Queries
from bough.model.events.news import Cancel, Hold
from bough.model.tasks import Dep, On
from bough.server.service.upkeep.idle_end import IdleEnd
from bough.testing.builders import executor, task
from tests.unit.core.core_bench import Bench


def test_it_ends_once_and_not_while_somebody_is_there_or_something_to_do() -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()
        quiet = [False]
        peers = SimpleNamespace(clients={})
        shell = SimpleNamespace(loop=loop, peers=peers, queries=SimpleNamespace(is_quiet=lambda: quiet[0]))
        ends: list[float] = []
        idle = IdleEnd(shell, 0.05, lambda: ends.append(loop.time()))  # type: ignore[arg-type]
        idle.start()
        await asyncio.sleep(0.2)
        assert not ends  # a task is left
        quiet[0] = True
        peers.clients["somebody"] = 1
        await asyncio.sleep(0.2)
        assert not ends
        peers.clients.clear()
        async with asyncio.timeout(60):
            while not ends:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert len(ends) == 1

    asyncio.run(live())


def test_one_that_is_told_to_end_does_not_end_twice() -> None:
    async def live() -> None:
        ends: list[int] = []
        shell = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            peers=SimpleNamespace(clients={}),
            queries=SimpleNamespace(is_quiet=lambda: True),
        )
        idle = IdleEnd(shell, 0.05, lambda: ends.append(1))  # type: ignore[arg-type]
        idle.start()
        idle.stop()
        await asyncio.sleep(0.2)
        assert not ends

    asyncio.run(live())


def test_tasks_that_are_ready_run_wait_or_are_held_are_left_to_do() -> None:
    bench = Bench(cores=0)
    queries = Queries(bench.machine)
    assert queries.is_quiet()
    bench.submit(task(1), task(2, 1))
    assert not queries.is_quiet()
    bench.tell(Hold(Dep(On.TASK, 2)))
    bench.tell(executor(1, 1))
    assert not queries.is_quiet()
    bench.end(1)
    assert bench.states(1, 2) == ["done", "held"]
    assert not queries.is_quiet()
    bench.tell(Cancel(Dep(On.TASK, 2)))
    assert queries.is_quiet()


def test_what_was_cancelled_while_there_was_no_executor_is_not_left_to_do() -> None:
    bench = Bench(cores=0)
    bench.submit(*(task(number) for number in range(1, 9)))
    bench.tell(*(Cancel(Dep(On.TASK, number)) for number in range(1, 9)))
    assert Queries(bench.machine).is_quiet()
