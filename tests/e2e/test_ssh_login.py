"""Hosts that ask: the user logs in once from a terminal, and the server goes on with that connection.

The host takes a key that has a passphrase, which ssh asks for on the terminal and, with BatchMode, not at all: for us
that is like a password or a second factor.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

from processes import PATIENCE, is_alive, read, until
from site_shop import MakeShop, SiteShop, make, shop, shop_folder

import bough
from bough.server.socket_path import short_folder

__all__ = ["make", "shop", "shop_folder"]  # fixtures
PASSPHRASE = "open sesame"


def log_in(ssh: SiteShop, answer: str) -> tuple[int, str]:
    """Call `bough site login` on a terminal of its own, and answer what it asks."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", sys.executable, "-m", "bough.cli.main", "site", "login", "alpha"],
        env=ssh.environment,
        cwd=ssh.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said, answered, deadline = b"", 0, time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.1)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                piece = os.read(ours, 4096)
            except OSError:  # nobody has the other end any more
                break
            if not piece:
                break
            said += piece
            if said.count(b"passphrase") > answered:
                answered = said.count(b"passphrase")
                os.write(ours, answer.encode() + b"\n")
        return process.wait(PATIENCE), said.decode(errors="replace")
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)


def masters(ssh: SiteShop) -> list[int]:
    """The connections that the user has opened, by how they call themselves."""
    found = []
    folder = short_folder(str(ssh.home / "server"), "ssh").encode()
    for entry in os.listdir("/proc"):
        words = read(f"/proc/{entry}/cmdline") if entry.isdecimal() else b""
        if words.startswith(b"ssh: ") and folder in words and is_alive(int(entry)):
            found.append(int(entry))
    return found


def test_a_user_logs_in_once_and_the_server_goes_on_with_it(make: MakeShop) -> None:
    ssh = make("alpha")
    host = ssh.hosts["alpha"]
    key = str(host.folder / "user_key")
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", key], check=True, capture_output=True)
    for name in ("SSH_AUTH_SOCK", "SSH_ASKPASS", "DISPLAY"):
        ssh.environment.pop(name, None)
    ssh.bough("site", "add", "alpha", "--ssh", "alpha")
    asks = "alpha wants a password or a second factor: bough site login alpha"
    assert asks in ssh.bough("site", "test", "alpha", code=3)

    code, said = log_in(ssh, "wrong")
    assert code == 3
    assert "ssh has not logged in to site alpha" in said
    code, said = log_in(ssh, PASSPHRASE)
    assert code == 0, said
    assert "site alpha: ssh alpha connects" in said
    [master] = masters(ssh)

    with bough.Session(ssh.address, name="after") as session:
        where = session.command("echo $BOUGH_TEST_HOST")
        assert where.result(PATIENCE).stdout.strip() == str(host.folder)
    ssh.kill()  # the next server goes on with it, too
    ssh.start("--reconnect", "60s")
    with bough.Session(ssh.address, name="again") as session:
        assert session.command("true").result(PATIENCE).returncode == 0
    assert masters(ssh) == [master]
    assert "site alpha: ssh alpha connects" in ssh.bough("site", "login", "alpha")  # nothing is asked

    os.kill(master, 9)
    with bough.Session(ssh.address, name="lost", on_failure="ignore") as session:
        session.command("true", resources={"site:alpha": 1})
        ssh.until(lambda: asks in str(ssh.site("alpha")["problem"]), "the problem to name the command")
        assert asks in ssh.bough("site", "show", "alpha")
        assert log_in(ssh, PASSPHRASE)[0] == 0
        assert session.command("echo back").result(PATIENCE).stdout == "back\n"
    ssh.bough("site", "remove", "alpha")
    until(lambda: not masters(ssh), "the user's connection to end with the site")
    assert not host.executors()


def test_a_site_that_asks_nothing_needs_no_login(make: MakeShop) -> None:
    ssh = make("alpha")
    ssh.bough("site", "add", "alpha", "--ssh", "alpha")
    ssh.bough("site", "test", "alpha")
    assert "connects" in ssh.bough("site", "login", "alpha")
    assert not masters(ssh)
    assert "there is no site beta" in ssh.bough("site", "login", "beta", code=2)
