"""How fast one executor takes a content from another: beside iperf3 on the same link, and scp on the unshaped one.

    python tests/bench/peer_speed.py [--megabytes 400] [--rates 100mbit 1gbit none] [--files 2000]

The two ends are the very parts of the transfer process, each with a cache of its own, on hosts that are network
namespaces: TLS, the ticket, the digest and the write to the disk are in the time, the start of the processes is not.
The last table is what caching costs for a small file: to take one in, and to pin one that is there. It needs root,
iperf3 and, for the last column, sshd.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from linked_hosts import LinkedHosts, shell, until

from bough.executor.files.host_cache import HostCache
from bough.transport.tls import fingerprint_of, new_certificate
from bough.wire.file_messages import DIGEST
from bough.wire.peer_messages import make_ticket

SECRET = b"s" * 32
_SERVE = """
import sys, time
from bough.executor.files.host_cache import HostCache
from bough.executor.files.peer_link import PeerServer, listen
from bough.transport.tls import server_context
listener = listen(sys.argv[1])
PeerServer(listener, HostCache(sys.argv[2], 1 << 40)).serve(server_context(sys.argv[3], sys.argv[4]), b"s" * 32, 8)
print(listener.getsockname()[1], flush=True)
time.sleep(3600)
"""
_READ = """
import sys, time
from bough.executor.files.host_cache import HostCache
from bough.executor.files.peer_link import PeerReader
from bough.wire.file_messages import PeerHint
folder, address, port, fingerprint, until, ticket, digest, size = sys.argv[1:]
cache, digest, size = HostCache(folder, 1 << 40), bytes.fromhex(digest), int(size)
hint = PeerHint(1, address, int(port), fingerprint, float(until), bytes.fromhex(ticket))
begun = time.monotonic()
arriving = cache.receive(digest, size)
PeerReader(2).read(hint, digest, range(size), arriving.add)
assert arriving.finish()
print(time.monotonic() - begun)
"""


def take(cache: HostCache, data: bytes) -> bytes:
    digest = blake2b(data, digest_size=DIGEST).digest()
    arriving = cache.receive(digest, len(data))
    assert arriving is not None
    arriving.add(data)
    assert arriving.finish()
    return digest


class Ends:
    """A serving end on host 0; readers on host 1."""

    def __init__(self, hosts: LinkedHosts, folder: Path, megabytes: int) -> None:
        self.hosts, self.folder, self.size = hosts, folder, megabytes << 20
        data = os.urandom(self.size)
        (folder / "plain.bin").write_bytes(data)
        self.digest = take(HostCache(str(folder / "serving"), 1 << 40), data)
        key, certificate = new_certificate()
        for name, text in (("cert", certificate), ("key", key)):
            (folder / name).write_bytes(text)
        self.fingerprint = fingerprint_of(certificate)
        words = [sys.executable, "-c", _SERVE, hosts.address(0), *(str(folder / n) for n in ("serving", "cert", "key"))]
        hosts.spawn(0, words, "serve.log")
        until(lambda: (folder / "serve.log").read_text().strip(), "the serving end")
        self.port = (folder / "serve.log").read_text().strip()

    def peer(self) -> float:
        """Bytes a second."""
        end = time.time() + 999
        ticket = make_ticket(SECRET, self.digest, 2, end)
        shutil.rmtree(self.folder / "reading", ignore_errors=True)
        words = [str(self.folder / "reading"), self.hosts.address(0), self.port, self.fingerprint, repr(end)]
        words += [ticket.hex(), self.digest.hex(), str(self.size)]
        done = subprocess.run(
            [*self.hosts.words(1), sys.executable, "-c", _READ, *words], check=True, capture_output=True, text=True
        )
        return self.size / float(done.stdout)

    def iperf(self, seconds: int = 4) -> float:
        """Bytes a second that TCP gives."""
        with subprocess.Popen([*self.hosts.words(0), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL):
            time.sleep(0.5)
            words = [*self.hosts.words(1), "iperf3", "-c", self.hosts.address(0), "-R", "-J", "-t", str(seconds)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8

    def scp(self) -> float:
        """Bytes a second of a copy by scp to the other host's disk."""
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
        return self.size / (time.monotonic() - begun)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit", "none"])
    parser.add_argument("--files", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bough-peer-speed-") as name:
        overhead(Path(name), args.files)
        for rate in args.rates:
            folder = Path(name) / rate
            folder.mkdir()
            hosts = LinkedHosts(folder, 2, "" if rate == "none" else rate)
            try:
                megabytes = min(args.megabytes, 60) if rate == "100mbit" else args.megabytes
                ends = Ends(hosts, folder, megabytes)
                rounds = [(ends.iperf(), ends.peer(), ends.scp()) for _ in range(3)]  # by turns
                raw, peer, scp = (sorted(column)[1] for column in zip(*rounds, strict=True))
                print(
                    f"{rate:>8}: iperf3 {raw / 1e6:.0f} MB/s, peer {peer / 1e6:.0f} MB/s ({peer / raw:.0%} of it),"
                    f" scp {scp / 1e6:.0f} MB/s",
                    flush=True,
                )
            finally:
                hosts.close()


if __name__ == "__main__":
    main()
