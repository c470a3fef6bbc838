"""The measurements of Trellis Driver (Lamb 2005, chapter 5) with real processes, a hundred times as fast.

Two phases of 160 jobs, of 44 ms and of 6 ms in the mean, and 14 ms more for every submission, which is what two calls
of the thesis' server would take. A bundle runs in one slot from its beginning to its end, as a placeholder's did: here
it is a pipeline whose first stage is those 14 ms. Its own arrays Bough shares out by measured run times, so that nobody
has to find the best factor; this is to see why somebody had to.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from timing import BenchRow, Measured, by_turns, session_side, store

import bough
from bough.driver import Driver

JOBS = 160
OVERHEAD = 0.014
FACTORS = (2, 4, 8, 16)
PLACEHOLDERS = (2, 8)


def measure(folder: str, rounds: int) -> Iterator[BenchRow]:
    """How much faster than one by one."""
    dice = random.Random(1)
    blast = [0.02 + 0.06 * dice.random() ** 1.45 for _ in range(JOBS)]
    parse = [dice.uniform(0.005, 0.0071) for _ in range(JOBS)]
    for placeholders in PLACEHOLDERS:
        yield from _with(folder, placeholders, blast, parse, rounds)


def _with(folder: str, placeholders: int, blast: list[float], parse: list[float], rounds: int) -> Iterator[BenchRow]:
    with bough.Session(store=store(folder), cores=placeholders) as session:
        _run(session, [[0.001]] * placeholders)
        ways = [[_cut(blast, factor), _cut(parse, factor)] for factor in (1, *FACTORS)]
        ways.append([[list(chain) for chain in zip(blast, parse, strict=True)]])
        sides = [session_side(session, lambda way=way: [_run(session, phase) for phase in way]) for way in ways]
        none, *found = by_turns(sides, rounds)
    names = [*(f"factor {factor}" for factor in FACTORS), "chains of two"]
    for name, one in zip(names, found, strict=True):
        yield _row(f"chapter 5 at 1/100, {placeholders} placeholders, {name}", one, none)


def _row(subject: str, ours: Measured, none: Measured) -> BenchRow:
    return BenchRow(
        subject, f"{ours.seconds:.2f} s", "one by one", f"{none.seconds:.2f} s", none.seconds / ours.seconds
    )


def _cut(times: list[float], factor: int) -> list[list[float]]:
    return [times[at : at + factor] for at in range(0, len(times), factor)]


def _run(session: bough.Session, bundles: list[list[float]]) -> None:
    """A phase, with its barrier."""
    with Driver(session) as made:
        made.set_group("bundles", 1)
        for number, bundle in enumerate(bundles):
            made.create_pipeline(str(number), len(bundle) + 1, group="bundles")
            for seconds in (OVERHEAD, *bundle):
                made.exec_async(["sleep", f"{seconds:.4f}"], group=str(number))
        assert not any(made.wait_all())
