"""The model of a distributed index against what is printed of it."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.sim.models.index_model import break_even, central_bytes, lookup_rate, lookup_seconds


def test_the_fit_gives_what_is_printed() -> None:
    assert lookup_seconds(1) == pytest.approx(0.5e-3)
    assert lookup_seconds(15) == pytest.approx(3e-3, rel=0.01)  # printed: just over 3 ms
    assert lookup_seconds(1_000_000) == pytest.approx(13.2e-3, rel=0.01)  # printed: about 15 ms
    assert central_bytes(8_000_000) == 1_600_000_000


def test_more_than_32000_nodes_are_needed_to_equal_one_table() -> None:
    nodes = break_even()
    assert 32_000 < nodes < 45_000
    assert lookup_rate(nodes) >= 4.18e6 > lookup_rate(nodes - 1)
    with pytest.raises(UserError, match="at least 1"):
        lookup_seconds(0)
