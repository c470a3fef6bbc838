"""Inputs in the shared folder of a site: staged once, they are there for all of its hosts. Hosts are real links.

Hosts are network namespaces, which takes root; without, these tests are skipped. The folder of the test is what the
hosts of a site share; each host has its cache in a folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest
from linked_hosts import LinkedHosts, LinkedService, linked, until
from url_servers import UrlServers

import bough
from bough.api.session.session import opened_sessions
from bough.executor.files.caches.shared_store import LEAST, SharedStore

MB = 1 << 20

pytestmark = linked
needs_sshfs = pytest.mark.skipif(
    not (shutil.which("sshfs") and os.path.exists("/dev/fuse") and os.path.exists("/usr/sbin/sshd")),
    reason="sshfs, /dev/fuse or sshd is not here",
)


class NetworkFolder:
    """A folder of a file server (sshd on loopback), mounted several times by sshfs as hosts would, with its caches."""

    def __init__(self, folder: Path, count: int) -> None:
        base = folder / "file-server"
        base.mkdir()
        self._servers = UrlServers(base)
        self.mounts = [base / f"mount-{number}" for number in range(count)]

    def __enter__(self) -> Self:
        where = urlsplit(self._servers.sftp())
        key = self._servers.base / "sshd" / "user"
        options = f"IdentityFile={key},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null"
        for mount in self.mounts:
            mount.mkdir()
            words = ["sshfs", "-p", str(where.port), "-o", options]
            subprocess.run([*words, f"{where.username}@127.0.0.1:{where.path}", str(mount)], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        for mount in self.mounts:
            subprocess.run(["umount", "-l", str(mount)], check=False)
        self._servers.stop()


class SharingSite:
    """A server, and executors of one site that share a folder and nothing else: they serve no peers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts = LinkedHosts(folder, 4)
        self.service = LinkedService(self.hosts, folder, "--heartbeat", "3s", "--reconnect", "6s")
        self.shared = folder / "shared"
        self.shared.mkdir()

    def executor(self, number: int, *words: str, site: str = "grid", shared: Path | None = None) -> None:
        sharing = ("--site", site, "--shared-dir", str(shared or self.shared), "--no-peers")
        self.service.executor(number, "--resource", f"h{number}=9", *sharing, *words)

    def read(self, session: bough.Session, number: int) -> bough.Task:
        return session.command("sha256sum < {x:r}", x="big.bin", resources={f"h{number}": 1})

    def sql(self, text: str) -> list[dict[str, object]]:
        return json.loads(self.service.bough("sql", text, "--json", "--server", self.service.socket))

    def staged(self, count: int) -> list[tuple[object, object, object]]:
        until(lambda: len(self.sql("select id from staging")) == count, "the rows")
        rows = self.sql("select cached, from_shared, from_origin from staging order by id")
        return [(row["cached"], row["from_shared"], row["from_origin"]) for row in rows]

    def copies(self) -> list[Path]:
        return [path for path in self.shared.glob("bough-shared-*/*") if len(path.name) == 64]

    def pid(self, number: int) -> int:
        found = json.loads(self.service.bough("executor", "list", "--json", "--server", self.service.socket))
        return next(int(one["pid"]) for one in found if f"h{number}" in one["named"])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharingSite]:
    monkeypatch.setenv("BOUGH_HOME", "")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made = SharingSite(tmp_path)
    monkeypatch.chdir(made.service.here)
    try:
        yield made
    finally:
        made.hosts.close()
        opened_sessions.clear()


