"""Sessions of a service of real processes: lost and found servers, leaving and coming back, the command line."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, until

import bough
from bough.api.session.session import opened_sessions
from bough.errors import SessionClosed, TaskFailed, UserError, WorkflowFailed
from bough.model.reuse_scope import ReuseMode

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield folder
    opened_sessions.clear()


@pytest.fixture
def service(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    made.start()
    made.executor(cores=2)
    yield made
    made.clean_up()


def at(service: Service) -> str:
    return f"unix:{service.address}"


def open_session(service: Service, name: str, reuse: ReuseMode = "resume") -> bough.Session:
    session = bough.Session(at(service), name=name, reuse=reuse)
    assert session.is_remote
    return session


def square(x: int) -> int:
    return x * x


def add(x: int, y: int) -> int:
    return x + y


def gated(path: str) -> str:
    """Runs until the file is there."""
    while not os.path.exists(path):
        time.sleep(0.02)
    with open(f"{path}.runs", "a") as file:
        file.write("x")
    return path


def needs(path: str) -> str:
    """Fails unless the file is there."""
    if not os.path.exists(path):
        raise ValueError(f"{path} is missing")
    return path


# --- the same as embedded -------------------------------------------------------------------------------


def test_a_session_of_a_service_does_what_an_embedded_one_does(service: Service, here: Path) -> None:
    (here / "in.txt").write_text("b\na\n")
    with open_session(service, "same") as s:
        assert isinstance(s, bough.Session)
        one = s.submit(square, 3)
        two = s.submit(add, one, y=one)
        many = s.map(square, range(1000))
        sorted_ = s.command("sort {src:r} > {dst:w}", src="in.txt", dst="out.txt", name="sorting")
        with s.group("align") as g:
            with s.group("sub"):
                inner = s.command("echo inside; echo aside >&2")
            swept = s.sweep("echo {n}", bough.tie(n=[1, 2, 3]))
        assert two.result() == 18
        assert sum(many) == sum(x * x for x in range(1000))
        assert sorted_.result().outputs["dst"] == str(here / "out.txt")
        assert (inner.result().stdout, inner.stderr) == ("inside\n", "aside\n")
        assert [task.result().stdout for task in swept.tasks()] == ["1\n", "2\n", "3\n"]
        g.wait()
        assert g.status()["done"] == 4
        assert s.processors() == {"local": 2}
        assert s.find("sorting")[0].state == "done"
    assert (here / "out.txt").read_text() == "a\nb\n"
    assert (here / ".bough" / "token").stat().st_mode & 0o777 == 0o600


def test_work_of_an_earlier_run_is_found_with_its_results_and_outputs(service: Service, here: Path) -> None:
    with open_session(service, "found") as s:
        s.command("echo 7 > {o:w}", o="a.txt")
        s.sweep("echo {n} > {o:w}", bough.tie(n=[1, 2]), o="{n}.txt")
        s.submit(square, 3)
    with open_session(service, "found") as s:
        assert s.command("echo 8 > {o:w}", o="b.txt").result(60)
        [command] = s.find("1")
        assert command.state == "done"
        assert command.result(60).outputs == {"o": str(here / "a.txt")}
        assert [task.outputs["o"] for task in s.find("2")] == [str(here / "1.txt"), str(here / "2.txt")]
        assert s.find("3")[0].result(60) == 9
    with open_session(service, "other") as s, pytest.raises(UserError):
        s.find("3")


def test_a_failure_is_raised_and_what_depends_on_it_does_not_run(service: Service) -> None:
    with open_session(service, "failing") as s:
        bad = s.command("echo why >&2; exit 3")
        dependent = s.submit(square, s.submit(needs, "/nowhere/at/all"))
        with pytest.raises(TaskFailed, match="why"):
            bad.result()
        with pytest.raises(bough.NotRun):
            dependent.result()


def test_the_environment_names_the_server(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUGH_SERVER", at(service))
    with bough.Session(name="by-environment") as s:
        assert s.is_remote
        assert s.submit(square, 4).result() == 16


def test_a_second_run_of_the_same_name_reuses_what_the_first_has_done(service: Service) -> None:
    for reused in (False, True):
        with open_session(service, "again", reuse="always") as s:
            task = s.submit(square, 5)
            array = s.map(square, range(50))
            assert task.result() == 25
            assert len(array.results()) == 50
            assert task.reused is reused
            assert s.progress.reused == (51 if reused else 0)


def test_a_run_that_ended_well_begins_anew_and_one_with_failures_goes_on(service: Service) -> None:
    def run(*, fails: bool) -> list[bool]:
        with open_session(service, "modes") as s:
            tasks = [s.submit(square, 5), s.options(memo=True).submit(square, 6), s.map(square, range(3))[1]]
            values = [task.result() for task in tasks]
            assert values == [25, 36, 1]
            if fails:
                assert s.submit(needs, "/nowhere/at/all").exception()
            return [task.reused for task in tasks]

    assert run(fails=False) == [False, False, False]
    assert run(fails=True) == [False, True, False]
    assert run(fails=True) == [True, True, True]
    assert run(fails=False) == [True, True, True]
    assert run(fails=False) == [False, True, False]


def test_big_arguments_and_results_travel(service: Service) -> None:
    with open_session(service, "big") as s:
        big = s.submit(bytes, 3_000_000)
        assert s.submit(len, b"x" * 2_000_000).result() == 2_000_000
        assert s.submit(len, big).result() == len(big.result()) == 3_000_000


# --- names ----------------------------------------------------------------------------------------------


def test_sessions_of_different_names_go_side_by_side(service: Service) -> None:
    with open_session(service, "left") as left, open_session(service, "right") as right:
        a, b = left.submit(square, 2), right.submit(square, 3)
        assert (a.result(), b.result()) == (4, 9)
        assert left.root != right.root
        assert len(left.tasks()) == len(right.tasks()) == 1


def test_the_same_name_twice_at_once_is_refused_with_pid_and_host(service: Service, here: Path) -> None:
    with open_session(service, "twice") as s:
        s.submit(square, 1).result()
        with pytest.raises(UserError, match=rf"pid {os.getpid()} on host"):
            open_session(service, "twice")
        script = f"import bough; bough.Session({at(service)!r}, name='twice')"
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert f"pid {os.getpid()} on host" in other.stderr
        assert "bough.errors.WorkflowTaken" in other.stderr


def test_a_submission_waits_while_another_session_has_the_queue(service: Service, here: Path) -> None:
    submit = [
        sys.executable,
        "-m",
        "bough.cli.main",
        "submit",
        "--server",
        at(service),
        "--into",
        "busy",
        "--",
        "true",
    ]
    with open_session(service, "busy") as s:
        s.submit(square, 1).result()
        other = subprocess.Popen(submit, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.5)
    out, err = other.communicate(timeout=60)
    assert (other.returncode, err) == (0, "")
    assert "submitted to busy" in out


# --- servers that go away -------------------------------------------------------------------------------


def test_futures_complete_across_a_crash_of_the_server(
    service: Service, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gate = str(here / "gate")
    with open_session(service, "crash") as s:
        done = [s.submit(square, x) for x in range(20)]
        assert [task.result() for task in done] == [x * x for x in range(20)]
        running = [s.submit(gated, gate), s.submit(gated, gate)]
        waiting = s.submit(len, running[0])
        array = s.map(square, range(200))
        until(lambda: all(task.running() for task in running), "the start of both")
        service.kill()
        meanwhile = [s.submit(square, x) for x in range(5)]
        with s.group("made-meanwhile"):
            grouped = s.command("echo {x}", x="grouped")
        service.start()
        Path(gate).touch()
        assert [task.result(60) for task in running] == [gate, gate]
        assert waiting.result(60) == len(gate)
        assert [task.result(60) for task in meanwhile] == [0, 1, 4, 9, 16]
        assert sum(array) == sum(x * x for x in range(200))
        assert grouped.result(60).stdout == "grouped\n"
    assert Path(f"{gate}.runs").read_text() == "xx"  # each ran once
    err = capfd.readouterr().err
    assert f"bough: the server at {at(service)} disconnected; waiting for it\n" in err
    assert f"bough: reconnected to the server at {at(service)}\n" in err


def test_leaving_waits_for_a_server_that_is_away(service: Service, here: Path) -> None:
    gate = str(here / "gate")
    with open_session(service, "leaving") as s:
        task = s.submit(gated, gate)
        until(task.running, "the start")
        service.kill()
        restart = subprocess.Popen(["sh", "-c", f"sleep 1; touch {gate}"])
        service.start()
    restart.wait()
    assert task.result() == gate


# --- leaving and coming back ----------------------------------------------------------------------------


def test_a_session_that_comes_back_gets_its_futures_again(service: Service, here: Path) -> None:
    gate, flag = str(here / "gate"), str(here / "flag")
    (here / "in.txt").write_text("text\n")

    def work(s: bough.Session) -> list[bough.Task | bough.Array]:
        held = s.submit(gated, gate)
        twins = [s.submit(square, 7), s.submit(square, 7)]
        array = s.map(square, [1, 2, 3])
        with s.group("files"):
            made = s.command("cat {src:r} > {dst:w}", src="in.txt", dst="out.txt")
            read = s.command("cat {src:r}", src="out.txt")
        return [held, s.submit(len, held), *twins, array, made, read, s.submit(needs, flag)]

    first = open_session(service, "back")
    before = work(first)
    with pytest.raises(ValueError, match="missing"):
        before[-1].result()
    first.detach()
    with pytest.raises(SessionClosed, match="has left workflow back"):
        before[0].result()

    Path(flag).touch()
    with open_session(service, "back") as second:
        assert second.is_joined
        after = work(second)
        assert [thing.id for thing in after] == [thing.id for thing in before]
        new = second.submit(square, 8)
        Path(gate).touch()
        assert after[0].result(60) == gate
        assert after[1].result(60) == len(gate)
        assert [after[2].result(), after[3].result(), new.result()] == [49, 49, 64]
        assert after[4].results() == [1, 4, 9]
        assert after[6].result().stdout == "text\n"
        assert after[7].result(60) == flag  # it had failed, and was tried again
        assert len(second.tasks()) == len(before) + 2 + 1  # three in the array, and the new one
    assert Path(f"{gate}.runs").read_text() == "x"


def test_an_error_inside_with_leaves_what_runs_to_the_server_and_cancels_the_rest(
    service: Service, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gate = str(here / "gate")
    s = open_session(service, "left")
    task = s.submit(gated, gate)
    until(task.running)
    waiting = s.options(after=[task]).submit(square, 3)
    failed = s.command("echo no input >&2; exit 5", name="bad")
    until(failed.done)
    with pytest.raises(ZeroDivisionError), s:
        1 / 0  # noqa: B018
    assert waiting.cancelled()
    told = capfd.readouterr().err
    assert "task 3 (bad): exit code 5" in told
    assert "bough explain left:3 --server unix:" in told
    assert "workflow left is running at the server with 1 task;" in told
    with pytest.raises(SessionClosed):
        task.result()
    Path(gate).touch()
    with open_session(service, "left") as s:
        again = s.submit(gated, gate)
        assert again.id == task.id
        assert again.result(60) == gate
        assert s.options(after=[again]).submit(square, 3).result(60) == 9


def test_failures_at_a_service_are_told_and_raised_with_what_they_keep(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    s = open_session(service, "told")
    array = s.map(needs, ["/nowhere/at/all", "/"])
    with pytest.raises(WorkflowFailed, match=r"1 of 2 tasks failed: task 1\.0 \(needs\)") as caught, s:
        array.wait_all(60)
    told = capfd.readouterr().err
    assert "parameters: path='/nowhere/at/all'" in told
    assert "bough log told:1.0" in told
    assert "with path='/nowhere/at/all', on " in caught.value.failures[0].__notes__[-1]
    words = [sys.executable, "-m", "bough.cli.main", "explain", "told:1.0", "--server", at(service)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "its parameters: path='/nowhere/at/all'" in said
    assert "in needs" in said
    words[3] = "log"
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("parameters: path='/nowhere/at/all'\nTraceback")


def test_submissions_before_detach_are_all_there(service: Service) -> None:
    s = open_session(service, "many")
    tasks = [s.submit(square, x) for x in range(3000)]
    s.detach()
    with open_session(service, "many") as s:
        found = [s.submit(square, x) for x in range(3000)]
        assert [task.id for task in found] == [task.id for task in tasks]
        assert [task.result(60) for task in found] == [x * x for x in range(3000)]


def test_a_process_that_dies_leaves_its_workflow_going_on(service: Service, here: Path) -> None:
    script = f"import bough, os\ns = bough.Session({at(service)!r}, name='dies')\n"
    script += "t = [s.command(f'echo {n} > made{n}') for n in range(3)]\n"
    script += "s.connection.wait_acknowledged()\nos._exit(9)\n"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 9
    until(lambda: all((here / f"made{n}").exists() for n in range(3)), "what the dead process had submitted")


def test_ctrl_c_leaves_the_workflow_and_running_the_script_again_comes_back(service: Service, here: Path) -> None:
    (here / "again.py").write_text(
        f"import bough\nwith bough.Session({at(service)!r}) as s:\n"
        "    t = s.command('touch begun; until [ -e go ]; do sleep 0.05; done; echo x >> runs; echo told')\n"
        "print(t.result().stdout)\n"
    )
    words = [sys.executable, "again.py"]
    with subprocess.Popen(words, env=service.environment, stderr=subprocess.PIPE, text=True) as first:
        until((here / "begun").exists, "the start")
        first.send_signal(signal.SIGINT)
        assert first.stderr is not None
        assert "workflow again is running at the server with 1 task;" in first.stderr.read()
        assert first.wait(60) != 0
    with subprocess.Popen(words, env=service.environment, stdout=subprocess.PIPE, text=True) as second:
        (here / "go").touch()
        assert second.stdout is not None
        assert second.stdout.read() == "told\n\n"
        assert second.wait(60) == 0
    assert (here / "runs").read_text() == "x\n"


# --- TLS ------------------------------------------------------------------------------------------------


def test_a_session_over_tls_by_an_access_file_outlives_the_server(service: Service, here: Path) -> None:
    service.stop()
    service.start("--listen", "127.0.0.1:0")
    address = json.loads((service.home / "server" / "server.json").read_bytes())["address"]
    service.bough("server", "access", "--role", "submit", "--output", str(here / "access.json"))
    gate = str(here / "gate")
    with bough.Session(str(here / "access.json"), name="tls") as s:
        big = s.submit(bytes, 3_000_000)
        assert s.submit(len, b"x" * 3_000_000).result(60) == len(big.result(60)) == 3_000_000
        assert sum(s.map(square, range(20_000))) == sum(x * x for x in range(20_000))
        held = s.submit(gated, gate)
        until(held.running, "the start")
        service.kill()
        service.start("--listen", address)
        Path(gate).touch()
        assert held.result(60) == gate
        assert s.command("echo far", name="called").result(60).stdout == "far\n"
        assert s.find("called")[0].result(60).stdout == "far\n"
    service.environment["BOUGH_HOME"] = str(here / "elsewhere")
    assert service.bough("log", "--server", "access.json", "tls:called").stdout == "far\n"
    assert "done" in service.bough("status", "--server", "access.json", "--queue", "tls").stdout
    assert service.bough("submit", "--server", "access.json", "--wait", "--", "true").returncode == 0


# --- the command line -----------------------------------------------------------------------------------


def test_a_server_without_workflows_says_what_to_do(service: Service) -> None:
    said = service.bough("status").stdout
    assert "no workflow yet" in said
    assert "bough submit" in said
    assert "no workflow yet" in service.bough("status", "all", check=False).stderr


def test_submit_returns_at_once_and_status_log_and_sql_show_it(service: Service, here: Path) -> None:
    one = json.loads(service.bough("submit", "--json", "--name", "greeting", "--", "echo", "hello you").stdout)
    assert (one["workflow"], one["tasks"]) == ("default", 1)
    number = str(one["ids"][0])
    assert service.bough("submit", "--wait", "--after", number, "--", "test -n x && echo after").returncode == 0
    for command, code in (("exit 5", 5), ("kill -TERM $$", 143), ("no-such-program", 127)):
        assert service.bough("submit", "--into", "q", "--wait", "--", command, check=False).returncode == code
    assert service.bough("log", f"default:{number}").stdout == "hello you\n"
    assert "1 is in the workflow q" in service.bough("status", number).stderr  # which was submitted to last
    shown = json.loads(service.bough("status", "default:all", "--json").stdout)
    assert [row["state"] for row in shown] == ["done", "done"]
    assert json.loads(service.bough("status", "--json").stdout)["workflows"][0]["name"] == "default"
    assert "greeting" in service.bough("status", "--queue", "default", "--state", "done").stdout
    assert service.bough("explain", f"default:{number}").stdout.startswith(f"task {number} (greeting) is done")
    assert json.loads(service.bough("sql", "--json", "select count(*) as n from tasks").stdout) == [{"n": 5}]


@pytest.mark.parametrize("words", [["--into", "my q"], ["--array", "3-4"]])
def test_submit_that_waited_for_a_failure_says_which_commands_tell_more(
    service: Service, here: Path, words: list[str]
) -> None:
    failed = service.bough("submit", *words, "--wait", "--", "echo bad >&2; exit 3", check=False)
    why, _, log = failed.stderr.splitlines()[-1].partition("; ")
    assert why.startswith("why: bough explain ")
    explained = service.bough(*shlex.split(why.removeprefix("why: bough ")))
    assert "exit code 3" in explained.stdout
    logged = service.bough(*shlex.split(log.removeprefix("what it printed: bough ")))
    assert "bad" in logged.stdout + logged.stderr


def test_submit_of_arrays_lines_and_groups(service: Service, here: Path) -> None:
    text = "echo {index} $BOUGH_INDEX; awk 'BEGIN { print 7 }'"
    array = json.loads(service.bough("submit", "--json", "--array", "2-4,9", "--group", "a/b", "--", text).stdout)
    assert array["tasks"] == 4
    (here / "lines.txt").write_text("one\n\ntwo words\n")
    done = service.bough("submit", "--wait", "--each-line", "lines.txt", "--group", "a", "--", "echo", "<{line}>")
    assert done.returncode == 0
    until(lambda: "6 done" in service.bough("status", "--queue", "default").stdout, "the end of all")
    log = service.bough("log", f"{array['ids'][0]}.9").stdout
    assert log == "9 9\n7\n"
    assert (array["ids"], array["indices"]) == ([1], "2-4,9")
    assert service.bough("log", "1.1", check=False).returncode == 2  # there is no such index
    assert "<two words>" in service.bough("log", "default:all", "--stdout").stdout
    rows = json.loads(service.bough("status", "--queue", "default", "--group", "a/b", "--json").stdout)
    assert [(row["group"], row["length"]) for row in rows] == [("a/b", 4)]


def test_a_flat_list_and_a_script_are_submitted_and_end_by_themselves(service: Service, here: Path) -> None:
    (here / "list.txt").write_text("a: :: echo 1\nb: after=a :: echo 2\nfalse\n")
    assert service.bough("submit", "list.txt", "--wait", check=False).returncode == 1
    (here / "script.py").write_text(
        "import bough\ndef f(x): return x\nwith bough.Session() as s:\n    s.map(f, range(10)); s.submit(f, 1)\n"
    )
    said = json.loads(service.bough("submit", "--json", "script.py").stdout)
    assert (said["workflow"], said["tasks"], len(said["ids"])) == ("script", 11, 2)
    assert service.bough("watch", "--queue", "script").returncode == 0
    until(
        lambda: all(one["closed"] for one in json.loads(service.bough("status", "--json").stdout)["workflows"]),
        "the end of both workflows",
    )
    assert service.bough("run", "--server", at(service), "script.py").returncode == 0


def test_log_follows_a_running_task_to_its_end(service: Service, here: Path) -> None:
    text = "echo begin; until [ -e go ]; do sleep 0.05; done; echo end; echo bad >&2; exit 3"
    number = service.bough("submit", "--", text).stdout.split()[1]
    words = [sys.executable, "-m", "bough.cli.main", "log", "-f", number]
    with subprocess.Popen(
        words, env=service.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as log:
        assert log.stdout is not None
        assert log.stderr is not None
        assert log.stdout.readline() == "begin\n"  # while it runs
        assert service.bough("log", number).stdout == "begin\n"
        (here / "go").touch()
        assert log.stdout.read() == "end\n"
        assert log.stderr.read() == "bad\n"
        assert log.wait(60) == 1


def test_tasks_of_a_service_are_killed_held_released_and_retried(service: Service, here: Path) -> None:
    number = service.bough("submit", "--into", "q", "--name", "long", "--", "[ -e go ] || sleep 600").stdout.split()[1]

    def state() -> str:
        return str(json.loads(service.bough("status", number, "--json").stdout)[0]["state"])

    until(lambda: state() == "running", "the start")
    assert service.bough("kill", "q:long").stdout == "1 task killed\n"
    until(lambda: state() == "failed", "the kill")
    (here / "go").touch()
    assert service.bough("retry", "--failed", "--queue", "q").stdout == "1 task will be retried\n"
    until(lambda: state() == "done", "the retry")
    service.bough("submit", "--into", "q2", "--", "true")
    assert "several workflows are running: q, q2" in service.bough("cancel", "all", check=False).stderr


def test_many_submit_to_one_queue_at_the_same_time(service: Service) -> None:
    words = [sys.executable, "-m", "bough.cli.main", "submit", "--into", "busy", "--"]
    running = [subprocess.Popen([*words, "echo", str(n)], env=service.environment) for n in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    until(lambda: "4 done" in service.bough("status", "--queue", "busy").stdout, "all four")
