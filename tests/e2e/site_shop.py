"""A server without anything that runs tasks, its commands, and the hosts that it reaches by SSH: for tests of sites.

Rule: what runs for a pilot is found by the folder of the test in its command line, and what runs at a host by the
host's mark, so that a test can say that nothing is left; in the end all of it is ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, read
from ssh_hosts import SshHost, install_ssh, need_sshd
from workshop import Workshop

from bough.api.session.session import opened_sessions


class SiteShop(Workshop):
    """See the module."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.options = ("--reconnect", "60s")  # one that is slow shall not be taken for lost
        self.hosts: dict[str, SshHost] = {}
        self._patch = monkeypatch
        self.set("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setenv("BOUGH_HOME", str(self.home))
        monkeypatch.delenv("BOUGH_SERVER", raising=False)

    def set(self, key: str, value: str) -> None:
        """A variable of the server, of commands and of the test itself."""
        self.environment[key] = value
        self._patch.setenv(key, value)

    def reach(self, *hosts: SshHost, options: str = "") -> None:
        """From now on `ssh` knows these hosts; `options` of it win over all others."""
        self.hosts |= {host.name: host for host in hosts}
        self.set("PATH", f"{install_ssh(self.folder, list(self.hosts.values()), options)}:{os.environ['PATH']}")

    def bough(self, *words: str, code: int | None = 0) -> str:  # type: ignore[override]
        """What a command says; `code` None: however it ends."""
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )
        assert code in {None, done.returncode}, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}{self.story()}"
        return done.stdout + done.stderr

    # --- looking ------------------------------------------------------------------------------------

    def site(self, name: str = "alpha") -> dict[str, object]:
        return next(one for one in self.ask("sites") if one["site"] == name)

    def pilots(self) -> list[object]:
        return [pilot for site in self.ask("sites") for pilot in site["pilots"]]

    def pilot_processes(self) -> list[int]:
        """Executors of pilots on any host, told by the folder that they run from."""
        found = []
        for entry in filter(str.isdecimal, os.listdir("/proc")):
            words = read(f"/proc/{entry}/cmdline")
            if os.fsencode(self.folder) in words and b"bough.executor" in words and b"--pilot" in words:
                found.append(int(entry))
        return found

    def log(self) -> str:
        return self.server.said() if self.server is not None else ""

    def story(self) -> str:
        """What the server and the hosts have said, for a test that fails."""
        logs = [path for host in self.hosts.values() for path in (host.folder / "sshd.log", *host.home.rglob("log"))]
        said = [f"--- {path}\n{path.read_text(errors='replace')[-5000:]}" for path in logs if path.exists()]
        return "\n".join([self.log(), *said])

    def clean_up(self) -> None:
        super().clean_up()
        for host in self.hosts.values():
            host.remove()


MakeShop = Callable[..., SiteShop]


@pytest.fixture
def shop_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a shop is and the test runs."""
    folder = tmp_path / "w"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    opened_sessions.clear()


@pytest.fixture
def shop(shop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SiteShop]:
    made = SiteShop(shop_folder, monkeypatch)
    yield made
    made.clean_up()


@pytest.fixture
def make(shop: SiteShop) -> MakeShop:
    """Makes hosts of these names on loopback, and starts the server."""
    need_sshd()

    def build(*names: str) -> SiteShop:
        shop.reach(*(SshHost(shop.folder, name) for name in names))
        shop.start()
        return shop

    return build
