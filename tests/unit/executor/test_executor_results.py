from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from bough.executor.failures import RemoteTraceback, exception_failure, loading_failure, one_line
from bough.executor.results import SMALL, pack, pack_results
from bough.model.outcomes import Cause, Failure, ResultFile


def test_small_results_travel_together(tmp_path: Path) -> None:
    ((start, stop, data),) = pack_results(5, [1, "two", None], str(tmp_path), "r")
    assert (start, stop) == (5, 8)
    assert isinstance(data, bytes)
    assert pickle.loads(data) == [1, "two", None]


def test_big_results_get_files_and_small_neighbours_do_not(tmp_path: Path) -> None:
    values: list[object] = [1, b"x" * (SMALL + 1), 2, 3]
    found = list(pack_results(0, values, str(tmp_path), "r"))
    assert [stop for _, stop, _ in found] == [*[start for start, _, _ in found][1:], 4]
    loaded: list[object] = []
    for start, _, data in found:
        assert isinstance(data, ResultFile) == (start == 1)
        raw = Path(data.path).read_bytes() if isinstance(data, ResultFile) else data
        assert isinstance(raw, bytes)
        loaded += pickle.loads(raw)
    assert loaded == values


def test_only_the_guilty_result_fails(tmp_path: Path) -> None:
    found = list(pack_results(0, [0, 1, threading.Lock(), 3], str(tmp_path), "r"))
    failures = [(start, data) for start, _, data in found if isinstance(data, Failure)]
    assert [start for start, _ in failures] == [2]
    assert failures[0][1].cause == Cause.UNSENDABLE
    assert "_thread.lock" in failures[0][1].message
    assert sum(stop - start for start, stop, data in found if not isinstance(data, Failure)) == 3


def test_functions_travel_by_value_when_plain_pickle_cannot() -> None:
    assert pickle.loads(pack(lambda: 42))() == 42


def failure_of(fn: Any) -> Failure:
    try:
        fn()
    except BaseException as error:
        return exception_failure(error)
    raise AssertionError("did not raise")


def test_an_exception_keeps_its_type_and_its_traceback_as_its_cause() -> None:
    def inner() -> None:
        raise KeyError("colour")

    failure = failure_of(inner)
    error = pickle.loads(failure.error)
    assert isinstance(error, KeyError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in inner" in str(error.__cause__)
    assert "failure_of" not in str(error.__cause__)
    assert failure.message == "KeyError: 'colour'"


def test_messages_are_one_line() -> None:
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert one_line(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("error", "cause", "word"),
    [
        (ModuleNotFoundError("No module named 'zzz'", name="zzz"), Cause.NOT_STARTED, "'zzz'"),
        (TypeError("bad bytes"), Cause.UNSENDABLE, "bad bytes"),
    ],
)
def test_what_cannot_be_loaded_says_what_is_missing(error: Exception, cause: Cause, word: str) -> None:
    failure = loading_failure(error, "the function")
    assert failure.cause == cause
    assert word in failure.message
