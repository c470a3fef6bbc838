"""Members of a relay that shares out work and serve each other: real links, real processes, and what can go wrong.

Host 0 has the server, host 1 the relay, host 2 and those after it have members. Hosts are network namespaces with names
of their own, which takes root; without, these tests are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_hosts import LinkedHosts, LinkedService, linked, until

import bough
from bough.api.session.session import opened_sessions

MB = 1 << 20

pytestmark = linked


class Cluster:
    """See the module."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.hosts = LinkedHosts(folder, 5)
        self.service = LinkedService(self.hosts, folder, "--heartbeat", "3s", "--reconnect", "6s", *options)
        self.folder, self.here, self.gate = folder, self.service.here, folder / "gate"
        self.home = folder / "relay-home"
        self.home.mkdir()
        listen = f"{self.hosts.address(1)}:0"
        self.relay(listen)
        until((self.home / "relay" / "access.json").exists, "the relay")

    def relay(self, listen: str) -> None:
        """Start a relay."""
        words = ["relay", "start", "--server", str(self.service.access), "--listen", listen, "--dispatch"]
        self.hosts.spawn(1, [*self.service.python, *words, "--reconnect", "5s"], "relay.log", BOUGH_HOME=str(self.home))

    def begin_relay_anew(self) -> None:
        """Kill the relay and start another one at the same address."""
        address = json.loads((self.home / "relay" / "access.json").read_text())["address"]
        relay = next(process for process in self.hosts.processes if "relay" in process.args)
        relay.kill()
        relay.wait(60)
        self.relay(address)

    def member(self, number: int, *words: str) -> subprocess.Popen[bytes]:
        """Start an executor behind the relay."""
        direct, self.service.access = self.service.access, self.home / "relay" / "access.json"
        try:
            self.service.executor(number, *words)
        finally:
            self.service.access = direct
        return self.hosts.processes[-1]

    def ready(self, count: int) -> None:
        """Wait until the server knows of so many behind the relay."""
        until(lambda: sum(one["members"] for one in self.executors()) == count, f"{count} members")

    def executors(self) -> list[dict[str, int]]:
        return json.loads(self.service.bough("executor", "list", "--json", "--server", self.service.socket))

    def session(self, name: str) -> bough.Session:
        return bough.Session(self.service.socket, name=name, progress=False)

    def read(self, session: bough.Session, on: str = "", *, gated: bool = False) -> bough.Task:
        begun = f"touch '{self.folder}'/begun-$(uname -n); until [ -e '{self.gate}' ]; do sleep 0.05; done"
        return session.command(
            f"sha256sum {{x:r}} | cut -c 1-64; uname -n; {begun if gated else 'true'}",
            x="big.bin",
            resources={on: 1} if on else {},
        )

    def staging(self, count: int) -> list[tuple[int, int, int]]:
        """Bytes from caches, peers and the server, by attempt in the order in which they ended."""
        text = (
            "select cached, from_peers, from_origin from staging join attempts using (id, idx, attempt) order by ended"
        )
        until(lambda: len(self.sql(text)) == count, "the rows")
        return [(row["cached"], row["from_peers"], row["from_origin"]) for row in self.sql(text)]

    def sql(self, text: str) -> list[dict[str, int]]:
        return json.loads(self.service.bough("sql", text, "--json", "--server", self.service.socket))

    def big(self, megabytes: int) -> str:
        data = os.urandom(megabytes * MB)
        (self.here / "big.bin").write_bytes(data)
        return hashlib.sha256(data).hexdigest()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cluster]]:
    monkeypatch.setenv("BOUGH_HOME", "")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    (tmp_path / "work").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work").rmdir()
    clusters: list[Cluster] = []
    try:
        yield clusters
    finally:
        for one in clusters:
            one.hosts.close()
        opened_sessions.clear()


