"""What tasks wrote is kept however they ended, and can be read while they run: in scripts and by `bough log`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_client import Service

import bough
from bough.api.session.session import Session
from bough.errors import TaskFailed

PATIENCE = 60.0  # seconds; a deadline, not a pause
TALK = "echo out; echo err >&2; sleep 600"
BOUGH = [sys.executable, "-m", "bough.cli.main"]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def talk() -> None:
    print("out")
    print("err", file=sys.stderr)
    time.sleep(600)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def opened(here: Path) -> Iterator[Session]:
    with Session(name="talks", cores=2, on_failure="ignore") as session:
        yield session


@pytest.fixture
def service(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    made.start()
    yield made
    made.clean_up()


def said(*words: str) -> str:
    return subprocess.run([*BOUGH, *words], check=True, capture_output=True, text=True, timeout=60).stdout


def test_what_a_running_task_wrote_is_seen_and_stays_when_it_is_cancelled_or_killed(opened: Session) -> None:
    for end in ("cancel", "kill"):
        command, function = opened.command(TALK), opened.submit(talk)
        for task in (command, function):
            until(lambda task=task: (task.stdout, task.stderr) == ("out\n", "err\n"), "what a running task wrote")
            getattr(task, end)()
            until(lambda task=task: (task.stdout, task.stderr) == ("out\n", "err\n"), "what an ended task wrote")


def test_elements_of_arrays_keep_what_they_wrote(opened: Session) -> None:
    sweep = opened.sweep("echo {n}; sleep 600", bough.product(n=["a", "b"]))
    until(lambda: [task.stdout for task in sweep] == ["a\n", "b\n"], "what both wrote")
    sweep[0].cancel()
    sweep[1].kill()
    until(lambda: [task.stdout for task in sweep] == ["a\n", "b\n"], "what both wrote")


def test_limits_keep_what_was_written(opened: Session) -> None:
    for task in (opened.command(TALK, timeout=1), opened.options(timeout=1).submit(talk)):
        with pytest.raises(TaskFailed, match="longer than 1 s"):
            task.result(PATIENCE)
        assert (task.stdout, task.stderr) == ("out\n", "err\n")


def test_what_was_written_outlives_the_session_and_ctrl_c(here: Path) -> None:
    (here / "script.py").write_text(
        "import bough, time\n"
        "def talk():\n    print('out'); time.sleep(600)\n"
        "with bough.Session(cores=2) as s:\n"
        "    a, b = s.command('echo out; sleep 600', name='c'), s.submit(talk)\n"
        "    while not (a.stdout and b.stdout): time.sleep(0.01)\n"
        "    print('ready', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "script.py"], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "ready\n"
        script.send_signal(signal.SIGINT)
        script.wait(60)
    assert said("log", "all") == "==> 1 c stdout <==\nout\n\n==> 2 talk stdout <==\nout\n"
    with Session(name="script") as later:
        assert [task.stdout for task in later.find("1")] == ["out\n"]


def test_a_closed_session_still_tells_what_a_cancelled_task_wrote(here: Path) -> None:
    with Session(cores=1) as session:
        task = session.command(TALK)
        until(lambda: task.stderr, "what it writes")
        task.cancel()
    assert (task.stdout, task.stderr) == ("out\n", "err\n")


def test_log_shows_and_follows_running_tasks_of_a_session(opened: Session, here: Path) -> None:
    wait = "until [ -e go ]; do sleep 0.05; done"
    text = f"[ -e tried ] || {{ touch tried; echo first; exit 1; }}; echo begin; {wait}; echo end"
    task = opened.command(text, name="long", retries=1)
    other = opened.command(f"echo other; {wait}", name="next")
    until(lambda: task.stdout == "begin\n" and other.stdout == "other\n", "the start of both")
    assert said("log", "long") == "begin\n"
    with subprocess.Popen([*BOUGH, "log", "-f", "all"], stdout=subprocess.PIPE, text=True) as log:
        assert log.stdout is not None
        first = {log.stdout.readline(), log.stdout.readline()}
        assert first == {"long 1 (attempt 2) | begin\n", "next 2 | other\n"}
        (here / "go").touch()
        assert log.stdout.read() == "long 1 (attempt 2) | end\n"
        assert log.wait(60) == 0


def test_a_program_that_follows_gets_an_object_for_each_line(opened: Session, here: Path) -> None:
    wait = "until [ -e go ]; do sleep 0.05; done"
    task = opened.command(f"echo begin; echo oh >&2; {wait}; printf 'a | b'", name="long")
    until(lambda: task.stdout and task.stderr, "its beginning")
    with subprocess.Popen([*BOUGH, "log", "-f", "--json", "1"], stdout=subprocess.PIPE, text=True) as log:
        assert log.stdout is not None
        first = [json.loads(log.stdout.readline()) for _ in range(2)]
        (here / "go").touch()
        told = [*first, *map(json.loads, log.stdout)]
        assert log.wait(60) == 0
    assert [(one["stream"], one["line"]) for one in told] == [
        ("stdout", "begin"),
        ("stderr", "oh"),
        ("stdout", "a | b"),
    ]
    assert told[0] == {"id": "1", "name": "long", "attempt": 1, "stream": "stdout", "line": "begin"}


def test_explain_shows_the_end_of_stderr_of_what_was_killed_or_cancelled(opened: Session) -> None:
    killed, cancelled = opened.command(TALK, name="killed"), opened.command(TALK, name="cancelled")
    until(lambda: killed.stderr and cancelled.stderr, "what both write")
    killed.kill()
    cancelled.cancel()
    for task in (killed, cancelled):
        until(lambda task=task: "stderr:\n  err\n" in said("explain", task.name), "what it wrote")
    opened.shutdown()
    for task in (killed, cancelled):
        assert "the last lines of its stderr:\n  err\n" in said("explain", task.name)


def test_a_service_keeps_what_ended_tasks_wrote(service: Service, here: Path) -> None:
    def talk_there() -> None:  # by value: executors cannot import this module
        print("out")
        print("err", file=sys.stderr)
        time.sleep(600)

    executor = service.executor(cores=2)
    with Session(f"unix:{service.address}", name="far", on_failure="ignore") as session:
        tasks = [session.command(TALK), session.submit(talk_there)]
        until(lambda: all(task.stdout == "out\n" for task in tasks), "what running tasks write")
        tasks[0].cancel()
        tasks[1].kill()
        until(lambda: all((task.stdout, task.stderr) == ("out\n", "err\n") for task in tasks), "what they wrote")
        third = session.command("echo third; sleep 600")
        until(lambda: third.stdout == "third\n", "the third")
        os.kill(executor.pid, signal.SIGTERM)
        executor.wait(60)
        until(lambda: third.stdout == "third\n", "what it wrote where it had to end")
        third.cancel()
