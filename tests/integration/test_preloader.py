"""Modules that a script has imported are there in its workers, imported once; imports that misbehave harm nobody."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bough import Session
from bough.api.session import preload_list

PATIENCE = 60
HEAVY = """
import os
with open(os.path.join(os.path.dirname(__file__), "imports"), "a") as log:
    log.write(f"{os.getpid()}\\n")
VALUE = 42
"""

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a module where packages are installed, and imports it here; its folder."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.delenv(preload_list.SWITCH, raising=False)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("TEST_PROCESS", str(os.getpid()))
    monkeypatch.chdir(tmp_path)
    installed: list[str] = []

    def put(name: str, source: str) -> Path:
        (folder / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        importlib.import_module(name)
        installed.append(name)
        return folder

    yield put
    for name in installed:
        del sys.modules[name]


def only_here(source: str) -> str:
    """What a module does where it is not imported by the test itself."""
    return f"import os\nif os.environ['TEST_PROCESS'] != str(os.getpid()):\n    {source}\nVALUE = 1\n"


def meet() -> Callable[[str], tuple[int, int]]:
    """A function that goes by value, needs `heavy`, and waits for another run of it, so that two workers are at it."""

    def value_and_pid(path: str) -> tuple[int, int]:
        import heavy  # type: ignore[import-not-found]

        Path(path, str(os.getpid())).touch()
        deadline = time.monotonic() + 30
        while len(os.listdir(path)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return heavy.VALUE, os.getpid()

    return value_and_pid


def run_two(session: Session, folder: Path) -> set[int]:
    folder.mkdir()
    found = [session.submit(meet(), str(folder)) for _ in range(2)]
    values = [task.result(PATIENCE) for task in found]
    assert [value for value, _ in values] == [42, 42]
    return {pid for _, pid in values}


def test_workers_share_what_was_imported_once(install: Install, tmp_path: Path) -> None:
    log = install("heavy", HEAVY) / "imports"
    with Session(2, name="share", preload=["heavy"]) as session:
        workers = run_two(session, tmp_path / "meet")
    imported = [int(line) for line in log.read_text().split()]
    assert len(workers) == 2
    assert imported[0] == os.getpid()
    assert len(imported) == 2  # here, and in the process that both workers are forks of
    assert not workers & set(imported)


def test_what_the_script_has_imported_is_there_without_being_asked_for(install: Install, tmp_path: Path) -> None:
    log = install("heavy", HEAVY) / "imports"
    with Session(2, name="default") as session:
        workers = run_two(session, tmp_path / "meet")
    assert not workers & {int(line) for line in log.read_text().split()}


ALONE = """
import time
from bough.executor.host.descriptors import Descriptors
from bough.executor.slots.preloader import Preloader
from bough.executor.host.processes import adopt_orphans
adopt_orphans()
descriptors = Descriptors()
preloader = Preloader("30 slow other", descriptors, None)
def import_until(is_there, is_full):
    deadline = time.monotonic() + 60
    while not is_there() and time.monotonic() < deadline:
        preloader.give_way(is_full)
        descriptors.wait(0.05)
    return list(preloader._wanted)
template = preloader._next
preloader.give_way(True)
while open(f"/proc/{template.pid}/stat").read().split()[2] != "T":
    time.sleep(0.01)
print("it rests")
print(import_until(lambda: preloader._template, False))
preloader.give_way(True)
print(preloader._next, preloader.is_worth_waiting(b"slow"))
{then}
print(import_until(lambda: preloader.has_finished, False))
preloader.close()
"""


@pytest.mark.parametrize("then", ["", "preloader.is_worth_waiting(b'other')"])
def test_while_all_cores_are_busy_only_what_a_function_waits_for_is_imported(then: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.3)\n")
    (tmp_path / "other.py").write_text("")
    (tmp_path / "alone.py").write_text(ALONE.replace("{then}", then))
    done = subprocess.run(
        [sys.executable, "alone.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout.splitlines(), done.stderr) == (["it rests", "['other']", "None False", "[]"], "")


@pytest.mark.parametrize("how", ["keyword", "variable"])
def test_it_can_be_switched_off(how: str, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = install("heavy", HEAVY) / "imports"
    if how == "variable":
        monkeypatch.setenv(preload_list.SWITCH, "0")
    with Session(2, name="off", preload=False if how == "keyword" else None) as session:
        workers = run_two(session, tmp_path / "meet")
    assert workers <= {int(line) for line in log.read_text().split()}


@pytest.mark.parametrize(
    "source",
    [
        "raise RuntimeError('not here')",
        "os._exit(3)",
        "os.kill(os.getpid(), 11)",
        "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "import time; time.sleep(600)",
    ],
    ids=["raises", "exits", "crashes", "threads", "hangs"],
)
def test_an_import_that_misbehaves_harms_nobody(source: str, install: Install, tmp_path: Path) -> None:
    install("awkward", only_here(source))
    log = install("heavy", HEAVY) / "imports"
    with Session(2, name="awkward") as session:
        assert session.submit("awkward".upper).result(PATIENCE) == "AWKWARD"  # it names it, and needs it not
        run_two(session, tmp_path / "meet")
        assert session.command("echo fine").result(PATIENCE).stdout == "fine\n"
    assert log.exists()


def test_workers_have_random_numbers_of_their_own(install: Install, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")

    needs_heavy = meet()

    def draw(path: str) -> float:
        assert needs_heavy(path)[0] == 42
        return float(numpy.random.random())

    install("heavy", HEAVY)
    (tmp_path / "meet").mkdir()
    with Session(2, name="random", preload=["heavy", "numpy"]) as session:
        drawn = [session.submit(draw, str(tmp_path / "meet")) for _ in range(2)]
        assert len({task.result(PATIENCE) for task in drawn}) == 2


def test_a_worker_that_dies_is_replaced_by_another_fork(install: Install, tmp_path: Path) -> None:
    log = install("heavy", HEAVY) / "imports"
    with Session(2, name="dies", preload=["heavy"]) as session:
        run_two(session, tmp_path / "meet")
        with pytest.raises(RuntimeError):  # a BrokenProcessPool
            session.submit(os._exit, 3).result(PATIENCE)
        run_two(session, tmp_path / "again")
    assert len(log.read_text().split()) == 2


def test_a_session_closes_in_order_while_imports_hang(install: Install) -> None:
    install("awkward", only_here("import time; time.sleep(600)"))
    with Session(1, name="closes") as session:
        assert session.submit(abs, -1).result(PATIENCE) == 1
    assert session.is_over
