"""How fast one executor takes a content from another: beside iperf3, bare TLS and scp on the same link.

    python tests/bench/peer_speed.py [--megabytes 400] [--rates 100mbit 1gbit none] [--rounds 5] [--files 1000]
    python tests/bench/peer_speed.py --rates --far 100mbit:40:0 100mbit:40:0.5 [--congestion cubic]
    python tests/bench/peer_speed.py --rates --force 1gbit none

The two ends are the very parts of the transfer process, each with a cache of its own, on hosts that are network
namespaces: TLS, the ticket, the digest and the write to the disk are in the time, the start of the processes is not.
Bare TLS is a loop of `sendall` and `recv_into` in Python, which keeps nothing. All take turns; of each the best round
counts, because others use the machine, and the seconds of processor that a gigabyte takes are printed beside it.
First comes what caching costs for a small file: to take one in, and to pin one that is there. It needs root, iperf3
and sshd.

`--far RATE:MILLISECONDS:LOSS` is a line with a delay and a loss in percent, either way (`tap_line.py`): a content over
one stream, and over as many as are used there, beside iperf3 with one and with four. `--force` does the same on links
without a delay, with the streams that would be used if the peer were far.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from hashlib import blake2b
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from linked_hosts import LinkedHosts, shell, until

from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers.peer_streams import FAR
from bough.transport.tls import fingerprint_of, new_certificate
from bough.wire.file_messages import DIGEST
from bough.wire.peer_messages import make_ticket

SECRET = b"s" * 32
NEVER = 1e9  # seconds of a round trip
_SERVE = """
import sys, time
from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers.peer_server import PeerServer, listen
from bough.transport.tls import server_context
listener = listen(sys.argv[1])
PeerServer(listener, HostCache(sys.argv[2], 1 << 40)).serve(server_context(sys.argv[3], sys.argv[4]), b"s" * 32, 8)
print(listener.getsockname()[1], flush=True)
time.sleep(3600)
"""
_READ = """
import sys, time
from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers.peer_reader import PeerReader
from bough.executor.files.transfers.range_plan import RangePlan
from bough.wire.file_messages import PeerHint
from bough.executor.files.transfers import peer_streams
folder, address, port, fingerprint, until, ticket, digest, size, far = sys.argv[1:]
peer_streams.FAR = float(far)
cache, digest, size = HostCache(folder, 1 << 40), bytes.fromhex(digest), int(size)
hint = PeerHint(1, address, int(port), fingerprint, float(until), bytes.fromhex(ticket))
begun, used = time.monotonic(), time.process_time()
arriving = cache.receive(digest, size)
PeerReader(2).read(hint, digest, RangePlan(0, size, arriving.add))
assert arriving.finish()
print(time.monotonic() - begun, time.process_time() - used)
"""
_PUMP = """
import sys, time
from bough.executor.files.transfers.peer_server import listen
from bough.transport.tls import server_context
listener = listen(sys.argv[1])
print(listener.getsockname()[1], flush=True)
context, block = server_context(sys.argv[2], sys.argv[3]), memoryview(bytearray(1 << 18))
while True:
    with context.wrap_socket(listener.accept()[0], server_side=True) as line:
        left = int.from_bytes(line.recv(8), "big")
        while left:
            line.sendall(block[: min(left, len(block))])
            left -= min(left, len(block))
"""
_DRAIN = """
import socket, sys, time
from bough.transport.tls import client_context
line = client_context().wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
left, block = int(sys.argv[3]), bytearray(1 << 18)
begun, used = time.monotonic(), time.process_time()
line.sendall(left.to_bytes(8, "big"))
while left:
    left -= line.recv_into(block)
