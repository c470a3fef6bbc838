"""Monitors from the script to the task and back: what they end, how it shows, and that a rerun reuses it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bough
from bough.errors import TaskFailed
from bough.monitors import After, Custom, Emit, FileCreated, Plateau, Regex, Signal, Tag, all_of, any_of

PATIENCE = 60.0
COUNTS = "for i in $(seq 1 2000); do echo n=$i; sleep 0.01; done"


@pytest.fixture
def s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bough.Session]:
    monkeypatch.chdir(tmp_path)
    with bough.Session(store="store", name="flow", on_failure="ignore") as session:
        yield session


def until(met: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def counts(most: int) -> int:
    for number in range(most):
        print(f"n={number}", flush=True)
        time.sleep(0.01)
    return most


def test_a_command_that_a_monitor_finishes_is_a_success_with_what_it_wrote(s: bough.Session) -> None:
    task = s.command(
        "echo half > {out:w}; for i in $(seq 1 2000); do echo n=7; sleep 0.01; done",
        out="out.txt",
        monitors=[Plateau("n=([0-9]+)", 5, 0.1, total=2000, name="flat")],
    )
    done = task.result(PATIENCE)
    assert re.fullmatch(r"ended by flat after \d+ of 2000 values: std 0 < 0.1", done.ended_by)
    assert done.stdout.count("n=7") >= 5
    assert Path("out.txt").read_text() == "half\n"
    assert task.state == "done"
    assert [fired.monitor for fired in task.fired] == ["flat"]
    assert task.series("n")[-1].value == 7


def test_a_task_explains_what_its_monitors_saw_also_after_the_session(tmp_path: Path) -> None:
    with bough.Session(store=str(tmp_path / "store"), name="flow", progress=False) as s:
        text = "echo score=3; echo go; exec sleep 600"
        task = s.command(text, monitors=["regex:go -> tag hot then after:0.1s", "metric:score=([0-9]+)"])
        task.result(PATIENCE)
        seen = ["ended by regex: 0.1 s have passed", "score: 3 at step 1, lowest 3, highest 3", "tags: hot"]
        assert task.explain().splitlines()[-3:] == seen
        assert s.command("true", monitors=["created:nothing"]).result(PATIENCE).returncode == 0
        assert "the monitor created has trouble: the file nothing was never there" in s.explain(2)
    assert task.explain().splitlines()[-3:] == seen


def test_an_output_that_is_missing_then_is_the_usual_failure(s: bough.Session) -> None:
    task = s.command("echo go; sleep 60; echo x > {out:w}", out="out.txt", monitors=["regex:go"])
    with pytest.raises(TaskFailed, match=r"out\.txt"):
        task.result(PATIENCE)


def test_a_function_that_a_monitor_finishes_gives_an_ended_early(s: bough.Session) -> None:
    watched = s.options(monitors=[Regex("stdout", "n=([0-9]+)", when=lambda groups: int(groups[0]) >= 3)])
    one = watched.submit(counts, 2000).result(PATIENCE)
    assert isinstance(one, bough.EndedEarly)
    assert (one.monitor, one.value) == ("regex", 3.0)
    assert one.ended_by.startswith("ended by regex")
    assert watched.map(counts, [2, 1]).results(timeout=PATIENCE) == [2, 1]
    early = watched.map(counts, [2000, 1]).results(timeout=PATIENCE)
    assert isinstance(early[0], bough.EndedEarly)
    assert early[1] == 1


def test_fail_restart_signal_tag_and_emit(s: bough.Session) -> None:
    failed = s.command("echo ERROR; sleep 60", monitors=["regex:ERROR -> fail bad luck"], retries=1)
    again = s.command("echo $BOUGH_ATTEMPT; test $BOUGH_ATTEMPT = 3 || sleep 60", monitors=["after:0.2s -> restart 3"])
    polite = s.command(
        "trap 'echo saved; exit 0' USR1; echo go; while true; do sleep 0.02; done",
        monitors=[Regex("stdout", "go", do=Signal("USR1"))],
    )
    noisy = s.command(
        "echo best=1; echo best=2; echo hot",
        monitors=[
            Regex("stdout", "best=(.)", do=Emit("best"), repeat=True),
            Regex("stdout", "hot", do=Tag("hot")),
        ],
    )
    with pytest.raises(TaskFailed, match="bad luck"):
        failed.result(PATIENCE)
    assert failed.attempts == 2
    assert again.result(PATIENCE).stdout == "3\n"
    assert again.attempts == 3
    assert polite.result(PATIENCE).stdout == "go\nsaved\n"
    assert polite.result().ended_by == ""
    assert noisy.result(PATIENCE).ended_by == ""
    assert noisy.tags == ["hot"]
    assert [(one.task, one.name, one.value) for one in noisy.emitted] == [(noisy, "best", 1), (noisy, "best", 2)]
    assert list(s.array([noisy, failed]).tagged("hot")) == [noisy]


def test_conditions_of_several_and_one_after_the_other(s: bough.Session) -> None:
    monitors = {
        "any": any_of(Regex("stdout", "n=3"), After("1h")),
        "all": all_of(Regex("stdout", "n=3"), FileCreated("flag")),
        "regex": Regex("stdout", "n=2").then(Regex("stdout", "n=4")),
        "_is_late": Custom(_is_late, every=0.1),
    }
    tasks = {name: s.command(f"touch flag; {COUNTS}", monitors=[monitor]) for name, monitor in monitors.items()}
    for name, task in tasks.items():
        assert task.result(PATIENCE).ended_by.startswith(f"ended by {name}")


def _is_late(task: object) -> bool:
    return "n=5" in task.read("stdout")  # type: ignore[attr-defined]


def test_running_tasks_are_monitored_from_now_on(s: bough.Session) -> None:
    task = s.command(COUNTS)
    array = s.sweep(f"echo {{x}}; {COUNTS}", bough.product(x=[1, 2, 3]), cores=0.1)
    with s.group("g") as group:
        inner = s.command(COUNTS, cores=0.1)
    until(lambda: task.running() and len(array.running()) == 3 and inner.running())
    task.monitor(Regex("stdout", "n=[0-9]"))
    array[1:].monitor("regex:n=")
    group.monitor("regex:n= -> fail")
    assert task.result(PATIENCE).ended_by
    assert array[1].result(PATIENCE).ended_by
    assert array[2].result(PATIENCE).ended_by
    with pytest.raises(TaskFailed, match="regex"):
        inner.result(PATIENCE)
    assert not array[0].done()
    array.cancel()


def test_emissions_come_while_tasks_run_and_end_with_them(s: bough.Session) -> None:
    text = "for i in 1 2 3; do echo best=$(({x} * i)); sleep 0.05; done"
    array = s.sweep(text, bough.product(x=[1, 10]), monitors=["regex:best=([0-9]+) -> repeat emit best"])
    found = list(array.emissions(PATIENCE))
    assert sorted((one.task.index, one.value) for one in found) == [(0, 1), (0, 2), (0, 3), (1, 10), (1, 20), (1, 30)]
    assert list(array.emissions(PATIENCE)) == sorted(found, key=lambda one: (one.task.index, one.time))
    assert len(list(array[1:].emissions(PATIENCE))) == 3
    slow = s.command("sleep 60")
    with pytest.raises(TimeoutError):
        list(s.array([slow]).emissions(0.1))
    slow.cancel()


def test_what_is_fed_and_what_is_in_groups_is_watched(s: bough.Session) -> None:
    fed = s.feed(counts, [2000, 1], monitors=["regex:n=3"])
    with s.group("g", monitors=["regex:n=3"]), s.group("inner"):
        deep = s.command(COUNTS)
    values = fed.results(timeout=PATIENCE)
    assert isinstance(values[0], bough.EndedEarly)
    assert values[1] == 1
    assert deep.result(PATIENCE).ended_by


SCRIPT = """
    import sys, time
    import bough
    from bough.monitors import Regex

    with bough.Session(store="store", name="flow") as s:
        early = s.command("echo run >> runs.txt; echo go; sleep 60", monitors=["regex:go"])
        array = s.sweep("echo run >> runs.txt; echo {x}; sleep {x}", bough.product(x=[60, 61]), monitors=["regex:6"])
        def waits():
            print("go", flush=True)
            with open("runs.txt", "a") as file:
                file.write("run\\n")
            time.sleep(60)
        call = s.options(monitors=[Regex("stdout", "g(.)", when=lambda groups: groups[0] == "o")]).submit(waits)
        print(early.result().ended_by, array[1].result().ended_by, call.result().ended_by, sep="|")
        print(early.reused, array[0].reused, array[1].reused, call.reused, flush=True)
        if "wait" in sys.argv:
            array[0].result()
            time.sleep(60)
    """


def test_a_script_that_died_and_is_run_again_reuses_what_monitors_ended(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(textwrap.dedent(SCRIPT))
    words = [sys.executable, "flow.py"]
    with subprocess.Popen([*words, "wait"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        said = first.stdout.readline()
        assert said.count("ended by regex") == 3
        assert first.stdout.readline() == "False False False False\n"
        os.kill(first.pid, signal.SIGKILL)
    again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert again.stdout.splitlines()[0] == said.strip()
    assert again.stdout.splitlines()[1].split()[0::2] == ["True", "True"]
    assert again.stdout.splitlines()[1].split()[3] == "True"


def test_the_command_line_watches_too(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bough.cli.main", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)

    finished = run("run", "--monitor", "regex:go", "--", "echo go; sleep 60")
    assert (finished.returncode, finished.stdout) == (0, "go\n")
    assert "ended by regex" in finished.stderr
    failed = run("run", "--monitor", "regex:go -> fail too bad", "--", "echo go; sleep 60")
    assert failed.returncode == 1
    assert "too bad" in failed.stderr
    (tmp_path / "list.txt").write_text("a: monitor=regex:go :: echo go; sleep 60\nafter=a :: echo next > next.txt\n")
    assert run("run", "list.txt").returncode == 0
    assert (tmp_path / "next.txt").exists()
    (tmp_path / "bough.toml").write_text("[default]\nmonitor = ['regex:go', 'after:1h -> fail']\n")
    assert run("run", "--", "echo go; sleep 60").returncode == 0
    (tmp_path / "bough.toml").write_text("[default]\nmonitor = 'regex:('\n")
    wrong = run("run", "--", "echo go; sleep 60")
    assert wrong.returncode == 2
    assert "no regular expression" in wrong.stderr


def test_a_rule_of_the_command_line_compares_the_tasks_of_an_array(tmp_path: Path) -> None:
    text = "for i in $(seq 1 40); do echo loss=$(({} * 100 / i)); sleep 0.05; done; echo whole"
    words = [sys.executable, "-m", "bough.cli.main", "run", "-j", "4", "-k", "--array", "1-4"]
    words += ["--monitor", "metric:loss=([0-9]+)", "--rule", "halving:loss,5,cancel"]
    done = subprocess.run([*words, "--", text], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.count("whole") == 2, done.stderr
    alone = subprocess.run(
        [sys.executable, "-m", "bough.cli.main", "run", "--rule", "first-answer", "--", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert alone.returncode == 2
    assert "--array" in alone.stderr


def test_the_command_line_watches_what_runs_already(s: bough.Session, tmp_path: Path) -> None:
    def monitor(*words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "bough.cli.main", "monitor", *words, "--store", "store"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    runs = s.command("touch there; while true; do echo tick; sleep 0.05; done", name="runs")
    waits = s.command("echo go; sleep 60", after=[runs])
    until((tmp_path / "there").exists)
    assert monitor("2", "regex:go") == (0, "1 task watched\n", "")
    assert monitor("runs", "regex:tick -> tag ticks", "regex:tick") == (0, "1 task watched\n", "")
    assert runs.result(PATIENCE).ended_by
    assert runs.tags == ["ticks"]
    assert waits.result(PATIENCE).ended_by
    code, said, _ = monitor("1", "after:1h")
    assert (code, said.splitlines()) == (
        1,
        ["0 tasks watched", "not changed: task 1 (runs): ended, so that nothing of it can be watched"],
    )
