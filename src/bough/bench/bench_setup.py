"""What live measurements run on: a warm session beside a warm process pool, or a service of the measurement's own.

Rule: session and pool are opened when a measurement first asks for them, and shared until one needs the machine for
itself. Nothing is deleted between measurements, because deleting slows down what follows.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import bough
from bough.bench import timed_functions
from bough.bench.timing import Side, family
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.session.session import Session
    from bough.api.submit.submitter import Submitter

WORKERS = 2
ROUNDS = 3
QUICK_SECONDS = 10.0  # for a row of the quick form: a slow machine gets fewer rounds
_UP = 30.0  # seconds that a process has to come up
_numbers = itertools.count(1)


class Pair(NamedTuple):
    """A session and a pool, both with two warm workers."""

    session: Session
    pool: ProcessPoolExecutor

    def ours(self, run: Callable[[], object]) -> Side:
        """A run of the session."""
        return session_side(self.session, run)

    def theirs(self, run: Callable[[], object]) -> Side:
        """A run of the pool."""
        return Side(run, lambda: [os.getpid(), *self.pool._processes])

    def settle(self) -> None:
        """Let the server finish what it does in quiet moments."""
        self.session.ask(questions.Project())


def session_side(session: Session, run: Callable[[], object]) -> Side:
    """A run of an embedded session."""
    return Side(run, lambda: [os.getpid(), *family(session.pid)], lambda: session.ask(questions.Project()))


class BenchSetting:
    """Where the measurements of one run of the benchmarks take place, and how thorough they are."""

    def __init__(self, folder: str, *, full: bool = False) -> None:
        self.folder = folder
        self.full = full
        self.row_seconds = math.inf if full else QUICK_SECONDS
        self._stack = ExitStack()
        self._pair: Pair | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def size(self, quick: int, full: int) -> int:
        """One number or the other."""
        return full if self.full else quick

    def pair(self) -> Pair:
        """The session and the pool, opened if they are not."""
        if self._pair is None:
            self._pair = self._stack.enter_context(pair(self.folder))
        return self._pair

    def clear(self) -> None:
        """Close them: what comes next has the machine for itself."""
        self._pair = None
        self._stack.close()


def store(folder: str) -> str:
    """A new place for a store."""
    return os.path.join(folder, f"store{next(_numbers)}")


@contextmanager
def pair(folder: str) -> Iterator[Pair]:
    """Open the two, and warm them."""
    with (
        bough.Session(name="bench", store=store(folder), cores=WORKERS) as session,
        ProcessPoolExecutor(WORKERS) as pool,
    ):
        warm(session)
        warm(pool)
        found = Pair(session, pool)
        found.settle()
        yield found


def submit_numbers(submitter: Submitter, kind: str, count: int) -> Iterator[object]:
    """So many tasks as one array, or one by one; an iterator over their values, which are the numbers."""
    if kind == "array":
        return iter(submitter.map(timed_functions.same, range(count)))
    tasks = [submitter.submit(timed_functions.same, number) for number in range(count)]
    return (task.result() for task in tasks)


def warm(executor: Executor) -> None:
    """Let every worker have loaded what it needs."""
    for _ in range(3):
        list(executor.map(timed_functions.same, range(100)))
        for future in [executor.submit(timed_functions.nothing) for _ in range(20)]:
            future.result()


# --- a service of the measurement's own ---------------------------------------------------------------


class Home:
    """A server with a $BOUGH_HOME of its own, and its executors."""

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
        """What the server wrote about itself."""
        try:
            with open(os.path.join(self.folder, "server", "server.json"), "rb") as file:
                return dict(json.loads(file.read()))
        except (OSError, ValueError):
            return {}

    def serve(self) -> None:
        """Start the server; it serves when this returns."""
        self.server = server = self._start("server", "start", "--listen", "127.0.0.1:0")
        until(lambda: self.note().get("pid") == server.pid)

    def execute(self, cores: int, *words: str, tls: bool = True) -> None:
        """Start an executor."""
        where = self.access("execute") if tls else self.socket
        self.executors.append(self._start("executor", "start", "--server", where, "--cores", str(cores), *words))

    @property
    def socket(self) -> str:
        """The address of the server's Unix socket."""
        return f"unix:{self.note()['socket']}"

    def access(self, role: str) -> str:
        """A file with the address for TLS."""
        path = os.path.join(self.folder, f"{role}.json")
        if not os.path.exists(path):
            command = [sys.executable, "-m", "bough.cli.main", "server", "access", "--role", role, "--output", path]
            subprocess.run(command, env=self.environment, check=True, capture_output=True)
        return path

    def side(self, session: Session, run: Callable[[], object]) -> Side:
        """A run of one of its sessions."""
        return Side(run, lambda: self.pids, lambda: session.ask(questions.Project()))

    @property
    def pids(self) -> list[int]:
        """All processes, this one among them."""
        processes = [process for process in (self.server, *self.executors) if process is not None]
        return [os.getpid(), *(pid for process in processes for pid in family(process.pid))]

    def kill(self) -> None:
        """Kill the server alone."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def end(self) -> None:
        """Kill everything."""
        for process in (*self.executors, self.server):
            if process is not None:
                process.kill()
                process.wait()


@contextmanager
def home(folder: str) -> Iterator[Home]:
    """A home that is there until the block is left."""
    made = Home(folder)
    try:
        yield made
    finally:
        made.end()


def until(condition: Callable[[], object]) -> None:
    """Wait for something that must come about."""
    end = time.monotonic() + _UP
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("a process of the benchmark did not come up in time; see its log")
        time.sleep(0.002)
