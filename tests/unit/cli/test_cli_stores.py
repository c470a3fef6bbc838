"""Commands that look at a store: status, log, explain and sql over rows made by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_workshop import Workshop

from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.locate import ServerLocation
from bough.cli.targets.selection import pick, targets
from bough.errors import UnknownName
from bough.model.tasks import Dep, On
from bough.model.texts.selectors import read_selectors

Call = Callable[..., tuple[int, str, str]]


def database(workshop: Workshop) -> OpenDatabase:
    return OpenDatabase(ServerLocation(str(workshop.home / ".bough" / "wf"), "wf"))


def labels(workshop: Workshop, text: str, *states: str) -> list[str]:
    with database(workshop) as opened:
        return [one.label for one in pick(opened, read_selectors(text), frozenset(states), 1)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("last", ["4"]),
        ("all", ["1", "2", "3", "4"]),
        ("2", ["2"]),
        ("2-9", ["2", "3", "4"]),
        ("4.3", ["4.3"]),
        ("4.3-9", ["4.3-9"]),
        ("align/*", ["2", "3", "4"]),
        ("align", ["2", "3", "4"]),
        ("align/sub/*", ["4"]),
        ("align/second", ["2"]),
        ("second,first", ["2", "1"]),
        ("s*", ["2"]),
        ("?irst,1,1", ["1"]),
    ],
)
def test_a_selector_finds_its_tasks(filled: Workshop, text: str, found: list[str]) -> None:
    assert labels(filled, text) == found


@pytest.mark.parametrize("text", ["99", "4.10", "2.1", "nobody", "nowhere/*", "n*x"])
def test_a_selector_that_names_nothing_is_an_error(filled: Workshop, text: str) -> None:
    with pytest.raises(UnknownName):
        labels(filled, text)


@pytest.mark.parametrize(
    ("states", "found"),
    [
        (["failed"], ["2", "4.4-5"]),
        (["running"], ["4.6-7"]),
        (["cancelled"], ["4.9"]),
        (["ready"], ["4.8"]),
        (["done"], ["1", "4.0-3"]),
        (["skipped", "failed"], ["2", "3", "4.4-5"]),
        (["held"], []),
    ],
)
def test_states_split_arrays_into_ranges(filled: Workshop, states: list[str], found: list[str]) -> None:
    assert labels(filled, "all", *states) == found


@pytest.mark.parametrize(
    ("text", "states", "found"),
    [
        ("all", [], [(Dep(On.GROUP, 0), 0)]),
        ("align/*", [], [(Dep(On.GROUP, 1), 0)]),
        ("align/sub", [], [(Dep(On.GROUP, 2), 0)]),
        ("2", [], [(Dep(On.TASK, 2), 0)]),
        ("4", [], [(Dep(On.ARRAY, 4), 0)]),
        ("4.3", [], [(Dep(On.TASK, 4, 3), 4)]),
        ("4.3-5", [], [(Dep(On.TASK, 4, 3), 6)]),
        ("all", ["failed"], [(Dep(On.TASK, 2), 0), (Dep(On.TASK, 4, 4), 6)]),
    ],
)
def test_what_the_core_is_told(filled: Workshop, text: str, states: list[str], found: list[tuple[Dep, int]]) -> None:
    with database(filled) as opened:
        assert targets(opened, read_selectors(text), frozenset(states), 1) == found


def test_status_shows_the_tree_and_then_what_failed(filled: Workshop, bough: Call) -> None:
    code, out, err = bough("status")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "ended after 3.5 s" in lines[0]
    assert lines[1].split(None, 1) == ["wf", "1 ready, 2 running, 5 done, 3 failed, 1 skipped, 1 cancelled"]
    assert lines[2].split()[:2] == ["└─", "align"]
    assert lines[3].startswith("   └─ sub  ")
    assert "second" in out
    assert "exit code 3" in out
    assert "4.4" in out


def test_status_as_json_is_stable(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("status", "--json")
    value = json.loads(out)
    assert value["run"] == 1
    assert value["reason"] == "done"
    assert value["live"] is False
    some = {"ready": 1, "running": 2, "done": 5, "failed": 3, "skipped": 1, "cancelled": 1}
    assert value["counts"] == {"waiting": 0, "held": 0} | some
    assert [group["path"] for group in value["groups"]] == ["align", "align/sub"]
    assert [row["id"] for row in value["failed"]] == ["2", "4.4", "4.5"]


def test_status_of_a_selector_is_a_table(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("status", "4.0-9")
    ids = [line.split()[0] for line in out.splitlines()]
    assert ids == ["ID", "4.0", "4.1", "4.2-3", "4.4", "4.5", "4.6-7", "4.8", "4.9"]


def test_status_of_a_task_as_json(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("status", "2", "--json")
    [row] = json.loads(out)
    assert (row["id"], row["record"], row["index"], row["group"], row["state"]) == ("2", 2, 0, "align", "failed")
    assert (row["exit_code"], row["cause"], row["message"], row["reused"]) == (3, "exit", "exit code 3", False)


def test_status_of_an_array_as_json_has_counts(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("status", "many", "--json")
    [row] = json.loads(out)
    assert row["counts"] == {"done": 4, "failed": 2, "skipped": 0, "cancelled": 1}
    assert (row["is_array"], row["length"], row["index"]) == (True, 10, None)


def test_status_of_a_run_that_is_not_there_says_which_is(filled: Workshop, bough: Call) -> None:
    code, _, err = bough("status", "--run", "7")
    assert code == 2
    assert "there is no run 7" in err


def test_quiet_says_nothing(filled: Workshop, bough: Call) -> None:
    assert bough("status", "-q") == (0, "", "")


def test_log_prints_a_tasks_own_bytes(filled: Workshop, bough: Call) -> None:
    assert bough("log", "first") == (0, "one\ntwo\nthree\n", "")


@pytest.mark.parametrize(("tail", "text"), [(0, ""), (1, "three\n"), (2, "two\nthree\n"), (9, "one\ntwo\nthree\n")])
def test_log_prints_the_last_lines(filled: Workshop, bough: Call, tail: int, text: str) -> None:
    assert bough("log", "1", "--tail", str(tail))[1] == text


def test_log_of_several_has_headers(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("log", "1,4")
    assert out == (
        "==> 1 first stdout <==\none\ntwo\nthree\n\n"
        "==> 4.1 many stdout <==\none\ntwo\nthree\n\n"
        "==> 4.4 many stderr <==\nwarning\n"
    )


def test_log_of_one_stream(filled: Workshop, bough: Call) -> None:
    assert bough("log", "4", "--stderr")[1] == "warning\n"


def test_log_as_json(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("log", "--failed", "--json")
    assert json.loads(out) == [
        {"id": "2", "name": "second", "state": "failed", "stdout": "", "stderr": ""},
        {"id": "4.4", "name": "many", "state": "failed", "stdout": "", "stderr": "warning\n"},
        {"id": "4.5", "name": "many", "state": "failed", "stdout": "", "stderr": ""},
    ]


def test_log_of_a_lost_file_is_the_worlds_error(filled: Workshop, bough: Call) -> None:
    os.remove(filled.home / ".bough" / "wf" / "out" / "1.out")
    code, _, err = bough("log", "1")
    assert code == 3
    assert err.startswith("bough: cannot read the stdout of task 1 in ")


def test_log_of_a_task_that_wrote_nothing_says_so(filled: Workshop, bough: Call) -> None:
    assert bough("log", "3") == (0, "", "bough: these tasks wrote nothing\n")


def test_log_needs_to_know_of_which_tasks(filled: Workshop, bough: Call) -> None:
    code, _, err = bough("log")
    assert code == 2
    assert err.startswith("bough: say which tasks")


def test_explain_without_a_session_tells_from_the_store(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("explain", "third")
    assert out.splitlines()[:2] == [
        "3 (third) was skipped: task 2 (second) failed",
        "it comes after 2 (second), which failed: exit code 3",
    ]


def test_explain_as_json_gives_an_index_only_where_one_element_is_meant(filled: Workshop, bough: Call) -> None:
    def indexes(selector: str) -> list[tuple[str, object]]:
        _, out, _ = bough("explain", selector, "--json")
        return [(row["id"], row["index"]) for row in json.loads(out)]

    assert indexes("many") == [("4", None)]
    assert indexes("4.0-3") == [("4.0-3", None)]
    assert indexes("4.4") == [("4.4", 4)]
    assert indexes("2") == [("2", 0)]


def test_explain_as_json_gives_lines(filled: Workshop, bough: Call) -> None:
    _, out, _ = bough("explain", "second", "--json")
    [told] = json.loads(out)
    assert told["id"] == "2"
    assert told["lines"][0] == "2 (second) failed: exit code 3"


@pytest.mark.parametrize("command", ["kill", "cancel", "hold", "release"])
def test_acting_needs_a_running_session(filled: Workshop, bough: Call, command: str) -> None:
    code, out, err = bough(command, "all")
    assert (code, out) == (2, "")
    assert f"there is nothing to {command}" in err


def test_retry_without_a_session_says_what_to_do(filled: Workshop, bough: Call) -> None:
    code, _, err = bough("retry", "--failed")
    assert code == 2
    assert "bough run FILE again runs what failed" in err


def test_sql_answers_with_a_table_json_or_csv(filled: Workshop, bough: Call) -> None:
    statement = "select id, state from tasks where id < 3 order by id"
    assert bough("sql", statement)[1] == "id  state\n 1  done\n 2  failed\n"
    assert json.loads(bough("sql", statement, "--json")[1]) == [
        {"id": 1, "state": "done"},
        {"id": 2, "state": "failed"},
    ]
    assert bough("sql", statement, "--csv")[1] == "id,state\n1,done\n2,failed\n"


@pytest.mark.parametrize(
    "statement",
    [
        "delete from tasks",
        "drop table tasks",
        "create table x(a)",
        "update tasks set name = 'x'",
        "insert into runs(run) values (9)",
    ],
)
def test_sql_cannot_write(filled: Workshop, bough: Call, statement: str) -> None:
    code, _, err = bough("sql", statement)
    assert code == 2
    assert err.startswith("bough: the jobs database is read-only")
    assert bough("sql", "select count(*) from tasks", "--csv")[1] == "count(*)\n4\n"


@pytest.mark.parametrize("statement", ["select nothing from nowhere", "hello", "select 1; select 2", "", "begin"])
def test_sql_that_is_wrong_is_the_users_error(filled: Workshop, bough: Call, statement: str) -> None:
    code, _, err = bough("sql", statement)
    assert code == 2
    assert err.startswith("bough: ")
    assert err.count("\n") == 1


def test_sql_lists_tables_and_columns(filled: Workshop, bough: Call) -> None:
    tables = json.loads(bough("sql", "--tables", "--json")[1])
    assert {"runs", "groups", "tasks", "elements", "spans", "attempts", "executors", "files", "after"} == set(tables)
    assert tables["groups"][:5] == ["id", "run", "parent", "name", "path"]
    assert bough("sql", "--tables")[1].startswith("runs ")


def test_the_only_store_is_found_and_a_wrong_name_lists_what_there_is(filled: Workshop, bough: Call) -> None:
    assert bough("status", "--name", "wf")[0] == 0
    code, _, err = bough("status", "--name", "other")
    assert (code, err) == (2, "bough: no store of the name 'other' in .bough; there are wf\n")


def test_of_several_stores_the_one_used_last_is_meant(filled: Workshop, bough: Call) -> None:
    newer = filled.store("newer")
    filled.insert("runs", "newer", run=5, name="newer", opened=1.0)
    os.utime(filled.home / ".bough" / "wf" / "journal.db", (1, 1))
    assert json.loads(bough("status", "--json")[1])["run"] == 5
    assert json.loads(bough("status", "--json", "--name", "wf")[1])["run"] == 1
    assert json.loads(bough("status", "--json", "--store", str(newer))[1])["run"] == 5


def test_looking_at_a_store_does_not_make_it_the_one_used_last(filled: Workshop, bough: Call) -> None:
    newer = filled.store("newer")
    filled.insert("runs", "newer", run=5, name="newer", opened=1.0)
    (newer / "opened").write_text("200.5\n")
    (filled.home / ".bough" / "wf" / "opened").write_text("100.0\n")
    for _ in range(2):  # each look may write to the journal's file, as folding does
        os.utime(filled.home / ".bough" / "wf" / "journal.db")
        assert json.loads(bough("status", "--json", "--name", "wf")[1])["run"] == 1
        assert json.loads(bough("status", "--json")[1])["run"] == 5


def test_without_a_store_the_message_says_what_to_do(workshop: Workshop, bough: Call) -> None:
    code, _, err = bough("status")
    assert (code, err.count("\n")) == (2, 1)
    assert "run a workflow here first" in err


def test_a_store_without_a_run_is_told(workshop: Workshop, bough: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.cli.targets.jobs_database.catch_up", lambda place: False)
    workshop.store()
    assert bough("status")[0] == 2


def test_a_file_that_is_no_database_is_the_worlds_error(
    workshop: Workshop, bough: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bough.cli.targets.jobs_database.catch_up", lambda place: False)
    folder: Path = workshop.store("bad")
    (folder / "journal.db").write_bytes(b"this is no database, " * 100)
    code, _, err = bough("status")
    assert code == 3
    assert err.startswith("bough: ")
