"""A cluster in network namespaces: a head node with a real sshd, and a compute node that reaches nothing but it.

    this host -- (link) -- head node -- compute node

All share the file system, as a home directory is shared. Rule: names are unique, everything is ended by its own process
number, and the namespaces are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import PATIENCE, until
from slurm_clusters import SlurmCluster
from ssh_hosts import SshHost, install_ssh
from workshop import Link, Workshop

_QUICK = "-o ServerAliveInterval=1 -o ServerAliveCountMax=3 -o ConnectTimeout=3"  # said first, it wins


class Cluster:
    """See the module. `link` leads from this host to the head node; `slurm`: it has a batch system."""

    def __init__(self, folder: Path, link: Link, name: str = "alpha", *, slurm: bool = False) -> None:
        self.link = link
        self.name = name
        self.node = f"{link.name}c"
        self.node_address = f"10.99.{link.there.split('.')[2]}.2"
        self.head_address = f"10.99.{link.there.split('.')[2]}.1"
        self._add_node()
        self.slurm = ClusterSlurm(self) if slurm else None
        more = f"SLURM_CONF={self.slurm.conf}" if self.slurm is not None else ""
        self.head = SshHost(folder, name, address=link.there, prefix=self._inside(f"{name}-head"), more=more)

    def _inside(self, host: str) -> list[str]:
        return [*self.link.inside, *named(host)]

    def rename_head(self, host: str) -> None:
        """The sshd that is started next believes that its host has this name."""
        self.head.prefix = self._inside(host)

    def _add_node(self) -> None:
        head, node = self.link.name, self.node
        ip("netns", "add", node)
        ip("link", "add", "nodes", "netns", head, "type", "veth", "peer", "name", "head", "netns", node)
        ip("-n", head, "addr", "add", f"{self.head_address}/24", "dev", "nodes")
        ip("-n", head, "link", "set", "nodes", "up")
        ip("-n", node, "link", "set", "lo", "up")
        ip("-n", node, "addr", "add", f"{self.node_address}/24", "dev", "head")
        ip("-n", node, "link", "set", "head", "up")

    @property
    def on_node(self) -> list[str]:
        """Words before a command that is to run on the compute node, said by somebody on the head node.

        It shares the files of the head node, not its sockets: those that lead to servers are hidden.
        """
        hide = "for place in /tmp/bough-*; do [ ! -S $place/server ] || mount -t tmpfs -o mode=700 none $place; done"
        text = f'hostname node1; {hide}; exec "$@"'
        return ["nsenter", f"--net=/var/run/netns/{self.node}", "unshare", "--uts", "--mount", "sh", "-c", text, "sh"]

    @property
    def on_head(self) -> list[str]:
        """The same for the head node, with the file systems of this host: `ip netns exec` would mount some anew."""
        return ["nsenter", f"--net=/var/run/netns/{self.link.name}", *named(f"{self.name}-head")]

    def reaches(self, address: str, port: int) -> bool:
        """Whether the compute node can connect there."""
        look = f"import socket; socket.create_connection(({address!r}, {port}), timeout=3)"
        return (
            subprocess.run([*self.on_node, sys.executable, "-c", look], capture_output=True, check=False).returncode
            == 0
        )

    def relays(self) -> list[int]:
        """Relays that run on the head node."""
        return [pid for pid, words in self.head.processes().items() if " relay start " in words]

    def connections(self) -> int:
        """Executors behind the relays, as these say."""
        notes = self.head.home.rglob("relays/*/relay/relay.json")
        return sum(int(json.loads(path.read_text())["connections"]) for path in notes)

    def relay_log(self) -> str:
        return "".join(path.read_text() for path in self.head.home.rglob("relays/*/log"))

    def remove(self) -> None:
        if self.slurm is not None:
            self.slurm.stop()
        self.head.cut()
        for pid in self.head.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        ip("netns", "del", self.node, check=False)


class ClusterSlurm(SlurmCluster):
    """Slurm whose controller is on the head node, and whose only node is the compute node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        super().__init__(cluster.name, 1, 2)

    def _write_conf(self, cpus: int, more: str) -> None:
        super()._write_conf(cpus, more)
        cluster = self._cluster
        text = self.conf.read_text().replace("=localhost(127.0.0.1)", f"={cluster.name}-head({cluster.head_address})")
        text = text.replace(
            "NodeHostname=localhost NodeAddr=127.0.0.1", f"NodeHostname=node1 NodeAddr={cluster.node_address}"
        )
        self.conf.write_text(text)

    def _daemon(self, *words: str, pid: Path) -> None:
        places = {"slurmctld": self._cluster.on_head, "slurmd": self._cluster.on_node}
        super()._daemon(*places.get(words[0], []), *words, pid=pid)

    def says(self, *words: str) -> str:
        return super().says(*self._cluster.on_head, *words)


def named(host: str) -> list[str]:
    """Words before a command that is to believe that its host has this name."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class ClusterShop:
    """A server on this host that knows how to reach clusters, and what `bough` says there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *hosts: SshHost) -> None:
        self.folder = folder
        self.hosts = hosts
        self.shop = Workshop(folder)
        path = f"{install_ssh(folder, list(hosts), _QUICK)}:{os.environ['PATH']}"
        for key, value in (("PATH", path), ("XDG_CACHE_HOME", str(folder / "cache"))):
            self.shop.environment[key] = value
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("BOUGH_HOME", str(self.shop.home))
        monkeypatch.delenv("BOUGH_SERVER", raising=False)

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
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}{self.log()}"
        return done.stdout + done.stderr

    def log(self) -> str:
        return self.shop.server.said() if self.shop.server is not None else ""

    def story(self) -> str:
        """All that is known when something does not come true."""
        logs = [path for host in self.hosts for path in (host.folder / "sshd.log", *host.home.rglob("log"))]
        said = [f"--- {path}\n{path.read_text(errors='replace')}" for path in logs]
        return "\n".join([self.log(), str(self.shop.ask("sites")), *said])

    def until(self, condition: object, what: str) -> None:
        until(condition, what, story=self.story)  # type: ignore[arg-type]
