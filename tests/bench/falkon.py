"""Falkon's curves and records with emulated executors: long queues, bundles, efficiency, three tiers, descriptions.

Source: I. Raicu's dissertation (docs/spec/falkon.md 4.1, 5.1 to 5.3 and 8). Its figures stand where a peer's do: they
were measured on machines of 2005 to 2008, so the ratios say how far this goes beyond the record, not who is better.
Everything here is a service: commands that begin with `sleep X` take X seconds, and nothing is run.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from timing import BenchRow, Home, Measured, Side, alone, cpu_each, once, per_second, resident, until

import bough
from bough.wire import questions

HEARTBEAT = "120s"  # signs of life of 54,000 executors would be the better part of what is measured
LONG_QUEUE, ALL_EXECUTORS, FOUR_DISPATCHERS = 298, 60, 15_600  # tasks a second that Falkon did
BUNDLES = (1, 10, 100, 300, 1000)
DESCRIPTIONS = {10: 3184, 100: 3011, 1000: 2001, 10_000: 662}  # bytes of a task, and what Falkon did


def measure(folder: str, *, full: bool) -> Iterator[BenchRow]:
    yield from _long_queue(folder, 200_000 if full else 50_000)
    yield from _bundles(folder, rounds=5 if full else 3)
    yield _efficiency(folder, 256, 1.0, waves=8 if full else 4, target=0.95)
    yield _efficiency(folder, 64, 8.0 if full else 2.0, waves=4, target=0.99 if full else 0.97)
    yield from _descriptions(folder, 10_000 if full else 2_000)
    yield _tiers(folder, 2_000_000 if full else 400_000)
    yield from _all_executors(folder, *((54_000, 4, 1.0) if full else (2_000, 2, 0.25)))


class Camp(Home):
    """A server, relays that share out work, and emulated executors."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.relays: list[subprocess.Popen[bytes]] = []

    def serve(self, *words: str) -> None:
        """Start the server; relays reach it by TLS, everybody else by its Unix socket."""
        words = ("server", "start", "--listen", "127.0.0.1:0", "--heartbeat", HEARTBEAT, *words)
        self.server = server = self._start(*words)
        until(lambda: self.note().get("pid") == server.pid)

    def relay(self) -> str:
        """Start a relay that shares out work, in a home of its own; how executors reach it."""
        home = os.path.join(self.folder, f"relay{len(self.relays)}")
        os.makedirs(home)
        words = ["relay", "start", "--server", self.access("execute"), "--dispatch"]
        environment = {**self.environment, "BOUGH_HOME": home}
        with open(os.path.join(self.folder, "log"), "ab") as log:
            command = [sys.executable, "-m", "bough.cli.main", *words]
            self.relays.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
        access = os.path.join(home, "relay", "access.json")
        until(lambda: os.path.exists(access))
        return access

    def emulate(self, count: int, *, server: str = "", patience: float = 60.0) -> None:
        """Start emulated executors; all have joined when this returns."""
        log = Path(self.folder, f"emulated{len(self.executors)}")
        with log.open("wb") as file:
            command = [sys.executable, "-m", "bough.cli.main", "executor", "start", "--emulate", str(count)]
            words = ["--server", server or self.socket]
            process = subprocess.Popen(
                [*command, *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.executors.append(process)
        end = time.monotonic() + patience
        while "have joined" not in log.read_text():
            if process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"the emulated executors did not join: {log.read_text()}")
            time.sleep(0.02)

    def until_all_are_known(self, session: Any, count: int) -> None:
        """Wait until the server knows of all executors behind its relays."""
        until(lambda: sum(int(entry.get("members", 1)) for entry in session.ask(questions.Executors())) >= count)

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *(relay.pid for relay in self.relays)]

    def end(self) -> None:
        super().end()
        for relay in self.relays:
            relay.kill()
            relay.wait()


@contextlib.contextmanager
def camp(folder: str, *words: str) -> Iterator[Camp]:
    made = Camp(folder)
    try:
        made.serve(*words)
        yield made
    finally:
        made.end()


def _sleeps(session: Any, count: int, seconds: float = 0.0) -> None:
    """An array of so many commands, to its end."""
    session.sweep(f"sleep {seconds:g}; : {{n}}", bough.product(n=range(count))).wait_all()


def _row(subject: str, count: int, ours: Measured, name: str, peer: float, target: float | None = None) -> BenchRow:
    rate = count / ours.seconds
    return BenchRow(
        subject,
        per_second(count, ours.seconds),
        name,
        f"{peer:,.0f}/s",
        rate / peer,
        target=target,
        cpu=cpu_each(count, ours),
    )


def _long_queue(folder: str, count: int) -> Iterator[BenchRow]:
    """Loose tasks, as Falkon's were; beside them one array, of which nobody runs a thing: that is another figure."""
    with camp(folder) as there:
        there.emulate(64)
        with bough.Session(there.socket, name="queue") as session:
            _loose(session, 1000, "sleep 0")  # warm
            ours = once(there.side(session, lambda: _loose(session, count, "sleep 0")))
            _sleeps(session, 1000)
            array = once(there.side(session, lambda: _sleeps(session, 10 * count)))
    subject = f"{count:,} loose sleep-0 commands on 64 emulated executors, one server"
    yield _row(subject, count, ours, "Falkon, 2 M tasks", LONG_QUEUE, 10.0)
    subject = f"the same as one array of {10 * count:,}: bookkeeping alone, no executor looks at an element"
    yield _row(subject, 10 * count, array, "Falkon, 2 M loose tasks", LONG_QUEUE)


