"""What a service that lives long takes: 10^7 tasks in 10^4 workflows through one server that removes what is over.

    python -m tests.e2e.long_service                                 # 10,000 workflows of 1,000 tasks: two minutes
    python -m tests.e2e.long_service --workflows 500 --tasks 1000    # a small one

Every workflow is an array, and a group of loose tasks, run by emulated executors; two clients submit one after the
other. It prints the server's resident memory and what its store takes on the disk for every tenth, and ends with 1 if
the last tenth takes more than 1.5 times the memory of the first. A small one is part of the tests. Rule: it is driven
by the public commands and the wire, as any client would, and looks at the server from outside only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import cloudpickle

from bough.model.events.news import GroupClosed
from bough.model.tasks import ArraySpec, GroupSpec, Kind, TaskSpec
from bough.testing.builders import question
from bough.wire.client_messages import (
    VERSION,
    Accepted,
    Answer,
    Ask,
    Blob,
    ClientHello,
    Closed,
    CloseSession,
    Refused,
    Submit,
    Welcome,
)
from bough.wire.framing import frame, to_client_frames

MOST = 1.5  # times the memory of the first tenth
LOOSE = 20  # tasks of a workflow that are loose; the others are an array
PATIENCE = 120.0  # seconds for an answer


class Line:
    """One connection to a server."""

    def __init__(self, path: Path, workflow: str = "", ids: int = 0) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(PATIENCE)
        self._sock.connect(str(path))
        self._frames = to_client_frames()
        self.say(ClientHello(VERSION, os.getpid(), f"bench-{threading.get_ident()}", workflow=workflow, ids=ids))
        self.welcome: Welcome = self.wait(Welcome)

    def say(self, *messages: object) -> None:
        self._sock.sendall(frame(*messages))

    def wait(self, kind: type) -> object:
        while True:
            data = self._sock.recv(1 << 20)
            if not data:
                raise EOFError("the server hung up")
            for message in self._frames.feed(data):
                if isinstance(message, Refused):
                    raise RuntimeError(message.message)
                if isinstance(message, kind):
                    return message

    def ask(self, what: str, **arguments: object) -> object:
        self.say(Ask(1, question(what, **arguments)))
        return self.wait(Answer).value

    def close(self) -> None:
        self._sock.close()


class Site:
    """A server and its executors in a home of their own."""

    def __init__(self, folder: Path, executors: int, *words: str) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.socket = self.home / "server" / "server.sock"
        self.store = self.home / "server" / "store"
        self._folder = folder
        self._environment = {**os.environ, "BOUGH_HOME": str(self.home)}
        self._environment.pop("BOUGH_SERVER", None)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._words = words
        self.server = self._start("server", "start", *words)
        note = self.home / "server" / "server.json"
        self.until(lambda: note.exists() and json.loads(note.read_bytes())["pid"] == self.server.pid)
        self._start("executor", "start", "--emulate", str(executors), "--cores", "2")
        self.until(lambda: len(self.ask("executors")) == executors)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with open(self._folder / f"{words[0]}.log", "ab") as log:
            command = [sys.executable, "-P", "-m", "bough.cli.main", *words]
            process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)
        self._processes.append(process)
        return process

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end or self.server.poll() is not None:
                raise RuntimeError((self._folder / "server.log").read_text()[-2000:])
            time.sleep(0.05)

    def restart(self) -> None:
        """End the server and start another one on the same store."""
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(PATIENCE)
        self._processes.remove(self.server)
        self.server = self._start("server", "start", *self._words)
        note = self.home / "server" / "server.json"
        self.until(lambda: note.exists() and json.loads(note.read_bytes())["pid"] == self.server.pid)

    def ask(self, what: str, **arguments: object) -> object:
        line = Line(self.socket)
        try:
            return line.ask(what, **arguments)
        finally:
            line.close()

    @property
    def resident(self) -> int:
        """Bytes of the server."""
        pages = int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def disk(self) -> int:
        """Bytes of the store."""
        return sum(one.stat().st_blocks * 512 for one in _files(self.store))

    def end(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.exists():
                yield path


@contextmanager
def site(executors: int = 4, *words: str) -> Iterator[Site]:
    """A site that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bough-long-", dir=os.environ.get("BOUGH_BENCH_DIR")))
    made = Site(folder, executors, *words)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


BODY = cloudpickle.dumps(abs)
BODY_ID = hashlib.blake2b(BODY, digest_size=16).digest()


def run_workflow(path: Path, name: str, tasks: int) -> None:
    """Submit a workflow and wait for its end."""
    line = Line(path, name, ids=LOOSE + 10)
    welcome = line.welcome
    table = cloudpickle.dumps(range(tasks - LOOSE))
    table_id = hashlib.blake2b(table, digest_size=16).digest()
    first, group = welcome.first_id, welcome.first_group
    payload = pickle.dumps(((1,), {}))
    items: list[object] = [
        GroupSpec(group, "loose", welcome.group),
        ArraySpec(first, Kind.FUNCTION, BODY_ID, tasks - LOOSE, table=table_id, group=welcome.group, template="abs"),
    ]
    items += [
        TaskSpec(first + number, Kind.FUNCTION, BODY_ID, payload, group=group, name=f"t{number}", template=name)
        for number in range(1, LOOSE + 1)
    ]
    line.say(Blob(BODY_ID, BODY), Blob(table_id, table), Submit(items, 1))
    line.wait(Accepted)
    line.say(GroupClosed(group), CloseSession("drain"))
    line.wait(Closed)
    line.close()


class Tenth:
    """What the server took after a tenth of the workflows."""

    def __init__(self, made: Site, workflows: int, tasks: int, begun: float) -> None:
        sample = made.ask("statistics", seconds=1)[-1]
        self.workflows, self.tasks = workflows, tasks
        self.seconds = time.monotonic() - begun
        self.resident, self.disk = made.resident, made.disk
        self.records, self.known = sample.get("records", -1), sample.get("workflows", -1)

    def __str__(self) -> str:
        return (
            f"{self.workflows:9,} {self.tasks:12,} {self.seconds:8.0f} {self.resident / 1e6:9.0f}"
            f" {self.disk / 1e6:9.0f} {self.records:9,} {self.known:9,}"
        )


HEAD = "workflows        tasks  seconds    RSS MB   disk MB   records workflows in memory"


def drive(made: Site, workflows: int, tasks: int, clients: int = 2) -> list[Tenth]:
    """Run so many workflows of so many tasks each; what was seen after each tenth."""
    begun = time.monotonic()
    seen: list[Tenth] = []
    step = max(1, workflows // 10)
    with ThreadPoolExecutor(clients) as threads:
        for start in range(0, workflows, step):
            done = min(start + step, workflows)
            work = [threads.submit(run_workflow, made.socket, f"w{number}", tasks) for number in range(start, done)]
            for one in work:
                one.result()
            seen.append(Tenth(made, done, done * tasks, begun))
            print(seen[-1], flush=True)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workflows", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=1_000, help="of each workflow")
    parser.add_argument("--executors", type=int, default=4)
    parser.add_argument("--keep", default="5s", help="remove what ended longer ago; empty: nothing")
    args = parser.parse_args()
    words = ["--keep", args.keep] if args.keep else []
    print(HEAD)
    with site(args.executors, *words) as made:
        seen = drive(made, args.workflows, args.tasks)
        made.restart()
        print(f"after a restart: {made.resident / 1e6:.0f} MB")
    ratio = seen[-1].resident / seen[0].resident
    print(f"memory of the last tenth over the first: {ratio:.2f}")
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
