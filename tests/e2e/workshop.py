"""A service of real processes in a home of its own, made to be broken: killed, stopped, cut off, starved.

Rule: everything is started, signalled and ended by its own process number; what a test needs of the system (network
namespaces, small file systems) is made and removed here, and a test that cannot have it is skipped with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, children, is_alive, read, until

from bough.api.session.session import opened_sessions
from bough.cli.targets.live_server import ServerClient, connect_client
from bough.testing.builders import question

HEARTBEAT, RECONNECT = "2s", "2s"  # short, so that faults are noticed within a test


class Process:
    """A process of ours, with its log."""

    def __init__(self, words: Sequence[str], log: Path, environment: dict[str, str], cwd: Path) -> None:
        self.log = log
        with open(log, "ab") as file:
            self.popen = subprocess.Popen(
                list(words),
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.pid = self.popen.pid

    @property
    def is_over(self) -> bool:
        return self.popen.poll() is not None

    def kill(self) -> None:
        """End it as a crash would."""
        self.popen.send_signal(signal.SIGCONT)
        self.popen.kill()
        self.popen.wait(PATIENCE)

    def pause(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def family(self) -> list[int]:
        """Itself and all that came from it."""
        return [self.pid, *children(self.pid)]

    def said(self) -> str:
        return self.log.read_text(errors="replace")


class Workshop:
    """Server, executors and relays of one `$BOUGH_HOME`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("BOUGH_")}
        self.environment["BOUGH_HOME"] = str(self.home)
        self.server: Process | None = None
        self.options: tuple[str, ...] = ()
        self.executors: list[Process] = []
        self.others: list[Process] = []

    @property
    def socket(self) -> str:
        return str(self.home / "server" / "server.sock")

    @property
    def address(self) -> str:
        return f"unix:{self.socket}"

    @property
    def note(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.home / "server" / "server.json").read_bytes()))
        except (OSError, ValueError):
            return {}

    def spawn(self, *words: str, log: str, prefix: Sequence[str] = (), env: dict[str, str] | None = None) -> Process:
        command = [*prefix, sys.executable, "-m", "bough.cli.main", *words]
        return Process(command, self.folder / log, self.environment | (env or {}), self.folder)

    def start(self, *words: str, prefix: Sequence[str] = (), patience: float = PATIENCE) -> float:
        """Start the server, with the options of the last time if none are given; seconds until it served."""
        self.options = words or self.options
        options = ["--heartbeat", HEARTBEAT, "--reconnect", RECONNECT, *self.options]
        begun = time.monotonic()
        self.server = server = self.spawn("server", "start", *options, log="server.log", prefix=prefix)
        until(lambda: self.note.get("pid") == server.pid or server.is_over, "the server", patience, server.said)
        assert not server.is_over, server.said()
        return time.monotonic() - begun

    def kill(self) -> None:
        assert self.server is not None
        self.server.kill()

    def executor(
        self, *words: str, cores: int = 1, prefix: Sequence[str] = (), env: dict[str, str] | None = None
    ) -> Process:
        """Start an executor; it has joined when this returns."""
        log = f"executor-{len(self.executors)}.log"
        process = self.spawn("executor", "start", "--cores", str(cores), *words, log=log, prefix=prefix, env=env)
        self.executors.append(process)
        until(lambda: self.entry(process) is not None or process.is_over, "an executor", story=process.said)
        assert not process.is_over, process.said()
        return process

    def access(self, role: str) -> str:
        """An access file of a role."""
        path = str(self.folder / f"{role}.json")
        self.bough("server", "access", "--role", role, "--output", path)
        return path

    def bough(self, *words: str, check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.environment,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    # --- looking ------------------------------------------------------------------------------------

    def connect(self) -> ServerClient:
        return connect_client(self.address)

    def ask(self, what: str, **arguments: object) -> Any:
        with self.connect() as server:
            return server.ask(question(what, **arguments))

    def entries(self) -> list[dict[str, Any]]:
        return list(self.ask("executors"))

    def entry(self, process: Process) -> dict[str, Any] | None:
        return next((entry for entry in self.entries() if entry["pid"] == process.pid), None)

    def state_of(self, process: Process) -> str:
        entry = self.entry(process)
        return str(entry["state"]) if entry else "gone"

    def log(self) -> str:
        assert self.server is not None
        return self.server.said()

    def story(self) -> str:
        logs = [self.folder / "server.log", *(process.log for process in self.executors)]
        return "\n".join(f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-40:]) for path in logs)

    def until(self, condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
        until(condition, what, patience, self.story)

    # --- the end ------------------------------------------------------------------------------------

    def processes(self) -> list[Process]:
        return [*self.others, *self.executors, *([self.server] if self.server else [])]

    def clean_up(self) -> None:
        for process in self.processes():
            below = process.family()[1:] if not process.is_over else []
            if not process.is_over:
                process.kill()
            for pid in below:
                if is_alive(pid) and self._is_ours(pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _is_ours(self, pid: int) -> bool:
        return b"BOUGH_HOME=" + os.fsencode(self.home) in read(f"/proc/{pid}/environ").split(b"\0")

    def leftovers(self) -> list[int]:
        """Live processes that belong to this home."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if pid != os.getpid() and is_alive(pid) and self._is_ours(pid)]


@contextlib.contextmanager
def opened_workshop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    """A workshop that the test works beside; what it leaves is ended."""
    made = Workshop(folder)
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    yield made
    made.clean_up()
    opened_sessions.clear()


# --- networks and disks ---------------------------------------------------------------------------------


def _run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=check, timeout=60)


def why_no_networks() -> str:
    """Why network namespaces cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (iproute2)"
    return ""


class Link:
    """A network namespace with one cable to this machine, which can be cut."""

    _count = 0

    def __init__(self) -> None:
        Link._count += 1
        tag = f"{os.getpid() % 100_000}x{Link._count}"
        self.name, self._near, self._far = f"bough{tag}", f"bn{tag}", f"bf{tag}"
        subnet = f"10.{200 + os.getpid() % 50}.{(os.getpid() // 50 + Link._count) % 250}"
        self.here, self.there = f"{subnet}.1", f"{subnet}.2"
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.name)
        _run("ip", "addr", "add", f"{self.here}/24", "dev", self._near)
        _run("ip", "link", "set", self._near, "up")
        _run("ip", "-n", self.name, "link", "set", "lo", "up")
        _run("ip", "-n", self.name, "addr", "add", f"{self.there}/24", "dev", self._far)
        _run("ip", "-n", self.name, "link", "set", self._far, "up")

    @property
    def device(self) -> str:
        """The cable's end on the other side."""
        return self._far

    @property
    def inside(self) -> tuple[str, ...]:
        """Words before a command that is to run on the other side."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Packets vanish from now on; nobody is told."""
        _run("ip", "-n", self.name, "link", "set", self._far, "down")

    def mend(self) -> None:
        _run("ip", "-n", self.name, "link", "set", self._far, "up")

    def remove(self) -> None:
        _run("ip", "link", "del", self._near, check=False)
        _run("ip", "netns", "del", self.name, check=False)


@contextlib.contextmanager
def link() -> Iterator[Link]:
    """A link; the test is skipped where there cannot be one."""
    reason = why_no_networks()
    if reason:
        pytest.skip(reason)
    try:
        made = Link()
    except subprocess.CalledProcessError as error:
        problem = error.stderr.strip()
        pytest.skip(f"network namespaces cannot be made ({problem}): root, where they are allowed, includes it")
    try:
        yield made
    finally:
        made.remove()


class SmallDisk:
    """A file system of few megabytes, which can be filled and freed."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "bough-test", str(path))

    def fill(self) -> None:
        """Take all space that is left."""
        with open(self.path / "ballast", "ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)

    def grow(self, megabytes: int) -> None:
        """Make it larger."""
        _run("mount", "-o", f"remount,size={megabytes}m", str(self.path))

    def remove(self) -> None:
        _run("umount", "--lazy", str(self.path), check=False)


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A small file system; the test is skipped where there cannot be one."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root: run the tests as root to include it")
    try:
        made = SmallDisk(path, megabytes)
    except subprocess.CalledProcessError as error:
        problem = error.stderr.strip()
        pytest.skip(f"a small file system cannot be mounted ({problem}): root, where mounting is allowed, includes it")
    try:
        yield made
    finally:
        made.remove()
