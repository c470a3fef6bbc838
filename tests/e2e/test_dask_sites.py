"""Sites that are Dask clusters: a real scheduler and real workers on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from processes import PATIENCE, children, free_port, is_alive, parent_of, read, until
from site_shop import SiteShop, shop, shop_folder
from ssh_hosts import is_listening

import bough
from bough.model.sites.site_specs import SiteSpec
from bough.sites.engines.cluster_site import DaskSite
from bough.sites.site_kind import SiteKind, Surroundings
from bough.testing.site_conformance import check_site_kind

__all__ = ["shop", "shop_folder"]  # fixtures
if find_spec("distributed") is None:
    pytest.skip("Dask is not installed: pip install 'bough[dask]'", allow_module_level=True)


class DaskCluster:
    """A scheduler and workers of one thread each, with a home of their own."""

    def __init__(self, folder: Path, workers: int = 1) -> None:
        self.folder = folder / "dask"
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        self.environment = {
            **os.environ,
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "BOUGH_TEST_CLUSTER": str(self.folder),
            "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "30s",
            "PYTHONWARNINGS": "ignore",
        }
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        self.workers: list[subprocess.Popen[bytes]] = []
        until(lambda: is_listening(self.port), "the scheduler of Dask", story=self.said)
        for _ in range(workers):
            self.add_worker()
        until(lambda: self.said().count("Registered to:") >= workers, "the workers of Dask", story=self.said)

    def _start(self, *words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [*before, sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]],
                env=self.environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def add_worker(self, *before: str) -> subprocess.Popen[bytes]:
        place = self.folder / f"worker{len(self.workers)}"
        words = ["--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        words += ["--local-directory", str(place)]
        self.workers.append(self._start("worker", self.address, *words, before=before))
        return self.workers[-1]

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def executors(self) -> list[int]:
        mark = f"BOUGH_TEST_CLUSTER={self.folder}\0".encode()
        return [
            int(entry)
            for entry in os.listdir("/proc")
            if entry.isdecimal()
            and b"--pilot" in read(f"/proc/{entry}/cmdline")
            and mark in read(f"/proc/{entry}/environ") + b"\0"
            and is_alive(int(entry))
        ]

    def end(self) -> None:
        for process in [*self.workers, self.scheduler]:
            for pid in [*children(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            process.wait(PATIENCE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    made = DaskCluster(tmp_path)
    yield made
    made.end()
    for pid in made.executors():
        os.kill(pid, 9)


def test_dask_is_a_kind_as_kinds_should_be(tmp_path: Path) -> None:
    cluster = DaskCluster(tmp_path, workers=2)
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(tmp_path / "door"))
    around = Surroundings(str(tmp_path), str(tmp_path / "cache"), str(tmp_path / "door"), "A" * 43, "0" * 32)

    def make_kind() -> SiteKind:
        return DaskSite("lab", SiteSpec("dask", address=cluster.address), around)

    try:
        asyncio.run(check_site_kind(make_kind))
        until(lambda: not cluster.executors(), "the executors, which were told to end", story=cluster.said)
        assert not list(cluster.home.rglob("access.json"))
    finally:
        cluster.end()
        door.close()


def test_tasks_run_inside_a_dask_cluster_and_nothing_is_left_there(shop: SiteShop, cluster: DaskCluster) -> None:
    shop.start("--reconnect", "60s")
    shop.bough("site", "add", "lab", "--kind", "dask", "--address", cluster.address, "--idle", "30s")
    tested = shop.bough("site", "test", "lab")
    assert [line.split()[1] for line in tested.splitlines()[:-1]] == [*DaskSite.steps, "task", "end"]
    until(lambda: not cluster.executors(), "the pilot of the test to end")
    with bough.Session(shop.address, name="first") as session:
        where = session.command("echo $BOUGH_TEST_CLUSTER")
        assert where.result(PATIENCE).stdout.strip() == str(cluster.folder)
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024
        assert session.processors() == {"lab": 1}
        [token] = [path.read_text().strip() for path in (shop.home / "server").glob("site-*.token")]
        pids = [cluster.scheduler.pid, *(worker.pid for worker in cluster.workers), *cluster.executors()]
        for pid in {*pids, *(child for parent in pids for child in children(parent))}:
            assert token.encode() not in read(f"/proc/{pid}/cmdline") + read(f"/proc/{pid}/environ")
        [access] = cluster.home.rglob("access.json")
        assert access.stat().st_mode & 0o777 == 0o600
        assert token in access.read_text()
    shop.bough("site", "remove", "lab")
    assert token not in cluster.said() + shop.log()
    assert not cluster.executors()
    assert not list(cluster.home.rglob("access.json"))


def test_a_pilot_ends_with_its_worker_and_its_task_runs_elsewhere(shop: SiteShop, cluster: DaskCluster) -> None:
    shop.start("--reconnect", "60s")
    shop.bough("site", "add", "lab", "--kind", "dask", "--address", cluster.address)
    gate = shop.folder / "gate"
    with bough.Session(shop.address, name="killed") as session:
        task = session.command(f"echo $$ >> notes; while [ ! -e {gate} ]; do sleep 0.05; done")
        until((shop.folder / "notes").exists, "the task to begin", story=shop.log)
        [executor] = [pid for pid in cluster.executors() if parent_of(pid) == cluster.workers[0].pid]
        cluster.workers[0].kill()
        until(lambda: not is_alive(executor), "the executor to end with its worker")
        cluster.add_worker()
        until(lambda: len((shop.folder / "notes").read_text().split()) == 2, "the task to begin again", story=shop.log)
        gate.touch()
        assert task.result(PATIENCE).returncode == 0


def test_a_worker_that_sees_no_socket_comes_by_the_address_or_says_what_is_missing(
    shop: SiteShop, cluster: DaskCluster
) -> None:
    """The worker has a mount namespace in which the server's folder is empty, as if it were another machine."""
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("a worker that does not see the server's folder needs root and unshare")
    cluster.workers[0].kill()
    cluster.workers[0].wait(PATIENCE)
    hide = f'mount -t tmpfs none {shop.home}/server && exec "$0" "$@"'
    shop.start()
    cluster.add_worker("unshare", "-m", "sh", "-c", hide)
    shop.bough("site", "add", "lab", "--kind", "dask", "--address", cluster.address)
    until(lambda: "1 worker," in shop.bough("site", "test", "lab", code=3), "the worker")
    assert "bough server start --listen HOST:PORT" in shop.bough("site", "test", "lab", code=3)
    shop.kill()
    shop.start("--listen", f"127.0.0.1:{free_port()}")
    with bough.Session(shop.address, name="far") as session:
        assert session.command("echo $BOUGH_TEST_CLUSTER").result(PATIENCE).stdout.strip() == str(cluster.folder)
    [access] = cluster.home.rglob("access.json")
    assert "execute@lab" in access.read_text()
    kept = shop.folder / "kept.json"
    shutil.copy2(access, kept)
    assert "for executors of the site lab, not of other" in refused(kept, "other")
    shop.bough("site", "remove", "lab")
    assert "token was refused" in refused(kept, "lab")


def refused(access: Path, site: str) -> str:
    """What an executor with this access file is told."""
    words = [sys.executable, "-m", "bough.executor", "--server", str(access), "--site", site]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode
    return done.stdout + done.stderr


def test_bad_definitions_of_clusters_are_refused(shop: SiteShop) -> None:
    shop.start()
    assert "say --address" in shop.bough("site", "add", "lab", "--kind", "dask", code=2)
    assert "no ssh" in shop.bough("site", "add", "lab", "--kind", "dask", "--address", "x", "--ssh", "y", code=2)
    assert "there is no kind of site 'dsk'" in shop.bough("site", "add", "lab", "--kind", "dsk", code=2)
    if find_spec("ray") is None:
        said = shop.bough("site", "add", "lab", "--kind", "ray", "--address", "127.0.0.1:1", code=2)
        assert "pip install 'bough[ray]'" in said
    nobody = f"tcp://127.0.0.1:{free_port()}"
    shop.bough("site", "add", "lab", "--kind", "dask", "--address", nobody)
    assert f"no dask cluster answers at {nobody}" in shop.bough("site", "test", "lab", code=3)
    assert "was removed" in shop.bough("site", "remove", "lab")
