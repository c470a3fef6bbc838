from __future__ import annotations

import pickle

import cloudpickle
import pytest

from bough.errors import StoreFailed
from bough.model.arrays.result_lists import cut
from bough.model.events.facts import SpanEnded
from bough.model.outcomes import ResultFile
from bough.server.turns.result_parts import ResultCache, part


def a_success(record: int, start: int, stop: int, results: object = None) -> SpanEnded:
    return SpanEnded(1, start, stop, 0.1, results, record=record)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5], ["x" * 100_000] * 5, [{"a": [i]} for i in range(5)]])
def test_a_cut_pickle_loads_as_the_slice(protocol: int, values: list[object]) -> None:
    data = pickle.dumps(values, protocol)

    assert pickle.loads(cut(data, 1, 3)) == values[1:4]


def test_a_cut_keeps_shared_objects_and_those_of_cloudpickle() -> None:
    shared = ["same"]
    data = cloudpickle.dumps([shared, shared, lambda: 7])

    first, second, function = pickle.loads(cut(cut(data, 0, 3), 0, 3))
    assert first is second
    assert function() == 7


def test_a_part_of_results_in_a_file_is_a_file_of_its_own(tmp_path) -> None:
    path = tmp_path / "big.pickle"
    path.write_bytes(pickle.dumps(list(range(10))))
    span = a_success(1, 20, 30, ResultFile(str(path), path.stat().st_size))

    found = part(span, 22, 25)

    assert isinstance(found, ResultFile)
    with open(found.path, "rb") as file:
        assert pickle.load(file) == [2, 3, 4]
    assert part(span, 20, 30) is span.results


def test_what_is_remembered_is_not_read_again() -> None:
    cache = ResultCache(lambda *_: pytest.fail("the store was read"))
    for start in (10, 0, 5):
        cache.remember(a_success(1, start, start + 5, b"x"))

    assert [cache.find(0, 1, index).start for index in (0, 4, 5, 9, 10, 14)] == [0, 0, 5, 5, 10, 10]


def test_the_least_recently_used_results_go_first() -> None:
    reads: list[tuple[int, int, int]] = []

    def read(turn: int, record: int, index: int) -> SpanEnded:
        reads.append((turn, record, index))
        return a_success(record, index, index + 1, b"." * 1000)

    cache = ResultCache(read, limit=3500)
    cache.remember(a_success(1, 0, 1, b"." * 1000))
    cache.remember(a_success(1, 1, 2, b"." * 1000))
    cache.find(0, 1, 0)
    cache.remember(a_success(1, 2, 3, b"." * 1000))

    cache.find(7, 1, 0)
    assert reads == []
    cache.find(7, 1, 1)
    assert reads == [(7, 1, 1)]


def test_a_range_is_covered_by_the_successes_that_hold_it() -> None:
    cache = ResultCache(lambda *_: None)
    cache.remember(a_success(1, 0, 10, b"a"))
    cache.remember(a_success(1, 10, 20, b"b"))

    assert [(low, high, span.results) for low, high, span in cache.successes(0, 1, 5, 15)] == [
        (5, 10, b"a"),
        (10, 15, b"b"),
    ]


def test_a_result_that_is_nowhere_is_a_failure_of_the_store() -> None:
    with pytest.raises(StoreFailed, match=r"task 1\.3 is not in turn 9"):
        ResultCache(lambda *_: None).find(9, 1, 3)


def test_results_of_a_workflow_that_is_over_are_forgotten() -> None:
    cache = ResultCache(lambda *_: None)
    cache.remember(a_success(1, 0, 10, b"a"))
    cache.remember(a_success(1, 10, 20, b"b"))
    cache.remember(a_success(2, 0, 1, b"c"))
    cache.forget_all([1, 3])
    assert cache.find(0, 2, 0).results == b"c"
    with pytest.raises(StoreFailed):
        cache.find(0, 1, 0)