def begin(made: list[Cluster], folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Cluster:
    cluster = Cluster(folder, *options)
    made.append(cluster)
    monkeypatch.chdir(cluster.here)
    return cluster


def test_three_members_that_read_one_file_get_it_from_the_server_once(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch)
    for number in (2, 3, 4):
        cluster.member(number)
    cluster.ready(3)
    digest, size = cluster.big(20), 20 * MB
    server, relay = cluster.hosts.sent(0), cluster.hosts.sent(1)
    with cluster.session("three") as s:
        tasks = [cluster.read(s, gated=True) for _ in range(3)]
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 3, "three members that have it")
        cluster.gate.touch()
        said = [task.result(120).stdout.split() for task in tasks]
    assert [one[0] for one in said] == [digest] * 3
    assert len({one[1] for one in said}) == 3
    assert cluster.hosts.sent(0) - server < 1.5 * size
    assert cluster.hosts.sent(1) - relay < 1.5 * size  # nor does it pass through the relay more often
    rows = cluster.staging(3)
    assert sum(origin for _, _, origin in rows) == size
    assert sum(peers for _, peers, _ in rows) == 2 * size


def test_a_member_that_is_killed_while_it_sends_costs_only_time_and_one_that_is_gone_is_asked_no_more(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch)
    cluster.hosts.shape("50mbit")
    first = cluster.member(2)
    cluster.ready(1)
    digest, size = cluster.big(20), 20 * MB
    with cluster.session("killed") as s:
        assert cluster.read(s).result(120).stdout.split()[0] == digest
        busy = cluster.read(s, gated=True)
        until(lambda: list(tmp_path.glob("begun-*")), "a task that keeps the first member busy")
        cluster.member(3)
        cluster.ready(2)
        sent = cluster.hosts.sent(2)
        task = cluster.read(s)
        until(lambda: cluster.hosts.sent(2) - sent > 4 * MB, "the transfer between members")
        first.kill()
        cluster.gate.touch()
        assert task.result(120).stdout.split()[0] == digest
        assert busy.result(120).stdout.split()[0] == digest  # it was lost with its member, and done again
        peers, origin = next((peers, origin) for _, peers, origin in cluster.staging(3) if peers)
        assert origin > 0
        assert peers + origin == size
        cluster.ready(1)  # the first is given up
        cluster.member(4)
        cluster.ready(2)
        cluster.gate.unlink()
        tasks = [cluster.read(s, gated=True) for _ in range(2)]
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 3, "the last member that has it")
        cluster.gate.touch()
        assert [one.result(120).stdout.split()[0] for one in tasks] == [digest] * 2
    assert sorted(cluster.staging(5))[-2:] == [(size, 0, 0), (size, 0, 0)]
    assert (0, size, 0) in cluster.staging(5)


def test_members_read_from_peers_outside_with_the_tickets_of_their_relay(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch)
    cluster.service.executor(2, "--resource", "outside=1")
    cluster.member(3, "--resource", "member=1")
    cluster.ready(2)
    digest, size = cluster.big(4), 4 * MB
    with cluster.session("outside") as s:
        for on in ("outside", "member"):
            assert cluster.read(s, on).result(120).stdout.split()[0] == digest
    assert cluster.staging(2) == [(0, 0, size), (0, size, 0)]


def test_who_is_outside_reads_from_members_and_the_server_sends_nothing_again(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch)
    cluster.member(3, "--resource", "member=1")
    cluster.ready(1)
    cluster.service.executor(2, "--resource", "outside=1")
    cluster.ready(2)
    digest, size = cluster.big(20), 20 * MB
    with cluster.session("inside") as s:
        assert cluster.read(s, "member").result(120).stdout.split()[0] == digest
        server, relay = cluster.hosts.sent(0), cluster.hosts.sent(1)
        assert cluster.read(s, "outside").result(120).stdout.split()[0] == digest
    assert cluster.staging(2) == [(0, 0, size), (0, size, 0)]
    assert cluster.hosts.sent(0) - server < size / 4
    assert cluster.hosts.sent(1) - relay < size / 4  # he reads from the member itself


