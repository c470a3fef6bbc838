"""When an executor leaves because it has nothing to do: counted from when it could have been given something."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

from bough.executor.executor_options import ExecutorLifetime
from bough.executor.loop import Departure
from bough.executor.slots import Slots

IDLE = cast("Slots", SimpleNamespace(idle=True))


def test_the_time_before_the_server_answers_is_no_idle_time() -> None:
    departure = Departure(ExecutorLifetime(idle=5.0))
    begun = time.monotonic()
    assert departure.due(IDLE, begun + 6.0) == "it had nothing to do for 5 s"
    departure._idle_since -= 100.0  # it took so long until a server was there
    departure.welcomed()
    assert departure.due(IDLE, time.monotonic() + 4.0) == ""
    assert departure.due(IDLE, time.monotonic() + 6.0) != ""
