"""What a dry run says would run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from cli_workshop import Workshop

from bough.cli.commands.run import plain, would_run
from bough.describe.flat_list import FlatTask

Call = Callable[..., tuple[int, str, str]]


def names(tasks: list[FlatTask], *done: tuple[str, int]) -> list[str]:
    return [task.name for task in would_run(tasks, done)]


def test_what_was_done_does_not_run_but_its_next_twin_does() -> None:
    tasks = [FlatTask("x", "a"), FlatTask("x", "b"), FlatTask("y", "c")]
    assert names(tasks) == ["a", "b", "c"]
    assert names(tasks, ("x", 0)) == ["b", "c"]
    assert names(tasks, ("x", 0), ("x", 1), ("y", 0)) == []


def test_what_comes_after_something_that_runs_runs_too() -> None:
    tasks = [FlatTask("x", "a"), FlatTask("y", "b", ("a",)), FlatTask("z", "c", ("b",)), FlatTask("w", "d")]
    assert names(tasks, ("y", 0), ("z", 0), ("w", 0)) == ["a", "b", "c"]


def test_declared_files_that_are_missing_or_older_than_what_they_are_made_of_run_again(workshop: Workshop) -> None:
    first = FlatTask("cp a b", "first", reads=("a",), writes=("b",))
    second = FlatTask("cp b c", "second", reads=("b",), writes=("c",))
    done = [(f"cp {source} {workshop.home / target}", 0) for source, target in (("a", "b"), ("b", "c"))]
    for at, name in enumerate("abc"):
        (workshop.home / name).write_text(name)
        os.utime(name, (at, at))
    assert names([first, second], *done) == []
    (workshop.home / "c").unlink()
    assert names([first, second], *done) == ["second"]
    os.utime("a", (9, 9))
    assert names([first, second], *done) == ["first", "second"]


def test_quotes_that_mean_nothing_make_no_difference() -> None:
    assert plain("echo  a 'b c'") == plain('echo a "b c"')
    assert plain("echo 'open") == "echo 'open"


def test_a_dry_run_shows_what_is_missing(filled: Workshop, bough: Call) -> None:
    (filled.home / "wf.txt").write_text("command 1\ncommand 2\ncommand 9\n")
    code, out, err = bough("run", "--dry-run", "wf.txt")
    assert (code, out) == (0, "command 2\ncommand 9\n")
    assert err == "bough: 1 of 3 tasks are done and would be reused\n"
    assert bough("run", "--dry-run", "--fresh", "wf.txt")[1] == "command 1\ncommand 2\ncommand 9\n"
    assert json.loads(bough("run", "--dry-run", "--json", "wf.txt")[1])[0] == {
        "command": "command 2",
        "name": "",
        "after": [],
        "line": 2,
        "cores": 1,
        "memory": 0,
        "timeout": 0,
        "retries": 0,
        "reads": [],
        "writes": [],
        "memory_growth": 0,
        "timeout_growth": 0,
        "monitors": [],
        "sites": [],
        "requires": "",
        "queue": "",
        "idempotent": None,
        "keep": True,
    }
