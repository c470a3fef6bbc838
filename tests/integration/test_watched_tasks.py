"""A real executor with its watcher: what monitors see of commands and functions, and how they end them."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from executor_server import Server

import bough
from bough.model.commands.command import TemplateSlot
from bough.model.events.news import WorkFailed, WorkObserved, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.monitoring.monitors import (
    AddTag,
    After,
    AllOf,
    AnyOf,
    Condition,
    Custom,
    Emit,
    Executable,
    Fail,
    FileCreated,
    Finish,
    Memory,
    Metric,
    Monitor,
    MonitorAction,
    NoAction,
    Plateau,
    Regex,
    Restart,
    SendSignal,
    Silent,
    Step,
    WatchPlan,
    encode_plan,
    reported_pattern,
)
from bough.model.monitoring.observations import Fired, Points, Trouble
from bough.model.outcomes import Cause, EndedEarly
from bough.wire.executor_messages import EndElements, StopElements, WatchElements

FOREVER = "while true; do sleep 0.05 || true; done"
SCORES = "for i in $(seq 1 300); do echo score=$(( i < 20 ? 100 - i : 80 )); sleep 0.005; done"


FINISH = Finish()


def one(condition: Condition, action: MonitorAction = FINISH, *, repeat: bool = False, name: str = "m") -> WatchPlan:
    return WatchPlan((Monitor(name, (Step(condition, action, repeat),)),))


class Watched:
    """A server with what its executor observed."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def plan(self, *plans: WatchPlan) -> tuple[Any, ...]:
        return tuple(self.server.blob(encode_plan(plan)) for plan in plans)

    def run(self, text: str, *plans: WatchPlan, **settings: Any) -> SpanId:
        return self.server.command(text, watch=self.plan(*plans), **settings)

    def seen(self, span: SpanId, kind: type = Fired) -> list[Any]:
        found = [news for news in self.server.news if isinstance(news, WorkObserved) and news.span == span]
        return [seen for news in found for seen in news.observations if isinstance(seen, kind)]

    def end(self, span: SpanId) -> Any:
        self.server.until(lambda: bool(self.server.ended(span)))
        (end,) = self.server.ended(span)
        own = [news for news in self.server.news if getattr(news, "span", None) == span]
        assert own[-1] is end  # nothing is observed after the end
        return end

    def until_seen(self, span: SpanId, kind: type = Fired, count: int = 1) -> None:
        self.server.until(lambda: len(self.seen(span, kind)) >= count)


@pytest.fixture
def watched(tmp_path: Path) -> Any:
    server = Server(tmp_path, 4)
    yield Watched(server)
    server.end()
    assert server.process.returncode == 0


def succeeded(end: Any) -> Any:
    assert isinstance(end, WorkSucceeded), end
    return end.details[0]


def test_a_plateau_ends_a_command_as_a_success(watched: Watched) -> None:
    span = watched.run(SCORES, one(Plateau(r"score=([0-9.]+)", 10, 1e-4, total=300), name="plateau"))
    detail = succeeded(watched.end(span))
    (fired,) = watched.seen(span)
    assert (fired.monitor, fired.kind, fired.action, fired.count, fired.total) == (
        "plateau",
        "plateau",
        "finish",
        29,
        300,
    )
    assert detail.ended_by == "ended by plateau after 29 of 300 values: std 0 < 0.0001"
    assert detail.exit_code == -signal.SIGTERM
    points = [point for seen in watched.seen(span, Points) for point in seen.points]
    assert points[0][::2] == (1, 99.0)
    assert points[-1][::2] == (29, 80.0)
    assert detail.stdout.length < len("score=80\n") * 250


def test_a_command_that_was_faster_than_its_watcher_ends_the_same(watched: Watched) -> None:
    """It ends before anything can be read: what it wrote is judged, and the answer is that of a slow one."""
    spans = [watched.run("seq 1 3; echo ERROR; seq 1 5", one(Regex("stdout", "ERROR"), Fail("bad"))) for _ in range(20)]
    for span in spans:
        end = watched.end(span)
        assert isinstance(end, WorkFailed)
        assert end.failure.cause is Cause.MONITOR
        assert end.failure.message == "bad (ended by m: matched 'ERROR')"
        assert len(watched.seen(span)) == 1