def write(path: Path, megabytes: int) -> str:
    data = os.urandom(megabytes * MB)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def test_the_server_sends_a_file_once_to_a_site_whose_hosts_want_it_at_once(site: SharingSite) -> None:
    site.hosts.shape("100mbit")
    for number in (1, 2, 3):
        site.executor(number)
    site.service.await_executors(3)
    digest, size = write(site.service.here / "big.bin", 8), 8 * MB
    before = site.hosts.sent(0)
    with bough.Session(site.service.socket, name="once") as s:
        tasks = [site.read(s, number) for number in (1, 2, 3)]
        assert {task.result(120).stdout.split()[0] for task in tasks} == {digest}
        assert site.read(s, 2).result(120).stdout.split()[0] == digest
    assert site.hosts.sent(0) - before < 1.5 * size
    rows = site.staged(4)
    assert sorted(rows[:3]) == [(0, 0, size), (0, size, 0), (0, size, 0)]
    assert rows[3] == (size, 0, 0)
    assert len(site.copies()) == 1


def test_what_lies_there_serves_the_executors_of_another_day_unless_it_is_damaged(site: SharingSite) -> None:
    site.executor(1)
    site.service.await_executors(1)
    digest, size = write(site.service.here / "big.bin", 3), 3 * MB
    with bough.Session(site.service.socket, name="later") as s:
        assert site.read(s, 1).result(120).stdout.split()[0] == digest
        until(lambda: len(site.copies()) == 1, "the copy for the site")
        os.kill(site.pid(1), signal.SIGKILL)
        site.executor(2)
        assert site.read(s, 2).result(120).stdout.split()[0] == digest
        assert site.staged(2)[1] == (0, size, 0)
        (copy,) = site.copies()
        data = bytearray(copy.read_bytes())
        data[MB] ^= 1
        copy.write_bytes(data)
        subprocess.run(["sh", "-c", f"rm -rf '{site.folder}'/host-2/bough-contents-*"], check=True)
        assert site.read(s, 2).result(120).stdout.split()[0] == digest
        assert site.staged(3)[2] == (0, 0, size)
        until(lambda: [hashlib.sha256(copy.read_bytes()).hexdigest() for copy in site.copies()] == [digest], "a copy")


@needs_sshfs
def test_a_folder_that_each_host_mounts_by_itself_from_a_file_server_is_as_good(site: SharingSite) -> None:
    site.hosts.shape("100mbit")
    with NetworkFolder(site.folder, 2) as folder:
        for number, mount in enumerate(folder.mounts, 1):
            site.executor(number, shared=mount)
        site.service.await_executors(2)
        digest, size = write(site.service.here / "big.bin", 8), 8 * MB
        before = site.hosts.sent(0)
        with bough.Session(site.service.socket, name="mounts") as s:
            tasks = [site.read(s, number) for number in (1, 2)]
            assert {task.result(120).stdout.split()[0] for task in tasks} == {digest}
        assert site.hosts.sent(0) - before < 1.5 * size
        assert sorted(site.staged(2)) == [(0, 0, size), (0, size, 0)]
        site.hosts.close()  # before the mounts go


@needs_sshfs
def test_claims_and_contents_are_seen_at_once_through_mounts_that_remember_files(tmp_path: Path) -> None:
    with NetworkFolder(tmp_path, 2) as folder:
        one, other = (SharedStore(str(mount / "s")) for mount in folder.mounts)
        data = os.urandom(LEAST)
        digest = hashlib.blake2b(data, digest_size=32).digest()
        (tmp_path / "source").write_bytes(data)
        for number in range(20):  # of two that claim at once one gets it, and the other one knows
            name = number.to_bytes(32, "big")
            with ThreadPoolExecutor(2) as pool:
                claims = list(pool.map(lambda store, name=name: store.claim(name), (one, other)))
            assert [claim is None for claim in claims].count(True) == 1
        claim = one.claim(digest)
        assert claim is not None
        assert other.claim(digest) is None
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.wait, digest)
            until(waiting.running, "the wait")
            assert one.publish(str(tmp_path / "source"), digest, LEAST) == []
            claim.release()
            waiting.result(15)  # a mount remembers for 20 s that the claim is there
        number = other.open(digest, LEAST)
        assert os.pread(number, LEAST, 0) == data
        os.close(number)
        one.drop(digest)
        assert not other.has(digest)
        assert other.publish(str(tmp_path / "source"), digest, LEAST) == []
        assert one.contents() == {digest: LEAST}
