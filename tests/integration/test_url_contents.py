"""What is at URLs goes through the caches of hosts: fetched once, taken from peers, counted, and known by its mark."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import marked_http
import pytest
from linked_hosts import LinkedHosts, LinkedService, linked, until
from marked_http import MarkedServer

import bough
from bough.api.session.session import opened_sessions
from bough.errors import SiteError
from bough.movers import remote_files

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

MB = 1 << 20


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield folder
    opened_sessions.clear()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MarkedServer]:
    (tmp_path / "http").mkdir()
    made = MarkedServer("127.0.0.1", 0, tmp_path / "http")
    yield made
    made.shutdown()
    made.server_close()


def write(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def read(s: bough.Session, url: str) -> str:
    return s.command("sha256sum {x:r}; basename {x:r}", x=url).result(60).stdout


def test_a_session_of_its_own_keeps_what_it_fetched_for_the_next_one(
    here: Path, server: MarkedServer, tmp_path: Path
) -> None:
    url = server.begin()
    digest = write(server.folder, "big.bin", os.urandom(2 * MB))
    with bough.Session(name="first", reuse="never", cores=2) as s:
        tasks = [s.command("sha256sum {x:r}; echo {n}", x=f"{url}/big.bin", n=n) for n in range(4)]
        assert {task.result(60).stdout.split()[0] for task in tasks} == {digest}
    with bough.Session(name="second", reuse="never", cores=1) as s:
        assert read(s, f"{url}/big.bin").split()[0] == digest
    assert server.asked["GET", "big.bin"] == 1
    (copy,) = [path for path in (tmp_path / "cache/bough").glob("bough-contents-*/*") if len(path.name) == 64]
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == digest
    changed = write(server.folder, "big.bin", os.urandom(2 * MB))
    with bough.Session(name="third", reuse="never", cores=1) as s:
        assert read(s, f"{url}/big.bin").split()[0] == changed
    assert server.asked["GET", "big.bin"] == 2


def test_a_url_without_a_mark_is_fetched_for_each_task(here: Path, server: MarkedServer) -> None:
    url = server.begin()
    with bough.Session(name="plain", reuse="never", cores=1) as s:
        for data in (b"one", b"two", b"two"):
            digest = write(server.folder, "plain.bin", data)
            assert read(s, f"{url}/plain.bin").split()[::2] == [digest, "plain.bin"]
    assert server.asked["GET", "plain.bin"] == 3


def test_what_comes_short_is_thrown_away_and_fetched_again(here: Path, server: MarkedServer) -> None:
    url = server.begin()
    digest = write(server.folder, "cut.bin", os.urandom(MB))
    with bough.Session(name="cut", reuse="never", cores=1) as s:
        assert read(s, f"{url}/cut.bin").split()[0] == digest
    assert server.asked["GET", "cut.bin"] == 2


class UrlFarm:
    """A server, an HTTP server, and executors on two hosts, to which tasks are sent by what these offer."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.hosts = LinkedHosts(folder, 4)
        self.service = LinkedService(self.hosts, folder, "--heartbeat", "3s", "--reconnect", "6s", *options)
        self.folder = folder
        self.files = folder / "http"
        self.files.mkdir()
        address = self.hosts.address(3)
        self.url = f"http://{address}:8090"
        self.hosts.spawn(3, [sys.executable, marked_http.__file__, address, "8090", str(self.files)], "http.log")

    def executor(self, number: int, *words: str) -> None:
        self.service.executor(number, "--resource", f"h{number}=9", *words)

    def sql(self, text: str) -> list[dict[str, int]]:
        return json.loads(self.service.bough("sql", text, "--json", "--server", self.service.socket))

    def read(self, session: bough.Session, number: int, name: str, then: str = "true") -> bough.Task:
        text = f"sha256sum {{x:r}} | cut -c 1-64; {then}"
        return session.command(text, x=f"{self.url}/{name}", resources={f"h{number}": 1})

    def asked(self, what: str) -> int:
        """How often the HTTP server was asked for something, as `GET name`."""
        return (self.folder / "http.log").read_text().splitlines().count(what)

    def staging(self, count: int) -> list[tuple[int, ...]]:
        """Bytes and files by where they came from, by attempt in the order in which they ended."""
        columns = ("cached", "from_peers", "from_origin", "hits", "peer_hits", "misses")
        text = f"select {', '.join(columns)} from staging join attempts using (id, idx, attempt) order by ended"
        until(lambda: len(self.sql(text)) == count, "the rows")
        return [tuple(row[column] for column in columns) for row in self.sql(text)]

    def hosts_with(self, sha256: str) -> int:
        """How many of the hosts have a file of that content in their cache."""
        return sum(
            any(
                hashlib.sha256(path.read_bytes()).hexdigest() == sha256
                for path in cache.iterdir()
                if len(path.name) == 64
            )
            for cache in self.folder.rglob("bough-contents-*")
        )

    def pids(self) -> dict[str, int]:
        found = json.loads(self.service.bough("executor", "list", "--json", "--server", self.service.socket))
        return {name: int(one["pid"]) for one in found for name in one["named"]}


