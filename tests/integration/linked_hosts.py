"""Hosts on this machine: network namespaces with names of their own on one bridge, whose links have a bandwidth.

Each host has its own address and hostname, and sees the client's folder as empty, so that files must travel to it. It
needs root. Names carry this process' number, and `close` removes all that was made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

DEADLINE = 300.0
_LINE = Path(__file__).parents[1] / "bench" / "tap_line.py"


def until(condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.05)


def shell(text: str) -> str:
    """Run a command; what it says."""
    return subprocess.run(["sh", "-c", text], check=True, capture_output=True, text=True).stdout


def _can_link() -> bool:
    if os.geteuid() != 0:
        return False
    name = f"blh{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    except OSError:
        return False
    return made


linked = pytest.mark.skipif(not _can_link(), reason="hosts are network namespaces, which take root")


class LinkedHosts:
    """Hosts 0 to n-1; `rate` as tc writes it (100mbit), empty: as fast as the machine is."""

    def __init__(self, folder: Path, count: int, rate: str = "") -> None:
        self.folder = folder
        self._mark = f"bp{os.getpid()}"
        self._bridge = f"{self._mark}w"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._names = [f"{self._mark}x{number}" for number in range(count)]
        shell(f"ip netns add {self._bridge}")
        shell(f"ip -n {self._bridge} link add br0 type bridge && ip -n {self._bridge} link set br0 up")
        for number, name in enumerate(self._names):
            shell(
                f"ip netns add {name} && ip link add e0 netns {name} type veth peer name p{number} netns {self._bridge}"
                f" && ip -n {self._bridge} link set p{number} master br0 && ip -n {self._bridge} link set p{number} up"
                f" && ip -n {name} link set lo up && ip -n {name} addr add {self.address(number)}/24 dev e0"
                f" && ip -n {name} link set e0 up"
            )
        if rate:
            self.shape(rate)

    def shape(self, rate: str) -> None:
        """Give every link a bandwidth, both ways."""
        burst = "256k" if rate.endswith("gbit") else "64k"
        for number, name in enumerate(self._names):
            for place, device in ((name, "e0"), (self._bridge, f"p{number}")):
                queue = f"tbf rate {rate} burst {burst} latency 100ms"
                shell(f"ip netns exec {place} tc qdisc replace dev {device} root {queue}")

    def join(
        self, one: int, other: int, rate: str, milliseconds: float, loss: float, congestion: str = ""
    ) -> list[str]:
        """A line of their own between two hosts, with a delay and a loss (%) either way: the addresses at its ends.

        `congestion`: how TCP finds its speed there (cubic, bbr); empty: as the machine does.
        """
        names, addresses = (self._names[one], self._names[other]), [f"10.98.7.{one + 1}", f"10.98.7.{other + 1}"]
        ends = [word for pair in zip(names, [f"{address}/24" for address in addresses], strict=True) for word in pair]
        log = self.folder / f"line-{one}-{other}.log"
        with open(log, "wb") as file:
            words = [sys.executable, str(_LINE), *ends, str(milliseconds), str(loss)]
            self.processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file))
        until(lambda: "up" in log.read_text(), "the line")
        for name in names:
            shell(f"ip netns exec {name} tc qdisc replace dev line0 root tbf rate {rate} burst 64k latency 100ms")
            if congestion:
                shell(f"ip -n {name} route replace 10.98.7.0/24 dev line0 congctl {congestion}")
        return addresses

    def cut(self, number: int, *, is_up: bool = False) -> None:
        """Cut a host off, or connect it again."""
        shell(f"ip -n {self._bridge} link set p{number} {'up' if is_up else 'down'}")

    def hide(self, number: int, other: int) -> None:
        """Let nothing that a host says reach another one, as behind a firewall."""
        shell(f"ip -n {self._names[number]} route add blackhole {self.address(other)}/32")

    @staticmethod
    def address(number: int) -> str:
        """Of a host."""
        return f"10.99.7.{number + 1}"

    def words(self, number: int, hidden: Path | None = None) -> list[str]:
        """What goes before a command that shall run on a host."""
        mount = f"mount -t tmpfs none '{hidden}' && " if hidden is not None else ""
        inside = f'hostname {self._mark}-{number} && {mount}exec "$0" "$@"'
        return ["nsenter", f"--net=/var/run/netns/{self._names[number]}", "unshare", "-u", "-m", "sh", "-c", inside]

    def spawn(self, number: int, words: list[str], log: str, hidden: Path | None = None, **more: str) -> None:
        """Start a process on a host."""
        with open(self.folder / log, "ab") as file:
            process = subprocess.Popen(
                [*self.words(number, hidden), *words],
                env={**os.environ, **more},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.processes.append(process)

    def sent(self, number: int) -> int:
        """Bytes that a host has sent."""
        found = json.loads(shell(f"ip -n {self._names[number]} -s -j link show e0"))
        return int(found[0]["stats64"]["tx"]["bytes"])

    def close(self) -> None:
        """End and remove all; what is removed already does no harm."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in (*self._names, self._bridge):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class LinkedService:
    """A server on host 0, and executors on the others; the client is on host 0, too."""

    def __init__(self, hosts: LinkedHosts, folder: Path, *options: str) -> None:
        self._options = options
        self.hosts, self.folder = hosts, folder
        self.home, self.here = folder / "home", folder / "work"
        for made in (self.home, self.here):
            made.mkdir()
        os.environ["BOUGH_HOME"] = str(self.home)
        os.environ.pop("BOUGH_SERVER", None)
        self.python = [sys.executable, "-m", "bough.cli.main"]
        self.start("0")
        until((self.home / "server" / "server.json").exists, "the server")
        self.access = folder / "execute.json"
        self.bough("server", "access", "--role", "execute", "--output", str(self.access))

    def start(self, port: str) -> None:
        """Start the server."""
        words = [*self.python, "server", "start", "--listen", f"{self.hosts.address(0)}:{port}", *self._options]
        self.hosts.spawn(0, words, "server.log")

    @property
    def socket(self) -> str:
        """Of the server."""
        return f"unix:{self.home / 'server' / 'server.sock'}"

    def bough(self, *words: str) -> str:
        """A command of ours."""
        done = subprocess.run([*self.python, *words], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout

    def executor(self, number: int, *words: str) -> None:
        """An executor on a host, which sees neither the client's files nor the server's."""
        work = self.folder / f"host-{number}"
        options = ["--server", str(self.access), "--cores", "1", "--work", str(work), *words]
        hide = f"mount -t tmpfs none '{self.home}/server/store'; exec \"$@\""
        words = ["sh", "-c", hide, "sh", *self.python, "executor", "start", *options]
        self.hosts.spawn(number, words, f"executor-{number}.log", self.here)

    def await_executors(self, count: int) -> None:
        """Wait until so many have joined."""
        until(
            lambda: len(json.loads(self.bough("executor", "list", "--json", "--server", self.socket))) >= count,
            f"{count} executors",
        )
