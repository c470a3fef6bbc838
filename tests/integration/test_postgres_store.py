"""The PostgreSQL store against a real server: the promises of every store, and what only a server can do to it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.contract.store_suite import StoreSuite, append_for_ever
from tests.postgres_server import PostgresServer

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'bough[postgres]'")

from bough.errors import Clash, InvariantBroken, StoreFailed, StoreHeld, UnknownName, UserError
from bough.model.events.facts import Fact, RunOpened, Submitted
from bough.stores.maintenance.copies import backup, check, copy
from bough.stores.open import lock_store, open_jobs, open_store
from bough.stores.sql.pg_database import read_address
from bough.stores.sql.postgres import PostgresStore
from tests.contract.store_suite import A_HISTORY, A_SERVICE, BODY, OPENED, a_task, appending

URL = "BOUGH_TEST_POSTGRES"


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[PostgresServer]:
    found = PostgresServer()
    os.environ[URL] = found.url("SCHEMA")
    yield found
    del os.environ[URL]
    found.remove()


def url_of(directory: Path) -> str:
    """Every directory of a test has its own schema."""
    return os.environ[URL].replace("SCHEMA", "s" + blake2b(str(directory).encode(), digest_size=8).hexdigest())


class TestPostgres(StoreSuite):
    @staticmethod
    def open_store(directory: Path) -> PostgresStore:
        return PostgresStore(url_of(directory))

    def place(self, directory: Path) -> str:
        return url_of(directory)

    def size(self, store: PostgresStore) -> int:
        tables = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r'"
        return int(
            store._database.execute(
                f"{tables} AND relnamespace = to_regnamespace(?)", (store.address.schema,)
            ).fetchone()[0]
        )

    def fold_anew(self, store: PostgresStore) -> None:
        store._database.execute("UPDATE about SET value = '1' WHERE name = 'schema'")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return url_of(tmp_path)


def turn(number: int) -> list[Fact]:
    return OPENED if number == 1 else [Submitted([a_task(number)])]


def test_a_database_that_went_down_is_reached_again_and_no_turn_is_lost(server, url):
    store = open_store(url)
    for number in range(1, 10):
        store.append(number, 1.0, turn(number))
    store.sync()
    store.put_blob(b"b" * 16, b"content")
    for number in range(10, 20):
        store.append(number, 1.0, turn(number))
    server.end(signal.SIGQUIT)  # what was not synced is not on its disk
    with pytest.raises(StoreFailed) as caught:
        store.append(20, 1.0, turn(20))
    assert caught.value.transient
    with pytest.raises(StoreFailed) as caught:
        store.sync()
    assert caught.value.transient
    server.start()
    store.append(20, 1.0, turn(20))
    assert [facts for _, _, facts in store.journal()] == [turn(number) for number in range(1, 21)]
    assert store.blob(b"b" * 16) == b"content"
    assert store.last_run().last_record == 20
    store.close()


def test_a_turn_whose_answer_was_lost_is_not_written_twice(url):
    store = open_store(url)
    store.append(1, 1.0, OPENED)
    other = open_store(url)
    other.append(2, 2.0, turn(2))
    store.append(2, 2.0, turn(2))  # the same content: it was ours
    other.append(3, 2.0, turn(3))
    with pytest.raises(InvariantBroken, match="somebody else"):
        store.append(3, 2.0, turn(4))
    other.close()
    store._last = 3
    store.close()


def test_the_second_server_is_told_who_holds_the_store(url):
    lock = lock_store(url)
    with pytest.raises(StoreHeld, match=f"is held by pid {os.getpid()} on host"):
        lock_store(url)
    lock.release()
    lock_store(url).release()


def test_a_store_that_was_taken_meanwhile_is_not_written_after_a_lost_connection(server, url):
    lock = lock_store(url)
    store = open_store(url)
    store.append(1, 1.0, OPENED)
    store.sync()
    server.end(signal.SIGQUIT)
    server.start()
    with pytest.raises(StoreFailed):
        store.append(2, 1.0, turn(2))
    other = lock_store(url)
    with pytest.raises(StoreHeld, match="is held by pid"):
        store.append(2, 1.0, turn(2))
    store._let_go()
    other.release()
    lock.release()


def test_texts_may_hold_what_the_database_cannot(url):
    store = open_store(url)
    store.append(1, 1.0, [RunOpened(1, "zero\0zero", "h", 1)])
    assert store.project()
    assert store._database.execute("SELECT name FROM runs").fetchone() == ("zero\ufffdzero",)
    store.close()


def test_addresses_are_understood_and_passwords_not_shown():
    address = read_address("postgresql://me:secret@db:5433/jobs?options=-csearch_path%3Dmine")
    assert (address.schema, address.shown) == ("mine", "postgresql://me@db:5433/jobs?options=-csearch_path%3Dmine")
    assert read_address("postgresql:///jobs").schema == "bough"
    with pytest.raises(UserError, match="is no address"):
        read_address("postgresql://db?nonsense=1")


def test_a_server_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreFailed, match="cannot be reached") as caught:
        open_store(f"postgresql://nobody@/none?host={tmp_path}")
    assert caught.value.transient


def test_a_store_moves_to_postgresql_and_back_unchanged(url, tmp_path):
    here, back = str(tmp_path / "here"), str(tmp_path / "back")
    store = open_store(here)
    store.claim("service")
    store.put_blob(BODY, os.urandom(100_000))
    for number, facts in enumerate(A_SERVICE, 1):
        store.append(number, number / 7, facts)
    store.save_snapshot(4, 1, b"the core")
    last = store.last_run()
    turns = list(store.journal())
    store.close()
    there, again = copy(here, url), copy(url, back)
    assert there.digest == again.digest
    assert (again.turns, again.blobs, again.snapshots) == (len(A_SERVICE), 1, 1)
    tables = []
    for where in (here, url, back):
        store = open_store(where)
        assert list(store.journal()) == turns
        assert store.last_run() == last
        tables.append(StoreSuite().tables(store))
        store.close()
    assert tables[0] == tables[1] == tables[2]
    with pytest.raises(Clash, match="is not empty"):
        copy(back, url)
    assert len(check(url).problems) == 3  # the names of the suite's blobs are made up, and so is its snapshot


def test_a_backup_of_a_database_is_consistent_while_another_process_appends(url, tmp_path):
    with appending(url) as turns:
        turns(200)
        with pytest.raises(StoreHeld, match="is held by pid"):
            copy(url, str(tmp_path / "copy"))
        made = backup(url, str(tmp_path / "backup"))
        turns(300)
    assert made.turns >= 200
    store = open_store(made.target)
    assert [turn for turn, _, _ in store.journal()] == list(range(1, made.turns + 1))
    assert store.last_run().last_record == made.turns - 1
    store.close()


def test_readers_find_the_same_in_both_databases(url, tmp_path):
    answers = []
    for where in (str(tmp_path / "sqlite"), url):
        store = open_store(where)
        for number, facts in enumerate(A_HISTORY, 1):
            store.append(number, number / 7, facts)
        store.close()
        with open_jobs(where) as jobs:
            answers.append(
                (
                    jobs.last_run(),
                    jobs.groups(1),
                    [jobs.task(record) for record in (1, 2, 3, 4)],
                    jobs.elements(3),
                    jobs.elements(3, 20, 22, "failed"),
                    [jobs.element(3, index) for index in (0, 20, 21, 70)],
                    jobs.attempts(3, 20),
                    jobs.query("SELECT sum(length), avg(length), count(*) FROM tasks WHERE id > ?", (0,)),
                )
            )
            with pytest.raises(UnknownName):
                jobs.task(99)
    assert answers[0][1:-1] == answers[1][1:-1]
    assert answers[0][0] == answers[1][0]
    assert answers[0][-1][1] == answers[1][-1][1]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM tasks",
        "WITH gone AS (DELETE FROM tasks RETURNING id) SELECT * FROM gone",
        "SELECT 1; DELETE FROM tasks",
        "COPY tasks TO PROGRAM 'cat'",
        "SET TRANSACTION READ WRITE",
        "COMMIT",
        "SELECT nonsense",
        "SELECT nextval('x')",
        "",
    ],
)
def test_only_reads_are_let_through(url, sql):
    store = open_store(url)
    store.append(1, 1.0, OPENED)
    store.append(2, 1.0, turn(2))
    store.close()
    with open_jobs(url) as jobs:
        with pytest.raises(UserError):
            jobs.query(sql)
        assert jobs.query("SELECT id FROM tasks")[1] == [(2,)]


def test_a_database_without_a_store_is_said_to_have_none(url, tmp_path):
    with pytest.raises(UnknownName, match="there is no store"):
        open_jobs(url)
    with pytest.raises(UnknownName, match="there is no store"):
        backup(url, str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


if __name__ == "__main__":
    append_for_ever(globals()[sys.argv[1]].open_store(Path(sys.argv[2])))
