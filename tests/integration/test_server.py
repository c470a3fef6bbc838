from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import pytest
from server_client import Client, end, is_alive, until

from bough.model.events.news import Cancel
from bough.model.outcomes import Cause
from bough.model.tasks import Dep, On
from bough.server.cleanup import find
from bough.server.socket_path import store_id
from bough.testing.builders import question
from bough.wire.client_messages import (
    VERSION,
    Accepted,
    Answer,
    Ask,
    ClientHello,
    DoAction,
    Refused,
    Subscribe,
    TasksRunning,
)
from bough.wire.framing import frame, to_client_frames

Opener = Callable[..., Client]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    clients: list[Client] = []

    def open_one(*options: str, **settings: object) -> Client:
        clients.append(Client(tmp_path / "store", *options, **settings))
        return clients[-1]

    yield open_one
    for client in clients:
        client.clean_up()
    assert until(lambda: not find(f"{store_id(str(tmp_path / 'store'))}:"), "the end of all processes")


def square(x: int) -> int:
    return x * x


def test_a_function_runs_and_its_result_comes_back(opened: Opener) -> None:
    client = opened()
    task = client.function(square, 7)

    outcome = client.outcome(task)

    assert pickle.loads(outcome.results) == [49]
    assert outcome.attempt == 1
    assert client.close().reason == "done"


def test_nothing_heavy_is_loaded_before_the_executor_is_started() -> None:
    code = "import sys, bough.server.__main__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True).stdout.split()

    assert {"asyncio", "uvloop", "msgspec", "sqlite3", "argparse", "subprocess", "json"}.isdisjoint(loaded)


def test_an_array_runs_in_spans_and_every_value_comes_back(opened: Opener) -> None:
    client = opened()
    array = client.array(square, range(5000))

    assert client.values(array, 5000) == [i * i for i in range(5000)]
    client.close()


def test_values_travel_from_task_to_task(opened: Opener) -> None:
    from bough.model.refs import Ref

    client = opened()
    array = client.array(square, range(1000))
    on_all, on_one = Dep(On.ARRAY, array), Dep(On.TASK, array, 700)
    total = client.function(sum, Ref(0), after=(on_all,), inputs=(on_all,))
    negative = client.function(lambda x: -x, Ref(0), after=(on_one,), inputs=(on_one,))

    assert pickle.loads(client.outcome(total).results) == [sum(i * i for i in range(1000))]
    assert pickle.loads(client.outcome(negative).results) == [-490000]
    client.close()


def test_a_command_runs_and_its_failure_is_told(opened: Opener, tmp_path: Path) -> None:
    client = opened()
    good = client.command(f"echo hello > {tmp_path}/greeting")
    bad = client.command("echo oh >&2; exit 3")

    client.outcome(good)
    failure = client.unsuccess(bad).failure

    assert (tmp_path / "greeting").read_text() == "hello\n"
    assert (failure.cause, failure.exit_code) == (Cause.EXIT, 3)
    client.close()


def test_closing_waits_for_all_and_leaves_a_clean_store(opened: Opener, tmp_path: Path) -> None:
    client = opened()
    client.command(f"sleep 0.3; touch {tmp_path}/late")

    client.close("drain")

    assert (tmp_path / "late").exists()
    database = sqlite3.connect(tmp_path / "store" / "journal.db")
    assert database.execute("SELECT reason FROM runs").fetchall() == [("done",)]
    assert database.execute("SELECT state FROM tasks").fetchall() == [("done",)]
    database.close()
    assert not (tmp_path / "store" / "server.json").exists()
    assert not list((tmp_path / "store").glob("*.sock"))


def test_stopping_ends_running_tasks_without_calling_them_failed(opened: Opener, tmp_path: Path) -> None:
    client = opened()
    task = client.command(f"echo $$ > {tmp_path}/pid; exec sleep 100")
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the task's start"))

    begun = time.monotonic()
    assert client.close("stop").reason == "interrupted"

    assert time.monotonic() - begun < 4
    assert not is_alive(pid)
    database = sqlite3.connect(tmp_path / "store" / "journal.db")
    assert database.execute("SELECT reason FROM runs").fetchall() == [("interrupted",)]
    assert database.execute("SELECT state FROM tasks WHERE id = ?", (task,)).fetchone()[0] != "failed"
    database.close()


def test_the_death_of_the_script_ends_its_tasks_and_the_server(opened: Opener, tmp_path: Path) -> None:
    client = opened()
    client.command(f"echo $$ > {tmp_path}/pid; trap '' TERM; sleep 100 & wait; wait")
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the task's start"))

    client.hang_up()

    assert client.server.wait(60) == 0
    assert not is_alive(pid)
    database = sqlite3.connect(tmp_path / "store" / "journal.db")
    assert database.execute("SELECT reason FROM runs").fetchall() == [("interrupted",)]
    database.close()


def test_a_killed_executor_is_replaced_and_its_task_tried_again(opened: Opener, tmp_path: Path) -> None:
    client = opened()
    task = client.command(f"echo $$ >> {tmp_path}/pids; [ $BOUGH_ATTEMPT -gt 1 ] || sleep 100")
    until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text(), "the task's start")

    end(client.executor_pid())

    outcome = client.outcome(task)
    assert outcome.attempt == 2
    first = int((tmp_path / "pids").read_text().split()[0])
    assert not is_alive(first)
    client.close()


