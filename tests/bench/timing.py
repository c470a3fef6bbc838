"""Where the subjects of this folder find what they measure with: all of it lives in `bough.bench`.

A subject is a module with `measure(folder, *, full)` that yields `BenchRow`s; `run.py` says which there are.
"""

from __future__ import annotations

from bough.bench.bench_setup import (
    ROUNDS,
    WORKERS,
    BenchSetting,
    Home,
    Pair,
    home,
    pair,
    session_side,
    store,
    until,
    warm,
)
from bough.bench.timing import (
    BenchRow,
    Measured,
    Side,
    Took,
    alone,
    by_turns,
    bytes_row,
    compare,
    cpu_each,
    cpu_time,
    family,
    limit_row,
    milliseconds,
    once,
    per_second,
    rate_row,
    resident,
    time_row,
)

__all__ = [
    "ROUNDS", "WORKERS", "Home", "Measured", "Pair", "BenchRow", "BenchSetting", "Side", "Took", "alone",
    "by_turns", "bytes_row", "compare", "cpu_each", "cpu_time", "family", "home", "limit_row", "milliseconds",
    "once", "pair", "per_second", "rate_row", "resident", "session_side", "store", "time_row", "until", "warm",
]  # fmt: skip
