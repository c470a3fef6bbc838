"""The driver's bounds with a fake session: what has not ended is bounded, what nobody collects is not."""

from __future__ import annotations

import math
import threading
import time

from bough.driver import Driver
from tests.unit.driver.driver_sessions import FakeSession


def test_a_producer_that_issues_23000_jobs_before_its_only_barrier_is_not_held_for_ever() -> None:
    session = FakeSession()
    with Driver(session, buffer_size=100) as made:  # type: ignore[arg-type]
        made.set_group("g", 16)
        for i in range(23_000):
            made.exec_async(["true"], producer=i % 3, group="g" if i % 2 else None)
        assert made.wait_all() == [0] * 23_000
    assert sum(session.sizes) == 23_000
    assert session.most <= 100


def test_a_thousand_jobs_at_factor_16_are_62_full_bundles_and_one_of_8() -> None:
    session = FakeSession()
    with Driver(session) as made:  # type: ignore[arg-type]
        made.set_group("g", 16, timeout=600)
        for _ in range(1000):
            made.exec_async(["true"], group="g")
        made.wait_all()
    assert session.sizes == [16] * 62 + [8]


def test_a_buffer_that_is_no_multiple_of_the_factor_leaves_bundles_whole() -> None:
    session = FakeSession(one_by_one=True)
    with Driver(session, buffer_size=200) as made:  # type: ignore[arg-type]
        made.set_group("g", 16, timeout=600)
        for _ in range(1000):
            made.exec_async(["true"], group="g")
        assert made.wait_all() == [0] * 1000
    assert session.sizes == [16] * 62 + [8]
    assert session.most <= 200


def test_the_time_of_a_bundle_stands_still_while_its_producer_waits_for_room() -> None:
    session = FakeSession()
    session.may_end.clear()
    made = Driver(session, buffer_size=200)  # type: ignore[arg-type]
    made.set_group("g", 16, timeout=600)
    made.start()
    producer = threading.Thread(target=lambda: [made.exec_async(["true"], group="g") for _ in range(208)])
    producer.start()
    until = time.monotonic() + 60
    while not made._blocked and time.monotonic() < until:
        time.sleep(0.001)
    with made._lock:
        assert made._due(math.inf) is None
    session.may_end.set()
    producer.join(60)
    made.stop()
    assert session.sizes == [16] * 13


def test_a_buffer_full_of_incomplete_bundles_sends_off_the_fullest_one() -> None:
    session = FakeSession()
    with Driver(session, buffer_size=100) as made:  # type: ignore[arg-type]
        for number in range(20):
            made.set_group(f"g{number}", 16, timeout=600)
        for number in range(20):
            for _ in range(10 if number == 7 else 5):
                made.exec_async(["true"], group=f"g{number}")
        assert session.sizes == [10]
        made.wait_all()
    assert sorted(session.sizes) == [5] * 19 + [10]


def test_many_pipelines_in_the_making_do_not_fill_the_buffer() -> None:
    session = FakeSession()
    made = Driver(session, buffer_size=100)  # type: ignore[arg-type]
    for number in range(300):
        made.create_pipeline(f"p{number}", 2)
        made.exec_async("true", group=f"p{number}")  # a second round would complete them
    assert made.submissions == 0
    made.stop(drain=False)
