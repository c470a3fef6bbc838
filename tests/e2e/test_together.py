"""Sessions beside one another, inside tasks, in scripts without a main guard, and on disks that are full."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Processes, Script, published, started, until

import bough
from bough.errors import StoreFailed, StoreHeld, TaskFailed, UserError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


# --- sessions and tasks ------------------------------------------------------------------------------------


def test_bough_can_be_imported_in_a_task_but_a_session_there_is_refused(here: Path) -> None:
    def version() -> str:
        import bough

        return bough.__version__

    def nested() -> None:
        import bough

        with bough.Session():
            pass

    with bough.Session(name="outer") as session:
        assert session.submit(version).result() == bough.__version__
        with pytest.raises(UserError, match=r"bough\.here\(\)\.session\(\)"):
            session.submit(nested).result()
        with pytest.raises(UserError, match=r"bough\.here\(\)\.session\(\)"):
            list(session.map(lambda _: nested(), range(2)))
        refused = session.command(["python3", "-c", "import bough; bough.Session()"])
        error = refused.exception()
        assert error is not None
        assert refused.state == "failed"
    assert os.listdir(here / ".bough") == ["outer"]


def test_a_script_needs_no_main_guard(here: Path) -> None:
    write(here, "helper.py", "FACTOR = 3\ndef times(number):\n    return FACTOR * number\n")
    script = write(
        here,
        "plain.py",
        """
        import os
        import bough
        import helper
        os.write(1, b"top\\n")  # at every import of this file
        def double(number):
            return 2 * helper.times(number)
        session = bough.Session()
        assert list(session.map(double, range(50))) == [6 * number for number in range(50)]
        assert session.submit(double, session.submit(double, 1)).result() == 36
        assert session.command("echo {x}", x=5).result().stdout == "5\\n"
        """,
    )
    with started(here / ".bough" / "plain", script, cwd=here) as (run, processes):
        assert run.finish() == 0, run.said()
        assert processes.all() == []
        assert run.out.read_text() == "top\n"


# --- sessions beside one another ---------------------------------------------------------------------------


def test_the_same_name_twice_at_once_is_refused_naming_pid_and_host(here: Path) -> None:
    script = write(
        here, "twice.py", "import bough\nwith bough.Session(name='twice') as s:\n    s.submit(len, 'abc').result()\n"
    )
    with bough.Session(name="twice") as session:
        with pytest.raises(StoreHeld) as caught:
            bough.Session(name="twice")
        assert isinstance(caught.value, UserError)
        assert f"pid {os.getpid()} on host {socket.gethostname()}" in str(caught.value)
        second = Script(script, cwd=here)
        assert second.finish() != 0
        assert f"held by pid {os.getpid()} on host {socket.gethostname()}" in second.said()
        assert session.submit(len, "abc").result() == 3
        assert published(here / ".bough" / "twice")["pid"] == session.pid
    with started(here / ".bough" / "twice", script, cwd=here) as (third, processes):
        assert third.finish() == 0, third.said()
        assert processes.all() == []


def test_different_names_run_side_by_side(here: Path) -> None:
    names = [f"side{number}" for number in range(3)]
    sessions = [bough.Session(name=name, cores=1) for name in names]
    tasks = [
        session.command("touch {me}; until test -e side0 -a -e side1 -a -e side2; do sleep 0.01; done", me=name)
        for session, name in zip(sessions, names, strict=True)
    ]
    for task in tasks:
        assert task.result(60).returncode == 0
    for session in sessions:
        session.shutdown()
    assert sorted(os.listdir(here / ".bough")) == names
    for name in names:
        assert Processes(here / ".bough" / name).all() == []


# --- disks that are full -----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    disk = tmp_path / "small"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk to fill it: run the tests as root to include it")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        problem = mounted.stderr.decode().strip()
        pytest.skip(f"a small disk cannot be mounted ({problem}): root, where mounting is allowed, includes it")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    """Leave no space."""
    path = disk / "filler"
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    size = 1 << 16
    while size:
        try:
            os.write(number, bytes(size))
        except OSError:
            size >>= 1
    os.close(number)
    return path


def leave_room(log: Path) -> None:
    """Make room in the last page of a file for what will be said."""
    with open(log, "a") as file:
        file.write("\n" * (4097 - log.stat().st_size % 4096))


def test_a_session_on_a_full_disk_is_refused_clearly_and_opens_when_there_is_space(small: Path, here: Path) -> None:
    store = small / "store"
    filler = fill(small)
    with pytest.raises(StoreFailed, match=r"full|No space left"):
        bough.Session(store=store)
    filler.unlink()
    with bough.Session(store=store) as session:
        assert session.submit(len, "abc").result() == 3
    assert Processes(store).all() == []


FULL = """
    import os, sys, time
    from pathlib import Path
    import bough
    def work(number):
        with open("log.txt", "a") as log:
            log.write(f"{number}\\n")
        return number if number < 20 else (number, os.urandom(20_000))
    with bough.Session(store=sys.argv[1], cores=2) as session:
        before = [session.submit(work, number) for number in range(20)]
        assert [task.result() for task in before] == list(range(20))
        Path("before").touch()
        while not os.path.exists("full"):
            time.sleep(0.01)
        after = [session.submit(work, number) for number in range(20, 40)]
        assert [task.result()[0] for task in after] == list(range(20, 40))
        assert [number for number, _ in session.map(work, range(40, 50))] == list(range(40, 50))
