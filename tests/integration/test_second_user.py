"""Another user of the machine, while servers, executors, relays and sessions run under every umask."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_server import Server
from server_client import until

from bough.wire.client_messages import Blob
from bough.wire.executor_messages import ExecutorHello, Leave
from tests.second_user import NOBODY, as_another, needs_root, reached, street

MASKS = pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=oct)


class Household:
    """A user's home, project and temporary folder on a machine that others use, too."""

    def __init__(self, place: Path, mask: int) -> None:
        self.place = place
        self.home, self.project, self.tmp = place / "home", place / "project", place / "tmp"
        self.project.mkdir()
        self.tmp.mkdir()
        self.tmp.chmod(0o1777)
        self.mask = mask
        spared = ("BOUGH_SERVER", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME")
        self.environment = {name: value for name, value in os.environ.items() if name not in spared}
        self.environment |= {"BOUGH_HOME": str(self.home), "TMPDIR": str(self.tmp), "PASSWORD": "secret"}

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A process of this user, which does not outlive a test that fails."""
        with subprocess.Popen(
            [sys.executable, *words],
            cwd=self.project,
            env=self.environment,
            umask=self.mask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def python(self, *words: str, code: int = 0) -> str:
        with self.running(*words) as process:
            out, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        return out if not code else errors

    def script(self, name: str, text: str) -> str:
        (self.project / name).write_text(text)
        return name

    def bough(self, *words: str, code: int = 0) -> str:
        return self.python("-m", "bough.cli.main", *words, code=code)

    def left(self, kind: str) -> list[Path]:
        return sorted(self.tmp.glob(f"bough-{kind}-*"))


@pytest.fixture
def household(request: pytest.FixtureRequest) -> Iterator[Household]:
    with street() as place:
        yield Household(place, getattr(request, "param", 0o022))


# --- what others reach ---------------------------------------------------------------------------------

WORK = """
import os, sys, bough
with bough.Session(*sys.argv[1:]) as s:
    done = s.command("umask > {o:w}; head -c 100000 /dev/zero", o="deep/mask.txt")
    big = s.submit(bytes, 1_000_000)
    done.result(60), big.result(60)
    print("ready", flush=True)
    s.command("until [ -e go ]; do sleep 0.02; done").result(60)
"""


def check_outputs(household: Household) -> None:
    """What commands write is the user's, as the user's umask has it."""
    output, mask = household.project / "deep" / "mask.txt", household.mask
    assert int(output.read_text(), 8) == mask
    assert output.stat().st_mode & 0o777 == 0o666 & ~mask
    assert output.parent.stat().st_mode & 0o777 == 0o777 & ~mask


@needs_root
@MASKS
def test_another_user_gets_nothing_of_a_session(mask: int) -> None:
    with street() as place:
        household = Household(place, mask)
        with household.running(household.script("work.py", WORK)) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            store = household.project / ".bough"
            assert {"server.json", "journal.db-wal", "executor.log"} <= {path.name for path in store.rglob("*")}
            assert any(path.is_socket() for path in store.rglob("*"))
            assert reached(store) == []
            (household.project / "go").touch()
        assert process.returncode == 0
        assert reached(store) == []
        check_outputs(household)
        assert os.listdir(household.tmp) == []


@needs_root
@MASKS
def test_another_user_gets_nothing_of_a_service_its_relay_its_executor_and_its_backup(mask: int) -> None:
    with street() as place:
        household = Household(place, mask)
        store, backup, trap = place / "store", place / "backup", household.tmp / "bough-0"
        as_another(lambda: (os.mkdir(trap), os.chmod(trap, 0o777)))  # where executors had their files once
        assert trap.stat().st_uid == NOBODY
        running = []
        try:
            listen = ("--listen", "127.0.0.1:0")
            server = json.loads(
                household.bough("server", "start", "--detach", "--json", "--store", str(store), *listen)
            )
            running.append(server["pid"])
            (store / "token").write_text("another")  # so that the executor takes the store for one it cannot see
            household.bough("server", "access", "--role", "execute", "--output", "access.json")
            relay = json.loads(household.bough("relay", "start", "--detach", "--json", "--server", "access.json"))
            running.append(relay["pid"])
            executor = json.loads(household.bough("executor", "start", "--detach", "--json", "--cores", "1"))
            running.append(executor["pid"])
            with household.running(household.script("work.py", WORK), server["address"]) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                household.bough("store", "backup", "--store", str(store), str(backup))
                (own,) = household.left("executor")
                assert list(own.glob("out/*.out"))
                places = (household.home, store, backup, household.project / ".bough", own)
                assert any(path.is_socket() for path in household.home.rglob("*"))
                assert reached(*places) == []
                assert reached(household.project / "access.json") == []
                (household.project / "go").touch()
            assert process.returncode == 0
            check_outputs(household)
            household.bough("server", "stop", "--executors")
            until(lambda: not household.left("executor"), "the end of the executor's folder")
            household.bough("relay", "stop")
            running.clear()
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
        assert reached(*places[:-1]) == []
        assert os.listdir(trap) == []
        assert os.listdir(household.tmp) == ["bough-0"]


@needs_root
def test_what_somebody_else_has_put_into_the_place_of_ours_is_not_used(household: Household) -> None:
    hostile = (household.project / ".bough", household.home)
    household.project.chmod(0o1777)
    household.place.chmod(0o1777)
    as_another(lambda: [os.mkdir(path) for path in hostile])
    assert "belongs to uid 65534, not to you" in household.bough("status", code=3)
    assert "belongs to uid 65534, not to you" in household.bough("server", "start", code=3)
    script = household.script("a.py", "import bough\nwith bough.Session(): pass\n")
    assert "belongs to uid 65534, not to you" in household.bough("run", script, code=3)
    hostile[0].rmdir()
    as_another(lambda: os.symlink(household.tmp, hostile[0]))
    assert "symbolic link of uid 65534, not yours" in household.bough("run", script, code=3)
    assert os.listdir(household.tmp) == os.listdir(household.home) == []


def test_an_old_store_is_closed_to_others_and_its_log_says_so(household: Household) -> None:
    script = household.script("a.py", "import bough\nwith bough.Session() as s: s.submit(abs, 1).result()\n")
    household.python(script)
    store = household.project / ".bough" / "a"
    for folder in (store.parent, store, store / "results"):
        folder.chmod(0o755)
    (store / "journal.db").chmod(0o644)
    household.python(script)
    assert [path.stat().st_mode & 0o777 for path in (store.parent, store, store / "results")] == [0o700] * 3
    assert (store / "journal.db").stat().st_mode & 0o777 == 0o600
    assert (store / "server.log").read_text().count("it is closed to them now") == 1


# --- folders that are left behind ----------------------------------------------------------------------

NESTED = """
import os, sys, time, bough
def inner(x): return 2 * x
def outer(x):
    s = bough.here().session()
    value = s.submit(inner, x).result()
    open("begun", "w").close()
    if x < 0:
        time.sleep(600)
    s.shutdown()
    return value
with bough.Session() as s:
    print(s.submit(outer, 4).result(60), flush=True)
    if "kill" in sys.argv:
        os.unlink("begun")
        task = s.submit(outer, -1)
        while not os.path.exists("begun"): time.sleep(0.02)
        task.kill()
        print(type(task.exception(30)).__name__)
"""

DRIVER = """
import sys, time, bough.driver as driver
print(driver.check_output(["echo", "hello"], text=True).strip(), flush=True)
if sys.argv[1:]: time.sleep(600)
"""


@pytest.mark.parametrize("how", ["end", "kill"])
def test_sessions_within_tasks_leave_no_folder_behind(household: Household, how: str) -> None:
    said = household.python(household.script("nested.py", NESTED), how).splitlines()
    assert said[0] == "8"
    assert household.left("nested") == []


def test_the_folder_of_a_killed_drivers_program_is_removed_by_the_next_and_a_living_ones_is_not(
    household: Household,
) -> None:
    script = household.script("drive.py", DRIVER)
    with household.running(script, "stay") as killed, household.running(script, "stay") as living:
        for process in (killed, living):
            assert process.stdout is not None
            assert process.stdout.readline() == "hello\n"
        both = household.left("driver")
        assert len(both) == 2
        killed.kill()
        killed.wait()

        def is_swept() -> bool:  # its server leaves its store meanwhile, and until then it is spared
            assert household.python(script) == "hello\n"
            return len(household.left("driver")) == 1

        until(is_swept, "the removal of the folder")
        assert household.left("driver")[0] in both
        living.kill()


# --- blobs ---------------------------------------------------------------------------------------------


def test_an_executor_hangs_up_on_a_blob_that_is_not_what_its_name_says(tmp_path: Path) -> None:
    server = Server(tmp_path, 1, False)
    server.send(Blob(b"x" * 16, b"other code"))
    server.sock.settimeout(20)
    while server.sock.recv(1 << 16):
        pass
    server.sock.close()
    server.said.clear()
    server.accept()  # it comes back, and works
    assert any(isinstance(said, ExecutorHello) for said in server.said)
    span = server.call(abs, -3)
    server.until(lambda: any(getattr(news, "span", 0) == span for news in server.news))
    server.send(Leave(0.1))
    server.end()
    assert server.process.returncode == 0
