"""The command line end to end: real `bough` processes, real tasks, one folder per test."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE = 60.0  # seconds that anything may take on a busy machine


class Folder:
    """A folder to run `bough` in; whatever is left running there is ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: list[subprocess.Popen[str]] = []
        hidden = {"NO_COLOR", "BOUGH_SERVER", "BOUGH_HOME"}
        self.environment = {key: value for key, value in os.environ.items() if key not in hidden}

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "bough.cli.main", *words],
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def bough(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            cwd=self.path,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def ok(self, *words: str) -> None:
        code, _, err = self.bough(*words)
        assert code == 0, err

    def json(self, *words: str) -> object:
        code, out, err = self.bough(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}\n{self.story()}"
            time.sleep(0.05)

    def story(self) -> str:
        """What is known when a wait was in vain."""
        logs = [path.read_text() for path in self.path.glob(".bough/*/server.log")]
        states = [f"pid {process.pid} ended with {process.poll()}" for process in self.started]
        return "\n".join([*states, *logs, *processes_in(self.path)])

    def until_there(self, name: str) -> None:
        path = self.path / name
        self.until(lambda: path.exists() or any(p.poll() is not None for p in self.started), f"{name} is there")
        assert path.exists(), self.story()

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A folder of the test's own."""
    found = Folder(tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def count(folder: Folder, name: str) -> int:
    """How often a command that appends a line has run."""
    path = folder.path / name
    return len(path.read_text().splitlines()) if path.exists() else 0


# --- flat lists --------------------------------------------------------------------------------------


def test_a_flat_list_runs_in_order_and_the_second_time_nothing_runs(folder: Folder) -> None:
    folder.write(
        "list.txt", "b: after=a :: cat a.txt a.txt > b.txt\n# a comes later\na: :: echo one > a.txt\necho $HOME\n"
    )
    code, out, err = folder.bough("run", "list.txt")
    assert (code, out) == (0, "")
    assert err.splitlines()[-1].startswith("3 done in ")
    assert folder.read("b.txt") == "one\none\n"
    code, _, err = folder.bough("run", "list.txt")
    assert code == 0
    assert err.splitlines()[-1].startswith("3 done, 3 reused in ")


def test_fresh_runs_everything_again(folder: Folder) -> None:
    folder.write("list.txt", "echo x >> log.txt\n")
    folder.ok("run", "list.txt")
    folder.ok("run", "list.txt")
    assert count(folder, "log.txt") == 1
    folder.ok("run", "--fresh", "list.txt")
    assert count(folder, "log.txt") == 2


def test_a_failure_fails_what_depends_on_it_and_only_that(folder: Folder) -> None:
    folder.write(
        "list.txt",
        "bad: :: echo to-stdout; echo oh-dear >&2; test -e fixed\n"
        "next: after=bad :: echo next > next.txt\n"
        "echo x >> log.txt\n",
    )
    code, _, err = folder.bough("run", "list.txt")
    assert code == 1
    assert "bad" in err
    assert "exit code 1" in err
    assert "oh-dear" in err
    assert err.splitlines()[-2].startswith("1 done, 1 failed, 1 skipped in ")
    assert err.splitlines()[-1] == "why: bough explain --failed; what it printed: bough log --failed"
    rows = folder.json("status", "--failed")
    assert isinstance(rows, list)
    assert [(row["name"], row["exit_code"]) for row in rows] == [("bad", 1)]
    assert folder.bough("log", "bad", "--stderr") == (0, "oh-dear\n", "")
    assert folder.bough("log", "bad", "--stdout")[1] == "to-stdout\n"
    assert "bad" in folder.bough("explain", "next")[1]
    code, _, err = folder.bough("retry", "--failed")
    assert code == 2
    assert "bough run FILE again" in err

    folder.write("fixed", "")
    code, _, err = folder.bough("run", "list.txt")
    assert code == 0
    assert err.splitlines()[-1].startswith("3 done, 1 reused in ")
    assert folder.read("next.txt") == "next\n"
    assert count(folder, "log.txt") == 1


def test_fail_fast_stops_at_the_first_failure(folder: Folder) -> None:
    folder.write("list.txt", "a: :: false\nb: :: true\n" + "sleep 0.2\n" * 200)
    code, out, _ = folder.bough("run", "--cores", "1", "--fail-fast", "--json", "list.txt")
    assert code == 1
    said = json.loads(out)
    assert said["failed"] == 1
    assert said["skipped"] > 100


def test_standard_input_is_a_list_too(folder: Folder) -> None:
    code, out, err = folder.bough("run", "-", stdin="echo a > a.txt\n:: echo b > b.txt\n")
    assert (code, out) == (0, "")
    assert err.splitlines()[-1].startswith("2 done in ")
    assert (folder.read("a.txt"), folder.read("b.txt")) == ("a\n", "b\n")
    assert (folder.path / ".bough" / "stdin").is_dir()


def test_an_empty_list_is_done_at_once(folder: Folder) -> None:
    code, _, err = folder.bough("run", "-", stdin="# nothing\n")
    assert code == 0
    assert err == "nothing to do\n"


def test_json_is_one_object_with_the_failures(folder: Folder) -> None:
    folder.write("list.txt", "good: :: true\nbad: :: exit 3\nafter: after=bad :: true\n")
    code, out, _ = folder.bough("run", "--json", "list.txt")
    assert code == 1
    said = json.loads(out)
    assert {key: said[key] for key in ("done", "failed", "skipped", "cancelled", "reused", "exit_code")} == {
        "done": 1,
        "failed": 1,
        "skipped": 1,
        "cancelled": 0,
        "reused": 0,
        "exit_code": 1,
    }
    assert said["seconds"] > 0
    [failure] = said["failures"]
    assert failure["name"] == "bad"
    assert failure["exit_code"] == 3


def test_quiet_says_nothing_and_the_exit_code_all(folder: Folder) -> None:
    folder.write("good.txt", "true\n")
    folder.write("bad.txt", "false\n")
    assert folder.bough("run", "-q", "good.txt") == (0, "", "")
    assert folder.bough("run", "-q", "bad.txt") == (1, "", "")


def test_options_of_a_line_reach_the_task(folder: Folder) -> None:
    folder.write(
        "list.txt",
        "cores=2 :: echo $OMP_NUM_THREADS > cores.txt\n"
        "slow: timeout=0.3 :: sleep 60\n"
        "retries=2 :: echo x >> log.txt; false\n",
    )
    code, out, _ = folder.bough("run", "--cores", "2", "--json", "list.txt")
    assert code == 1
    assert folder.read("cores.txt") == "2\n"
    assert count(folder, "log.txt") == 3
    assert json.loads(out)["failed"] == 2


# --- scripts -----------------------------------------------------------------------------------------


def test_a_script_runs_as_main_with_its_arguments_and_prints_as_always(folder: Folder) -> None:
    folder.write("beside.py", "def triple(x):\n    return 3 * x\n")
    folder.write(
        "wf.py",
        "import sys, bough, beside\n"
        "def double(x):\n    return 2 * x\n"
        "with bough.Session() as s:\n"
        "    print(s.submit(double, int(sys.argv[1])).result(), s.submit(beside.triple, 3).result(), __name__)\n",
    )
    code, out, err = folder.bough("run", "wf.py", "21")
    assert (code, out) == (0, "42 9 __main__\n"), err
    assert err.splitlines()[-1].startswith("2 done in ")


def test_options_become_defaults_of_the_session(folder: Folder) -> None:
    folder.write("wf.py", "import bough\nwith bough.Session() as s:\n    print(s.cores)\n")
    assert folder.bough("run", "--cores", "3", "wf.py")[:2] == (0, "3\n")
    code, _, err = folder.bough("run", "--policy", "nonsense", "wf.py")
    assert code == 2
    assert "nonsense" in err
    assert err.startswith("bough: ")
    folder.ok("run", "--name", "other", "wf.py")
    assert (folder.path / ".bough" / "other").is_dir()


def test_a_failure_that_nobody_looked_at_is_exit_code_1(folder: Folder) -> None:
    folder.write("wf.py", "import bough\nwith bough.Session() as s:\n    s.command('exit 4', name='unlucky')\n")
    code, _, err = folder.bough("run", "wf.py")
    assert code == 1
    assert "unlucky" in err
    assert err.splitlines()[-2].startswith("0 done, 1 failed in ")


def test_a_failure_that_the_script_looked_at_is_its_own_business(folder: Folder) -> None:
    folder.write(
        "wf.py",
        "import bough\nwith bough.Session() as s:\n    t = s.command('exit 4')\n"
        "    try:\n        t.result()\n"
        "    except bough.TaskFailed as error:\n        print('caught', error.returncode)\n",
    )
    assert folder.bough("run", "wf.py")[:2] == (0, "caught 4\n")


def test_a_session_without_with_is_waited_for(folder: Folder) -> None:
    folder.write("wf.py", "import bough\ns = bough.Session()\ns.command('sleep 0.3; echo x > x.txt')\n")
    folder.ok("run", "wf.py")
    assert folder.read("x.txt") == "x\n"


@pytest.mark.parametrize(("last", "code"), [("raise SystemExit(7)", 7), ("1 / 0", 1), ("", 0)])
def test_the_scripts_own_end_decides(folder: Folder, last: str, code: int) -> None:
    folder.write("wf.py", f"import bough\nwith bough.Session() as s:\n    s.submit(pow, 2, 3).result()\n{last}\n")
    found, _, err = folder.bough("run", "wf.py")
    assert found == code
    assert ("ZeroDivisionError" in err) == (last == "1 / 0")
    assert "bough/cli" not in err


def test_with_json_the_scripts_prints_go_elsewhere(folder: Folder) -> None:
    folder.write(
        "wf.py",
        "import bough, os\nwith bough.Session() as s:\n    print(s.submit(pow, 2, 3).result(), flush=True)\n"
        "os.system('echo sub')\n",
    )
    code, out, err = folder.bough("run", "--json", "wf.py")
    assert code == 0
    assert json.loads(out)["done"] == 1
    assert err.splitlines() == ["8", "sub"]


def test_a_name_that_is_in_use_is_refused_with_its_pid(folder: Folder) -> None:
    folder.write("wait.txt", "touch up; until test -e go; do sleep 0.05; done\n")
    first = folder.start("run", "wait.txt")
    folder.until_there("up")
    code, _, err = folder.bough("run", "wait.txt")
    assert code == 2
    assert err.startswith("bough: ")
    folder.write("go", "")
    assert folder.finish(first)[0] == 0


def test_on_a_terminal_the_picture_is_drawn_and_prints_stay_whole(folder: Folder) -> None:
    folder.write(
        "wf.py",
        "import bough, time\nwith bough.Session() as s:\n    t = s.command('sleep 1.2', name='nap')\n"
        "    for i in range(5):\n        print('line', i)\n        time.sleep(0.1)\n    t.result()\n",
    )
    ours, theirs = pty.openpty()
    environment = folder.environment | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "bough.cli.main", "run", "wf.py"],
        cwd=folder.path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    text = said.decode()
    assert "1 running" in text
    for i in range(5):
        assert f"line {i}\r\n" in text
    assert text.rstrip().splitlines()[-1].endswith(" s")
    assert "1 done in" in text


# --- a live session -----------------------------------------------------------------------------------

WAITING = "touch $BOUGH_TASK.up; until test -e go; do sleep 0.05; done"


@pytest.fixture
def live(folder: Folder) -> subprocess.Popen[str]:
    """One core, a task `first` that runs until the file `go` is there, and `second` that waits for it."""
    folder.write(
        "live.txt", f"first: :: {WAITING}\nsecond: after=first :: echo x >> second.txt\nthird: :: echo y > third.txt\n"
    )
    process = folder.start("run", "--cores", "1", "live.txt")
    folder.until(lambda: bool(list(folder.path.glob("*.up"))), "the first task runs")
    return process


def states(folder: Folder) -> dict[str, str]:
    rows = folder.json("status", "all")
    assert isinstance(rows, list)
    return {row["name"]: row["state"] for row in rows}


def test_a_live_session_is_looked_at(folder: Folder, live: subprocess.Popen[str]) -> None:
    status = folder.json("status")
    assert isinstance(status, dict)
    assert status["live"] is True
    folder.until(lambda: states(folder)["first"] == "running", "first is running")
    assert states(folder)["second"] == "waiting"
    assert "first" in folder.bough("explain", "second")[1]
    assert folder.bough("sql", "select count(*) from tasks", "--csv")[1] == "count(*)\n3\n"
    folder.write("go", "")
    code, _, err = folder.finish(live)
    assert code == 0
    assert err.splitlines()[-1].startswith("3 done in ")
    status = folder.json("status")
    assert isinstance(status, dict)
    assert (status["live"], status["reason"], status["counts"]["done"]) == (False, "done", 3)


def test_a_running_task_is_killed_and_tried_again(folder: Folder, live: subprocess.Popen[str]) -> None:
    folder.ok("hold", "third")
    assert states(folder)["third"] == "held"
    folder.until(lambda: states(folder)["first"] == "running", "first is running")
    assert folder.bough("kill", "first")[:2] == (0, "1 task killed\n")
    folder.until(lambda: states(folder)["first"] == "failed", "first has failed")
    assert states(folder)["second"] == "skipped"
    folder.write("go", "")
    code, _, err = folder.bough("retry", "--failed", "--skipped")
    assert code == 0, err
    folder.until(lambda: states(folder)["second"] == "done", "second is done")
    folder.ok("release", "--held")
    assert folder.finish(live)[0] == 0
    assert (folder.read("second.txt"), folder.read("third.txt")) == ("x\n", "y\n")


def test_an_array_is_explained_state_by_state_and_an_element_that_is_tried_again_is_not_what_it_was(
    folder: Folder,
) -> None:
    folder.write(
        "sweep.py",
        "import bough\n"
        "with bough.Session(cores=1) as s:\n"
        "    a = s.sweep('touch {n}.up; until test -e go; do sleep 0.05; done', bough.product(n=[0, 1]))\n",
    )
    process = folder.start("run", "sweep.py")
    folder.until((folder.path / "0.up").exists, "the first element runs")
    folder.until(lambda: "1 running" in folder.bough("explain", "1")[1], "it is known to run")
    first, *rest = folder.bough("explain", "1")[1].splitlines()
    assert first == "1 is an array of 2 tasks: 1 running, 1 ready"
    assert [line.split()[1] for line in rest] == ["1.0", "1.1"]
    folder.ok("hold", "1.1")
    folder.ok("kill", "1.0")
    folder.ok("retry", "1.0")
    folder.until(lambda: folder.json("status", "1.0")[0]["attempt"] == 2, "the second attempt begins")  # type: ignore[index]
    assert folder.json("status", "1.0")[0]["message"] is None  # type: ignore[index]
    folder.write("go", "")
    folder.ok("release", "1.1")
    folder.finish(process)


def test_a_live_session_is_meant_before_one_that_was_used_since(folder: Folder, live: subprocess.Popen[str]) -> None:
    folder.write("other.txt", "true\n")
    folder.ok("run", "other.txt")
    assert "first" in states(folder)
    folder.write("go", "")
    folder.finish(live)


def test_wrong_words_get_one_line_that_names_them(folder: Folder) -> None:
    folder.write("list.txt", "true\n")
    for words, named in (
        (("run",), "FILE"),
        (("run", "list.txt", "one", "two"), "one two"),
        (("run", "--policy", "nosuch", "list.txt"), "nosuch"),
    ):
        code, out, err = folder.bough(*words)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert named in err
        assert "ARGS" not in err


def test_cancelling_is_final(folder: Folder, live: subprocess.Popen[str]) -> None:
    code, out, err = folder.bough("cancel", "all", "--json")
    assert code == 0, err
    assert json.loads(out) == {"tasks": 3}
    code, _, err = folder.finish(live)
    assert code == 1
    assert err.splitlines()[-1].startswith("0 done, 3 cancelled in ")


def test_ctrl_c_ends_tasks_keeps_the_state_and_leaves_nobody_behind(
    folder: Folder, live: subprocess.Popen[str]
) -> None:
    live.send_signal(signal.SIGINT)
    code, _, err = folder.finish(live)
    assert code == 130
    assert "Traceback" not in err
    folder.until(lambda: not processes_in(folder.path), "no process is left")
    folder.write("go", "")
    folder.ok("run", "live.txt")
    assert folder.read("second.txt") == "x\n"


def processes_in(path: Path) -> list[str]:
    """Processes whose working directory is a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == str(path):
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return found