def _bundles(folder: str, rounds: int) -> Iterator[BenchRow]:
    """Loose commands in messages of so many, one message at a time: submitted and done."""
    counts = {1: 500, 10: 3_000, 100: 10_000, 300: 12_000, 1000: 20_000}
    took: dict[int, list[Measured]] = {bundle: [] for bundle in BUNDLES}
    with camp(folder) as there:
        there.emulate(64)
        for number in range(rounds):
            for bundle in BUNDLES:
                with bough.Session(there.socket, name=f"bundle{bundle}-{number}", bundle=bundle) as session:
                    _loose(session, 500, "sleep 0")
                    work = partial(_loose, session, counts[bundle], "sleep 0")
                    took[bundle].append(once(there.side(session, work)))
    found = {
        bundle: Measured(median(run.seconds for run in runs), median(run.cpu for run in runs))
        for bundle, runs in took.items()
    }
    rates = {bundle: counts[bundle] / found[bundle].seconds for bundle in BUNDLES}
    for bundle in BUNDLES:
        subject = f"loose sleep-0 commands, {bundle} a message"
        yield _row(subject, counts[bundle], found[bundle], "1 a message", rates[1], 1.0 if bundle > 1 else None)
    yield BenchRow(
        "bundles of 1,000 beside bundles of 300: no drop",
        f"{rates[1000]:,.0f}/s",
        "300 a message",
        f"{rates[300]:,.0f}/s",
        rates[1000] / rates[300],
        target=0.9,
    )


def _loose(session: Any, count: int, text: str) -> None:
    free = session.options(memo=False)
    tasks = [free.command(text) for _ in range(count)]
    for task in tasks:
        task.result()


def _efficiency(folder: str, executors: int, seconds: float, *, waves: int, target: float) -> BenchRow:
    with camp(folder) as there:
        there.emulate(executors)
        with bough.Session(there.socket, name="efficiency") as session:
            _sleeps(session, executors)  # warm
            count = executors * waves
            ours = once(there.side(session, lambda: _sleeps(session, count, seconds)))
    return BenchRow(
        f"efficiency with {seconds:g} s on {executors} emulated executors, {waves} tasks each",
        f"{ours.seconds:,.2f} s",
        "ideal",
        f"{waves * seconds:,.2f} s",
        waves * seconds / ours.seconds,
        target=target,
        cpu=cpu_each(count, ours),
    )


def _descriptions(folder: str, count: int) -> Iterator[BenchRow]:
    with camp(folder) as there:
        there.emulate(64)
        with bough.Session(there.socket, name="sizes") as session:
            for size, falkon in DESCRIPTIONS.items():
                work = partial(_loose, session, count, "true " + "x" * (size - 5))
                ours = alone(there.side(session, work), 3)
                yield _row(f"loose commands of {size:,} bytes", count, ours, "Falkon", falkon, 1.0)


def _tiers(folder: str, count: int) -> BenchRow:
    with camp(folder, "--pickup", "100") as there:
        for _ in range(4):
            there.emulate(32, server=there.relay())
        with bough.Session(there.socket, name="tiers") as session:
            there.until_all_are_known(session, 128)
            _sleeps(session, 10_000)  # warm
            ours = once(there.side(session, lambda: _sleeps(session, count)))
    subject = f"{count:,} sleep-0 commands, 4 relays, hand-outs of 100, 128 emulated executors"
    return _row(subject, count, ours, f"target; Falkon {FOUR_DISPATCHERS:,}/s", 100_000, 1.0)


def _all_executors(folder: str, executors: int, relays: int, seconds: float) -> Iterator[BenchRow]:
    """Falkon's record: as many executors as one service can have, each with a few tasks."""
    waves = 4
    with camp(folder) as there:
        begun = time.perf_counter()
        accesses = [there.relay() for _ in range(relays)]
        for access in accesses:
            there.emulate(executors // relays, server=access, patience=300.0)
        assert there.server is not None
        with bough.Session(there.socket, name="record") as session:
            there.until_all_are_known(session, executors)
            joined = time.perf_counter() - begun
            count = executors * waves
            side = Side(
                lambda: _sleeps(session, count, seconds), lambda: there.pids, lambda: session.ask(questions.Project())
            )
            ours = once(side)
            memory = resident(there.server.pid)
    subject = f"{executors:,} emulated executors behind {relays} relays, {count:,} commands of {seconds:g} s"
    yield _row(subject, count, ours, "Falkon, 54,000 executors", ALL_EXECUTORS, 50.0)
    yield BenchRow(
        "  until all have joined", f"{joined:,.1f} s", "Falkon, until all were busy", "408 s", joined / 408, "low"
    )
    yield BenchRow("  the server's memory", f"{memory / 1e6:,.0f} MB", "", "", None)
    each = f"{memory / executors:,.0f} bytes"
    yield BenchRow("  the same for each executor", each, "", "", None)
