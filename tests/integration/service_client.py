"""A service of real processes in a home of its own, and clients that speak its wire by hand."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
from server_client import DEADLINE, Client, is_alive, until

from bough.model.tasks import ArraySpec, TaskSpec
from bough.wire.client_messages import VERSION, ClientHello, Closed, CloseSession, ManageService, Welcome
from bough.wire.framing import to_client_frames

HEARTBEAT, RECONNECT = 1.0, 2.0  # seconds; short, so that faults are noticed within a test


class WorkflowClient(Client):
    """A client of one workflow of a service."""

    def __init__(self, address: Path, workflow: str, folder: Path, **hello: object) -> None:
        self.store = folder
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(address))
        self._frames = to_client_frames()
        self.heard: list[object] = []
        self.request = 0
        self.next_id = 0
        self.gone = False
        settings = {"pid": os.getpid(), "host": "here", "workflow": workflow, "ids": 1000, **hello}
        self.say(ClientHello(VERSION, **settings))

    def open(self) -> WorkflowClient:
        self.welcomed = super().welcome()
        self.group = self.welcomed.group
        return self

    def welcome(self) -> Welcome:
        return self.welcomed

    def submit(self, item: object, *blobs: object) -> None:
        if isinstance(item, TaskSpec | ArraySpec) and not item.group:
            item = msgspec.structs.replace(item, group=self.group)
        super().submit(item, *blobs)

    def run_command(self, text: str, **fields: object) -> int:
        """A command that is acknowledged when this returns."""
        number = self.command(text, **fields)
        self.accepted()
        return number

    def close(self, how: str = "drain") -> Closed:
        self.say(CloseSession(how))
        closed = self.wait(Closed)
        self.sock.close()
        return closed

    def manage(self, what: str, *executors: int) -> object:
        from bough.wire.client_messages import Answer

        self.request += 1
        number = self.request
        self.say(ManageService(number, what, list(executors)))
        return self.wait(Answer, lambda answer: answer.request == number).value

    def executors(self) -> list[dict[str, object]]:
        return self.ask("executors")


class Service:
    """Processes of one `$BOUGH_HOME`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.environment = {**os.environ, "BOUGH_HOME": str(self.home)}
        self.environment.pop("BOUGH_SERVER", None)
        self.address = self.home / "server" / "server.sock"
        self.log = folder / "server.log"
        self.server: subprocess.Popen[bytes] | None = None
        self.executors: list[subprocess.Popen[bytes]] = []
        self.clients: list[WorkflowClient] = []

    def bough(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A server in the foreground, that answers when this returns."""
        options = ["--heartbeat", f"{HEARTBEAT}s", "--reconnect", f"{RECONNECT}s", *words]
        self.server = self._spawn(["server", "start", *options], self.log)
        note = self.home / "server" / "server.json"

        def is_up() -> bool:
            assert self.server.poll() is None, self.log.read_text()
            return note.exists() and json.loads(note.read_bytes())["pid"] == self.server.pid

        until(is_up, "the server")
        return self.server

    def executor(
        self, *words: str, cores: int = 1, joined: bool = True, python: str = sys.executable
    ) -> subprocess.Popen[bytes]:
        """An executor in the foreground, that has joined when this returns."""
        log = self.folder / f"executor-{len(self.executors)}.log"
        process = self._spawn(["executor", "start", "--cores", str(cores), *words], log, python)
        self.executors.append(process)
        if joined:
            with_pid = [process.pid]
            self.until_executors(lambda found: any(entry["pid"] in with_pid for entry in found), "an executor", log)
        return process

    def until_executors(self, condition: object, what: str, log: Path | None = None) -> object:
        client = self.client("")
        try:
            return until(lambda: condition(client.executors()), what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()}\n{log.read_text() if log else ''}") from None
        finally:
            client.sock.close()

    def state_of(self, process: subprocess.Popen[bytes]) -> str:
        client = self.client("")
        try:
            return next((str(entry["state"]) for entry in client.executors() if entry["pid"] == process.pid), "gone")
        finally:
            client.sock.close()

    def client(self, workflow: str, **hello: object) -> WorkflowClient:
        client = WorkflowClient(self.address, workflow, self.folder, **hello)
        self.clients.append(client)
        return client.open()

    def kill(self) -> None:
        """End the server as a crash would."""
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        self.server.send_signal(signal.SIGTERM)
        assert self.server.wait(DEADLINE) == 0, self.log.read_text()

    def clean_up(self) -> None:
        for client in self.clients:
            client.sock.close()
        for process in [*self.executors, *([self.server] if self.server else [])]:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def _spawn(self, words: list[str], log: Path, python: str = sys.executable) -> subprocess.Popen[bytes]:
        with open(log, "ab") as file:
            return subprocess.Popen(
                [python, "-m", "bough.cli.main", *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )


__all__ = ["HEARTBEAT", "RECONNECT", "Service", "WorkflowClient", "is_alive", "until"]
