"""Settled semantics that are easily broken: odd arguments, classes of the script in results, files of arrays."""

from __future__ import annotations

import gc
import os
import queue
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bough
from bough.api.session.session import Session
from bough.errors import UserError

PATIENCE = 60.0  # seconds; a deadline, not a pause


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(name="shared", store=tmp_path_factory.mktemp("store"), cores=2) as session:
        yield session


def run_script(folder: Path, text: str, name: str = "script.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, name], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- odd arguments --------------------------------------------------------------------------------------

NOT_UTF8 = os.fsdecode(b"bad\xff.txt")


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda s: s.map(3, [1]), "function"),
        (lambda s: s.feed(abs, 5), "iterate"),
        (lambda s: s.feed(5, [1]), "function"),
        (lambda s: s.command("echo", shell=3), "shell"),
        (lambda s: s.command("echo", shell=[]), "shell"),
        (lambda s: s.command("echo", shell=["bash", 3]), "shell"),
        (lambda s: s.command("echo", env=["A"]), "env"),
        (lambda s: s.command("echo", env={3: "x"}), "env"),
        (lambda s: s.command("echo", env={"A": "x\0"}), "env"),
        (lambda s: s.command("echo", clash="maybe"), "clash"),
        (lambda s: s.command("echo {p:03d}", p="x"), "p"),
        (lambda s: s.sweep("echo {p:03d}", bough.product(p=["x"])), "p"),
        (lambda s: s.sweep("echo {p.nosuch}", bough.product(p=["x"])), "nosuch"),
        (lambda s: s.sweep("echo {p}", bough.product(p=[1]), where=5), "where"),
        (lambda s: s.group(3), "3"),
        (lambda s: s.group("\udcff"), "Unicode"),
        (lambda s: s.command("true", name="\udcff"), "Unicode"),
        (lambda s: s.command("cat {f}", f=NOT_UTF8), "Unicode"),
        (lambda s: s.command("touch {o:w}", o=NOT_UTF8), "Unicode"),
        (lambda s: s.sweep("touch {o:w}", bough.product(o=[NOT_UTF8])), "Unicode"),
    ],
)
def test_a_wrong_argument_is_refused_at_once_and_named(
    shared: Session, here: Path, call: Callable[[Session], Any], word: str
) -> None:
    with pytest.raises(UserError, match=word):
        call(shared)
    assert shared.submit(int, "7").result(PATIENCE) == 7  # what is refused spoils nothing


def test_a_message_that_is_not_unicode_costs_no_worker(shared: Session) -> None:
    def fail() -> None:
        raise ValueError("\udcff")

    task = shared.submit(fail)
    with pytest.raises(ValueError, match="\udcff"):
        task.result(PATIENCE)
    assert task.attempts == 1


# --- what a call does to its arguments ------------------------------------------------------------------


def noted(seen: list[int], number: int) -> list[int]:
    seen.append(number)
    return seen


def grown(seen: list[int]) -> int:
    seen.append(1)
    return len(seen)


@pytest.mark.parametrize("ways", ["map", "several", "sweep", "feed"])
def test_what_a_call_does_to_its_arguments_no_other_call_sees(shared: Session, ways: str) -> None:
    seen: list[int] = []
    if ways == "map":
        assert list(shared.map(grown, [seen] * 50)) == [1] * 50
        return
    if ways == "several":
        found = list(shared.map(noted, [seen] * 50, range(50)))
    elif ways == "sweep":
        found = shared.sweep(noted, bough.product(seen=[seen], number=range(50))).results()
    else:
        found = shared.feed(lambda pair: noted(*pair), ((seen, number) for number in range(50))).results()
    assert found == [[number] for number in range(50)]


