"""Attack a real server over its real sockets as every role.

    python -m tests.fuzz.fuzz_roles --messages 1000000 --seed 1

Messages are made from the message types (see `messages`): most are valid and mean something to the server (numbers of
real tasks, spans, executors, paths of real files), some have fields out of bounds, some come in an order that makes no
sense. Rule: whatever a role says, no process ends, no task is touched that the role may not touch, no file of anybody
else is read or written, and the store is whole afterwards: it is checked, served again and worked with.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from bough.errors import BoughError
from bough.model.ids import DIGEST_SIZE, BlobId, ExecutorId
from bough.model.sites.resources import Needs
from bough.transport.access import Access, read_access
from bough.transport.dial import dial
from bough.wire.client_messages import (
    VERSION,
    Ask,
    Blob,
    ClientHello,
    CloseSession,
    FromClient,
    ManageService,
    Proof,
    Refused,
    Subscribe,
    Welcome,
)
from bough.wire.executor_messages import ExecutorHello, ExecutorWelcome, FromExecutor, Leaving, RunSpan
from bough.wire.file_messages import PutPiece
from bough.wire.framing import Frames, frame, frame_list, to_client_frames, to_executor_frames
from bough.wire.questions import AnyQuestion, Sql
from bough.wire.relay_channels import FromRelay, RelayHello, RelayWelcome, ToRelay
from tests.fuzz.messages import hostile, kinds, valid

ROLES = ("stranger", "read", "execute", "relay", "member", "task", "submit", "owner")  # the last two may do all
DEADLINE = 30.0
_AT_ONCE = 40  # messages in one frame
_READING = 2.0  # seconds in which a server reads on
_LIVES = 400  # messages on one connection, at most
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SECRET = b"the content of a file that is nobody's business 7f1c"


class Broken(AssertionError):
    """The rule does not hold."""


class Target:
    """A server with all that is around it, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.work = folder / "work"
        self.work.mkdir()
        self.secret = folder / "secret"
        self.secret.write_bytes(SECRET)
        self.environment = {**os.environ, "BOUGH_HOME": str(self.home)}
        self.environment.pop("BOUGH_SERVER", None)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.log = folder / "server.log"
        self.server = self.start()
        self.access = {role: self._access(role) for role in ("read", "submit", "execute")}
        self.executor = self._spawn("executor", "start", "--emulate", "2", log="executor.log")
        self.worker = self._spawn("executor", "start", "--cores", "1", "--site", "real", log="worker.log")
        self.relay = self._start_relay()
        self.bough("submit", "--wait", "--into", "honest", "--array", "1-50", "--", "true")
        self.here = ""
        self.is_steered = False  # who attacks may do by right what he likes to the tasks that are there

    def _spawn(self, *words: str, log: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        with open(self.folder / log, "ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "bough.cli.main", *words],
                env=environment or self.environment,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start(self) -> subprocess.Popen[bytes]:
        """A server that answers when this returns."""
        server = self._spawn("server", "start", "--listen", "127.0.0.1:0", "--heartbeat", "10s", log="server.log")
        note = self.home / "server" / "server.json"
        self.until(lambda: note.exists() and json.loads(note.read_bytes())["pid"] == server.pid, "the server", server)
        return server

    def until(self, done: Callable[[], object], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
        """Wait for something."""
        end = time.monotonic() + DEADLINE
        while not done():
            if time.monotonic() > end or (process is not None and process.poll() is not None):
                raise Broken(f"{what} did not come about\n{self.tail()}")
            time.sleep(0.02)

    def bough(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command line, at this server."""
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.environment,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and done.returncode:
            raise Broken(f"bough {' '.join(words)}: exit {done.returncode}: {done.stderr}\n{self.tail()}")
        return done

    def _access(self, role: str) -> Access:
        path = self.folder / f"{role}.json"
        self.bough("server", "access", "--role", role, "--output", str(path))
        return read_access(str(path))

    def _start_relay(self) -> subprocess.Popen[bytes]:
        home = self.folder / "relay-home"
        home.mkdir()
        environment = {**self.environment, "BOUGH_HOME": str(home)}
        words = (
            "relay",
            "start",
            "--server",
            str(self.folder / "execute.json"),
            "--dispatch",
            "--listen",
            "127.0.0.1:0",
        )
        relay = self._spawn(*words, log="relay.log", environment=environment)
        own = home / "relay" / "access.json"
        self.until(own.exists, "the relay", relay)
        self.access["member"] = read_access(str(own))
        return relay

    def tail(self) -> str:
        """What the server said last."""
        return self.log.read_text(errors="replace")[-4000:]

    def is_whole(self) -> None:
        """Everything lives, answers, and is what it was."""
        living = {"server": self.server, "executor": self.executor, "worker": self.worker, "relay": self.relay}
        for name, process in living.items():
            if process.poll() is not None:
                text = (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]
                raise Broken(f"the {name} has ended with {process.returncode}\n{text}")
        if self.secret.read_bytes() != SECRET:
            raise Broken("a file of somebody else was written")
        dial(self.access["read"]).sock.close()  # whatever others of its address do, an honest peer is let in
        said = self.bough("sql", "--json", "select done from tasks where length = 50", check=not self.is_steered).stdout
        if not self.is_steered and [row["done"] for row in json.loads(said)] != [50]:
            raise Broken(f"the honest workflow was touched: {said}")

    def comes_back(self) -> None:
        """The store is checked, served again and worked with."""
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.server = self.start()
        self.is_whole()
        self.bough("submit", "--wait", "--name", "afterwards", "--", "true")
        self.server.send_signal(signal.SIGTERM)
        if self.server.wait(DEADLINE):
            raise Broken(f"the server did not end well: {self.server.returncode}\n{self.tail()}")
        checked = self.bough("store", "check", "--store", str(self.home / "server" / "store"), check=False)
        if checked.returncode:
            raise Broken(f"the store is damaged: {checked.stdout}{checked.stderr}")

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


# --- who speaks ------------------------------------------------------------------------------------


class Attacker:
    """One role; connects again when it is thrown out."""

    union: object = FromClient
    frames: Callable[[], Frames[Any]] = staticmethod(to_client_frames)
    never: frozenset[type] = frozenset()  # messages that would end the server by right
    seldom: frozenset[type] = frozenset()  # messages for which who says them is thrown out
    last: tuple[Any, str] = (["ask", 1, ["processors"]], "heard Answer")  # what is asked last, and how it is answered

    def __init__(self, target: Target, role: str, dice: random.Random) -> None:
        self.target = target
        self.role = role
        self.dice = dice
        self.counts: Counter[str] = Counter()
        self.sock: socket.socket | None = None
        self.lived = self.number = 0
        self.refused = False  # the server has said why it hangs up
        store = target.home / "server" / "store"
        paths = [
            str(target.secret),
            f"{store}/../../../secret",
            f"{store}/results/../../../../secret",
            str(store),
            "",
            "/",
        ]
        paths += [
            f"{store}/{name}" for name in ("journal.sqlite", "token", "results/x", "out/x1-0.out", "args/1.pickle")
        ]
        self.known: dict[str, list[Any]] = {
            "path": paths,
            "result": paths,
            "payload_path": paths,
            "directory": [str(target.work), str(target.folder), "/"],
            "workflow": ["honest", "mine", ""],
            "record": [1, 2, 3],
            "id": [1, 2, 3, 4294967297],
            "group": [0, 1, 2, 3],
            "run": [1, 2, 3, 4],
            "span": [1, 2, 3],
            "executor": [ExecutorId(1), ExecutorId(2), ExecutorId(3)],
            "request": [1, 2, 3],
            "version": [VERSION],
            "python": [_PYTHON],
            "statement": [
                "select * from tasks",
                "select 1",
                "pragma user_version = 7",
                "attach 'x' as y",
                "delete from tasks",
            ],
            "index": [0, 1, 49],
            "start": [0, 1],
            "stop": [1, 50],
        }

    def greeting(self) -> list[object]:
        return [ClientHello(VERSION, os.getpid(), "here", workflow=self.workflow, ids=1000)]

    @property
    def workflow(self) -> str:
        return "" if self.role == "read" else self.dice.choice(("", f"mine{self.dice.randrange(5)}"))

    def dial(self) -> tuple[socket.socket, list[object], bytes]:
        if self.role == "owner":
            return dial(Access(f"unix:{self.target.home}/server/server.sock")).sock, [], b""
        found = dial(self.target.access[self.role])
        return found.sock, [found.proof], found.leftover

    def connect(self) -> None:
        end = time.monotonic() + DEADLINE
        while True:
            try:
                self.sock, proof, leftover = self.dial()
                self.sock.settimeout(DEADLINE)
                self.reader = self.frames()
                self.sock.sendall(frame(*proof, *self.greeting()))
                self.lived = self.number = 0
                self.refused = False
                self.listen(self.reader.feed(leftover) if leftover else [])
                return
            except (OSError, BoughError) as error:
                if self.sock is not None:
                    self.sock.close()
                    self.sock = None
                if time.monotonic() > end:
                    raise Broken(f"{self.role} is not let in any more: {error}\n{self.target.tail()}") from error
                time.sleep(0.05)

    def hang_up(self) -> None:
        """Go, once the server has read all that was said: it answers a last question, or has thrown us out."""
        if self.sock is None:
            return
        with contextlib.suppress(OSError, ValueError):
            before = self.counts[self.last[1]]
            self.sock.sendall(bytes(frame_list([self.last[0]])))
            end = time.monotonic() + _READING
            while self.counts[self.last[1]] == before and not self.refused and time.monotonic() < end and self.drain():
                select.select([self.sock], [], [], 0.01)
        self.sock.close()
        self.sock = None

    def messages(self) -> list[Any]:
        """What is said next."""
        return [self.make(self.kind()) for _ in range(self.dice.choice((1, 1, 2, 5, _AT_ONCE)))]

    def kind(self) -> type:
        known = [kind for kind in kinds(self.union) if kind not in self.never]
        kind = self.dice.choice(known)
        return kind if kind not in self.seldom or self.dice.random() < 0.01 else self.kind()

    def make(self, kind: type) -> Any:
        self.number += 1
        self.known["request"] = [self.number]  # who numbers its requests badly keeps nobody but itself waiting
        return valid(kind, self.dice, self.known)

    def spoiled(self) -> Any:
        return hostile(self.kind(), self.dice, self.known)

    def attack(self) -> int:
        """Say something; how many messages that was."""
        if self.sock is None or self.lived > _LIVES:
            self.hang_up()
            self.connect()
            self.counts["connections"] += 1
        said = self.messages()
        frames = [said]
        if self.dice.random() < 0.1:
            frames.append([self.spoiled()])  # alone: a frame that cannot be read is refused as a whole
            said = [*said, *frames[-1]]
        if not all(self.say(bytes(frame_list(one))) for one in frames):
            self.counts["thrown out"] += 1
            self.hang_up()
        self.lived += len(said)
        self.counts["messages"] += len(said)
        return len(said)

    def say(self, data: bytes) -> bool:
        """Send bytes and take what comes; False when we were thrown out."""
        assert self.sock is not None
        try:
            view = memoryview(data)
            self.sock.settimeout(_READING)
            while view:
                sent = self.sock.send(view[: 1 << 16])
                view = view[sent:]
                if not self.drain():
                    return False
            return self.drain()
        except TimeoutError:  # it has too many requests of ours, or we answer nothing: that is ours to bear
            self.counts["not read"] += 1
            return False
        except (OSError, ssl.SSLError):
            return False

    def drain(self) -> bool:
        assert self.sock is not None
        while getattr(self.sock, "pending", lambda: 0)() or select.select([self.sock], [], [], 0)[0]:
            data = self.sock.recv(1 << 18)
            if not data:
                return False
            self.take(data)
        return True

    def take(self, data: bytes) -> None:
        if SECRET in data:
            raise Broken(f"{self.role} was told the content of a file of somebody else")
        try:
            self.listen(self.reader.feed(data))
        except BoughError as error:
            raise Broken(f"the server says what nobody understands: {error}") from error

    def listen(self, messages: Sequence[Any]) -> None:
        for message in messages:
            self.counts[f"heard {type(message).__name__}"] += 1
            self.refused = self.refused or (isinstance(message, Refused) and not message.request)
            if isinstance(message, Welcome) and message.ids:
                self.known["id"] = [message.first_id + n for n in range(5)]
                self.known["record"] = [*self.known["id"], 1, 2, 3]
                self.known["group"] = [message.group, message.first_group, message.first_group + 1]
                self.known["parent"] = self.known["group"]


class Reader(Attacker):
    """May only ask, but says everything."""

    seldom = frozenset(kinds(FromClient)) - {Ask, Subscribe}


class Submitter(Attacker):
    """A client; what ends the server by right is not said, and nothing but garbage is submitted to run."""

    never = frozenset({ManageService})
    seldom = frozenset({Proof, ClientHello, CloseSession})

    def make(self, kind: type) -> Any:
        made = super().make(kind)
        if kind is Blob and self.dice.random() < 0.8:  # mostly one that is what its name says
            made = Blob(BlobId(blake2b(made.data, digest_size=DIGEST_SIZE).digest()), made.data)
            self.known["body"] = self.known["table"] = [made.id, BlobId(b"")]
        return made


class Asker(Attacker):
    """A client that only asks, in every role."""

    never = frozenset({ManageService})

    def make(self, kind: type) -> Any:
        return msgspec.to_builtins(super().make(kind), builtin_types=(bytes,))

    def messages(self) -> list[Any]:
        choice = [kind for kind in kinds(AnyQuestion) if kind is not Sql or self.dice.random() < 0.1]  # which is slow
        asked = (self.make(self.dice.choice(choice)) for _ in range(self.dice.choice((1, 5, _AT_ONCE))))
        return [["ask", number, question] for number, question in enumerate(asked, 1)]


class Worker(Attacker):
    """An executor that says what it likes of the work it is given, and of what it is not."""

    union = FromExecutor
    seldom = frozenset({Proof, ExecutorHello, PutPiece, Leaving})
    last = (["hb"], "heard Heard")
    frames = staticmethod(to_executor_frames)

    def greeting(self) -> list[object]:
        return [ExecutorHello(VERSION, "bad", "there", os.getpid(), Needs(1), _PYTHON)]

    def listen(self, messages: Sequence[Any]) -> None:
        super().listen(messages)
        for message in messages:
            if isinstance(message, RunSpan):
                self.known["span"] = [message.span, message.span, *self.known["span"][:5]]
                self.known["record"] = [message.record, *self.known["record"][:5]]
            elif isinstance(message, ExecutorWelcome):
                self.known["executor"] = [message.executor, ExecutorId(1), ExecutorId(2)]


class RelayLine(Attacker):
    """A relay that carries what it likes."""

    union = FromRelay
    last = (["hb"], "heard Alive")

    def __init__(self, target: Target, role: str, dice: random.Random) -> None:
        super().__init__(target, role, dice)
        self.known["channel"] = list(range(1, 6))

    @staticmethod
    def frames() -> Frames[Any]:
        return Frames(ToRelay)

    def dial(self) -> tuple[socket.socket, list[object], bytes]:
        found = dial(self.target.access["execute"])
        return found.sock, [found.proof], found.leftover

    def greeting(self) -> list[object]:
        self.known["channel"] = list(range(1, 6))
        return [RelayHello(VERSION, "there", os.getpid(), "bad")]

    def listen(self, messages: Sequence[Any]) -> None:
        super().listen([message for message in messages if not isinstance(message, RelayWelcome)])


class Stranger(Attacker):
    """Somebody who knows no token."""

    def dial(self) -> tuple[socket.socket, list[object], bytes]:
        access = self.target.access["read"]
        sock, _, leftover = dial(access)
        return sock, [], leftover

    def greeting(self) -> list[object]:
        return [Proof("read", self.dice.randbytes(32), self.dice.randbytes(32))] if self.dice.random() < 0.5 else []

    def connect(self) -> None:
        with contextlib.suppress(OSError, BoughError):
            super().connect()

    def attack(self) -> int:
        self.hang_up()
        try:
            self.sock, _, _ = self.dial()
        except BoughError:  # there are too many strangers just now
            self.counts["not let in"] += 1
            return 0
        self.reader = self.frames()
        said = [
            self.make(self.dice.choice(kinds(FromClient | FromExecutor)))
            for _ in range(self.dice.choice((0, 1, 5, 40)))
        ]
        proof = [self.dice.choice((Proof("read", self.dice.randbytes(32), self.dice.randbytes(32)), self.spoiled()))]
        data = bytes(frame_list([*proof, *said]))
        if self.dice.random() < 0.3:
            data = data[: self.dice.randrange(len(data))] + self.dice.randbytes(self.dice.randrange(9))
        self.say(data)
        self.counts["messages"] += 1 + len(said)
        return 1 + len(said)


class RunningTask(Attacker):
    """A process of the user's that speaks to the executor on the socket for running tasks."""

    def attack(self) -> int:
        from bough.wire.here_questions import HereQuestion

        address = self._address()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(DEADLINE)
            sock.connect(address)
            task = self.dice.choice((None, [1, 0, 1], [2**63, -1, 5], "x", [1.5, None, {}]))
            kind = self.dice.choice(kinds(HereQuestion))
            question = (valid if self.dice.random() < 0.5 else hostile)(kind, self.dice, self.known)
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError, OverflowError, ValueError, TypeError):
                text = msgspec.json.encode({"task": task, "question": question})
                if self.dice.random() < 0.2:
                    text = text[: self.dice.randrange(len(text))] + self.dice.randbytes(5)
                with contextlib.suppress(OSError):
                    sock.sendall(text + b"\n")
                    if self.dice.random() < 0.5:
                        sock.recv(1 << 16)
        self.counts["messages"] += 1
        return 1

    def _address(self) -> str:
        if not self.target.here:
            with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
                names = [line.split()[-1] for line in file if f"@bough-here-{self.target.worker.pid}-" in line]
            if not names:
                raise Broken("the executor has no socket for its tasks")
            self.target.here = names[0].replace("@", "\0", 1)
        return self.target.here


def attacker(target: Target, role: str, dice: random.Random) -> Attacker:
    """Somebody of a role."""
    match role:
        case "stranger":
            return Stranger(target, role, dice)
        case "read":
            return dice.choice((Reader, Asker))(target, role, dice)
        case "submit" | "owner":
            return dice.choice((Submitter, Asker))(target, role, dice)
        case "execute" | "member":
            return Worker(target, role, dice)
        case "relay":
            return RelayLine(target, role, dice)
        case "task":
            return RunningTask(target, role, dice)
    raise ValueError(f"there is no role {role!r}; there are: {', '.join(ROLES)}")


def assault(target: Target, role: str, messages: int, seconds: float, dice: random.Random) -> Counter[str]:
    """Attack as a role until so many messages were said or the time is over; what happened."""
    counts: Counter[str] = Counter()
    target.is_steered = role in {"submit", "owner"}
    end, looked = time.monotonic() + seconds, time.monotonic()
    while counts["messages"] < messages and time.monotonic() < end:
        one = attacker(target, role, dice)
        for _ in range(200):
            one.attack()
            if counts["messages"] + one.counts["messages"] >= messages or time.monotonic() > end:
                break
        one.hang_up()
        counts += one.counts
        if time.monotonic() - looked > 5:
            looked = time.monotonic()
            target.is_whole()
    target.is_whole()
    return counts


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000, help="of each role (100,000)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of each role, at most (3600)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--role", action="append", choices=ROLES, help="only this one; may be said several times")
    args = parser.parse_args()
    for role in args.role or ROLES:
        with tempfile.TemporaryDirectory(prefix="bough-fuzz-") as name:
            target = Target(Path(name))
            begun = time.monotonic()
            try:
                counts = assault(target, role, args.messages, args.seconds, random.Random(f"{args.seed} {role}"))
                target.comes_back()
            except Broken as error:
                print(f"{role}: BROKEN: {error}", flush=True)
                return 1
            finally:
                target.close()
            took = time.monotonic() - begun
            faults = sum("could not be handled" in line or "failed" in line for line in target.tail().splitlines())
            said = ", ".join(f"{count} {what}" for what, count in counts.most_common(8))
            print(f"{role}: {took:.0f} s: {said}; faults in the last of the log: {faults}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
