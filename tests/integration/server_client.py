"""A client that speaks the wire by hand: starts a real server and says what a session would."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cloudpickle

from bough.model.commands.command import CommandCall, CommandSettings, encode_call
from bough.model.tasks import ArraySpec, Kind, TaskSpec
from bough.testing.builders import question
from bough.wire.client_messages import (
    VERSION,
    Accepted,
    Ask,
    Blob,
    ClientHello,
    Closed,
    CloseSession,
    Submit,
    TasksFailed,
    TasksSucceeded,
    Welcome,
)
from bough.wire.framing import frame, to_client_frames

DEADLINE = 60.0


def until(condition: Callable[[], object], what: str = "the condition") -> object:
    """Wait until something is true; its value."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come about within {DEADLINE} s")


class Client:
    """One session's connection, and the server it started (or joined)."""

    def __init__(self, store: Path, *options: str, cores: int = 2) -> None:
        self.store = store
        ours, theirs = socket.socketpair()
        store.mkdir(parents=True, exist_ok=True)
        words = ["--store", str(store), "--name", "test", "--fd", str(theirs.fileno()), "--cores", str(cores), *options]
        with open(store / "server.log", "ab") as log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "bough.server", *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        theirs.close()
        self.sock = ours
        self._frames = to_client_frames()
        self.heard: list[object] = []
        self.request = 0
        self.next_id = 0
        self.gone = False
        self.say(ClientHello(VERSION, os.getpid(), "here", True))

    def say(self, *messages: object) -> None:
        self.sock.sendall(frame(*messages))

    def listen(self, seconds: float = 0.1) -> None:
        poll = select.poll()  # `select` knows no descriptor above 1,023, and some tests open a thousand
        poll.register(self.sock, select.POLLIN)
        if poll.poll(seconds * 1000):
            data = self.sock.recv(1 << 20)
            if not data:
                self.gone = True
            self.heard += self._frames.feed(data)

    def wait(self, kind: type, accept: Callable[[object], bool] = lambda _: True) -> object:
        """The first message of a kind that is accepted, heard or still to come."""
        end = time.monotonic() + DEADLINE
        while True:
            for message in self.heard:
                if isinstance(message, kind) and accept(message):
                    return message
            if self.gone or time.monotonic() > end:
                log = (self.store / "server.log").read_text()
                raise AssertionError(f"no {kind.__name__} was heard, only {self.heard}\n{log}")
            self.listen()

    def welcome(self) -> Welcome:
        found = self.wait(Welcome)
        self.next_id = found.first_id
        return found

    def new_id(self) -> int:
        if not self.next_id:
            self.welcome()
        self.next_id += 1
        return self.next_id - 1

    def function(self, function: object, *args: object, **fields: object) -> int:
        body = cloudpickle.dumps(function)
        name = hashlib.blake2b(body, digest_size=16).digest()
        number = self.new_id()
        self.submit(TaskSpec(number, Kind.FUNCTION, name, pickle.dumps((args, {})), **fields), Blob(name, body))
        return number

    def array(self, function: object, values: object, **fields: object) -> int:
        blobs = [
            Blob(hashlib.blake2b(d, digest_size=16).digest(), d) for d in map(cloudpickle.dumps, (function, values))
        ]
        number = self.new_id()
        self.submit(
            ArraySpec(number, Kind.FUNCTION, blobs[0].id, len(values), table=blobs[1].id, **fields),  # type: ignore[arg-type]
            *blobs,
        )
        return number

    def command(self, text: str, **fields: object) -> int:
        shell = ("/bin/bash", "-eo", "pipefail", "-c")
        call = CommandCall(CommandSettings(str(self.store), shell), [text])
        number = self.new_id()
        self.submit(TaskSpec(number, Kind.COMMAND, b"", encode_call(call), **fields))
        return number

    def submit(self, item: object, *blobs: Blob) -> None:
        self.request += 1
        self.say(*blobs, Submit([item], self.request))

    def ask(self, what: str, **arguments: object) -> object:
        from bough.wire.client_messages import Answer

        self.request += 1
        number = self.request
        self.say(Ask(number, question(what, **arguments)))
        return self.wait(Answer, lambda answer: answer.request == number).value

    def accepted(self) -> None:
        self.wait(Accepted, lambda message: message.request == self.request)

    def outcome(self, record: int) -> TasksSucceeded:
        found = self.wait(TasksSucceeded | TasksFailed, lambda message: message.record == record)
        assert isinstance(found, TasksSucceeded), found
        return found

    def unsuccess(self, record: int) -> TasksFailed:
        return self.wait(TasksFailed, lambda message: message.record == record)

    def values(self, record: int, length: int) -> list[object]:
        """All values of an array, when they are all there."""
        found: dict[int, object] = {}

        def add() -> bool:
            for message in self.heard:
                assert not (isinstance(message, TasksFailed) and message.record == record), message
                if isinstance(message, TasksSucceeded) and message.record == record:
                    found.update(zip(range(message.start, message.stop), pickle.loads(message.results), strict=True))
            self.listen()
            return len(found) == length

        until(add, "the array's end")
        return [found[index] for index in range(length)]

    def executors(self) -> list[dict[str, object]]:
        return self.ask("status")["executors"]

    def executor_pid(self) -> int:
        return int(until(self.executors, "an executor")[0]["pid"])

    def close(self, how: str = "drain") -> Closed:
        self.say(CloseSession(how))
        closed = self.wait(Closed)
        assert self.server.wait(DEADLINE) == 0
        return closed

    def hang_up(self) -> None:
        """As if the script had been killed."""
        self.sock.close()

    def clean_up(self) -> None:
        self.sock.close()
        try:
            self.server.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
