"""Groups of a session: prologue, subgroups, own tasks, epilogue, pipelines, release, and what is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import bough
from bough import Group, Session, UserError

PATIENCE = 60.0


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("groups")
    before = os.getcwd()
    os.chdir(folder)
    with Session(cores=4) as session:
        yield session
    os.chdir(before)


class Diary:
    """What tasks write down, in the order in which they run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entry(self, word: str, *, seconds: float = 0) -> str:
        """A command that writes a word."""
        return f"sleep {seconds}; echo {word} >> {self._path}"

    def words(self) -> list[str]:
        return self._path.read_text().split() if self._path.exists() else []


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def test_the_order_in_a_group(opened: Session, diary: Diary, name: str) -> None:
    with opened.group(name) as g:
        g.prologue(diary.entry("p1", seconds=0.05))
        g.prologue(diary.entry("p2"))
        for inner in ("x", "y"):
            with opened.group(inner):
                opened.command(diary.entry("sub", seconds=0.05))
        opened.command(diary.entry("own"))
        opened.command(diary.entry("own"))
        g.epilogue(diary.entry("e1"))
        g.epilogue(diary.entry("e2"))
    g.wait(PATIENCE)
    assert diary.words() == ["p1", "p2", "sub", "sub", "own", "own", "e1", "e2"]
    assert g.status()["done"] == 8


def test_functions_may_be_prologue_and_epilogue(opened: Session, tmp_path: Path, name: str) -> None:
    with opened.group(name) as g:
        first = g.prologue(os.mkdir, str(tmp_path / "made"), name="make")
        last = g.command(f"echo x > {tmp_path}/made/file")
        g.epilogue(os.rename, str(tmp_path / "made"), str(tmp_path / "kept"), retries=1)
    g.wait(PATIENCE)
    assert (first.name, last.result(PATIENCE).returncode) == ("make", 0)
    assert (tmp_path / "kept" / "file").exists()


def test_a_pipeline_runs_one_task_after_the_other(opened: Session, diary: Diary, name: str) -> None:
    with opened.group(name, pipeline=True) as g:
        for number in range(4):
            opened.command(diary.entry(str(number), seconds=0.05 * (4 - number)), affinity=True)
        opened.sweep(diary.entry("{n}"), bough.tie(n=["a", "a"]))
        opened.command(diary.entry("last"))
    g.wait(PATIENCE)
    assert diary.words() == ["0", "1", "2", "3", "a", "a", "last"]


def test_what_waits_for_a_group_starts_when_it_is_released(opened: Session, tmp_path: Path, name: str) -> None:
    gate = tmp_path / "gate"
    with opened.group(name, pipeline=True) as g:
        opened.command("true", release=True)
        slow = opened.command(f"while [ ! -e {gate} ]; do sleep 0.02; done")
    with opened.group(f"{name}-then", after=g):
        then = opened.command("true")
    then.result(PATIENCE)
    assert not slow.done()
    gate.touch()
    assert slow.result(PATIENCE).returncode == 0


def test_a_final_epilogue_runs_whatever_happened(opened: Session, diary: Diary, name: str) -> None:
    with opened.group(name) as g:
        bad = g.command("exit 3")
        g.epilogue(diary.entry("never"))
        g.epilogue(diary.entry("clean"), final=True)
        g.epilogue(diary.entry("never"))
    g.wait(PATIENCE)
    assert bad.exception(PATIENCE) is not None
    assert diary.words() == ["clean"]


def test_matched_subgroups_wait_for_their_namesakes_only(
    opened: Session, diary: Diary, tmp_path: Path, name: str
) -> None:
    gate = tmp_path / "gate"
    with opened.group(f"{name}-one") as one:
        with opened.group("x"):
            opened.command("true")
        with opened.group("y"):
            slow = opened.command(f"while [ ! -e {gate} ]; do sleep 0.02; done")
    with opened.group(f"{name}-two", after=one, match=True) as two:
        with opened.group("x"):
            quick = opened.command(diary.entry("x"))
        with opened.group("z"):
            patient = opened.command(diary.entry("z"))
        own = two.command(diary.entry("own"))
    quick.result(PATIENCE)
    assert not slow.done()
    assert not patient.done()
    gate.touch()
    own.result(PATIENCE)
    assert diary.words() == ["x", "z", "own"]


def test_a_group_without_barrier_orders_nothing(opened: Session, tmp_path: Path, name: str) -> None:
    gate = tmp_path / "gate"
    slow = opened.command(f"while [ ! -e {gate} ]; do sleep 0.02; done")
    with opened.group(name, after=slow, barrier=False) as g:
        with opened.group("inner"):
            opened.command("true", after=slow)
        opened.command("true").result(PATIENCE)
        with pytest.raises(UserError, match="barrier=False"):
            g.prologue("true")
        with pytest.raises(UserError, match="barrier=False"):
            g.epilogue("true")
    gate.touch()
    g.wait(PATIENCE)


def test_limits_and_priorities_and_attributes_are_the_groups(opened: Session, tmp_path: Path, name: str) -> None:
    script = f"mkdir {tmp_path}/only || exit 9; sleep 0.02; rmdir {tmp_path}/only; echo {{n}}"
    with opened.group(name, limit=1, retries=1, timeout="1h", priority=3, attributes={"owner": "me"}) as g:
        tasks = [opened.command(script, n=n, attributes={"est": 0.5}) for n in range(6)]
        with opened.group("inner"):
            tasks.append(opened.command(script, n=7))
    g.wait(PATIENCE)
    assert all(task.exception(PATIENCE) is None for task in tasks)


