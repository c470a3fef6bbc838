"""Sites behind real sshds on loopback: from a bare host to results, through cuts and crashes, to nothing left."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from processes import PATIENCE, is_alive, read, until
from site_shop import MakeShop, make, shop, shop_folder
from ssh_hosts import SshHost, install_ssh, need_sshd

import bough
from bough.errors import SiteError, UserError
from bough.executor.server_connection import connect
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import SiteSpec
from bough.sites.head.ssh_connection import SshConnection
from bough.sites.site_kind import SiteKind, Surroundings
from bough.sites.ssh_site import SshSite
from bough.testing.site_conformance import check_site_kind
from bough.transport.access import Access
from bough.wire.client_messages import VERSION, Refused
from bough.wire.executor_messages import ExecutorHello
from bough.wire.framing import frame_list

__all__ = ["make", "shop", "shop_folder"]  # fixtures


def test_a_bare_host_gives_results_and_keeps_nothing(make: MakeShop) -> None:
    ssh = make("alpha")
    host = ssh.hosts["alpha"]
    ssh.bough("site", "add", "alpha", "--ssh", "alpha", "--batch", "none", "--setup", "export FROM_SETUP=yes")
    said = ssh.bough("site", "test", "alpha")
    assert [line.split()[:2] for line in said.splitlines()[:-1]] == [
        ["ok", step] for step in (*SshSite.steps, "task", "end")
    ]
    until(lambda: not host.executors(), "the pilot of the test to end")
    with bough.Session(ssh.address, name="first") as session:
        where = session.command("echo $BOUGH_TEST_HOST $FROM_SETUP")
        assert where.result(PATIENCE).stdout.split() == [str(host.folder), "yes"]
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024  # a function, of the same Python
        assert session.processors()["alpha"] > 0
    assert "1/1" in ssh.bough("site", "list")
    assert "running" in ssh.bough("site", "show", "alpha")
    [token] = [path.read_text().strip() for path in (ssh.home / "server").glob("site-*.token")]
    assert ssh.server is not None
    for pid in [ssh.server.pid, *host.processes(), *ssh.server.family()]:
        assert token.encode() not in read(f"/proc/{pid}/cmdline") + read(f"/proc/{pid}/environ")
    [access] = host.home.rglob("access.json")
    assert access.stat().st_mode & 0o777 == 0o600
    ssh.bough("site", "remove", "alpha")
    assert not host.executors()
    until(lambda: not host.processes(), "the connection to end")
    assert not list((ssh.home / "server").glob("site-*"))
    assert not list(host.home.rglob("access.json"))
    assert ssh.ask("sites") == []


def test_pilots_say_why_they_exist_and_are_let_go_when_nothing_is_left(make: MakeShop) -> None:
    ssh = make("alpha")
    host = ssh.hosts["alpha"]
    ssh.bough("site", "add", "alpha", "--ssh", "alpha", "--cores-per-pilot", "1", "--max-pilots", "2", "--idle", "10m")
    assert "none, because nothing is ready" in ssh.bough("pilot", "list")
    with bough.Session(ssh.address, name="w", on_failure="ignore") as session:
        tasks = [session.command("sleep 0.3") for _ in range(4)]
        assert all(task.result(PATIENCE).exit_code == 0 for task in tasks)
        big = session.command("true", cores=512)
        ssh.until(lambda: "could run there" in "".join(big.explain()), "explain to say that it fits nowhere")
        listed = json.loads(ssh.bough("pilot", "list", "alpha", "--json"))
        [first, *_] = listed["pilots"]
        assert (first["state"], first["executors"], first["cores"]) == ("running", 1, 1.0)
        assert "ready" in first["reason"]
        assert listed["sites"][0]["no_more"]
        assert first["reason"] in ssh.bough("pilot", "list")
        shown = ssh.bough("site", "show", "alpha")
        assert "core-hours: " in shown
        assert "the last pilots waited" in shown
        big.cancel()
    ssh.until(lambda: not host.executors(), "idle pilots to be released, long before they would leave")
    ssh.until(lambda: not ssh.site("alpha")["pilots"], "the server to know that they have ended")
    ended = json.loads(
        ssh.bough("sql", "--json", "SELECT state, released, started - asked, used, core_seconds FROM pilots")
    )
    assert 1 <= len(ended) <= 2
    for state, released, waited, used, whole in (row.values() for row in ended):
        assert state == "ended"
        assert "nothing to do" in released
        assert waited > 0
        assert 0 < used < whole
    assert "no pilots" in ssh.bough("pilot", "list")


def test_an_idle_pilot_ends_and_the_next_one_is_sent_nothing(make: MakeShop) -> None:
    ssh = make("alpha")
    host = ssh.hosts["alpha"]
    (ssh.folder / "sites.toml").write_text(
        '[alpha]\nssh = "alpha"\ncores_per_pilot = 1\nmax_pilots = 2\nidle = "0.5s"\n'
    )
    ssh.bough("site", "add", "--file", "sites.toml")
    with bough.Session(ssh.address, name="many") as session:
        names = [session.command("echo $$; sleep 0.3") for _ in range(6)]
        assert len({task.result(PATIENCE).stdout for task in names}) == 6
    ssh.until(lambda: not ssh.site("alpha")["pilots"], "idle pilots to end")
    assert not host.executors()
    [program] = (host.home / ".cache/bough/programs").iterdir()
    made = program.stat().st_mtime_ns
    with bough.Session(ssh.address, name="again") as session:
        assert session.command("true").result(PATIENCE).returncode == 0
    [program] = (host.home / ".cache/bough/programs").iterdir()
    assert program.stat().st_mtime_ns == made


def test_pilots_end_when_their_site_leaves_and_come_back_with_it(make: MakeShop) -> None:
    ssh = make("alpha", "beta")
    alpha, beta = ssh.hosts["alpha"], ssh.hosts["beta"]
    for name in ssh.hosts:
        ssh.bough("site", "add", name, "--ssh", name, "--cores-per-pilot", "1")
    with bough.Session(ssh.address, name="both") as session:
        tasks = [session.command(f"echo $BOUGH_TEST_HOST; sleep 0.2; : {number}") for number in range(30)]
        ssh.until(lambda: alpha.executors() and beta.executors(), "pilots at both sites")
        ssh.bough("site", "disable", "beta")
        ssh.until(lambda: not beta.executors(), "the pilot at beta to end")
        assert "disabled" in ssh.bough("site", "list")
        more = [session.command(f"echo $BOUGH_TEST_HOST; sleep 0.2; : {number}") for number in range(30, 60)]
        ssh.bough("site", "enable", "beta")
        ssh.until(beta.executors, "a new pilot at beta")
        places = {task.result(PATIENCE).stdout.strip() for task in [*tasks, *more]}
    assert places == {str(alpha.folder), str(beta.folder)}


def test_a_cut_and_a_killed_server_cost_no_running_task(make: MakeShop) -> None:
    ssh = make("alpha")
    host, notes = ssh.hosts["alpha"], ssh.folder / "notes"
    ssh.bough("site", "add", "alpha", "--ssh", "alpha", "--cores-per-pilot", "2")
    with bough.Session(ssh.address, name="cut") as session:
        gate = ssh.folder / "gate"
        wait = f"echo begun >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done; echo ended >> {notes}"
        task = session.command(wait)
        ssh.until(notes.exists, "the task to begin")
        [pilot] = host.executors()[:1]
        host.cut()
        ssh.until(lambda: "disconnected" in ssh.log(), "the server to notice")
        host.start()
        ssh.until(lambda: "reconnected with 1 span" in ssh.log(), "the executor to reconnect")
        ssh.kill()
        ssh.start("--reconnect", "60s")
        ssh.until(lambda: ssh.log().count("reconnected with 1 span") >= 2, "the executor to find the next server")
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
        assert is_alive(pilot)
    assert notes.read_text().split() == ["begun", "ended"]
    ssh.bough("site", "remove", "alpha")
    assert not host.executors()


def test_what_is_wrong_is_one_line_that_says_how_to_mend_it(make: MakeShop) -> None:
    ssh = make("alpha")
    host = ssh.hosts["alpha"]

    def tested(*words: str) -> str:
        ssh.bough("site", "add", "alpha", "--ssh", "alpha", *words)
        return ssh.bough("site", "test", "alpha", code=3)

    assert "no /nowhere/python on alpha: name one with --python" in tested("--python", "/nowhere/python")
    old = host.folder / "old-python"
    old.write_text('#!/bin/sh\necho "bough-too-old 3.6" >&2; exit 1\n')
    old.chmod(0o755)
    assert "Python 3.6, and 3.11 or newer is needed" in tested("--python", str(old))
    (host.folder / "known_hosts").write_text("")
    ssh.bough("site", "remove", "alpha")
    assert "host key of alpha is not known: connect once by hand with ssh alpha" in tested()
    host.cut()
    assert "alpha cannot be reached" in tested()
    with bough.Session(ssh.address, name="waits", on_failure="ignore") as session:
        task = session.command("true")
        ssh.until(lambda: "the last one failed" in "".join(task.explain()), "explain to say why there is no pilot")
        task.cancel()
    assert "was removed, 0 pilots ended" in ssh.bough("site", "remove", "alpha")


def test_a_site_that_is_gone_is_forgotten_by_force_only(make: MakeShop) -> None:
    ssh = make("alpha")
    host = ssh.hosts["alpha"]
    ssh.bough("site", "add", "alpha", "--ssh", "alpha")
    with bough.Session(ssh.address, name="short") as session:
        session.command("true").result(PATIENCE)
    host.cut()
    assert "not removed" in ssh.bough("site", "remove", "alpha", code=3)
    assert "was removed" in ssh.bough("site", "remove", "alpha", "--force")
    assert all(one["spec"] is None and not one["pilots"] for one in ssh.ask("sites"))  # its executor has time
    assert not list((ssh.home / "server").glob("site-*"))


def test_bad_definitions_are_refused_and_nothing_is_kept(make: MakeShop) -> None:
    ssh = make()
    (ssh.folder / "bad.toml").write_text('[good]\nssh = "x"\n\n[bad]\nssh = "-oProxyCommand=evil"\n')
    assert "[bad]" in ssh.bough("site", "add", "--file", "bad.toml", code=2)
    assert "say --ssh" in ssh.bough("site", "add", "x", code=2)
    assert "the site is '../x'" in ssh.bough("site", "add", "../x", "--ssh", "x", code=2)
    assert "Bough's own" in ssh.bough("site", "add", "local", "--ssh", "x", code=2)
    assert "there is no site x that was added" in ssh.bough("site", "test", "x", code=2)
    assert ssh.ask("sites") == []


def test_the_token_of_a_site_opens_that_site_only(make: MakeShop) -> None:
    ssh = make("alpha")
    ssh.bough("site", "add", "alpha", "--ssh", "alpha")
    server = ssh.home / "server"
    token = (server / "site-alpha.token").read_text().strip()
    [door] = server.glob("site-alpha.sock")

    def greeted(role: str, site: str, key: str) -> str:
        connection = connect(Access(f"unix:{door}", "none", role, key))
        hello = ExecutorHello(VERSION, site, "h", 1, Needs(1), "3.11")
        connection.send(frame_list([*connection.greeting, hello]))
        heard: list[object] = []
        until(lambda: heard.extend(connection.read()) or heard or connection.lost, "an answer")
        connection.close()
        return heard[0].message if heard and isinstance(heard[0], Refused) else "welcome"

    assert greeted("execute", "alpha", token) == "welcome"
    assert "for executors of the site alpha, not of beta" in greeted("execute", "beta", token)
    assert "token was refused" in greeted("execute", "alpha", "A" * 43)
    with pytest.raises((UserError, SiteError)):
        connect(Access(f"unix:{server / 'nowhere'}", "none", "execute", token))


def test_ssh_is_a_kind_as_kinds_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_sshd()
    host = SshHost(tmp_path, "alpha")
    monkeypatch.setenv("PATH", f"{install_ssh(tmp_path, [host])}:{os.environ['PATH']}")
    control = Path(f"/tmp/bough-test-{os.getpid()}")
    control.mkdir(mode=0o700)
    around = Surroundings(str(control), str(tmp_path / "cache"), str(tmp_path / "door"), "A" * 43, "0" * 32)

    def make_kind() -> SiteKind:
        return SshSite("alpha", SiteSpec(ssh="alpha", cores_per_pilot=1), around)

    try:
        asyncio.run(check_site_kind(make_kind))
        assert not host.executors()
        assert json.loads(json.dumps(sorted(os.listdir(control)))) == []
    finally:
        host.cut()
        control.rmdir()


def test_a_socket_there_that_was_removed_is_made_again_on_the_same_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when something failed behind it, and the site is opened again."""
    need_sshd()
    host = SshHost(tmp_path, "alpha")
    monkeypatch.setenv("PATH", f"{install_ssh(tmp_path, [host])}:{os.environ['PATH']}")
    control = Path(f"/tmp/bough-test-{os.getpid()}")
    there, here = Path(f"{control}-there"), tmp_path / "here"

    async def try_it() -> None:
        connection = SshConnection("alpha", "", str(control), lambda: None)
        await connection.open()
        try:
            await connection.forward(str(there), str(here))
            assert there.is_socket()
            there.unlink()
            await connection.forward(str(there), str(here))
            assert there.is_socket()
        finally:
            await connection.close()

    try:
        asyncio.run(try_it())
    finally:
        host.cut()
        there.unlink(missing_ok=True)
