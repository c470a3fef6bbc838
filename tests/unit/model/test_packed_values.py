from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from bough.model.packed_values import APART, Apart, dumps_times, holds_times, is_split, pieces, split
from bough.model.refs import load_pickle
from bough.movers.mapped_memory import address_of


class Block:
    """Something with a buffer, as arrays have."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Block, (pickle.PickleBuffer(self.data),)


def packed(value: object) -> tuple[bytes, list[memoryview]]:
    apart = Apart()
    head = pickle.dumps(value, 5, buffer_callback=apart.take)
    return head, apart.buffers


def whole(head: bytes, buffers: Sequence[memoryview]) -> bytes:
    return b"".join(bytes(part) for part in pieces(head, buffers))


def test_only_big_buffers_lie_apart() -> None:
    head, buffers = packed([Block(bytearray(APART - 1)), Block(bytearray(APART)), Block(b"x" * APART)])
    assert [buffer.nbytes for buffer in buffers] == [APART, APART]
    assert len(head) < 2 * APART


def test_arrays_of_times_lie_apart_as_well() -> None:
    np = pytest.importorskip("numpy")
    numbers = np.arange(APART)
    times = numbers.astype("datetime64[s]")
    swapped = numbers.astype(">M8[ms]").reshape(2, -1)
    values = [
        times,
        numbers.astype("timedelta64[D]"),
        swapped,
        numbers,
        times[:10],
        np.array(["x"] * APART, object),
    ]
    assert holds_times(pickle.dumps(values, 5, buffer_callback=Apart().take))
    apart = Apart()
    head = dumps_times(values, apart.take)
    assert len(apart.buffers) == 4
    found = load_pickle(head, [one.toreadonly() for one in apart.buffers])
    for value, there in zip(values, found, strict=True):
        assert there.dtype == value.dtype
        assert there.shape == value.shape
        assert (there == value).all()
    assert [one.flags.writeable for one in found] == [False] * 4 + [True] * 2
    assert not holds_times(pickle.dumps(numbers[:10], 5))
    assert not holds_times(bytes(2 * APART))


@pytest.mark.parametrize("sizes", [(APART,), (APART + 1, APART + 7, APART), (APART + 64,) * 20])
def test_who_just_loads_it_gets_the_value_and_who_splits_it_gets_aligned_views(sizes: tuple[int, ...]) -> None:
    value = [Block(bytes([at % 251]) * size) for at, size in enumerate(sizes)]
    data = whole(*packed(value))
    assert is_split(data)
    assert [bytes(one.data) for one in pickle.loads(data)] == [one.data for one in value]
    parts = split(data)
    assert parts is not None
    head, views = parts
    assert [bytes(one.data) for one in load_pickle(head, views)] == [one.data for one in value]
    assert all(view.readonly for view in views)
    assert [(address_of(view) - address_of(data)) % 64 for view in views] == [0] * len(views)


def test_a_pickle_without_big_buffers_is_a_plain_one() -> None:
    head, buffers = packed([1, "two"])
    assert whole(head, buffers) == head
    assert split(head) is None
    assert not is_split(head)


@pytest.mark.parametrize("cut", [1, 3, 100, APART])
def test_one_that_was_cut_short_is_refused(cut: int) -> None:
    data = whole(*packed(Block(bytes(APART))))
    with pytest.raises(ValueError, match="damaged"):
        split(data[:-cut])


def test_something_behind_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="damaged"):
        split(whole(*packed(Block(bytes(APART)))) + b"more")
