"""Scripts that name sites, from nothing running to results, and to nothing left: real sshds on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, children, is_alive, read, until
from ssh_hosts import SshHost, install_ssh, need_sshd

from bough.stores.folder.store_lock import is_held

BOTH = """
import bough
with bough.Session(sites=["local", "alpha"]) as s:
    here = s.command("echo local $BOUGH_TEST_HOST", sites=["local"])
    there = s.command("echo alpha $BOUGH_TEST_HOST", requires="site == 'alpha' and cores >= 1")
    function = s.options(sites=["alpha"]).submit(pow, 2, 10)
    print(here.result().stdout.split(), there.result().stdout.split(), function.result())
    print(sorted(s.map(abs, range(-20, 0)).results()) == list(range(1, 21)))
"""
MANY = """
import bough
with bough.Session(sites=["local", "alpha"]) as s:
    for number in range(8):
        s.command(f"echo {number} >> begun.txt; while [ ! -e go ]; do sleep 0.05; done; echo {number} >> done.txt")
"""


class Account:
    """A user's account on a machine with nothing but the program, and a host that SSH reaches."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.home = folder / "bough-home"
        self.host = SshHost(folder, "alpha")
        path = f"{install_ssh(folder, [self.host])}:{os.environ['PATH']}"
        for key, value in (("PATH", path), ("XDG_CACHE_HOME", str(folder / "cache")), ("BOUGH_HOME", str(self.home))):
            monkeypatch.setenv(key, value)
        for key in ("BOUGH_SERVER", "BOUGH_TASK", "BOUGH_RUN"):
            monkeypatch.delenv(key, raising=False)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        said, _ = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == code, f"{words}: {process.returncode}\n{said}\n{self.log()}"
        return said

    def bough(self, *words: str, code: int = 0) -> str:
        return self.run("-m", "bough.cli.main", *words, code=code)

    def script(self, text: str, name: str = "script.py") -> str:
        (self.folder / name).write_text(text)
        return name

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def log(self) -> str:
        path = self.home / "server" / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def processes(self) -> dict[int, bytes]:
        """All that runs for this account here: servers, executors, ssh, scripts."""
        mark = f"BOUGH_HOME={self.home}\0".encode()
        found = {}
        for entry in os.listdir("/proc"):
            ours = entry.isdecimal() and int(entry) != os.getpid() and mark in read(f"/proc/{entry}/environ") + b"\0"
            if ours and is_alive(int(entry)):
                found[int(entry)] = read(f"/proc/{entry}/cmdline")
        return found

    def servers(self) -> list[int]:
        """Their process numbers; a child that has not begun its own program yet looks like its server."""
        found = [pid for pid, words in self.processes().items() if b"server\0start" in words]
        forks = {child for pid in found for child in children(pid)}
        return [pid for pid in found if pid not in forks]

    def until_nothing_is_left(self) -> None:
        until(lambda: not self.processes(), "no process here", story=lambda: f"{self.processes()}\n{self.log()}")
        until(lambda: not self.host.processes(), "no process there", story=lambda: str(self.host.processes()))
        until(lambda: not is_held(self.home / "server"), "the lock to be free")

    def clean_up(self) -> None:
        self.host.cut()
        while left := [*self.processes(), *self.host.processes()]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    need_sshd()
    (tmp_path / "w").mkdir()
    made = Account(tmp_path / "w", monkeypatch)
    yield made
    made.clean_up()


def test_from_a_fresh_account_to_results_at_two_sites_and_to_nothing_left(account: Account) -> None:
    assert "site alpha: ssh alpha" in account.bough("site", "add", "alpha", "--ssh", "alpha")  # starts a server
    said = account.run(account.script(BOTH))
    assert f"['local'] ['alpha', '{account.host.folder}'] 1024" in said
    assert "True" in said
    account.until_nothing_is_left()
    refused = account.run(account.script("import bough\nbough.Session(sites=['alhpa'])\n", "typo.py"), code=1)
    assert "there is no site 'alhpa'; there are: alpha, local" in refused  # it was remembered
    assert "bough site add alhpa" in refused
    (account.folder / "list.txt").write_text("echo $BOUGH_TEST_HOST > where.txt\n")
    assert "1 done" in account.bough("run", "--site", "alpha", "list.txt")
    assert account.lines("where.txt") == [str(account.host.folder)]


def test_scripts_that_start_at_once_share_one_server(account: Account) -> None:
    text = """
import bough
from bough.api.session.own_server import server_for
with bough.Session(server_for(["local"]), sites=["local"]) as s:
    assert s.submit(pow, 2, 10).result() == 1024
"""
    scripts = [account.start(account.script(text, f"script{number}.py")) for number in range(4)]
    for script in scripts:
        said, _ = script.communicate(timeout=2 * PATIENCE)
        assert script.returncode == 0, f"{said}\n{account.log()}"
    assert account.log().count("server-started") == 1, account.log()
    account.until_nothing_is_left()


def test_a_script_that_was_killed_goes_on_where_it_was(account: Account) -> None:
    account.bough("site", "add", "alpha", "--ssh", "alpha")
    script = account.start(account.script(MANY))
    until(lambda: account.lines("begun.txt"), "a task to begin", story=account.log)
    os.killpg(script.pid, signal.SIGKILL)
    script.communicate(timeout=PATIENCE)
    assert account.servers()  # tasks are the server's, and have not ended
    (account.folder / "go").touch()
    assert account.run("script.py") == ""
    assert sorted(account.lines("begun.txt")) == sorted(account.lines("done.txt")) == list("01234567")


def test_tasks_of_a_script_that_died_are_finished_before_the_server_ends(account: Account) -> None:
    account.bough("site", "add", "alpha", "--ssh", "alpha")
    script = account.start(account.script(MANY))
    until(lambda: account.lines("begun.txt"), "a task to begin", story=account.log)
    until(lambda: re.search(r"pilot-started.*alpha", account.log()), "a pilot at alpha", story=account.log)
    os.killpg(script.pid, signal.SIGKILL)
    script.communicate(timeout=PATIENCE)
    (account.folder / "go").touch()
    account.until_nothing_is_left()
    begun = account.lines("done.txt")
    assert begun
    assert account.run("script.py") == ""  # what the last server had done is done
    assert sorted(account.lines("done.txt")) == list("01234567")
    account.until_nothing_is_left()


def test_a_server_that_is_killed_is_started_again_by_the_script_that_needs_it(account: Account) -> None:
    account.bough("site", "add", "alpha", "--ssh", "alpha")
    script = account.start(account.script(MANY))
    until(lambda: account.lines("begun.txt"), "a task to begin", story=account.log)
    [server] = account.servers()
    os.kill(server, signal.SIGKILL)
    until(lambda: account.servers() and server not in account.servers(), "another server", story=account.log)
    (account.folder / "go").touch()
    said, _ = script.communicate(timeout=2 * PATIENCE)
    assert script.returncode == 0, f"{said}\n{account.log()}"
    assert sorted(account.lines("begun.txt")) == sorted(account.lines("done.txt")) == list("01234567")
