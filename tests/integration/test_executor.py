"""The real executor process, driven by a server made of one plain socket."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from executor_server import BASH, PATIENCE, Server

from bough.api.futures.remote_exceptions import load_exception
from bough.model.commands.command import CommandSettings, CommandTemplate, TemplateSlot, encode_call
from bough.model.events.news import WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.ids import RecordId, SpanId
from bough.model.outcomes import Cause, Detail, ResultFile, Stream
from bough.model.refs import Ref
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind, Limits, Page
from bough.wire.executor_messages import Acknowledged, ExecutorHello, Leave, RunSpan, StopElements, Value
from bough.wire.framing import server_frames


def text(stream: Stream | None) -> str:
    if stream is None:
        return ""
    return Path(stream.path).read_bytes()[stream.offset : stream.offset + stream.length].decode()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def written(path: Path) -> list[int]:
    """The numbers of a line that a task writes, once they are there."""
    assert eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return [int(word) for word in path.read_text().split()]


# --- functions ---


def test_an_array_gives_its_values_in_order(server: Server) -> None:
    span = server.map(lambda x: x * x, range(1000))
    assert server.values(span, 1000) == [x * x for x in range(1000)]


def test_a_part_of_an_array_over_pages_is_run(server: Server) -> None:
    span = server.span()
    body = server.blob(cloudpickle.dumps(lambda a, b: a + b))
    pages = tuple(Page(at, at + 10, pickle.dumps([(i, 1000) for i in range(at, at + 10)])) for at in (0, 10))
    server.send(RunSpan(span, RecordId(1), 5, 15, 1, Kind.FUNCTION, body, True, pages=pages, star=True))
    assert server.values(span, 10) == [i + 1000 for i in range(5, 15)]


def test_inputs_take_the_place_of_their_marks(server: Server) -> None:
    one = Value(3, 4, [(0, 5, pickle.dumps(["a", "b", "c", "d", "e"]))])
    path = server.folder / "big"
    path.write_bytes(pickle.dumps([10, 20]))
    many = Value(0, 3, [(0, 2, ResultFile(str(path), 1)), (2, 4, pickle.dumps([30, 40]))], single=False)
    span = server.call(lambda *a, **k: (a, k), Ref(0), [1, {"x": Ref(1)}], kwargs={"y": (Ref(0),)}, inputs=[one, many])
    assert server.values(span) == [(("d", [1, {"x": [10, 20, 30]}]), {"y": ("d",)})]


def test_an_exception_travels_with_its_remote_traceback_and_the_rest_goes_on(server: Server) -> None:
    def fussy(x: int) -> int:
        if x == 2:
            raise ValueError(f"no such colour: {x}")
        return x

    span = server.map(fussy, range(5))
    first, failed, rest = server.wait(span, 5)
    assert (first.start, first.stop, rest.start, rest.stop) == (0, 2, 3, 5)
    assert (failed.index, failed.failure.cause, failed.failure.message) == (
        2,
        Cause.EXCEPTION,
        "ValueError: no such colour: 2",
    )
    error = load_exception(failed.failure)
    assert isinstance(error, ValueError)
    assert "in fussy" in str(error.__cause__)
    assert "function_runner" not in failed.failure.traceback
    assert failed.failure.parameters == "x=2"


def test_an_exception_with_arguments_of_its_own_arrives_as_what_it_was(server: Server) -> None:
    def fn() -> None:
        class Odd(Exception):
            def __init__(self, a: int, b: int) -> None:
                super().__init__(f"{a} and {b}")

        raise Odd(1, 2)

    failure = server.failure(server.call(fn)).failure
    error = load_exception(failure)
    assert type(error).__name__ == "Odd"
    assert str(error) == "1 and 2"
    assert "function_runner" not in failure.traceback


def test_system_exit_ends_the_element_and_not_the_worker(server: Server) -> None:
    span = server.map(lambda x: sys.exit(3) if x == 1 else os.getpid(), range(3))
    first, failed, last = server.wait(span, 3)
    assert failed.failure.message == "SystemExit: 3"
    assert pickle.loads(first.results) == pickle.loads(last.results)


def test_a_missing_module_is_named_and_the_function_was_not_started(server: Server) -> None:
    span = server.span()
    body = server.blob(b"cno_such_module_here\nfn\n.")
    server.send(RunSpan(span, RecordId(1), 0, 1, 1, Kind.FUNCTION, body, payload=pickle.dumps(((), {}))))
    failure = server.failure(span).failure
    assert failure.cause == Cause.NOT_STARTED
    assert "no_such_module_here" in failure.message


def test_prints_are_ranges_of_the_slot_files_and_belong_to_their_elements(server: Server) -> None:
    def chatty(x: int) -> int:
        if x % 2:
            print("out", x)
            print("err", x, file=sys.stderr, end="")
        return x

    span = server.map(chatty, range(6))
    news = server.wait(span, 6)
    details = {detail.index: detail for n in news for detail in n.details}
    assert set(details) == {1, 3, 5}
    assert [text(details[i].stdout) for i in (1, 3, 5)] == ["out 1\n", "out 3\n", "out 5\n"]
    assert [text(details[i].stderr) for i in (1, 3, 5)] == ["err 1", "err 3", "err 5"]


def test_what_children_of_a_function_write_belongs_to_it(server: Server) -> None:
    span = server.call(lambda: subprocess.run(["echo", "from below"], check=True).returncode)
    (news,) = server.wait(span)
    assert text(news.details[0].stdout) == "from below\n"


def test_a_result_that_cannot_be_pickled_fails_alone(server: Server) -> None:
    def fn(x: int) -> Any:
        import threading

        return threading.Lock() if x == 3 else x

    news = server.wait(server.map(fn, range(6)), 6)
    failed = [n for n in news if isinstance(n, WorkFailed)]
    assert [n.index for n in failed] == [3]
    assert failed[0].failure.cause == Cause.UNSENDABLE
    assert "lock" in failed[0].failure.message
    assert sum(n.stop - n.start for n in news if isinstance(n, WorkSucceeded)) == 5


def test_big_results_are_files(server: Server) -> None:
    span = server.map(lambda x: b"x" * x, [10, 1_000_000, 20])
    assert [len(value) for value in server.values(span, 3)] == [10, 1_000_000, 20]
    files = [n for n in server.ended(span) if isinstance(n.results, ResultFile)]
    assert [(n.start, n.stop) for n in files] == [(1, 2)]
    assert os.path.getsize(files[0].results.path) == files[0].results.size
    assert os.listdir(server.folder / "results") == [os.path.basename(files[0].results.path)]


def test_results_of_classes_of_the_script_travel_by_value(server: Server) -> None:
    source = "class Point:\n    def __init__(self, x): self.x = x\ndef make(x): return Point(x)\n"
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(source, scope)
    assert [point.x for point in server.values(server.map(scope["make"], range(3)), 3)] == [0, 1, 2]


def test_finished_elements_are_told_while_a_long_one_runs_and_those_behind_it_come_back(server: Server) -> None:
    gate = server.folder / "gate"
    os.mkfifo(gate)
    span = server.map(lambda x: Path(gate).read_text() if x == 3 else x, range(5))
    server.until(lambda: server.count(span) == 4 and any(isinstance(n, WorkStarted) for n in server.news))
    assert [n for n in server.news if isinstance(n, WorkStarted)] == [WorkStarted(span, 3, 4)]
    assert [n for n in server.ended(span) if isinstance(n, WorkReturned)] == [WorkReturned(span, 4, 5)]
    gate.write_text("go")
    news = [n for n in server.wait(span, 5) if isinstance(n, WorkSucceeded)]
    assert [value for n in news for value in pickle.loads(n.results)] == [0, 1, 2, "go"]


def test_a_killed_worker_costs_the_running_element_and_the_rest_comes_back(server: Server) -> None:
    def fn(x: int) -> int:
        if x == 3:
            print("last words")
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    span = server.map(fn, range(6), attempt=2)
    news = server.wait(span, 6)
    assert [(n.start, n.stop) for n in news if isinstance(n, WorkSucceeded)] == [(0, 1), (1, 2), (2, 3)]
    failed = next(n for n in news if isinstance(n, WorkFailed))
    assert (failed.index, failed.failure.cause, failed.failure.signal) == (3, Cause.DIED, signal.SIGKILL)
    assert failed.failure.message.startswith("the worker process died (SIGKILL) while running it")
    assert failed.detail is not None
    assert text(failed.detail.stdout) == "last words\n"
    assert news[-1] == WorkReturned(span, 4, 6)
    assert server.values(server.call(lambda: 1)) == [1]


def test_results_that_die_with_the_worker_count_as_lost(server: Server) -> None:
    def fn(x: int) -> int:
        if x == 3:
            os._exit(4)
        return x

    news = server.wait(server.map(fn, range(6)), 6)
    lost = {n.index for n in news if isinstance(n, WorkFailed)}
    told = {i for n in news if isinstance(n, WorkSucceeded) for i in range(n.start, n.stop)}
    assert lost | told == {0, 1, 2, 3}
    assert 3 in lost
    assert news[-1].start == 4


def test_a_function_over_its_time_ends_alone(server: Server) -> None:
    def fn(x: int) -> int:
        while x == 1:
            time.sleep(0.01)
        return x

    news = server.wait(server.map(fn, range(3), limits=Limits(timeout=0.2)), 3)
    assert isinstance(news[0], WorkSucceeded)
    (failed,) = [n for n in news if isinstance(n, WorkFailed)]
    assert (failed.index, failed.failure.cause, failed.failure.message) == (
        1,
        Cause.TIMEOUT,
        "ran longer than 0.2 s",
    )
    assert [(n.start, n.stop) for n in news if isinstance(n, WorkReturned)] == [(2, 3)]


def test_a_function_over_its_memory_ends(server: Server) -> None:
    def fn() -> int:
        hog = bytearray(os.urandom(1000) * 200_000)
        time.sleep(60)
        return len(hog)

    failure = server.failure(server.call(fn, limits=Limits(memory=100_000_000))).failure
    assert failure.cause == Cause.MEMORY
    assert "the limit is 100.0 MB" in failure.message


def test_a_stopped_function_says_nothing_and_others_of_its_span_come_back(server: Server) -> None:
    pid_file = server.folder / "pid"

    def fn(x: int) -> int:
        if x == 1:
            pid_file.write_text(f"{os.getpid()}\n")
            time.sleep(600)
        return x

    span = server.map(fn, range(5))
    (pid,) = written(pid_file)
    server.send(StopElements(span, 1, 3, 0.5))
    news = server.wait(span, 3)
    assert [(n.start, n.stop) for n in news if isinstance(n, WorkSucceeded)] == [(0, 1)]
    returned = {index for n in news if isinstance(n, WorkReturned) for index in range(n.start, n.stop)}
    assert returned - {2} == {3, 4}  # 2 came back if the stop was later than the end of our patience with 1
    assert eventually(lambda: gone(pid))
    assert server.values(server.call(lambda: 1)) == [1]


# --- commands ---


def detail_of(news: Any) -> Detail:
    found = news.details[0] if isinstance(news, WorkSucceeded) else news.detail
    assert isinstance(found, Detail)
    return found


def test_a_command_runs_in_its_directory_with_its_environment(server: Server) -> None:
    folder = server.folder / "sub"
    folder.mkdir()
    wanted = '"$PWD" $X $OMP_NUM_THREADS $BOUGH_RUN $BOUGH_TASK $BOUGH_ATTEMPT'
    span = server.command(
        f"echo {wanted}; echo oops >&2", cwd=str(folder), env={"X": "y"}, needs=Needs(cores=2), attempt=3
    )
    (news,) = server.wait(span)
    detail = detail_of(news)
    assert text(detail.stdout) == f"{folder} y 2 marker-1 {span + 100}.0 3\n"
    assert text(detail.stderr) == "oops\n"
    assert detail.exit_code == 0
    assert detail.memory > 100_000
    assert detail.ended > detail.started > time.time() - 60
    assert news.seconds > 0


def test_a_failed_command_tells_its_exit_code_and_the_end_of_its_stderr(server: Server) -> None:
    failed = server.failure(server.command("echo bad luck >&2; exit 3"))
    failure = failed.failure
    assert (failure.cause, failure.message, failure.exit_code, failure.stderr) == (
        Cause.EXIT,
        "exit code 3",
        3,
        "bad luck\n",
    )
    assert detail_of(failed).exit_code == 3


def test_a_command_killed_by_a_signal_names_it(server: Server) -> None:
    failure = server.failure(server.command("kill -SEGV $$")).failure
    assert (failure.cause, failure.message, failure.signal) == (Cause.SIGNAL, "killed by signal 11 (SIGSEGV)", 11)


def test_a_missing_program_and_a_missing_directory_are_named(server: Server) -> None:
    program = server.failure(server.command(["no-such-program", "x"])).failure
    assert program.cause == Cause.NOT_STARTED
    assert "no-such-program" in program.message
    place = server.failure(server.command(["true"], cwd="/no/such/place")).failure
    assert place.cause == Cause.NOT_STARTED
    assert "/no/such/place" in place.message


def test_a_script_without_a_first_line_is_run_by_the_shell(server: Server) -> None:
    script = server.folder / "script"
    script.write_text("echo plain $1\n")
    script.chmod(0o755)
    (news,) = server.wait(server.command(["./script", "words"]))
    assert text(detail_of(news).stdout) == "plain words\n"


def test_standard_input_is_empty_a_text_or_a_file(server: Server) -> None:
    (server.folder / "f").write_text("from a file")
    spans = [server.command(["cat"]), server.command(["cat"], stdin=b"a text"), server.command(["cat"], stdin_path="f")]
    found = [text(detail_of(server.wait(span)[0]).stdout) for span in spans]
    assert found == ["", "a text", "from a file"]


def test_outputs_appear_on_success_under_their_final_names(server: Server) -> None:
    final = server.folder / "deep" / "hits.txt"
    look = server.folder / "look"
    parts = ["ls -a deep > look; echo 42 > ", TemplateSlot("o", mode="w"), "; ls -a deep >> look"]
    (news,) = server.wait(span := server.command("", parts=parts, writes={"o": str(final)}))
    (output,) = detail_of(news).outputs
    assert final.read_text() == "42\n"
    assert (output.slot, output.path, output.size, output.mtime_ns) == ("o", str(final), 3, final.stat().st_mtime_ns)
    assert f".bough-{span + 100}.0-1.hits.txt" in look.read_text().split()
    assert os.listdir(final.parent) == ["hits.txt"]


def test_outputs_of_a_failed_attempt_are_deleted_and_so_are_leftovers(server: Server) -> None:
    final = server.folder / "o.txt"
    parts = ["echo 42 > ", TemplateSlot("o", mode="w"), "; exit 1"]
    leftover = server.folder / ".bough-101.0-1.o.txt"
    leftover.write_text("old")
    server.failure(server.command("", parts=parts, writes={"o": str(final)}, attempt=2))
    assert not final.exists()
    assert not [name for name in os.listdir(server.folder) if name.startswith(".bough-")]


def test_a_missing_output_is_a_failure_that_names_it(server: Server) -> None:
    failure = server.failure(server.command("true", writes={"o": str(server.folder / "never")})).failure
    assert failure.cause == Cause.MISSING_OUTPUT
    assert "never" in failure.message


def test_a_command_array_renders_its_rows(server: Server) -> None:
    template = CommandTemplate(
        CommandSettings(str(server.folder), BASH),
        [
            "echo ",
            TemplateSlot("x"),
            " > ",
            TemplateSlot("o", mode="w"),
            "; echo ",
            TemplateSlot("attempt"),
            " ",
            TemplateSlot("cores"),
        ],
        ("x",),
        {"o": ["hits/", TemplateSlot("x"), ".txt"]},
    )
    body = server.blob(encode_call(template))
    rows = server.blob(pickle.dumps([(f"a {i}",) for i in range(20)]))
    span = server.span()
    server.send(RunSpan(span, RecordId(9), 5, 15, 1, Kind.COMMAND, body, True, table=rows))
    news = server.wait(span, 10)
    details = [detail for n in news for detail in n.details]
    assert [(detail.index, text(detail.stdout)) for detail in details] == [(i, "1 1\n") for i in range(5, 15)]
    assert [n.stop for n in news] == [*(n.start for n in news[1:]), 15]
    assert sorted(os.listdir(server.folder / "hits")) == sorted(f"a {i}.txt" for i in range(5, 15))
    assert (server.folder / "hits" / "a 7.txt").read_text() == "a 7\n"


def test_a_command_over_its_time_dies_with_its_children(server: Server) -> None:
    span = server.command("trap '' TERM; sleep 600 & echo $! > child; wait; wait", limits=Limits(timeout=1))
    (child,) = written(server.folder / "child")
    failure = server.failure(span).failure
    assert (failure.cause, failure.message) == (Cause.TIMEOUT, "ran longer than 1 s")
    assert eventually(lambda: gone(child))


def test_a_command_over_its_memory_ends(server: Server) -> None:
    code = "x = bytearray(1000) * 200_000; import time; time.sleep(60)"
    failure = server.failure(server.command([sys.executable, "-c", code], limits=Limits(memory=100_000_000))).failure
    assert failure.cause == Cause.MEMORY
    assert "the limit is 100.0 MB" in failure.message


def test_what_a_command_leaves_running_is_ended_and_its_output_kept_apart(server: Server) -> None:
    one = server.command("sleep 600 & echo $!", needs=Needs(cores=2))
    (first,) = server.wait(one)
    (second,) = server.wait(server.command("echo second", needs=Needs(cores=2)))
    assert eventually(lambda: gone(int(text(detail_of(first).stdout))))
    assert text(detail_of(second).stdout) == "second\n"
    assert detail_of(first).stdout.path != detail_of(second).stdout.path  # type: ignore[union-attr]


def test_a_stopped_command_is_ended_silently_and_queued_elements_are_dropped(server: Server) -> None:
    running = server.command("echo $$ > pid; sleep 600", needs=Needs(cores=2))
    queued = server.map(lambda x: x, range(10), needs=Needs(cores=2))
    (pid,) = written(server.folder / "pid")
    server.send(StopElements(queued, 2, 8), StopElements(running, 0, 1, 0.2))
    assert server.values(queued, 4) == [0, 1, 8, 9]
    assert eventually(lambda: gone(pid))
    assert server.ended(running) == []


def test_a_worker_killed_under_a_command_takes_the_command_along(server: Server) -> None:
    span = server.command("echo $PPID $$ > pids; sleep 600")
    worker, command = written(server.folder / "pids")
    os.kill(worker, signal.SIGKILL)
    assert server.failure(span).failure.cause == Cause.LOST
    assert eventually(lambda: gone(command))
    assert server.values(server.call(lambda: 1)) == [1]


# --- the executor itself ---


def test_resources_are_never_oversubscribed_and_later_ones_that_fit_go_first(tmp_path: Path) -> None:
    server = Server(tmp_path, 2, True, True, "--memory", "1GB", "--resource", "licence=1")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    one = server.call(lambda: Path(gate).read_text(), needs=Needs(named=(("licence", 1),)))
    two = server.call(lambda: 2, needs=Needs(named=(("licence", 1),)))
    three = server.call(lambda: 3, needs=Needs(cores=2))
    four = server.call(lambda: 4, needs=Needs(memory=10**9))
    assert server.values(four) == [4]
    assert server.ended(two) == server.ended(three) == []
    gate.write_text("go")
    assert [server.values(span) for span in (one, two, three)] == [["go"], [2], [3]]
    server.end()


def test_zero_core_tasks_run_side_by_side(server: Server) -> None:
    gates = [server.folder / f"gate{i}" for i in range(6)]
    for gate in gates:
        os.mkfifo(gate)
    spans = [server.call(lambda path: Path(path).read_text(), gate, needs=Needs(cores=0)) for gate in gates]
    for gate in reversed(gates):
        gate.write_text(gate.name)
    assert [server.values(span) for span in spans] == [[gate.name] for gate in gates]


def test_short_tasks_behind_one_that_turns_out_long_are_run_elsewhere(server: Server) -> None:
    gate = server.folder / "gate"
    os.mkfifo(gate)
    slow = server.call(lambda: Path(gate).read_text(), expected=0.0001)
    rest = [server.call(lambda x: x, i, expected=0.0001) for i in range(40)]
    assert [server.values(span) for span in rest] == [[i] for i in range(40)]
    assert server.ended(slow) == []
    gate.write_text("go")
    assert server.values(slow) == ["go"]


def test_many_loose_tasks_and_spans_all_come_back_once(server: Server) -> None:
    body = server.blob(cloudpickle.dumps(lambda x: x))
    runs = []
    for i in range(3000):
        payload = pickle.dumps(((i,), {}))
        runs.append(RunSpan(SpanId(10 + i), RecordId(i), 0, 1, 1, Kind.FUNCTION, body, payload=payload, expected=1e-5))
    server.send(*runs)
    server.until(lambda: sum(isinstance(n, WorkSucceeded) for n in server.news) >= 3000)
    ended = [n for n in server.news if isinstance(n, WorkSucceeded)]  # on a busy machine some are seen running, too
    assert {n.span - 10: pickle.loads(n.results)[0] for n in ended} == {i: i for i in range(3000)}
    assert len(ended) == 3000
    table = server.blob(pickle.dumps(range(100_000)))
    for at in range(0, 100_000, 1000):
        span = SpanId(10_000 + at)
        server.send(RunSpan(span, RecordId(1), at, at + 1000, 1, Kind.FUNCTION, body, True, table=table, expected=1e-6))
    server.news.clear()
    server.until(lambda: sum(n.stop - n.start for n in server.news) >= 100_000)
    values = [v for n in sorted(server.news, key=lambda n: n.start) for v in pickle.loads(n.results)]
    assert values == list(range(100_000))


def workers_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def settled(news: Any) -> list[tuple[int, int]]:
    if isinstance(news, WorkFailed):
        return [(news.span, news.index)]
    return [] if isinstance(news, WorkStarted) else [(news.span, index) for index in range(news.start, news.stop)]


@pytest.mark.parametrize("seed", range(3))
def test_every_element_is_settled_exactly_once_whichever_workers_are_killed(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    server = Server(tmp_path)
    marks = tmp_path / "marks"
    marks.mkdir()
    wanted: set[tuple[int, int]] = set()
    for number in range(60):
        expected = dice.choice([0.0, 0.0005, 0.005])
        if number % 3 == 0:
            span = server.map(lambda x: time.sleep(0.001) or x, range(30), expected=expected)
            wanted |= {(span, index) for index in range(30)}
        elif number % 3 == 1:
            wanted.add((server.call(lambda x: x, number, expected=expected), 0))
        else:
            wanted.add((server.command("echo $$ > marks/$BOUGH_TASK; sleep 0.01", expected=expected), 0))
    kills = 0

    def kill_and_count() -> bool:
        nonlocal kills
        workers = workers_of(server.process.pid)
        if workers and kills < 25:
            kills += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(workers), signal.SIGKILL)
        return sum(len(settled(n)) for n in server.news) >= len(wanted)

    server.until(kill_and_count)
    counts = Counter(element for n in server.news for element in settled(n))
    assert set(counts) == wanted
    assert set(counts.values()) == {1}
    server.end()
    assert server.process.returncode == 0
    assert eventually(lambda: all(gone(int(path.read_text() or 0)) for path in marks.iterdir()))


def spilled(path: Path) -> list[Any]:
    return [news for report in server_frames().feed(path.read_bytes()) for news in report.news]  # type: ignore[union-attr]


def test_a_lost_server_ends_everything_and_leaves_unheard_reports(tmp_path: Path) -> None:
    server = Server(tmp_path, hear=False)
    done = server.call(lambda: 1)
    server.wait(done)
    server.command("setsid sleep 600 & echo $$ $! > pid; trap '' TERM; while true; do sleep 1; done")
    server.call(lambda: (Path(tmp_path / "pid2").write_text(f"{os.getpid()}\n"), time.sleep(600)))
    pids = [*written(tmp_path / "pid"), *written(tmp_path / "pid2")]
    server.end()
    assert server.process.returncode == 0
    assert eventually(lambda: all(gone(pid) for pid in pids))
    news = spilled(tmp_path / "spill" / "7.spill")
    assert [n.span for n in news if isinstance(n, WorkSucceeded)] == [done]
    assert not any(isinstance(n, WorkFailed) for n in news)
    assert os.listdir(tmp_path / "spill") == ["7.spill"]


def test_results_finished_and_untold_when_the_server_is_lost_are_spilled(tmp_path: Path) -> None:
    server = Server(tmp_path, hear=False)
    span = server.map(lambda x: (tmp_path / "there").write_text("x") and time.sleep(600) if x == 2 else x, range(3))
    assert eventually((tmp_path / "there").exists)
    server.end()
    assert [
        (n.span, n.start, n.stop) for n in spilled(tmp_path / "spill" / "7.spill") if isinstance(n, WorkSucceeded)
    ] == [(span, 0, 2)]


@pytest.mark.parametrize("how", ["message", "signal"])
def test_leaving_is_quiet_when_all_was_heard(tmp_path: Path, how: str) -> None:
    server = Server(tmp_path)
    server.values(server.call(lambda: 1))
    server.command("echo $$ > pid; sleep 600")
    (pid,) = written(tmp_path / "pid")
    server.until(lambda: any(isinstance(n, WorkStarted) for n in server.news))
    if how == "message":
        server.send(Leave(0.5))
    else:
        server.process.terminate()
    with contextlib.suppress(AssertionError):  # hears it out until it hangs up
        server.until(lambda: server.process.poll() is not None)
    assert server.process.wait(PATIENCE) == 0
    assert not (tmp_path / "spill").exists()
    assert eventually(lambda: gone(pid))
    server.end()


def test_nothing_is_left_when_the_executor_is_killed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.command("echo $PPID $$ > pids; trap '' TERM; sleep 600; sleep 600")
    server.call(lambda: (Path(tmp_path / "pid2").write_text(f"{os.getpid()}\n"), time.sleep(600)))
    pids = [*written(tmp_path / "pids"), *written(tmp_path / "pid2")]
    assert not any(gone(pid) for pid in pids)
    server.process.kill()
    assert eventually(lambda: all(gone(pid) for pid in pids))
    server.end()


def test_an_executor_whose_server_dies_before_the_appointment_exits(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    process = subprocess.Popen([sys.executable, "-m", "bough.executor", "--server", f"unix:{tmp_path / 's'}"])
    sock, _ = listener.accept()
    assert sock.recv(1 << 16)
    sock.close()
    listener.close()
    assert process.wait(PATIENCE) == 3


def test_an_executor_that_is_not_embedded_goes_on_and_says_again_what_was_not_heard(tmp_path: Path) -> None:
    server = Server(tmp_path, embedded=False, hear=False)
    span = server.call(lambda: 1)
    server.values(span)
    server.sock.close()
    server.news.clear()
    server.said.clear()
    server.accept()
    assert server.values(span) == [1]
    hellos = [said for said in server.said if isinstance(said, ExecutorHello)]
    assert hellos[0].executor == 7
    server.send(Acknowledged(1000), Leave(0))
    server.end()
