"""The service: throughput through TLS beside the embedded session's, and how soon a killed server serves again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import calls
from setting import WORKERS, store
from timing import Row, Side, compare, cpu_each, family, milliseconds, per_second

import bough

_UP = 30.0  # seconds that anything has to come up


class Home:
    """A server and executors of their own, in the foreground."""

    def __init__(self, folder: str) -> None:
        self.folder = store(folder)
        os.makedirs(self.folder)
        self.environment = {**os.environ, "BOUGH_HOME": self.folder}
        self.server: subprocess.Popen[bytes] | None = None
        self.executors: list[subprocess.Popen[bytes]] = []

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with open(os.path.join(self.folder, "log"), "ab") as log:
            command = [sys.executable, "-m", "bough.cli.main", *words]
            return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def note(self) -> dict[str, Any]:
        try:
            return dict(json.loads(Path(self.folder, "server", "server.json").read_bytes()))
        except (OSError, ValueError):
            return {}

    def serve(self) -> None:
        """Start the server; it serves when this returns."""
        self.server = server = self._start("server", "start", "--listen", "127.0.0.1:0")
        _until(lambda: self.note().get("pid") == server.pid)

    def execute(self, cores: int) -> None:
        """Start an executor that comes by TLS."""
        self.executors.append(
            self._start("executor", "start", "--server", self.access("execute"), "--cores", str(cores))
        )

    def access(self, role: str) -> str:
        path = os.path.join(self.folder, f"{role}.json")
        command = [sys.executable, "-m", "bough.cli.main", "server", "access", "--role", role, "--output", path]
        subprocess.run(command, env=self.environment, check=True, capture_output=True)
        return path

    @property
    def pids(self) -> list[int]:
        processes = [process for process in (self.server, *self.executors) if process is not None]
        return [os.getpid(), *(pid for process in processes for pid in family(process.pid))]

    def end(self) -> None:
        for process in (*self.executors, self.server):
            if process is not None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def home(folder: str) -> Iterator[Home]:
    made = Home(folder)
    try:
        yield made
    finally:
        made.end()


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _UP
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def measure(folder: str, *, full: bool) -> Iterator[Row]:
    rounds = 20 if full else 8
    with home(folder) as there:
        there.serve()
        there.execute(WORKERS)
        with (
            bough.Session(there.access("submit"), name="far") as far,
            bough.Session(name="bench", store=store(folder), cores=WORKERS) as near,
        ):
            yield _throughput(there, far, near, rounds, range(100_000))
            yield _throughput(there, far, near, rounds, list(range(100_000)))
            yield _loose(there, far, near, rounds)
    for kind in ("array", "loose"):
        yield _restart(folder, kind, 5 if full else 3)


def _sides(there: Home, far: Any, near: Any, run: Callable[[Any], object]) -> tuple[Side, Side]:
    run(far), run(near)  # both are warm
    return (
        Side(lambda: run(far), lambda: there.pids, lambda: far.ask("project")),
        Side(lambda: run(near), lambda: [os.getpid(), *family(near.pid)], lambda: near.ask("project")),
    )


def _throughput(there: Home, far: Any, near: Any, rounds: int, items: Any) -> Row:
    ours, peer = compare(*_sides(there, far, near, lambda session: list(session.map(calls.same, items))), rounds)
    count, kind = len(items), type(items).__name__
    return Row(
        f"map of {count:,} no-ops over a {kind} through TLS",
        per_second(count, ours.seconds),
        "embedded session",
        per_second(count, peer.seconds),
        peer.seconds / ours.seconds,
        target=0.7,
        cpu=cpu_each(count, ours, peer),
    )


def _loose(there: Home, far: Any, near: Any, rounds: int, count: int = 10_000) -> Row:
    def run(session: Any) -> None:
        for task in [session.submit(calls.same, number) for number in range(count)]:
            task.result()

    ours, peer = compare(*_sides(there, far, near, run), rounds)
    return Row(
        f"submit of {count:,} no-ops one by one through TLS",
        per_second(count, ours.seconds),
        "embedded session",
        per_second(count, peer.seconds),
        peer.seconds / ours.seconds,
        target=0.7,
        cpu=cpu_each(count, ours, peer),
    )


def _restart(folder: str, kind: str, rounds: int, count: int = 100_000, limit: float = 3.0) -> Row:
    """From starting a server anew to its answer, with so many tasks in the store, half of them done, and 2 running."""
    took = median(_serves_again(folder, kind, count) for _ in range(rounds))
    return Row(
        f"killed with {count:,} tasks ({kind}) in the store and 2 running, until it serves again",
        milliseconds(took),
        f"limit {limit:g} s",
        milliseconds(limit),
        took / limit,
        better="low",
        target=1.0,
    )


def _serves_again(folder: str, kind: str, count: int) -> float:
    with home(folder) as there:
        there.serve()
        there.execute(WORKERS)
        gate = os.path.join(there.folder, "gate")
        wait = f"until [ -e {gate} ]; do sleep 0.1; done"
        with bough.Session(there.access("submit"), name="far") as far:
            submit = _loosely if kind == "loose" else _as_array
            assert list(submit(far, count // 2)) == list(range(count // 2))
            running = [far.command(wait, name=f"running{number}") for number in range(WORKERS)]
            _until(lambda: all(task.running() for task in running))
            rest = submit(far, count // 2)
            far.ask("status")  # all of it has arrived
            assert there.server is not None
            there.server.kill()
            there.server.wait()
            begun = time.perf_counter()
            there.serve()
            seconds = time.perf_counter() - begun
            Path(gate).touch()
            assert list(rest) == list(range(count // 2))
    return seconds


def _as_array(session: Any, count: int) -> Iterator[int]:
    return iter(session.options(memo=False).map(calls.same, range(count)))


def _loosely(session: Any, count: int) -> Iterator[int]:
    tasks = [session.options(memo=False).submit(calls.same, number) for number in range(count)]
    return (task.result() for task in tasks)
