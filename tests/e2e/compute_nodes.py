"""Clusters in network namespaces: a head node with a real sshd, and compute nodes that reach nothing but it, or are it.

    this host -- (link) -- head node -- compute nodes

All share the file system, as a home directory is shared. Rule: names are unique, everything is ended by its own process
number, and the namespaces are removed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from slurm_clusters import SlurmCluster
from ssh_hosts import SshHost
from workshop import Link

NOTICED_SOON = "-o ServerAliveInterval=1 -o ServerAliveCountMax=3 -o ConnectTimeout=3"  # for ssh, so that a cut is


class NetworkCluster:
    """See the module. `link` leads from this host to the head node.

    `nodes`: that its Slurm has, of `cpus` processors each, 0: it has no batch system; `hidden`: they share a host that
    reaches only the head node, otherwise they are on the head node.
    """

    def __init__(
        self, folder: Path, link: Link, name: str = "alpha", *, nodes: int = 0, cpus: int = 2, hidden: bool = True
    ) -> None:
        self.link = link
        self.name = name
        self.hidden = hidden
        self.node = f"{link.name}c"
        subnet = f"10.99.{link.there.split('.')[2]}"
        self.head_address, self.node_address = (f"{subnet}.1", f"{subnet}.2") if hidden else (link.there, link.there)
        if hidden:
            self._add_node()
        self._slurm = HeadSlurm(self, nodes, cpus) if nodes else None
        more = f"SLURM_CONF={self.slurm.conf}" if nodes else ""
        self.head = SshHost(folder, name, address=link.there, prefix=self._inside(f"{name}-head"), more=more)

    @property
    def slurm(self) -> HeadSlurm:
        assert self._slurm is not None
        return self._slurm

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
        """Words before a command that is to run where compute nodes are, said by somebody on the head node.

        A host of their own shares the files of the head node, not its sockets: those that lead to servers are hidden.
        """
        if not self.hidden:
            return self.on_head
        hide = "for place in /tmp/bough-*; do [ ! -S $place/server ] || mount -t tmpfs -o mode=700 none $place; done"
        text = f'hostname {self.node_name}; {hide}; exec "$@"'
        return ["nsenter", f"--net=/var/run/netns/{self.node}", "unshare", "--uts", "--mount", "sh", "-c", text, "sh"]

    @property
    def node_name(self) -> str:
        return "node1" if self.hidden else f"{self.name}-head"

    @property
    def on_head(self) -> list[str]:
        """The same for the head node, with the file systems of this host: `ip netns exec` would mount some anew."""
        return ["nsenter", f"--net=/var/run/netns/{self.link.name}", *named(f"{self.name}-head")]

    def reaches(self, address: str, port: int) -> bool:
        """Whether compute nodes can connect there."""
        look = f"import socket; socket.create_connection(({address!r}, {port}), timeout=3)"
        words = [*self.on_node, sys.executable, "-c", look]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

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
        if self._slurm is not None:
            self._slurm.stop()
        self.head.remove()
        if self.hidden:
            ip("netns", "del", self.node, check=False)


class HeadSlurm(SlurmCluster):
    """Slurm whose controller is on the head node of a cluster, and whose nodes are its compute nodes."""

    def __init__(self, cluster: NetworkCluster, nodes: int, cpus: int) -> None:
        self._cluster = cluster
        super().__init__(cluster.name, nodes, cpus)

    def _write_conf(self, cpus: int, more: str) -> None:
        super()._write_conf(cpus, more)
        cluster = self._cluster
        text = self.conf.read_text().replace("=localhost(127.0.0.1)", f"={cluster.name}-head({cluster.head_address})")
        where = f"NodeHostname={cluster.node_name} NodeAddr={cluster.node_address}"
        self.conf.write_text(text.replace("NodeHostname=localhost NodeAddr=127.0.0.1", where))

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
