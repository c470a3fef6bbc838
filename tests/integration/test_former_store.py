"""Stores that an older version made are opened, resumed and read by this one.

`tests/data/former_store/make.py` made them, and says how. Rule: these tests import of Bough only what users import,
because they must run unchanged when its modules move.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bough
from bough.stores.jobs import JobsDatabase

DATA = Path(__file__).parent.parent / "data" / "former_store"
MADE_WITH = dict(line.split(maxsplit=1) for line in (DATA / "made_with.txt").read_text().splitlines())
HERE = "/proc/self/cwd"  # how the stores call the directory they were made in: see make.py
DEADLINE = 60.0  # seconds
SKIPPED = {"skipped"}

same_python = pytest.mark.skipif(
    f"{sys.version_info.major}.{sys.version_info.minor}" != MADE_WITH["python"],
    reason=f"functions are stored as the bytecode of Python {MADE_WITH['python']}",
)

UNLUCKY = ["Unlucky", ["13", "red"], True]
SEEN: dict[str, Any] = {  # by `embedded.py`
    "small": 144,
    "big": [400_000, True],
    "mirror": [True, [2, 1]],
    "argument": 400_000,
    "length": 400_000,
    "read": ["m", "echo told >> ran.txt; echo the text", 0, "the text\n", []],
    "read_joined": [
        "j",
        "echo joined >> ran.txt; cat out/1.a.txt out/3.b.txt > out/joined.txt; touch -d @1000000000 out/joined.txt",
        0,
        "",
        ["o"],
    ],
    "read_all": ["made 1\n", "made 1\n", "made 2\n", "made 3\n", "made 3\n"],
    "errors": {
        "unlucky": ["Unlucky", ["7", "green"], True],
        "wrong": ["ValueError", ["no such colour: loud"], True],
        "of_ours": ["UserError", ["raised in a task"], True],
    },
    "exit": [3, "sorry"],
    "unlucky": "green",
    "triples": [3 * x if x != 13 else UNLUCKY for x in range(40)],
    "halves": [x / 2 for x in range(25)],
    "made": [[f"made {i}\n", f"{i} and {j}\n"] for i, j in ("1a", "1b", "2b", "3a", "3b")],
    "joined": "1 and a\n3 and b\n",
    "same": ["echo told >> ran.txt; echo the text", "the text\n", True],
    "skipped": ["NotRun", "NotRun", "TaskFailed"],
    "chain": [[0, ""], [9, "data\n"], [bough.driver.NOT_RUN, ""]],
    "reused": {  # all that succeeded but the driver's pipeline, which never is
        **dict.fromkeys(("small", "big", "mirror", "argument", "length", "told", "joined", "first", "second"), 1),
        **dict.fromkeys(("read", "read_joined", "read_all", "same"), 1),
        "triples": 39,
        "halves": 25,
        "made": 5,
        "echo": 2,  # echo: prologue and epilogue
    },
}
RAN = Counter(  # by `embedded.py`, before and after the kill together
    {
        **dict.fromkeys(("small", "big", "mirror", "told", "joined", "first", "second", "prologue", "epilogue"), 1),
        "length": 2,
        "read": 2,
        "read_all": 1,
        "same": 1,
        "half": 25,
        "made": 5,
        "cut": 1,
        "bad": 2,
        "exit": 2,
        "of_ours": 2,
        "unlucky": 2,
        "wrong": 2,
        "triple": 40 + 1,  # failures are tried again
    }
)
SERVED: dict[str, Any] = {  # seen by `served.py`
    "joined": True,
    "small": 144,
    "big": [400_000, True],
    "told": "the text\n",
    "triples": [3 * x for x in range(10)],
    "gate": "open",
    "total": 144 + 400_000 + 135,
    "read": ['echo told >> "$FORMER_RAN"; echo the text', 0],
    "after": "after\n",
    "negatives": [-x for x in range(30)],
    "swept": ["1a\n", "1b\n", "2b\n", "3a\n", "3b\n"],
    "halves": [x / 2 for x in range(15)],
    "late": ["1\n", "2\n"],
    "chain": [[0, "one\n"], [9, "two\n"], [bough.driver.NOT_RUN, ""]],
    "unlucky": ["Unlucky", True],
    "skipped": "NotRun",
}
SERVED_BEFORE = Counter({"small": 1, "big": 1, "told": 1, "triple": 10, "unlucky": 1})
SERVED_AFTER = Counter(
    {
        **dict.fromkeys(("gate", "total", "read", "after", "first", "second"), 1),
        "negative": 30,
        "swept": 5,
        "half": 15,
        "stage": 2,
        "extra": 4,
        "unlucky": 1,  # who joins a workflow tries again what had failed
    }
)


class Unpacked:
    """A directory as an older version left it, and commands that are given there."""

    def __init__(self, name: str, folder: Path) -> None:
        with tarfile.open(DATA / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="tar")
        self.folder = folder / name
        shutil.copy(DATA / f"{name}.py", self.folder)
        self.environment = {**os.environ, "BOUGH_HOME": f"{HERE}/home", "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment.pop("BOUGH_SERVER", None)
        self.environment["FORMER_RAN"] = str(self.folder / "ran.txt")
        self.environment["FORMER_GO"] = str(self.folder / "go")

    def start(self, *words: str, log: str) -> subprocess.Popen[bytes]:
        with open(self.folder / log, "wb") as file:
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def bough(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answer(self, *words: str) -> Any:
        return json.loads(self.bough(*words, "--json"))

    def ran(self) -> Counter[str]:
        return Counter((self.folder / "ran.txt").read_text().split())

    def run_script(self, *words: str) -> Any:
        """What the script saw."""
        script = self.start(*words, log="script.log")
        code = script.wait(DEADLINE)
        assert code == 0, (self.folder / "script.log").read_text()
        return json.loads((self.folder / "seen.json").read_text())


@pytest.fixture
def embedded(tmp_path: Path) -> Unpacked:
    return Unpacked("embedded", tmp_path)


@pytest.fixture
def served(tmp_path: Path) -> Unpacked:
    return Unpacked("served", tmp_path)


def number(counts: dict[str, int], states: set[str]) -> int:
    return sum(counts.get(state, 0) for state in states)


# --- the store of a session that was killed ---------------------------------------------------------------


@same_python
def test_a_run_goes_on_where_the_former_version_was_killed(embedded: Unpacked) -> None:
    (embedded.folder / "go").touch()
    assert embedded.run_script(f"{HERE}/embedded.py") == SEEN
    assert embedded.ran() == RAN
    closed = embedded.answer("sql", "select run, reason from runs order by run")
    assert closed == [{"run": 1, "reason": "crashed"}, {"run": 2, "reason": "done"}]


def test_the_command_line_reads_a_former_session(embedded: Unpacked) -> None:
    status = embedded.answer("status")
    assert (status["run"], status["name"], status["closed"], status["live"]) == (1, "former", None, False)
    counts = status["counts"]
    assert (counts["done"], counts["failed"], number(counts, SKIPPED), counts["running"]) == (85, 6, 2, 1)
    broken = next(group["counts"] for group in status["groups"] if group["path"] == "outer/broken")
    assert (broken["failed"], number(broken, SKIPPED)) == (1, 2)
    failed = {row["name"]: row["message"] for row in status["failed"]}
    assert set(failed) == {"unlucky", "wrong", "of_ours", "exit", "triples", "bad"}
    assert failed["wrong"] == "ValueError: no such colour: loud"
    [skipped] = embedded.answer("status", "skipped")
    assert (skipped["state"] in SKIPPED, skipped["cause"], skipped["group"]) == (True, "dependency", "outer/broken")

    rows = embedded.answer("sql", "select name, length, done from tasks where is_array order by id")
    assert [tuple(row.values()) for row in rows] == [
        ("triples", 40, 39),
        ("halves", 25, 25),
        ("made", 5, 5),
        ("pipeline", 1, 1),
    ]
    assert embedded.bough("log", "told") == "the text\n"
    assert embedded.bough("log", "small") == "squaring 12\n"
    assert [line for line in embedded.bough("log", "made").splitlines() if line.startswith("made")] == [
        line.strip() for line in SEEN["read_all"]
    ]
    assert "sorry" in embedded.bough("log", "exit", "--stderr")
    assert embedded.answer("history")[0]["done"] == 85
    assert "exit code 3" in embedded.bough("explain", "exit")
    assert embedded.answer("store", "check")["problems"] == []
    assert embedded.ran()["cut"] == 0


def test_the_jobs_database_of_a_former_session_is_read(embedded: Unpacked) -> None:
    with JobsDatabase(embedded.folder / ".bough" / "former") as jobs:
        run = jobs.last_run()
        assert run is not None
        assert (run["run"], run["name"]) == (1, "former")
        assert {row["path"] for row in jobs.groups(1)} >= {"outer", "outer/broken", "outer/whole"}
        ids = {row["name"]: row["id"] for row in jobs.rows("select name, id from tasks where run = 1")}
        assert jobs.task(ids["small"])["state"] == "done"
        assert jobs.element(ids["triples"], 13)["message"] == "Unlucky: (13, 'red')"
        assert [row["state"] for row in jobs.elements(ids["made"])] == ["done"] * 5
        assert [row["exit_code"] for row in jobs.attempts(ids["exit"])] == [3]
        files = jobs.rows("select path from files where id = ? order by idx", (ids["made"],))
        assert [row["path"] for row in files] == [f"{HERE}/out/{i}.{j}.txt" for i, j in ("1a", "1b", "2b", "3a", "3b")]
        after = jobs.rows("select on_id from after where id = ?", (ids["length"],))
        assert [row["on_id"] for row in after] == [ids["big"]]


@same_python
def test_futures_of_former_tasks_have_their_values_and_exceptions(
    embedded: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(embedded.folder)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    with bough.Session(name="former", store=".bough/former", cores=1) as session:

        def one(name: str) -> bough.Task:
            [task] = session.find(name)
            return task

        assert one("small").result() == 144
        assert one("small").stdout == "squaring 12\n"
        assert one("big").result() == b"b" * 400_000
        assert (one("mirror").result().x, one("mirror").result().y) == (2, 1)
        for name in ("read", "read_joined", "read_all"):
            assert one(name).result() == SEEN[name]
        completed = one("same").result()
        assert type(completed) is bough.Completed
        assert (completed.args, completed.returncode, completed.stdout) == (SEEN["same"][0], 0, "the text\n")
        assert one("joined").result().outputs == {"o": f"{HERE}/out/joined.txt"}
        assert [task.result().stdout for task in session.find("made")] == SEEN["read_all"]
        assert session.find("halves").results() == SEEN["halves"]
        triples = session.find("triples").results(errors="return")
        assert triples[:13] + triples[14:] == [3 * x for x in range(40) if x != 13]

        unlucky = one("unlucky").exception()
        for error, number, colour in ((unlucky, 7, "green"), (triples[13], 13, "red")):
            assert (type(error).__name__, error.args, error.colour) == ("Unlucky", (number, colour), colour)
            assert "Traceback" in str(error.__cause__)
        assert f'"{HERE}/embedded.py"' in str(unlucky.__cause__)
        for name, kind in (("wrong", ValueError), ("of_ours", bough.UserError)):
            error = one(name).exception()
            assert (type(error), [str(error)]) == (kind, SEEN["errors"][name][1])
            assert "Traceback" in str(error.__cause__)
        with pytest.raises(bough.TaskFailed) as failed:
            one("exit").result()
        assert (failed.value.returncode, failed.value.stderr.strip()) == (3, "sorry")
        for name in ("skipped", "skipped-too", "cut"):
            assert type(one(name).exception()) is bough.NotRun
        assert len(session.find("outer")) == 7

        [stages] = session.find("pipeline").results()
        assert [[code, stdout.decode()] for code, stdout, *_ in stages] == SEEN["chain"]
    assert embedded.ran()["small"] == 1


# --- the store of a service that was killed -----------------------------------------------------------------


@pytest.fixture
def service(served: Unpacked) -> Iterator[Unpacked]:
    """A service that goes on with the store, and an executor."""
    module = ("-m", "bough.cli.main")
    server = served.start(*module, "server", "start", "--heartbeat", "1s", "--reconnect", "1s", log="server.log")
    note = served.folder / "home" / "server" / "server.json"
    processes = [server]

    def is_up() -> bool:
        assert server.poll() is None, (served.folder / "server.log").read_text()
        return bool(json.loads(note.read_bytes())["pid"] == server.pid)

    try:
        until(is_up, "the server")
        processes.append(served.start(*module, "executor", "start", "--cores", "2", log="executor.log"))
        yield served
        served.bough("server", "stop", "--executors")
        assert [process.wait(DEADLINE) for process in processes] == [0, 0], (served.folder / "server.log").read_text()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


@same_python
def test_a_service_goes_on_where_the_former_version_was_killed(service: Unpacked) -> None:
    assert service.ran() == SERVED_BEFORE
    (service.folder / "go").touch()
    assert service.run_script(f"{HERE}/served.py", f"unix:{HERE}/home/server/server.sock") == SERVED
    sql = "select name, state from tasks where state not in ('done', 'failed') order by id"
    until(lambda: service.answer("sql", sql)[1:] == [], "the queue that nobody joined")
    [skipped] = service.answer("sql", sql)
    assert (skipped["name"], skipped["state"] in SKIPPED) == ("skipped", True)
    assert service.ran() == SERVED_BEFORE + SERVED_AFTER

    workflows = {entry["name"]: entry for entry in service.answer("status")["workflows"]}
    assert set(workflows) == {"nightly", "extra"}
    nightly, extra = workflows["nightly"]["counts"], workflows["extra"]["counts"]
    assert (nightly["done"], nightly["failed"], number(nightly, SKIPPED)) == (70, 1, 1)
    assert (extra["done"], sum(extra.values())) == (4, 4)
    assert service.bough("log", "nightly:told") == "the text\n"  # as the former executor wrote it
    assert service.bough("log", "nightly:after") == "after\n"  # as ours did
    attempts = service.answer("sql", "select name, attempt from tasks where name in ('small', 'gate') order by id")
    assert attempts == [{"name": "small", "attempt": 1}, {"name": "gate", "attempt": 2}]


def test_the_command_line_reads_a_former_service(served: Unpacked) -> None:
    store = ("--store", "home/server/store")
    rows = served.answer("sql", "select name, state, done, length from tasks order by id", *store)
    found = {row["name"]: (row["state"], row["done"], row["length"]) for row in rows}
    assert found["small"] == ("done", 1, 1)
    assert found["triples"] == ("done", 10, 10)
    assert found["unlucky"] == ("failed", 0, 1)
    assert found["skipped"][0] in SKIPPED
    assert found["gate"] == ("running", 0, 1)
    assert found["negatives"] == ("waiting", 0, 30)
    assert {"total", "read", "after", "swept", "halves", "first", "second", "pipeline"} < set(found)
    status = served.answer("status", *store)
    assert (status["name"], status["live"], sum(status["counts"].values())) == ("extra", False, 4)
    assert served.bough("log", "3", *store) == "the text\n"
    check = served.answer("store", "check", *store)
    assert (check["snapshots"], check["problems"]) == (1, [])
    with JobsDatabase(served.folder / "home" / "server" / "store") as jobs:
        assert [row["name"] for row in jobs.rows("select name from runs order by run")][1:] == ["nightly", "extra"]
