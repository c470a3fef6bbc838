"""Contents that executors on separate hosts take from each other: real links, real processes, and what can go wrong.

Hosts are network namespaces with names of their own, which takes root; without, these tests are skipped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_hosts import LinkedHosts, LinkedService, linked, until

import bough
from bough.api.session.session import opened_sessions

MB = 1 << 20


pytestmark = linked


class Farm:
    """A server, and executors on three hosts; tasks are sent to a host by what it offers."""

    def __init__(self, folder: Path) -> None:
        self.hosts = LinkedHosts(folder, 4)
        self.service = LinkedService(self.hosts, folder, "--heartbeat", "3s", "--reconnect", "6s")
        self.folder, self.here = folder, self.service.here

    def executor(self, number: int, *words: str) -> None:
        self.service.executor(number, "--resource", f"h{number}=9", *words)

    def ready(self, count: int) -> None:
        self.service.await_executors(count)

    def session(self, name: str) -> bough.Session:
        return bough.Session(self.service.socket, name=name)

    def read(self, session: bough.Session, number: int, path: str = "big.bin", then: str = "") -> bough.Task:
        text = f"sha256sum < {{x:r}}; uname -n; {then or 'true'}"
        return session.command(text, x=path, resources={f"h{number}": 1})

    def sql(self, text: str) -> list[dict[str, object]]:
        return json.loads(self.service.bough("sql", text, "--json", "--server", self.service.socket))

    def copies(self, number: int) -> list[Path]:
        found = (self.folder / f"host-{number}").glob("bough-contents-*/*")
        return [path for path in found if len(path.name) == 64]

    def executor_pid(self, number: int) -> int:
        found = json.loads(self.service.bough("executor", "list", "--json", "--server", self.service.socket))
        return next(int(one["pid"]) for one in found if f"h{number}" in one["named"])

    def close(self) -> None:
        self.hosts.close()


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    monkeypatch.setenv("BOUGH_HOME", "")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made = Farm(tmp_path)
    monkeypatch.chdir(made.here)
    try:
        yield made
    finally:
        made.close()
        opened_sessions.clear()


def write(path: Path, megabytes: int) -> str:
    data = os.urandom(megabytes * MB)
    path.write_bytes(data)
    import hashlib

    return hashlib.sha256(data).hexdigest()


def staging(farm: Farm) -> list[tuple[int, int, int]]:
    until(lambda: farm.sql("select count(*) as n from staging"), "the jobs database")
    rows = farm.sql("select cached, from_peers, from_origin from staging order by id")
    return [(row["cached"], row["from_peers"], row["from_origin"]) for row in rows]  # type: ignore[misc]


def test_a_file_goes_from_the_server_once_then_from_peers_and_then_is_there(farm: Farm) -> None:
    for number in (1, 2):
        farm.executor(number)
        farm.ready(number)  # executors have the numbers of their hosts
    digest, size = write(farm.here / "big.bin", 8), 8 * MB
    before = farm.hosts.sent(0)
    with farm.session("peers") as s:
        for number in (1, 2, 2):
            assert farm.read(s, number).result(120).stdout.split()[0] == digest
    assert farm.hosts.sent(0) - before < 1.5 * size
    until(lambda: len(farm.sql("select id from staging")) == 3, "the rows")
    assert staging(farm) == [(0, 0, size), (0, size, 0), (size, 0, 0)]
    counted = farm.sql("select misses, peer_hits, hits, executor from staging join attempts using (id, idx, attempt)")
    assert sorted((row["executor"], row["misses"], row["peer_hits"], row["hits"]) for row in counted) == [
        (1, 1, 0, 0),
        (2, 0, 0, 1),
        (2, 0, 1, 0),
    ]
    wanted = "cache hits   1 in the cache, 1 at peers, 1 missed"  # as of the last full second
    until(lambda: wanted in farm.service.bough("stats", "--server", farm.service.socket), "the counts")
    said = farm.service.bough("stats", "--server", farm.service.socket)
    assert "executor 2: 1 in the cache, 1 at peers, 0 missed" in said
    assert "workflow peers: 1 in the cache, 1 at peers, 1 missed" in said


def test_what_elements_put_is_sent_to_each_of_them_and_what_they_store_is_there(farm: Farm) -> None:
    farm.executor(1)
    farm.ready(1)
    put, size = write(farm.here / "query.bin", 1), MB
    write(farm.here / "db.bin", 2)
    text, store = "sha256sum < query; test -s $STORAGE/db.bin; : {n}", {"store": ["db.bin"]}
    with farm.session("put") as s:
        s.command("true", **store).result(120)
        for moved in ({"put": {"query.bin": "query"}}, {"put": {"query.bin": "query"}, "inputs": ["query.bin"]}):
            swept = s.sweep(text, bough.tie(n=[1, 2]), **moved, **store)
            assert {one.stdout.split()[0] for one in swept.results()} == {put}
        s.feed(text, [{"n": 1}, {"n": 2}], put={"query.bin": "query"}, **store).wait_all(120)
    until(lambda: len(farm.sql("select id from staging")) == 7, "the rows")
    assert staging(farm) == [(0, 0, 2 * MB), *[(2 * MB, 0, size)] * 6]


def test_executors_on_a_forwarded_socket_serve_each_other_where_they_are_told_to(farm: Farm) -> None:
    for number in (1, 2):
        where = () if number == 2 else ("--peer-address", farm.hosts.address(number))
        farm.executor(number, "--server", farm.service.socket, *where)
        farm.ready(number)
    digest, size = write(farm.here / "big.bin", 2), 2 * MB
    write(farm.here / "other.bin", 2)
    with farm.session("told") as s:
        for number in (1, 2):
            assert farm.read(s, number).result(120).stdout.split()[0] == digest
        for number in (2, 1):  # 2 was told nothing: its socket is taken to be the server's own, so it serves its host
            farm.read(s, number, "other.bin").result(120)
    until(lambda: len(farm.sql("select id from staging")) == 4, "the rows")
    assert staging(farm) == [(0, 0, size), (0, size, 0), (0, 0, size), (0, 0, size)]


def test_a_wrong_copy_is_noticed_dropped_and_fetched_elsewhere(farm: Farm) -> None:
    for number in (1, 2):
        farm.executor(number)
    farm.ready(2)
    digest = write(farm.here / "big.bin", 4)
    with farm.session("corrupt") as s:
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
        (copy,) = farm.copies(1)
        state = copy.stat()
        with open(copy, "r+b") as file:
            file.seek(2 * MB)
            file.write(b"damaged")
        os.utime(copy, ns=(state.st_atime_ns, state.st_mtime_ns))  # as a disk does it that loses bits
        assert farm.read(s, 2).result(120).stdout.split()[0] == digest
        until(lambda: not farm.copies(1), "the wrong copy's end")
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
    assert "copy-corrupt" in (farm.folder / "server.log").read_text()


def test_a_peer_that_is_killed_while_it_sends_costs_only_time(farm: Farm) -> None:
    farm.hosts.shape("50mbit")
    for number in (1, 2):
        farm.executor(number)
    farm.ready(2)
    digest, size = write(farm.here / "big.bin", 24), 24 * MB
    with farm.session("killed") as s:
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
        sent = farm.hosts.sent(1)
        task = farm.read(s, 2)
        until(lambda: farm.hosts.sent(1) - sent > 4 * MB, "the transfer between peers")
        os.kill(farm.executor_pid(1), signal.SIGKILL)
        assert task.result(120).stdout.split()[0] == digest
    until(lambda: len(farm.sql("select id from staging")) == 2, "the rows")
    (_, peers, origin) = staging(farm)[1]
    assert peers > 0
    assert origin > 0
    assert peers + origin == size


def test_peers_that_cannot_reach_each_other_do_with_the_server(farm: Farm) -> None:
    for number in (1, 2):
        farm.executor(number)
    farm.ready(2)
    digest, size = write(farm.here / "big.bin", 4), 4 * MB
    mark = farm.hosts.words(2)[1].removeprefix("--net=/var/run/netns/")
    subprocess.run(["ip", "-n", mark, "route", "add", "unreachable", farm.hosts.address(1)], check=True)
    with farm.session("firewall") as s:
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
        assert farm.read(s, 2).result(120).stdout.split()[0] == digest
    until(lambda: len(farm.sql("select id from staging")) == 2, "the rows")
    assert staging(farm) == [(0, 0, size), (0, 0, size)]


def test_an_output_is_read_where_it_was_made_and_by_peers_without_the_server(farm: Farm) -> None:
    for number in (1, 2):
        farm.executor(number)
    farm.ready(2)
    with farm.session("outputs") as s:
        made = s.command("head -c 3000000 /dev/urandom > {o:w}", o="made.bin", resources={"h1": 1})
        for number in (1, 2):
            read = s.command("wc -c < {x:r}", x=made, resources={f"h{number}": 1})
            assert read.result(120).stdout.split() == ["3000000"]
    until(lambda: len(farm.sql("select id from staging")) == 3, "the rows")
    assert staging(farm)[1:] == [(3_000_000, 0, 0), (0, 3_000_000, 0)]
    (sent,) = farm.sql("select sent from staging where sent > 0")
    assert sent["sent"] == 3_000_000


def test_a_cache_that_was_removed_is_filled_again(farm: Farm) -> None:
    farm.executor(1)
    farm.ready(1)
    digest = write(farm.here / "big.bin", 2)
    with farm.session("removed") as s:
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
        subprocess.run(["sh", "-c", f"rm -rf '{farm.folder}'/host-1/bough-contents-*"], check=True)
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
    assert len(farm.copies(1)) == 1


def test_inputs_travel_while_the_task_before_computes(farm: Farm) -> None:
    farm.executor(1)
    farm.ready(1)
    gate = farm.folder / "gate"
    gate.touch()
    for number in range(12):
        (farm.here / f"{number}.bin").write_bytes(b"%d" % number * MB)
    text = "until [ -e {gate} ]; do sleep 0.05; done; wc -c < {x:r}"
    with farm.session("early") as s:
        for number in range(8):  # they are known to be short from then on, so that others are placed behind one
            s.command(text, gate=str(gate), x=f"{number}.bin").result(60)
        gate.unlink()
        last = [s.command(text, gate=str(gate), x=f"{number}.bin") for number in range(8, 12)]
        until(lambda: len(farm.copies(1)) >= 10, "the input of a task that waits", 60)
        assert not any(task.done() for task in last)
        gate.touch()
        assert [task.result(60).stdout.strip() for task in last] == [str(MB), str(MB), str(2 * MB), str(2 * MB)]


def test_inputs_of_long_tasks_travel_while_the_one_before_computes_and_no_slot_waits(farm: Farm) -> None:
    farm.hosts.shape("60mbit")
    farm.executor(1)
    farm.ready(1)
    size = 5 * MB
    for number in range(4):
        (farm.here / f"{number}.bin").write_bytes(os.urandom(size))
    with farm.session("long") as s:
        tasks = [s.command("sleep 2; wc -c < {x:r}", x=f"{number}.bin") for number in range(4)]
        assert [task.result(120).stdout.strip() for task in tasks] == [str(size)] * 4
    until(lambda: len(farm.sql("select id from staging")) == 4, "the rows")
    rows = farm.sql("select stage_in from staging join attempts using (id, idx, attempt) order by started")
    first, *others = [float(str(row["stage_in"])) for row in rows]
    assert sum(others) < 0.4 * first * len(others), (first, others)
    assert staging(farm) == [(0, 0, size)] * 4  # each is counted as what it was when it was brought


def test_an_executor_that_begins_again_finds_what_the_former_one_had(farm: Farm) -> None:
    farm.executor(1)
    farm.ready(1)
    digest, size = write(farm.here / "big.bin", 3), 3 * MB
    with farm.session("again") as s:
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
        os.kill(farm.executor_pid(1), signal.SIGKILL)
        farm.executor(1)
        assert farm.read(s, 1).result(120).stdout.split()[0] == digest
    until(lambda: len(farm.sql("select id from staging")) == 2, "the rows")
    assert staging(farm)[1] == (size, 0, 0)


def test_without_a_right_ticket_a_peer_gives_nothing(farm: Farm) -> None:
    farm.executor(1)
    farm.ready(1)
    write(farm.here / "big.bin", 1)
    with farm.session("thief") as s:
        farm.read(s, 1).result(120)
    (copy,) = farm.copies(1)
    name = farm.hosts.words(1)[1].removeprefix("--net=/var/run/netns/")
    listening = subprocess.run(
        ["ip", "netns", "exec", name, "cat", "/proc/net/tcp"], check=True, capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in listening.splitlines()[1:]]
    (port,) = [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"]
    text = (
        "import socket, ssl, sys, time\n"
        "from bough.wire.framing import frame, Frames\n"
        "from bough.wire.peer_messages import AskContent, ContentComes, make_ticket\n"
        "from bough.transport.tls import client_context\n"
        "digest = bytes.fromhex(sys.argv[3])\n"
        "for until in (time.time() + 99, 1.0):\n"
        "    s = client_context().wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2]))))\n"
        "    s.sendall(frame(AskContent(digest, 0, 100, 1, until, make_ticket(b'guess', digest, 1, until))))\n"
        "    data = b''\n"
        "    while more := s.recv(4096): data += more\n"
        "    print(Frames(ContentComes).feed(data)[0].error)\n"
    )
    import sys

    words = [*farm.hosts.words(2), sys.executable, "-c", text, farm.hosts.address(1), str(port), copy.name]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert said == "the ticket is not valid\n" * 2


def test_a_server_that_is_gone_and_back_goes_on_sending(farm: Farm) -> None:
    farm.hosts.shape("50mbit")
    farm.executor(1)
    farm.ready(1)
    digest = write(farm.here / "big.bin", 24)
    server = json.loads((farm.service.home / "server" / "server.json").read_bytes())
    with farm.session("gone") as s:
        sent, task = farm.hosts.sent(0), farm.read(s, 1)
        until(lambda: farm.hosts.sent(0) - sent > 4 * MB, "the transfer")
        os.kill(server["pid"], signal.SIGKILL)
        until(lambda: farm.hosts.processes[0].poll() is not None, "the server's end")
        farm.service.start(server["address"].rpartition(":")[2])
        assert task.result(120).stdout.split()[0] == digest


def test_a_full_disk_under_the_cache_is_a_matter_of_the_site_and_the_task_goes_elsewhere(farm: Farm) -> None:
    small = farm.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)], check=True)
    try:
        farm.service.executor(1, "--resource", "any=9", "--cache-dir", str(small))
        farm.service.executor(2, "--resource", "any=9")
        farm.ready(2)
        digest = write(farm.here / "big.bin", 4)
        with farm.session("full") as s:
            tasks = [s.command(f"sha256sum < {{x:r}}; echo {n}", x="big.bin", resources={"any": 1}) for n in range(4)]
            assert [task.result(120).stdout.split()[0] for task in tasks] == [digest] * 4
        vain = farm.sql("select message from attempts where state = 'failed'")
        assert vain  # the small host was tried
        assert all("the whole disk of" in str(row["message"]) for row in vain)
    finally:
        farm.close()
        subprocess.run(["umount", "-l", str(small)], check=False)


def test_a_transfer_process_that_is_killed_is_started_again(farm: Farm) -> None:
    farm.hosts.shape("50mbit")
    farm.executor(1)
    farm.ready(1)
    digest = write(farm.here / "big.bin", 24)
    with farm.session("restarted") as s:
        sent, task = farm.hosts.sent(0), farm.read(s, 1)
        until(lambda: farm.hosts.sent(0) - sent > 4 * MB, "the transfer")
        executor = farm.executor_pid(1)
        found = subprocess.run(["pgrep", "-P", str(executor)], capture_output=True, text=True, check=True).stdout
        parts = [
            path
            for pid in found.split()
            for path in Path(f"/proc/{pid}/fd").glob("*")
            if os.path.realpath(path).endswith(".part")
        ]
        (pid,) = {int(path.parts[2]) for path in parts}
        os.kill(pid, signal.SIGKILL)
        assert task.result(120).stdout.split()[0] == digest
    assert "transfers-died" in (farm.folder / "executor-1.log").read_text()


def test_an_origin_that_is_slow_and_cut_off_goes_on_when_it_is_back(farm: Farm) -> None:
    farm.hosts.shape("16mbit")
    farm.executor(1)
    farm.ready(1)
    digest = write(farm.here / "big.bin", 8)
    with farm.session("cut") as s:
        sent, task = farm.hosts.sent(0), farm.read(s, 1)
        until(lambda: farm.hosts.sent(0) - sent > 2 * MB, "the transfer")
        farm.hosts.cut(0)
        until(lambda: "executor-missing" in (farm.folder / "server.log").read_text(), "the loss")
        assert not task.done()
        farm.hosts.cut(0, is_up=True)
        assert task.result(120).stdout.split()[0] == digest


def _make(megabytes: int) -> bytes:
    return os.urandom(megabytes * MB)


def _digest(value: bytes) -> str:
    import hashlib

    return hashlib.sha256(value).hexdigest()


def test_a_big_result_is_read_from_the_host_that_made_it(farm: Farm) -> None:
    for number in (1, 2, 3):
        farm.executor(number)
    farm.ready(3)
    size = 8 * MB
    with farm.session("results") as s:
        made = s.options(resources={"h1": 1}).submit(_make, 8)
        s.options(resources={"h1": 1}).submit(len, made).result(120)
        before = farm.hosts.sent(0)
        hosts = [s.options(resources={f"h{number}": 1}) for number in (1, 2, 2, 3)]
        found = [host.submit(_digest, made).result(120) for host in hosts]
        assert farm.hosts.sent(0) - before < size / 4  # the server sends none of it
        assert set(found) == {_digest(made.result(120))}


def _total(values: object, more: int) -> tuple[float, bool]:
    import numpy as np

    array = np.asarray(values)
    return float(array.sum()) + more, bool(array.flags.writeable)


def test_an_array_given_to_many_calls_travels_once_to_each_host_and_between_hosts(farm: Farm) -> None:
    np = pytest.importorskip("numpy")
    for number in (1, 2):
        farm.executor(number)
    farm.ready(2)
    array = np.arange(MB, dtype=np.float64)  # 8 MB
    before = farm.hosts.sent(0)
    with farm.session("arguments") as s:
        for shared in (array, s.share(array)):
            for number in (1, 2):
                here = s.options(resources={f"h{number}": 1})
                found = [task.result(120) for task in [here.submit(_total, shared, more) for more in range(4)]]
                assert found == [(float(array.sum()) + more, False) for more in range(4)]
        array[0] = 5.0  # what was submitted before is not changed by it, what comes after is another value
        assert s.options(resources={"h1": 1}).submit(_total, array, 0).result(120)[0] == float(array.sum())
    sent = farm.hosts.sent(0) - before
    assert sent < 2.6 * array.nbytes, sent  # the first array once, the changed one once
    until(lambda: farm.sql("select id from staging where id % 1000 = 17"), "the row of the last call")
    rows = staging(farm)  # of the first call at each host, and of those whose worker had let go of it
    assert rows[0] == rows[-1] == (0, 0, array.nbytes)
    assert rows[1:-1].count((0, array.nbytes, 0)) == 1
    assert {*rows[1:-1]} <= {(0, array.nbytes, 0), (array.nbytes, 0, 0)}


def test_an_array_given_to_many_elements_of_a_map_travels_once_to_each_host(farm: Farm) -> None:
    np = pytest.importorskip("numpy")
    for number in (1, 2):
        farm.executor(number)
    farm.ready(2)
    array, other = np.arange(MB, dtype=np.float64), np.ones(MB)  # 8 MB each
    totals = (float(array.sum()), float(other.sum()))
    before = farm.hosts.sent(0)
    with farm.session("elements") as s:
        shared = s.share(array)
        for number in (1, 2):
            here = s.options(resources={f"h{number}": 1})
            found = here.map(_total, [array, other] * 4, range(8), timeout=120).results()
            assert found == [(totals[more % 2] + more, False) for more in range(8)]
            found = here.map(_total, [shared] * 40, range(40), timeout=120).results()  # many elements of one page
            assert found == [(totals[0] + more, False) for more in range(40)]
            found = here.sweep(_total, bough.product(values=[array, shared], more=range(8))).results()
            assert found == [(totals[0] + more, False) for _ in range(2) for more in range(8)]
    counted = "select sum(from_origin) as origin, sum(from_peers) as peers, sum(stage_in) as seconds from staging"
    until(lambda: farm.sql(counted)[0]["peers"], "the rows")
    assert farm.sql(counted)[0]["origin"] == farm.sql(counted)[0]["peers"] == 2 * array.nbytes
    sent = farm.hosts.sent(0) - before
    assert sent < 2.6 * array.nbytes, sent  # each of the two once; the second host has them from the first
