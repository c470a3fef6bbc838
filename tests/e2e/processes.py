"""A session's processes seen from outside: the script, its server, executors, workers and commands, by pid.

What belongs to a store is found as its owner would find it: the server by its arguments, everything else by
the mark in its environment. Rule: a process is signalled through a descriptor taken before it was looked at,
so that a number that was given away again is never hit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bough.server.socket_path import store_id

PATIENCE = 60.0  # seconds that anything may take on a busy machine
KINDS = ("server", "executor", "worker", "command")


def until(
    condition: Callable[[], object], what: str, patience: float = PATIENCE, story: Callable[[], str] = str
) -> None:
    """Wait for a condition, with a deadline; `story` tells what is known when it has passed."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{story()}"
        time.sleep(0.005)


def read(path: str) -> bytes:
    """A file of /proc, empty when its process is gone."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def stat_of(pid: int) -> list[bytes]:
    """State, parent, group, session... of a process; empty when it is gone."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def parent_of(pid: int) -> int:
    """The parent of a process, 0 when it is gone."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def children(pid: int) -> list[int]:
    """All that came from a process and is there."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in read(f"/proc/{pid}/task/{thread}/children").split():
                found += [*children(int(child)), int(child)]
    return found


def free_port() -> int:
    """One of loopback that nobody listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    fields = stat_of(pid)
    return bool(fields) and fields[0] not in {b"Z", b"X"}


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def published(store: Path) -> dict[str, object]:
    """What a live server says of itself in its store."""
    try:
        return dict(json.loads((store / "server.json").read_text()))
    except (OSError, ValueError):
        return {}


def kill(pid: int, still: Callable[[], bool] = lambda: True, number: int = signal.SIGKILL) -> bool:
    """Signal a process if it is `still` what it was taken for; whether that was done."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(pid) or not still():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


class Processes:
    """All processes of one store."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def kind(self, pid: int) -> str:
        """What a process is, empty if it is none of ours."""
        words = read(f"/proc/{pid}/cmdline").split(b"\0")
        if b"bough.server" in words and os.fsencode(self.store) in words:
            return "server"
        if not self._is_marked(pid):
            return ""
        if b"bough.executor" not in words:
            return "command"
        above = read(f"/proc/{parent_of(pid)}/cmdline").split(b"\0")
        return "worker" if b"bough.executor" in above else "executor"

    def _is_marked(self, pid: int) -> bool:
        if not self.store.is_dir():
            return False
        mark = b"BOUGH_RUN=" + store_id(str(self.store)).encode() + b":"
        return any(entry.startswith(mark) for entry in read(f"/proc/{pid}/environ").split(b"\0"))

    def all(self) -> list[tuple[str, int]]:
        """The live ones, with what they are."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [(kind, pid) for pid in pids if (kind := self.kind(pid)) and is_alive(pid)]

    def of(self, kind: str) -> list[int]:
        """The live ones of a kind."""
        return sorted(pid for found, pid in self.all() if found == kind)

    def story(self) -> str:
        """Who is there and what the logs say, for a test that fails."""
        lines = [f"{kind} {pid}: {read(f'/proc/{pid}/cmdline').decode(errors='replace')}" for kind, pid in self.all()]
        for name in ("server.log", "executor.log"):
            with contextlib.suppress(OSError):
                lines += [f"--- {name}", *(self.store / name).read_text().splitlines()[-40:]]
        return "\n".join(lines)

    def wait_until_gone(self, patience: float = PATIENCE) -> None:
        """Wait until nothing of the store runs."""
        deadline = time.monotonic() + patience
        while self.all():
            assert time.monotonic() < deadline, f"processes are left\n{self.story()}"
            time.sleep(0.01)

    def end(self) -> None:
        """End what a failed test left."""
        for _, pid in self.all():
            kill(pid, lambda pid=pid: bool(self.kind(pid)))  # type: ignore[misc]


class Script:
    """A script in a process group of its own, as a shell starts one in a terminal."""

    def __init__(self, path: Path, *words: str, cwd: Path, env: dict[str, str] | None = None) -> None:
        self.out, self.err = cwd / f".{path.stem}.out", cwd / f".{path.stem}.err"
        hidden = {"BOUGH_SERVER", "BOUGH_HOME", "BOUGH_RUN", "BOUGH_TASK"}
        environment = {key: value for key, value in os.environ.items() if key not in hidden} | (env or {})
        with open(self.out, "ab") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(path), *words],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
            )
        self.pid = self.process.pid

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def press(self, number: int = signal.SIGINT) -> None:
        """Signal its process group, as a terminal does."""
        if not self.is_over:
            os.killpg(self.pid, number)

    def finish(self, patience: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(patience)

    def said(self) -> str:
        """What it wrote to standard error."""
        return self.err.read_text(errors="replace")


@contextlib.contextmanager
def started(
    store: Path, path: Path, *words: str, cwd: Path, env: dict[str, str] | None = None
) -> Iterator[tuple[Script, Processes]]:
    """Run a script; whatever it leaves is ended after the test."""
    script, processes = Script(path, *words, cwd=cwd, env=env), Processes(store)
    try:
        yield script, processes
    finally:
        if not script.is_over:
            script.process.kill()
        script.process.wait(PATIENCE)
        processes.end()