def test_objects_of_the_scripts_own_classes_are_the_calls_own(here: Path) -> None:
    said = run_script(
        here,
        """
        import bough

        class Settings:
            def __init__(self):
                self.seeds = []

        def run(settings, seed):
            settings.seeds.append(seed)
            assert type(settings) is Settings
            return settings.seeds, call(seed)

        call = lambda x: x + 1

        def apply(function, number):
            function.calls = getattr(function, "calls", 0) + 1
            return function(number)

        with bough.Session(cores=1) as s:
            settings = Settings()
            expected = [([n], n + 1) for n in range(20)]
            assert list(s.map(run, [settings] * 20, range(20))) == expected
            assert s.sweep(run, bough.product(settings=[settings], seed=range(20))).results() == expected
            assert list(s.map(apply, [call] * 20, range(20))) == list(range(1, 21))
        print("own")
        """,
    )
    assert said == "own\n"


# --- files of arrays ------------------------------------------------------------------------------------


def test_an_array_fills_a_read_slot_with_all_its_files(shared: Session, here: Path) -> None:
    made = shared.sweep("echo {n} > {o:w}", bough.product(n=[1, 2, 3]), o="{n}.txt")
    assert shared.command("cat {i:r}", i=made).result(PATIENCE).stdout == "1\n2\n3\n"
    assert shared.command("cat {i:r}", i=[made[1:], made[0]]).exception(PATIENCE) is None


def test_tasks_may_stand_anywhere_among_the_values_of_a_sweep(shared: Session, here: Path) -> None:
    (here / "plain.txt").write_text("plain\n")
    made = shared.sweep("echo {n} > {o:w}", bough.product(n=[1, 2, 3]), o="{n}.txt")
    mixed = shared.sweep("cat {i:r}", bough.product(i=["plain.txt", made[1]]))
    assert [done.stdout for done in mixed.results(timeout=PATIENCE)] == ["plain\n", "2\n"]
    lists = shared.sweep("cat {i:r}", bough.product(i=[[made[0], made[1]], [made[2]]]))
    assert [done.stdout for done in lists.results(timeout=PATIENCE)] == ["1\n2\n", "3\n"]


# --- cancelling -----------------------------------------------------------------------------------------


def test_elements_cancelled_while_their_neighbours_run_hold_nobody_up(shared: Session) -> None:
    for _ in range(3):
        array = shared.map(lambda _: time.sleep(0.001), range(300))
        for index in range(0, 300, 7):
            array[index].cancel()
        array.wait_all(PATIENCE)
        counts = array.counts()
        assert counts["done"] + counts["cancelled"] == 300


def test_a_callback_is_called_though_nobody_holds_the_task(shared: Session) -> None:
    called: queue.SimpleQueue[object] = queue.SimpleQueue()
    array = shared.map(abs, [-1, -2])
    array[1].add_done_callback(lambda task: called.put(task.result()))
    gc.collect()
    assert called.get(timeout=PATIENCE) == 2


# --- classes of the script ------------------------------------------------------------------------------

CLASSES = """
    import enum
    import bough

    class Colour(enum.Enum):
        RED = 1

    class Thing:
        count = 0
        def __init__(self, size):
            self.size = size
        def limit(self):
            return LIMIT

    LIMIT = 1

    def make(size):
        return Thing(size), Colour.RED

    def look(made):
        return isinstance(made[0], Thing) and made[1] is Colour.RED

    with bough.Session(cores=1, reuse="always") as s:
        task = s.submit(make, 3)
        LIMIT, Thing.count, limit = 2, 7, Thing.limit
        thing, colour = task.result()
        print(task.reused, type(thing) is Thing, colour is Colour.RED, Thing.count, Thing.limit is limit, thing.limit())
        print(s.options(memo=False).submit(look, task).result())
"""


def test_results_are_of_the_scripts_own_classes_and_leave_them_as_they_are(here: Path) -> None:
    assert run_script(here, CLASSES) == "False True True 7 True 2\nTrue\n"
    assert run_script(here, CLASSES) == "True True True 7 True 2\nTrue\n"


# --- names ----------------------------------------------------------------------------------------------


def test_a_session_is_called_as_its_script_whatever_that_is_called(here: Path) -> None:
    run_script(here, "import bough\nwith bough.Session() as s: s.command('true')\n", "my wörk flow.py")
    assert (here / ".bough" / "my wörk flow" / "journal.db").exists()