"""


def run_until_full(store: Path, run: Script, processes: Processes, here: Path) -> Path:
    """Let the first tasks end, fill the disk and wait until the server has noticed; what fills the disk."""
    until(lambda: (here / "before").exists() or run.is_over, "the first tasks", story=run.said)
    log = store / "server.log"
    leave_room(log)
    filler = fill(store.parent)
    (here / "full").touch()
    stuck = re.compile(r"the disk of \S+ is full: .* tried every")
    until(lambda: stuck.search(log.read_text()) or run.is_over, "a server that cannot write", story=processes.story)
    assert not run.is_over, run.said() + processes.story()
    return filler


def test_a_disk_that_fills_up_stops_the_work_and_space_lets_it_go_on(small: Path, here: Path) -> None:
    store, script = small / "store", write(here, "work.py", FULL)
    with started(store, script, str(store), cwd=here) as (run, processes):
        run_until_full(store, run, processes, here).unlink()
        assert run.finish() == 0, run.said()
        processes.wait_until_gone()
    assert sorted(map(int, (here / "log.txt").read_text().split())) == list(range(50))


def test_a_script_killed_on_a_full_disk_loses_nothing_that_was_acknowledged(small: Path, here: Path) -> None:
    store, script = small / "store", write(here, "work.py", FULL)
    with started(store, script, str(store), cwd=here) as (run, processes):
        filler = run_until_full(store, run, processes, here)
        run.process.kill()
        run.finish()
        processes.wait_until_gone()
        filler.unlink()
    with started(store, script, str(store), cwd=here) as (run, processes):
        assert run.finish() == 0, run.said()
        processes.wait_until_gone()
    ran = Counter(map(int, (here / "log.txt").read_text().split()))
    assert sorted(ran) == list(range(50))
    assert all(ran[number] == 1 for number in range(20))  # later ones may have run with no room to write it down


BIG = """
    import os, sys, time
    from pathlib import Path
    import bough
    def work(number):
        with open("log.txt", "a") as log:
            log.write(f"{number}\\n")
        if number:
            while not os.path.exists("full"):
                time.sleep(0.01)
            print("word " * 2_000)
        return number, os.urandom(400_000)
    with bough.Session(store=sys.argv[1], cores=2) as session:
        first = session.submit(work, 0)
        assert first.result()[0] == 0
        tasks = [session.submit(work, number) for number in (1, 2)]
        Path("before").touch()
        big = session.submit(len, os.urandom(300_000)) if len(sys.argv) < 3 else None
        assert [task.result()[0] for task in tasks] == [1, 2]
        assert all(task.stdout == "word " * 2_000 + "\\n" for task in tasks)
        assert big is None or big.result() == 300_000
