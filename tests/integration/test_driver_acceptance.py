"""Trellis Driver's acceptance list, items 2 and 4: the calls F1 to F14, the states, bundles, barriers, no deadlock.

A test is named after what it shows; `docs/howto/driver.md` has the list of all items. `BOUGH_FULL=1` runs item 4 with
23,000 real processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import Service

import bough
from bough import driver
from bough.driver.job_driver import BUFFER, CONSUMERS
from bough.errors import UserError

FULL = bool(os.environ.get("BOUGH_FULL"))
PATIENCE = 120.0


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bough.Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("driver"))
        patch.delenv("BOUGH_SERVER", raising=False)
        with bough.Session(cores=2) as made:
            yield made


class Gate:
    """Commands that wait until it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.command = f"while [ ! -e {path} ]; do sleep 0.02; done"

    def open(self) -> None:
        self._path.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.open()


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


# --- 2.1 configuration ------------------------------------------------------------------------------------


def test_f1_there_is_one_driver_of_the_process(session: bough.Session) -> None:
    driver.use(session)
    try:
        made = driver.get_driver()
        assert driver.get_driver() is made
        assert driver.exec_sync("exit 2") == 2
        assert driver.get_driver() is made
        driver.stop()
    finally:
        driver.use(None)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("consumers", *CONSUMERS), ("buffer_size", *BUFFER)], ids=["f2", "f3"]
)
def test_f2_f3_consumers_and_buffer_size_are_kept_within_their_ranges(name: str, least: int, most: int) -> None:
    made = driver.Driver()
    for value in (least, most):
        setattr(made, name, value)
        assert getattr(made, name) == value
    for value in (least - 1, most + 1, "5", 2.5, True):
        with pytest.raises(UserError, match=rf"{name} is .*; give a whole number from {least} to {most}"):
            setattr(made, name, value)
    assert getattr(made, name) == most


def test_f2_f3_the_ranges_are_those_of_the_thesis() -> None:
    assert (CONSUMERS, BUFFER) == ((2, 512), (100, 10_000))


def test_f4_jobs_go_to_the_queue_that_was_named(session: bough.Session) -> None:
    made = driver.Driver(session)
    assert made.queue_name is None
    made.queue_name = "nightly"
    assert made.queue_name == "nightly"
    made.exec_async("true")
    made.stop()
    assert len(session.find("nightly/*")) == 1
    for value in ("", " ", "a/b", 3):
        with pytest.raises(UserError, match="queue_name is"):
            driver.Driver(queue_name=value)  # type: ignore[arg-type]


def test_f5_f6_factors_and_lengths_are_from_1_to_the_buffer_size() -> None:
    made = driver.Driver(buffer_size=200)
    for value in (1, 200):
        made.set_group(f"g{value}", value)
        made.create_pipeline(f"p{value}", value)
    for value in (0, 201, -1, "2", 1.5):
        with pytest.raises(UserError, match=r"batching_factor is .*from 1 to 200"):
            made.set_group("wrong", value)  # type: ignore[arg-type]
        with pytest.raises(UserError, match=r"length is .*from 1 to 200"):
            made.create_pipeline("wrong", value)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="'wrong' is not known"):
        made.exec_async("true", group="wrong")
    made.stop(drain=False)