print(time.monotonic() - begun, time.process_time() - used)
"""


class Speed(NamedTuple):
    """Of one transfer: bytes a second, and seconds of processor for 10^9 bytes at either end."""

    rate: float
    sends: float = 0.0
    reads: float = 0.0

    def __str__(self) -> str:
        used = f" ({self.sends:.2f} + {self.reads:.2f} s/GB)" if self.reads else ""
        return f"{self.rate / 1e6:.0f} MB/s{used}"


def take(cache: HostCache, data: bytes) -> bytes:
    digest = blake2b(data, digest_size=DIGEST).digest()
    arriving = cache.receive(digest, len(data))
    assert arriving is not None
    arriving.add(data)
    assert arriving.finish()
    return digest


class Ends:
    """A serving end on host 0; readers on host 1."""

    def __init__(self, hosts: LinkedHosts, folder: Path, megabytes: int, address: str = "") -> None:
        self.hosts, self.folder, self.size = hosts, folder, megabytes << 20
        self.address = address or hosts.address(0)
        data = os.urandom(self.size)
        (folder / "plain.bin").write_bytes(data)
        self.digest = take(HostCache(str(folder / "serving"), 1 << 40), data)
        key, certificate = new_certificate()
        for name, text in (("cert", certificate), ("key", key)):
            (folder / name).write_bytes(text)
        self.fingerprint = fingerprint_of(certificate)
        pair = [str(folder / "cert"), str(folder / "key")]
        self._serving = self._start(_SERVE, "serve.log", str(folder / "serving"), *pair)
        self._pumping = self._start(_PUMP, "pump.log", *pair)

    def _start(self, code: str, log: str, *words: str) -> tuple[int, str]:
        """A serving end on host 0: its process and its port."""
        self.hosts.spawn(0, [sys.executable, "-c", code, self.address, *words], log)
        until(lambda: (self.folder / log).read_text().strip(), "the serving end")
        return self.hosts.processes[-1].pid, (self.folder / log).read_text().strip()

    def peer(self, far: float = FAR) -> Speed:
        """A content, from cache to cache; `far`: seconds of a round trip from which on there are several streams."""
        end = time.time() + 999
        ticket = make_ticket(SECRET, self.digest, 2, end)
        shutil.rmtree(self.folder / "reading", ignore_errors=True)
        pid, port = self._serving
        words = [str(self.folder / "reading"), self.address, port, self.fingerprint, repr(end)]
        return self._read(pid, _READ, *words, ticket.hex(), self.digest.hex(), str(self.size), repr(far))

    def pump(self) -> Speed:
        """As many bytes by TLS alone."""
        pid, port = self._pumping
        return self._read(pid, _DRAIN, self.address, port, str(self.size))

    def _read(self, sender: int, code: str, *words: str) -> Speed:
        before, command = used_by(sender), [*self.hosts.words(1), sys.executable, "-c", code, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        took, used = map(float, done.stdout.split())
        giga = self.size / 1e9
        return Speed(self.size / took, (used_by(sender) - before) / giga, used / giga)

    def iperf(self, seconds: int = 4, streams: int = 1) -> Speed:
        """What TCP gives."""
        with subprocess.Popen([*self.hosts.words(0), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL):
            time.sleep(0.5)
            words = [*self.hosts.words(1), "iperf3", "-c", self.address, "-R", "-J", "-t", str(seconds)]
            words += ["-P", str(streams)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
        return Speed(float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8)

    def scp(self) -> Speed:
        """A copy by scp to the other host's disk."""
        ssh = self.folder / "ssh"
        if not ssh.exists():
            ssh.mkdir()
            for name in ("host", "user"):
                shell(f"ssh-keygen -q -t ed25519 -N '' -f {ssh / name}")
            shutil.copy(ssh / "user.pub", ssh / "allowed")
            Path("/run/sshd").mkdir(exist_ok=True)
            (ssh / "conf").write_text(
                f"Port 2222\nListenAddress {self.hosts.address(0)}\nHostKey {ssh / 'host'}\nPidFile {ssh / 'pid'}\n"
                f"AuthorizedKeysFile {ssh / 'allowed'}\nPermitRootLogin prohibit-password\nUsePAM no\nStrictModes no\n"
                "Subsystem sftp internal-sftp\n"
            )
            self.hosts.spawn(0, ["/usr/sbin/sshd", "-D", "-f", str(ssh / "conf")], "sshd.log")
            until((ssh / "pid").exists, "sshd")
        options = f"-q -P 2222 -i {ssh / 'user'} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        source = f"root@{self.hosts.address(0)}:{self.folder / 'plain.bin'}"
        begun = time.monotonic()
        words = [*self.hosts.words(1), "sh", "-c", f"scp {options} {source} {self.folder / 'copied.bin'}"]
        subprocess.run(words, check=True, capture_output=True)
        return Speed(self.size / (time.monotonic() - begun))