"""


def test_results_of_every_size_prints_and_arguments_wait_for_a_full_store(small: Path, here: Path) -> None:
    """More than 256 kB goes into files of their own, which executors and clients write by themselves."""
    store, script = small / "store", write(here, "work.py", BIG)
    with started(store, script, str(store), cwd=here) as (run, processes):
        until(lambda: (here / "before").exists() or run.is_over, "the first task", story=run.said)
        leave_room(store / "server.log")
        filler = fill(small)
        (here / "full").touch()
        waits = "results, outputs and files wait until then"
        until(lambda: waits in run.said() or run.is_over, "a word about it", story=processes.story)
        assert not run.is_over, run.said() + processes.story()
        filler.unlink()
        assert run.finish() == 0, run.said() + processes.story()
        processes.wait_until_gone()
    assert sorted((here / "log.txt").read_text().split()) == ["0", "1", "2"]  # nothing ran twice
    assert not [path for path in store.rglob("*") if ".part" in path.name]


ROOMY = """
    import sys
    import bough
    with bough.Session(store=sys.argv[1], cores=1) as session:
        first = session.submit(bytes, 1_500_000)
        assert len(first.result()) == 1_500_000
        tasks = session.map(bytes, [3_000_000, 10])
        assert [len(value) for value in tasks] == [3_000_000, 10]
        print(session.submit(len, "abc").result())
"""


def test_a_result_that_waits_for_space_is_told_by_the_script_explain_and_status(small: Path, here: Path) -> None:
    """There is too little space for it, and enough for all else: only its worker knows."""
    store, script = small / "store", write(here, "work.py", ROOMY)

    def ask(*words: str) -> str:
        command = [sys.executable, "-m", "bough.cli.main", *words, "--store", str(store)]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=here, timeout=60).stdout

    with started(store, script, str(store), cwd=here) as (run, processes):
        full, again = f"the disk of {store} is full", f"there is space again on the disk of {store}"
        until(lambda: full in run.said() or run.is_over, "a word about it", story=processes.story)
        assert not run.is_over, run.said() + processes.story()
        waits = f"waits for space on the disk of {store}, to write its result or output"
        assert f"it {waits}" in ask("explain", "2.0")
        assert f"task 2.0 (bytes): {waits[:40]}" in ask("status")  # a table cuts long texts
        assert "waits for space" not in ask("explain", "1")
        subprocess.run(["mount", "-o", "remount,size=16m", small], check=True)
        assert run.finish() == 0, run.said() + processes.story()
        told = run.err.read_text()
        assert (told.count(full), told.count(again)) == (1, 1), told
        assert told.index(full) < told.index(again)


def test_commands_whose_output_finds_the_store_full_run_again_when_there_is_space(small: Path, here: Path) -> None:
    store = small / "store"
    with bough.Session(store=store, cores=1) as session:
        assert session.command("echo begun").result(60).stdout == "begun\n"
        fails = f"touch {here}/failed; exit 1"
        waits = f"echo again >> {here}/runs; until test -e {here}/full; do sleep 0.01; done"
        task = session.command(f"{waits}; seq 1 9999 || ({fails})")
        until((here / "runs").exists, "its start")
        log = store / "executor.log"
        leave_room(log)
        filler = fill(small)
        (here / "full").touch()
        until((here / "failed").exists, "its failure")
        until(lambda: "what a command prints cannot be written" in log.read_text(), "its worker, who waits")
        filler.unlink()
        assert task.result(60).stdout == "".join(f"{number}\n" for number in range(1, 10_000))
        assert task.attempts == 2  # and that cost it no retry, of which it has none
    assert (here / "runs").read_text().split() == ["again", "again"]


def test_a_command_that_fills_the_disk_with_its_own_output_fails_and_says_why(small: Path, here: Path) -> None:
    """Its stderr may have found no space either, and to run it again would be in vain."""
    with bough.Session(store=small / "store", cores=1, on_failure="ignore") as session:
        task = session.command("head -c 8000000 /dev/zero > {o:w}", o=str(small / "big"))
        with pytest.raises(TaskFailed, match=f"exit code 1; the disk of {small} was full"):
            task.result(60)
        assert task.attempts == 1
        assert not list(small.glob("*big*"))
