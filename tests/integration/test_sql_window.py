"""Statements of strangers: whatever they ask, the server, other askers and the store go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import Service, WorkflowClient, is_alive, until

from bough.errors import UserError
from bough.server.handler_errors import HandlerErrors
from bough.server.peers import ClientPeer, DeferredRequest
from bough.server.service.sql_process import Limits, Sheet
from bough.server.service.sql_window import SqlQueries
from bough.stores.open import open_jobs, open_store
from bough.testing.builders import question
from bough.testing.store_conformance import OPENED
from bough.wire import questions
from bough.wire.client_messages import Answer, Ask, Refused
from tests.postgres_server import PostgresServer

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
ENDLESS_ROWS = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.clean_up()


def asked(line: object, request: int, statement: str) -> DeferredRequest[questions.Sql]:
    """A statement of somebody who is not connected to anything."""
    return DeferredRequest(
        ClientPeer(line, 1, "here"), Ask(request, question("sql", statement=statement)), HandlerErrors()
    )


def begin(client: WorkflowClient, statement: str) -> int:
    """Ask and do not wait for the answer."""
    client.request += 1
    client.say(Ask(client.request, question("sql", statement=statement)))
    return client.request


def refusal(client: WorkflowClient, statement: str) -> Refused:
    request = begin(client, statement)
    return client.wait(Refused, lambda refused: refused.request == request)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for one in found for word in one.read_text().split()]


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds_of(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_endless_statement_keeps_nobody_waiting_and_ends_with_who_asked(service: Service) -> None:
    service.start("--query-time", "10m")
    endless, other = service.client(""), service.client("")
    for _ in range(3):
        begin(endless, ENDLESS)
    busy = until(lambda: [pid for pid in children(service.server.pid) if seconds_of(pid) > 0.2], "the statements")
    assert len(busy) <= 2, "one asker has two statements under way at the most"

    assert other.ask("sql", statement="select 1 as one") == {"columns": ["one"], "rows": [[1]]}
    assert "counts" in other.ask("status")

    endless.sock.close()
    until(lambda: not any(map(is_alive, busy)), "the end of the statements of who is gone")
    assert other.ask("sql", statement="select 2") == {"columns": ["2"], "rows": [[2]]}


def test_a_statement_that_takes_too_long_is_refused_and_the_limit_is_said(service: Service) -> None:
    service.start("--query-time", "0.3s")
    client = service.client("")

    for statement in (ENDLESS, f"select * from ({ENDLESS_ROWS}) where i < 0"):
        refused = refusal(client, statement)
        assert refused.kind == "UserError"
        assert "took longer than 0.3 s" in refused.message
    assert client.ask("sql", statement="select 1")["rows"] == [[1]]


TWENTY = "with recursive n(i) as (select 1 union all select i + 1 from n limit 20)"
TOO_MUCH = {
    f"{TWENTY} select hex(zeroblob(50000000)) from n": "larger than 16 MB",
    f"{TWENTY} select hex(zeroblob(5000000)) from n": "larger than 64 MB: ask for fewer rows, with limit",
    ENDLESS_ROWS: "more than 1,000,000 rows: ask for fewer, with limit",
    f"select {', '.join(['hex(randomblob(5000000))'] * 100)}": "more memory than 384 MB",
    "attach '/etc/passwd' as other": "read-only",
    "pragma journal_mode = delete": "read-only",
    "select load_extension('x')": "not authorized",
    f"select {'(' * 300}1{')' * 300}": "cannot be run",
    "delete from tasks": "read-only",
}


def test_a_statement_that_wants_too_much_is_refused_and_costs_the_server_no_memory(service: Service) -> None:
    service.start()
    client = service.client("")
    before = resident(service.server.pid)
    for statement, reason in TOO_MUCH.items():
        refused = refusal(client, statement)

        assert reason in refused.message
        assert refused.kind == "UserError"
        assert resident(service.server.pid) - before < 30 << 20
        assert client.ask("sql", statement="select 1")["rows"] == [[1]]


def test_temporary_files_of_a_statement_are_bounded(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.append(1, 1.0, OPENED)
    store.close()
    statement = (
        "with recursive n(i) as (select 1 union all select i + 1 from n limit 4000)"
        " select count(*) from (select distinct hex(randomblob(50000)) as x from n order by x)"
    )

    async def ask() -> Refused | Answer:
        window = SqlQueries(asyncio.get_running_loop(), str(tmp_path), Limits(files=10 << 20))
        line = FakeLine()
        window.ask(asked(line, 1, statement))
        answer = await line.answer()
        await window.close()
        return answer

    refused = asyncio.run(ask())
    assert isinstance(refused, Refused)
    assert "too much temporary space" in refused.message


def test_who_asks_little_does_not_wait_for_who_asks_much(service: Service) -> None:
    service.start()
    much, little = service.client(""), service.client("")
    slow = "with recursive n(i) as (select 1 union all select i + 1 from n limit 2000000) select count(*) from n"
    wanted = [begin(much, slow) for _ in range(12)]

    little.ask("sql", statement="select 1")

    assert much.ask("status"), "its own statements do not keep it from asking something else"
    answered = [one for one in much.heard if isinstance(one, Answer) and one.request in wanted]
    assert len(answered) < len(wanted)


def test_who_asks_little_has_a_turn_however_many_connections_ask_without_end(service: Service) -> None:
    service.start("--query-time", "10m")
    many = [service.client("") for _ in range(6)]
    for one in many:
        begin(one, ENDLESS)
        begin(one, ENDLESS)
    server = service.server.pid
    busy = until(
        lambda: len(found := [pid for pid in children(server) if seconds_of(pid) > 1]) >= 2 and found, "slow statements"
    )

    little = service.client("")
    for _ in range(3):
        assert little.ask("sql", statement="select 1")["rows"] == [[1]]

    assert all(map(is_alive, busy)), "slow statements that have a place keep it"
    assert not any(isinstance(said, Refused) for one in many for said in one.heard)
    for one in many:
        one.sock.close()
    until(lambda: not any(map(is_alive, busy)), "the end of the statements of who is gone")


def test_what_works_on_a_statement_ends_with_a_server_that_is_killed(service: Service) -> None:
    service.start("--query-time", "10m")
    begin(service.client(""), ENDLESS)
    server = service.server.pid
    busy = until(lambda: [pid for pid in children(server) if seconds_of(pid) > 0.5], "a slow statement")
    os.kill(server, signal.SIGKILL)
    service.server.wait()
    until(lambda: not any(map(is_alive, busy)), "the end of who works on it")


def test_statements_of_readers_take_no_turn_of_who_may_do_more(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.append(1, 1.0, OPENED)
    store.close()

    async def ask() -> None:
        window = SqlQueries(asyncio.get_running_loop(), str(tmp_path))
        readers = [FakeLine() for _ in range(20)]
        for number, reader in enumerate(readers):
            window.ask(asked(reader, number, ENDLESS))
        submitter = FakeLine("submit")
        window.ask(asked(submitter, 99, "select 1"))
        assert isinstance(await submitter.answer(), Answer)
        assert not any(reader.said for reader in readers)
        await window.close()

    asyncio.run(ask())


def test_a_statement_that_was_put_off_is_answered_when_slow_ones_have_ended(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.append(1, 1.0, OPENED)
    store.close()
    slow = "with recursive n(i) as (select 1 union all select i + 1 from n limit 30000000) select count(*) from n"

    async def ask() -> None:
        before = set(children(os.getpid()))  # those of other tests, such as a database server
        window = SqlQueries(asyncio.get_running_loop(), str(tmp_path))
        try:
            endless = [FakeLine() for _ in range(2)]
            for number, line in enumerate(endless):
                window.ask(asked(line, number, ENDLESS))
            patient = FakeLine()
            window.ask(asked(patient, 7, slow))
            await _until(lambda: len({*children(os.getpid())} - before) == 3)
            await _until(lambda: len({*children(os.getpid())} - before) == 2)  # its first turn is over
            for line in endless:
                window.on_lost(line)
            answer = await patient.answer()
            assert isinstance(answer, Answer)
            assert answer.request == 7
        finally:
            await window.close()

    asyncio.run(ask())


def test_more_statements_than_may_wait_are_refused(service: Service) -> None:
    service.start()
    client = service.client("")
    for _ in range(80):
        begin(client, ENDLESS)
    assert "wait already" in client.wait(Refused, lambda refused: "wait" in refused.message).message


# --- the end of the server ---------------------------------------------------------------------------


def test_stopping_ends_the_process_whatever_is_asked_and_the_next_server_starts(service: Service) -> None:
    server = service.start("--query-time", "10m")
    client = service.client("")
    begin(client, ENDLESS)
    busy = until(lambda: [pid for pid in children(server.pid) if seconds_of(pid) > 0.2], "the statement")

    service.bough("server", "stop")

    assert not _runs(server.pid), "stop has said that it has ended"
    assert server.wait() == 0
    until(lambda: not any(map(is_alive, busy)), "the end of the statement's process")
    service.start()


def _runs(pid: int) -> bool:
    """Whether a process is more than an entry that its parent has not read yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_store_is_held_until_the_process_is_gone(service: Service, tmp_path: Path) -> None:
    """A thread that has not ended may write: it keeps the process alive, and so the lock."""
    gate = tmp_path / "gate"
    program = (
        "import os, sys, threading, time\n"
        f"def linger():\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)\n"
        "threading.Thread(target=linger).start()\n"
        "sys.argv = ['bough', 'server', 'start']\n"
        "from bough.cli.main import start\n"
        "start()\n"
    )
    server = subprocess.Popen([sys.executable, "-c", program], env=service.environment)
    note = service.home / "server" / "server.json"
    stopping = None
    try:
        until(note.exists, "the server")
        stopping = subprocess.Popen(
            [sys.executable, "-m", "bough.cli.main", "server", "stop"], env=service.environment, stdout=subprocess.PIPE
        )
        until(lambda: not note.exists(), "the server to be about to end")

        second = service.bough("server", "start", check=False)
        again = service.bough("server", "stop", check=False)

        assert second.returncode == 2
        assert f"pid {server.pid} on host" in second.stderr
        assert again.returncode == 3
        assert f"the server {server.pid} is ending and has not ended yet" in again.stderr
        assert stopping.poll() is None, "it waits"
    finally:
        gate.touch()
        server.wait(30)
        if stopping is not None:
            said, _ = stopping.communicate(timeout=60)
    assert stopping.returncode == 0
    assert said == f"server {server.pid} has ended\n".encode()
    service.start()


