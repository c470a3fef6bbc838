"""Batching by the driver: short commands at hand-set factors and at Bough's own, and a mix of short and long ones.

python tests/bench/run.py driver

All factors run by turns in one session of two slots, so that other load falls on all of them, and beside them two bare
loops that start the same program one after the other. Those are the ideal: what the sleeping alone would take on two
slots is shown, too, but nobody gets there who has to start a program for it. The full form adds `chapter5.py`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor

import chapter5
import lines
from timing import BenchRow, Measured, Side, Took, by_turns, cpu_each, home, per_second, session_side, store

import bough
from bough.driver import Driver

FACTORS = (1, 4, 16, 64)
SLOTS = 2
SHORT, LONG = 0.005, 2.0
ROUND_TRIP = 0.05


def measure(folder: str, *, full: bool) -> Iterator[BenchRow]:
    """The rows."""
    count, rounds = (2000, 5) if full else (500, 3)
    with bough.Session(store=store(folder), cores=SLOTS) as session:
        each = yield from _factors(session, count, rounds)
        yield _mix(session, count, each)
    yield from _behind_a_round_trip(folder, count, rounds)
    if full:
        yield from chapter5.measure(folder, rounds=1)


def _factors(session: bough.Session, count: int, rounds: int) -> Generator[BenchRow, None, float]:
    """The rows; and how long one of these commands takes in a bare loop."""
    choices: list[int | None] = [None, *FACTORS]
    commands = [f"sleep {SHORT}"] * count
    _run(session, None, commands[:50])  # workers are there, and the run time is known

    def side(factor: int | None) -> Side:
        return session_side(session, lambda: _run(session, factor, commands))

    with ProcessPoolExecutor(SLOTS) as pool:
        list(pool.map(_bare_loop, [5] * SLOTS * 2))
        loops = Side(lambda: _bare(pool, count), lambda: pool._processes)
        own, *others, bare = by_turns([*map(side, choices), loops], rounds)
    subject = f"driver, {count:,} commands of {SHORT * 1e3:g} ms"
    for factor, one in zip(FACTORS, others, strict=True):
        yield _beside(f"{subject}, factor {factor}", count, one, bare)
    yield _beside(f"{subject}, automatic factor", count, own, bare, target=0.85)
    sleeping = count * SHORT / SLOTS
    yield BenchRow(
        "driver, the same, automatic factor",
        per_second(count, own.seconds),
        f"the sleeping alone (bare loops: {sleeping / bare.seconds:.2f})",
        per_second(count, sleeping),
        sleeping / own.seconds,
    )
    best = min(others)
    yield BenchRow(
        "driver, the same, automatic factor",
        per_second(count, own.seconds),
        "best factor by hand",
        per_second(count, best.seconds),
        best.seconds / own.seconds,
        target=0.95,
        cpu=cpu_each(count, own, best),
    )
    return bare.seconds / count * SLOTS


def _beside(subject: str, count: int, ours: Measured, bare: Measured, target: float | None = None) -> BenchRow:
    return BenchRow(
        subject,
        per_second(count, ours.seconds),
        "two bare loops of it",
        per_second(count, bare.seconds),
        bare.seconds / ours.seconds,
        target=target,
        cpu=cpu_each(count, ours, bare),
    )


def _bare(pool: ProcessPoolExecutor, count: int) -> Took:
    """Both workers of the pool do nothing else; the slower one's own time counts."""
    return Took(max(pool.map(_bare_loop, [count // SLOTS] * SLOTS)))


def _bare_loop(count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawnp("sleep", ["sleep", str(SHORT)], os.environ), 0)
    return time.perf_counter() - begun


def _mix(session: bough.Session, count: int, each: float) -> BenchRow:
    """Short and long commands of one group, issued in turns: no long one may wait behind a bundle of others."""
    long = 4
    commands = [f"sleep {SHORT}"] * (count // 2)
    for number in range(long):
        commands.insert(number * len(commands) // long, f"sleep {LONG}")
    ideal = (long * LONG + (len(commands) - long) * each) / SLOTS
    took = by_turns([session_side(session, lambda: _run(session, None, commands))], 1)[0]
    return BenchRow(
        f"driver, {len(commands) - long:,} commands of {SHORT * 1e3:g} ms with {long} of {LONG:g} s among them",
        f"{took.seconds:.2f} s",
        "shared out evenly, at the bare loops' pace",
        f"{ideal:.2f} s",
        took.seconds / ideal,
        better="low",
        target=1.2,
    )


def _behind_a_round_trip(folder: str, count: int, rounds: int) -> Iterator[BenchRow]:
    """The same with an executor that every message takes a while to reach, beside one next to the server."""
    commands = [f"sleep {SHORT}"] * count
    with lines.far_home(folder, SLOTS, ROUND_TRIP) as far, home(folder) as near, contextlib.ExitStack() as stack:
        near.serve()
        near.execute(SLOTS)
        sessions = [stack.enter_context(bough.Session(place.socket, name="driver")) for place in (far, near)]
        for session in sessions:
            _run(session, None, commands[:50])
        sides = [far.side(sessions[0], lambda: _run(sessions[0], None, commands))]
        sides += [far.side(sessions[0], lambda: _run(sessions[0], 1, commands))]
        sides += [near.side(sessions[1], lambda: _run(sessions[1], None, commands))]
        own, one, beside = by_turns(sides, rounds)
    subject = f"driver, {count:,} commands of {SHORT * 1e3:g} ms behind {ROUND_TRIP * 1e3:g} ms ({far.line})"
    for name, measured, target in (("automatic factor", own, 0.8), ("factor 1", one, None)):
        yield BenchRow(
            f"{subject}, {name}",
            per_second(count, measured.seconds),
            "without the delay",
            per_second(count, beside.seconds),
            beside.seconds / measured.seconds,
            target=target,
        )


def _run(session: bough.Session, factor: int | None, commands: list[str]) -> None:
    label = "short" if len(set(commands)) == 1 else "mixed"
    with Driver(session) as made:
        made.set_group(label, factor)
        for command in commands:
            made.exec_async(command, group=label)
        codes = made.wait_all()
    assert not any(codes)
