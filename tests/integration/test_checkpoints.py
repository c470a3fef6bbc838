"""Tasks that save their state before they must leave: by a signal or a command, on shared storage and in sandboxes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service

import bough
from bough.api.session.session import opened_sessions
from bough.cli.targets.live_server import connect_client
from bough.errors import UserError
from bough.testing.builders import question

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

COUNTER = """
import os, signal, sys, time
path, notes = os.environ["BOUGH_CHECKPOINT"], sys.argv[1]
at = int(open(path).read()) if os.path.exists(path) else 0
def note(text):
    with open(notes, "a") as file:
        file.write(text + "\\n")
def save(*_):
    with open(path + ".new", "w") as file:
        file.write(str(at))
    os.replace(path + ".new", path)
    if "leave" in sys.argv:
        sys.exit(0)
signal.signal(signal.SIGUSR1, save)
note(f"{os.environ['SITE']} from {at}")
while at < 7:
    at += 1
open("progress", "w").write(str(at))
note("full")
while os.environ["SITE"] == "b":
    time.sleep(0.02)
print("reached", at)
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    made = House(tmp_path)
    monkeypatch.chdir(made.work)
    monkeypatch.setenv("BOUGH_HOME", str(made.service.home))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield made
    made.service.clean_up()
    opened_sessions.clear()


