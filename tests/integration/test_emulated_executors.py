"""Emulated executors at a real server: they keep the protocol, so that nobody there can tell."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import Service, until

import bough

COUNT = 70  # more than may be strangers to the server at a time
RESULT = 30.0  # seconds that a test waits for a result


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.clean_up()


def emulate(service: Service, count: int, *words: str) -> subprocess.Popen[bytes]:
    """Emulated executors, all of which have joined when this returns."""
    log = service.folder / f"emulated-{len(service.executors)}.log"
    process = service._spawn(["executor", "start", "--emulate", str(count), *words], log)
    service.executors.append(process)
    until(lambda: "have joined" in log.read_text() or process.poll() is not None, "the emulated executors")
    assert process.poll() is None, log.read_text()
    until_listed(service, count, process)
    return process


def until_listed(service: Service, count: int, process: subprocess.Popen[bytes]) -> None:
    def are_there(entries: list[dict[str, object]]) -> bool:
        mine = [entry for entry in entries if entry["pid"] == process.pid and entry["state"] == "idle"]
        return len(mine) == count

    service.until_executors(are_there, f"{count} executors")


def session(service: Service, monkeypatch: pytest.MonkeyPatch) -> bough.Session:
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    return bough.Session(f"unix:{service.address}", name="emulated")


def test_many_executors_run_nothing_and_all_succeed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start("--heartbeat", "5s")
    emulate(service, COUNT)
    with session(service, monkeypatch) as opened:
        array = opened.sweep("sleep 0; echo {n} > made", bough.product(n=range(5000)))
        loose = [opened.command(f"sleep 0.0{n}") for n in range(10)]
        assert list(opened.map(abs, range(100))) == [None] * 100
        array.wait_all(RESULT)
        assert len(array.finished()) == 5000
        assert not len(array.failed())
        done = loose[0].result(RESULT)
        assert (done.returncode, done.stdout) == (0, "")
        assert [task.result(RESULT).returncode for task in loose] == [0] * 10
    assert not (service.folder / "made").exists()
    listed = service.bough("executor", "list").stdout
    assert listed.count("emulated") == COUNT
    numbers = [int(line.split()[0]) for line in listed.splitlines()[1:]]
    assert numbers == sorted(numbers)


def test_a_chain_of_functions_passes_through(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start()
    emulate(service, 3)
    with session(service, monkeypatch) as opened:
        last = opened.submit(abs, -1)
        for _ in range(50):
            last = opened.submit(abs, last)
        assert last.result(RESULT) is None


def test_functions_that_are_alike_pass_through_together(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start()
    emulate(service, 2)
    with session(service, monkeypatch) as opened:
        assert [task.result(RESULT) for task in [opened.submit(abs, n) for n in range(500)]] == [None] * 500


def test_they_come_by_tls(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start("--listen", "127.0.0.1:0", "--heartbeat", "5s")
    access = str(service.folder / "execute.json")
    service.bough("server", "access", "--role", "execute", "--output", access)
    emulate(service, COUNT, "--server", access)
    with session(service, monkeypatch) as opened:
        opened.sweep("sleep 0; : {n}", bough.product(n=range(1000))).wait_all(RESULT)


def test_tasks_go_on_while_the_server_is_gone(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start("--reconnect", "20s")
    process = emulate(service, 4)
    with session(service, monkeypatch) as opened:
        tasks = [opened.command("sleep 1", name=f"t{n}") for n in range(4)]
        until(lambda: all(task.running() for task in tasks), "four that run")
        service.kill()
        service.start("--reconnect", "20s")
        assert [task.result(RESULT).returncode for task in tasks] == [0] * 4
        until_listed(service, 4, process)
    numbers = service.until_executors(lambda found: sorted(int(one["executor"]) for one in found), "executors")
    assert numbers == [1, 2, 3, 4]
    assert service.log.read_text().count(", 0 are given to others") == 4


def test_told_to_end_they_give_back_what_they_have(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start()
    leaving = emulate(service, 5)
    with session(service, monkeypatch) as opened:
        tasks = [opened.command("sleep 1000000; true") for _ in range(5)]
        until(lambda: all(task.running() for task in tasks), "five that run")
        leaving.send_signal(signal.SIGTERM)
        assert leaving.wait(RESULT) == 0
        service.until_executors(lambda found: not found, "nobody is left")
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()


def test_some_are_drained_and_some_stopped(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start()
    process = emulate(service, 4)
    service.bough("executor", "drain", "1", "2")
    service.bough("executor", "stop", "3")
    until_listed(service, 1, process)
    with session(service, monkeypatch) as opened:
        assert list(opened.map(abs, range(20))) == [None] * 20
    service.bough("executor", "stop", "4")
    assert process.wait(RESULT) == 0


def test_a_cancelled_task_frees_its_executor(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start()
    emulate(service, 1)
    with session(service, monkeypatch) as opened:
        long = opened.command("sleep 1000000")
        until(long.running, "it runs")
        next_one = opened.command("sleep 0")
        long.cancel()
        assert next_one.result(RESULT).returncode == 0


def test_work_that_does_not_travel_with_acknowledgements_is_done_too(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.start("--no-piggyback", "--pickup", "10")
    emulate(service, 4)
    with session(service, monkeypatch) as opened:
        opened.sweep("sleep 0; : {n}", bough.product(n=range(1000))).wait_all(RESULT)
        assert [task.result(RESULT).returncode for task in [opened.command("sleep 0.01") for _ in range(30)]] == [
            0
        ] * 30


def test_more_than_a_process_can_have_are_refused_with_the_number_that_is_possible(service: Service) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("the number of open files is not limited here: ulimit -n 20000 before the tests includes it")
    service.start()
    refused = service.bough("executor", "start", "--emulate", str(hard), check=False)
    assert refused.returncode == 2
    assert f"{hard - 32} are possible" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("--emulate", "0"), ("--seconds", "1"), ("--emulate", "1", "--seconds", "-1")])
def test_what_makes_no_sense_is_refused(service: Service, words: tuple[str, ...]) -> None:
    service.start()
    assert service.bough("executor", "start", *words, check=False).returncode == 2


def test_without_a_server_they_end_at_once(service: Service) -> None:
    refused = service.bough("executor", "start", "--emulate", "3", "--server", f"unix:{service.address}", check=False)
    assert refused.returncode == 3
    assert "cannot be reached" in refused.stderr
