"""A server without anything that runs tasks, and a cluster that it reaches from this machine or by a host called alpha.

Rule: what runs for a pilot is found by the folder of the test in its command line, so that a test can say that nothing
is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from processes import PATIENCE, read, until
from ssh_hosts import SshHost, install_ssh
from workshop import Workshop

QUICK = ("--poll", "0.3s", "--walltime", "10m", "--cores-per-pilot", "1")


class Cluster(Protocol):
    """A batch system of our own."""

    bin: Path  # that comes first on the path

    def jobs(self) -> list[str]:
        """The numbers of jobs that wait or run."""

    def story(self) -> str:
        """What its daemons have to say, for a test that fails."""

    def stop(self) -> None:
        """End its jobs and daemons."""


class BatchShop:
    """See the module."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, **environment: str) -> None:
        self.folder = folder
        self.shop = Workshop(folder)
        self.cluster = cluster
        self.host: SshHost | None = None
        self._patch = monkeypatch
        self._environment = environment  # that its commands need
        for key, value in environment.items():
            self.set(key, value)
        self.set("XDG_CACHE_HOME", str(folder / "cache"))
        self.set("PATH", f"{self.cluster.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("BOUGH_HOME", str(self.shop.home))
        monkeypatch.delenv("BOUGH_SERVER", raising=False)

    def set(self, key: str, value: str) -> None:
        self.shop.environment[key] = value
        self._patch.setenv(key, value)

    def start(self) -> None:
        self.shop.start("--reconnect", "30s")

    def behind_ssh(self) -> SshHost:
        """From now on the cluster is used from the host alpha only."""
        there = " ".join(f"{key}={value}" for key, value in self._environment.items())
        self.host = host = SshHost(self.folder, "alpha")
        host.cut()
        host.config.write_text(host.config.read_text().replace("SetEnv HOME", f"SetEnv {there} HOME"))
        host.start()
        self.set("PATH", f"{install_ssh(self.folder, [host])}:{os.environ['PATH']}")
        for key in self._environment:
            self.set(key, "/nowhere")
        return host

    def bough(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.shop.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}{self.story()}"
        return done.stdout + done.stderr

    def story(self) -> str:
        said = self.shop.server.said() if self.shop.server is not None else ""
        return said + self.cluster.story()

    def site(self, name: str = "alpha") -> dict[str, object]:
        return next(one for one in self.shop.ask("sites") if one["site"] == name)

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, what, story=self.story)

    def executors(self) -> list[int]:
        """Executors of pilots, told by the folder that they run from."""
        found = []
        for entry in filter(str.isdecimal, os.listdir("/proc")):
            words = read(f"/proc/{entry}/cmdline")
            if os.fsencode(self.folder) in words and b"bough.executor" in words and b"--pilot" in words:
                found.append(int(entry))
        return found

    def is_clean(self) -> bool:
        return not self.cluster.jobs() and not self.executors()

    def clean_up(self) -> None:
        self.shop.clean_up()
        self.cluster.stop()
        if self.host is not None:
            self.host.cut()
            for pid in self.host.processes():
                os.kill(pid, 9)
