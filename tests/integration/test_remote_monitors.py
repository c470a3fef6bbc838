"""Remote monitors: functions beside the script that talk to running tasks, of a session, a service, behind relays."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import pytest
from relay_site import Site
from service_client import Service, until

import bough
from bough import Session, UserError
from bough.api.communicator import Communicator
from bough.api.session.session import opened_sessions
from bough.errors import AttemptEnded, BadValue, MissingFile, NotRunning, PeerLost, SiteError, TaskEnded
from bough.monitors import Remote

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

PATIENCE = 60.0
GATED = "echo begun; {then} until [ -e {gate} ]; do sleep 0.05; done; echo over"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.chdir(tmp_path)
    with Session(cores=3, progress=False, on_failure="ignore") as opened:
        yield opened
        opened.tasks().cancel()  # of a test that failed
    opened_sessions.clear()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.chdir(tmp_path)
    made = Service(tmp_path)
    made.start()
    yield made
    made.clean_up()
    opened_sessions.clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    made = Site(tmp_path)
    yield made
    made.clean_up()
    opened_sessions.clear()


def gated(gate: Path | str, then: str = "") -> str:
    """A command that runs until a file is there."""
    return GATED.format(gate=gate, then=then)


def join(service: Service, name: str = "w") -> Session:
    return Session(f"unix:{service.address}", name=name, progress=False, on_failure="ignore")


def in_thread(call: Callable[[], object]) -> list[object]:
    """Call something in a thread; what it returned or raised comes into the list."""
    done: list[object] = []

    def run() -> None:
        try:
            done.append(call())
        except BaseException as error:
            done.append(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def sleeps(seconds: float) -> None:
    time.sleep(seconds)


def waits_for(gate: str) -> None:
    while not os.path.exists(gate):
        time.sleep(0.02)


# --- questions ---------------------------------------------------------------------------------------------


def check_questions(session: Session, gate: Path) -> None:
    """All questions, of a command that waits for a gate."""
    then = "seq -f 'score=%g' 100 > scores.txt; echo trouble >&2; mkdir sub; touch sub/x; mkfifo pipe;"
    task = session.command(gated(gate, then))
    talk = task.communicator(PATIENCE)
    until(lambda: talk.exists("pipe"), "the command's last file")
    assert talk.tail("scores.txt", 2) == "score=99\nscore=100\n"
    assert talk.tail("scores.txt", 1, pattern="=.7$") == "score=97\n"
    assert talk.read("scores.txt", pattern="=[12]0$") == "score=10\nscore=20\n"
    assert talk.read("scores.txt", offset=8, size=7) == "score=2"
    assert talk.read() == "begun\n"
    assert talk.read("stderr") == "trouble\n"
    assert talk.size("scores.txt") == len(talk.read_bytes("scores.txt")) == 892
    assert talk.list("sub") == ["x"]
    assert "sub/" in talk.list()
    assert not talk.exists("nothing")
    with pytest.raises(FileNotFoundError, match="there is no nothing where the task runs"):
        talk.read("nothing")
    with pytest.raises(UserError, match="no plain file"):
        talk.read("pipe")
    with pytest.raises(BadValue, match="no regular expression"):
        talk.read(pattern="(")
    assert talk.attempt is not None
    assert talk.attempt.number == 1
    until(task.running, "the news that it runs")
    gate.touch()
    assert task.result().stdout == "begun\nover\n"
    with pytest.raises(TaskEnded):
        talk.tail()


def test_a_session_answers_all_questions(session: Session, tmp_path: Path) -> None:
    check_questions(session, tmp_path / "gate")


def test_a_service_answers_all_questions(service: Service, tmp_path: Path) -> None:
    service.executor()
    with join(service) as session:
        check_questions(session, tmp_path / "gate")


@pytest.mark.parametrize("words", [(), ("--dispatch",)], ids=["forwarding", "dispatching"])
def test_an_executor_behind_a_relay_answers_all_questions(site: Site, tmp_path: Path, words: tuple[str, ...]) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", *words)
    site.executor("--server", str(relay.access), "--allow-commands", joined=not words)
    with join(site) as session:
        check_questions(session, tmp_path / "gate")
        task = session.command(gated(tmp_path / "other"))
        talk = task.communicator(PATIENCE)
        assert talk.run("echo beside").stdout == "beside\n"
        talk.signal("TERM")
        assert task.exception(PATIENCE) is not None


def test_an_output_that_is_being_written_is_found_by_its_name(service: Service, tmp_path: Path) -> None:
    service.executor()
    with join(service) as session:
        text = '{sys} -c \'import time; f = open("{out:w}", "w"); f.write("half"); f.flush(); time.sleep(60)\''
        task = session.command(text, sys=sys.executable, out="result.txt")
        talk = task.communicator(PATIENCE)
        until(lambda: talk.exists("result.txt") and talk.read("result.txt"), "the output")
        assert talk.read("result.txt") == "half"
        assert talk.read(str(tmp_path / "result.txt")) == "half"
        talk.kill()
        assert task.exception(PATIENCE) is not None


def test_functions_are_asked_too(session: Session) -> None:
    task = session.submit(sleeps, 60)
    talk = task.communicator(PATIENCE)
    assert talk.read() == ""
    assert talk.exists(".bough")
    talk.kill()
    assert task.exception(PATIENCE) is not None


def test_a_call_waits_until_the_task_runs(session: Session, tmp_path: Path) -> None:
    first = session.command(gated(tmp_path / "first"))
    second = session.command(gated(tmp_path / "second"), after=first)
    answer = in_thread(lambda: second.communicator().read())
    with pytest.raises(TimeoutError, match="does not run"):
        second.communicator(0.2).tail()
    assert not answer
    (tmp_path / "first").touch()
    until(lambda: answer, "the answer")
    assert answer in (["begun\n"], [""])
    (tmp_path / "second").touch()


def test_what_never_ran_raises_that_it_has_ended(session: Session, tmp_path: Path) -> None:
    first = session.command("exit 1")
    second = session.command("true", after=first)
    with pytest.raises(TaskEnded):
        second.communicator(PATIENCE).read()


# --- patterns and files that take too long ------------------------------------------------------------------


def test_a_pattern_that_never_ends_costs_a_helper_and_nothing_else(session: Session, tmp_path: Path) -> None:
    task = session.command(gated(tmp_path / "gate", "head -c 50 /dev/zero | tr '\\0' a > as;"))
    talk = task.communicator(PATIENCE)
    until(lambda: talk.exists("as") and talk.size("as") == 50, "the file")
    slow = [in_thread(lambda: talk.read("as", pattern="(a|aa)+$x")) for _ in range(2)]
    assert talk.read("stdout") == "begun\n"  # others answer meanwhile
    assert session.submit(len, "abc").result(PATIENCE) == 3
    until(lambda: all(slow), "the ends of the slow ones")
    assert all(isinstance(error, SiteError) and "takes too long" in str(error) for [error] in slow)
    assert talk.read("as", pattern="a+$") == "a" * 50
    until(task.running, "the news that it runs")
    (tmp_path / "gate").touch()


# --- deeds --------------------------------------------------------------------------------------------------


def test_commands_need_leave(service: Service, tmp_path: Path) -> None:
    service.executor()
    with join(service) as session:
        task = session.command(gated(tmp_path / "gate"))
        talk = task.communicator(PATIENCE)
        with pytest.raises(UserError, match="--allow-commands"):
            talk.run("touch here")
        assert not (tmp_path / "here").exists()
        assert talk.read() == "begun\n"
        (tmp_path / "gate").touch()


def test_a_command_beside_a_task_is_bounded(session: Session, tmp_path: Path) -> None:
    task = session.command(gated(tmp_path / "gate"))
    talk = task.communicator(PATIENCE)
    done = talk.run("pwd; echo to stderr >&2; exit 3")
    assert done == (3, f"{tmp_path}\n", "to stderr\n", False)
    assert talk.run("kill -0 $BOUGH_PID && echo $BOUGH_TASK").stdout == f"{task.id}.0\n"
    assert talk.run("kill -9 $$").exit_code == -9
    flood = talk.run("yes | head -c 3000000")
    assert (len(flood.stdout), flood.is_cut) == (1 << 20, True)
    begun = time.monotonic()
    assert talk.run("echo at once; sleep 100 &").stdout == "at once\n"  # what it leaves is ended
    with pytest.raises(SiteError, match="longer than its time limit"):
        talk.run("sleep 100", timeout=0.2)
    assert time.monotonic() - begun < 50
    with pytest.raises(BadValue, match="timeout"):
        talk.run("true", timeout=0)
    (tmp_path / "gate").touch()


def test_signals_reach_commands_and_functions(session: Session, tmp_path: Path) -> None:
    command = session.command("trap 'echo caught; exit 0' USR1; echo ready; while true; do sleep 0.05; done")
    talk = command.communicator(PATIENCE)
    until(lambda: talk.read() == "ready\n", "the trap")
    talk.signal("USR1")
    assert command.result(PATIENCE).stdout.endswith("caught\n")
    function = session.submit(sleeps, 60)
    talk = function.communicator(PATIENCE)
    talk.started()
    talk.signal(signal.SIGKILL)
    assert function.exception(PATIENCE) is not None
    with pytest.raises(BadValue, match="no signal"):
        talk.signal("NOTHING")
    with pytest.raises(TaskEnded):
        talk.signal("TERM")


def check_verdicts(session: Session) -> None:
    """Tasks that are ended by whoever talks to them."""
    good = session.command("echo so far; sleep 60")
    talk = good.communicator(PATIENCE)
    until(lambda: talk.read() == "so far\n", "its line")
    talk.finish("good enough")
    done = good.result(PATIENCE)
    assert done.stdout == "so far\n"
    assert done.ended_by == "ended by remote monitor: good enough"
    with pytest.raises(TaskEnded):
        talk.finish()
    bad = session.command("sleep 60", retries=1)
    talk = bad.communicator(PATIENCE)
    for attempt in talk.every(0.1):
        talk.fail(f"attempt {attempt.number} is no good")
    error = bad.exception(PATIENCE)
    assert "no good" in str(error)
    assert bad.attempts == 2


def test_tasks_are_finished_and_failed(session: Session) -> None:
    check_verdicts(session)


def test_tasks_behind_a_dispatching_relay_are_finished_and_failed(site: Site) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", "--dispatch")
    site.executor("--server", str(relay.access), joined=False)
    with join(site) as session:
        check_verdicts(session)


# --- retries, and what is lost ---------------------------------------------------------------------------------


def test_a_communicator_follows_a_task_to_another_executor(service: Service, tmp_path: Path) -> None:
    first = service.executor()
    with join(service) as session:
        task = session.command(gated(tmp_path / "gate", "echo $BOUGH_ATTEMPT > n;"), retries=3)
        talk = task.communicator()
        until(lambda: talk.exists("n") and talk.read("n") == "1\n", "the first attempt")
        before = talk.attempt
        seen: list[int] = []
        loop = in_thread(lambda: [seen.append(attempt.number) for attempt in talk.every(0.1)])
        until(lambda: seen, "the loop")
        first.send_signal(signal.SIGKILL)
        second = service.executor()
        assert first.pid != second.pid
        until(lambda: 2 in seen, "the second attempt")
        until(lambda: talk.read("n") == "2\n", "what the second attempt wrote")
        assert before is not None
        assert talk.attempt is not None
        assert (before.number, talk.attempt.number) == (1, 2)
        assert before.executor != talk.attempt.executor
        assert not loop
        (tmp_path / "gate").touch()
        until(lambda: loop, "the end of the loop")
        assert sorted(seen) == seen
        assert task.result(PATIENCE)


def test_a_deed_for_an_attempt_that_has_ended_is_not_done_to_the_next(service: Service, tmp_path: Path) -> None:
    first = service.executor()
    with join(service) as session:
        task = session.command(gated(tmp_path / "gate"), retries=3)
        talk = task.communicator()
        assert talk.started().number == 1
        first.send_signal(signal.SIGKILL)
        service.executor()
        other = task.communicator()
        until(lambda: other.started().number == 2, "the second attempt")
        with pytest.raises(AttemptEnded, match="attempt 1"):
            talk.signal("KILL")
        assert other.read() == "begun\n"
        talk.signal("CONT")  # now it means the one that runs
        (tmp_path / "gate").touch()
        assert task.result(PATIENCE)


def test_a_server_that_is_killed_during_a_question_is_asked_again(service: Service, tmp_path: Path) -> None:
    executor = service.executor("--allow-commands")
    with join(service) as session:
        task = session.command(gated(tmp_path / "gate"))
        talk = task.communicator()
        assert talk.started().number == 1
        os.kill(executor.pid, signal.SIGSTOP)  # so that the questions are open when the server ends
        question = in_thread(talk.read)
        deed = in_thread(lambda: talk.run(f"echo x >> {tmp_path}/deeds"))
        until(lambda: len(session.connection._replies) >= 2, "both to be asked")
        service.kill()
        os.kill(executor.pid, signal.SIGCONT)
        service.start("--reconnect", "20s")
        until(lambda: deed, "the deed to be refused")
        until(lambda: question, "the question to be answered")
        assert question == ["begun\n"]
        assert isinstance(deed[0], PeerLost)
        assert executor.poll() is None
        assert talk.attempt is not None
        assert talk.attempt.number == 1
        (tmp_path / "gate").touch()
        assert task.result(PATIENCE)
        deeds = tmp_path / "deeds"
        assert not deeds.exists() or deeds.read_text() == "x\n"  # once at most


def test_an_executor_that_is_lost_behind_a_relay_answers_with_an_error(site: Site, tmp_path: Path) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", "--dispatch", "--reconnect", "1s")
    executor = site.executor("--server", str(relay.access), "--allow-commands", joined=False)
    with join(site) as session:
        task = session.command(gated(tmp_path / "gate"))
        talk = task.communicator(PATIENCE)
        talk.started()
        deed = in_thread(lambda: talk.run("sleep 50"))
        until(lambda: session.connection._replies, "the question")
        executor.send_signal(signal.SIGKILL)
        until(lambda: deed, "the answer")
        assert isinstance(deed[0], PeerLost | NotRunning | SiteError)
        task.cancel()


def test_a_role_that_only_reads_may_not_ask_tasks(site: Site, tmp_path: Path) -> None:
    from bough.cli.targets.live_server import connect_client
    from bough.model.ids import RecordId
    from bough.wire.probes import ReadPart
    from bough.wire.questions import Probe

    site.begin()
    site.executor()
    path = tmp_path / "read.json"
    site.bough("server", "access", "--role", "read", "--output", str(path))
    with join(site) as session:
        task = session.command(gated(tmp_path / "gate"))
        assert task.communicator(PATIENCE).read() in {"begun\n", ""}
        with connect_client(str(path), "read") as reader, pytest.raises(UserError, match="for reading only"):
            reader.ask(Probe(RecordId(task.record), ReadPart("stdout")))
        (tmp_path / "gate").touch()


# --- functions ---------------------------------------------------------------------------------------------------


def test_a_function_watches_a_task_until_it_ends(session: Session) -> None:
    lines: list[str] = []

    def watch(talk: Communicator) -> None:
        lines.extend(talk.lines(every=0.05))
        lines.append("end")

    task = session.command("for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done; printf unfinished")
    task.monitor(Remote(watch))
    assert task.result(PATIENCE)
    until(lambda: "end" in lines, "the end of the function")
    assert lines == [f"line {n}" for n in range(1, 6)] + ["unfinished", "end"]
    assert session.monitor_failures() == []


def test_lines_of_a_file_are_chosen_where_they_are_written(session: Session, tmp_path: Path) -> None:
    found: list[str] = []
    task = session.command(gated(tmp_path / "gate", "seq 1000 > numbers;"))
    task.monitor(Remote(lambda talk: found.extend(talk.lines("numbers", "^[0-9]00$", every=0.05))))
    until(lambda: found == [f"{n}00" for n in range(1, 10)], "the lines")
    (tmp_path / "gate").touch()
    assert task.result(PATIENCE)


def test_what_a_function_raises_is_told_and_harms_nothing(
    session: Session, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def breaks(talk: Communicator) -> None:
        talk.read("nothing")

    task = session.command(gated(tmp_path / "gate"))
    task.monitor(Remote(breaks))
    until(session.monitor_failures, "the failure")
    [failure] = session.monitor_failures()
    assert failure.task is task
    assert isinstance(failure.error, MissingFile)
    (tmp_path / "gate").touch()
    assert task.result(PATIENCE)
    said = capfd.readouterr().err
    assert "the remote monitor breaks failed: MissingFile: there is no nothing" in said
    assert "the task goes on" in said


def test_an_array_is_watched_by_a_bounded_number_of_threads(session: Session) -> None:
    lock, now, most, seen = threading.Lock(), [0], [0], set()

    def watch(talk: Communicator) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            seen.add(talk.task.index)
        for _ in talk.every(0.05):
            pass
        with lock:
            now[0] -= 1

    array = session.sweep("sleep 0.4; echo {n}", bough.product(n=range(12)))
    array.monitor(Remote(watch, threads=2))
    array.wait_all(PATIENCE)
    until(lambda: not now[0], "the threads")
    assert most[0] <= 2
    assert seen <= set(range(12))
    assert len(seen) >= 4
    assert session.monitor_failures() == []


def test_what_is_submitted_with_a_function_is_watched_by_it(session: Session) -> None:
    seen: list[str] = []

    def watch(talk: Communicator) -> None:
        seen.append(talk.task.name)

    session.command("sleep 0.3", name="one", remote_monitors=[watch]).result(PATIENCE)
    session.sweep("sleep 0.{n}", bough.product(n=[3, 4]), name="many", remote_monitors=[watch]).wait_all(PATIENCE)
    until(lambda: sorted(seen) == ["many", "many", "one"], "all calls")


def test_progress_and_series_are_at_hand(session: Session, tmp_path: Path) -> None:
    text = gated(tmp_path / "gate", "for i in 1 2 3; do echo score=$i; done;")
    task = session.command(text, monitors=["metric:score=([0-9]+)"])
    talk = task.communicator(PATIENCE)
    talk.started()
    until(lambda: len(talk.series("score")) == 3 or len(talk.series()) == 3, "the values")
    (tmp_path / "gate").touch()
    assert talk.progress().step == 3


def test_a_group_is_watched_with_all_below_and_what_comes_later(session: Session, tmp_path: Path) -> None:
    seen: list[str] = []
    watch = Remote(lambda talk: seen.append(talk.task.name))
    gate = tmp_path / "gate"
    with session.group("outer") as outer:
        before = session.command(gated(gate), name="before")
        before.communicator(PATIENCE).started()
        outer.monitor(watch, "metric:x=([0-9]+)")
        outer.monitor(watch)  # once more is no more
        session.command(gated(gate), name="after")
        with session.group("inner"):
            session.map(waits_for, [str(gate)])
    until(lambda: sorted(seen) == ["after", "before", "waits_for"], "all calls")
    gate.touch()
    session.tasks().wait_all(PATIENCE)
    gate.unlink()
    outside = session.command(gated(gate), name="outside")
    outside.communicator(PATIENCE).started()
    gate.touch()
    outside.result(PATIENCE)
    assert len(seen) == 3
    assert session.monitor_failures() == []


def test_only_the_chosen_elements_are_watched(session: Session) -> None:
    seen: set[int] = set()
    array = session.map(sleeps, [0.3] * 6)
    array[2:4].monitor(Remote(lambda talk: seen.add(talk.task.index)))
    array.wait_all(PATIENCE)
    until(lambda: seen == {2, 3}, "both functions")


def test_what_is_no_function_or_no_task_is_refused(session: Session) -> None:
    with pytest.raises(BadValue, match="no function of a communicator"):
        Remote(3)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="threads is 0"):
        Remote(print, threads=0)
    with pytest.raises(BadValue, match="no function of a communicator"):
        session.command("touch here", remote_monitors=[3])  # type: ignore[list-item]
    with pytest.raises(BadValue, match="give it as remote_monitors="):
        session.command("touch here", monitors=[Remote(print)])  # type: ignore[list-item]
    assert not os.path.exists("here")
