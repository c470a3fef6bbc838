"""A relay of a site: whom its door lets in, how it ends when nobody needs it, and what it needs to run."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from relay_site import Relay, Site
from service_client import until

from bough.executor.server_connection import connect
from bough.model.resources import Needs
from bough.sites.bootstrap import make_archive
from bough.transport.access import Access, read_access, write_access
from bough.transport.tls import new_certificate
from bough.wire.client_messages import VERSION, Refused
from bough.wire.executor_messages import ExecutorHello
from bough.wire.framing import frame_list


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.clean_up()


def add_site(site: Site, name: str) -> Path:
    """A site that nobody reaches; the access file that its connection would bring there."""
    site.bough("site", "add", name, "--ssh", "nowhere.invalid")
    token = (site.home / "server" / f"site-{name}.token").read_text().strip()
    path = site.folder / f"{name}.json"
    write_access(str(path), Access(f"unix:{site.home}/server/site-{name}.sock", "none", "execute", token))
    return path


def greeted(access: Access, site: str) -> str:
    """What the server says to an executor of a site."""
    connection = connect(access)
    connection.send(frame_list([*connection.greeting, ExecutorHello(VERSION, site, "h", 1, Needs(1), "3.11")]))
    heard: list[object] = []
    until(lambda: heard.extend(connection.read()) or heard or connection.lost, "an answer")
    connection.close()
    return heard[0].message if heard and isinstance(heard[0], Refused) else "welcome"


def test_behind_the_relay_of_a_site_its_token_opens_that_site_only(site: Site) -> None:
    everywhere = read_access(str(site.begin()))
    relay = site.relay(add_site(site, "alpha"))
    other = read_access(str(add_site(site, "beta")))
    ours = read_access(str(relay.access))
    assert greeted(ours, "alpha") == "welcome"
    assert "for executors of the site alpha, not of beta" in greeted(ours, "beta")
    for token in (everywhere.token, other.token, "A" * 43):
        assert "token was refused" in greeted(Access(ours.address, ours.fingerprint, "execute", token, "none"), "alpha")
    submit = Access(ours.address, ours.fingerprint, "submit", ours.token, "none")
    assert "cannot check tokens" in greeted(submit, "alpha")
    site.bough("site", "remove", "alpha")
    assert "cannot check tokens" in greeted(ours, "alpha")
    assert not list((site.home / "server").glob("site-alpha*"))


def test_executors_of_a_site_work_behind_its_relay_and_find_it_at_its_other_addresses(site: Site) -> None:
    site.begin()
    relay = site.relay(add_site(site, "alpha"))
    ours = read_access(str(relay.access))
    port = ours.address.rpartition(":")[2]
    elsewhere = replace(ours, address=f"nowhere.invalid:{port}", also=(f"127.0.0.1:{port}",))
    write_access(str(relay.access), elsewhere)
    site.executor("--server", str(relay.access), "--site", "alpha")
    client = site.client("one")
    assert client.outcome(client.command("true")).start == 0


def ended(relay: Relay) -> str:
    """A relay has ended; its log."""
    assert relay.process is not None
    until(lambda: relay.process.poll() is not None, "the relay to end")
    assert relay.process.returncode == 0, relay.log.read_text()
    assert not relay.note.exists()
    return relay.log.read_text()


def test_a_relay_whose_server_stays_away_ends(site: Site) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", "--give-up", "2s")
    site.behind(relay)
    site.server.kill()
    assert "no server for 2 s" in ended(relay)


def test_a_relay_whose_folder_was_removed_ends(site: Site) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", "--give-up", "1h")
    shutil.rmtree(relay.home)
    assert "was removed" in ended(relay)


def test_a_relay_runs_on_a_host_that_has_only_python_and_the_archive(site: Site) -> None:
    """Neither uvloop nor what makes certificates is there: the certificate is sent along."""
    access = site.begin()
    programs, home = site.folder / "programs", site.folder / "there"
    with tarfile.open(fileobj=io.BytesIO(make_archive(str(site.folder / "cache")).data)) as archive:
        archive.extractall(programs, filter="data")
    (home / "relay").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    for name, data in zip(("key.pem", "cert.pem"), new_certificate(), strict=True):
        with open(os.open(home / "relay" / name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(data)
    begin = f"import sys; sys.path.insert(0, {str(programs)!r}); import runpy; "
    begin += "runpy.run_module('bough.cli.main', None, '__main__')"
    words = [sys.executable, "-I", "-S", "-c", begin, "relay", "start", "--listen", "127.0.0.1:0"]
    log = site.folder / "bare.log"
    with open(log, "wb") as file:
        bare = subprocess.Popen(
            [*words, "--server", str(access)],
            env={"BOUGH_HOME": str(home), "PATH": os.environ["PATH"], "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        note = home / "relay" / "relay.json"
        until(lambda: bare.poll() is not None or (note.exists() and json.loads(note.read_text())["linked"]), "a link")
        assert bare.poll() is None, log.read_text()
        site.executor("--server", str(home / "relay" / "access.json"))
        client = site.client("one")
        assert client.outcome(client.command("true")).start == 0
    finally:
        bare.kill()
        bare.wait()
