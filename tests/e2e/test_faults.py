"""Faults done for real: processes killed and stopped, cables cut, disks filled, descriptors used up.

Every task notes each of its executions in a file, so that what ran twice is seen. `BOUGH_FAULTS_KEEP` keeps the
folder of a test that fails.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from processes import is_alive, until
from workshop import Workshop, link, opened_workshop, small_disk

import bough
import bough.api.session.remote
from bough.errors import BoughError, TaskFailed

PATIENT = ("--reconnect", "60s")  # where an executor that is slow must not be taken for lost

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Workshop]:
    with opened_workshop(tmp_path, monkeypatch) as made:
        yield made
    keep = os.environ.get("BOUGH_FAULTS_KEEP")
    if keep:
        place = Path(keep) / request.node.name
        shutil.copytree(tmp_path, place, ignore=shutil.ignore_patterns("*.sock"), dirs_exist_ok=True)


class Tasks:
    """Commands that note their executions, and wait until they are let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tasks"
        self.folder.mkdir()

    def noted(self, name: str) -> str:
        """Notes that it ran, its attempt and its process."""
        return f"echo {name} $BOUGH_ATTEMPT $$ >> {self.folder}/runs"

    def gated(self, name: str) -> str:
        """Runs until it is let go, each attempt for itself."""
        gate = f"{self.folder}/{name}.$BOUGH_ATTEMPT"
        return f"{self.noted(name)}; until [ -e {gate} ]; do sleep 0.05; done; echo $BOUGH_ATTEMPT"

    def go(self, name: str, attempt: int = 1) -> None:
        (self.folder / f"{name}.{attempt}").touch()

    def runs(self) -> list[tuple[str, int, int]]:
        """Name, attempt and process of each execution, in order."""
        path = self.folder / "runs"
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(name, int(attempt), int(pid)) for name, attempt, pid in words]

    def of(self, name: str) -> list[tuple[int, int]]:
        return [(attempt, pid) for found, attempt, pid in self.runs() if found == name]

    def begun(self, name: str, attempt: int = 1, patience: float = 60) -> int:
        """Wait for an attempt to run; its process."""
        until(lambda: attempt in dict(self.of(name)), f"attempt {attempt} of {name}", patience)
        return dict(self.of(name))[attempt]


@pytest.fixture
def tasks(tmp_path: Path) -> Tasks:
    return Tasks(tmp_path)


def square(x: int) -> int:
    return x * x


def session(shop: Workshop, name: str = "work") -> bough.Session:
    return bough.Session(shop.address, name=name)


# --- the server is killed -------------------------------------------------------------------------------


def test_after_kill_9_of_the_server_running_tasks_are_adopted_and_none_runs_twice(shop: Workshop, tasks: Tasks) -> None:
    shop.start(*PATIENT)
    shop.executor(cores=2)
    with session(shop) as s:
        long, short = s.command(tasks.gated("long")), s.command(tasks.gated("short"))
        waiting = [s.command(tasks.noted(f"waiting{number}")) for number in range(20)]
        tasks.begun("long")
        ended = tasks.begun("short")

        shop.kill()
        tasks.go("short")
        until(lambda: not is_alive(ended), "the end of the short task, while there is no server")
        shop.start()

        assert short.result(60).stdout == "1\n"
        assert [task.result(60).returncode for task in waiting] == [0] * 20
        assert not long.done()
        tasks.go("long")
        assert long.result(60).stdout == "1\n"
    counts = Counter(name for name, _, _ in tasks.runs())
    assert counts == dict.fromkeys(["long", "short", *(f"waiting{number}" for number in range(20))], 1)


def test_what_was_acknowledged_before_kill_9_is_run_once_by_the_next_server(shop: Workshop, tasks: Tasks) -> None:
    shop.start()
    for number in range(3):
        shop.bough("submit", "--", tasks.noted(f"one{number}"))
    shop.bough("submit", "--array", "1-50", "--", tasks.noted("many{index}"))
    shop.kill()
    shop.start()
    shop.executor(cores=2)

    expected = {f"one{number}" for number in range(3)} | {f"many{number}" for number in range(1, 51)}
    shop.until(lambda: {name for name, _, _ in tasks.runs()} == expected, "all that was submitted")
    assert len(tasks.runs()) == 53