def used_by(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overhead(folder: Path, files: int) -> None:
    """What the cache costs for a small file."""
    for place in (folder / "small", Path("/dev/shm") / f"bough-bench-{os.getpid()}"):
        cache = HostCache(str(place), 1 << 40)
        data = [b"%d" % number * 100 for number in range(files)]
        begun = time.perf_counter()
        digests = [take(cache, one) for one in data]
        taken = time.perf_counter() - begun
        begun = time.perf_counter()
        for digest in digests:
            assert cache.pin(digest, "task")
        pinned = time.perf_counter() - begun
        cache.unpin("task")
        begun = time.perf_counter()
        for number, one in enumerate(data):
            (place / f"plain-{number}").write_bytes(one)
        plain = time.perf_counter() - begun
        print(
            f"{place.parent}: taking a file in {1e3 * taken / files:.3f} ms"
            f" (writing it plainly {1e3 * plain / files:.3f}), pinning one that is there {1e3 * pinned / files:.3f} ms"
        )
        cache.close()
        shutil.rmtree(place)


def compare_streams(ends: Ends, name: str, far: float, rounds: int) -> None:
    """One stream against several, by turns, beside what TCP gives."""
    size = ends.size / 1e6
    ways = {
        "iperf3": lambda: ends.iperf(8),
        "iperf3 -P 4": lambda: ends.iperf(8, 4),
        "one stream": lambda: ends.peer(NEVER),
        "several": lambda: ends.peer(far),
    }
    found: dict[str, list[Speed]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, measure in ways.items():
            found[way].append(measure())
    print(f"{name}, {size:.0f} MB, Mbit/s, medians of {rounds} (least to most):", flush=True)
    for way, speeds in found.items():
        rates = sorted(8 * speed.rate / 1e6 for speed in speeds)
        used = min(speeds, key=lambda speed: speed.sends + speed.reads)
        cost = f"; {used.sends:.2f} + {used.reads:.2f} s of processor for a GB" if used.reads else ""
        print(f"  {way:12} {median(rates):7.1f} ({rates[0]:.1f} to {rates[-1]:.1f}){cost}", flush=True)
    gains = [several.rate / one.rate for one, several in zip(found["one stream"], found["several"], strict=True)]
    print(f"  several to one: {median(gains):.2f} ({', '.join(f'{gain:.2f}' for gain in gains)})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--far", nargs="*", default=[], metavar="RATE:MILLISECONDS:LOSS")
    parser.add_argument("--force", nargs="*", default=[], metavar="RATE")
    parser.add_argument("--congestion", default="cubic", help="of TCP on the far lines")
    parser.add_argument("--rates", nargs="*", default=["100mbit", "1gbit", "none"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bough-peer-speed-") as name:
        for line in args.far:
            folder = Path(name) / line
            folder.mkdir()
            hosts = LinkedHosts(folder, 2)
            try:
                rate, delay, loss = line.split(":")
                address, _ = hosts.join(0, 1, rate, float(delay), float(loss), args.congestion)
                ends = Ends(hosts, folder, args.megabytes, address)
                title = f"{rate}, {delay} ms and {loss} % loss each way, {args.congestion}"
                compare_streams(ends, title, FAR, args.rounds)
            finally:
                hosts.close()
        for rate in args.force:
            folder = Path(name) / f"forced-{rate}"
            folder.mkdir()
            hosts = LinkedHosts(folder, 2, "" if rate == "none" else rate)
            try:
                compare_streams(Ends(hosts, folder, args.megabytes), f"{rate}, near, forced", 0.0, args.rounds)
            finally:
                hosts.close()
        if args.rates:
            overhead(Path(name), args.files)
        for rate in args.rates:
            folder = Path(name) / rate
            folder.mkdir()
            hosts = LinkedHosts(folder, 2, "" if rate == "none" else rate)
            try:
                megabytes = min(args.megabytes, 60) if rate == "100mbit" else args.megabytes
                ends = Ends(hosts, folder, megabytes)
                rounds = [(ends.iperf(), ends.pump(), ends.peer(), ends.scp()) for _ in range(args.rounds)]
                raw, pump, peer, scp = map(max, zip(*rounds, strict=True))
                print(
                    f"{rate:>8}: iperf3 {raw}, bare TLS {pump}, peer {peer}, scp {scp};"
                    f" peer to iperf3 {peer.rate / raw.rate:.0%}, to bare TLS {peer.rate / pump.rate:.0%},"
                    f" to scp {peer.rate / scp.rate:.0%}; rounds "
                    + ", ".join(f"{turn[2].rate / turn[0].rate:.0%}" for turn in rounds),
                    flush=True,
                )
            finally:
                hosts.close()


if __name__ == "__main__":
    main()
