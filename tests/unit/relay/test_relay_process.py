"""When a relay that has lost its server ends by itself."""

from __future__ import annotations

import pytest

from bough.relay.relay_process import why_give_up

HOURS = 7200.0


@pytest.mark.parametrize(
    ("alone", "unsought", "reason"),
    [
        (10.0, 1e9, ""),  # the server may only be restarted
        (59.0, 1e9, ""),
        (61.0, 1e9, "neither a server nor executors for 60 s"),
        (61.0, 30.0, ""),  # somebody waits for it
        (7199.0, 3.0, ""),
        (7201.0, 3.0, "no server for 7200 s"),
    ],
)
def test_a_relay_waits_longer_if_executors_do(alone: float, unsought: float, reason: str) -> None:
    assert why_give_up(alone, unsought, HOURS) == reason


def test_a_shorter_limit_counts_for_all() -> None:
    assert why_give_up(29.0, 29.0, 30.0) == ""
    assert why_give_up(31.0, 31.0, 30.0) == why_give_up(31.0, 1.0, 30.0) == "no server for 30 s"
