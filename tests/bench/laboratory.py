"""Sites with hosts of their own, on this machine: network namespaces, shaped links, a server at home, far executors.

    home (the server and the script) == WAN, one link for each site == gateway == LAN == hosts

Links are shaped by tbf in both directions. An executor on a host sees neither the script's directory nor the server's
store, and has a cache of its own; so all that it reads travels over real links, by TLS. It needs root and iproute2.
Rule: names are unique, processes are ended by their numbers, and all that was made is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
PATIENCE = 90.0
_TCP = ("congctl", "cubic")  # the default of Linux: bbr takes little notice of what a link drops, and sends it again


class SitePlan(NamedTuple):
    """A site to be made. Rates are in megabits a second, 0: not shaped."""

    name: str
    hosts: int
    cores: int = 1  # of each host
    lan: float = 1000.0
    wan: float = 0.0
    latency: float = 0.0  # seconds of the WAN, one way


class Host(NamedTuple):
    """A host of a site."""

    name: str
    site: str
    namespace: str
    address: str
    cores: int
    folder: Path


class Laboratory:
    """See the module."""

    def __init__(self, folder: Path, sites: list[SitePlan]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.work = folder / "work"
        self.hosts: list[Host] = []
        self.executors: dict[str, subprocess.Popen[bytes]] = {}
        self.server: subprocess.Popen[bytes] | None = None
        self._plans = sites
        self._namespaces: list[str] = []
        self._devices: list[str] = []
        self._tag = f"{os.getpid() % 10_000:x}"
        self._net = 100 + os.getpid() % 100
        self.address = f"10.{self._net}.255.1"
        for made in (self.home, self.work):
            made.mkdir(parents=True)
        self.environment = {**os.environ, "BOUGH_HOME": str(self.home)}

    # --- networks ----------------------------------------------------------------------------------------

    def build(self) -> None:
        """Make the networks."""
        _ip("addr", "add", f"{self.address}/32", "dev", "lo")
        for number, plan in enumerate(self._plans, 1):
            self._build_site(number, plan)

    def _build_site(self, number: int, plan: SitePlan) -> None:
        tag, net = self._tag, self._net
        gateway, near = f"bg{tag}{number}", f"bw{tag}{number}"
        self._add_namespace(gateway)
        self._devices.append(near)
        _ip("link", "add", near, "type", "veth", "peer", "name", "wan", "netns", gateway)
        _ip("addr", "add", f"10.{net}.{100 + number}.1/24", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", gateway, "addr", "add", f"10.{net}.{100 + number}.2/24", "dev", "wan")
        _ip("-n", gateway, "link", "set", "wan", "up")
        _ip("-n", gateway, "route", "add", "default", "via", f"10.{net}.{100 + number}.1")
        _inside(gateway, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        _shape((), near, plan.wan, plan.latency)
        _shape(("ip", "netns", "exec", gateway), "wan", plan.wan, plan.latency)
        _ip("-n", gateway, "link", "add", "lan", "type", "bridge")
        _ip("-n", gateway, "addr", "add", f"10.{net}.{number}.1/24", "dev", "lan")
        _ip("-n", gateway, "link", "set", "lan", "up")
        _ip("route", "add", f"10.{net}.{number}.0/24", "via", f"10.{net}.{100 + number}.2", *_TCP)
        for index in range(1, plan.hosts + 1):
            name = f"{plan.name}{index}"
            space, port, address = f"bh{tag}{number}x{index}", f"p{index}", f"10.{net}.{number}.{10 + index}"
            self._add_namespace(space)
            _ip("-n", gateway, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", gateway, "link", "set", port, "master", "lan", "up")
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "route", "add", "default", "via", f"10.{net}.{number}.1", *_TCP)
            _shape(("ip", "netns", "exec", gateway), port, plan.lan)
            _shape(("ip", "netns", "exec", space), "eth0", plan.lan)
            own = self.folder / "hosts" / name
            own.mkdir(parents=True)
            self.hosts.append(Host(name, plan.name, space, address, plan.cores, own))

    def _add_namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        self._namespaces.append(name)
        _ip("-n", name, "link", "set", "lo", "up")

    def bytes_out(self, site: str) -> int:
        """What home has sent to a site so far, in bytes on the wire."""
        number = next(index for index, plan in enumerate(self._plans, 1) if plan.name == site)
        return int(Path(f"/sys/class/net/bw{self._tag}{number}/statistics/tx_bytes").read_text())

    # --- processes ---------------------------------------------------------------------------------------

    def serve(self, *words: str) -> None:
        """Start the server at home, where all sites reach it."""
        self.server = self._start("server", ["server", "start", "--listen", f"{self.address}:0", *words], [])
        until(lambda: (self.home / "server" / "server.json").exists() and self._is_up(), "the server")
        for role in ("execute", "submit"):
            self.bough("server", "access", "--role", role, "--output", str(self.folder / f"{role}.json"))

    def _is_up(self) -> bool:
        return self._run("server", "status").returncode == 0

    def execute_all(self, *words: str) -> None:
        """Start an executor on each host, with some words, and wait until all have joined."""
        for host in self.hosts:
            self.execute(host, *words, wait=False)
        until(lambda: len(self._executors()) == len(self.hosts), "the executors")

    def execute(self, host: Host, *words: str, cores: int = 0, wait: bool = True) -> None:
        """Start an executor on a host, and wait until it has joined."""
        hidden = (self.work, self.home / "server")
        hide = "".join(f"mount -t tmpfs none {folder} && " for folder in hidden)
        text = f'hostname {host.name} && {hide}exec "$@"'
        inside = ["nsenter", f"--net=/var/run/netns/{host.namespace}", "unshare", "--uts", "--mount", "sh", "-c", text]
        access = host.folder / "execute.json"
        shutil.copy(self.folder / "execute.json", access)
        before = len(self._executors()) if wait else 0
        command = ["executor", "start", "--server", str(access), "--site", host.site, "--work", str(host.folder / "w")]
        command += ["--cores", str(cores or host.cores), *words]
        (host.folder / "tmp").mkdir(exist_ok=True)
        own = {"XDG_CACHE_HOME": str(host.folder / "cache"), "TMPDIR": str(host.folder / "tmp")}
        own |= {"BOUGH_HOME": str(host.folder / "home"), "XDG_RUNTIME_DIR": ""}
        self.executors[host.name] = self._start(host.name, command, [*inside, "sh"], own)
        if wait:
            until(lambda: len(self._executors()) > before, f"the executor on {host.name}")

    def _executors(self) -> list[object]:
        found: list[object] = json.loads(self.bough("executor", "list", "--json"))
        return found

    def end(self, name: str, how: int = signal.SIGTERM) -> None:
        """End the executor of a host."""
        process = self.executors.pop(name)
        process.send_signal(how)
        process.wait(PATIENCE)

    def bough(self, *words: str) -> str:
        """The answer of a command at home."""
        found = self._run(*words)
        if found.returncode:
            raise RuntimeError(f"bough {' '.join(words)}: {found.stderr}")
        return found.stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bough.cli.main", *words]
        return subprocess.run(
            command, env=self.environment, cwd=self.work, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def _start(
        self, name: str, words: list[str], inside: list[str], more: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [*inside, sys.executable, "-m", "bough.cli.main", *words]
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                command,
                env={**self.environment, **(more or {})},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        """End and remove all."""
        for process in [*self.executors.values(), *([self.server] if self.server else [])]:
            process.terminate()
        for process in [*self.executors.values(), *([self.server] if self.server else [])]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for name in self._namespaces:
            _ip("netns", "del", name, check=False)
        for name in self._devices:
            _ip("link", "del", name, check=False)
        _ip("addr", "del", f"{self.address}/32", "dev", "lo", check=False)


@contextlib.contextmanager
def laboratory(folder: Path, sites: list[SitePlan]) -> Iterator[Laboratory]:
    """A laboratory until the block is left."""
    made = Laboratory(folder, sites)
    try:
        made.build()
        yield made
    finally:
        made.close()


def until(met: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait for something."""
    end = time.monotonic() + patience
    while not met():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {patience:g} s for {what}")
        time.sleep(0.05)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


def _inside(namespace: str, *words: str) -> None:
    subprocess.run(["ip", "netns", "exec", namespace, *words], check=True, capture_output=True)


def _shape(inside: tuple[str, ...], device: str, rate: float, latency: float = 0.0) -> None:
    """Let a device send no faster than a rate in Mbit/s; with a latency, if the kernel has netem."""
    if rate:
        burst = max(32_000, int(rate * 1e6 / 8 / 250))  # what passes in one tick of the kernel's clock
        words = ["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf", "rate", f"{rate:g}mbit"]
        subprocess.run([*inside, *words, "burst", str(burst), "latency", "100ms"], check=True, capture_output=True)
