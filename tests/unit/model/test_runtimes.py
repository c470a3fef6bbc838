"""How many tasks go out at once, and what is learnt of their run time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.model.arrays.runtimes import FINEST, HAND_OUT, MAX_SPAN, RunTime, most_together, span_size


def known(mean: float, seen: int = 10**9) -> RunTime:
    """A run time that was measured often."""
    return RunTime(mean, seen)


def test_nobody_gets_more_than_twice_what_has_been_measured() -> None:
    assert [span_size(known(1e-6, seen), 10**6, 4) for seen in (1, 2, 100, 10**6)] == [2, 4, 200, MAX_SPAN]


def test_one_task_goes_out_while_the_run_time_is_unknown() -> None:
    assert span_size(RunTime(), 1_000_000, 4) == 1


def test_a_span_is_a_few_tens_of_milliseconds_of_work() -> None:
    assert span_size(known(0.001), 1_000_000, 4) == int(HAND_OUT / 0.001)


def test_a_long_task_goes_alone() -> None:
    assert span_size(known(HAND_OUT), 1_000_000, 4) == 1
    assert span_size(known(3600), 1_000_000, 4) == 1


def test_spans_halve_towards_the_end() -> None:
    mean = FINEST / 2
    assert [span_size(known(mean), ready, 4) for ready in (800, 400, 200, 80, 16, 8, 1)] == [50, 50, 25, 10, 2, 2, 2]


def test_what_is_too_short_to_matter_is_not_halved() -> None:
    assert [span_size(known(FINEST / 100), ready, 4) for ready in (4000, 800, 8)] == [500, 100, 100]


def test_a_span_is_bounded_however_short_the_tasks() -> None:
    assert span_size(known(1e-9), 10**9, 4) == MAX_SPAN


def test_without_cores_only_the_time_counts() -> None:
    assert span_size(known(0.001), 10, 0) == int(HAND_OUT / 0.001)


@given(st.just(0.0) | st.floats(1e-9, 1e4), st.integers(1, 10**8), st.just(0.0) | st.floats(0.01, 1e4))
def test_a_span_is_never_empty_and_never_too_long(expected: float, ready: int, cores: float) -> None:
    size = span_size(known(expected), ready, cores)
    assert 1 <= size <= MAX_SPAN
    if cores and size > 1:
        assert size <= max(ready / (2 * cores), FINEST / expected)


def test_the_first_measurement_is_taken_as_it_is() -> None:
    runtime = RunTime()
    assert runtime.mean == 0
    runtime.note(10, 5.0)
    assert runtime.mean == pytest.approx(0.5)


def test_later_measurements_move_the_mean_by_a_part() -> None:
    runtime = RunTime()
    runtime.note(1, 1.0)
    runtime.note(1, 2.0)
    assert runtime.mean == pytest.approx(1.3)


def test_a_measured_time_of_nothing_is_not_unknown() -> None:
    runtime = RunTime()
    runtime.note(10_000, 0.0)
    assert runtime.mean > 0
    assert span_size(runtime, 10**6, 4) == MAX_SPAN


def test_the_wait_for_inputs_counts_for_what_is_handed_out_and_not_as_run_time() -> None:
    runtime = RunTime()
    runtime.note(1, 0.01, 2.0)
    assert (runtime.mean, runtime.slot) == (pytest.approx(0.01), pytest.approx(2.01))
    assert span_size(runtime, 10_000, 1) == most_together(runtime) == 1
    for _ in range(40):
        runtime.note(1, 0.001)  # its inputs were there
    assert runtime.slot == runtime.mean
    assert span_size(runtime, 10_000, 1) > 1


def test_a_wait_is_a_mean_of_tasks_as_a_run_time_is() -> None:
    runtime = RunTime(0.01, 5)
    runtime.note(2, 0.02, 4.0)
    assert runtime.wait == pytest.approx(0.3 * 2.0)
    assert RunTime(0.01, 5, 0.6).slot == pytest.approx(0.61)
