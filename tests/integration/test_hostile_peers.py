"""Peers that were let in and send too much, or read nothing; and servers that are none."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from relay_site import Site
from service_client import until

from bough.model.blobs import blob_id
from bough.testing.builders import question
from bough.transport.access import Access, read_access, write_access
from bough.transport.dial import dial
from bough.transport.tls import make_certificate, server_context
from bough.wire.client_messages import VERSION, Answer, Ask, Blob, Challenge, ClientHello, Refused, Subscribe
from bough.wire.framing import frame, to_client_frames
from bough.wire.handshake import ROLE_FRAME

HELLO = ClientHello(VERSION, 1, "elsewhere")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.clean_up()


def access_for(site: Site, role: str) -> Path:
    path = site.folder / f"{role}.json"
    site.bough("server", "access", "--role", role, "--output", str(path))
    return path


def enter(access: Path) -> socket.socket:
    dialled = dial(read_access(str(access)))
    dialled.sock.settimeout(20)
    dialled.sock.sendall(frame(dialled.proof, HELLO))
    until(lambda: select.select([dialled.sock], [], [], 0.1)[0], "the welcome")
    return dialled.sock


def resident(pid: int) -> int:
    """Megabytes of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def hear_refusal(sock: socket.socket) -> str:
    frames = to_client_frames()
    while data := sock.recv(1 << 16):
        for message in frames.feed(data):
            if isinstance(message, Refused):
                return message.message
    return ""


def push(sock: socket.socket, data: bytes) -> None:
    """Send until all is taken, or nobody takes any more of it for a moment, or the other end hangs up."""
    sock.settimeout(0.3)
    view = memoryview(data)
    with contextlib.suppress(OSError):
        while view:
            view = view[sock.send(view[: 1 << 18]) :]
    sock.settimeout(20)


# --- what peers may cost ----------------------------------------------------------------------------------


def test_a_reader_cannot_make_the_server_keep_a_big_frame(site: Site) -> None:
    site.start("--listen", "127.0.0.1:0")
    access = access_for(site, "read")
    before = resident(site.server.pid)
    with contextlib.ExitStack() as readers:
        for _ in range(4):
            sock = readers.enter_context(enter(access))
            push(sock, (1 << 30).to_bytes(4, "big") + bytes(1 << 20))
            assert f"over the limit of {ROLE_FRAME['read']}" in hear_refusal(sock)
        for _ in range(20):  # as much as is allowed, and not to the end
            push(readers.enter_context(enter(access)), ROLE_FRAME["read"].to_bytes(4, "big") + bytes(1 << 19))
        assert site.bough("status").returncode == 0
        assert resident(site.server.pid) - before < 100


def test_readers_that_ask_without_reading_cost_little_and_keep_nobody_waiting(site: Site) -> None:
    site.start("--listen", "127.0.0.1:0")
    access = access_for(site, "read")
    client = site.client("one")
    for number in range(200):
        client.command("true", name=f"{number} {'x' * 1000}")
    before = resident(site.server.pid)
    ask = bytes(frame(*(Ask(number, question("explain", record=1, index=0)) for number in range(1, 900))))
    with contextlib.ExitStack() as readers:
        for _ in range(4):
            sock = readers.enter_context(enter(access))
            sock.sendall(frame(Subscribe()))
            push(sock, ask * 1000)
        assert client.ask("status")
        assert resident(site.server.pid) - before < 200
    assert client.ask("status")


def test_executors_that_leave_big_reports_incomplete_cost_a_bounded_amount_of_memory(site: Site) -> None:
    access = site.begin()
    before = resident(site.server.pid)
    with contextlib.ExitStack() as executors:
        for _ in range(12):
            sock = executors.enter_context(enter_as_executor(access))
            push(sock, ROLE_FRAME["execute"].to_bytes(4, "big") + bytes(ROLE_FRAME["execute"] - 1))
        assert resident(site.server.pid) - before < 600  # of 768
        site.executor("--server", str(access))
        client = site.client("one")
        assert client.outcome(client.command("true"))


def enter_as_executor(access: Path) -> socket.socket:
    """It has proven its role; who it is it would say next."""
    dialled = dial(read_access(str(access)))
    dialled.sock.settimeout(20)
    dialled.sock.sendall(frame(dialled.proof))
    return dialled.sock


