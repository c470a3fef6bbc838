"""Doors that strangers crowd: honest peers of the same address join and work all the while, whatever runs out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from relay_site import Site
from service_client import Service, until

from bough.errors import BoughError
from bough.transport.access import Access, read_access
from bough.transport.dial import dial
from bough.wire.client_messages import VERSION, ClientHello
from bough.wire.framing import frame

IDLE = 1000
LOW = 96  # descriptors of a process in the tests of those that are used up


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.clean_up()


def place_of(access: Path) -> tuple[str, int]:
    host, _, port = json.loads(access.read_bytes())["address"].rpartition(":")
    return host, int(port)


class Crowd:
    """A thousand idle connections to a port, half of them with half a handshake, and a flood of wrong proofs."""

    def __init__(self, access: Path) -> None:
        self._place = place_of(access)
        found = read_access(str(access))
        self._wrong = Access(found.address, found.fingerprint, found.role, "A" * 43, found.server_fingerprint)
        self._idle: list[socket.socket] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._prove_wrongly) for _ in range(2)]
        self.proofs = 0

    def __enter__(self) -> Self:
        for number in range(IDLE):
            sock = socket.create_connection(self._place, 20)
            self._idle.append(sock)
            if number % 2:
                with contextlib.suppress(OSError):
                    sock.sendall(b"\x16\x03\x01\x02\x00")
        for thread in self._threads:
            thread.start()
        until(lambda: self.proofs > 20, "wrong proofs")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        for sock in self._idle:
            sock.close()

    def _prove_wrongly(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(BoughError, OSError):
                dialled = dial(self._wrong, 5)
                with dialled.sock as sock:
                    sock.sendall(frame(dialled.proof, ClientHello(VERSION, 1, "nowhere")))
                    sock.recv(1000)
            self.proofs += 1


def check_work_by(access: Path, folder: Path) -> None:
    """A script of a user who has only an access file for submitting."""
    script = "import bough\nwith bough.Session() as s:\n    print(sum(s.map(abs, range(-100, 0))))\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "BOUGH_HOME": str(folder / "nowhere"), "BOUGH_SERVER": str(access)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "5050\n", done.stderr


def submit_access(site: Service) -> Path:
    path = site.folder / "submit.json"
    site.bough("server", "access", "--role", "submit", "--output", str(path))
    return path


def test_an_executor_and_a_client_of_the_address_of_a_thousand_strangers_join_and_work(site: Site) -> None:
    execute = site.begin()
    submit = submit_access(site)
    with Crowd(execute):
        site.executor("--server", str(execute))
        check_work_by(submit, site.folder)
    lines = site.log.read_text().splitlines()
    assert any("others came, and it had not proven anything" in line for line in lines)
    assert len(lines) < 200
    until(lambda: len(os.listdir(f"/proc/{site.server.pid}/fd")) < 100, "the end of all strangers' descriptors")


@pytest.mark.parametrize("words", [(), ("--dispatch",)], ids=["forwards", "shares out"])
def test_an_executor_joins_a_relay_at_whose_door_a_thousand_strangers_stand(site: Site, words: tuple[str, ...]) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", *words)
    submit = submit_access(site)
    with Crowd(relay.access):
        site.behind(relay, joined=False)
        check_work_by(submit, site.folder)
    assert relay.process.poll() is None
    until(lambda: len(os.listdir(f"/proc/{relay.process.pid}/fd")) < 100, "the end of all strangers' descriptors")


# --- descriptors ------------------------------------------------------------------------------------------


def use_up(sock_of: Callable[[], socket.socket], log: Path) -> list[socket.socket]:
    """Connect until that is said to be too much."""
    found: list[socket.socket] = []
    while len(found) < 2 * LOW and "no peer can be let in for a moment" not in log.read_text():
        found.append(sock_of())
        until(lambda sock=found[-1]: is_answered(sock), "an answer, or the end of the connection")
    return found


def is_answered(sock: socket.socket) -> bool:
    """Whether the server has said hello or hung up."""
    return bool(select.select([sock], [], [], 0.1)[0])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_used_up_descriptors_are_logged_and_those_inside_are_served(site: Site) -> None:
    site.start()
    site.executor()
    client = site.client("one")
    resource.prlimit(site.server.pid, resource.RLIMIT_NOFILE, (LOW, LOW))

    def connect() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(str(site.address))
        with contextlib.suppress(BrokenPipeError):  # the server has hung up already
            sock.sendall(frame(ClientHello(VERSION, 1, "crowd")))
        return sock

    crowd = use_up(connect, site.log)
    assert len(crowd) < LOW
    before = cpu_seconds(site.server.pid)
    for _ in range(5):  # who is inside is served
        assert client.outcome(client.command("true"))
    assert site.log.read_text().count("no peer can be let in for a moment") < 30
    assert cpu_seconds(site.server.pid) - before < 3  # it waits, and does not try all the time
    for sock in crowd:
        sock.close()
    until(lambda: len(os.listdir(f"/proc/{site.server.pid}/fd")) < LOW // 2, "the end of the crowd")
    late = site.client("two")
    assert late.outcome(late.command("true"))


@pytest.mark.parametrize("words", [(), ("--dispatch",)], ids=["forwards", "shares out"])
def test_a_relay_whose_descriptors_are_used_up_goes_on(site: Site, words: tuple[str, ...]) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", *words)
    site.behind(relay, joined=False)
    resource.prlimit(relay.process.pid, resource.RLIMIT_NOFILE, (32, 32))
    with contextlib.ExitStack() as crowd:
        for _ in range(64):  # they have said nothing: new ones take the places of old ones
            crowd.enter_context(socket.create_connection(place_of(relay.access), 20))
        client = site.client("one")
        assert client.outcome(client.command("true"))
        site.behind(relay, joined=False)
        site.until_executors(lambda found: sum(entry["members"] for entry in found) == 2, "the second executor")
    assert client.outcome(client.command("true"))
    assert relay.process.poll() is None
