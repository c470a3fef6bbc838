"""One file to eight executors on hosts whose links have 100 Mbit/s: what the server sends, and how long it takes.

    python tests/bench/broadcast.py [--megabytes 500] [--hosts 8] [--rate 100mbit] [--no-peers]

The time of one direct copy is that of a plain TCP connection from the server's host to one other, measured first. It
needs root. The last line says the two figures that must hold: the server sends the file at most twice, and all have it
within twice the time of one copy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from linked_hosts import LinkedHosts, LinkedService

import bough

_RECEIVE = (
    "import socket, sys; s = socket.create_server((sys.argv[1], 7777)); print('up', flush=True); c, _ = s.accept();"
    " n = 0\nwhile d := c.recv(1 << 20): n += len(d)\nc.sendall(b'k')"
)
_SEND = (
    "import socket, sys, time; s = socket.create_connection((sys.argv[1], 7777)); t = time.monotonic();"
    " f = open(sys.argv[2], 'rb'); s.sendfile(f); s.shutdown(1); s.recv(1); print(time.monotonic() - t)"
)


def direct_copy(hosts: LinkedHosts, path: Path) -> float:
    """Seconds of one plain copy from host 0 to host 1."""
    words = [*hosts.words(1), sys.executable, "-c", _RECEIVE, hosts.address(1)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        send = [*hosts.words(0), sys.executable, "-c", _SEND, hosts.address(1), str(path)]
        return float(subprocess.run(send, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--timeline", action="store_true", help="when each host began to get it, and had it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bough-broadcast-") as name:
        folder = Path(name)
        hosts = LinkedHosts(folder, args.hosts + 1, args.rate)
        try:
            broadcast(hosts, folder, args)
        finally:
            hosts.close()


def broadcast(hosts: LinkedHosts, folder: Path, args: argparse.Namespace) -> None:
    service = LinkedService(hosts, folder)
    big = service.here / "big.bin"
    with open(big, "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(args.megabytes))
    size = args.megabytes << 20
    copy = direct_copy(hosts, big)
    print(f"one direct copy of {args.megabytes} MB: {copy:.1f} s, {size / copy / 125e3:.0f} Mbit/s", flush=True)
    for number in range(1, args.hosts + 1):
        service.executor(number, *(["--no-peers"] if args.no_peers else []))
    service.await_executors(args.hosts)
    os.chdir(service.here)
    before, begun = hosts.sent(0), time.monotonic()
    if args.timeline:
        subprocess.run(["date", "+begun %T.%N"], check=True)
    with bough.Session(service.socket, name="broadcast") as s:
        tasks = [s.command(f"wc -c < {{x:r}}; uname -n; echo {n}", x="big.bin") for n in range(args.hosts)]
        places = set()
        for task in tasks:
            counted, place, _ = task.result(3600).stdout.split()
            assert int(counted) == size
            places.add(place)
        taken = time.monotonic() - begun
    sent = hosts.sent(0) - before
    print(
        f"{args.hosts} executors on {len(places)} hosts had it after {taken:.1f} s; the server sent {sent / 1e6:.0f} MB"
    )
    if args.timeline:
        for path in sorted(folder.glob("host-*/bough-contents-*/*"), key=os.path.getctime):
            if len(path.name) == 64:
                state = subprocess.run(["stat", "-c", "%W %Z %w %z", path], capture_output=True, text=True, check=True)
                print(path.parts[-3], state.stdout.strip())
    print(f"sent {sent / size:.2f} times; {taken / copy:.2f} times one copy")
    ok = sent <= 2.2 * size and taken <= 2 * copy and len(places) == args.hosts
    print("ok" if ok else "NOT as it must be")


if __name__ == "__main__":
    main()
