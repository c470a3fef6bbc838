"""Sessions end to end: a server, an executor and workers of their own, functions and commands, Ctrl-C and forks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bough
from bough.api.session.session import Session
from bough.errors import Clash, InvalidWorkload, NotRun, StoreHeld, TaskFailed, UnknownName, UserError

PATIENCE = 60.0  # seconds; a deadline, not a pause


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(name="shared", store=tmp_path_factory.mktemp("store"), cores=2) as session:
        yield session


# --- functions ------------------------------------------------------------------------------------------


def test_a_session_is_an_executor(shared: Session) -> None:
    assert isinstance(shared, concurrent.futures.Executor)
    task = shared.submit(lambda x, y: x + y, 1, y=2)
    assert isinstance(task, concurrent.futures.Future)
    assert task.result(PATIENCE) == 3
    assert (task.state, task.attempts) == ("done", 1)


def test_tasks_among_the_arguments_stand_for_their_values(shared: Session) -> None:
    one, two = shared.submit(lambda: 1), shared.submit(lambda: 2)
    array = shared.map(lambda x: x * 10, range(3))

    def show(*args: object, **kwargs: object) -> object:
        return args, kwargs

    assert shared.submit(show, one, [two, (one,)], array, k={"a": two, "b": 5}, part=array[1:]).result(PATIENCE) == (
        (1, [2, (1,)], [0, 10, 20]),
        {"k": {"a": 2, "b": 5}, "part": [10, 20]},
    )


def test_map_keeps_order_and_takes_several_iterables(shared: Session) -> None:
    assert list(shared.map(lambda x: x * x, range(2000))) == [x * x for x in range(2000)]
    assert list(shared.map(lambda a, b: (a, b), "abc", range(10), chunksize=5)) == [("a", 0), ("b", 1), ("c", 2)]
    assert shared.map(str, (x for x in [1, "two", 3.0])).results() == ["1", "two", "3.0"]
    assert shared.map(str, []).results() == []
    assert next(shared.map(str, [1, 2])) == "1"  # type: ignore[call-overload]


def test_map_over_tasks_waits_for_each(shared: Session) -> None:
    tasks = [shared.submit(lambda x: x, i) for i in range(3)]
    assert list(shared.map(lambda x: x + 1, tasks)) == [1, 2, 3]


def test_a_function_s_exception_comes_back_with_its_traceback(shared: Session) -> None:
    def fail() -> None:
        raise LookupError("not here")

    task = shared.submit(fail)
    with pytest.raises(LookupError, match="not here") as caught:
        task.result(PATIENCE)
    assert "in fail" in str(caught.value.__cause__)
    with pytest.raises(NotRun) as refused:
        shared.submit(str, task).result(PATIENCE)
    assert refused.value.cause == task.id


def test_a_failing_element_does_not_harm_the_others(shared: Session) -> None:
    def odd(x: int) -> int:
        if x % 2:
            raise ValueError(x)
        return x

    array = shared.map(odd, range(10))
    found = array.results(errors="return")
    assert [x for x in found if isinstance(x, int)] == [0, 2, 4, 6, 8]
    assert len(array.failed()) == 5
    with pytest.raises(ValueError, match="1"):
        list(array)


def test_tasks_work_with_asyncio(shared: Session) -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        return [await loop.run_in_executor(shared, lambda: 1), await shared.submit(lambda: 2)]

    assert asyncio.run(main()) == [1, 2]


def test_many_threads_may_submit(shared: Session) -> None:
    found: list[int] = []

    def submit(base: int) -> None:
        tasks = [shared.submit(lambda x: x, base + i) for i in range(100)]
        found.extend(task.result(PATIENCE) for task in tasks)

    threads = [threading.Thread(target=submit, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(found) == sorted(1000 * n + i for n in range(4) for i in range(100))


def test_a_big_argument_and_a_big_result_arrive(shared: Session) -> None:
    data = os.urandom(3 << 20)
    assert shared.submit(lambda x: x[::-1], data).result(PATIENCE) == data[::-1]


def test_what_cannot_travel_is_refused_by_name(shared: Session) -> None:
    with pytest.raises(bough.UserError, match="argument 1"):
        shared.submit(str, threading.Lock()).result(PATIENCE)
    with pytest.raises(bough.UserError, match="not 'ls'"):
        shared.submit("ls")  # type: ignore[arg-type]


def test_a_callback_may_submit_but_not_wait(shared: Session) -> None:
    told: list[object] = []
    over = threading.Event()

    def after(task: object) -> None:
        second = shared.submit(lambda: 2)
        try:
            second.result()
        except UserError as error:
            told.append(error)
        second.add_done_callback(lambda task: (told.append(task.result()), over.set()))

    shared.submit(lambda: 1).add_done_callback(after)
    assert over.wait(PATIENCE)
    assert isinstance(told[0], UserError)
    assert told[1] == 2


def test_a_feed_is_read_as_tasks_end(shared: Session) -> None:
    array = shared.feed(lambda x: x * 2, iter(range(3000)))
    assert sorted(task.result() for task in array.as_completed(PATIENCE)) == [x * 2 for x in range(3000)]
    words = shared.feed("echo {word}", ({"word": word} for word in ("a b", "c")))
    assert sorted(task.result().stdout for task in words.as_completed(PATIENCE)) == ["a b\n", "c\n"]


def test_what_a_generator_raises_is_raised(shared: Session) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    array = shared.feed(lambda x: x, items())
    with pytest.raises(OSError, match="no more"):
        array.wait_all(PATIENCE)
    assert array[0].result() == 1


# --- commands -------------------------------------------------------------------------------------------


def test_a_command_gives_what_it_wrote(shared: Session, here: Path) -> None:
    task = shared.command("echo out; echo err >&2")
    done = task.result(PATIENCE)
    assert (done.returncode, done.stdout, done.stderr, task.stdout) == (0, "out\n", "err\n", "out\n")
    assert shared.command(["printf", "%s", "a  b"]).result(PATIENCE).stdout == "a  b"
    assert shared.command("cat", stdin="typed").result(PATIENCE).stdout == "typed"
    assert shared.command("echo {x} $Y", x="a;b", env={"Y": "z"}).result(PATIENCE).stdout == "a;b z\n"
    assert shared.command("pwd").result(PATIENCE).stdout.strip() == str(here)


def test_a_failed_command_says_how(shared: Session) -> None:
    task = shared.command("echo it is broken >&2; exit 3", name="fix")
    with pytest.raises(TaskFailed, match=rf"^task {task.id} \(fix\): exit code 3 on .*, attempt 1: it is broken$"):
        task.result(PATIENCE)
    assert task.stderr == "it is broken\n"
    with pytest.raises(TaskFailed, match="SIGKILL"):
        shared.command("kill -9 $$").result(PATIENCE)


def test_retries_and_timeouts(shared: Session, here: Path) -> None:
    task = shared.command("test -e {flag} || (touch {flag}; exit 1)", flag=str(here / "flag"), retries=1)
    assert task.result(PATIENCE).returncode == 0
    assert task.attempts == 2
    slow = shared.command("sleep 60", timeout="0.2s")
    with pytest.raises(TaskFailed, match=f"task {slow.id}"):
        slow.result(PATIENCE)


def test_readers_wait_for_writers(shared: Session, here: Path) -> None:
    (here / "in.txt").write_text("b\na\n")
    sort = shared.command("sleep 0.05; sort {src:r} > {dst:w}", src="in.txt", dst="deep/out.txt")
    head = shared.command("head -1 {x:r} > {y:w}", x="deep/out.txt", y="first.txt")
    count = shared.command("cat {x:r}", x=sort)
    assert head.result(PATIENCE).outputs["y"] == str(here / "first.txt")
    assert (here / "first.txt").read_text() == "a\n"
    assert count.result(PATIENCE).stdout == "a\nb\n"
    assert shared.submit(lambda path: Path(path).read_text(), head.outputs["y"]).result(PATIENCE) == "a\n"
    assert shared.submit(lambda done: (done.stdout, done.args), count).result(PATIENCE) == (
        "a\nb\n",
        "cat deep/out.txt",
    )


def test_files_that_cannot_be_are_errors_at_once(shared: Session, here: Path) -> None:
    with pytest.raises(InvalidWorkload, match=r"nothing\.txt"):
        shared.command("cat {x:r}", x="nothing.txt")
    shared.command("echo > {y:w}", y="taken.txt").result(PATIENCE)
    with pytest.raises(Clash, match=r"taken\.txt"):
        shared.command("echo > {y:w}", y="taken.txt")
    (here / "yours.txt").write_text("mine")
    with pytest.raises(Clash, match=r"yours\.txt"):
        shared.command("echo > {y:w}", y="yours.txt")
    renamed = shared.command("echo > {y:w}", y="yours.txt", clash="rename")
    renamed.result(PATIENCE)
    assert renamed.outputs["y"] == str(here / "yours-1.txt")
    assert (here / "yours.txt").read_text() == "mine"


def test_an_output_that_is_missing_fails_the_task(shared: Session, here: Path) -> None:
    with pytest.raises(TaskFailed, match=r"never\.txt"):
        shared.command("true {y:w}", y="never.txt").result(PATIENCE)


def test_a_sweep_runs_every_combination(shared: Session, here: Path) -> None:
    for name in "ab":
        (here / f"{name}.txt").write_text(name)
    space = bough.product(q=["a.txt", "b.txt"], e=[1, 2, 3])
    array = shared.sweep("echo $(cat {q:r}) {e} > {o:w}", space, o="hits/{q.stem}.{e}", where=lambda e: e != 2)
    assert len(array) == 4
    assert array.wait_all(PATIENCE) is array
    assert (here / "hits" / "b.3").read_text() == "b 3\n"
    assert array[3].outputs["o"] == str(here / "hits" / "b.3")
    assert [task.state for task in array] == ["done"] * 4
    after = shared.sweep("cat {o:r}", bough.tie(o=[task.outputs["o"] for task in array]))
    assert [task.result(PATIENCE).stdout for task in after] == ["a 1\n", "a 3\n", "b 1\n", "b 3\n"]


def test_a_wrong_slot_is_named(shared: Session) -> None:
    with pytest.raises(InvalidWorkload, match=r"\{y\}"):
        shared.sweep("echo {x} {y}", bough.product(x=[1]))


def test_an_array_that_grows(shared: Session) -> None:
    array = shared.array()
    array.add("echo one")
    array.add(shared.submit(lambda: 2))
    array.add(["echo", "three"], name="three")
    array.wait_all(PATIENCE)
    assert [task.state for task in array] == ["done"] * 3
    assert array.wait_any().done()


# --- options, groups, deeds -----------------------------------------------------------------------------


def test_options_are_checked(shared: Session) -> None:
    with pytest.raises(UserError, match="memory is 'lots'"):
        shared.command("true", memory="lots")
    with pytest.raises(UserError, match="retries is -1"):
        shared.command("true", retries=-1)
    with pytest.raises(UserError, match="no option 'core'"):
        shared.options(core=2)
    with pytest.raises(UserError, match="after holds 5"):
        shared.command("true", after=[5])  # type: ignore[list-item]
    assert shared.options(cores=2, name="two").submit(lambda: os.environ.get("PATH")).result(PATIENCE)


def test_groups_nest_and_gather_what_is_submitted(shared: Session) -> None:
    with shared.group("outer") as outer:
        shared.command("true")
        with shared.group("inner") as inner:
            last = shared.submit(lambda: 1)
        with pytest.raises(UserError, match="'inner'"):
            shared.group("inner")
    outer.wait(PATIENCE)
    assert inner.path == "outer/inner"
    assert inner.status()["done"] == 1
    assert outer.status()["done"] == 2
    with shared.group("then", after=[outer]) as then:
        assert then.submit(lambda: 3).result(PATIENCE) == 3
    assert last.group == inner.id


def test_what_is_held_does_not_start_before_it_is_released(shared: Session) -> None:
    gate = shared.command("sleep 0.2")
    task = shared.command("echo free", after=[gate])
    assert shared.hold(task) == 1
    gate.result(PATIENCE)
    until(lambda: "held" in task.explain(), "the task to be held")
    assert not task.done()
    assert shared.release(task) == 1
    assert task.result(PATIENCE).stdout == "free\n"


def test_running_tasks_are_cancelled_and_killed(shared: Session) -> None:
    cancelled, killed = shared.command("sleep 60"), shared.command("sleep 60")
    until(lambda: cancelled.running() and killed.running(), "both to run")
    assert cancelled.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        cancelled.result()
    killed.kill()
    with pytest.raises(TaskFailed, match="killed"):
        killed.result(PATIENCE)
    assert "killed" in killed.explain()


def test_a_whole_array_is_cancelled(shared: Session) -> None:
    array = shared.map(time.sleep, [60] * 50)
    assert array.cancel() == 50
    array.wait_all(PATIENCE)
    assert array.counts()["cancelled"] == 50
    assert shared.submit(lambda: 1).result(PATIENCE) == 1


def test_tasks_are_found_by_selector(shared: Session) -> None:
    task = shared.submit(lambda: 41)
    task.result(PATIENCE)
    (found,) = shared.find(task.id)
    assert found.result() == 41
    array = shared.map(abs, range(-5, 0))
    array.wait_all(PATIENCE)
    assert [t.result() for t in shared.find(f"{array.id}.1-2")] == [4, 3]  # type: ignore[attr-defined]
    assert len(shared.find("last")) == 5
    with pytest.raises(UnknownName, match="nobody"):
        shared.find("nobody")


def test_the_processors_are_known_from_the_beginning(here: Path) -> None:
    with Session(2, name="begins") as session:
        assert session.processors() == {"local": 2}


def test_things_of_another_session_cannot_be_waited_for_but_their_values_are_passed(
    shared: Session, here: Path
) -> None:
    with Session(name="other", cores=1) as other:
        task = other.submit(lambda: 1)
        with pytest.raises(UserError, match="another session"):
            shared.command("true", after=[task])
        assert shared.submit(str, task).result(PATIENCE) == "1"


# --- the life of a session ------------------------------------------------------------------------------


def test_leaving_waits_for_everything_and_leaves_nothing_behind(here: Path) -> None:
    with Session(name="one", cores=2) as session:
        tasks = [session.command(f"sleep 0.1; echo {i}") for i in range(4)]
        pid = session.pid
    assert [task.result().stdout for task in tasks] == ["0\n", "1\n", "2\n", "3\n"]
    assert not is_alive(pid)
    with pytest.raises(RuntimeError, match="shut down"):
        session.submit(str, 1)
    session.shutdown()


def test_shutdown_can_spare_what_runs_and_cancel_the_rest(here: Path) -> None:
    session = Session(name="spare", cores=1)
    running = session.command("sleep 0.5; echo done")
    waiting = [session.command("true", after=[running]) for _ in range(3)]
    until(running.running, "the first task to run")
    session.shutdown(cancel_futures=True)
    assert running.result().stdout == "done\n"
    assert all(task.cancelled() for task in waiting)


def test_shutdown_without_waiting_lets_tasks_end(here: Path) -> None:
    session = Session(name="later", cores=1)
    task = session.command("sleep 0.1; echo done")
    session.shutdown(wait=False)
    assert task.result(PATIENCE).stdout == "done\n"
    session.shutdown()


def test_the_same_name_twice_at_once_is_refused(here: Path) -> None:
    with Session(name="twice", cores=1), pytest.raises(StoreHeld, match=r"pid \d+"):
        Session(name="twice", cores=1)


def test_wrong_arguments_of_a_session_are_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="cores is 0"):
        Session(cores=0)
    with pytest.raises(UserError, match="names a folder"):
        Session(name="a/b")
    with pytest.raises(UserError, match="neither unix:PATH, nor HOST:PORT"):
        Session("tcp://far.example:1")
    with pytest.raises(UserError, match="nonsense"):
        Session(name="policy", policy="nonsense")
    monkeypatch.setenv("BOUGH_TASK", "1.0")
    with pytest.raises(UserError, match=r"bough\.here\(\)"):
        Session(name="nested")


def test_a_session_in_a_task_is_refused(shared: Session) -> None:
    def nested() -> None:
        bough.Session()

    with pytest.raises(UserError, match=r"bough\.here\(\)"):
        shared.submit(nested).result(PATIENCE)


def test_a_killed_server_fails_what_waits(here: Path) -> None:
    session = Session(name="dead", cores=1)
    task = session.command("sleep 60")
    until(task.running, "the task to run")
    os.kill(session.pid, signal.SIGKILL)
    with pytest.raises(bough.SiteError, match="ended unexpectedly"):
        task.result(PATIENCE)
    with pytest.raises(bough.SiteError, match="ended unexpectedly"):
        session.submit(str, 1)
    with pytest.raises(bough.SiteError, match="ended unexpectedly"):
        session.shutdown()


def test_a_second_run_reuses_what_is_done(here: Path) -> None:
    (here / "in.txt").write_text("1")
    (here / "other.txt").write_text("2")

    def run() -> tuple[int, list[str]]:
        with Session(name="again", cores=2, reuse="always") as session:
            session.submit(pow, 2, 3).result()
            session.map(abs, range(-50, 0)).results()
            session.command("echo made > {o:w}", o="made.txt").result()
            sweep = session.sweep("cat {i:r} {e}", bough.product(i=["in.txt", "other.txt"], e=["/dev/null"]))
            texts = [task.result().stdout for task in sweep]
            return session.progress.reused, texts

    assert run() == (0, ["1", "2"])
    assert run() == (54, ["1", "2"])
    (here / "in.txt").write_text("changed")
    assert run() == (53, ["changed", "2"])
    (here / "made.txt").unlink()
    assert run() == (53, ["changed", "2"])
    with Session(name="again", cores=2, fresh=True) as session:
        assert session.submit(pow, 2, 3).result() == 8
        assert session.progress.reused == 0
        assert session.find("pow")[0].result() == 8
    with Session(name="again", cores=2) as session:  # it has done nothing yet: what there is, an earlier run has done
        assert session.find("last")[0].result() == session.find("all")[0].result() == 8
        assert session.submit(abs, -1).result() == 1
        assert session.find("last")[0].result() == session.find("all")[0].result() == 1


def script(folder: Path, body: str) -> subprocess.Popen[str]:
    path = folder / "flow.py"
    path.write_text(textwrap.dedent(body))
    return subprocess.Popen(
        [sys.executable, str(path)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_script_needs_no_guard_and_its_functions_travel(here: Path) -> None:
    (here / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    process = script(
        here,
        """
        import bough, helper

        BASE = 100

        def work(x):
            return BASE + helper.double(x)

        with bough.Session(cores=2) as s:
            print(list(s.map(work, range(3))), s.name)
        """,
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err, process.returncode) == ("[100, 102, 104] flow\n", "", 0)
    assert (here / ".bough" / "flow" / "journal.db").exists()


def test_a_session_left_open_is_waited_for_when_the_script_ends(here: Path) -> None:
    process = script(
        here,
        """
        import bough
        s = bough.Session(cores=1)
        print(s.pid, s.submit(int, "7").result(), flush=True)
        s.command("sleep 0.3; echo done > {o:w}", o="late.txt")
        """,
    )
    out, _ = process.communicate(timeout=PATIENCE)
    pid, value = map(int, out.split())
    assert value == 7
    assert not is_alive(pid)
    assert (here / "late.txt").read_text() == "done\n"


def test_ctrl_c_ends_running_tasks_politely(here: Path) -> None:
    process = script(
        here,
        """
        import bough
        with bough.Session(cores=1) as s:
            t = s.command("trap 'echo asked > asked.txt; exit 1' TERM; sleep 60 & wait")
            while not t.running():
                pass
            print(s.pid, flush=True)
            t.result()
        """,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert "stopping: ending 1 running task (press Ctrl-C again to stop at once)" in err
    assert "KeyboardInterrupt" in err
    assert process.returncode != 0
    assert (here / "asked.txt").read_text() == "asked\n"
    assert not is_alive(pid)


def test_a_second_ctrl_c_stops_at_once(here: Path) -> None:
    process = script(
        here,
        """
        import bough
        with bough.Session(cores=1) as s:
            t = s.command("trap '' TERM; echo $$ > pid.txt; sleep 61 & while true; do wait; done")
            while not t.running():
                pass
            print(s.pid, flush=True)
            t.result()
        """,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    until(lambda: (here / "pid.txt").exists() and (here / "pid.txt").read_text().strip(), "the stubborn task")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "stopping" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert not is_alive(pid)
    stubborn = int((here / "pid.txt").read_text())
    until(lambda: not is_alive(stubborn), "the stubborn task's end")


def test_a_forked_child_cannot_use_the_session_nor_harm_it(here: Path) -> None:
    process = script(
        here,
        """
        import os, sys, bough
        with bough.Session(cores=1) as s:
            pid = os.fork()
            if pid == 0:
                try:
                    s.submit(str, 1)
                except bough.UserError as error:
                    print(error, flush=True)
                sys.exit(0)
            os.waitpid(pid, 0)
            print(s.submit(str, 1).result(), flush=True)
        """,
    )
    out, err = process.communicate(timeout=PATIENCE)
    said = "a session cannot be used in a forked process; open one in the process itself"
    assert (out.splitlines(), err) == ([said, "1"], "")


def test_failures_that_nobody_looked_at_are_known(here: Path) -> None:
    with Session(name="unseen", cores=1, on_failure="ignore") as session:
        session.command("exit 1", name="bad")
        seen = session.command("exit 2")
        assert seen.exception() is not None
    assert [str(one) for one in session.unretrieved()] == ["task 1 (bad): exit code 1"]
    assert session.progress.counts()["failed"] == 2


def test_fail_fast_stops_the_rest(here: Path) -> None:
    with Session(name="fast", cores=1, fail_fast=True) as session:
        session.command("sleep 0.2; exit 1")
        late = session.command("true")
        assert isinstance(late.exception(PATIENCE), NotRun)


def test_importing_bough_is_quick() -> None:
    code = "import sys, time; t = time.perf_counter(); import bough; print(len(sys.modules)); assert bough.Session"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert int(out.stdout) < 90


# --- what cannot be, and what goes wrong ----------------------------------------------------------------


def test_an_exception_in_the_block_shows_at_once(here: Path) -> None:
    """What runs is ended, what has not started is cancelled; the script's own error is what one sees."""
    with pytest.raises(ZeroDivisionError), Session(name="broken", cores=1) as session:  # noqa: PT012
        slow = session.command("echo $$ > pid.txt; sleep 600")
        waiting = session.command("touch never.txt")
        many = session.sweep("touch never.{n}", bough.product(n=range(1000)))
        later = session.submit(len, "abc")
        until(lambda: (here / "pid.txt").exists() and (here / "pid.txt").read_text().strip(), "the slow task")
        until(slow.running, "the news of it")
        pid = session.pid
        raise ZeroDivisionError
    assert not is_alive(pid)
    until(lambda: not is_alive(int((here / "pid.txt").read_text())), "the end of the slow task")
    assert isinstance(slow.exception(0), NotRun)
    assert waiting.cancelled()
    assert later.cancelled()
    assert all(task.cancelled() for task in many.tasks())
    assert not list(here.glob("never*"))
    with pytest.raises(bough.BoughError):
        session.command("true")
    with Session(name="broken", cores=1) as again:  # the store is sound, and nothing of it was done
        assert again.command("touch never.txt").result(PATIENCE).returncode == 0


