"""Hosts of SSH sites that serve files to each other, and those that cannot: real sshds in networks of their own.

Each host sees the submitter's folder as empty, so that files must travel to it. Its executor reaches the server by a
Unix socket that SSH forwards, and offers others the address at which SSH came.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from compute_nodes import NOTICED_SOON, ip
from processes import PATIENCE, read
from site_shop import SiteShop, shop_folder
from ssh_hosts import SshHost, need_sshd
from workshop import Link, link

import bough
from bough.errors import TaskFailed

__all__ = ["shop_folder"]  # a fixture
MB = 1 << 20
SIZE = 8 * MB


class TwoHosts(SiteShop):
    """A server, and the sites alpha and beta; a task is sent to one by its name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, links: dict[str, Link]) -> None:
        super().__init__(folder, monkeypatch)
        self.links = links
        self.here = folder / "work"
        self.here.mkdir()
        monkeypatch.chdir(self.here)
        self.reach(*(self._host(name, cable) for name, cable in links.items()), options=NOTICED_SOON)
        self.start()
        for name in links:
            self.bough("site", "add", name, "--ssh", name, "--cores-per-pilot", "1", "--idle", "10m")

    def _host(self, name: str, cable: Link) -> SshHost:
        text = f'hostname {name}-host; mount -t tmpfs none {self.here}; exec "$@"'
        inside = ["nsenter", f"--net=/var/run/netns/{cable.name}", "unshare", "-u", "-m", "sh", "-c", text, "sh"]
        return SshHost(self.folder, name, address=cable.there, prefix=inside)

    def read(self, session: bough.Session, site: str, path: str = "big.bin") -> str:
        """The digest of a file as a task at a site reads it."""
        task = session.command("sha256sum < {x:r}; hostname", x=path, sites=[site])
        digest, _, host = task.result(PATIENCE).stdout.split()
        assert host == f"{site}-host"
        return digest

    def staged(self) -> list[tuple[str, int, int]]:
        """From where inputs came, in the order of tasks: the host, bytes from peers, bytes from the server."""
        text = "select host, from_peers, from_origin from staging join attempts using (id, idx, attempt) order by id"
        rows = json.loads(self.bough("sql", text, "--json"))
        return [(row["host"], row["from_peers"], row["from_origin"]) for row in rows]

    def listens_at(self, name: str) -> set[str]:
        """Addresses at which processes of a host's executors listen."""
        found = set()
        for pid in self.hosts[name].processes():
            inodes = {target for target in map(_target, _descriptors(pid)) if target.startswith("socket:")}
            for line in read(f"/proc/{pid}/net/tcp").decode().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                    address = struct.pack("<I", int(fields[1].partition(":")[0], 16))
                    found.add(socket.inet_ntoa(address))
        return found


def _descriptors(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    return []


def _target(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


def connect(one: Link, other: Link) -> None:
    """A cable between two hosts: they reach each other at the addresses that the server knows."""
    ip("link", "add", "lan", "netns", one.name, "type", "veth", "peer", "name", "lan", "netns", other.name)
    for host, peer in ((one, other), (other, one)):
        ip("-n", host.name, "link", "set", "lan", "up")
        ip("-n", host.name, "route", "add", f"{peer.there}/32", "dev", "lan", "src", host.there)


def hide(one: Link, other: Link) -> None:
    """What two hosts send each other vanishes, as at a firewall: there is a way, and nobody answers."""
    for host, peer in ((one, other), (other, one)):
        ip("-n", host.name, "route", "add", f"{peer.there}/32", "dev", host.device, "src", host.there)


@pytest.fixture
def links() -> Iterator[dict[str, Link]]:
    need_sshd()
    with link() as alpha, link() as beta:
        yield {"alpha": alpha, "beta": beta}


@pytest.fixture
def hosts(shop_folder: Path, monkeypatch: pytest.MonkeyPatch, links: dict[str, Link]) -> Iterator[TwoHosts]:
    with contextlib.ExitStack() as stack:
        made = TwoHosts(shop_folder, monkeypatch, links)
        stack.callback(made.clean_up)
        yield made


def test_hosts_of_one_network_take_files_from_each_other(hosts: TwoHosts) -> None:
    connect(*hosts.links.values())
    data = os.urandom(SIZE)
    (hosts.here / "big.bin").write_bytes(data)
    with bough.Session(hosts.address, name="lan") as session:
        for site in hosts.links:
            assert hosts.read(session, site) == hashlib.sha256(data).hexdigest()
        for name, cable in hosts.links.items():
            assert hosts.listens_at(name) == {cable.there}
    hosts.until(lambda: len(hosts.staged()) == 2, "the rows")
    assert hosts.staged() == [("alpha-host", 0, SIZE), ("beta-host", SIZE, 0)]


def test_a_file_of_a_site_without_executors_comes_by_its_connection(hosts: TwoHosts) -> None:
    storage, data = hosts.folder / "storage.bin", os.urandom(SIZE)
    storage.write_bytes(data)
    os.utime(storage, (1, 1))
    digest, name = hashlib.sha256(data).hexdigest(), f"alpha:{storage}"
    with bough.Session(hosts.address, name="storage") as session:
        assert [hosts.read(session, "beta", name) for _ in range(2)] == [digest, digest]
        gone = session.command("cat {x:r}", x="alpha:/nowhere", sites=["beta"])
        with pytest.raises(TaskFailed, match=r"/nowhere lies at alpha: .* and the server cannot: .*is not there"):
            gone.result(PATIENCE)
        session.command("true", sites=["alpha"]).result(PATIENCE)  # now there is an executor
        storage.write_bytes(data[::-1])
        assert hosts.read(session, "beta", name) == hashlib.sha256(data[::-1]).hexdigest()
    hosts.until(lambda: len(hosts.staged()) >= 3, "the rows")
    assert hosts.staged()[:2] == [("beta-host", 0, SIZE), ("beta-host", 0, 0)]


def test_what_is_made_behind_a_firewall_comes_through_the_connections_of_the_server(hosts: TwoHosts) -> None:
    hide(*hosts.links.values())
    make = f"head -c {SIZE} /dev/urandom > {{o:w}}; sha256sum < {{o}}"
    with bough.Session(hosts.address, name="apart") as session:
        made = session.command(make, o="made.bin", keep=False, sites=["alpha"])
        digest = made.result(PATIENCE).stdout.split()[0]
        assert hosts.read(session, "beta", "made.bin") == digest
    assert not (hosts.here / "made.bin").exists()
    hosts.until(lambda: len(hosts.staged()) == 2, "the rows")
    assert hosts.staged() == [("alpha-host", 0, 0), ("beta-host", 0, SIZE)]