def test_a_group_is_tried_again_as_a_whole(opened: Session, tmp_path: Path, name: str) -> None:
    with opened.group(name, retries=1) as g:
        task = g.command(f"mkdir {tmp_path}/once && exit 1; true")
    with opened.group(f"{name}-then", after=g) as then:
        opened.command("true").result(PATIENCE)
    assert then.status()["done"] == 1
    assert opened.find(task.id)[0].state == "done"


def test_who_asks_for_a_result_hears_of_the_retry_of_the_group_and_not_of_the_failure_before(
    opened: Session, tmp_path: Path, name: str
) -> None:
    with opened.group(name, retries=1) as g:
        gate = g.command(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done")
        task = g.command(f"mkdir {tmp_path}/once && exit 1; echo well", after=gate)
        then = g.command("echo too", after=task)
    assert opened.find(task.id)  # an answer: so the server has heard that the group is closed
    (tmp_path / "go").touch()
    assert task.result(PATIENCE).stdout == "well\n"
    assert then.result(PATIENCE).stdout == "too\n"


def test_a_group_lives_while_its_block_is_open(opened: Session, name: str) -> None:
    with opened.group(name) as g:
        first = g.submit(lambda: 2)
        for _ in range(first.result(PATIENCE)):
            with g.group(f"sub{_}"):
                opened.submit(abs, -1)
        later = g.submit(lambda: "after the subgroups")
        assert later.result(PATIENCE) == "after the subgroups"
    assert g.status()["done"] == 4


def test_own_tasks_from_many_threads_keep_a_pipeline(opened: Session, diary: Diary, name: str) -> None:
    with opened.group(name, pipeline=True) as g:
        threads = [threading.Thread(target=g.command, args=(diary.entry("t"),)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    g.wait(PATIENCE)
    assert diary.words() == ["t"] * 10


def test_groups_that_were_left_open_close_with_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(cores=1) as session:
        outer = session.group("outer")
        outer.group("inner").command("true")
        waits = outer.command("true")
        outer.epilogue("touch ended")
    assert waits.state == "done"
    assert (tmp_path / "ended").exists()


def test_hidden_groups_are_not_shown(opened: Session, name: str) -> None:
    with opened.group(name) as g:
        for inner in ("a", "b"):
            with opened.group(inner):
                opened.command("true")
        for _ in range(3):
            opened.command("true")
    g.wait(PATIENCE)
    with opened.jobs() as jobs:
        paths = [str(row["path"]) for row in jobs.groups(opened.welcome.run)]
    assert {f"{name}/a", f"{name}/b"} <= set(paths)
    assert not any("/." in path for path in paths)


def test_explain_names_what_hidden_groups_stand_for(opened: Session, tmp_path: Path, name: str) -> None:
    gate = tmp_path / "gate"
    with opened.group(name) as g:
        for inner in ("a", "b"):
            with opened.group(inner):
                opened.command(f"while [ ! -e {gate} ]; do sleep 0.02; done")
        own = opened.command("true")
        assert f"waits for group {name}/a (1 unfinished), group {name}/b" in own.explain()
    gate.touch()
    g.wait(PATIENCE)


def wrong(session: Session, name: str) -> list[tuple[str, str]]:
    """Mistakes and what is said of them."""
    said: list[tuple[str, str]] = []

    def says(what: str, deed: object) -> None:
        with pytest.raises(UserError) as caught:
            deed()  # type: ignore[operator]
        said.append((what, str(caught.value)))

    with session.group(name) as g:
        g.command("true")
        says("has tasks or subgroups already", lambda: g.prologue("true"))
        says("does not begin with a dot", lambda: session.group(".own"))
        says("limit is -1", lambda: session.group("l", limit=-1))
        says("retries is 'x'", lambda: session.group("r", retries="x"))
        says("attributes is 3", lambda: session.group("a", attributes=3))
        says("means nothing with barrier=False", lambda: session.group("m", match=True, barrier=False))
        says("needs a task before it", lambda: session.command("true", affinity=True))
        says("release is 'yes'", lambda: session.command("true", release="yes"))
        says("is for single tasks", lambda: session.options(final=True).map(abs, [1]))
        says("is for single tasks", lambda: session.options(affinity=True).map(abs, [1]))
        says("parameters of it are given by name", lambda: g.epilogue("true", 3))
        says("has no option 'colour'", lambda: g.epilogue(abs, -1, colour="red"))
    says("is closed", lambda: g.epilogue("true"))
    says("is closed", lambda: g.command("true"))
    return said


def test_mistakes_are_named(opened: Session, name: str) -> None:
    for what, message in wrong(opened, name):
        assert what in message


def test_affinity_outside_of_a_pipeline_is_beside_the_task_that_is_waited_for(opened: Session) -> None:
    first = opened.command("true")
    second = opened.command("true", after=first, affinity=True)
    second.result(PATIENCE)
    third = opened.command("true", after=second, affinity=True)
    third.result(PATIENCE)
    assert first.host == second.host == third.host


def test_a_cycle_between_groups_is_refused(opened: Session, name: str) -> None:
    outer: Group
    with opened.group(name) as outer:
        inner = opened.command("true", after=outer)
        with pytest.raises(UserError, match="cycle"):
            inner.result(PATIENCE)
