"""Compute nodes that reach only their head node, in network namespaces, with a real sshd: they run tasks.

Through cuts of the link, crashes of the server and of the relay, and a laptop that sleeps; in the end nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from compute_nodes import NOTICED_SOON, NetworkCluster
from processes import PATIENCE, is_alive, read
from site_shop import SiteShop, shop_folder
from slurm_clusters import need_slurm
from ssh_hosts import is_listening, need_sshd
from workshop import link

import bough

__all__ = ["shop_folder"]  # a fixture
KIND = "[bough.sites]\ntest-nodes = node_site:NodeSite\n"


class ClusterShop(SiteShop):
    """A server, and a cluster whose compute node reaches only its head node."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: NetworkCluster) -> None:
        super().__init__(folder, monkeypatch)
        self.cluster = cluster
        self.reach(cluster.head, options=NOTICED_SOON)


class NodeShop(ClusterShop):
    """The same with the cluster as a site of the kind `node_site`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: NetworkCluster) -> None:
        super().__init__(folder, monkeypatch, cluster)
        offered = folder / "offered" / "bough_test_nodes-1.0.dist-info"
        offered.mkdir(parents=True)
        (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: bough-test-nodes\nVersion: 1.0\n")
        (offered / "entry_points.txt").write_text(KIND)
        self.environment["PYTHONPATH"] = f"{folder / 'offered'}:{Path(__file__).parent}"

    def add(self, reconnect: str = "60s", **fields: object) -> None:
        """Start the server, and tell it of the cluster."""
        self.start("--reconnect", reconnect)
        lead = f'set -- {shlex.join(self.cluster.on_node)} "$@"'
        spec = {"kind": "test-nodes", "ssh": "alpha", "cores_per_pilot": 2, "setup": lead, **fields}
        lines = [f"{name} = {json.dumps(value)}" for name, value in spec.items()]
        (self.folder / "sites.toml").write_text("\n".join(["[alpha]", *lines, ""]))
        self.bough("site", "add", "--file", "sites.toml")

    def access(self) -> dict[str, object]:
        [path] = self.cluster.head.home.rglob("nodes.json")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return dict(json.loads(path.read_text()))


@contextlib.contextmanager
def opened(
    kind: type[ClusterShop], folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: int = 0
) -> Iterator[ClusterShop]:
    """A shop of this kind; in the end nothing of it is left."""
    with link() as made, contextlib.ExitStack() as stack:
        cluster = NetworkCluster(folder, made, nodes=nodes)
        stack.callback(cluster.remove)
        shop = kind(folder, monkeypatch, cluster)
        stack.callback(shop.clean_up)
        yield shop


@pytest.fixture
def slurm(shop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterShop]:
    need_sshd()
    need_slurm()
    with opened(ClusterShop, shop_folder, monkeypatch, nodes=1) as shop:
        shop.start()
        yield shop


@pytest.fixture
def nodes(shop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterShop]:
    need_sshd()
    with opened(NodeShop, shop_folder, monkeypatch) as shop:
        yield shop


def test_a_node_that_sees_only_its_head_node_runs_tasks_through_everything(nodes: NodeShop) -> None:
    cluster, notes, gate = nodes.cluster, nodes.folder / "notes", nodes.folder / "gate"
    nodes.add(reconnect="10s")  # less than the cut takes: it does not count while the site is not reached
    wait = f"echo begun >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done; echo ended >> {notes}"
    with bough.Session(nodes.address, name="nodes") as session:
        assert session.command("hostname").result(PATIENCE).stdout.strip() == "node1"
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024
        [relay] = cluster.relays()
        [pilot] = cluster.head.executors()[:1]
        nodes.until(lambda: cluster.connections() == 1, "the relay to say that it has an executor")
        access = nodes.access()
        host, _, port = str(access["address"]).rpartition(":")
        assert host == "alpha-head"  # which the node cannot look up
        assert f"{cluster.head_address}:{port}" in access["also"]  # type: ignore[operator]
        assert cluster.reaches(cluster.head_address, int(port))
        assert not cluster.reaches(cluster.link.here, cluster.head.port)
        for pid in (relay, pilot):
            assert str(access["token"]).encode() not in read(f"/proc/{pid}/cmdline") + read(f"/proc/{pid}/environ")
        task = session.command(wait)
        nodes.until(notes.exists, "the task to begin")
        cluster.link.cut()
        nodes.until(lambda: "relay-lost" in nodes.log(), "the server to notice")
        nodes.until(lambda: "site-unreached" in nodes.log(), "ssh to give up")  # and it tries again and again
        nodes.until(lambda: "executor-awaited" in nodes.log(), "the time of the executor to be over")
        cluster.link.mend()
        nodes.until(lambda: "reconnected with 1 span" in nodes.log(), "the executor to reconnect")
        nodes.kill()
        nodes.start()
        nodes.until(lambda: nodes.log().count("reconnected with 1 span") >= 2, "the executor to find the next server")
        nodes.until(lambda: cluster.connections() == 1, "the relay to say so, too")
        assert cluster.relays() == [relay]  # it was found, not started again
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
        assert is_alive(pilot)
        assert session.submit(pow, 2, 11).result(PATIENCE) == 2048
    assert notes.read_text().split() == ["begun", "ended"]
    nodes.bough("site", "remove", "alpha")
    assert not cluster.relays()
    assert not cluster.head.executors()
    nodes.until(lambda: not cluster.head.processes(), "the connection to end")
    assert not list(cluster.head.home.rglob("*.json"))
    assert not list(cluster.head.home.rglob("*.pem"))


def test_a_laptop_that_slept_finds_everything_again(nodes: NodeShop) -> None:
    """Server and ssh stop, packets vanish, and the connection is forgotten by those who stayed awake."""
    cluster, gate = nodes.cluster, nodes.folder / "gate"
    nodes.add()
    with bough.Session(nodes.address, name="sleep") as session:
        task = session.command(
            f"echo begun > {nodes.folder}/begun; while [ ! -e {gate} ]; do sleep 0.05; done; echo slept"
        )
        nodes.until((nodes.folder / "begun").exists, "the task to begin")
        [relay] = cluster.relays()
        assert nodes.server is not None
        asleep = nodes.server.family()
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)
        cluster.link.cut()
        cluster.head.forget_connections()
        nodes.until(lambda: "server-lost" in cluster.relay_log(), "the relay to notice")
        gate.touch()
        nodes.until(lambda: not any(str(gate) in words for words in cluster.head.processes().values()), "its end")
        cluster.link.mend()
        for pid in asleep:
            os.kill(pid, signal.SIGCONT)
        assert task.result(PATIENCE).stdout == "slept\n"
        assert cluster.relays() == [relay]
        assert session.submit(pow, 3, 3).result(PATIENCE) == 27


def test_a_relay_that_was_killed_is_started_again_where_it_was(nodes: NodeShop) -> None:
    cluster, notes, gate = nodes.cluster, nodes.folder / "notes", nodes.folder / "gate"
    nodes.add(relay_address=cluster.head_address)
    with bough.Session(nodes.address, name="killed") as session:
        task = session.command(f"echo run >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done")
        nodes.until(notes.exists, "the task to begin")
        access = nodes.access()
        host, _, port = str(access["address"]).rpartition(":")
        assert host == cluster.head_address
        assert [one.partition(":")[0] for one in access["also"]] == ["unix"]  # type: ignore[attr-defined]
        assert is_listening(cluster.head.port, cluster.link.there)
        assert not is_listening(int(port), cluster.link.there)  # it listens where it was told to only
        [relay] = cluster.relays()
        os.kill(relay, signal.SIGKILL)
        nodes.until(lambda: cluster.relays() not in ([], [relay]), "the next relay")
        nodes.until(lambda: "reconnected with 1 span" in nodes.log(), "the executor to reconnect")
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
        assert nodes.access() == access
    assert notes.read_text().split() == ["run"]
    nodes.bough("site", "remove", "alpha")
    assert not cluster.relays()


def test_a_site_with_several_login_nodes_has_a_relay_where_the_connection_is(nodes: NodeShop) -> None:
    """The next connection leads to another host, as round robin does; executors follow the file that they share."""
    cluster, notes, gate = nodes.cluster, nodes.folder / "notes", nodes.folder / "gate"
    nodes.add()
    with bough.Session(nodes.address, name="login") as session:
        task = session.command(f"echo run >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done")
        nodes.until(notes.exists, "the task to begin")
        assert str(nodes.access()["address"]).startswith("alpha-head:")
        [first] = cluster.relays()
        cluster.head.cut()
        cluster.rename_head("alpha-login2")
        cluster.head.start()
        nodes.until(lambda: str(nodes.access()["address"]).startswith("alpha-login2:"), "a relay on the other host")
        os.kill(first, signal.SIGSTOP)  # on another host it would have no way to the server
        nodes.until(lambda: "reconnected with 1 span" in nodes.log(), "the executor to follow")
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
        os.kill(first, signal.SIGCONT)
        assert len(cluster.relays()) == 2
    assert notes.read_text().split() == ["run"]
    nodes.bough("site", "remove", "alpha")
    nodes.until(lambda: not cluster.relays(), "both relays to end")


def test_a_node_of_slurm_that_sees_only_its_head_node_runs_tasks(slurm: ClusterShop) -> None:
    cluster, notes, gate = slurm.cluster, slurm.folder / "notes", slurm.folder / "gate"
    quick = ("--cores-per-pilot", "1", "--poll", "0.3s", "--walltime", "10m")
    slurm.bough("site", "add", "alpha", "--ssh", "alpha", "--batch", "slurm", *quick)
    assert "ok    relay" in slurm.bough("site", "test", "alpha")
    wait = f"echo begun >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done; echo ended >> {notes}"
    with bough.Session(slurm.address, name="slurm") as session:
        assert session.command("hostname; echo $SLURM_JOB_NAME").result(PATIENCE).stdout.startswith("node1\nbough-")
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024
        task = session.command(wait)
        slurm.until(notes.exists, "the task to begin")
        [relay] = cluster.relays()
        slurm.until(lambda: cluster.connections() == 1, "the relay to say that it has an executor")
        [job] = cluster.slurm.jobs()
        cluster.link.cut()
        slurm.until(lambda: "relay-lost" in slurm.log(), "the server to notice")
        cluster.link.mend()
        slurm.until(lambda: "reconnected with 1 span" in slurm.log(), "the executor to reconnect")
        os.kill(relay, signal.SIGKILL)
        slurm.until(lambda: cluster.relays() not in ([], [relay]), "the next relay")
        slurm.until(lambda: [one["state"] for one in slurm.entries()] == ["active"], "the executor to find it")
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
        assert cluster.slurm.jobs() == [job]
    assert notes.read_text().split() == ["begun", "ended"]
    slurm.bough("site", "remove", "alpha")
    slurm.until(lambda: not cluster.slurm.jobs(), "the job to end")
    slurm.until(lambda: not cluster.head.processes(), "everything to end")
    assert not list(cluster.head.home.rglob("*.json"))


def test_the_relay_ends_soon_after_the_last_pilot_and_is_there_for_the_next(slurm: ClusterShop) -> None:
    cluster = slurm.cluster
    quick = ("--cores-per-pilot", "1", "--poll", "0.3s", "--walltime", "10m", "--idle", "1s")
    slurm.bough("site", "add", "alpha", "--ssh", "alpha", "--batch", "slurm", *quick)
    ports = set()
    for number in range(2):
        with bough.Session(slurm.address, name=f"turn{number}") as session:
            assert session.command("hostname").result(PATIENCE).stdout == "node1\n"
        slurm.until(lambda: not cluster.slurm.jobs(), "the pilot to end")
        slurm.until(
            lambda: not cluster.relays(), "the relay to end", 45.0
        )  # by itself it would after a minute and a half
        assert cluster.head.processes(), "the connection is kept for longer"
        ports |= {path.read_text() for path in cluster.head.home.rglob("relays/*/relay/port")}
    assert len(ports) == 1
    with bough.Session(slurm.address, name="last") as session:
        session.command("true").result(PATIENCE)
    slurm.bough("site", "disable", "alpha")
    slurm.until(lambda: not cluster.slurm.jobs() and not slurm.pilots(), "the last pilot to end")
    slurm.bough("server", "stop")
    slurm.until(lambda: not cluster.head.processes(), "everything to end with the server", 30.0)