@pytest.fixture
def farms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[UrlFarm]]:
    monkeypatch.setenv("BOUGH_HOME", "")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made: list[UrlFarm] = []
    yield made
    for farm in made:
        farm.hosts.close()
    opened_sessions.clear()


def begin(farms: list[UrlFarm], folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> UrlFarm:
    farms.append(UrlFarm(folder, *options))
    monkeypatch.chdir(farms[-1].service.here)
    return farms[-1]


@linked
def test_tasks_on_two_hosts_cause_one_fetch_and_are_counted(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    digest, size = write(farm.files, "f.bin", os.urandom(4 * MB)), 4 * MB
    for number in (1, 2):
        farm.executor(number)
        farm.service.await_executors(number)
    with bough.Session(farm.service.socket, name="urls", reuse="never") as s:
        for number in (1, 2, 1, 2):
            assert farm.read(s, number, "f.bin").result(120).stdout.split() == [digest]
        assert farm.asked("GET f.bin") == 1
        hit, peer, miss = (size, 0, 0, 1, 0, 0), (0, size, 0, 0, 1, 0), (0, 0, size, 0, 0, 1)
        assert farm.staging(4) == [miss, peer, hit, hit]
        wanted = "cache hits   2 in the cache, 1 at peers, 1 missed"
        until(lambda: wanted in farm.service.bough("stats", "--server", farm.service.socket), "the counts")
        changed = write(farm.files, "f.bin", os.urandom(4 * MB))
        tasks = [farm.read(s, number, "f.bin") for number in (1, 2)]  # at the same time
        assert [task.result(120).stdout.split() for task in tasks] == [[changed], [changed]]
        assert farm.asked("GET f.bin") == 2
        assert sorted(farm.staging(6)[4:]) == sorted([miss, peer])
        os.kill(farm.pids()["h1"], signal.SIGKILL)
        farm.executor(1)
        assert farm.read(s, 1, "f.bin").result(120).stdout.split() == [changed]
        assert farm.asked("GET f.bin") == 2
        farm.service.executor(1, "--resource", "beside=1")  # another one of the same host
        farm.service.await_executors(3)
        text = "sha256sum {x:r} | cut -c 1-64"
        beside = s.command(text, x=f"{farm.url}/f.bin", resources={"beside": 1})
        assert beside.result(120).stdout.split() == [changed]
        assert farm.asked("GET f.bin") == 2
        assert farm.staging(8)[7] == hit
        small = write(farm.files, "small.txt", b"small\n")
        assert [farm.read(s, n, "small.txt").result(120).stdout.split() for n in (1, 2)] == [[small], [small]]
        assert farm.asked("GET small.txt") == 1


@linked
def test_who_waits_for_a_fetcher_that_is_stopped_fetches_itself(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    digest = write(farm.files, "slow.bin", os.urandom(MB))
    for number in (1, 2):
        farm.executor(number)
    farm.service.await_executors(2)
    with bough.Session(farm.service.socket, name="stopped", reuse="never") as s:
        first = farm.read(s, 1, "slow.bin")
        until(lambda: farm.asked("GET slow.bin") == 1, "the first fetch")
        seen = farm.asked("HEAD slow.bin")
        second = farm.read(s, 2, "slow.bin")
        until(lambda: farm.asked("HEAD slow.bin") > seen, "the look of the second")
        assert farm.asked("GET slow.bin") == 1
        first.cancel()
        until(lambda: farm.asked("GET slow.bin") == 2, "the second fetch")
        (farm.files / "go").touch()
        assert second.result(120).stdout.split() == [digest]


@linked
def test_a_policy_without_caches_fetches_for_each_task(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch, "--policy", "first-available")
    digest = write(farm.files, "f.bin", os.urandom(MB))
    farm.executor(1)
    farm.service.await_executors(1)
    with bough.Session(farm.service.socket, name="fresh", reuse="never") as s:
        for _ in range(2):
            assert farm.read(s, 1, "f.bin").result(120).stdout.split() == [digest]
    assert farm.asked("GET f.bin") == 2
    assert farm.staging(2) == [(0, 0, MB, 0, 0, 1)] * 2


@linked
def test_what_one_host_fetched_is_in_the_shared_store_of_its_site(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    digest = write(farm.files, "f.bin", os.urandom(MB))
    shared = tmp_path / "shared"
    shared.mkdir()
    for number in (1, 2):
        farm.executor(number, "--site", "alpha", "--shared-dir", str(shared), "--no-peers")
    farm.service.await_executors(2)
    with bough.Session(farm.service.socket, name="shared", reuse="never") as s:
        assert farm.read(s, 1, "f.bin").result(120).stdout.split() == [digest]
        until(lambda: [path for path in shared.rglob("*") if len(path.name) == 64], "the store")
        assert farm.read(s, 2, "f.bin").result(120).stdout.split() == [digest]
    assert farm.asked("GET f.bin") == 1
    assert farm.staging(2) == [(0, 0, MB, 0, 0, 1), (0, 0, 0, 0, 1, 0)]


@linked
def test_members_of_a_relay_that_read_one_url_cause_one_fetch(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    home = tmp_path / "relay-home"
    home.mkdir()
    listen = f"{farm.hosts.address(0)}:0"
    words = ["relay", "start", "--server", str(farm.service.access), "--listen", listen, "--dispatch"]
    farm.hosts.spawn(0, [*farm.service.python, *words], "relay.log", BOUGH_HOME=str(home))
    until((home / "relay" / "access.json").exists, "the relay")
    farm.service.access = home / "relay" / "access.json"
    digest = write(farm.files, "slow.bin", os.urandom(4 * MB))
    for number in (1, 2):
        farm.service.executor(number)

    def members() -> int:
        found = json.loads(farm.service.bough("executor", "list", "--json", "--server", farm.service.socket))
        return sum(one["members"] for one in found)

    until(lambda: members() == 2, "two members")
    gate = tmp_path / "gate"
    then = f"touch '{tmp_path}'/begun-$(uname -n); until [ -e '{gate}' ]; do sleep 0.05; done"
    text = f"sha256sum {{x:r}} | cut -c 1-64; {then}"
    with bough.Session(farm.service.socket, name="members", reuse="never") as s:
        tasks = [s.command(text, x=f"{farm.url}/slow.bin") for _ in range(2)]
        until(lambda: farm.asked("HEAD slow.bin") >= 3, "the looks of both, and that of the one that fetches")
        (farm.files / "go").touch()
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, "both")
        gate.touch()
        assert [task.result(120).stdout.split() for task in tasks] == [[digest], [digest]]
    assert farm.asked("GET slow.bin") == 1
    assert sorted(farm.staging(2)) == [(0, 0, 4 * MB, 0, 0, 1), (0, 4 * MB, 0, 0, 1, 0)]


# --- before their tasks begin --------------------------------------------------------------------------


class Gate:
    """Tasks that end when it is open."""

    def __init__(self, farm: UrlFarm) -> None:
        self.farm = farm
        self.path = farm.folder / "gate"
        self.begun = farm.folder / "begun"

    def open(self) -> None:
        self.path.touch()

    def busy(self, session: bough.Session, *numbers: int) -> list[bough.Task]:
        """One task that runs, on each of some hosts."""
        text = f"touch '{self.begun}'-{{n}}; until [ -e '{self.path}' ]; do sleep 0.05; done"
        tasks = [session.command(text, n=at, resources={f"h{number}": 1}) for at, number in enumerate(numbers)]
        until(lambda: all(Path(f"{self.begun}-{at}").exists() for at in range(len(numbers))), "the busy ones")
        return tasks


@linked
def test_what_the_next_tasks_read_at_urls_travels_while_others_run_and_once_for_all_hosts(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    digest, size = write(farm.files, "slow.bin", os.urandom(4 * MB)), 4 * MB
    for number in (1, 2):
        farm.executor(number)
    farm.service.await_executors(2)
    gate = Gate(farm)
    with bough.Session(farm.service.socket, name="early", reuse="never") as s:
        busy = gate.busy(s, 1, 2)
        tasks = [farm.read(s, number, "slow.bin") for number in (1, 2)]
        until(lambda: farm.asked("HEAD slow.bin") >= 3, "the looks of both, and that of the one that fetches")
        (farm.files / "go").touch()
        until(lambda: farm.hosts_with(digest) == 2, "both caches")
        assert farm.asked("GET slow.bin") == 1
        assert not any(task.done() for task in busy)
        gate.open()
        assert [task.result(120).stdout.split() for task in tasks] == [[digest], [digest]]
        assert farm.asked("GET slow.bin") == 1
        found = [row for row in farm.staging(4) if any(row)]  # the busy ones have nothing
        assert sorted(found) == [(0, 0, size, 0, 0, 1), (0, size, 0, 0, 1, 0)]  # counted as what it was


@linked
def test_a_url_that_changes_after_it_came_early_is_fetched_anew(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    early = write(farm.files, "f.bin", os.urandom(MB))
    farm.executor(1)
    farm.service.await_executors(1)
    gate = Gate(farm)
    with bough.Session(farm.service.socket, name="changes", reuse="never") as s:
        gate.busy(s, 1)
        task = farm.read(s, 1, "f.bin")
        until(lambda: farm.hosts_with(early) == 1, "the cache")
        changed = write(farm.files, "f.bin", os.urandom(MB))
        gate.open()
        assert task.result(120).stdout.split() == [changed]


@linked
def test_a_url_that_stands_still_or_is_gone_while_it_comes_early_holds_up_nothing_else(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    slow, quick = write(farm.files, "slow.bin", os.urandom(MB)), write(farm.files, "quick.bin", os.urandom(MB))
    ours = write(farm.service.here, "ours.bin", os.urandom(MB))
    farm.executor(1, "--cores", "4")
    farm.service.await_executors(1)
    gate = Gate(farm)
    with bough.Session(farm.service.socket, name="stalls", reuse="never", on_failure="ignore") as s:
        gate.busy(s, 1, 1, 1, 1)
        stalls, gone = farm.read(s, 1, "slow.bin"), farm.read(s, 1, "gone.bin")
        until(lambda: farm.asked("GET slow.bin") == 1 and farm.asked("HEAD gone.bin") >= 1, "the early ones")
        good = farm.read(s, 1, "quick.bin")
        beside = s.command("sha256sum {x:r} | cut -c 1-64", x="ours.bin", resources={"h1": 1})
        until(lambda: farm.hosts_with(quick) == farm.hosts_with(ours) == 1, "what comes early after them")
        assert farm.asked("GET quick.bin") == 1
        gate.open()
        assert good.result(120).stdout.split() == [quick]
        assert beside.result(120).stdout.split() == [ours]
        assert "gone.bin is not there" in str(gone.exception(120))
        assert not stalls.done()
        (farm.files / "go").touch()
        assert stalls.result(120).stdout.split() == [slow]
        assert farm.asked("GET slow.bin") == 1


@linked
def test_a_task_does_not_wait_for_ever_for_what_stands_still_on_its_way_to_another_host(
    farms: list[UrlFarm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = begin(farms, tmp_path, monkeypatch)
    digest = write(farm.files, "slow.bin", os.urandom(MB))
    for number in (1, 2):
        farm.executor(number)
    farm.service.await_executors(2)
    gate = Gate(farm)
    with bough.Session(farm.service.socket, name="elsewhere", reuse="never") as s:
        gate.busy(s, 1)
        farm.read(s, 1, "slow.bin")
        until(lambda: farm.asked("GET slow.bin") == 1, "the early one")
        runs = farm.read(s, 2, "slow.bin")
        until(lambda: farm.asked("GET slow.bin") == 2, "its own fetch", 60)
        (farm.files / "go").touch()
        assert runs.result(120).stdout.split() == [digest]
        gate.open()


def test_a_session_of_its_own_fetches_for_tasks_that_wait(here: Path, server: MarkedServer, tmp_path: Path) -> None:
    url, gate = server.begin(), tmp_path / "gate"
    gate.touch()
    text = "sha256sum {x:r} | cut -c 1-64; until [ -e {gate} ]; do sleep 0.02; done"
    for number in range(4):
        write(server.folder, f"{number}.bin", os.urandom(1000))
    with bough.Session(name="waits", reuse="never", cores=1) as s:
        for _ in range(20):  # now they are known to be short, so that some may wait at the executor
            s.command(text, x=f"{url}/0.bin", gate=str(gate)).result(60)
        gate.unlink()
        tasks = [s.command(text, x=f"{url}/{number}.bin", gate=str(gate)) for number in range(1, 4)]
        until(lambda: server.asked["GET", "2.bin"] == 1, "the second one's input")
        assert not tasks[0].done()
        gate.touch()
        for task in tasks:
            task.result(60)
    assert [server.asked["GET", f"{number}.bin"] for number in range(4)] == [1, 1, 1, 1]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_more_is_taken_than_a_file_may_have(tmp_path: Path, server: MarkedServer) -> None:
    url = server.begin()
    write(server.folder, "long.bin", b"")
    with pytest.raises(SiteError, match="more than 1048576 bytes came") as caught:
        remote_files.fetch(f"{url}/long.bin", str(tmp_path / "copy"), MB)
    assert not caught.value.transient
    assert sorted(path.name for path in tmp_path.iterdir()) == ["http"]


def test_a_download_by_http_takes_as_long_as_bytes_come() -> None:
    fs, _ = remote_files._filesystem("http://127.0.0.1:1/x")
    timeout = fs.client_kwargs["timeout"]
    assert timeout.total is None
    assert timeout.sock_read > 0
    assert remote_files._filesystem("http://127.0.0.1:1/y")[0] is fs  # connections are used again


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_changes_while_it_is_read_has_no_mark(tmp_path: Path, server: MarkedServer) -> None:
    url = server.begin()
    write(server.folder, "moving.bin", b"x")
    assert remote_files.look(f"{url}/moving.bin").mark
    assert remote_files.fetch(f"{url}/moving.bin", str(tmp_path / "copy")).mark == ""
    assert server.asked["GET", "moving.bin"] == 2
    write(server.folder, "still.bin", b"x")
    assert remote_files.fetch(f"{url}/still.bin", str(tmp_path / "copy")).mark
    assert server.asked["GET", "still.bin"] == 1
