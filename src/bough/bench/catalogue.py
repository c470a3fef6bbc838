"""The measurements by name, and running some of them one after the other.

Rule: a measurement that shares no session has the machine for itself.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from bough.bench.bench_setup import BenchSetting
from bough.bench.timing import BenchRow
from bough.errors import UserError

Run = Callable[[BenchSetting], Iterator[BenchRow]]
Tell = Callable[[int, str, BenchRow | None], None]  # the measurement's number and name, and the row it has given


class Measure(NamedTuple):
    """One measurement, which may give several rows."""

    summary: str
    run: Run
    shares: bool = False  # the session and the pool that others use too
    usual: bool = True  # part of the quick form; the others run in the full one, or when they are asked for


def _late(where: str) -> Run:
    """A measurement that is imported when it runs."""
    module, _, name = where.partition(":")

    def run(setting: BenchSetting) -> Iterator[BenchRow]:
        found: Run = getattr(importlib.import_module(f"bough.bench.{module}"), name)
        return found(setting)

    return run


CATALOGUE: Mapping[str, Measure] = {
    "map": Measure("one array of 100,000 functions", _late("measure_tasks:measure_map"), shares=True),
    "submit": Measure("functions submitted one by one", _late("measure_tasks:measure_submit"), shares=True),
    "round-trip": Measure("one function there and back", _late("measure_tasks:measure_round_trip"), shares=True),
    "chain": Measure(
        "2,000 functions, each with the value of the one before", _late("measure_tasks:measure_chain"), shares=True
    ),
    "fan": Measure("1 to 5,000 to 1", _late("measure_tasks:measure_fan"), shares=True),
    "commands": Measure("/bin/true as an array and one by one", _late("measure_tasks:measure_commands"), shares=True),
    "sleeps": Measure(
        "efficiency with tasks of 10 ms, 100 ms and 1 s", _late("measure_tasks:measure_sleeps"), shares=True
    ),
    "growth": Measure("the same at n, 2n and 4n", _late("measure_tasks:measure_growth"), shares=True),
    "hops": Measure("a chain that alternates between two executors", _late("measure_tasks:measure_hops"), shares=True),
    "tls": Measure("a service by TLS beside a Unix socket", _late("measure_services:measure_tls")),
    "queue": Measure("a long queue: time, memory, and how it drains", _late("measure_queues:measure_queue")),
    "cold-start": Measure("from nothing to a result", _late("measure_services:measure_cold")),
    "first-batch": Measure(
        "the first functions of a script with slow imports", _late("measure_services:measure_first_batch")
    ),
    "again": Measure("a finished workflow of 5,000 run again", _late("measure_services:measure_again")),
    "plans": Measure("workflow files of n and 2n tasks, read and submitted", _late("measure_services:measure_plans")),
    "core": Measure("the scheduler without I/O", _late("measure_inside:measure_core")),
    "store": Measure("the journal by itself", _late("measure_inside:measure_store")),
    "restart": Measure("until a killed server serves again", _late("measure_services:measure_restart"), usual=False),
    "limits": Measure("what the machine can do without a scheduler", _late("machine_limits:measure_limits")),
}


def choose(
    names: Iterable[str], *, full: bool = False, catalogue: Mapping[str, Measure] = CATALOGUE
) -> dict[str, Measure]:
    """Those named, in the catalogue's order; without names the usual ones, and all of them for the full form."""
    wanted = set(names)
    unknown = sorted(wanted - set(catalogue))
    if unknown:
        raise UserError(f"there is no measurement {unknown[0]!r}; there are {', '.join(catalogue)}")
    return {
        name: measure for name, measure in catalogue.items() if (name in wanted if wanted else full or measure.usual)
    }


class BenchOutcome(NamedTuple):
    """What came of a run."""

    rows: list[BenchRow]
    failures: dict[str, str]  # why a measurement could not be finished


def run(
    measures: Mapping[str, Measure], *, full: bool = False, folder: str | None = None, tell: Tell | None = None
) -> BenchOutcome:
    """Run them in a folder of its own; `tell` hears of every measurement and row. One that fails stops no other."""
    outcome = BenchOutcome([], {})
    with (
        _own_surroundings(),
        tempfile.TemporaryDirectory(prefix="bough-bench-", dir=folder, ignore_cleanup_errors=True) as place,
        BenchSetting(place, full=full) as setting,
    ):
        for number, (name, measure) in enumerate(measures.items(), 1):
            try:
                if not measure.shares:
                    setting.clear()
                if tell:
                    tell(number, name, None)
                for row in measure.run(setting):
                    outcome.rows.append(row)
                    if tell:
                        tell(number, name, row)
            except Exception as error:  # noqa: BLE001 - half an hour of figures is not lost to one of them
                outcome.failures[name] = f"{type(error).__name__}: {error}".replace("\n", " ")
                with suppress(Exception):
                    setting.clear()  # what it used may be broken
    return outcome


@contextmanager
def _own_surroundings() -> Iterator[None]:
    """A user's server must not be measured in place of ours, and without byte code every start would compile."""
    hidden = {name: os.environ.pop(name, None) for name in ("BOUGH_SERVER", "BOUGH_HOME", "PYTHONDONTWRITEBYTECODE")}
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        os.environ.update({name: value for name, value in hidden.items() if value is not None})
