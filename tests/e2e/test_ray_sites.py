"""Sites that are Ray clusters: a real head in a network namespace of its own, because Ray insists on real addresses.

Slow, so only with BOUGH_FULL=1. The test runs itself again inside the namespace.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from processes import PATIENCE, children, read, until
from site_shop import SiteShop, shop, shop_folder

import bough
from bough.model.sites.site_specs import SiteSpec
from bough.sites.engines.cluster_site import RaySite
from bough.sites.site_kind import SiteKind, Surroundings
from bough.testing.site_conformance import check_site_kind

__all__ = ["shop", "shop_folder"]  # fixtures
OWN, PORT = "10.78.0.1", 26379
INSIDE = "BOUGH_IN_NAMESPACE"
SETUP = f'ip link set lo up && ip addr add {OWN}/32 dev lo && exec "$0" "$@"'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def need_ray() -> None:
    """Skip, aloud, where it cannot run."""
    if os.environ.get("BOUGH_FULL") != "1":
        pytest.skip("a Ray cluster takes a minute: set BOUGH_FULL=1")
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'bough[ray]'")
    if os.geteuid() or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("Ray runs in a network namespace, which needs root, unshare and ip")


class RayCluster:
    """One node, with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "ray-home"
        self.home.mkdir()
        self.temporary = Path(f"/tmp/bough-ray-{os.getpid()}")  # Ray has no room for longer paths
        self.environment = {
            **os.environ,
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "BOUGH_TEST_CLUSTER": str(self.home),
        }
        ray = str(Path(sys.executable).parent / "ray")
        words = ["--head", "--block", f"--node-ip-address={OWN}", f"--port={PORT}", "--num-cpus=2"]
        words += ["--include-dashboard=false", "--object-store-memory=100000000", "--disable-usage-stats"]
        with open(folder / "ray.log", "wb") as log:
            self.head = subprocess.Popen(
                [ray, "start", *words, f"--temp-dir={self.temporary}"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: b"Ray runtime started" in read(str(folder / "ray.log")), "Ray", 3 * PATIENCE)

    def end(self) -> None:
        family = children(self.head.pid)
        self.head.terminate()
        self.head.wait(PATIENCE)
        for pid in family:
            if f"BOUGH_TEST_CLUSTER={self.home}\0".encode() in read(f"/proc/{pid}/environ"):
                os.kill(pid, 9)
        shutil.rmtree(self.temporary, ignore_errors=True)


def test_ray_sites_in_a_namespace() -> None:
    need_ray()
    if os.environ.get(INSIDE):
        pytest.skip("this is the namespace")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "inside"]
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", SETUP, *words],
        env={**os.environ, INSIDE: "1", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.skipif(not os.environ.get(INSIDE), reason="runs in the namespace of the test before")
def test_inside_ray_is_a_kind_as_kinds_should_be(tmp_path: Path) -> None:
    cluster = RayCluster(tmp_path)
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(tmp_path / "door"))
    around = Surroundings(str(tmp_path), str(tmp_path / "cache"), str(tmp_path / "door"), "A" * 43, "0" * 32)

    def make_kind() -> SiteKind:
        return RaySite("lab", SiteSpec("ray", address=f"{OWN}:{PORT}"), around)

    try:
        asyncio.run(check_site_kind(make_kind))
        assert not list(cluster.home.rglob("access.json"))
    finally:
        cluster.end()
        door.close()


@pytest.mark.skipif(not os.environ.get(INSIDE), reason="runs in the namespace of the test before")
def test_inside_tasks_run_in_a_ray_cluster_and_nothing_is_left(tmp_path: Path, shop: SiteShop) -> None:
    cluster = RayCluster(tmp_path)
    try:
        shop.start("--reconnect", "60s")
        shop.bough("site", "add", "lab", "--kind", "ray", "--address", f"{OWN}:{PORT}", "--max-pilots", "2")
        assert "site lab works" in shop.bough("site", "test", "lab")
        with bough.Session(shop.address, name="first") as session:
            where = session.command("echo $BOUGH_TEST_CLUSTER")
            assert where.result(PATIENCE).stdout.strip() == str(cluster.home)
            assert session.submit(pow, 2, 10).result(PATIENCE) == 1024
        shop.bough("site", "remove", "lab")
        assert not list(cluster.home.rglob("access.json"))
    finally:
        cluster.end()
