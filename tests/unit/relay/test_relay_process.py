"""When a relay that has lost its server ends by itself."""

from __future__ import annotations

import pytest

from bough.relay.relay_process import why_give_up

HOURS = 7200.0


@pytest.mark.parametrize(
    ("alone", "unsought", "reason"),
    [
        (10.0, 1e9, ""),  # the server may only be restarted
        (719.0, 1e9, ""),
        (721.0, 1e9, "neither a server nor executors for 720 s"),
        (721.0, 30.0, ""),  # somebody waits for it
        (7199.0, 3.0, ""),
        (7201.0, 3.0, "no server for 7200 s"),
    ],
)
def test_a_relay_waits_longer_if_executors_do(alone: float, unsought: float, reason: str) -> None:
    assert why_give_up(alone, unsought, HOURS) == reason


def test_executors_have_the_time_to_try_again_however_short_the_limit() -> None:
    assert why_give_up(15.0, 15.0, 30.0) == ""
    assert why_give_up(21.0, 21.0, 30.0) == "neither a server nor executors for 20 s"