def test_a_failure_behind_the_line_that_finishes_is_none(watched: Watched, tmp_path: Path) -> None:
    slot = TemplateSlot("out", mode="w")
    parts = ["echo done > ", slot, "; echo converged; exit 3"]
    writes = {"out": str(tmp_path / "result.txt")}
    plan = watched.plan(one(Regex("stdout", "^converged$")))
    detail = succeeded(watched.end(watched.server.command("", parts=parts, writes=writes, watch=plan)))
    assert detail.exit_code in (3, -signal.SIGTERM)
    assert detail.ended_by == "ended by m: matched 'converged'"
    assert [Path(output.path).read_text() for output in detail.outputs] == ["done\n"]


def test_a_missing_output_says_which_monitor_ended_it(watched: Watched, tmp_path: Path) -> None:
    writes = {"out": str(tmp_path / "never.txt")}
    plan = watched.plan(one(After(0.1), name="impatient"))
    parts = [f"{FOREVER} # ", TemplateSlot("out", mode="w")]
    end = watched.end(watched.server.command("", parts=parts, writes=writes, watch=plan))
    assert isinstance(end, WorkFailed)
    assert end.failure.cause is Cause.MISSING_OUTPUT
    assert end.failure.message.startswith("ended by impatient: 0.1 s have passed; it had not written its output out")


def test_no_newline_at_the_end_and_stderr_and_both_streams(watched: Watched) -> None:
    span = watched.run("printf 'a\\nlast' >&2", one(Regex("stderr", "^last$"), Emit("word")))
    assert succeeded(watched.end(span)).ended_by == ""
    assert [(fired.action, fired.name, fired.text) for fired in watched.seen(span)] == [("emit", "word", "last")]


def test_a_task_that_nothing_fires_on_ends_by_itself(watched: Watched) -> None:
    span = watched.run("echo fine", one(Regex("stdout", "never")), one(FileCreated("nowhere/at/all")))
    assert succeeded(watched.end(span)).ended_by == ""
    assert [trouble.message for trouble in watched.seen(span, Trouble)] == ["the file nowhere/at/all was never there"]


def test_restart_and_fail(watched: Watched) -> None:
    span = watched.run(FOREVER, one(Silent(0.2), Restart(3)))
    end = watched.end(span)
    assert (end.failure.cause, end.failure.restarts) == (Cause.MONITOR, 3)
    assert end.failure.message == "ended by m: nothing was written for 0.2 s"


def test_signal_tag_and_steps_one_after_the_other(watched: Watched) -> None:
    steps = (
        Step(Regex("stdout", "ready"), SendSignal(signal.SIGUSR1)),
        Step(Regex("stdout", "got it"), AddTag("signalled")),
        Step(After(0.05), Finish(grace=0.0)),
    )
    span = watched.run(f"trap 'echo got it' USR1; echo ready; {FOREVER}", WatchPlan((Monitor("row", steps),)))
    detail = succeeded(watched.end(span))
    assert [(fired.step, fired.action, fired.name) for fired in watched.seen(span)] == [
        (0, "signal", ""),
        (1, "tag", "signalled"),
        (2, "finish", ""),
    ]
    assert detail.exit_code == -signal.SIGKILL


def test_files_that_appear_and_files_that_grow(watched: Watched, tmp_path: Path) -> None:
    made = watched.run(f"sleep 0.1; touch flag; {FOREVER}", one(FileCreated("flag")))
    grown = watched.run(
        f"mkdir -p d; for i in 1 2 3; do echo E=$i >> d/log; sleep 0.05; done; {FOREVER}",
        one(Regex("d/log", r"E=([0-9]+)", above=2.5)),
    )
    assert succeeded(watched.end(made)).ended_by == "ended by m: flag is there"
    assert succeeded(watched.end(grown)).ended_by == "ended by m: 3 > 2.5"