def test_the_server_is_killed_again_and_again_and_a_scripts_futures_complete(shop: Workshop, tasks: Tasks) -> None:
    shop.start(*PATIENT)
    shop.executor(cores=2)
    with session(shop) as s:
        results = []
        for number in range(4):
            results += [s.submit(square, x) for x in range(50)]
            array = s.map(square, range(2_000))
            command = s.command(tasks.noted(f"round{number}"))
            shop.kill()
            shop.start()
            results.append(command)
            assert sum(array) == sum(x * x for x in range(2_000))
        assert all(task.exception(30) is None for task in results)
    assert sorted(name for name, _, _ in tasks.runs()) == [f"round{number}" for number in range(4)]


def test_a_workflow_of_a_hundred_thousand_tasks_is_back_in_seconds(shop: Workshop, tasks: Tasks) -> None:
    shop.start(*PATIENT)
    shop.executor(cores=2)
    with session(shop) as s:
        array = s.map(slow_square, range(100_000))
        until(lambda: s.progress.counts().get("done", 0) > 10_000, "some of the array")
        shop.kill()
        seconds = shop.start()
        assert array.results() == [x * x for x in range(100_000)]
    assert seconds < 10, f"it took {seconds:.1f} s"


def slow_square(x: int) -> int:
    end = time.perf_counter() + 1e-5
    while time.perf_counter() < end:
        pass
    return x * x


# --- executors that are gone ----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_what_a_lost_executor_ran_goes_first_elsewhere(shop: Workshop, tasks: Tasks, fault: str) -> None:
    shop.start()
    doomed = shop.executor()
    with session(shop) as s:
        lost = s.command(tasks.gated("lost"))
        process = tasks.begun("lost")
        others = [s.command(tasks.noted(f"other{number}")) for number in range(5)]
        if fault == "kill":
            doomed.kill()
            until(lambda: not is_alive(process), "the end of what it ran")
        else:
            doomed.pause()
        shop.until(lambda: shop.state_of(doomed) == "gone", "its loss")
        shop.executor()
        tasks.begun("lost", 2)
        assert [name for name, _, _ in tasks.runs()] == ["lost", "lost"]
        tasks.go("lost", 2)
        assert lost.result(60).stdout == "2\n"
        assert [task.result(60).returncode for task in others] == [0] * 5
        if fault == "stop":
            doomed.resume()
            until(lambda: not is_alive(process), "the end of the first attempt")
    assert len(tasks.runs()) == 7


@pytest.mark.parametrize("winner", [1, 2])
def test_of_two_attempts_around_a_cut_the_first_good_result_wins(shop: Workshop, tasks: Tasks, winner: int) -> None:
    with link() as cable:
        shop.start("--listen", f"{cable.here}:0")
        far = shop.executor("--server", shop.access("execute"), prefix=cable.inside)
        with session(shop) as s:
            task = s.command(tasks.gated("task"))
            first = tasks.begun("task")
            cable.cut()
            shop.until(lambda: shop.state_of(far) == "gone", "its loss")
            shop.executor()
            second = tasks.begun("task", 2)
            assert is_alive(first), "it does not go on working while it is cut off"
            tasks.go("task", winner)
            if winner == 1:
                until(lambda: not is_alive(first), "the end of the first attempt, behind the cut")
                cable.mend()
                assert task.result(60).stdout == "1\n"
                until(lambda: not is_alive(second), "the end of the second attempt")
            else:
                assert task.result(60).stdout == "2\n"
                cable.mend()
                until(lambda: not is_alive(first), "the end of the first attempt")
            shop.until(lambda: {entry["state"] for entry in shop.entries()} == {"idle"}, "both to be idle")
    assert [attempt for attempt, _ in tasks.of("task")] == [1, 2]


