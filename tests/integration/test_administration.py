"""Administration by group of a session that goes on, by the commands as people type them."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bough import Session, UserError
from bough.cli.main import main
from bough.cli.targets.group_levels import Levels
from bough.cli.targets.jobs_database import open_database
from bough.cli.targets.selection import choose_run
from bough.model.events.facts import RunOpened, SpanEnded, Submitted, WasReset
from bough.model.ids import BlobId, ExecutorId, MemoKey, RecordId, SpanId
from bough.model.tasks import ArraySpec, Dep, Kind, On, TaskSpec
from bough.stores.sql.sqlite import SqliteStore

PATIENCE = 60.0


class Desk:
    """A session with what happens in it, and somebody who types commands."""

    def __init__(self, session: Session, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.session = session
        self.folder = folder
        self._capsys = capsys

    def bough(self, *words: str) -> tuple[int, str]:
        """Exit code, and what was said."""
        self._capsys.readouterr()
        code = main(words)
        said = self._capsys.readouterr()
        return code, said.out + said.err

    def ask(self, *words: str) -> object:
        code, out = self.bough(*words, "--json")
        assert code == 0, out
        return json.loads(out)

    def states(self, selector: str = "all") -> dict[str, str]:
        rows = self.ask("status", selector)
        assert isinstance(rows, list)
        return {row["name"]: row["state"] for row in rows}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"it never came to this: {what}; {self.states()}"
            time.sleep(0.02)

    def lines(self, name: str) -> int:
        """How often a command wrote a line into a file."""
        path = self.folder / name
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    with Session(cores=2) as session:
        yield Desk(session, tmp_path, capsys)
        (tmp_path / "go").touch()


def test_a_group_is_disabled_explained_and_enabled(desk: Desk) -> None:
    gate = desk.session.command("until test -e go; do sleep 0.02; done", name="gate")
    with desk.session.group("align"):
        one = desk.session.command("echo x >> one", name="one", after=[gate])
    assert desk.bough("disable", "align") == (0, "1 task disabled\n")
    (desk.folder / "go").touch()
    gate.result(PATIENCE)
    desk.until(lambda: "bough enable align" in desk.bough("explain", "one")[1], "it is held")
    assert desk.bough("enable", "align")[0] == 0
    one.result(PATIENCE)
    code, said = desk.bough("enable", "align")
    assert (code, said.splitlines()[1]) == (1, "not changed: group align: is not disabled")


def test_a_group_is_reset_and_runs_again_and_its_futures_stay_resolved(desk: Desk) -> None:
    with desk.session.group("align"):
        one = desk.session.command("echo x >> one", name="one")
        number = desk.session.submit(int, "5")
    last = desk.session.command("echo x >> last", name="last", after=[one, number])
    last.result(PATIENCE)
    assert number.result(PATIENCE) == 5
    code, said = desk.bough("reset", "align")
    assert code == 1
    assert "has started and depends on it; reset it too: --cascade" in said
    assert desk.bough("reset", "align", "--cascade") == (0, "3 tasks reset\n")
    assert number.result(PATIENCE) == 5
    desk.until(lambda: (desk.lines("one"), desk.lines("last")) == (2, 2), "both ran again")
    desk.until(lambda: set(desk.states().values()) == {"done"}, "all is done again")


def test_elements_of_an_array_are_reset(desk: Desk) -> None:
    array = desk.session.map(abs, [-1, -2, -3])
    assert list(array) == [1, 2, 3]
    assert desk.bough("reset", "1.1") == (0, "1 task reset\n")

    def attempts() -> list[int]:
        rows = desk.ask("sql", "select start, stop, attempt from spans where state = 'done' order by start")
        assert isinstance(rows, list)
        return [row["attempt"] for row in rows for _ in range(row["start"], row["stop"])]

    desk.until(lambda: attempts() == [1, 2, 1], "one of them ran again")


def test_a_group_is_declared_done_and_what_depends_on_it_runs(desk: Desk) -> None:
    gate = desk.session.command("until test -e go; do sleep 0.02; done", name="gate")
    with desk.session.group("align"):
        one = desk.session.command("exit 1", name="one", after=[gate])
        two = desk.session.submit(str, gate)
    last = desk.session.command("echo x >> last", name="last", after=[one, two])
    assert desk.bough("done", "align") == (0, "2 tasks declared done\n")
    assert one.result(PATIENCE).returncode == 0
    assert two.result(PATIENCE) is None
    last.result(PATIENCE)
    assert not gate.done()


def test_a_group_is_stopped_and_goes_on(desk: Desk) -> None:
    with desk.session.group("align"):
        running = [desk.session.command("sleep 60", name=f"r{i}") for i in range(2)]
        desk.session.command("echo x >> one", name="one")
    desk.until(lambda: desk.states()["r0"] == desk.states()["r1"] == "running", "both run")
    code, said = desk.bough("stop", "align", "--disable")
    assert (code, said.splitlines()[0]) == (0, "1 task held, 2 tasks killed")
    assert all(task.exception(PATIENCE) is not None for task in running)
    assert desk.states()["one"] == "held"
    assert desk.bough("enable", "align")[0] == 0
    desk.until(lambda: desk.states()["one"] == "done", "what was held runs")


def test_the_groups_are_walked_through_and_acted_on_in_the_terminal(desk: Desk) -> None:
    pytest.importorskip("textual", reason="textual is not installed: pip install 'bough[tui]'")
    from bough.cli.browser import Browser

    gate = desk.session.command("until test -e go; do sleep 0.02; done", name="gate")
    with desk.session.group("align") as align:
        for name in ("one", "two", "three"):
            desk.session.command(f"echo x >> {name}", name=name, after=[gate])
        with desk.session.group("sub"):
            desk.session.command("true", name="inner", after=[gate])
    with desk.session.group("plot", after=[align]):
        desk.session.command("true", name="picture")
    screen: dict[str, list[list[str]]] = {}

    async def walk(browser: Browser) -> None:
        async with browser.run_test(size=(120, 30)) as pilot:

            def rows(moment: str) -> None:
                table = browser._table
                screen[moment] = [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]

            rows("first")
            await pilot.press("down", "d")
            rows("what plot depends on")
            await pilot.press("f5", "up", "enter")
            rows("inside")
            await pilot.press("down", "space", "space", "f")
            rows("two declared done")
            await pilot.press("u", "x")
            rows("disabled")
            await pilot.press("e")
            rows("enabled")
            await pilot.press("q")

    args = argparse.Namespace(store=None, server=None, name=None, run=None)
    with open_database(args, acts=True) as database:
        asyncio.run(walk(Browser(Levels(database, choose_run(database, args)))))
    assert [row[3] for row in screen["first"]] == ["align/", "plot/", "gate"]
    assert [row[3] for row in screen["what plot depends on"]] == ["align/"]
    assert [row[3] for row in screen["inside"]] == ["sub/", "one", "two", "three"]
    assert [row[4] for row in screen["two declared done"]][1:] == ["done", "done", "waiting"]
    assert [row[5] for row in screen["disabled"]][:2] == ["disabled", ""]
    assert [row[5] for row in screen["enabled"]][:2] == ["", ""]


def test_the_tree_says_when_it_ends_why_it_waits_and_who_depends_on_it(desk: Desk) -> None:
    first = desk.session.command("sleep 0.1", name="work")
    first.result(PATIENCE)
    gate = desk.session.command("until test -e go; do sleep 0.02; done", name="work")
    with desk.session.group("align", after=[gate]) as align:
        for _ in range(4):
            desk.session.command("true", name="work")
    with desk.session.group("plot", after=[align]):
        desk.session.command("true", name="work")
    found = desk.ask("status", "align", "--tree")
    assert isinstance(found, dict)
    assert found["counts"]["waiting"] + found["counts"]["ready"] == 4
    assert found["dependents"] == ["group plot"]
    assert found["waits_for"][0].startswith("task 2 (work), which is ")
    assert found["expected_seconds"] >= 2 * 0.1, "four tasks of a tenth of a second on two cores"
    found = desk.ask("history", "align")
    assert isinstance(found, list)
    assert [(row["run"], row["tasks"], row["done"]) for row in found] == [(1, 4, 0)]
    (desk.folder / "go").touch()
    desk.until(lambda: set(desk.states().values()) == {"done"}, "all is done")
    analysed = desk.ask("status", "--analyse")
    assert isinstance(analysed, dict)
    assert analysed["makespan"] >= analysed["minimal"] > 0.1
    assert analysed["critical_path"][0]["name"] == "work"


def test_a_script_administrates_its_own_groups(desk: Desk) -> None:
    with desk.session.group("align") as align:
        one = desk.session.command("echo x >> one", name="one")
    one.result(PATIENCE)
    last = desk.session.command("echo x >> last", name="last", after=[one])
    last.result(PATIENCE)
    with pytest.raises(UserError, match="has started and depends on it"):
        desk.session.reset(align)
    assert desk.session.disable(align) == 0
    assert desk.session.reset(align, cascade=True) == 2
    assert desk.session.explain(one.id).endswith("its group align is disabled; let it start with: bough enable align")
    assert desk.session.enable(align) == 1
    desk.until(lambda: desk.lines("last") == 2, "both ran again")
    assert desk.session.stop("all") == 0
    later = desk.session.command("true", name="later")
    assert desk.session.declare_done(later) == 1
    assert later.result(PATIENCE).returncode == 0
    desk.session.release("all")


def test_a_later_run_does_not_find_what_was_reset(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    loose = TaskSpec(RecordId(1), Kind.FUNCTION, BlobId(b""), b"", key=MemoKey(b"k" * 16))
    array = ArraySpec(RecordId(2), Kind.FUNCTION, BlobId(b""), 4, key=MemoKey(b"a" * 16))
    store.append(1, 1.0, [RunOpened(1, "w", "h", 1), Submitted([loose, array])])
    about = {"attempt": 1, "executor": ExecutorId(0)}
    done = [
        SpanEnded(SpanId(1), 0, 1, 1.0, b"", record=RecordId(1), key=MemoKey(b"k" * 16), **about),
        SpanEnded(SpanId(2), 0, 4, 1.0, b"", record=RecordId(2), key=MemoKey(b"a" * 16), **about),
    ]
    store.append(2, 2.0, done)
    reset = WasReset(Dep(On.TASK, 1), parts=((RecordId(1), 0, 1), (RecordId(2), 1, 2)))
    store.append(3, 3.0, [reset])
    store.project()
    assert store._database.execute("SELECT record, start, stop FROM memo ORDER BY record, start").fetchall() == [
        (2, 0, 1),
        (2, 2, 4),
    ]
    store.close()
