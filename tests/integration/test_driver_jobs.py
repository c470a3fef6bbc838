"""Jobs through the driver: producers, groups, pipelines, barriers, bounds, stopping."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bough
from bough import driver
from bough.errors import UserError


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bough.Session]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    with bough.Session(cores=2) as made:
        yield made


def test_each_job_of_a_bundle_keeps_its_own_end_and_output(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        made.set_group("g", 8)
        keys = [made.exec_async(f"echo out {i}; echo err {i} >&2; exit {i}", group="g") for i in range(5)]
        keys.append(made.exec_async("kill -USR1 $$", group="g"))
        keys.append(made.exec_async(["no-such-program"], group="g"))
        assert made.wait_all() == [0, 1, 2, 3, 4, -signal.SIGUSR1, 127]
        assert made.submissions == 1
        found = made.result(keys[3])
        assert (found.stdout, found.stderr, found.exit_code, found.group) == ("out 3\n", "err 3\n", 3, "g")
        assert found.host
        assert 0 < found.started <= found.ended
        assert made.result(keys[5]).signal == signal.SIGUSR1
        assert made.wait_one(keys[2]) == 2
        assert made.wait_all() == []


def test_a_thousand_jobs_at_factor_16_make_62_and_1_submissions(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        made.set_group("g", 16, timeout=600)
        for i in range(1000):
            made.exec_async(["test", str(i), "-lt", "999"], group="g")
        assert made.wait_all() == [0] * 999 + [1]
        assert made.submissions == 62 + 1


def test_many_more_jobs_than_the_buffer_holds_end_uncollected(session: bough.Session) -> None:
    with driver.Driver(session, buffer_size=100) as made:
        for i in range(500):
            made.exec_async(["true"] if i != 7 else ["false"])
        assert made.wait_all() == [0] * 7 + [1] + [0] * 492


def test_the_barriers_of_two_producers_are_independent(session: bough.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with driver.Driver(session) as made:
        slow = made.exec_async(f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 5", producer="slow")
        for i in range(3):
            made.exec_async(f"exit {i}", producer="fast")
        assert made.wait_all("fast", timeout=120) == [0, 1, 2]
        assert made.state(slow) != "finished"
        with pytest.raises(TimeoutError, match=f"job {slow} "):
            made.wait_all("slow", timeout=0.1)
        gate.touch()
        assert made.wait_all("slow") == [5]


def test_producers_may_be_threads(session: bough.Session) -> None:
    codes: dict[int, list[int]] = {}
    with driver.Driver(session) as made:
        made.set_group("g", 4)

        def produce(number: int) -> None:
            for i in range(30):
                made.exec_async(f"exit {(number + i) % 4}", producer=number, group="g")
            codes[number] = made.wait_all(number)

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
    assert codes == {number: [(number + i) % 4 for i in range(30)] for number in range(3)}


def test_an_incomplete_bundle_leaves_when_its_time_is_over(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        made.set_group("g", 16, timeout=0.05)
        key = made.exec_async("true", group="g")
        deadline = time.monotonic() + 60
        while made.state(key) != "finished":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert made.submissions == 1


def test_a_pipeline_keeps_order_and_host_and_stops_at_the_first_failure(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        made.create_pipeline("good", 3)
        made.create_pipeline("bad", 3)
        keys = []
        for i, (one, other) in enumerate([("echo a > f", "echo x"), ("cat f > g", "exit 9"), ("cat g", "echo never")]):
            keys += [made.exec_async(one, group="good"), made.exec_async(other, group="bad")]
            assert made.submissions == 0 or i == 2
        assert made.wait_all() == [0, 0, 0, 9, 0, driver.NOT_RUN]
        assert made.result(keys[4]).stdout == "a\n"
        assert made.result(keys[1]).stdout == "x\n"
        times = [made.result(key) for key in keys[::2]]
        assert times[0].ended <= times[1].started <= times[1].ended <= times[2].started
        assert len({one.host for one in times}) == 1
        assert (made.result(keys[5]).started, made.result(keys[5]).stdout) == (0.0, "")
        made.create_pipeline("bad", 2, keep_going=True)
        for command in ("exit 9", "echo on"):
            made.exec_async(command, group="bad")
        assert made.wait_all() == [9, 0]


def test_whole_pipelines_are_bundled(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        made.set_group("chains", 4, timeout=600)
        for i in range(10):
            made.create_pipeline(f"c{i}", 2, group="chains")
            for command in (f"echo {i} > f{i}", f"test $(cat f{i}) -eq {i}"):
                made.exec_async(command, group=f"c{i}")
        assert made.wait_all() == [0] * 20
        assert made.submissions == 3


def test_an_incomplete_pipeline_at_a_barrier_is_an_error_and_no_wait(session: bough.Session) -> None:
    made = driver.Driver(session)
    made.create_pipeline("p", 3)
    key = made.exec_async("true", group="p", producer=1)
    other = made.exec_async("true", producer=2)
    for wait in (made.wait_all, lambda: made.wait_all(1), lambda: made.wait_one(key), made.stop):
        with pytest.raises(UserError, match="'p' has 1 of its 3 stages"):
            wait()
    assert made.wait_all(2) == [0]
    made.stop(drain=False)
    assert made.wait_one(key) == driver.CANCELLED
    assert made.wait_one(other) == 0


def test_jobs_have_their_own_directory_and_environment(session: bough.Session, tmp_path: Path) -> None:
    with driver.Driver(session) as made:
        made.set_group("g", 16)
        folder = tmp_path / "sub"
        folder.mkdir()
        one = made.exec_async("pwd; echo $NAME", group="g", cwd=folder, env={"NAME": "x"})
        two = made.exec_async("pwd; echo ${NAME-none}", group="g")
        assert made.wait_all() == [0, 0]
        assert made.result(one).stdout == f"{folder}\nx\n"
        assert made.result(two).stdout == f"{os.getcwd()}\nnone\n"


def test_stopping_drains_or_cancels(session: bough.Session, tmp_path: Path) -> None:
    made = driver.Driver(session, queue_name="queue")
    made.set_group("g", 16, timeout=600)
    key = made.exec_async("echo x > drained", group="g")
    made.stop()
    assert (tmp_path / "drained").exists()
    assert made.wait_one(key) == 0
    assert session.find("queue/*")[0].state == "done"
    for deed in (made.start, lambda: made.exec_async("true")):
        with pytest.raises(UserError, match="stopped"):
            deed()
    other = driver.Driver(session)
    keys = [other.exec_async("sleep 600") for _ in range(5)]
    other.stop(drain=False)
    assert [other.wait_one(key) for key in keys] == [driver.CANCELLED] * 5
    with pytest.raises(UserError, match="buffer_size cannot be changed"):
        other.buffer_size = 200


def test_consumers_bound_the_bundles_in_progress(session: bough.Session, tmp_path: Path) -> None:
    with driver.Driver(session, consumers=2) as made:
        made.set_group("g", 1)
        gate = tmp_path / "gate"
        keys = [made.exec_async(f"while [ ! -e {gate} ]; do sleep 0.02; done", group="g") for _ in range(6)]
        deadline = time.monotonic() + 60
        while made.submissions < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [made.state(key) for key in keys[2:]] == ["filled"] * 4
        gate.touch()
        assert made.wait_all() == [0] * 6


def test_the_functions_are_those_of_one_driver(session: bough.Session) -> None:
    driver.use(session)
    try:
        driver.get_driver().buffer_size = 100
        driver.set_group("g")
        driver.start()
        key = driver.exec_async("echo hi", group="g")
        assert driver.wait_one(key) == 0
        assert driver.result(key).stdout == "hi\n"
        assert driver.exec_sync("exit 3") == 3
        assert driver.wait_all() == []
        driver.stop()
        assert driver.exec_sync("exit 4") == 4
        driver.stop(drain=False)
        with pytest.raises(UserError, match="'x' is not known"):
            driver.exec_async("true", group="x")
        with pytest.raises(UserError, match="no job 99"):
            driver.wait_one(99)
        driver.stop()
    finally:
        driver.use(None)
