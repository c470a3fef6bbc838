from __future__ import annotations

import json
import pickle
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, WorkflowClient, is_alive, until

from bough.model.ids import NUMBERS
from bough.model.outcomes import Cause
from bough.model.tasks import GroupSpec, Limits
from bough.testing.builders import question
from bough.wire.client_messages import (
    Accepted,
    Ask,
    Closed,
    GroupFinished,
    Refused,
    Submit,
    TasksFailed,
    TasksSucceeded,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.clean_up()


def square(x: int) -> int:
    return x * x


def gated(folder: Path, name: str) -> str:
    """A command that says when it begins, notes every run, and ends when the gate is opened."""
    return f"echo $$ >> {folder}/{name}.runs; until [ -e {folder}/{name}.go ]; do sleep 0.05; done; echo {name}"


def begun(folder: Path, name: str) -> int:
    """Wait until a gated command runs; its process."""
    path = folder / f"{name}.runs"
    return int(str(until(lambda: path.exists() and path.read_text(), f"the start of {name}")).split()[-1])


def runs(folder: Path, name: str) -> int:
    return len((folder / f"{name}.runs").read_text().split())


def go(folder: Path, name: str) -> None:
    (folder / f"{name}.go").touch()


# --- clients and workflows ---------------------------------------------------------------------------


def test_functions_commands_and_arrays_of_a_workflow_run_and_it_is_closed_when_drained(service: Service) -> None:
    service.start()
    service.executor(cores=2)
    client = service.client("one")

    one = client.function(square, 7)
    array = client.array(square, range(500))

    assert pickle.loads(client.outcome(one).results) == [49]
    assert client.values(array, 500) == [i * i for i in range(500)]
    bad = client.command("exit 3")
    assert client.unsuccess(bad).failure.exit_code == 3
    assert client.close("drain").reason == "done"


def test_two_workflows_at_a_time_hear_only_of_their_own(service: Service) -> None:
    service.start()
    service.executor(cores=2)
    one, two = service.client("one"), service.client("two", pid=1)

    mine, yours = one.function(square, 2), two.function(square, 3)
    assert pickle.loads(one.outcome(mine).results) == [4]
    assert pickle.loads(two.outcome(yours).results) == [9]

    assert one.group != two.group
    assert {message.record for message in one.heard if isinstance(message, TasksSucceeded)} == {mine}
    assert {message.record for message in two.heard if isinstance(message, TasksSucceeded)} == {yours}


def test_a_client_touches_nothing_but_its_own_workflow(service: Service) -> None:
    service.start()
    one, two = service.client("one"), service.client("two", pid=1)
    one.say(Submit([GroupSpec(one.welcome().first_group, "sub", one.group)], 1))
    one.wait(Accepted)

    two.submit(GroupSpec(two.welcome().first_group, "into yours", one.group))
    assert "not one of this client's workflow" in two.wait(Refused).message
    two.heard.clear()
    two.next_id = one.welcome().first_id
    two.command("true")
    assert "was not given" in two.wait(Refused).message


def test_the_second_client_of_a_workflow_is_told_who_the_first_is(service: Service) -> None:
    service.start()
    first = service.client("one", pid=1, host="far")

    second = WorkflowClient(service.address, "one", service.folder, pid=2, host="near")
    service.clients.append(second)
    refused = second.wait(Refused)
    assert "pid 1 on host far" in refused.message

    first.sock.close()

    def joins() -> bool:
        third = WorkflowClient(service.address, "one", service.folder, pid=3, host="near")
        service.clients.append(third)
        until(lambda: third.listen() or third.heard, "an answer")
        return not isinstance(third.heard[0], Refused) and third.heard[0].joined

    assert until(joins, "the first one's leaving")


def test_a_workflow_goes_on_without_its_client_and_is_joined_again(service: Service) -> None:
    folder = service.folder
    service.start()
    service.executor()
    client = service.client("one")
    slow = client.run_command(gated(folder, "slow"), name="slow")
    quick = client.run_command("echo quick", name="quick")
    begun(folder, "slow")
    client.sock.close()

    go(folder, "slow")
    back = service.client("one")
    assert back.welcome().joined
    assert back.welcome().first_id > quick

    found = back.ask("inventory")["records"]
    assert {record["id"]: record["name"] for record in found} == {slow: "slow", quick: "quick"}

    def both_done() -> bool:
        return all(record["state"] == "done" for record in back.ask("inventory")["records"])

    until(both_done, "the end of both")
    back.heard.clear()
    assert back.ask("outcomes", records=[slow, quick]) == 2
    assert back.outcome(slow).details[0].stdout.length == len("slow\n")
    assert back.outcome(quick).record == quick
    assert runs(folder, "slow") == 1


def test_detaching_leaves_the_workflow_going_on_and_draining_ends_it(service: Service) -> None:
    folder = service.folder
    service.start()
    service.executor()
    client = service.client("one")
    client.run_command(gated(folder, "slow"))
    assert client.close("detach").reason == "detached"

    back = service.client("one")
    assert back.welcome().joined
    from bough.wire.client_messages import CloseSession

    back.say(CloseSession("drain"))
    begun(folder, "slow")
    go(folder, "slow")
    assert back.wait(GroupFinished).group == back.group
    assert back.wait(Closed).reason == "done"
    assert not service.client("one").welcome().joined


def test_stopping_a_workflow_cancels_what_has_not_ended(service: Service) -> None:
    folder = service.folder
    service.start()
    service.executor()
    client = service.client("one")
    task = client.run_command(gated(folder, "slow"))
    pid = begun(folder, "slow")

    client.close("stop")

    assert any(isinstance(message, TasksFailed) and message.record == task for message in client.heard)
    assert until(lambda: not is_alive(pid), "the end of the task")


# --- a server that ends ------------------------------------------------------------------------------


def test_after_kill_9_running_tasks_are_adopted_and_ended_ones_are_reported(service: Service) -> None:
    folder = service.folder
    service.start()
    executor = service.executor(cores=2)
    client = service.client("one")
    long = client.run_command(gated(folder, "long"))
    short = client.run_command(gated(folder, "short"))
    waiting = client.run_command("echo waited")
    pid = begun(folder, "long")
    begun(folder, "short")

    service.kill()
    go(folder, "short")
    until(lambda: not is_alive(begun(folder, "short")), "the end of the short task")
    service.start()
    back = service.client("one")
    assert back.welcome().joined
    back.ask("outcomes", records=[long, short, waiting])
    assert back.outcome(short).details[0].stdout.length == len("short\n")
    assert back.outcome(waiting).record == waiting
    assert is_alive(pid)
    go(folder, "long")

    assert back.outcome(long).attempt == 1
    assert (runs(folder, "long"), runs(folder, "short")) == (1, 1)
    assert executor.poll() is None


def test_acknowledged_submissions_survive_kill_9_without_any_executor(service: Service) -> None:
    service.start()
    client = service.client("one")
    tasks = [client.function(square, i) for i in range(50)]
    client.accepted()

    service.kill()
    service.start()
    service.executor(cores=2)
    back = service.client("one")
    back.ask("outcomes", records=tasks)

    assert [pickle.loads(back.outcome(task).results) for task in tasks] == [[i * i] for i in range(50)]


def test_a_server_that_is_stopped_closes_nothing_and_the_next_one_goes_on(service: Service) -> None:
    folder = service.folder
    service.start()
    service.executor()
    client = service.client("one")
    task = client.run_command(gated(folder, "task"))
    pid = begun(folder, "task")

    service.stop()
    assert is_alive(pid)
    assert not (service.home / "server" / "server.json").exists()
    service.start()
    back = service.client("one")
    go(folder, "task")
    back.ask("outcomes", records=[task])

    assert back.outcome(task).attempt == 1
    assert runs(folder, "task") == 1


def test_numbers_are_not_given_twice_over_restarts(service: Service) -> None:
    service.start()
    first = service.client("one").welcome()
    service.kill()
    service.start()
    again, other = service.client("one").welcome(), service.client("two").welcome()

    assert again.joined
    assert (again.run, again.group) == (first.run, first.group)
    starts = [welcome.first_id for welcome in (first, again, other)]
    assert [start % NUMBERS for start in starts] == [1, 1001, 1]  # the first client may come back with its thousand
    assert len(set(starts)) == 3
    assert other.group not in range(first.first_group, first.first_group + 1000)


def test_a_submission_that_is_said_again_is_acknowledged_and_not_made_twice(service: Service) -> None:
    service.start()
    client = service.client("one")
    number = client.run_command("true")
    first = client.heard[-1].request
    service.kill()
    service.start()
    service.executor()
    back = service.client("one")
    back.next_id = number
    back.run_command("true")

    assert first
    assert len(back.ask("inventory")["records"]) == 1


def test_the_store_of_a_session_is_refused(service: Service, tmp_path: Path) -> None:
    from server_client import Client

    session = Client(tmp_path / "store")
    session.welcome()
    session.close()
    session.clean_up()

    done = service.bough("server", "start", "--store", str(tmp_path / "store"), check=False)

    assert done.returncode == 2
    assert "session" in done.stderr


# --- executors that go -------------------------------------------------------------------------------


def test_tasks_of_an_executor_that_is_killed_are_tried_elsewhere(service: Service) -> None:
    folder = service.folder
    service.start()
    doomed = service.executor()
    client = service.client("one")
    task = client.run_command(gated(folder, "task"))
    begun(folder, "task")

    doomed.kill()
    doomed.wait()
    service.executor()
    until(lambda: runs(folder, "task") == 2, "the second attempt")
    go(folder, "task")

    assert client.outcome(task).attempt == 2


def test_a_silent_executor_is_given_up_and_its_late_answer_does_no_harm(service: Service) -> None:
    folder = service.folder
    service.start()
    silent = service.executor()
    client = service.client("one")
    task = client.run_command(gated(folder, "task"))
    begun(folder, "task")

    silent.send_signal(signal.SIGSTOP)
    service.executor()
    until(lambda: runs(folder, "task") == 2, "the second attempt")
    assert service.state_of(silent) == "gone"
    silent.send_signal(signal.SIGCONT)
    until(lambda: service.state_of(silent) == "idle" or service.state_of(silent) == "active", "its coming back")
    go(folder, "task")

    assert client.outcome(task).record == task
    service.until_executors(lambda found: {entry["state"] for entry in found} == {"idle"}, "the end of both attempts")
    assert len([message for message in client.heard if isinstance(message, TasksSucceeded)]) == 1


def test_an_executor_whose_connection_breaks_for_a_moment_keeps_its_task(service: Service) -> None:
    folder = service.folder
    service.start()
    silent = service.executor()
    client = service.client("one")
    task = client.run_command(gated(folder, "task"))
    begun(folder, "task")

    silent.send_signal(signal.SIGSTOP)
    until(lambda: service.state_of(silent) == "missing", "its being missed")
    silent.send_signal(signal.SIGCONT)
    until(lambda: service.state_of(silent) == "active", "its coming back")
    go(folder, "task")

    assert client.outcome(task).attempt == 1
    assert runs(folder, "task") == 1


def test_a_drained_executor_finishes_what_it_has_and_leaves(service: Service) -> None:
    folder = service.folder
    service.start()
    leaving = service.executor()
    client = service.client("one")
    task = client.run_command(gated(folder, "task"))
    begun(folder, "task")
    later = client.run_command("echo later")

    number = next(entry["executor"] for entry in client.executors() if entry["pid"] == leaving.pid)
    assert client.manage("drain", number) == [number]
    until(lambda: service.state_of(leaving) == "draining", "the draining")
    go(folder, "task")

    assert client.outcome(task).attempt == 1
    assert leaving.wait(60) == 0
    service.executor()
    assert client.outcome(later).attempt == 1


def test_tasks_of_an_executor_that_is_stopped_run_elsewhere_at_no_cost(service: Service) -> None:
    folder = service.folder
    service.start()
    leaving = service.executor()
    client = service.client("one")
    task = client.run_command(gated(folder, "task"), limits=Limits(losses=0))
    begun(folder, "task")

    number = next(entry["executor"] for entry in client.executors() if entry["pid"] == leaving.pid)
    client.manage("stop", number)
    assert leaving.wait(60) == 0
    service.executor()
    until(lambda: runs(folder, "task") == 2, "the second attempt")
    go(folder, "task")

    assert client.outcome(task).record == task


def test_an_idle_executor_leaves_after_its_timeout(service: Service) -> None:
    service.start()
    idle = service.executor("--idle-timeout", "0.5s", joined=False)

    assert idle.wait(60) == 0
    assert service.state_of(idle) == "gone"


def test_an_executor_leaves_when_its_time_is_over_and_gives_back_what_it_has_not_begun(service: Service) -> None:
    folder = service.folder
    service.start()
    short = service.executor("--until", "3s")
    client = service.client("one")
    running = client.run_command(gated(folder, "running"))
    waiting = client.run_command("echo waiting")
    begun(folder, "running")

    assert short.wait(60) == 0
    service.executor()
    until(lambda: runs(folder, "running") == 2, "another attempt")
    go(folder, "running")

    assert client.outcome(running).record == running
    assert client.outcome(waiting).attempt == 1


def test_a_task_without_an_executor_waits_and_runs_when_one_comes(service: Service) -> None:
    service.start()
    client = service.client("one")
    task = client.function(square, 5)
    client.accepted()
    service.executor()

    assert pickle.loads(client.outcome(task).results) == [25]


# --- output ------------------------------------------------------------------------------------------


def test_the_output_of_a_running_task_is_read_while_it_runs(service: Service) -> None:
    folder = service.folder
    service.start()
    service.executor("--work", str(folder / "work"))
    client = service.client("one")
    task = client.run_command(f"echo first; until [ -e {folder}/go ]; do sleep 0.05; done; echo second")

    def said() -> object:
        answer = client.ask("output", record=task, index=0)
        return answer if answer["data"] else None

    until(lambda: client.ask("executors")[0]["tasks"], "the start")
    assert until(said, "the first line") == {"data": b"first\n", "more": True, "error": "", "attempt": 1, "size": 6}
    (folder / "go").touch()
    client.outcome(task)
    assert client.ask("output", record=task, index=0, offset=6)["data"] == b"second\n"


def test_an_executor_that_does_not_see_the_store_sends_outputs_and_results(service: Service) -> None:
    folder = service.folder
    service.start()
    (service.home / "server" / "store" / "token").write_text("another")
    service.executor("--work", str(folder / "work"))
    client = service.client("one")

    task = client.command("echo far away")
    long = client.command("head -c 100000 /dev/zero")
    big = client.function(bytes, 1_000_000)
    stdout = client.outcome(task).details[0].stdout
    assert stdout.path.startswith(str(service.home / "server" / "store" / "out"))  # short ones come with the report
    assert client.ask("output", record=task, index=0)["data"] == b"far away\n"
    stdout = client.outcome(long).details[0].stdout
    assert stdout.path.startswith(str(service.home / "server" / "store" / "files"))  # long ones before it
    assert client.ask("output", record=long, index=0)["data"] == bytes(100_000)
    assert pickle.loads(client.outcome(big).results) == [bytes(1_000_000)]

    refused = client.ask("output", record=task, index=0, path="/etc/passwd", executor=1, length=10)
    assert refused["error"] == "the file is not an output of this executor"


def test_values_travel_to_an_executor_that_does_not_see_the_store(service: Service) -> None:
    from bough.model.refs import Ref
    from bough.model.tasks import Dep, On

    service.start()
    near = service.executor()
    client = service.client("one")
    big = client.function(bytes, 1_000_000)
    client.outcome(big)
    client.manage("drain", 1)
    assert near.wait(60) == 0
    (service.home / "server" / "store" / "token").write_text("another")
    service.executor("--work", str(service.folder / "work"))

    after = (Dep(On.TASK, big),)
    size = client.function(len, Ref(0), after=after, inputs=after)

    assert pickle.loads(client.outcome(size).results) == [1_000_000]


# --- the command line --------------------------------------------------------------------------------


def test_a_detached_server_and_executor_are_started_looked_at_and_stopped(service: Service) -> None:
    import json

    started = json.loads(service.bough("server", "start", "--detach", "--json").stdout)
    executor = json.loads(service.bough("executor", "start", "--detach", "--cores", "1", "--json").stdout)
    try:
        listed = json.loads(service.bough("executor", "list", "--json").stdout)
        assert [(entry["pid"], entry["state"]) for entry in listed] == [(executor["pid"], "idle")]
        status = json.loads(service.bough("server", "status", "--json").stdout)
        assert (status["running"], status["pid"]) == (True, started["pid"])

        second = service.bough("server", "start", check=False)
        assert second.returncode == 2
        assert f"pid {started['pid']} on host" in second.stderr
    finally:
        service.bough("server", "stop", "--executors")
    assert until(lambda: not is_alive(executor["pid"]) and not is_alive(started["pid"]), "the end of both")
    assert service.bough("server", "status", check=False).returncode == 3


def test_two_servers_cannot_hold_one_store(service: Service, tmp_path: Path) -> None:
    service.start("--store", str(tmp_path / "shared"))
    other = Service(tmp_path / "other")

    done = other.bough("server", "start", "--detach", "--store", str(tmp_path / "shared"), check=False)

    assert done.returncode == 2
    assert f"pid {service.server.pid} on host" in done.stderr


def test_the_jobs_database_knows_workflows_and_their_tasks(service: Service) -> None:
    service.start()
    service.executor()
    client = service.client("one")
    task = client.command("true", name="noop")
    client.outcome(task)
    client.ask("project")

    database = sqlite3.connect(service.home / "server" / "store" / "journal.db")
    rows = database.execute(
        "SELECT tasks.name, tasks.state, runs.name FROM tasks JOIN runs ON runs.run = tasks.run"
    ).fetchall()
    database.close()
    assert rows == [("noop", "done", "one")]


def test_the_jobs_database_answers_sql_through_the_server(service: Service) -> None:
    service.start()
    client = service.client("one")
    client.run_command("true", name="noop")
    client.ask("project")

    answer = client.ask("sql", statement="select name, state from tasks where name = ?", parameters=["noop"])
    assert answer == {"columns": ["name", "state"], "rows": [["noop", "ready"]]}
    client.request += 1
    client.say(Ask(client.request, question("sql", statement="delete from tasks")))
    assert client.wait(Refused).request == client.request


def test_a_lost_task_that_is_poisonous_is_named(service: Service) -> None:
    service.start()
    client = service.client("one")
    task = client.command("kill -9 $PPID; sleep 5", limits=Limits(losses=1))
    service.executor()

    assert client.unsuccess(task).failure.cause is Cause.LOST


def test_a_detached_executor_with_a_token_that_is_refused_does_not_count_as_started(
    service: Service, tmp_path: Path
) -> None:
    service.start("--listen", "127.0.0.1:0")
    access = tmp_path / "execute.json"
    service.bough("server", "access", "--role", "execute", "--output", str(access))
    service.bough("server", "rotate", "--role", "execute")
    refused = service.bough("executor", "start", "--server", str(access), "--cores", "1", "--detach", check=False)
    assert refused.returncode != 0, refused.stdout
    assert "token was refused" in refused.stderr


def test_what_no_store_can_hold_is_refused_in_one_line_and_the_server_serves_on(service: Service) -> None:
    service.start()
    for words in (
        ("submit", "--priority", "9223372036854775808", "--", "true"),
        ("submit", "--retries", "9223372036854775808", "--", "true"),
        ("submit", "--memory", "9223372036854775808", "--", "true"),
        ("submit", "--cores", "nan", "--", "true"),
        ("submit", "--timeout", "inf", "--", "true"),
        ("submit", "--resource", "licence=nan", "--", "true"),
        ("submit", "--array", "1-9999999999", "--", "true"),
        ("submit", "--name", "y" * 70_000, "--", "true"),
        ("cancel", "9223372036854775808"),
        ("kill", "1.99999999999999999999"),
        ("remove", "9" * 5000),
        ("executor", "stop", "9223372036854775808"),
    ):
        refused = service.bough(*words, check=False)
        assert refused.returncode == 2, refused.stderr
        assert refused.stderr.count("\n") == 1
    assert service.bough("sql", "--json", "select * from runs where grp != 0").stdout == "[]\n", "no queue was opened"
    service.kill()
    service.start()
    assert "submitted" in service.bough("submit", "--", "true").stdout


def test_a_queue_that_was_opened_for_what_is_refused_then_ends(service: Service) -> None:
    service.start()
    assert service.bough("submit", "--after", "99", "--", "true", check=False).returncode == 2
    assert "running" not in service.bough("status").stdout
    assert "submitted" in service.bough("submit", "--", "true").stdout
    assert service.bough("submit", "--after", "99", "--", "true", check=False).returncode == 2
    assert "submitted" in service.bough("submit", "--", "true").stdout
    assert json.loads(service.bough("sql", "--json", "select count(*) as n from tasks").stdout) == [{"n": 2}]


def test_an_array_of_a_hundred_million_is_stored_as_one_record(service: Service) -> None:
    service.start()
    said = service.bough("submit", "--array", "1-99999990,100000001-100000010", "--", "true {index}")
    assert "of 100000000 tasks" in said.stdout
    stored = sum(path.stat().st_size for path in service.home.rglob("*") if path.is_file())
    assert stored < 2_000_000
    assert "100000000 ready" in service.bough("status").stdout