def test_a_store_that_is_held_is_refused_with_pid_and_host(opened: Opener) -> None:
    first = opened()
    first.welcome()

    second = opened()

    refused = second.wait(Refused)
    assert refused.kind == "StoreHeld"
    assert f"pid {os.getpid()} " in refused.message  # the script's, which a user can end
    assert socket.gethostname() in refused.message
    assert second.server.wait(60) == 2
    assert first.executor_pid()
    first.close()


def test_an_unknown_policy_is_refused(opened: Opener) -> None:
    client = opened("--policy", "astrology")

    refused = client.wait(Refused)

    assert refused.kind == "UnknownName"
    assert "fifo" in refused.message
    assert client.server.wait(60) == 2


def test_a_script_that_starts_right_after_one_was_killed_gets_the_store(opened: Opener, tmp_path: Path) -> None:
    first = opened()
    first.command(f"touch {tmp_path}/on; exec sleep 100")
    until((tmp_path / "on").exists, "the task's start")
    first.hang_up()

    second = opened()

    assert second.welcome().run == 2
    second.close()


def test_a_killed_server_is_recovered_from_and_its_leftovers_are_ended(opened: Opener, tmp_path: Path) -> None:
    first = opened()
    done = first.function(square, 3)
    first.outcome(done)
    first.command(f"echo $$ > {tmp_path}/pid; trap '' TERM; while true; do sleep 0.1; done")
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the task's start"))
    executor = first.executor_pid()
    end(first.server.pid)
    end(executor)  # so that nobody ends the command

    second = opened()

    welcome = second.welcome()
    assert welcome.run == 2
    assert welcome.memos
    assert not is_alive(pid)
    second.close()
    database = sqlite3.connect(tmp_path / "store" / "journal.db")
    assert database.execute("SELECT run, reason FROM runs ORDER BY run").fetchall() == [(1, "crashed"), (2, "done")]
    assert database.execute("SELECT state FROM tasks WHERE id = ?", (done,)).fetchone() == ("done",)
    database.close()


def test_what_an_executor_could_not_report_is_known_to_the_next_run(opened: Opener, tmp_path: Path) -> None:
    first = opened(cores=1)
    task = first.command(f"echo x >> {tmp_path}/effect", key=b"k" * 16, after=())
    first.outcome(task)
    late = first.command(
        f"touch {tmp_path}/on; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo y >> {tmp_path}/effect",
        key=b"l" * 16,
    )
    until((tmp_path / "on").exists, "the task's start")
    os.kill(first.server.pid, signal.SIGSTOP)  # it hears nothing any more
    (tmp_path / "go").touch()
    until(lambda: "y" in (tmp_path / "effect").read_text(), "the task's end")
    time.sleep(0.2)  # the worker's word reaches the executor, which nobody outside can see
    end(first.server.pid)
    until(lambda: list((tmp_path / "store" / "spill").glob("*.spill")), "the spill")

    second = opened(cores=1)
    again = second.command(f"echo x >> {tmp_path}/effect", key=b"k" * 16)
    late_again = second.command("echo never", key=b"l" * 16)

    assert second.outcome(again).reused
    assert second.outcome(late_again).reused
    second.close()
    assert (tmp_path / "effect").read_text() == "x\ny\n"
    assert not list((tmp_path / "store" / "spill").glob("*.spill"))
    database = sqlite3.connect(tmp_path / "store" / "journal.db")
    assert database.execute("SELECT state FROM tasks WHERE id = ?", (late,)).fetchone() == ("done",)
    database.close()


def test_a_fresh_run_reuses_nothing(opened: Opener, tmp_path: Path) -> None:
    for options in ((), ("--reuse", "never")):
        client = opened(*options)
        assert not client.welcome().memos
        outcome = client.outcome(client.command(f"echo x >> {tmp_path}/effect", key=b"k" * 16))
        assert not outcome.reused
        client.close()
    assert (tmp_path / "effect").read_text() == "x\nx\n"


def test_other_clients_find_the_server_and_may_watch_and_cancel(opened: Opener, tmp_path: Path) -> None:
    client = opened()
    task = client.command("exec sleep 100")
    client.wait(TasksRunning)
    published = json.loads((tmp_path / "store" / "server.json").read_text())
    assert published["pid"] == client.server.pid
    assert stat.S_IMODE(os.stat(published["socket"]).st_mode) == 0o600

    with socket.socket(socket.AF_UNIX) as other:
        other.connect(published["socket"])
        other.settimeout(10)
        deed = DoAction(2, Cancel(Dep(On.TASK, task)))
        other.sendall(frame(ClientHello(VERSION, 1, "here"), Subscribe(), Ask(1, question("status")), deed))
        frames, heard = to_client_frames(), []
        while not any(isinstance(message, Answer) and message.request == 2 for message in heard):
            heard += frames.feed(other.recv(1 << 16))
    assert Answer(2, {"tasks": 1}) in heard

    assert client.unsuccess(task).failure.cause is Cause.CANCELLED
    client.close()


def test_thousands_of_loose_tasks_are_accepted_and_run(opened: Opener) -> None:
    client = opened()
    tasks = [client.function(square, number) for number in range(2000)]

    for number, task in enumerate(tasks):
        assert pickle.loads(client.outcome(task).results) == [number * number]
        if number == 1999:
            client.wait(Accepted, lambda message: message.request == client.request)
    client.close()


def test_a_chain_of_commands_is_done_in_order(opened: Opener, tmp_path: Path) -> None:
    client = opened()
    task = 0
    for number in range(30):
        after = (Dep(On.TASK, task),) if task else ()
        task = client.command(f"echo {number} >> {tmp_path}/order", after=after)

    client.outcome(task)

    assert (tmp_path / "order").read_text().split() == [str(number) for number in range(30)]
    client.close()