def test_a_question_too_big_for_its_role_is_refused_where_it_is_asked(site: Site) -> None:
    site.start("--listen", "127.0.0.1:0")
    access = access_for(site, "read")
    asked = subprocess.run(
        [sys.executable, "-m", "bough.cli.main", "sql", "-", "--server", str(access)],
        input="select 1 --" + "x" * (2 << 20),
        env={**site.environment, "BOUGH_HOME": str(site.folder / "nowhere")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert asked.returncode == 2
    assert "it must be a text of length <= 1000000" in asked.stderr
    assert len(asked.stderr.splitlines()) == 1


def test_a_function_of_a_hundred_megabytes_is_taken_from_a_submitter(site: Site) -> None:
    site.start("--listen", "127.0.0.1:0")
    with enter(access_for(site, "submit")) as sock:
        sock.sendall(frame(Blob(blob_id(body := bytes(100 << 20)), body)) + frame(Ask(1, question("status"))))
        frames = to_client_frames()
        while not any(isinstance(message, Answer) for message in frames.feed(sock.recv(1 << 16))):
            pass


# --- servers that are none --------------------------------------------------------------------------------


class Impostor:
    """Listens where a server should be, with its certificate, and says something else once it has a proof."""

    def __init__(self, folder: Path, answer: bytes, *, unix: bool = False, challenge: bytes | None = None) -> None:
        self._answer = answer
        self._challenge = bytes(frame(Challenge(VERSION, b"n" * 32))) if challenge is None else challenge
        self._folder = folder
        if unix:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(folder / "socket"))
            self._listener.listen()
            self._context = None
            self.address = f"unix:{folder / 'socket'}"
        else:
            cert, key, fingerprint = make_certificate(str(folder))
            self._context = server_context(cert, key)
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = str(folder / "access.json")
            access = Access(f"127.0.0.1:{self._listener.getsockname()[1]}", fingerprint)
            self._access = access
        threading.Thread(target=self._serve, daemon=True).start()

    def access(self, role: str) -> str:
        if self._context is not None:
            write_access(self.address, msgspec.structs.replace(self._access, role=role, token="A" * 43))
        return self.address

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._speak, args=(sock,), daemon=True).start()

    def _speak(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.settimeout(20)
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
                sock.sendall(self._challenge)
            with sock:
                sock.recv(1 << 16)
                sock.sendall(self._answer)
                if self._answer:
                    sock.recv(1 << 16)  # and is silent

    def close(self) -> None:
        self._listener.close()


WORDS = {
    "read": ["-m", "bough.cli.main", "status", "--server"],
    "execute": ["-m", "bough.cli.main", "executor", "start", "--server"],
    "submit": ["-m", "bough.cli.main", "submit", "--server"],
    "relay": ["-m", "bough.cli.main", "relay", "start", "--server"],
}
ANSWERS = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a length of 4 GB": b"\xff\xff\xff\xff",
    "mail": b"220 mail.example.org ESMTP\r\n",
    "no list": b"\0\0\0\x05hello",
    "another's words": bytes(frame(HELLO)),
    "an end": b"",
}


CASES = [
    (role, what, unix)
    for role in WORDS
    for what in ANSWERS
    for unix in (False, True)
    if role != "relay" or not (unix or what == "an end")  # it goes by its own server's socket only, and tries again
]


@pytest.mark.parametrize(("role", "what", "unix"), CASES)
def test_whoever_meets_another_program_in_place_of_a_server_says_so_in_one_line(
    tmp_path: Path, role: str, what: str, unix: bool
) -> None:
    impostor = Impostor(tmp_path, ANSWERS[what], unix=unix)
    behind = ["--", "true"] if role == "submit" else []
    done = subprocess.run(
        [sys.executable, *WORDS[role], impostor.access("execute" if role == "relay" else role), *behind],
        env={**os.environ, "BOUGH_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    impostor.close()
    assert done.returncode == 3, done.stderr
    said = [line for line in done.stderr.splitlines() if "relaying" not in line]
    assert len(said) == 1, done.stderr
    expected = (
        "closed the connection|hung up|went away"
        if what == "an end"
        else "cannot be understood|speaks another language"
    )
    assert re.search(expected, said[0])