# --- PostgreSQL --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'bough[postgres]'")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def url(database: PostgresServer, tmp_path: Path) -> str:
    where = database.url(f"s{abs(hash(str(tmp_path)))}")
    store = open_store(where)
    store.append(1, 1.0, OPENED)
    store.close()
    return where


class FakeLine:
    """A connection that keeps what is said."""

    unsent = 0

    def __init__(self, role: str = "read") -> None:
        self.role = role
        self.said: list[object] = []
        self._more = asyncio.Event()

    def send(self, message: object) -> None:
        self.said.append(message)
        self._more.set()

    say = send

    async def answer(self) -> object:
        async with asyncio.timeout(30):
            while not self.said:
                await self._more.wait()
                self._more.clear()
        return self.said.pop(0)


def test_postgresql_ends_a_statement_that_takes_too_long(url: str) -> None:
    with open_jobs(url, 0.3) as jobs:
        for statement in ("select pg_sleep(60)", ENDLESS):
            with pytest.raises(UserError, match=r"took longer than 0\.3 s"):
                jobs.query(statement)
        assert jobs.query("select 1 as one") == (["one"], [(1,)])


def test_postgresql_sends_no_more_rows_than_are_taken(url: str) -> None:
    with open_jobs(url, 10.0) as jobs:
        with pytest.raises(UserError, match="more than 1,000 rows"):
            jobs.read(ENDLESS_ROWS, (), Sheet(Limits(rows=1000)).take)
        sheet = Sheet(Limits(size=1 << 20))
        with pytest.raises(UserError, match="larger than 1 MB"):
            jobs.read("select repeat('x', 100000) from generate_series(1, 10000)", (), sheet.take)


@pytest.mark.parametrize("trick", ["", "select set_config('statement_timeout', '0', false), "])
def test_postgresql_is_told_when_who_asked_is_gone(url: str, trick: str) -> None:
    statement = f"{trick or 'select '}pg_sleep(120)"

    async def ask() -> None:
        window = SqlQueries(asyncio.get_running_loop(), url)
        line = FakeLine()
        with open_jobs(url) as jobs:
            window.ask(asked(line, 1, statement))
            await _until(lambda: _sleepers(jobs) == 1)
            window.on_lost(line)
            await _until(lambda: _sleepers(jobs) == 0)
            window.ask(asked(line, 2, "select 3 as three"))
            answer = await line.answer()
        assert isinstance(answer, Answer)
        await window.close()

    asyncio.run(ask())


def _sleepers(jobs: object) -> object:
    busy = "state = 'active' and query like 'FETCH%' and pid != pg_backend_pid()"
    sql = f"select count(*) from pg_stat_activity where {busy}"
    return jobs.query(sql)[1][0][0]


async def _until(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