class House:
    """A service with the sites a and b; on a the tasks here end, on b they run until they are ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        self.notes = folder / "notes"
        self.notes.touch()
        (self.work / "counter.py").write_text(COUNTER)
        self.service = HidingService(folder / "service")

    @property
    def address(self) -> str:
        return f"unix:{self.service.address}"

    def open(self, *, cores: int = 1, is_far: bool = False, server_sees: bool = True) -> None:
        """Start all; a is away, so that the first attempts run on b."""
        service = self.service
        if not server_sees:
            service.hidden = (self.work,)
        service.start()
        if is_far:
            service.hidden = (self.work, service.home / "server" / "store")
        for site in ("a", "b"):
            service.environment["SITE"] = site
            work = ["--work", str(self.folder / f"far-{site}")] if is_far else []
            service.executor("--site", site, *work, cores=cores)
        service.bough("site", "away", "a")

    def counter(self, words: str = "") -> str:
        return f"{sys.executable} counter.py {self.notes} {words}"

    def begun(self) -> list[str]:
        """Where executions began, and from what they counted, in order."""
        return [line for line in self.notes.read_text().splitlines() if line != "full"]

    def move_from_b_to_a(self, grace: str = "30s", tasks: int = 1) -> None:
        """B leaves when its tasks have counted; when all of it is given back, a is there again."""
        until(lambda: self.notes.read_text().count("full") == tasks, "the tasks to count")
        self.service.bough("site", "away", "b", "--grace", grace)
        until(lambda: self.site("b")["tasks"] == 0, "the tasks to be given back")
        self.service.bough("site", "back", "a")

    def site(self, name: str) -> dict[str, object]:
        with connect_client(self.address) as server:
            return next(one for one in server.ask(question("sites")) if one["site"] == name)

    def messages(self) -> list[str]:
        """What is said of attempts that were given back."""
        statement = "SELECT message FROM attempts WHERE state = 'given back'"
        with connect_client(self.address) as server:
            server.ask(question("project"))
            return [row[0] for row in server.ask(question("sql", statement=statement)).rows]


class HidingService(Service):
    """Processes that are started later see the folders in `hidden` as empty."""

    hidden: tuple[Path, ...] = ()

    def _spawn(self, words: list[str], log: Path, python: str = sys.executable) -> subprocess.Popen[bytes]:
        if not self.hidden:
            return super()._spawn(words, log, python)
        mounts = "".join(f"mount -t tmpfs none '{folder}' && " for folder in self.hidden)
        with open(log, "ab") as file:
            return subprocess.Popen(
                ["unshare", "-m", "sh", "-c", mounts + 'exec "$0" "$@"', python, "-m", "bough.cli.main", *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )


def until(condition: Callable[[], object], what: str, patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


@pytest.mark.parametrize("words", ["", "leave"])
def test_a_task_goes_on_from_its_checkpoint_elsewhere(house: House, words: str) -> None:
    """Whether it waits to be ended once it has saved its state, or leaves by itself, with exit code 0."""
    house.open()
    with bough.Session(house.address, name="w") as s:
        task = s.command(house.counter(words), checkpoint="USR1")
        house.move_from_b_to_a()
        assert task.result().stdout == "reached 7\n"
        assert task.attempts == 2
    assert house.begun() == ["b from 0", "a from 7"]
    assert house.messages() == ["given back: site b left (a user said so); with a checkpoint"]
    assert not list((house.work / ".bough" / "checkpoints").rglob("*.0"))  # it is not needed any more


def test_a_command_beside_the_task_writes_the_checkpoint(house: House) -> None:
    house.open()
    how = bough.Checkpoint(command="cp progress $BOUGH_CHECKPOINT", file="state/now")
    with bough.Session(house.address, name="w") as s:
        task = s.command(house.counter(), checkpoint=how)
        house.move_from_b_to_a()
        assert task.result().stdout == "reached 7\n"
    assert house.begun() == ["b from 0", "a from 7"]
    assert (house.work / "state" / "now").read_text() == "7"  # the user's own file stays


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo half > $BOUGH_CHECKPOINT; echo broken; exit 3", "its checkpoint command ended with 3: broken"),
        ("true", "its checkpoint command did not write "),
    ],
)
def test_a_checkpoint_that_fails_is_said_and_the_task_starts_over(house: House, command: str, said: str) -> None:
    house.open()
    with bough.Session(house.address, name="w") as s:
        task = s.command(house.counter(), checkpoint=command)
        house.move_from_b_to_a(grace="3s")
        assert task.result().stdout == "reached 7\n"
    assert house.begun() == ["b from 0", "a from 0"]
    [message] = house.messages()
    assert said in message


def test_the_tasks_of_a_sweep_have_checkpoints_of_their_own(house: House) -> None:
    house.open(cores=2)
    with bough.Session(house.address, name="w") as s:
        swept = s.sweep(house.counter("{x}"), bough.product(x=["one", "two"]), checkpoint="USR1")
        house.move_from_b_to_a(tasks=2)
        assert [one.stdout for one in swept.results()] == ["reached 7\n"] * 2
    assert sorted(house.begun()) == ["a from 7", "a from 7", "b from 0", "b from 0"]


def count(notes: str) -> int:
    """As the program, in a function."""
    path = Path(os.environ["BOUGH_CHECKPOINT"])
    at = int(path.read_text()) if path.exists() else 0

    def save(*_: object) -> None:
        path.write_text(str(at))

    signal.signal(signal.SIGUSR1, save)
    with open(notes, "a", encoding="ascii") as file:
        file.write(f"{os.environ['SITE']} from {at}\n")
        at = 7
        file.write("full\n")
    while os.environ["SITE"] == "b":
        time.sleep(0.02)
    return at


def test_a_function_goes_on_from_its_checkpoint(house: House) -> None:
    house.open()
    with bough.Session(house.address, name="w") as s:
        task = s.options(checkpoint="USR1").submit(count, str(house.notes))
        house.move_from_b_to_a()
        assert task.result() == 7
    assert house.begun() == ["b from 0", "a from 7"]


def test_functions_of_arrays_and_what_is_fed_go_on_from_checkpoints_of_their_own(house: House) -> None:
    house.open(cores=4)
    with bough.Session(house.address, name="w") as s:
        saving = s.options(checkpoint="USR1")
        mapped = saving.map(count, [str(house.notes)] * 2)
        fed = saving.feed(count, iter([str(house.notes)]))
        program = s.feed(f"{house.counter()} {{x}}", iter([{"x": "one"}]), checkpoint="USR1", checkpoint_file="states/")
        house.move_from_b_to_a(tasks=4)
        assert mapped.results() == [7, 7]
        assert fed.results() == [7]
        assert [one.stdout for one in program.results()] == ["reached 7\n"]
    assert sorted(house.begun()) == ["a from 7"] * 4 + ["b from 0"] * 4
    assert not list((house.work / "states").iterdir())  # they are not needed any more
    assert not [path for path in (house.work / ".bough" / "checkpoints").rglob("*") if path.is_file()]


def which(index: int) -> tuple[int, str]:
    """Two elements that run one after the other in one worker."""
    return index, os.environ["BOUGH_CHECKPOINT"]


def test_each_function_of_an_array_has_a_file_of_its_own_and_others_have_none(house: House) -> None:
    house.open()
    with bough.Session(house.address, name="w") as s:
        found = s.options(checkpoint="USR1").map(which, range(300)).results()
        assert len({path for _, path in found}) == 300
        assert all(path.endswith(f".{index}") for index, path in found)
        assert s.submit(os.environ.get, "BOUGH_CHECKPOINT").result() is None
        with pytest.raises(UserError, match="name a folder"):
            s.options(checkpoint="USR1", checkpoint_file="state").map(which, range(3))
        with pytest.raises(UserError, match="name a folder"):
            s.options(checkpoint="USR1", checkpoint_file="/tmp/state").feed(which, range(3))


def test_the_command_line_says_how_a_command_saves_its_state(house: House) -> None:
    house.open(cores=2)
    bough_ = [sys.executable, "-m", "bough.cli.main"]
    words = [*bough_, "submit", "--array", "1-2", "--checkpoint", "USR1", "--checkpoint-file", "states/", "--wait"]
    submitted = subprocess.Popen([*words, "--", house.counter() + " {}"], cwd=house.work)
    try:
        house.move_from_b_to_a(tasks=2)
        assert submitted.wait(60) == 0
    finally:
        submitted.kill()
        submitted.wait()
    assert sorted(house.begun()) == ["a from 7", "a from 7", "b from 0", "b from 0"]
    for wrong, said in (
        (["submit", "--checkpoint-file", "x", "--", "true"], "goes with --checkpoint"),
        (["submit", "--checkpoint", "USR9", "--", "true"], "there is no such signal; did you mean USR"),
        (["run", "--checkpoint", "KILL", "--", "true"], "no program can act on that signal"),
        (["run", "--array", "1-2", "--checkpoint", "USR1", "--checkpoint-file", "x", "--", "true {}"], "name a folder"),
        (["submit", "--checkpoint", "USR1", "list.txt"], "--checkpoint is for a command"),
    ):
        Path("list.txt").write_text("true\n")
        refused = subprocess.run([*bough_, *wrong], capture_output=True, text=True, check=False, timeout=60)
        assert refused.returncode == 2, wrong
        assert said in refused.stderr


def test_an_executor_that_is_stopped_lets_its_tasks_save_their_state(house: House) -> None:
    house.open()
    with bough.Session(house.address, name="w") as s:
        task = s.command(house.counter(), checkpoint="USR1")
        until(lambda: "full" in house.notes.read_text(), "the task to count")
        house.service.bough("site", "back", "a")
        house.service.bough("executor", "stop", "2")
        assert task.result().stdout == "reached 7\n"
    assert house.begun() == ["b from 0", "a from 7"]
    assert house.messages() == ["given back: its executor was stopped; with a checkpoint"]


def _can_hide() -> bool:
    words = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(
    not _can_hide(),
    reason="directories are hidden in mount namespaces, which needs root: run the tests as root to include it",
)
@pytest.mark.parametrize(
    ("words", "file", "server_sees"), [("", None, True), ("leave", "state.now", True), ("leave", None, False)]
)
def test_a_checkpoint_travels_from_sandbox_to_sandbox(
    house: House, words: str, file: str | None, server_sees: bool
) -> None:
    house.open(is_far=True, server_sees=server_sees)
    with bough.Session(house.address, name="w") as s:
        command = f"{sys.executable} {{program:r}} {house.notes} {words}"
        task = s.command(command, program=house.work / "counter.py", checkpoint="USR1", checkpoint_file=file)
        house.move_from_b_to_a()
        assert task.result().stdout == "reached 7\n"
        assert task.attempts == 2
    assert house.begun() == ["b from 0", "a from 7"]
    assert house.messages() == ["given back: site b left (a user said so); with a checkpoint"]
