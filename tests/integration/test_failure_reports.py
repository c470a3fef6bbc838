"""Failures that nobody looked at: told when a session ends, raised at the end of its block; errors inside the block."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import cloudpickle
import pytest

import bough
from bough.api.session.session import opened_sessions
from bough.errors import BadValue, NotRun, TaskFailed, UserError, WorkflowFailed

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module
PATIENCE = 120


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield tmp_path
    opened_sessions.clear()


def fussy(n: int) -> int:
    if n % 3 == 0:
        raise ValueError(f"no such colour: {n}")
    return n


def python(folder: Path, script: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(textwrap.dedent(script))
    words = [sys.executable, *(command or ("script.py",))]
    environment = {name: value for name, value in os.environ.items() if name != "BOUGH_SERVER"}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


# --- as a script --------------------------------------------------------------------------------------------


def test_a_script_that_looks_at_nothing_is_told_and_fails(here: Path) -> None:
    done = python(
        here,
        """
        import bough
        with bough.Session() as s:
            s.command("echo oops >&2; exit 5")
            s.submit(lambda: 1/0)
        print("not reached")
        """,
    )
    assert (done.returncode, done.stdout) == (1, "")
    told, _, raised = done.stderr.partition("Traceback (most recent call last)")
    for words in ("2 of 2 tasks failed", "exit code 5", "oops", "ZeroDivisionError", "in <lambda>", "bough explain 1"):
        assert words in told
    assert raised.rstrip().endswith("bough.errors.WorkflowFailed: 2 of 2 tasks failed: task 1 (echo), task 2")
    assert "oops" not in raised


def test_bough_run_tells_them_once_and_exits_with_1(here: Path) -> None:
    script = """
        import bough
        def fussy(n):
            raise ValueError(f"no such colour: {n}")
        with bough.Session() as s:
            s.submit(fussy, 7)
        print("not reached")
        """
    done = python(here, script, "-m", "bough.cli.main", "run", "script.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("no such colour: 7") == 1
    assert "parameters: n=7" in done.stderr
    assert "Traceback" not in done.stderr
    assert "script.py:5: 1 of 1 task failed" in done.stderr
    assert done.stderr.index("no such colour: 7") < done.stderr.index("script.py:5:")  # the failure, then the sum


def test_a_session_that_is_no_context_manager_tells_at_exit(here: Path) -> None:
    done = python(
        here,
        """
        import bough
        s = bough.Session()
        s.command("exit 5", name="bad")
        """,
    )
    assert done.returncode == 0
    assert "task 1 (bad): exit code 5" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_in_the_block_shows_at_once_and_failures_before_it(here: Path) -> None:
    done = python(
        here,
        """
        import time, bough
        with bough.Session(cores=1) as s:
            bad = s.command("echo no input >&2; exit 5", name="prepare")
            s.submit(time.sleep, 3600)
            while not bad.done():
                time.sleep(0.01)
            open("prepared.txt")
        """,
    )
    assert done.returncode == 1
    assert "task 1 (prepare): exit code 5" in done.stderr
    assert "no input" in done.stderr
    assert done.stderr.rstrip().endswith("No such file or directory: 'prepared.txt'")
    assert "WorkflowFailed" not in done.stderr


# --- what counts as looked at -------------------------------------------------------------------------------


def looked_by_result(s: bough.Session) -> None:
    with pytest.raises(ValueError, match="no such colour"):
        s.submit(fussy, 3).result()


def looked_by_exception(s: bough.Session) -> None:
    assert s.submit(fussy, 3).exception() is not None


def looked_by_failed(s: bough.Session) -> None:
    assert len(s.map(fussy, range(5)).wait_all().failed()) == 2


def looked_by_results(s: bough.Session) -> None:
    assert len(s.map(fussy, range(5)).results(errors="return")) == 5


def looked_by_results_that_raise(s: bough.Session) -> None:
    with pytest.raises(ValueError, match="no such colour"):
        s.map(fussy, range(5)).results()


def looked_by_iterating(s: bough.Session) -> None:
    with pytest.raises(ValueError, match="no such colour"):
        list(s.map(fussy, range(5)))


def looked_as_they_complete(s: bough.Session) -> None:
    assert sum(task.state == "failed" for task in s.map(fussy, range(5)).as_completed()) == 2


def looked_at_what_was_not_run(s: bough.Session) -> None:
    failed = s.command("exit 3")
    with pytest.raises(NotRun):
        s.command("true", after=[failed]).result()


def killed_by_the_script(s: bough.Session) -> None:
    task = s.submit(time.sleep, 3600)
    while not task.running():
        time.sleep(0.01)
    task.kill()


def cancelled_by_the_script(s: bough.Session) -> None:
    task = s.submit(time.sleep, 3600)
    s.submit(fussy, task)
    assert task.cancel()


LOOKS = [
    looked_by_result,
    looked_by_exception,
    looked_by_failed,
    looked_by_results,
    looked_by_results_that_raise,
    looked_by_iterating,
    looked_as_they_complete,
    looked_at_what_was_not_run,
    killed_by_the_script,
    cancelled_by_the_script,
]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
def test_what_the_script_knows_of_is_not_told(here: Path, capfd: pytest.CaptureFixture[str], look) -> None:
    with bough.Session(cores=2, name=look.__name__) as s:
        look(s)
    assert capfd.readouterr().err == ""


# --- the report and the exception ---------------------------------------------------------------------------


def test_failures_that_are_alike_are_told_together_and_skipped_ones_counted(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkflowFailed) as caught, bough.Session(cores=2) as s:  # noqa: PT012
        array = s.map(fussy, range(300))
        for _ in range(4):
            s.command("true", after=[array])
        s.sweep("test {a} = {b}", bough.product(a=[1, 2], b=[1, 2]))
    told = capfd.readouterr().err
    assert len(told.splitlines()) < 30
    assert "102 of 308 tasks failed, 4 skipped because of that" in told
    assert "task 1.0 (fussy): ValueError: no such colour: 0" in told
    assert "parameters: n=0" in told
    assert "and 99 more of the same kind: 1.3 (n=3), 1.6 (n=6)" in told
    assert "parameters: a=1, b=2" in told
    assert "command: test 1 = 2" in told
    error = caught.value
    assert isinstance(error, TaskFailed)
    assert (error.failed, error.skipped) == (102, 4)
    assert len(error.failures) == 100
    assert isinstance(error.failures[0], ValueError)
    assert "\n" not in str(error)


@pytest.mark.parametrize(("mode", "told"), [("report", True), ("ignore", False)])
def test_a_session_may_only_report_or_ignore(
    here: Path, capfd: pytest.CaptureFixture[str], mode: str, told: bool
) -> None:
    with bough.Session(cores=1, on_failure=mode) as s:
        s.command("exit 5", name="bad")
    assert ("task 1 (bad): exit code 5" in capfd.readouterr().err) is told


def test_shutdown_reports_and_the_block_raises_without_telling_again(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkflowFailed), bough.Session(cores=1) as s:  # noqa: PT012
        s.command("exit 5", name="bad")
        s.shutdown()
        assert capfd.readouterr().err.count("task 1 (bad)") == 1
    assert capfd.readouterr().err == ""


def test_another_value_is_refused_before_anything_starts(here: Path) -> None:
    with pytest.raises(UserError, match=r"on_failure is 'loud'; give 'raise', 'report' or 'ignore'") as caught:
        bough.Session(on_failure="loud")
    assert isinstance(caught.value, BadValue | ValueError)
    assert not os.path.exists(".bough")


def test_an_error_in_the_block_cancels_what_has_not_started(here: Path) -> None:
    with pytest.raises(KeyError), bough.Session(cores=1) as s:  # noqa: PT012
        running = s.submit(time.sleep, 3600)
        waiting = s.submit(fussy, 1)
        others = s.map(fussy, range(1, 3))
        while not running.running():
            time.sleep(0.01)
        raise KeyError("mine")
    with pytest.raises(CancelledError):
        waiting.result()
    assert [task.cancelled() for task in others.tasks()] == [True, True]


def test_a_session_inside_a_task_fails_the_task(here: Path) -> None:
    def outer() -> None:
        with bough.here().session() as inner:
            inner.submit(fussy, 3)

    with bough.Session(cores=1) as s:
        task = s.submit(outer)
        error = task.exception(PATIENCE)
        assert isinstance(error, WorkflowFailed)
        assert isinstance(error.failures[0], ValueError)
        assert "no such colour: 3" in task.stderr
        assert "bough explain" not in task.stderr


# --- what a failure keeps -----------------------------------------------------------------------------------


def test_an_exception_names_its_task_and_parameters(here: Path) -> None:
    with bough.Session(cores=1) as s:
        error = s.map(fussy, range(1, 4))[2].exception()
        assert error is not None
        assert error.__notes__[-1].startswith("task 1.2 (fussy) with n=3, on ")
        assert "in fussy" in str(error.__cause__)
        assert "function_runner" not in str(error.__cause__)


def test_a_call_that_took_its_worker_along_or_too_long_has_its_parameters(here: Path) -> None:
    def dies(n: int, colour: str) -> None:
        os._exit(n)

    def sleeps(n: int) -> None:
        time.sleep(n)

    with bough.Session(cores=1) as s:
        error = s.submit(dies, 3, colour="red").exception(PATIENCE)
        assert " with n=3, colour='red', on " in error.__notes__[-1]
        error = s.options(timeout="0.2s").map(sleeps, [3600])[0].exception(PATIENCE)
        assert " with n=3600, on " in error.__notes__[-1]


def test_explain_names_the_elements_that_failed_live_and_from_the_store(here: Path) -> None:
    with bough.Session(cores=2, name="sweep", on_failure="ignore") as s:
        array = s.map(fussy, [1] * 6 + [3] + [1] * 190 + [6, 9, 1])
        after = s.command("true", after=[array], name="plot")
        each = s.submit(sum, [array[index] for index in range(200)])
        with s.group("outer", after=[array]), s.group("inner"):
            inside = s.command("true", name="inside")
        bad = s.command("echo one >&2; echo two >&2; exit 4", name="bad")
        array.wait_all(PATIENCE)
        for task in (after, each, inside):
            assert isinstance(task.exception(PATIENCE), NotRun)
            assert task.explain().splitlines()[1:] == [
                "  task 1.6 (fussy) with n=3: ValueError: no such colour: 3",
                "  task 1.197 (fussy) with n=6: ValueError: no such colour: 6",
                "  task 1.198 (fussy) with n=9: ValueError: no such colour: 9",
            ]
        bad.exception(PATIENCE)
    assert bad.explain().splitlines()[-2:] == ["  one", "  two"]
    assert "in fussy" in array[6].explain()
    for name in ("plot", str(each.id), "outer/inner/inside"):
        lines = python(here, "", "-m", "bough.cli.main", "explain", name).stdout.splitlines()
        assert lines[1:5] == [
            "it comes after 1 (fussy): 197 done, 3 failed",
            "  1.6 with n=3 failed: ValueError: no such colour: 3",
            "  1.197 with n=6 failed: ValueError: no such colour: 6",
            "  1.198 with n=9 failed: ValueError: no such colour: 9",
        ]
    lines = python(here, "", "-m", "bough.cli.main", "explain", "bad").stdout.splitlines()
    assert lines[-2:] == ["  one", "  two"]
    logged = python(here, "", "-m", "bough.cli.main", "log", "1.6").stdout
    assert logged.startswith("parameters: n=3\nTraceback")
    asked = "select parameters, traceback from elements where idx = 6"
    assert "n=3" in python(here, "", "-m", "bough.cli.main", "sql", asked).stdout


def test_what_ran_when_its_run_was_ended_was_not_skipped(here: Path) -> None:
    script = """
        import time, bough
        with bough.Session(cores=2) as s:
            loose = s.command("echo begun; sleep 3600", name="loose")
            many = s.sweep("echo {n}; sleep 3600", bough.product(n=range(3)), name="many")
            while loose.state != "running" or many[0].state != "running":
                time.sleep(0.01)
            raise KeyError("mine")
        """
    assert python(here, script).stderr.rstrip().endswith("KeyError: 'mine'")
    said = python(here, script, "-m", "bough.cli.main", "explain", "loose").stdout.splitlines()
    assert said[0] == "1 (loose) was cancelled: the run ended while it ran (interrupted)"
    assert said[1].startswith("attempt 1 ran on ")
    said = python(here, script, "-m", "bough.cli.main", "explain", "2.0").stdout.splitlines()
    assert said[0] == "2.0 (many) was cancelled: the run ended while it ran (interrupted)"
    said = python(here, script, "-m", "bough.cli.main", "explain", "2.2").stdout.splitlines()
    assert said[0] == "2.2 (many) was cancelled"  # by the end of the block, before it began