def test_a_declared_output_is_watched_under_its_hidden_name(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("of an earlier run: done\n")
    parts = ["sleep 0.1; echo done > ", TemplateSlot("out", mode="w"), f"; {FOREVER}"]
    plan = watched.plan(one(AllOf((Regex("out.log", "^done$"), FileCreated("out.log")))))
    span = watched.server.command("", parts=parts, writes={"out": str(tmp_path / "out.log")}, watch=plan)
    detail = succeeded(watched.end(span))
    assert Path(detail.outputs[0].path).read_text() == "done\n"
    assert detail.ended - detail.started >= 0.1


def test_a_file_that_was_there_before_counts_from_its_end(watched: Watched, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("done\n" * 5)
    os.utime(log, (1, 1))
    span = watched.run("sleep 0.2; echo fine >> log", one(Regex("log", "done"), Fail()))
    assert succeeded(watched.end(span)).ended_by == ""


def test_memory(watched: Watched) -> None:
    hungry = "python3 -c 'import time; held = bytearray(200_000_000); time.sleep(60)'"
    span = watched.run(hungry, one(Memory(100_000_000), Fail("too big", 0.1)))
    end = watched.end(span)
    assert end.failure.message.startswith("too big (ended by m: used ")  # it may be caught while it grows


def test_a_function_is_ended_and_its_value_says_so(watched: Watched) -> None:
    def work() -> str:
        for at in range(1000):
            print(f"score={max(0, 5 - at)}")
            time.sleep(0.01)
        return "never"

    span = watched.server.call(work, watch=watched.plan(one(Plateau(r"score=(\d+)", 5, 0.1), name="flat")))
    end = watched.end(span)
    detail = succeeded(end)
    (value,) = pickle.loads(end.results)
    assert value == EndedEarly("ended by flat after 10 values: std 0 < 0.1", "flat", 0.0, "0")
    assert detail.ended_by == value.ended_by
    assert detail.stdout.length > 0
    again = watched.server.call(lambda: 7)
    assert pickle.loads(watched.end(again).results) == [7]


def test_a_function_that_was_faster_than_its_watcher_ends_the_same(watched: Watched) -> None:
    def quick() -> str:
        print("converged")
        return "value"

    def raises() -> str:
        print("converged")
        raise ValueError

    for function in (quick, raises):
        span = watched.server.call(function, watch=watched.plan(one(Regex("stdout", "conv"))))
        end = watched.end(span)
        assert pickle.loads(end.results)[0].monitor == "m"
    span = watched.server.call(quick, watch=watched.plan(one(Regex("stdout", "conv"), Fail("no"))))
    assert watched.end(span).failure.cause is Cause.MONITOR
    span = watched.server.call(quick, watch=watched.plan(one(Regex("stdout", "other"))))
    assert pickle.loads(watched.end(span).results) == ["value"]


def test_each_element_of_a_span_is_watched_by_itself(watched: Watched) -> None:
    def work(number: int) -> int:
        print(f"n={number}")
        return number

    plan = watched.plan(one(Regex("stdout", "n=[24]$"), Emit("even")))
    span = watched.server.map(work, list(range(6)), watch=plan)
    watched.server.until(lambda: sum(end.stop - end.start for end in watched.server.ended(span)) == 6)
    fired = [news.index for news in watched.server.news if isinstance(news, WorkObserved)]
    assert fired == [2, 4]


def test_a_function_that_dies_is_judged_before_it_is_told(watched: Watched) -> None:
    def dies() -> None:
        print("step 1\nlast words", flush=True)
        os._exit(3)

    span = watched.server.call(dies, watch=watched.plan(one(Regex("stdout", "words"), Emit("w"))))
    end = watched.end(span)
    assert end.failure.cause is Cause.DIED
    assert [fired.text for fired in watched.seen(span)] == ["last words"]
    span = watched.server.call(dies, watch=watched.plan(one(Regex("stdout", "words"), Finish())))
    assert pickle.loads(watched.end(span).results)[0].monitor == "m"


def test_custom_functions_and_executables(watched: Watched, tmp_path: Path) -> None:
    def three(view: Any) -> object:
        return len([line for line in view.lines() if line == "x"]) >= 3 and view.seconds

    function = cloudpickle.dumps(three)
    span = watched.run(f"for i in 1 2 3; do echo x; sleep 0.05; done; {FOREVER}", one(Custom(function, 0.05)))
    succeeded(watched.end(span))
    (fired,) = watched.seen(span)
    assert fired.kind == "custom"
    assert fired.value > 0
    command = 'test -n "$BOUGH_TASK" && kill -0 -$BOUGH_PID && test "$MINE" = 1 && test -e flag'
    span = watched.run(f"sleep 0.2; touch flag; {FOREVER}", one(Executable(command, 0.05)), env={"MINE": "1"})
    assert succeeded(watched.end(span)).ended_by == f"ended by m: {command} exited with 0"


def test_functions_that_raise_hang_and_die_are_reported_and_harm_nobody(watched: Watched) -> None:
    def raises(_view: Any) -> object:
        raise ValueError("no such thing")

    def dies(_view: Any) -> object:
        os._exit(1)

    def hangs(_view: Any) -> object:
        time.sleep(1000)

    def fires(_view: Any) -> object:
        return "yes"

    plans = [one(Custom(cloudpickle.dumps(fn), 0.05), name=fn.__name__) for fn in (raises, dies, hangs)]
    span = watched.run(FOREVER, *plans)
    watched.until_seen(span, Trouble, 4)
    messages = {(seen.monitor, seen.message) for seen in watched.seen(span, Trouble)}
    assert ("raises", "its function raised ValueError: no such thing") in messages
    assert ("raises", "it failed 10 times in a row; it is not asked again") in messages
    assert ("dies", "it ended the process that ran it; it is not called again") in messages
    assert ("hangs", "it ran for more than 5 s; it is not called again") in messages
    other = watched.run(FOREVER, one(Custom(cloudpickle.dumps(fires), 0.05)))
    assert succeeded(watched.end(other)).ended_by == "ended by m: its function returned yes"
    watched.server.send(StopElements(span, 0, 1, 0.0))


def test_a_pattern_that_never_ends_is_set_aside_and_others_go_on(watched: Watched) -> None:
    bomb = one(Regex("stdout", r"^(a+)+$"), Fail(), name="bomb")
    good = one(Regex("stdout", "^([0-9]+)$"), Emit("number"), repeat=True, name="good")
    both = WatchPlan((*bomb.monitors, *good.monitors))
    script = f"echo 1; sleep 0.3; echo {'a' * 40}b; echo 2; sleep 7; echo 3; {FOREVER}"
    span = watched.run(script, both)
    other = watched.run(f"echo 7; {FOREVER}", good)
    watched.until_seen(span, Fired, 3)
    assert [fired.text for fired in watched.seen(span)] == ["1", "2", "3"]  # none twice, none missed
    assert [fired.text for fired in watched.seen(other)] == ["7"]
    (trouble,) = watched.seen(span, Trouble)
    assert trouble.monitor == "bomb"
    assert "set aside" in trouble.message
    for task in (span, other):
        watched.server.send(StopElements(task, 0, 1, 0.0))


def test_a_function_that_ends_the_watcher_is_set_aside_and_others_go_on(watched: Watched) -> None:
    def deadly(_groups: Any) -> object:
        os._exit(3)

    deadly_plan = one(Regex("stdout", "x", when=cloudpickle.dumps(deadly)), name="deadly")
    when = cloudpickle.dumps(lambda groups: int(groups[0]) > 2)
    good = one(Regex("stdout", "n=([0-9]+)", when=when), Emit("n"), repeat=True, name="good")
    span = watched.run("echo x n=1; echo x n=3; echo x n=4", WatchPlan((*deadly_plan.monitors, *good.monitors)))
    assert succeeded(watched.end(span)).ended_by == ""
    assert [fired.text for fired in watched.seen(span)] == ["3", "4"]
    (trouble,) = watched.seen(span, Trouble)
    assert (trouble.monitor, trouble.message) == ("deadly", "it ended in the code of this monitor, which is set aside")


def test_floods_of_firings_are_cut_and_reported(watched: Watched) -> None:
    began = time.monotonic()
    span = watched.run("seq 1 100000", one(Regex("stdout", "1"), Emit("n"), repeat=True))
    succeeded(watched.end(span))
    assert 10 <= len(watched.seen(span)) <= 10 * (time.monotonic() - began + 2)
    messages = [trouble.message for trouble in watched.seen(span, Trouble)]
    assert messages[0] == "it fires too often: at most 10 firings a second and 10000 in all are told"
    assert messages[-1].endswith("firings were left out")


def test_many_short_watched_tasks_are_all_judged(watched: Watched) -> None:
    plan = watched.plan(one(Regex("stdout", "^([0-9]*7)$"), Fail("seven")))
    spans = [watched.server.command(f"echo {number}", watch=plan) for number in range(60)]
    ends = [watched.end(span) for span in spans]
    failed = [number for number, end in enumerate(ends) if isinstance(end, WorkFailed)]
    assert failed == [number for number in range(60) if number % 10 == 7]


def _priority(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_watcher_that_is_killed_is_replaced_and_repeats_nothing(watched: Watched, tmp_path: Path) -> None:
    plan = one(Regex("stdout", "^([0-9]+)$"), Emit("number"), repeat=True)
    row = (Step(Regex("stdout", "^1$"), NoAction()), Step(Regex("stdout", "^3$"), Finish()))
    metric = WatchPlan((Monitor("row", row),), (Metric("^([0-9]+)$", "n"),))
    script = "echo 1; echo 2; while ! test -e go; do sleep 0.02; done; echo 3; sleep 60"
    span = watched.run(script, plan, metric)
    watched.until_seen(span, Fired, 3)
    watched.until_seen(span, Points)
    os.kill(_watcher_of(watched.server.process.pid), signal.SIGKILL)
    (tmp_path / "go").touch()
    succeeded(watched.end(span))
    assert [fired.text for fired in watched.seen(span) if fired.monitor == "m"] == ["1", "2", "3"]
    assert [fired.step for fired in watched.seen(span) if fired.monitor == "row"] == [0, 1]
    points = [point[::2] for seen in watched.seen(span, Points) for point in seen.points]
    assert points == [(1, 1.0), (2, 2.0), (3, 3.0)]


def _watcher_of(executor: int) -> int:
    """The process that watches tasks: the one child with a lower priority."""
    own = Path(f"/proc/{executor}/cmdline").read_bytes()
    (found,) = [
        pid
        for pid in children_of(executor)
        if Path(f"/proc/{pid}/cmdline").read_bytes() == own and _priority(pid) > _priority(executor)
    ]
    return found


def test_numbers_that_a_task_reports_are_judged_before_its_end(watched: Watched) -> None:
    def falls() -> str:
        here = bough.here()
        for step in range(1, 9):
            here.report(step=step, score=max(3.0, 6.0 - step))
        return "whole"

    flat = Plateau(reported_pattern("score"), 4, 0.1, "reported", metric="score")
    span = watched.server.call(falls, watch=watched.plan(one(flat, name="flat"), one(Regex("reported", "step=9"))))
    end = watched.end(span)
    (value,) = pickle.loads(end.results)
    assert value.ended_by == "ended by flat after 6 values: std 0 < 0.1"
    points = [point[::2] for seen in watched.seen(span, Points) for point in seen.points if seen.metric == "score"]
    assert len(points) == len(set(points)) <= 8  # they are recorded once, by the report itself
    low = one(Regex("reported", reported_pattern("score"), below=4.5), Fail("too low"))
    failed = watched.end(watched.server.call(falls, watch=watched.plan(low))).failure
    assert failed.cause is Cause.MONITOR
    assert "too low" in failed.message
    other = watched.server.call(falls, watch=watched.plan(one(Regex("reported", reported_pattern("scor")))))
    assert pickle.loads(watched.end(other).results) == ["whole"]
    assert not watched.seen(other, Trouble)
    silent = watched.server.call(lambda: 7, watch=watched.plan(one(Regex("reported", "x"))))
    assert pickle.loads(watched.end(silent).results) == [7]
    assert [seen.message for seen in watched.seen(silent, Trouble)] == ["the task reported no numbers"]


def test_what_was_reported_is_judged_by_a_new_watcher_and_by_later_monitors(watched: Watched, tmp_path: Path) -> None:
    def waits(folder: str) -> str:
        here = bough.here()
        for value in (1.0, 2.0):
            here.report(n=value)
        while not Path(f"{folder}/go").exists():
            time.sleep(0.02)
        here.report(n=3.0)
        while not Path(f"{folder}/end").exists():
            time.sleep(0.02)
        return "whole"

    each = one(Regex("reported", reported_pattern("n")), Emit("number"), repeat=True)
    span = watched.server.call(waits, str(tmp_path), watch=watched.plan(each))
    watched.until_seen(span, Fired, 2)
    os.kill(_watcher_of(watched.server.process.pid), signal.SIGKILL)
    (tmp_path / "go").touch()
    watched.until_seen(span, Fired, 3)
    (plan,) = watched.plan(one(Plateau(reported_pattern("n"), 3, 1.0, "reported", metric="n"), name="late"))
    watched.server.send(WatchElements(span, 0, 1, plan))
    assert succeeded(watched.end(span)).ended_by == "ended by late after 3 values: std 0.816 < 1"
    assert [fired.text for fired in watched.seen(span) if fired.monitor == "m"] == ["1.0", "2.0", "3.0"]


def test_monitors_that_are_added_later_judge_from_the_beginning(watched: Watched) -> None:
    span = watched.server.command(f"echo early; {FOREVER}")
    time.sleep(0.1)

    def work() -> None:
        print("early")
        time.sleep(60)

    call = watched.server.call(work)
    both = WatchPlan((Monitor("late", (Step(Regex("stdout", "early")),)),))
    (plan,) = watched.plan(both)
    watched.server.until(lambda: {span, call} <= {getattr(news, "span", None) for news in watched.server.news})
    for running in (span, call):
        watched.server.send(WatchElements(running, 0, 1, plan), WatchElements(running, 0, 1, plan))
    assert succeeded(watched.end(span)).ended_by == "ended by late: matched 'early'"
    assert pickle.loads(watched.end(call).results)[0].monitor == "late"
    assert len(watched.seen(span)) == len(watched.seen(call)) == 1


def test_somebody_elsewhere_ends_a_task(watched: Watched) -> None:
    span = watched.server.command(f"trap 'echo bye; exit 0' TERM; {FOREVER}")
    call = watched.server.call(time.sleep, 60)
    watched.server.until(lambda: {span, call} <= {getattr(news, "span", None) for news in watched.server.news})
    watched.server.send(EndElements(span, 0, 1, Finish(), "median rule", "worse than half"))
    watched.server.send(EndElements(call, 0, 1, Fail("gone"), "remote monitor"))
    detail = succeeded(watched.end(span))
    assert detail.ended_by == "ended by median rule: worse than half"
    assert detail.exit_code == 0
    assert watched.end(call).failure.message == "gone (ended by remote monitor)"
    assert [(fired.monitor, fired.action) for fired in watched.seen(span)] == [("median rule", "finish")]
    assert [(fired.monitor, fired.action) for fired in watched.seen(call)] == [("remote monitor", "fail")]


def test_a_plan_that_cannot_be_read_is_reported_and_the_task_runs(watched: Watched) -> None:
    span = watched.server.command("echo fine", watch=(watched.server.blob(b"\xc1nonsense"),))
    assert succeeded(watched.end(span)).ended_by == ""
    (trouble,) = watched.seen(span, Trouble)
    assert trouble.message.startswith("its monitors cannot be used: ")


def test_an_executor_that_leaves_waits_for_no_watcher(watched: Watched) -> None:
    span = watched.run(FOREVER, one(Regex("stdout", "never")), one(AnyOf((After(1000.0), Silent(1000.0)))))
    watched.server.until(lambda: span in {getattr(news, "span", None) for news in watched.server.news})
    pid = watched.server.process.pid
    before = children_of(pid)
    watched.server.end()
    end = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in before):
        assert time.monotonic() < end
        time.sleep(0.01)