def test_an_executor_goes_on_while_it_is_cut_off_and_reports_on_return(shop: Workshop, tasks: Tasks) -> None:
    with link() as cable:
        shop.start("--listen", f"{cable.here}:0", *PATIENT)
        far = shop.executor("--server", shop.access("execute"), cores=4, prefix=cable.inside)
        with session(shop) as s:
            found = [s.command(tasks.gated(f"task{number}")) for number in range(4)]
            running = [tasks.begun(f"task{number}") for number in range(4)]
            cable.cut()
            shop.until(lambda: shop.state_of(far) == "missing", "its being missed")
            for number in range(3):
                tasks.go(f"task{number}")
            until(lambda: not any(map(is_alive, running[:3])), "the end of three, behind the cut")
            assert not any(task.done() for task in found)
            assert is_alive(running[3])
            cable.mend()
            assert [task.result(60).stdout for task in found[:3]] == ["1\n"] * 3
            tasks.go("task3")
            assert found[3].result(60).stdout == "1\n"
    assert [attempt for _, attempt, _ in tasks.runs()] == [1] * 4


# --- tasks that fail ------------------------------------------------------------------------------------


def test_a_users_failure_counts_against_its_retries(shop: Workshop, tasks: Tasks) -> None:
    shop.start(*PATIENT)
    shop.executor(cores=2)
    with session(shop) as s:
        fails = s.command(f"{tasks.noted('fails')}; exit 3", retries=2)
        works = s.command(f"{tasks.noted('works')}; [ $BOUGH_ATTEMPT = 3 ]", retries=2)
        with pytest.raises(TaskFailed, match="exit code 3"):
            fails.result(60)
        assert works.result(60).returncode == 0
    assert [attempt for attempt, _ in tasks.of("fails")] == [1, 2, 3]


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A folder for PATH, with a program that is nowhere else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bough-only-here").write_text("#!/bin/sh\necho found $1\n")
    (folder / "bough-only-here").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("through", ["program", "shell"])
def test_a_program_that_one_host_lacks_is_found_on_another_at_no_cost(
    shop: Workshop, program: str, through: str
) -> None:
    shop.start()
    shop.executor(cores=2)
    shop.executor(cores=2, env={"PATH": program})
    with session(shop) as s:
        words = ["bough-only-here", "x"]
        found = [
            s.command(words if through == "program" else "bough-only-here x && true", name=f"t{n}") for n in range(4)
        ]
        nowhere = s.command(["bough-nowhere"])
        assert [task.result(60).stdout for task in found] == ["found x\n"] * 4
        with pytest.raises(TaskFailed, match="bough-nowhere"):
            nowhere.result(60)


