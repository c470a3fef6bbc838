"""A service whose executors are behind relays: real processes with homes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from service_client import Service, until

SERVER = ("--listen", "127.0.0.1:0", "--heartbeat", "2s", "--reconnect", "20s")


class Relay:
    """A relay with a home of its own, as on another machine."""

    def __init__(self, folder: Path, name: str, server: Path | str, listen: str = "127.0.0.1:0", *words: str) -> None:
        self.home = folder / name
        self.home.mkdir()
        self.words = ["relay", "start", "--server", str(server), *(["--listen", listen] if listen else []), *words]
        self.log = folder / f"{name}.log"
        self.access = self.home / "relay" / "access.json"
        self.note = self.home / "relay" / "relay.json"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, linked: bool = True) -> Relay:
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bough.cli.main", *self.words],
                env={**os.environ, "BOUGH_HOME": str(self.home)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        if linked:
            until(lambda: self.read().get("linked"), "the relay's link")
        return self

    def read(self) -> dict[str, object]:
        assert self.process.poll() is None, self.log.read_text()
        try:
            note = json.loads(self.note.read_bytes())
        except (OSError, ValueError):
            return {}
        return note if note["pid"] == self.process.pid else {}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Site(Service):
    """A service whose executors are behind relays."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.relays: list[Relay] = []

    def begin(self, *words: str) -> Path:
        """Start the server; its access file for executors."""
        self.start(*SERVER, *words)
        path = self.folder / "execute.json"
        self.bough("server", "access", "--role", "execute", "--output", str(path))
        return path

    def relay(self, server: Path | str, listen: str = "127.0.0.1:0", *words: str) -> Relay:
        relay = Relay(self.folder, f"relay-{len(self.relays)}", server, listen, *words)
        self.relays.append(relay)
        return relay.start()

    def relay_of_own_home(self, *words: str) -> Relay:
        """A relay on the server's own machine, which finds it by itself."""
        relay = Relay(self.folder, "unused", "", listen="")
        relay.home, relay.words = self.home, ["relay", "start", *words]
        relay.access, relay.note = (self.home / "relay" / name for name in ("access.json", "relay.json"))
        self.relays.append(relay)
        return relay.start()

    def behind(self, relay: Relay, cores: int = 1, *, joined: bool = True) -> subprocess.Popen[bytes]:
        return self.executor("--server", str(relay.access), cores=cores, joined=joined)

    def clean_up(self) -> None:
        super().clean_up()
        for relay in self.relays:
            relay.clean_up()


def gated(folder: Path, name: str) -> str:
    return f"echo $$ >> {folder}/{name}.runs; until [ -e {folder}/{name}.go ]; do sleep 0.05; done; echo {name}"


def begun(folder: Path, name: str) -> None:
    until((folder / f"{name}.runs").exists, f"the start of {name}")


def runs(folder: Path, name: str) -> int:
    return len((folder / f"{name}.runs").read_text().split())
