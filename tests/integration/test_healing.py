"""Stores that an earlier version poisoned open again: sessions and servers on journals with facts out of bounds."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from service_client import Service

import bough
from bough.cli.main import main
from bough.model.events.facts import (
    VERSION,
    Cancelled,
    ElementFailed,
    ExecutorJoined,
    Fact,
    Placed,
    Prioritised,
    RunOpened,
    SpanEnded,
    Submitted,
)
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.sites.resources import Needs
from bough.model.tasks import Dep, Kind, On, TaskSpec

HUGE = 2**64 - 1
PATIENCE = 60.0


def smuggle(store: Path, *turns: list[Fact]) -> list[int]:
    """Write turns past all checks, as a version without them did."""
    with sqlite3.connect(store / "journal.db") as database:
        last = database.execute("SELECT max(turn) FROM journal").fetchone()[0]
        for number, facts in enumerate(turns, last + 1):
            row = bytes((VERSION,)) + msgspec.msgpack.encode(facts)
            database.execute("INSERT INTO journal VALUES (?, ?, ?)", (number, 1e9 + number, row))
    database.close()
    return list(range(last + 1, last + 1 + len(turns)))


def checked(store: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[object]]:
    """What `bough store check` says of a store that is sound but for what is set aside."""
    capsys.readouterr()
    assert main(["store", "check", "--store", str(store), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    return found


def task(number: int, group: int = 0, **fields: object) -> TaskSpec:
    return TaskSpec(number, Kind.COMMAND, b"", b"", group, **fields)


# --- sessions ---------------------------------------------------------------------------------------------


def test_a_session_opens_a_store_whose_last_run_was_poisoned_and_crashed(tmp_path, monkeypatch, capsys):
    """As `priority=2**63` left it: acknowledged, journalled, and never to be folded."""
    monkeypatch.chdir(tmp_path)
    store = tmp_path / ".bough" / "w"
    with bough.Session(name="w", cores=1) as session:
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024
    turns = smuggle(
        store,
        [RunOpened(2, "w", "here", 1), ExecutorJoined(9, "local", "here", 7, Needs())],
        [Submitted([task(90, priority=2**63), task(91)]), Submitted([task(92)])],
        [Placed(90, 90, 0, 1, 1, 9), Placed(91, 92, 0, 1, 1, 9), ExecutorJoined(10, "local", "h", HUGE, Needs())],
        [SpanEnded(90, 0, 1, 0.1, record=90, attempt=1, executor=9), Cancelled(Dep(On.TASK, HUGE))],
    )
    for value in (11, 12):
        with bough.Session(name="w", cores=1, reuse="always") as session:
            reused, fresh = session.submit(pow, 2, 10), session.submit(pow, 2, value)
            assert (reused.result(PATIENCE), fresh.result(PATIENCE)) == (1024, 2**value)
            assert reused.reused
            assert not fresh.reused
            assert fresh.id > 92
    aside = checked(store, capsys)["set_aside"]
    assert {one["turn"] for one in aside} <= set(turns)
    assert {(one["turn"], one["kind"]) for one in aside} >= {
        (turns[1], "Submitted"), (turns[2], "ExecutorJoined"), (turns[3], "Cancelled"),
    }  # fmt: skip
    assert main(["store", "repair", "--store", str(store)]) == 0
    assert "nothing is wrong with it now" in capsys.readouterr().out
    with bough.Session(name="w", cores=1) as session:
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024


def test_a_session_that_finds_a_poisoned_store_is_not_slow_to_say_goodbye(tmp_path):
    """As a script of its own: it ends by itself, and leaves nobody behind."""
    with bough.Session(name="w", store=tmp_path / "store", cores=1) as session:
        session.submit(pow, 2, 2).result(PATIENCE)
    smuggle(tmp_path / "store", [RunOpened(2, "w", "here", 1), Submitted([task(90, priority=2**63)])])
    script = (
        "import bough\nwith bough.Session(name='w', store='store', cores=1) as s: print(s.submit(pow, 2, 5).result())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "32\n"


# --- services ---------------------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.clean_up()


def poison(store: Path, group: int) -> list[int]:
    return smuggle(
        store,
        [Submitted([task(500, group, priority=2**63)])],
        [Prioritised(Dep(On.TASK, HUGE), 2**63), ExecutorJoined(50, "local", "h", HUGE, Needs(memory=HUGE))],
        [Placed(500, 500, 0, 1, 1, 50), ElementFailed(500, 0, Failure(Cause.EXIT, "x"), Detail(0, 1, memory=HUGE))],
        [SpanEnded(501, 0, 1, float("nan"), record=501), Cancelled(Dep(On.GROUP, HUGE))],
    )


@pytest.mark.parametrize("snapshot", ["none", "spoilt"])
def test_a_server_goes_on_with_a_store_that_was_poisoned(service, tmp_path, capsys, snapshot):
    service.start()
    service.executor()
    client = service.client("one")
    done = client.run_command("echo done")
    client.outcome(done)
    running = client.run_command(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo ran")
    store = service.home / "server" / "store"
    service.kill()
    turns = poison(store, client.group)
    if snapshot == "spoilt":
        with sqlite3.connect(store / "journal.db") as database:
            database.execute("INSERT INTO snapshots VALUES (1, 2, ?)", (b"\x85 not a snapshot",))
        database.close()

    service.start()
    client = service.client("one")
    (tmp_path / "go").touch()
    client.outcome(running)  # it was adopted, or run again
    again = client.run_command("echo again")
    client.outcome(again)
    done = service.bough("sql", "--json", "SELECT state FROM tasks WHERE number IN (1, 2)").stdout
    assert [row["state"] for row in json.loads(done)] == ["done", "done"]
    log = service.log.read_text()
    assert f"set aside, turn {turns[0]}: Submitted is" in log
    assert ("cannot be restored" in log) == (snapshot == "spoilt")
    service.stop()
    aside = checked(store, capsys)["set_aside"]
    assert {one["turn"] for one in aside} <= set(turns)
    assert {one["kind"] for one in aside if one["turn"] == turns[1]} >= {"ExecutorJoined"}

    said = len(service.log.read_text())
    service.start()  # and once more, now without a word about it
    assert json.loads(service.bough("status", "--json").stdout)
    assert "set aside" not in service.log.read_text()[said:]
    service.stop()


def test_a_store_that_somebody_holds_is_not_repaired(service):
    service.start()
    store = service.home / "server" / "store"
    done = service.bough("store", "repair", "--store", str(store), check=False)
    assert done.returncode == 2
    assert "pid" in done.stderr
