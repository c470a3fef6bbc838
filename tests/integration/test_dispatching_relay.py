"""Executors behind a relay that shares out work: real processes, over Unix sockets and TLS, some of them killed."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from operator import add
from pathlib import Path

import cloudpickle
import pytest
from relay_site import SERVER, Relay, Site, begun, gated, runs
from service_client import is_alive, until

import bough
from bough.api.session.session import opened_sessions
from bough.model.events.news import Cancel
from bough.model.sites.resources import Needs
from bough.model.tasks import Dep, Limits, On
from bough.transport.access import rotate_token
from bough.wire.client_messages import DoAction

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

SHARED_OUT = ("--dispatch", "--reconnect", "2s")


class Tier(Site):
    """A service with executors behind a relay that shares out work."""

    def dispatching(self, listen: str = "127.0.0.1:0") -> Relay:
        return self.relay(self.begin(), listen, *SHARED_OUT)

    def members(self, relay: Relay, count: int, *words: str, cores: int = 1) -> list[subprocess.Popen[bytes]]:
        """Executors behind a relay, all of which the server counts when this returns."""
        before = self.counted()
        started = [
            self.executor("--server", str(relay.access), *words, cores=cores, joined=False) for _ in range(count)
        ]
        until(lambda: self.counted() == before + count, f"{count} more executors behind the relay")
        return started

    def executors_idle(self) -> bool:
        """Whether no executor has anything to do, as far as the server knows."""
        client = self.client("")
        try:
            return all(entry["state"] == "idle" for entry in client.executors())
        finally:
            client.sock.close()

    def counted(self) -> int:
        client = self.client("")
        try:
            return sum(int(entry["members"]) for entry in client.executors() if entry["state"] != "missing")
        finally:
            client.sock.close()


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Tier]:
    made = Tier(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work-here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    opened_sessions.clear()


def square(x: int) -> int:
    return x * x


def length(data: bytes) -> int:
    return len(data)


def check_work(tier: Tier) -> None:
    client = tier.client("one")
    one = client.function(square, 7)
    array = client.array(square, range(2000))
    command = client.command("echo hello")
    large = client.function(length, bytes(5_000_000))
    assert pickle.loads(client.outcome(one).results) == [49]
    assert client.values(array, 2000) == [i * i for i in range(2000)]
    assert client.outcome(command)
    bad = client.command("exit 3")
    assert client.unsuccess(bad).failure.exit_code == 3
    assert pickle.loads(client.outcome(large).results) == [5_000_000]
    assert client.close("drain").reason == "done"


# --- work ------------------------------------------------------------------------------------------------


def test_functions_and_commands_run_behind_a_relay_that_shares_out_work(tier: Tier) -> None:
    relay = tier.dispatching()
    tier.members(relay, 2)
    check_work(tier)
    client = tier.client("")
    assert [entry["members"] for entry in client.executors()] == [2]


def test_a_relay_on_unix_sockets_shares_out_work_on_its_machine(tier: Tier) -> None:
    tier.start()
    relay = tier.relay_of_own_home(*SHARED_OUT)
    tier.members(relay, 2, cores=2)
    check_work(tier)


def test_chains_travel_behind_a_relay(tier: Tier, here: Path) -> None:
    relay = tier.dispatching()
    tier.members(relay, 2)
    with bough.Session(f"unix:{tier.address}", name="chain") as session:
        assert session.submit(add, 0, 1).result() == 1
        link = session.submit(add, 0, 1)
        for _ in range(200):
            link = session.submit(add, link, 1)
        assert link.result() == 201
        error = session.submit(add, 1, "x").exception()
        assert isinstance(error, TypeError)
        assert " with 1, 'x', on " in error.__notes__[-1]
        assert "TypeError" in str(error.__cause__)


def test_big_arrays_reach_calls_and_elements_behind_a_relay(tier: Tier, here: Path) -> None:
    np = pytest.importorskip("numpy")
    relay = tier.dispatching()
    tier.members(relay, 2)
    one, other = np.arange(100_000, dtype=np.float64), np.ones(100_000)
    with bough.Session(f"unix:{tier.address}", name="arrays") as s:
        assert s.submit(sum, one).result(120) == one.sum()
        assert s.map(sum, [one, other] * 3, timeout=120).results() == [one.sum(), other.sum()] * 3


def test_a_failing_task_is_tried_again(tier: Tier) -> None:
    relay = tier.dispatching()
    tier.members(relay, 2)
    client = tier.client("one")
    notes = tier.folder / "notes"
    task = client.command(f"echo x >> {notes}; test $(wc -l < {notes}) -ge 3", limits=Limits(retries=5))
    assert client.outcome(task).attempt == 3
    assert client.close("drain").reason == "done"


def test_a_task_that_hangs_behind_a_relay_is_done_by_another_executor_too_and_the_other_way_round(
    tier: Tier, here: Path
) -> None:
    relay = tier.relay(tier.begin("--replication", "wqr:age=0.2s"), "127.0.0.1:0", *SHARED_OUT)
    tier.members(relay, 1)
    text = "if mkdir {first:raw} 2>/dev/null; then echo $$ > {first:raw}/pid; exec sleep 600; fi; echo x > {out:w}"
    with bough.Session(f"unix:{tier.address}", name="w", progress=False) as session:
        behind = session.command(text, first="first1", out="one.txt")
        until(lambda: behind.state == "running", "the first task to run")
        tier.executor()
        behind.result(timeout=120)
        until(tier.executors_idle, "the relay's attempt to be ended")
        pair = [session.command(text, first=f"first{number}", out=f"{number}.txt") for number in (2, 3)]
        tier.members(relay, 1)
        for one in pair:
            one.result(timeout=120)
        for number in (1, 2, 3):
            pid = int((here / f"first{number}" / "pid").read_text())
            until(lambda pid=pid: not is_alive(pid), "the attempts that hang to be ended")


def test_cancelling_ends_what_runs_and_drops_what_waits(tier: Tier) -> None:
    relay = tier.dispatching()
    tier.members(relay, 2)
    client = tier.client("one")
    tasks = [client.run_command(gated(tier.folder, f"t{number}")) for number in range(4)]
    begun(tier.folder, "t0")
    begun(tier.folder, "t1")
    for task in reversed(tasks):  # what waits first, or it would begin in the place of what was ended
        client.request += 1
        client.say(DoAction(client.request, Cancel(Dep(On.TASK, task))))
    after = client.command("echo after")
    assert client.outcome(after)
    pids = [int((tier.folder / f"t{n}.runs").read_text()) for n in range(2)]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of what ran")
    assert not (tier.folder / "t2.runs").exists()


# --- faults ----------------------------------------------------------------------------------------------


def test_what_a_killed_executor_had_is_run_by_others(tier: Tier) -> None:
    relay = tier.dispatching()
    victim, _ = tier.members(relay, 2)
    client = tier.client("one")
    notes = tier.folder / "notes"
    tasks = [client.command(f"echo {n} >> {notes}; sleep 0.02") for n in range(100)]
    functions = client.array(square, range(5000))
    until(lambda: notes.exists() and len(notes.read_text().split()) > 20, "some work")
    victim.kill()
    assert client.values(functions, 5000) == [i * i for i in range(5000)]
    for task in tasks:
        assert client.outcome(task)
    assert set(map(int, notes.read_text().split())) == set(range(100))
    until(lambda: tier.counted() == 1, "the loss")
    assert client.close("drain").reason == "done"


def test_a_stopped_executor_comes_back_with_what_it_had(tier: Tier) -> None:
    relay = tier.dispatching()
    (executor,) = tier.members(relay, 1)
    client = tier.client("one")
    task = client.run_command(gated(tier.folder, "slow"))
    begun(tier.folder, "slow")
    executor.send_signal(signal.SIGSTOP)
    until(lambda: tier.counted() == 0, "its silence")
    executor.send_signal(signal.SIGCONT)
    until(lambda: tier.counted() == 1, "its return")
    (tier.folder / "slow.go").touch()
    assert client.outcome(task)
    assert runs(tier.folder, "slow") == 1


def test_executors_work_on_while_the_server_is_away(tier: Tier) -> None:
    relay = tier.dispatching()
    tier.members(relay, 2)
    client = tier.client("one")
    client.run_command(gated(tier.folder, "slow"))
    begun(tier.folder, "slow")

    tier.kill()
    until(lambda: not relay.read().get("linked"), "the relay's notice")
    (tier.folder / "slow.go").touch()
    tier.start(*SERVER)
    until(lambda: relay.read().get("linked"), "the relay's return")

    back = tier.client("one")
    until(lambda: [r["state"] for r in back.ask("inventory")["records"]] == ["done"], "the end of the task")
    assert runs(tier.folder, "slow") == 1
    assert pickle.loads(back.outcome(back.function(square, 3)).results) == [9]


def test_a_member_on_which_much_fails_is_suspended_by_its_relay(tier: Tier, here: Path) -> None:
    """As the server does with its own executors; the task is tried with another member, and nobody notices."""
    relay = tier.dispatching()
    tier.members(relay, 1)  # this one lacks the program
    folder = tier.folder / "bin"
    folder.mkdir()
    (folder / "bough-only-here").write_text("#!/bin/sh\necho found $1\n")
    (folder / "bough-only-here").chmod(0o755)
    tier.environment["PATH"] = f"{folder}:{tier.environment['PATH']}"
    tier.members(relay, 1)
    with bough.Session(f"unix:{tier.address}", name="only") as session:
        found = [session.command(["bough-only-here", str(number)]) for number in range(60)]
        assert {task.result(60).stdout for task in found} == {f"found {number}\n" for number in range(60)}
    until(lambda: tier.counted() == 1, "the server to count one member only")
    assert "failed there and worked elsewhere" in relay.log.read_text()
    assert relay.log.read_text().count("executor-suspended") == 1


def test_a_relay_that_was_killed_costs_only_what_ran_behind_it(tier: Tier) -> None:
    relay = tier.relay(tier.begin("--reconnect", "2s"), "127.0.0.1:0", *SHARED_OUT)
    tier.members(relay, 2)
    client = tier.client("one")
    notes = tier.folder / "notes"
    tasks = [client.command(f"echo {n} >> {notes}; sleep 0.02") for n in range(100)]
    functions = client.array(square, range(5000))
    until(lambda: notes.exists() and len(notes.read_text().split()) > 20, "some work")
    relay.kill()
    relay.start()
    assert client.values(functions, 5000) == [i * i for i in range(5000)]
    for task in tasks:
        assert client.outcome(task)
    assert set(map(int, notes.read_text().split())) == set(range(100))
    assert client.close("drain").reason == "done"


# --- without shared storage ------------------------------------------------------------------------------


def test_outputs_of_executors_that_do_not_see_the_store_can_be_read(tier: Tier) -> None:
    relay = tier.dispatching()
    (tier.home / "server" / "store" / "token").write_text("another")
    tier.members(relay, 2, "--work", str(tier.folder / "work"))
    client = tier.client("one")
    short = client.command("echo short")
    long = client.command("head -c 200000 /dev/zero")
    running = client.run_command(f"echo begun; {gated(tier.folder, 'slow')}")
    big = client.function(bytes, 70_000_000)
    detail = client.outcome(short).details[0]
    assert Path(detail.stdout.path).read_bytes()[detail.stdout.offset :][: detail.stdout.length] == b"short\n"
    client.outcome(long)
    fetched = client.ask("output", record=long, index=0, stream="stdout", offset=100_000, length=1_000_000)
    assert len(fetched["data"]) == 100_000
    begun(tier.folder, "slow")
    until(
        lambda: client.ask("output", record=running, index=0, stream="stdout")["data"] == b"begun\n",
        "what a running task wrote",
    )
    (tier.folder / "slow.go").touch()
    assert client.outcome(running)
    results = client.outcome(big).results
    assert results.size > 70_000_000
    assert Path(results.path).stat().st_size == results.size


# --- orders ----------------------------------------------------------------------------------------------


def test_draining_concerns_all_executors_behind_the_relay(tier: Tier) -> None:
    relay = tier.dispatching()
    executors = tier.members(relay, 2)
    client = tier.client("one")
    task = client.run_command(gated(tier.folder, "slow"))
    begun(tier.folder, "slow")
    client.manage("drain", *[entry["executor"] for entry in client.executors()])
    (tier.folder / "slow.go").touch()
    assert client.outcome(task)
    for executor in executors:
        assert executor.wait(60) == 0
    until(lambda: client.executors() == [], "the end of the wide executor")
    tier.members(relay, 1)
    assert client.outcome(client.command("true"))


def test_stopping_ends_all_executors_behind_the_relay(tier: Tier) -> None:
    relay = tier.dispatching()
    executors = tier.members(relay, 2)
    client = tier.client("one")
    task = client.run_command(gated(tier.folder, "slow"))
    begun(tier.folder, "slow")
    client.manage("stop", *[entry["executor"] for entry in client.executors()])
    for executor in executors:
        assert executor.wait(60) == 0
    until(lambda: client.executors() == [], "the end of the wide executor")
    (tier.folder / "slow.go").touch()
    tier.members(relay, 1)
    assert client.outcome(task)


def test_a_relay_that_is_stopped_gives_everything_back_at_once(tier: Tier) -> None:
    relay = tier.relay(tier.begin("--reconnect", "600s"), "127.0.0.1:0", *SHARED_OUT)
    tier.members(relay, 1)
    client = tier.client("one")
    task = client.run_command(gated(tier.folder, "slow"))
    begun(tier.folder, "slow")
    relay.process.send_signal(signal.SIGTERM)
    assert relay.process.wait(60) == 0
    (tier.folder / "slow.go").touch()
    tier.executor()
    assert client.outcome(task)


def test_a_relay_that_shares_out_work_may_stand_behind_one_that_forwards_but_not_the_other_way(tier: Tier) -> None:
    first = tier.relay(tier.begin())
    second = tier.relay(first.access, "127.0.0.1:0", *SHARED_OUT)
    tier.members(second, 2)
    check_work(tier)
    third = Relay(tier.folder, "third", second.access)
    tier.relays.append(third)
    third.start(linked=False)
    assert third.process.wait(60) != 0
    assert "lets in executors only" in third.log.read_text()


def test_executors_with_a_wrong_token_are_not_let_in(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = tier.dispatching()
    access = json.loads(relay.access.read_bytes())
    monkeypatch.setenv("BOUGH_HOME", str(tier.folder / "elsewhere"))
    wrong = tier.folder / "wrong.json"
    wrong.write_text(json.dumps({**access, "token": rotate_token("execute")}))
    wrong.chmod(0o600)
    assert tier.executor("--server", str(wrong), joined=False).wait(60) != 0
    assert "its proof for the role execute does not hold" in relay.log.read_text()
    tier.members(relay, 1)


def test_executors_of_different_size_are_two_wide_executors(tier: Tier) -> None:
    relay = tier.dispatching()
    tier.members(relay, 2)
    tier.members(relay, 1, cores=2)
    client = tier.client("one")
    assert sorted((entry["members"], entry["cores"]) for entry in client.executors()) == [(1, 2), (2, 2)]
    wide = client.function(square, 5, needs=Needs(2))
    assert pickle.loads(client.outcome(wide).results) == [25]
    check_work(tier)


def test_the_status_says_that_a_relay_shares_out_work(tier: Tier) -> None:
    tier.start()
    relay = tier.relay_of_own_home(*SHARED_OUT)
    tier.members(relay, 2)
    until(lambda: relay.read().get("connections") == 2, "the relay's count")
    assert "2 executors to which it hands out work" in tier.bough("relay", "status").stdout
    tier.bough("relay", "stop")
    assert relay.process.wait(60) == 0
