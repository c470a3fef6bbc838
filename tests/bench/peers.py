"""Bough beside systems that have environments of their own: Ray, executorlib, HyperQueue, joblib, Dask.

$PEERS_DIR (default: peers in the temporary folder) holds a virtual environment for each; what is not there is left out.
Slow peers get fewer tasks: rates are compared. Both sit idle while the other runs, by turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bough.bench.bench_setup import ROUNDS, Pair, pair
from bough.bench.measure_tasks import array_of, chain, fan, hop, map_all, submit_all, trips, two_executors
from bough.bench.timing import BenchRow, Side, Took, by_turns, compare, family, rate_row, time_row

ENVIRONMENTS = {"ray": "ray", "executorlib": "executorlib", "hyperqueue": "hq", "joblib": "loky", "dask": "dask"}
TITLES = {"ray": "Ray", "executorlib": "executorlib", "hyperqueue": "HyperQueue", "joblib": "joblib", "dask": "Dask"}


class Work(NamedTuple):
    """The same work for us and for a peer."""

    subject: str  # with a place for our number
    do: str  # the peer's word for it
    count: tuple[int, int]  # ours, in the quick and in the full form
    run: Callable[[Any, int], object]
    targets: dict[str, float | None]  # by peer; those that are not here are not asked
    counts: dict[str, tuple[int, int]]  # theirs, likewise


WORKS = (
    Work(
        "map of {:,} no-ops",
        "map",
        (100_000, 100_000),
        lambda session, count: map_all(session, range(count)),
        {"ray": 500, "joblib": 2, "executorlib": None, "dask": None},
        {"ray": (3_000, 20_000), "joblib": (100_000, 100_000), "executorlib": (3_000, 20_000), "dask": (1_000, 10_000)},
    ),
    Work(
        "submit of {:,} no-ops one by one",
        "submit",
        (20_000, 20_000),
        submit_all,
        {"ray": 25},
        {"ray": (3_000, 20_000)},
    ),
    Work(
        "{:,} commands /bin/true, one array",
        "commands",
        (1_000, 10_000),
        array_of,
        {"ray": 2, "hyperqueue": 4},
        {"ray": (1_000, 10_000), "hyperqueue": (1_000, 10_000)},
    ),
    Work(
        "chain of {:,} dependent functions",
        "chain",
        (2_000, 2_000),
        chain,
        {"ray": 30, "executorlib": None, "dask": None},
        {"ray": (500, 2_000), "executorlib": (50, 200), "dask": (200, 2_000)},
    ),
    Work(
        "fan 1 to {:,} to 1",
        "fan",
        (5_000, 5_000),
        fan,
        {"ray": 20, "executorlib": 10, "dask": None},
        {"ray": (1_000, 5_000), "executorlib": (1_000, 5_000), "dask": (500, 5_000)},
    ),
)


def measure(folder: str, *, full: bool) -> Iterator[BenchRow]:
    for name in ENVIRONMENTS:
        python = find(name)
        if python is None:
            continue
        with pair(folder) as both, peer(name, python) as other:
            for work in WORKS:
                if name in work.targets:
                    yield _rate(both, other, name, work, full=full)
            if name == "ray":
                yield _trips(both, other)
        if name == "ray":
            with peer(name, python) as other:
                yield _hops(folder, other, full=full)


def find(name: str) -> str | None:
    """The Python that has this peer, if there is one."""
    where = Path(os.environ.get("PEERS_DIR") or Path(tempfile.gettempdir(), "peers"))
    python = where / ENVIRONMENTS[name] / "bin" / "python"
    return str(python) if python.exists() else None


class Other:
    """A peer in its own process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, do: str, count: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "count": count}) + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended: {self.process.args}; run it by hand to see why")
        return json.loads(line)

    def side(self, do: str, count: int) -> Side:
        return Side(lambda: Took(self.ask(do, count)["seconds"]), lambda: family(self.process.pid))


@contextmanager
def peer(name: str, python: str) -> Iterator[Other]:
    script = str(Path(__file__).with_name("peer_runner.py"))
    process = subprocess.Popen(
        [python, script, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PATH": f"{Path(python).parent}:{os.environ['PATH']}"},
    )
    other = Other(process)
    try:
        other.hear()  # it is ready
        yield other
    finally:
        others = family(process.pid)[1:]
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            for pid in (process.pid, *others):
                os.kill(pid, 9)
            process.wait()


def _rate(both: Pair, other: Other, name: str, work: Work, *, full: bool) -> BenchRow:
    count, theirs = work.count[full], work.counts[name][full]
    ours, found = compare(both.ours(partial(work.run, both.session, count)), other.side(work.do, theirs), ROUNDS)
    title = TITLES[name] if theirs == count else f"{TITLES[name]}, {theirs:,} of them"
    subject = work.subject.format(count)
    return rate_row(subject, count, ours, title, found, target=work.targets[name], peer_count=theirs)


def _trips(both: Pair, other: Other, bunch: int = 50) -> BenchRow:
    times: tuple[list[float], list[float]] = ([], [])
    by_turns(
        [
            both.ours(lambda: trips(both.session, times[0], bunch)),
            Side(lambda: times[1].extend(other.ask("trips", bunch)["times"])),
        ],
        2 * ROUNDS,
    )
    return time_row("round trip, median", median(times[0]), "Ray", median(times[1]), target=0.25)


def _hops(folder: str, other: Other, *, full: bool) -> BenchRow:
    length, theirs = 2_000, 2_000 if full else 500
    with two_executors(folder) as (there, session):
        ours, found = compare(there.side(session, lambda: hop(session, length)), other.side("chain", theirs), ROUNDS)
    subject = f"chain of {length:,} that hops between two executors"
    return rate_row(subject, length, ours, "Ray, a chain that need not hop", found, target=10, peer_count=theirs)
