"""A relay of a site: whom its door lets in, how it ends when nobody needs it, and what it needs to run."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from relay_site import Relay, Site
from service_client import is_alive, until

from bough.errors import SiteError
from bough.executor.server_connection import connect
from bough.model.sites.resources import Needs
from bough.sites.head.bootstrap import make_archive
from bough.sites.head.errands import LocalConnection
from bough.sites.head.head_relay import HeadRelay
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


# --- the other side --------------------------------------------------------------------------------------


class FarSide:
    """Errands on this very machine."""

    def __init__(self, site: Site, access: Path) -> None:
        self.folder = site.folder / "cache"
        self.archive = make_archive(str(site.folder / "archives"))
        self.errand("look", shared_dir="")
        self.errand("install", self.archive.data)
        self.errand("prepare", access.read_bytes())

    def errand(self, what: str, load: bytes = b"", **fields: object) -> dict[str, object]:
        return asyncio.run(self.do(what, load, **fields))

    async def do(self, what: str, load: bytes = b"", patience: float = 60.0, **fields: object) -> dict[str, object]:
        request = {"what": what, "key": "k" * 32, "digest": self.archive.digest, **fields}
        return await LocalConnection("").errand(request, load, patience)

    def relay(self, *words: str) -> int:
        """Have a relay run; its process."""
        key, certificate = new_certificate()
        load = json.dumps({"key": key.decode(), "certificate": certificate.decode()}).encode()
        found = self.errand("relay", load, words=["--listen", "127.0.0.1:0", "--give-up", "1h", *words])
        assert read_access(str(found["access"])).address == found["address"]
        [note] = self.folder.rglob("relays/*/note.json")
        return int(json.loads(note.read_text())["pid"])


def test_the_relay_of_a_site_is_started_once_and_ends_with_the_site(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.begin()
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.folder / "cache"))
    there = FarSide(site, add_site(site, "alpha"))
    assert there.errand("statuses", pilots=[])["relay"] == ""
    first = there.relay()
    try:
        assert there.relay() == first
        assert there.errand("statuses", pilots=[])["relay"] == "alive"
        access = read_access(str(next(there.folder.rglob("nodes.json"))))
        os.kill(first, signal.SIGKILL)
        until(lambda: there.errand("statuses", pilots=[])["relay"] == "dead", "the relay to die")
        second = there.relay()
        assert second != first
        assert read_access(str(next(there.folder.rglob("nodes.json")))) == access  # executors find it where it was
        third = there.relay("--site", "alpha")  # started otherwise, it is another one
        assert third != second
        assert not is_alive(second)
        next(there.folder.rglob("note.json")).unlink()  # as if the errand had been cut off before it was written
        last = there.relay("--site", "alpha")
        assert last != third
        assert not is_alive(third)
    finally:
        there.errand("forget")
    assert not is_alive(last)
    assert not list(there.folder.rglob("*.json"))


def test_a_relay_that_cannot_listen_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.begin()
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.folder / "cache"))
    there = FarSide(site, add_site(site, "alpha"))
    relay = HeadRelay("alpha", "nowhere.invalid", there.do, lambda: there.archive.digest)
    with pytest.raises(SiteError, match=r"cannot listen on nowhere\.invalid.* name another .* with --relay-address"):
        asyncio.run(relay.ensure())
    there.errand("forget")
