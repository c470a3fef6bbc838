"""Batching by the driver: short commands at hand-set factors and at Bough's own, and a mix of short and long ones.

python tests/bench/run.py driver

All factors run by turns in one session of two slots, so that other load falls on all of them. Ideal is what the
sleeping alone takes on two slots.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from timing import Row, Side, by_turns, cpu_each, home, per_second, session_side, store, until

import bough
from bough.driver import Driver

FACTORS = (1, 4, 16, 64)
SLOTS = 2
SHORT, LONG = 0.005, 2.0
ROUND_TRIP = 0.05


def measure(folder: str, *, full: bool) -> Iterator[Row]:
    """The rows."""
    count = 2000 if full else 500
    with bough.Session(store=store(folder), cores=SLOTS) as session:
        yield from _factors(session, count, rounds=3 if full else 2)
        yield _mix(session, count)
    yield from _behind_a_round_trip(folder, count, rounds=3 if full else 2)


def _factors(session: bough.Session, count: int, rounds: int) -> Iterator[Row]:
    choices: list[int | None] = [None, *FACTORS]
    _run(session, None, [f"sleep {SHORT}"] * 50)  # workers are there, and the run time is known

    def side(factor: int | None) -> Side:
        return session_side(session, lambda: _run(session, factor, [f"sleep {SHORT}"] * count))

    measured = by_turns([side(factor) for factor in choices], rounds)
    own, *others = measured
    ideal = count * SHORT / SLOTS
    best = min(one.seconds for one in others)
    for factor, one in zip(FACTORS, others, strict=True):
        yield Row(
            f"driver, {count:,} commands of {SHORT * 1e3:g} ms, factor {factor}",
            per_second(count, one.seconds),
            "ideal",
            per_second(count, ideal),
            ideal / one.seconds,
            cpu=cpu_each(count, one),
        )
    yield Row(
        "driver, the same, automatic factor",
        per_second(count, own.seconds),
        "ideal",
        per_second(count, ideal),
        ideal / own.seconds,
        target=0.85,
        cpu=cpu_each(count, own),
    )
    yield Row(
        "driver, the same, automatic factor",
        per_second(count, own.seconds),
        "best factor by hand",
        per_second(count, best),
        best / own.seconds,
        target=0.95,
        cpu=cpu_each(count, own, min(others, key=lambda one: one.seconds)),
    )


def _mix(session: bough.Session, count: int) -> Row:
    """Short and long commands of one group, issued in turns: no long one may wait behind a bundle of others."""
    long = 4
    commands = [f"sleep {SHORT}"] * (count // 2)
    for number in range(long):
        commands.insert(number * len(commands) // long, f"sleep {LONG}")
    ideal = (long * LONG + (len(commands) - long) * SHORT) / SLOTS
    took = by_turns([session_side(session, lambda: _run(session, None, commands))], 1)[0]
    return Row(
        f"driver, {len(commands) - long} commands of {SHORT * 1e3:g} ms with {long} of {LONG:g} s among them",
        f"{took.seconds:.2f} s",
        "ideal",
        f"{ideal:.2f} s",
        took.seconds / ideal,
        better="low",
        target=1.35,
    )


def _behind_a_round_trip(folder: str, count: int, rounds: int) -> Iterator[Row]:
    """The same with an executor that every message takes a while to reach, beside one next to the server."""
    commands = [f"sleep {SHORT}"] * count
    with home(folder) as far, home(folder) as near, contextlib.ExitStack() as stack:
        sessions = []
        for place in (far, near):
            place.serve()
            address = place.socket
            if place is far:
                address = f"unix:{os.path.join(place.folder, 'line')}"
                stack.enter_context(_line(place.socket, address))
            place.executors.append(place._start("executor", "start", "--server", address, "--cores", str(SLOTS)))
            session = stack.enter_context(bough.Session(place.socket, name="driver"))
            sessions.append(session)
            _run(session, None, commands[:50])
        sides = [far.side(sessions[0], lambda: _run(sessions[0], None, commands))]
        sides += [far.side(sessions[0], lambda: _run(sessions[0], 1, commands))]
        sides += [near.side(sessions[1], lambda: _run(sessions[1], None, commands))]
        own, one, beside = by_turns(sides, rounds)
    subject = f"driver, {count:,} commands of {SHORT * 1e3:g} ms behind {ROUND_TRIP * 1e3:g} ms"
    for name, measured, target in (("automatic factor", own, 0.8), ("factor 1", one, None)):
        yield Row(
            f"{subject}, {name}",
            per_second(count, measured.seconds),
            "without the delay",
            per_second(count, beside.seconds),
            beside.seconds / measured.seconds,
            target=target,
        )


@contextlib.contextmanager
def _line(target: str, listen: str) -> Iterator[None]:
    """A delay line between two Unix sockets."""
    script = os.path.join(os.path.dirname(__file__), "delay_line.py")
    paths = [address.removeprefix("unix:") for address in (listen, target)]
    line = subprocess.Popen([sys.executable, script, *paths, str(ROUND_TRIP / 2 * 1e3)])
    try:
        until(lambda: os.path.exists(paths[0]))
        yield
    finally:
        line.kill()
        line.wait()


def _run(session: bough.Session, factor: int | None, commands: list[str]) -> None:
    label = "short" if len(set(commands)) == 1 else "mixed"
    with Driver(session) as made:
        made.set_group(label, factor)
        for command in commands:
            made.exec_async(command, group=label)
        codes = made.wait_all()
    assert not any(codes)
