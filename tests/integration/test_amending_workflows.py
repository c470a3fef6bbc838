"""Descriptions that are changed while their workflow goes on, and submitted again to a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import Service, until


class Desk:
    """A server with an executor, a file that describes a workflow, and somebody who edits and submits it."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.file = folder / "flow.txt"

    def write(self, *lines: str) -> None:
        self.file.write_text("".join(f"{line}\n" for line in lines))

    def submit(self, *lines: str) -> str:
        """Write the file and submit it; what was said."""
        self.write(*lines)
        return self.service.bough("submit", str(self.file)).stdout.strip()

    def refused(self, *lines: str) -> str:
        self.write(*lines)
        said = self.service.bough("submit", str(self.file), check=False)
        assert said.returncode == 2, said
        return said.stderr.strip()

    def ask(self, *words: str) -> object:
        return json.loads(self.service.bough(words[0], "--json", *words[1:]).stdout)

    def states(self) -> dict[str, str]:
        rows = self.ask("status", "--name", "flow", "all")
        assert isinstance(rows, list)
        return {row["name"]: row["state"] for row in rows}

    def until_states(self, **wanted: str) -> None:
        until(lambda: self.states() == wanted, f"{wanted}; there is {self.states()}")

    def open(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def until_over(self) -> None:
        def is_over() -> bool:
            found = self.ask("sql", "select closed from runs where name = 'flow' and closed is null")
            return found == []

        until(is_over, "the end of the workflow")


def gated(name: str) -> str:
    """A command that notes every run, and ends when its gate is opened."""
    return f"echo $$ >> {name}.runs; until [ -e {name}.go ]; do sleep 0.05; done"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    service = Service(tmp_path)
    service.start()
    service.executor(cores=2)
    yield Desk(service, tmp_path)
    service.clean_up()


def test_the_difference_is_applied_to_what_is_finished_running_and_waiting(desk: Desk) -> None:
    desk.submit(
        f"runs: :: {gated('runs')}",
        "kept: :: echo kept >> kept.txt",
        "redone: :: echo old >> redone.txt",
        "built: after=redone :: echo built >> built.txt",
        "waits: after=runs :: echo old >> waits.txt",
        "gone: after=runs :: echo gone >> gone.txt",
    )
    desk.until_states(runs="running", kept="done", redone="done", built="done", waits="waiting", gone="waiting")
    said = desk.submit(
        f"runs: :: {gated('runs')}",
        "kept: :: echo kept >> kept.txt",
        "redone: :: echo new >> redone.txt",
        "built: after=redone :: echo built >> built.txt",
        "waits: after=runs,more :: echo new >> waits.txt",
        "more: after=kept :: echo more >> more.txt",
    )
    assert said == "workflow flow: 1 added, 2 changed, 1 removed, 3 unchanged, 1 of them run again"
    until(lambda: desk.lines("built.txt") == ["built", "built"], "what depends on a changed task")
    desk.until_states(runs="running", kept="done", redone="done", built="done", waits="waiting", more="done")
    desk.open("runs")
    desk.until_over()
    assert desk.lines("redone.txt") == ["old", "new"]
    assert desk.lines("waits.txt") == ["new"]
    assert len(desk.lines("runs.runs")) == len(desk.lines("kept.txt")) == 1
    assert not (desk.folder / "gone.txt").exists()
    assert set(desk.states().values()) == {"done"}


def test_a_changed_task_that_runs_is_ended_and_a_removed_one_too(desk: Desk) -> None:
    desk.submit(f"a: :: {gated('a')}", f"b: :: {gated('b')}")
    until(lambda: desk.lines("a.runs") and desk.lines("b.runs"), "both")
    (pid,) = desk.lines("a.runs")
    assert desk.submit(f"a: :: echo now; {gated('a')}") == "workflow flow: 0 added, 1 changed, 1 removed, 0 unchanged"
    until(lambda: len(desk.lines("a.runs")) == 2, "the new one")
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the old one")
    (old,) = desk.lines("b.runs")
    until(lambda: not os.path.exists(f"/proc/{old}"), "the end of the removed one")
    desk.open("a")
    desk.until_over()
    rows = desk.ask("sql", "select run, name, state, attempt from tasks order by name")
    assert [(row["name"], row["state"]) for row in rows] == [("a", "done"), ("b", "cancelled")]  # type: ignore[attr-defined]
    assert [row["run"] > 0 for row in rows] == [True, False]  # type: ignore[attr-defined]
    assert rows[0]["attempt"] == 2  # type: ignore[index]


def test_groups_are_opened_again_and_waited_for(desk: Desk) -> None:
    before = ["group=g :: echo a >> g.txt", "group=h deps=g :: echo h >> h.txt", f"stay: :: {gated('stay')}"]
    desk.submit(*before)
    until(lambda: desk.lines("h.txt") == ["h"], "the groups")
    said = desk.submit(*before, "group=g :: echo b >> g.txt", f"group=i deps=h :: {gated('i')}")
    assert said == "workflow flow: 2 added, 0 changed, 0 removed, 3 unchanged, 1 of them run again; groups: 1 added"
    until(lambda: desk.lines("h.txt") == ["h", "h"], "the group that waits for what is new")
    until(lambda: desk.lines("i.runs"), "the new group")
    assert desk.lines("g.txt") == ["a", "b"]
    tree = desk.ask("status", "--name", "flow")
    assert {"g", "h", "i"} <= {str(group["path"]) for group in tree["groups"]}  # type: ignore[call-overload, index]
    said = desk.submit("group=g :: echo a >> g.txt", "stay: :: true")
    assert said == "workflow flow: 0 added, 1 changed, 3 removed, 1 unchanged; groups: 2 removed"
    desk.until_over()


def test_a_server_that_is_killed_after_it_answered_goes_on_with_the_new_workflow(desk: Desk) -> None:
    desk.submit(f"a: :: {gated('a')}", "b: after=a :: echo old >> b.txt", "c: after=a :: echo c >> c.txt")
    until(lambda: desk.lines("a.runs"), "the first task")
    desk.submit(f"a: :: {gated('a')}", "b: after=a :: echo new >> b.txt", "d: after=b :: echo d >> d.txt")
    desk.service.kill()
    desk.service.start()
    desk.until_states(a="running", b="waiting", d="waiting")
    desk.open("a")
    desk.until_over()
    assert desk.lines("b.txt") == ["new"]
    assert desk.lines("d.txt") == ["d"]
    assert not (desk.folder / "c.txt").exists()
    assert len(desk.lines("a.runs")) == 1
    folder = desk.service.home / "server"
    desk.service.stop()
    checked = desk.service.bough("store", "check", "--store", str(next(folder.glob("**/*.db")).parent), check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_dry_run_shows_the_difference_and_does_nothing(desk: Desk) -> None:
    desk.write(f"a: :: {gated('a')}", "b: after=a :: echo b")
    new = desk.service.bough("submit", "--dry-run", str(desk.file)).stdout.splitlines()
    assert new == ["+ a", "+ b", "workflow flow: 2 would be submitted"]
    assert desk.ask("sql", "select name from runs where name = 'flow'") == []
    desk.service.bough("submit", str(desk.file))
    desk.write(f"a: :: {gated('a')}", "b: :: echo other", "group=g :: echo c")
    lines = desk.service.bough("submit", "--dry-run", str(desk.file)).stdout.splitlines()
    assert lines == [
        "+ g/",
        "+ g/echo",
        "~ b",
        "workflow flow: 1 added, 1 changed, 0 removed, 1 unchanged; groups: 1 added",
    ]
    value = desk.ask("submit", "--dry-run", str(desk.file))
    assert value == {
        "workflow": "flow",
        "goes_on": True,
        "added": ["g/echo"],
        "changed": ["b"],
        "removed": [],
        "unchanged": 1,
        "again": [],
        "retried": 0,
        "groups": {"added": ["g"], "changed": [], "removed": []},
    }
    assert desk.ask("run", "--server", f"unix:{desk.service.address}", "--dry-run", str(desk.file)) == value
    assert set(desk.states()) == {"a", "b"}
    done = desk.ask("submit", str(desk.file))
    assert done["amended"]["changed"] == ["b"]  # type: ignore[call-overload, index]
    assert len(done["ids"]) == 3  # type: ignore[call-overload, index, arg-type]
    again = desk.service.bough("submit", str(desk.file))
    assert again.stdout.strip() == "workflow flow is running as it is: 3 unchanged"


def test_a_description_that_is_wrong_or_belongs_elsewhere_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    first = [f"a: :: {gated('a')}", "b: after=a :: echo b"]
    desk.submit(*first)
    assert "a" in desk.refused("a: after=b :: true", "b: after=a :: true")
    assert "nowhere" in desk.refused("a: :: true", "b: after=nowhere :: true")
    desk.until_states(a="running", b="waiting")
    other = tmp_path / "other"
    other.mkdir()
    (other / "flow.txt").write_text("b: :: echo b\n")
    os.chdir(other)
    said = desk.service.bough("submit", "flow.txt", check=False)
    assert said.returncode == 2
    assert f"is running in {tmp_path}; submit it there to change it, or choose another name" in said.stderr
    os.chdir(tmp_path)
    desk.until_states(a="running", b="waiting")
    assert desk.submit(*first) == "workflow flow is running as it is: 2 unchanged"


def test_a_makefile_does_not_change_what_goes_on(desk: Desk) -> None:
    makefile = desk.folder / "Makefile"
    makefile.write_text("out: mid\n\tcp mid out\nmid:\n\techo a > mid; until [ -e go ]; do sleep 0.05; done\n")
    desk.service.bough("submit", str(makefile))
    until((desk.folder / "mid").exists, "a target that is half made")
    for words in (["submit"], ["submit", "--dry-run"]):
        said = desk.service.bough(*words, str(makefile), check=False)
        assert said.returncode == 2
        assert "workflow Makefile is running, and a Makefile says only what is out of date now" in said.stderr
    (desk.folder / "go").touch()
    until((desk.folder / "out").exists, "the rest")


def test_names_of_withdrawn_tasks_are_not_in_the_way_of_deeds(desk: Desk) -> None:
    desk.submit(f"a: :: {gated('a')}", "x: :: echo x >> x.txt", "group=g :: echo g")
    desk.until_states(a="running", x="done", echo="done")
    desk.submit(f"a: :: {gated('a')}")
    desk.until_states(a="running")
    desk.submit(f"a: :: {gated('a')}", "x: after=a :: echo y >> x.txt", "group=g deps=a :: echo g")
    until(lambda: desk.states().keys() == {"a", "x", "echo"}, "the new ones")
    said = desk.service.bough("hold", "--name", "flow", "x").stdout
    assert "1 task" in said, said
    held = desk.service.bough("disable", "--name", "flow", "g/*", check=False)
    assert held.returncode == 0, held.stderr
    why = desk.service.bough("explain", "--name", "flow", "x").stdout
    assert "a" in why
    desk.open("a")
    until(lambda: desk.states().get("x") == "held", "the hold")
    desk.service.bough("release", "--name", "flow", "x")
    desk.service.bough("enable", "--name", "flow", "g/*")
    desk.until_over()
    assert desk.lines("x.txt") == ["x", "y"]
    history = desk.service.bough("history", "--name", "flow", check=False)
    assert history.returncode == 0, history.stderr


def test_what_failed_is_tried_again_when_the_description_is_submitted_again(desk: Desk) -> None:
    lines = (f"a: :: {gated('a')}", "b: :: test -e b.there", "c: after=b :: echo c >> c.txt")
    desk.submit(*lines)
    desk.until_states(a="running", b="failed", c="skipped")
    (desk.folder / "b.there").touch()
    assert desk.submit(*lines) == "workflow flow: 0 added, 0 changed, 0 removed, 3 unchanged; 2 will be retried"
    desk.until_states(a="running", b="done", c="done")


def test_who_changes_a_workflow_that_is_over_by_that_hears_of_it(desk: Desk) -> None:
    for words in (["submit"], ["run", "--server", f"unix:{desk.service.address}"]):
        desk.submit(f"a: :: {gated('a')}", "b: :: echo b")
        desk.until_states(a="running", b="done")
        desk.write("b: :: echo b")
        said = desk.service.bough(*words, str(desk.file))
        assert "workflow flow: 0 added, 0 changed, 1 removed, 1 unchanged" in said.stdout + said.stderr
        desk.until_over()


def test_a_run_of_a_changed_description_waits_for_its_end(desk: Desk) -> None:
    desk.submit(f"a: :: {gated('a')}", "b: after=a :: echo old >> b.txt")
    until(lambda: desk.lines("a.runs"), "the first task")
    desk.write(f"a: :: {gated('a')}", "b: after=a :: echo new >> b.txt", "group=g deps=b :: echo g >> g.txt")
    words = ["run", "--server", f"unix:{desk.service.address}", str(desk.file)]
    run = subprocess.Popen(
        [sys.executable, "-m", "bough.cli.main", *words],
        env=desk.service.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(desk.states()) == 3, "the change")
    desk.open("a")
    _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert "workflow flow: 1 added, 1 changed, 0 removed, 1 unchanged; groups: 1 added" in said
    assert "3 done" in said
    assert desk.lines("b.txt") == ["new"]
    assert desk.lines("g.txt") == ["g"]
