"""One workflow over this machine, an SSH host and two Slurm clusters at once, while all of them come to harm.

Two clusters side by side, each behind its own sshd, stand for two administrative domains. While 2,000 tasks run, a node
of one cluster is killed, the jobs of the other are cancelled behind our back, an SSH host is cut off, and the server is
killed. Rule: every task is done and counted once, no job is left in any queue and no process of ours on any host.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, read, until
from slurm_clusters import SlurmCluster, need_slurm
from ssh_hosts import SshHost, install_ssh, need_sshd
from workshop import Workshop

import bough
from bough.api.session.session import opened_sessions

TASKS = 2000
BATCH = ("--batch", "slurm", "--poll", "0.3s", "--walltime", "10m", "--idle", "3s")


class Metacomputer:
    """A server, hosts and clusters."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.shop = Workshop(folder)
        self.clusters = {"alpha": SlurmCluster("alpha", 1, 2), "beta": SlurmCluster("beta", 4, 4)}
        self.hosts = {name: self._head(name, cluster) for name, cluster in self.clusters.items()}
        self.hosts["lab"] = SshHost(folder, "lab")
        path = f"{install_ssh(folder, list(self.hosts.values()))}:{os.environ['PATH']}"
        for key, value in (("PATH", path), ("XDG_CACHE_HOME", str(folder / "cache"))):
            self.shop.environment[key] = value
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("BOUGH_HOME", str(self.shop.home))
        monkeypatch.delenv("BOUGH_SERVER", raising=False)

    def _head(self, name: str, cluster: SlurmCluster) -> SshHost:
        return SshHost(self.folder, name, more=f"SLURM_CONF={cluster.conf}")

    def bough(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.shop.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}{self.story()}"
        return done.stdout + done.stderr

    def story(self) -> str:
        said = self.shop.server.said() if self.shop.server is not None else ""
        return said[-5000:] + "".join(cluster.story() for cluster in self.clusters.values())

    def executors(self) -> list[int]:
        """Executors of pilots anywhere, told by the folder that they run from."""
        found = []
        for entry in filter(str.isdecimal, os.listdir("/proc")):
            words = read(f"/proc/{entry}/cmdline")
            if os.fsencode(self.folder) in words and b"bough.executor" in words and b"--pilot" in words:
                found.append(int(entry))
        return found

    def clean_up(self) -> None:
        self.shop.clean_up()
        for cluster in self.clusters.values():
            cluster.stop()
        for host in self.hosts.values():
            host.cut()
            for pid in host.processes():
                os.kill(pid, 9)


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metacomputer]:
    need_sshd()
    need_slurm()
    folder = tmp_path / "w"
    folder.mkdir()
    monkeypatch.chdir(folder)
    made = Metacomputer(folder, monkeypatch)
    yield made
    made.clean_up()
    opened_sessions.clear()


@pytest.mark.timeout(600)
def test_one_workflow_over_four_sites_survives_what_happens_to_them(meta: Metacomputer) -> None:
    notes = meta.folder / "notes"
    notes.mkdir()
    meta.shop.start("--reconnect", "60s")
    meta.bough("site", "add", "here", "--local", "--cores-per-pilot", "2", "--idle", "3s")
    meta.bough("site", "add", "lab", "--ssh", "lab", "--cores-per-pilot", "2", "--idle", "3s")
    meta.bough("site", "add", "alpha", "--ssh", "alpha", *BATCH, "--cores-per-pilot", "2")
    meta.bough("site", "add", "beta", "--ssh", "beta", *BATCH, "--cores-per-pilot", "4", "--max-pilots", "4")

    def done() -> int:
        return len(os.listdir(notes))

    def wait_for(count: int, what: str) -> None:
        until(lambda: done() >= count, what, 3 * PATIENCE, story=meta.story)

    with bough.Session(meta.shop.address, name="meta") as session:
        space = bough.product(number=range(TASKS))
        array = session.sweep(f"sleep 0.2; mktemp -q {notes}/{{number}}.XXXXXX", space, retries=0)
        until(lambda: len(session.processors()) == 4, "all four sites to work", 3 * PATIENCE, story=meta.story)
        wait_for(TASKS // 10, "the first tasks")
        beta = meta.clusters["beta"]
        beta.kill_node(beta.nodes[0])
        meta.clusters["alpha"].says("scancel", *meta.clusters["alpha"].jobs())
        meta.hosts["lab"].cut()
        wait_for(TASKS // 3, "tasks after the first faults")
        meta.shop.kill()
        meta.shop.start()
        meta.hosts["lab"].start()
        array.wait_all(6 * PATIENCE)
        assert len(array.finished()) == TASKS
        assert not array.failed()
    numbers = [name.partition(".")[0] for name in os.listdir(notes)]
    assert set(numbers) == set(map(str, range(TASKS)))
    beta.start_node(beta.nodes[0])  # so that Slurm learns what became of the jobs there
    for name in ("here", "lab", "alpha", "beta"):
        meta.bough("site", "remove", name)
    until(lambda: not any(cluster.jobs() for cluster in meta.clusters.values()), "no job to be left", story=meta.story)
    until(lambda: not meta.executors(), "no executor to be left", story=meta.story)