def test_f5_f6_groups_and_pipelines_are_registered_at_any_time(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        made.exec_async("true")
        for phase in ("BLAST", "Parsing"):
            made.set_group(phase, 2)
            made.create_pipeline(f"chain of {phase}", 1)
            made.exec_async("exit 1", group=phase)
            made.exec_async("exit 2", group=f"chain of {phase}")
        assert made.wait_all() == [0, 1, 2, 1, 2]


def test_f7_f8_what_is_started_is_configured_and_what_is_stopped_takes_no_jobs(session: bough.Session) -> None:
    before = threading.active_count()
    made = driver.Driver(session)
    made.start()
    with pytest.raises(UserError, match="consumers cannot be changed: the driver was started"):
        made.consumers = 4
    key = made.exec_async("exit 3")
    made.stop()
    assert threading.active_count() == before
    assert made.wait_one(key) == 3
    with pytest.raises(UserError, match="stopped and takes no more jobs"):
        made.exec_async("true")
    with pytest.raises(UserError, match="was stopped"):
        made.start()


# --- 2.2 launching, 2.3 synchronisation -------------------------------------------------------------------


def test_f9_exec_sync_returns_when_the_job_has_ended(session: bough.Session, tmp_path: Path) -> None:
    with driver.Driver(session) as made:
        assert made.exec_sync(f"echo x > {tmp_path}/made; exit 4") == 4
        assert (tmp_path / "made").read_text() == "x\n"


def test_f10_exec_returns_a_number_while_the_job_runs(session: bough.Session, gate: Gate) -> None:
    with driver.Driver(session) as made:
        made.set_group("g", 1)
        keys = [made.exec_async(gate.command), made.exec_async(gate.command, group="g")]
        assert all(isinstance(key, int) for key in keys)
        assert len(set(keys)) == 2
        assert "finished" not in map(made.state, keys)
        gate.open()
        assert made.wait_all() == [0, 0]


def test_f10_exec_waits_only_while_the_buffer_is_full(session: bough.Session, gate: Gate) -> None:
    with driver.Driver(session, buffer_size=100) as made:
        for _ in range(100):
            made.exec_async(gate.command)
        late = threading.Thread(target=made.exec_async, args=("exit 7",))
        late.start()
        late.join(0.1)
        assert late.is_alive()
        gate.open()
        late.join(PATIENCE)
        assert not late.is_alive()
        assert made.wait_all() == [0] * 100 + [7]


def test_f11_f14_a_job_is_recorded_under_the_producer_it_names(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        keys = [made.exec_async(f"exit {number}", producer=number % 2) for number in range(6)]
        assert made.wait_all(1) == [1, 3, 5]
        assert made.wait_all(1) == []
        assert made.wait_all(0) == [0, 2, 4]
        assert [made.result(key).producer for key in keys] == [0, 1, 0, 1, 0, 1]


def test_f12_wait_one_waits_for_its_job_alone_and_hands_it_over(session: bough.Session, gate: Gate) -> None:
    with driver.Driver(session) as made:
        slow, quick = made.exec_async(gate.command), made.exec_async("exit 6")
        assert made.wait_one(quick, PATIENCE) == 6
        assert made.state(slow) != "finished"
        gate.open()
        assert made.wait_all() == [0]


def test_f13_wait_all_gives_codes_in_the_order_of_submission(session: bough.Session) -> None:
    with driver.Driver(session) as made:
        made.set_group("g", 3)
        for number in range(20):
            command = f"sleep 0.0{number % 3}; exit {number}"
            made.exec_async(command, producer=number % 4, group="g" if number % 2 else None)
        assert made.wait_all() == list(range(20))


def test_the_barriers_of_producers_are_independent(session: bough.Session, gate: Gate) -> None:
    with driver.Driver(session) as made:
        made.exec_async(gate.command, producer="slow")
        made.exec_async("exit 8", producer="quick")
        assert made.wait_all("quick", PATIENCE) == [8]
        with pytest.raises(TimeoutError):
            made.wait_all("slow", 0.05)
        gate.open()
        assert made.wait_all("slow") == [0]


# --- 2.4 states -------------------------------------------------------------------------------------------


def test_a_job_is_filled_then_in_progress_then_finished_then_free(session: bough.Session, gate: Gate) -> None:
    with driver.Driver(session) as made:
        made.set_group("g", 2, timeout=600)
        key = made.exec_async(gate.command, group="g")
        assert (made.state(key), made.submissions) == ("filled", 0)
        made.exec_async(gate.command, group="g")
        until(lambda: made.state(key) == "in progress", "the bundle was not submitted")
        gate.open()
        until(lambda: made.state(key) == "finished", "the job did not end")
        assert made.state(key) == "finished"
        assert made.wait_all() == [0, 0]
        assert made.wait_all() == []


def test_all_jobs_of_many_pass_through_the_states_in_order(session: bough.Session) -> None:
    order = ["filled", "in progress", "finished"]
    with driver.Driver(session, consumers=2) as made:
        made.set_group("g", 4)
        keys = [made.exec_async("true", group="g") for _ in range(40)]
        seen = dict.fromkeys(keys, 0)
        made.flush()
        until(lambda: all(_advance(made, key, seen, order) for key in keys), "not all jobs ended")
        assert made.wait_all() == [0] * 40


def _advance(made: driver.Driver, key: int, seen: dict[int, int], order: list[str]) -> bool:
    now = order.index(made.state(key))
    assert now >= seen[key]
    seen[key] = now
    return now == 2


# --- bundles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer_size", [10_000, 200])  # 200 is no multiple of 16
def test_a_thousand_jobs_at_factor_16_are_62_and_1_submissions_of_16_and_8(
    session: bough.Session, buffer_size: int
) -> None:
    with driver.Driver(session, queue_name=f"bundles-{buffer_size}", buffer_size=buffer_size) as made:
        made.set_group("g", 16, timeout=600)
        for _ in range(1000):
            made.exec_async(["true"], group="g")
        assert made.wait_all() == [0] * 1000
        assert made.submissions == 62 + 1
    with session.jobs() as jobs:
        inside = f"SELECT id FROM groups WHERE path = 'bundles-{buffer_size}'"
        _, rows = jobs.query(f"SELECT length FROM tasks WHERE grp = ({inside}) ORDER BY id")
    assert [length for (length,) in rows] == [16] * 62 + [8]


def test_the_stages_of_pipelines_run_in_order_however_they_are_issued(session: bough.Session, tmp_path: Path) -> None:
    with driver.Driver(session) as made:
        made.set_group("chains", 3)
        for number in range(8):
            made.create_pipeline(f"p{number}", 4, group="chains" if number % 2 else None)
        for stage in range(4):
            for number in range(8):
                made.exec_async(f"echo {stage} >> {tmp_path}/p{number}", group=f"p{number}")
        assert made.wait_all() == [0] * 32
    assert {(tmp_path / f"p{number}").read_text() for number in range(8)} == {"0\n1\n2\n3\n"}


# --- item 4 -----------------------------------------------------------------------------------------------


def test_23000_jobs_with_a_small_buffer_and_one_barrier_end_at_a_real_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = Service(tmp_path / "s")
    try:
        service.start()
        service.executor("--emulate", "2", joined=False)
        with bough.Session(f"unix:{service.address}", name="human") as s, driver.Driver(s, buffer_size=100) as made:
            made.set_group("BLAST", 16)
            for number in range(23_000):
                made.exec_async(["blast", str(number)], group="BLAST" if number % 2 else None)
            assert made.wait_all() == [0] * 23_000
    finally:
        service.clean_up()


@pytest.mark.parametrize(
    "count",
    [
        2_300,
        pytest.param(
            23_000,
            marks=pytest.mark.skipif(not FULL, reason="half a minute of processes: BOUGH_FULL=1 includes it"),
        ),
    ],
)
def test_ten_times_as_many_real_processes_as_the_buffer_holds_end_uncollected(
    session: bough.Session, count: int
) -> None:
    with driver.Driver(session, buffer_size=max(100, count // 10)) as made:
        for number in range(count):
            made.exec_async(["test", str(number), "-ne", "77"])
        codes = made.wait_all()
    assert codes == [0] * 77 + [1] + [0] * (count - 78)