def test_who_does_not_reach_members_reads_from_them_by_a_door_of_their_relay(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch)
    for number in (3, 4):
        cluster.member(number, "--resource", f"m{number}=1")
    cluster.service.executor(2, "--resource", "outside=1")
    cluster.ready(3)
    for number in (3, 4):
        cluster.hosts.hide(number, 2)
    digest, size = cluster.big(20), 20 * MB
    with cluster.session("hidden") as s:
        for number in (3, 4):
            assert cluster.read(s, f"m{number}").result(120).stdout.split()[0] == digest
        server, relay = cluster.hosts.sent(0), cluster.hosts.sent(1)
        assert cluster.read(s, "outside").result(120).stdout.split()[0] == digest
        assert cluster.staging(3)[-1] == (0, size, 0)
        assert cluster.hosts.sent(0) - server < size / 4
        assert size <= cluster.hosts.sent(1) - relay < 1.3 * size
        assert cluster.hosts.sent(2) < size / 4
        other = cluster.big(10)
        for on in ("m3", "outside"):
            assert cluster.read(s, on).result(120).stdout.split()[0] == other
        assert cluster.staging(5)[-1] == (0, 10 * MB, 0)


def test_a_member_that_is_killed_while_somebody_outside_reads_costs_only_time(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch)
    cluster.hosts.shape("50mbit")
    member = cluster.member(3, "--resource", "member=1")
    cluster.service.executor(2, "--resource", "outside=1")
    cluster.ready(2)
    cluster.hosts.hide(3, 2)
    digest, size = cluster.big(20), 20 * MB
    with cluster.session("killed outside") as s:
        assert cluster.read(s, "member").result(120).stdout.split()[0] == digest
        relay = cluster.hosts.sent(1)
        task = cluster.read(s, "outside")
        until(lambda: cluster.hosts.sent(1) - relay > 4 * MB, "the transfer by the door")
        member.kill()
        assert task.result(120).stdout.split()[0] == digest
    _, peers, origin = cluster.staging(2)[-1]
    assert peers > 0
    assert origin > 0
    assert peers + origin == size


def test_a_policy_that_looks_at_data_sees_what_members_hold(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch, "--policy", "max-cache-hit")
    digest = cluster.big(4)
    cluster.member(2)
    cluster.ready(1)
    with cluster.session("policy") as s:
        name = cluster.read(s).result(120).stdout.split()[1]
        cluster.service.executor(3, "--cores", "8")
        cluster.ready(2)
        busy = cluster.read(s, gated=True)
        until(lambda: list(tmp_path.glob("begun-*")), "a task that keeps the member busy")
        task = cluster.read(s)  # it waits for who has its file, although the other executor is idle
        assert s.command("uname -n").result(120).stdout.split() != [name]
        cluster.gate.touch()
        assert busy.result(120).stdout.split() == task.result(120).stdout.split() == [digest, name]


def test_a_relay_that_is_started_anew_says_what_its_members_hold(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch, "--policy", "max-compute-util")
    digest = cluster.big(4)
    cluster.member(2)
    cluster.ready(1)
    with cluster.session("anew") as s:
        name = cluster.read(s).result(120).stdout.split()[1]
        cluster.service.executor(3, "--cores", "2")
        cluster.ready(2)
        former = {one["executor"] for one in cluster.executors()}
        cluster.begin_relay_anew()
        until(
            lambda: [one for one in cluster.executors() if one["executor"] not in former and one["members"]],
            "the member behind the new relay",
        )
        assert cluster.read(s).result(120).stdout.split() == [digest, name]


def test_outputs_to_be_written_back_later_are_written_at_once_behind_a_relay(
    made: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(made, tmp_path, monkeypatch)
    cluster.member(2)
    cluster.ready(1)
    with cluster.session("later") as s:
        tasks = [s.command("echo {n} > {o:w}", n=n, o=f"{n}.txt", keep="later") for n in range(5)]
        for task in tasks:
            task.result(60)
    assert [(cluster.here / f"{n}.txt").read_text() for n in range(5)] == [f"{n}\n" for n in range(5)]
    assert "executor-missing" not in (tmp_path / "server.log").read_text()
    assert "server-lost" not in (tmp_path / "executor-2.log").read_text()
