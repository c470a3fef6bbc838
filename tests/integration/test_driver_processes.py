"""The driver's `subprocess` names with real sessions: on this machine, and at a service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_client import Service

import bough
from bough import driver
from bough.api.session.session import opened_sessions


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bough.Session]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    with bough.Session(cores=2) as session:
        driver.use(session)
        yield session
    driver.use(None)


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bough.Session]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    service = Service(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    service.start()
    service.executor(cores=2)
    with bough.Session(f"unix:{service.address}", name="far") as session:
        driver.use(session)
        yield session
    driver.use(None)
    opened_sessions.clear()
    service.clean_up()


@pytest.fixture(params=["near", "far"])
def anywhere(request: pytest.FixtureRequest) -> bough.Session:
    found: bough.Session = request.getfixturevalue(request.param)
    return found


def test_run_returns_what_subprocess_returns(anywhere: bough.Session) -> None:
    for words, more in (
        (["echo", "a b"], {"capture_output": True, "text": True}),
        ("echo $A; echo err >&2; exit 3", {"shell": True, "capture_output": True, "env": {**os.environ, "A": "x"}}),
        (["cat"], {"input": b"\x00\xff" * 50_000, "stdout": subprocess.PIPE}),
        (["sh", "-c", "echo out; echo err >&2"], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}),
        (["sh", "-c", "kill -TERM $$"], {"stderr": subprocess.DEVNULL}),
        (["pwd"], {"cwd": "/", "stdout": subprocess.PIPE}),
    ):
        ours, real = driver.run(words, **more), subprocess.run(words, check=False, **more)
        assert repr(ours) == repr(real)


def test_failures_raise_what_subprocess_raises(anywhere: bough.Session) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        driver.check_output("echo so far; exit 7", shell=True)
    assert (caught.value.returncode, caught.value.output) == (7, b"so far\n")
    with pytest.raises(driver.TimeoutExpired) as late:
        driver.run("echo so far; exec sleep 60", shell=True, capture_output=True, timeout=3)
    assert late.value.stdout == b"so far\n"
    assert driver.getstatusoutput("echo a; echo b >&2; exit 2") == (2, "a\nb")


def test_files_are_written_where_the_program_stands(anywhere: bough.Session, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        file.write("head\n")
        file.flush()
        assert driver.call(["echo", "body"], stdout=file) == 0
        file.write("foot\n")
    assert path.read_text() == "head\nbody\nfoot\n"
    with path.open() as file:
        os.lseek(file.fileno(), 5, os.SEEK_SET)
        assert driver.check_output(["cat"], stdin=file, text=True) == "body\nfoot\n"


def test_our_place_in_a_file_has_moved_when_the_call_returns(
    near: bough.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(fd: int, offset: int, whence: int, seek: Callable[[int, int, int], int] = os.lseek) -> int:
        time.sleep(0.3 if whence == os.SEEK_END else 0)  # the thread that hears of the end first moves our place
        return seek(fd, offset, whence)

    monkeypatch.setattr(os, "lseek", slowly)
    with (tmp_path / "log").open("w") as file:
        assert driver.call(["echo", "body"], stdout=file) == 0
        file.write("foot\n")
    assert (tmp_path / "log").read_text() == "body\nfoot\n"


def test_a_process_can_be_ended(anywhere: bough.Session) -> None:
    process = driver.Popen(["sleep", "600"])
    assert process.poll() is None
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    waiting = [driver.Popen(["sleep", "600"]) for _ in range(5)]  # more than there are slots
    for one in waiting:
        one.kill()
    assert [one.wait(60) for one in waiting] == [-signal.SIGKILL] * 5


def test_what_it_writes_can_be_read_while_it_runs(anywhere: bough.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    text = f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo last"
    with driver.Popen(text, shell=True, stdout=driver.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        gate.touch()
        assert process.stdout.read() == "last\n"
    assert process.returncode == 0


def test_a_program_that_is_not_there(near: bough.Session) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        driver.run(["no-such-program"])
    assert caught.value.filename == "no-such-program"


def test_a_program_that_is_not_there_far_away_ends_with_127(far: bough.Session) -> None:
    done = driver.run(["no-such-program"], capture_output=True)
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr


def test_a_dialogue_with_a_process(near: bough.Session) -> None:
    with driver.Popen(["cat"], stdin=driver.PIPE, stdout=driver.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in ("one\n", "two\n"):
            process.stdin.write(word)
            assert process.stdout.readline() == word
        os.kill(process.pid or 0, 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


def test_a_chain_of_pipes_longer_than_there_are_slots(near: bough.Session) -> None:
    first = driver.Popen(["yes"], stdout=driver.PIPE)
    chain = [first]
    for _ in range(4):
        chain.append(driver.Popen(["cat"], stdin=chain[-1].stdout, stdout=driver.PIPE))
    last = driver.Popen(["head", "-n", "40000"], stdin=chain[-1].stdout, stdout=driver.PIPE)
    for process in chain:
        assert process.stdout is not None
        process.stdout.close()
    assert last.communicate()[0] == b"y\n" * 40_000
    assert first.wait(60) == -signal.SIGPIPE
    for process in chain:
        process.wait(60)


def test_environment_and_mask_are_exactly_as_asked(near: bough.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW", "since the session was opened")
    monkeypatch.delenv("HOME")
    said = driver.check_output(["sh", "-c", "echo $NEW; echo ${HOME-none}; umask"], text=True, umask=0o27)
    assert said == "since the session was opened\nnone\n0027\n"
    assert driver.check_output(["/usr/bin/env"], env={"A": "b c", "A.B": "d"}, text=True).split("\n") == [
        "A=b c",
        "A.B=d",
        "",
    ]
    assert driver.check_output(["name", "-c", "echo $0"], executable="/bin/sh", text=True) == "name\n"


def test_sockets_serve_as_streams(near: bough.Session) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = driver.Popen(["cat"], stdin=theirs, stdout=theirs)
        ours.sendall(b"through")
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(60) == 0
        assert ours.recv(100) == b"through"


def test_threads_share_the_driver(near: bough.Session) -> None:
    said: dict[int, str] = {}

    def ask(number: int) -> None:
        said[number] = driver.check_output(["echo", str(number)], text=True)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert said == {number: f"{number}\n" for number in range(12)}


def test_a_program_that_only_changed_its_import_leaves_nothing_behind(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from bough import driver as subprocess\n"
        "subprocess.Popen(['sleep', '600'])\n"  # nobody waits for it: it ends with the program
        "print(subprocess.check_output(['echo', 'hello'], text=True), end='')\n"
        "subprocess.run(['echo', 'inherited'], check=True)\n"
        "subprocess.exec_async('echo issued > issued')\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("BOUGH")}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**env, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("hello\ninherited\n", 0), done.stderr
    assert (tmp_path / "issued").read_text() == "issued\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["issued", "program.py", "tmp"]
    assert not list(temporary.iterdir())
