"""A service of its own for a measurement: a server and executors in the foreground, by Unix socket or by TLS."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bough.bench.setting import store
from bough.bench.timing import Side, family
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.session import Session

_UP = 30.0  # seconds that anything has to come up


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


@contextlib.contextmanager
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
