"""Replicas that nobody asked for: real executors at two sites, or on two hosts, and commands of which one hangs.

Hosts that share nothing are network namespaces, which takes root; without, those tests are skipped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_hosts import LinkedHosts, LinkedService, linked
from service_client import Service, is_alive, until

import bough
from bough.api.futures.array import Array

# Element 7 hangs, with a half of its output written, where it comes first.
HANGS = "if [ {n} = 7 ] && mkdir first 2>/dev/null; then echo half > {o:w}; echo $$ > pid; exec sleep 600; fi;"
WORKS = " sleep 0.1; echo {n} > {o:w}"
UNSAID = "if [ {n} = 3 ]; then echo x >> runs; until [ -e go ]; do sleep 0.05; done; fi; sleep 0.1"
NUMBERS = bough.product(n=range(10))
SOON = ("--replication", "careful-tail:age=1s")  # as by default, but for the half of a minute


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    yield made
    made.clean_up()


def session(service: Service, **more: object) -> bough.Session:
    return bough.Session(f"unix:{service.address}", name="w", progress=False, **more)


def ten_of_which_one_hangs(s: bough.Session, **options: object) -> Array:
    return s.sweep(HANGS + WORKS, NUMBERS, o="out/{n}.txt", **options)


def told(service: Service) -> dict[str, object]:
    return dict(json.loads(service.bough("status", "--name", "w", "--json").stdout)["replication"])


def attempts(service: Service, index: int) -> list[tuple[object, ...]]:
    asked = f"select attempt, state from attempts where idx = {index} order by attempt"
    rows = json.loads(service.bough("sql", asked, "--json").stdout)
    return [(row["attempt"], row["state"]) for row in rows]


def test_one_of_ten_commands_that_hangs_is_done_by_another_host_and_nothing_half_written_is_left(
    service: Service,
) -> None:
    service.start(*SOON)
    service.executor("--site", "one", cores=2)
    with session(service) as s:
        array = ten_of_which_one_hangs(s)
        until(lambda: os.path.exists("pid") and os.path.getsize("pid"), "the one that hangs")
        hanging = int(Path("pid").read_text())
        until(lambda: sum(one.state == "done" for one in array) == 9, "the others")
        service.executor("--site", "one", cores=2)  # on the same host: it gets nothing
        time.sleep(2.5)
        assert array[7].attempts == 1
        service.executor("--site", "two", cores=2)
        assert [done.exit_code for done in array.results(timeout=60)] == [0] * 10
        until(lambda: not is_alive(hanging), "the first attempt to be ended")
        assert array[7].attempts == 2
        until(lambda: attempts(service, 7) == [(1, "superseded")], "the jobs database")
        assert [Path(f"out/{n}.txt").read_text() for n in range(10)] == [f"{n}\n" for n in range(10)]
    until(lambda: sorted(os.listdir("out")) == [f"{n}.txt" for n in range(10)], "nothing else in the folder")
    assert told(service)["superseded"] == 1
    assert "replicas     1, 1 attempt superseded" in service.bough("stats").stdout


def test_explain_says_why_a_task_has_a_second_attempt(service: Service) -> None:
    service.start(*SOON)
    service.executor("--site", "one")
    with session(service) as s:
        waits = "until [ -e go ]; do sleep 0.05; done;"
        array = s.sweep(f"[ {{n}} != 3 ] || {waits} echo {{n}} > {{o:w}}", bough.product(n=range(4)), o="{n}.txt")
        until(lambda: array[3].state == "running", "the last one to run")
        service.executor("--site", "two")
        until(lambda: "2 executors at once" in array[3].explain(), "two attempts")
        assert "attempt 2 on" in array[3].explain()
        assert "a replica, because it had run for " in array[3].explain()
        assert "times what is expected" in array[3].explain()
        Path("go").touch()
        array.results(timeout=60)


@pytest.mark.parametrize(
    ("words", "options"), [(SOON, {"idempotent": False}), (("--replication", "none"), {})], ids=["denied", "off"]
)
def test_who_says_no_has_no_task_run_twice(
    service: Service, words: tuple[str, ...], options: dict[str, object]
) -> None:
    service.start(*words)
    service.executor("--site", "one", cores=2)
    service.executor("--site", "two", cores=2)
    with session(service) as s:
        array = ten_of_which_one_hangs(s, **options)
        until(lambda: sum(one.state == "done" for one in array) == 9, "the others")
        time.sleep(3.0)  # three times as long as a replica would need
        assert (array[7].state, array[7].attempts) == ("running", 1)
        array.kill()
        array.results(errors="return", timeout=60)
    written = [f"{n}.txt" for n in range(10) if n != 7]
    until(lambda: sorted(os.listdir("out")) == written, "nothing half-written to be left")


def test_a_command_of_which_nothing_is_said_or_declared_runs_once(service: Service) -> None:
    service.start(*SOON)
    service.executor("--site", "one", cores=2)
    service.executor("--site", "two", cores=2)
    with session(service) as s:
        unsaid = s.sweep(UNSAID, bough.product(n=range(4)))
        until(lambda: sum(one.state == "done" for one in unsaid) == 3, "the others")
        time.sleep(3.0)
        Path("go").touch()
        unsaid.results(timeout=60)
    assert Path("runs").read_text() == "x\n"


def test_a_service_that_names_no_policy_has_careful_replicas(service: Service) -> None:
    service.start()
    service.executor()
    with session(service, replication="careful-tail") as s:
        assert s.submit(abs, -1).result(60) == 1
    with pytest.raises(bough.UserError, match="the server was started with 'careful-tail'"):
        session(service, replication="none")


@linked
@pytest.mark.parametrize("keep", [True, "later", False])
def test_hosts_that_share_nothing_bring_back_the_outputs_of_the_attempts_that_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool | str
) -> None:
    monkeypatch.setenv("BOUGH_HOME", "")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    hosts = LinkedHosts(tmp_path, 3)
    try:
        service = LinkedService(hosts, tmp_path, *SOON)
        monkeypatch.chdir(service.here)
        service.executor(1)
        service.await_executors(1)
        first = f"if [ {{n}} = 7 ] && mkdir {tmp_path}/first 2>/dev/null; then echo half > {{o:w}};"
        hangs = f"{first} echo $$ > {tmp_path}/pid; exec sleep 600; fi; sleep 0.1; echo {{n}} > {{o:w}}"
        with bough.Session(service.socket, name="w", progress=False) as s:
            array = s.sweep(hangs, NUMBERS, o="out/{n}.txt", keep=keep)
            reads = s.command("cat {made:r} > {all:w}", made=array, all="all.txt")
            until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the one that hangs")
            hanging = int((tmp_path / "pid").read_text())
            service.executor(2)
            array.results(timeout=60)
            assert reads.result(timeout=60).exit_code == 0
            until(lambda: not is_alive(hanging), "the first attempt to be ended")
        assert Path("all.txt").read_text() == "".join(f"{n}\n" for n in range(10))
        if keep:
            assert [Path(f"out/{n}.txt").read_text() for n in range(10)] == [f"{n}\n" for n in range(10)]
            assert sorted(os.listdir("out")) == [f"{n}.txt" for n in range(10)]
        assert not [path for path in tmp_path.glob("host-*/**/*") if "-1.7" in path.name]
    finally:
        hosts.close()