def test_leaving_the_block_by_a_good_exit_waits_for_all(here: Path) -> None:
    with pytest.raises(SystemExit), Session(name="left", cores=1) as session:  # noqa: PT012
        task = session.command("sleep 0.3; touch made.txt")
        sys.exit(0)
    assert task.result(0).returncode == 0
    assert (here / "made.txt").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 2**63},
        {"memory": 2**63},
        {"retries": 2**63},
        {"cores": float("nan")},
        {"cores": float("inf")},
        {"timeout": float("inf")},
        {"timeout": 1e300},
        {"resources": {"licence": float("nan")}},
        {"attributes": {"a": "x" * 70_000}},
        {"name": "a\0b"},
    ],
)
def test_an_option_that_no_store_can_hold_is_refused_and_the_session_goes_on(
    here: Path, shared: Session, options: dict[str, object]
) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        shared.command("true", **options)
    with pytest.raises(UserError, match=next(iter(options))):
        shared.sweep("true {n}", bough.product(n=[1]), **options)
    with pytest.raises(UserError, match=next(iter(options))):
        shared.options(**options)
    assert shared.command("true").result(PATIENCE).returncode == 0


def test_ids_beyond_a_store_name_nothing(shared: Session) -> None:
    for number in (2**63, 10**30):
        for what in (shared.find, shared.cancel, shared.kill, shared.hold, shared.reset, shared.explain):
            with pytest.raises(UserError):
                what(number)
    for group in ({"limit": 2**63}, {"retries": 2**63}, {"timeout": float("inf")}, {"priority": 2**63}, {"after": 5}):
        with pytest.raises(UserError):
            shared.group("never", **group)
    assert shared.command("true").result(PATIENCE).returncode == 0


def test_a_value_with_braces_reaches_the_command_as_it_is(shared: Session) -> None:
    done = shared.command("printf '%s;' {a} {b}", a="{b:raw}", b="$(touch injected)").result(PATIENCE)
    assert done.stdout == "{b:raw};$(touch injected);"