def test_a_full_disk_of_one_host_sends_tasks_elsewhere_at_no_cost(shop: Workshop, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as disk:
        disk.fill()
        (tmp_path / "large").mkdir()
        shop.start()
        shop.executor(env={"TMPDIR": str(disk.path)})
        shop.executor(env={"TMPDIR": str(tmp_path / "large")})
        with session(shop) as s:
            commands = [s.command(f"head -c {100_000 + number} /dev/zero > $TMPDIR/$$") for number in range(4)]
            functions = [s.submit(write_to_tmp, 100_000 + number) for number in range(4)]
            assert all(task.exception(30) is None for task in commands + functions)


def write_to_tmp(size: int) -> int:
    import tempfile

    with tempfile.NamedTemporaryFile(dir=os.environ["TMPDIR"]) as file:
        file.write(bytes(size))
        file.flush()
        return size


def test_a_host_on_which_much_fails_is_suspended_and_says_so(shop: Workshop, program: str) -> None:
    shop.start()
    bad = shop.executor(cores=1)
    good = shop.executor(cores=1, env={"PATH": program})
    with session(shop) as s:
        found = [s.command(["bough-only-here", str(number)]) for number in range(60)]
        assert all(task.exception(60) is None for task in found)
        assert shop.state_of(bad) == "suspended"
        assert shop.state_of(good) == "idle"
        assert "suspended" in shop.bough("executor", "list").stdout
        assert "suspended" in shop.log()
        assert "failed there and worked elsewhere" in shop.log()
        entry = shop.entry(bad)
        assert entry is not None
        shop.bough("executor", "resume", str(entry["executor"]))
        assert shop.state_of(bad) == "idle"


def test_a_task_without_a_sign_of_life_is_sent_again_up_to_a_limit(shop: Workshop, tasks: Tasks) -> None:
    shop.start()
    shop.executor(cores=2)
    with session(shop) as s:
        second = s.command(f"{tasks.noted('second')}; [ $BOUGH_ATTEMPT = 2 ] || sleep 600", replay="0.5s")
        never = s.command(f"{tasks.noted('never')}; sleep 600", replay="0.3s", name="never")
        assert second.result(60).returncode == 0
        with pytest.raises(TaskFailed, match="no word of it"):
            never.result(60)
        hangs = f"{tasks.noted('cli')}; [ $BOUGH_ATTEMPT = 2 ] || sleep 600"
        shop.bough("submit", "--replay", "0.5s", "--", hangs)
        tasks.begun("cli", 2)
        shop.until(lambda: not any(is_alive(pid) for _, _, pid in tasks.runs()), "the end of all attempts")
    assert len(tasks.of("never")) == 5


def test_a_poisonous_task_is_stopped_after_some_executors_and_named(shop: Workshop, tasks: Tasks) -> None:
    shop.start("--reconnect", "0.3s")
    with session(shop) as s:
        # the parent of a command is a worker, whose parent is the executor
        poison = s.command(
            f"{tasks.noted('poison')}; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 600", name="poison"
        )
        for _ in range(5):
            doomed = shop.executor()
            doomed.popen.wait(30)
            shop.until(lambda doomed=doomed: shop.state_of(doomed) == "gone", "its loss")
        shop.executor()
        with pytest.raises(TaskFailed, match="5 executors or workers died while running it") as raised:
            poison.result(60)
        assert "poison" in str(raised.value)
        assert s.command("echo fine").result(60).stdout == "fine\n"
    assert len(tasks.of("poison")) == 5
    shop.until(lambda: not any(is_alive(pid) for _, _, pid in tasks.runs()), "the end of all attempts")


# --- resources that are used up -------------------------------------------------------------------------


def test_a_full_disk_under_the_store_is_said_and_waited_for_and_nothing_is_lost(
    shop: Workshop, tasks: Tasks, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "small", 16) as disk:
        shop.start(*PATIENT, "--store", str(disk.path / "store"))
        executor = shop.executor(cores=2)
        with session(shop) as s:
            before = s.command(f"{tasks.gated('before')} > /dev/null")
            prints = s.command(tasks.gated("prints"))
            tasks.begun("before")
            tasks.begun("prints")
            disk.fill()
            during = [s.submit(bytes, 40_000) for _ in range(20)]
            tasks.go("before")
            tasks.go("prints")  # in vain: what it prints has no place, so that it runs again
            shop.until(lambda: "what a command prints cannot be written" in executor.said(), "word of the executor")
            shop.until(lambda: "is full" in shop.log(), "word of the full disk")
            assert shop.server is not None
            assert not shop.server.is_over
            until(lambda: "is full" in capfd.readouterr().err, "word of it for the user")
            disk.free()
            assert before.result(60).returncode == 0
            tasks.begun("prints", 2)
            tasks.go("prints", 2)
            assert prints.result(60).stdout == "2\n"
            assert [len(task.result(60)) for task in during] == [40_000] * 20
            assert "the store can be written again" in shop.log()

            disk.fill()
            shop.kill()
            failed = shop.bough("server", "start", "--store", str(disk.path / "store"), check=False)
            if failed.returncode:
                assert failed.stderr.count("\n") == 1, failed.stderr
            disk.free()
            shop.start()
            assert s.command(tasks.noted("after")).result(60).returncode == 0
    assert sorted(name for name, _, _ in tasks.runs()) == ["after", "before", "prints", "prints"]


def test_a_result_that_waits_for_space_behind_a_relay_is_told_by_the_server(
    shop: Workshop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is too little space for it, and enough for all else: only its worker knows, and the relay passes it on."""
    with small_disk(tmp_path / "small", 8) as disk:
        shop.start(*PATIENT, "--store", str(disk.path / "store"), "--listen", "127.0.0.1:0")
        home = {"BOUGH_HOME": str(tmp_path / "relay-home")}
        server = ("--server", shop.access("execute"))
        relay = ("relay", "start", *server, "--listen", "127.0.0.1:0", "--dispatch")
        shop.executors.append(shop.spawn(*relay, log="relay.log", env=home))
        access = tmp_path / "relay-home" / "relay" / "access.json"
        shop.until(access.exists, "the relay")
        member = ("executor", "start", "--server", str(access), "--cores", "1")
        shop.executors.append(shop.spawn(*member, log="member.log"))
        shop.until(lambda: any(entry["members"] for entry in shop.entries()), "the executor behind it")
        with session(shop) as s:
            large = s.submit(bytes, 12_000_000)
            until(lambda: "is full" in capfd.readouterr().err, "word of it for the user", 120)
            until(lambda: "waits for space on the disk of" in large.explain(), "word from behind the relay", 120)
            disk.grow(64)
            assert len(large.result(120)) == 12_000_000
            until(lambda: "there is space again" in capfd.readouterr().err, "word of the space", 120)


def test_a_store_that_somebody_locks_is_waited_for(shop: Workshop, tasks: Tasks) -> None:
    shop.start(*PATIENT)
    executor = shop.executor(cores=2)
    with session(shop) as s:
        assert s.submit(square, 2).result(60) == 4
        database = sqlite3.connect(shop.home / "server" / "store" / "journal.db", isolation_level=None)
        try:
            database.execute("BEGIN IMMEDIATE")
            waiting = [s.command(tasks.noted(f"task{number}")) for number in range(3)]
            shop.until(lambda: "is busy with another process" in shop.log(), "word of the lock")
            assert not any(task.done() for task in waiting)
        finally:
            database.rollback()
            database.close()
        assert [task.result(60).returncode for task in waiting] == [0] * 3
        assert not executor.is_over
    assert len(tasks.runs()) == 3


def test_a_server_whose_descriptors_are_used_up_goes_on_when_there_are_some_again(shop: Workshop, tasks: Tasks) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not installed; on Debian and Ubuntu: apt-get install util-linux")
    shop.start(*PATIENT, "--listen", "127.0.0.1:0", prefix=("prlimit", "--nofile=48"))
    shop.executor(cores=2)
    host, _, port = shop.note["address"].rpartition(":")
    crowd: list[socket.socket] = []
    with session(shop) as s:
        running = s.command(tasks.gated("running"))
        tasks.begun("running")
        try:
            for _ in range(60):
                sock = socket.socket(socket.AF_UNIX)
                crowd.append(sock)
                sock.setblocking(False)
                try:
                    sock.connect(shop.socket)
                except BlockingIOError:
                    break
            for _ in range(20):
                sock = socket.socket()
                crowd.append(sock)
                sock.setblocking(False)
                sock.connect_ex((host, int(port)))
            shop.until(lambda: "descriptor" in shop.log() or "Too many open files" in shop.log(), "a clear error")
            tasks.go("running")
            assert running.result(60).stdout == "1\n"
            assert s.submit(square, 3).result(60) == 9
        finally:
            for sock in crowd:
                sock.close()
        assert s.submit(square, 4).result(60) == 16
        shop.until(lambda: _answers(shop), "an answer")
        assert shop.server is not None
        assert not shop.server.is_over
    assert len(tasks.runs()) == 1


def _answers(shop: Workshop) -> bool:
    try:
        return bool(shop.entries())
    except (BoughError, OSError):
        return False


# --- the client is gone ---------------------------------------------------------------------------------

_SCRIPT = """
import sys, time, bough
s = bough.Session(sys.argv[1], name="gone")
first = s.command(sys.argv[2])
second = s.command(sys.argv[3], after=first)
third = s.sweep("true {n}", bough.tie(n=list(range(1000))), after=second)
time.sleep(600)
"""


def test_the_workflow_of_a_client_that_is_killed_goes_on(shop: Workshop, tasks: Tasks) -> None:
    shop.start(*PATIENT)
    shop.executor(cores=2)
    words = [sys.executable, "-c", _SCRIPT, shop.address, tasks.gated("first"), tasks.noted("second")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=shop.environment) as script:
        assert script.stdout is not None
        try:
            tasks.begun("first")
            shop.until(lambda: sum(shop.ask("workflows")[-1]["counts"].values()) == 1002, "all submissions")
        finally:
            script.send_signal(signal.SIGKILL)
    shop.until(lambda: shop.ask("workflows")[-1]["client"] is None, "the client's leaving")
    tasks.go("first")
    shop.until(lambda: shop.ask("workflows")[-1]["counts"].get("done") == 1002, "the end of all its tasks")
    assert [name for name, _, _ in tasks.runs()] == ["first", "second"]
