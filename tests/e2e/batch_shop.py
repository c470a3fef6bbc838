"""A server and one cluster with a batch system, which it reaches from this machine or by a host called alpha."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import pytest
from site_shop import SiteShop
from ssh_hosts import SshHost

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


class BatchShop(SiteShop):
    """See the module. `environment`: what the commands of the batch system need."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, **environment: str) -> None:
        super().__init__(folder, monkeypatch)
        self.cluster = cluster
        self._needed = environment
        for key, value in environment.items():
            self.set(key, value)
        self.set("PATH", f"{self.cluster.bin}:{os.environ['PATH']}")

    def behind_ssh(self, options: str = "") -> SshHost:
        """From now on the cluster is used from the host alpha only."""
        there = " ".join(f"{key}={value}" for key, value in self._needed.items())
        host = SshHost(self.folder, "alpha", more=there)
        self.reach(host, options=options)
        for key in self._needed:
            self.set(key, "/nowhere")
        return host

    def story(self) -> str:
        return super().story() + self.cluster.story()

    def is_clean(self) -> bool:
        return not self.cluster.jobs() and not self.pilot_processes()

    def clean_up(self) -> None:
        super().clean_up()
        self.cluster.stop()
