"""One workflow over this machine, an SSH host and two Slurm clusters at once, while all of them come to harm.

The clusters stand for two administrative domains: each is behind its own sshd in a network of its own, and the compute
nodes of beta reach nothing but their head node. While 2,000 tasks run, a node of beta is killed, the jobs of alpha are
cancelled behind our back, the cable to beta is pulled for a minute, the SSH host is cut off, and the server is killed.
Rule: every task is done and counted once, no job is left in any queue and no process of ours on any host.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compute_nodes import NOTICED_SOON, NetworkCluster
from processes import PATIENCE, until
from site_shop import SiteShop, shop_folder
from slurm_clusters import need_slurm
from ssh_hosts import SshHost, need_sshd
from workshop import Link, link

import bough

__all__ = ["shop_folder"]  # a fixture
TASKS = 2000
CUT = 60.0  # seconds
BATCH = ("--batch", "slurm", "--poll", "0.3s", "--walltime", "10m", "--idle", "3s")


class Metacomputer(SiteShop):
    """A server, a host and clusters."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *clusters: NetworkCluster) -> None:
        super().__init__(folder, monkeypatch)
        self.clusters = clusters
        self.reach(*(cluster.head for cluster in clusters), SshHost(folder, "lab"), options=NOTICED_SOON)

    def story(self) -> str:
        sites = str(self.ask("sites")) if self.server is not None and not self.server.is_over else ""
        return "\n".join([super().story()[-20_000:], sites, *(cluster.slurm.story() for cluster in self.clusters)])

    def jobs(self) -> list[str]:
        return [job for cluster in self.clusters for job in cluster.slurm.jobs()]

    def processes_there(self) -> dict[int, str]:
        return {pid: words for host in self.hosts.values() for pid, words in host.processes().items()}


class Cut:
    """A cable that is pulled now, and is back a while later, whatever else happens."""

    def __init__(self, cable: Link, seconds: float) -> None:
        cable.cut()
        self._back_at = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, cable.mend)
        self._timer.start()

    def wait(self) -> None:
        self._timer.join()
        assert time.monotonic() >= self._back_at


@pytest.fixture
def meta(shop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metacomputer]:
    need_sshd()
    need_slurm()
    with link() as to_alpha, link() as to_beta, contextlib.ExitStack() as stack:
        alpha = NetworkCluster(shop_folder, to_alpha, "alpha", nodes=1, cpus=2, hidden=False)
        stack.callback(alpha.remove)
        beta = NetworkCluster(shop_folder, to_beta, "beta", nodes=4, cpus=4)
        stack.callback(beta.remove)
        made = Metacomputer(shop_folder, monkeypatch, alpha, beta)
        stack.callback(made.clean_up)
        yield made


@pytest.mark.timeout(900)
def test_one_workflow_over_four_sites_survives_what_happens_to_them(meta: Metacomputer) -> None:
    notes = meta.folder / "notes"
    notes.mkdir()
    alpha, beta = meta.clusters
    meta.start()
    meta.bough("site", "add", "here", "--local", "--cores-per-pilot", "2", "--idle", "3s")
    meta.bough("site", "add", "lab", "--ssh", "lab", "--cores-per-pilot", "2", "--idle", "3s")
    meta.bough("site", "add", "alpha", "--ssh", "alpha", *BATCH, "--cores-per-pilot", "2")
    meta.bough("site", "add", "beta", "--ssh", "beta", *BATCH, "--cores-per-pilot", "4", "--max-pilots", "4")
    assert not beta.reaches(to_beta := beta.link.here, meta.hosts["lab"].port), f"nodes of beta see {to_beta}"

    def wait_for(count: int, what: str) -> None:
        until(lambda: len(os.listdir(notes)) >= count, what, 3 * PATIENCE, story=meta.story)

    with bough.Session(meta.address, name="meta") as session:
        space = bough.product(number=range(TASKS))
        array = session.sweep(f"sleep 0.2; mktemp -q {notes}/{{number}}.XXXXXX", space, retries=0)
        until(lambda: len(session.processors()) == 4, "all four sites to work", 3 * PATIENCE, story=meta.story)
        wait_for(TASKS // 10, "the first tasks")
        beta.slurm.kill_node(beta.slurm.nodes[0])
        alpha.slurm.says("scancel", *alpha.slurm.jobs())
        cut = Cut(beta.link, CUT)
        meta.hosts["lab"].cut()
        wait_for(TASKS // 4, "tasks after the first faults")
        meta.kill()
        meta.start()
        meta.hosts["lab"].start()
        cut.wait()
        array.wait_all(6 * PATIENCE)
        assert len(array.finished()) == TASKS
        assert not array.failed()
    numbers = [name.partition(".")[0] for name in os.listdir(notes)]
    assert set(numbers) == set(map(str, range(TASKS)))
    beta.slurm.start_node(beta.slurm.nodes[0])  # so that Slurm learns what became of the jobs there
    for name in ("here", "lab", "alpha", "beta"):
        meta.bough("site", "remove", name)
    until(lambda: not meta.jobs(), "no job to be left", story=meta.story)
    until(lambda: not meta.pilot_processes(), "no executor to be left", story=meta.story)
    until(lambda: not meta.processes_there(), "no process to be left", story=lambda: f"{meta.processes_there()}")
