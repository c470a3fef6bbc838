"""Parts by themselves: the core without I/O, the store, and the memory a server needs per task."""

from __future__ import annotations

import gc
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from statistics import median

import calls
from setting import store
from timing import Row, per_second, resident

import bough
from bough.core.machine import Machine
from bough.journal.codec import encode
from bough.model.facts import ExecutorJoined, Placed, SpanEnded, Submitted
from bough.model.orders import SendSpan
from bough.model.resources import Needs
from bough.model.tasks import ArraySpec, Dep, Kind, On, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.stores.sqlite import SqliteStore

_JOINED = ExecutorJoined(1, "local", "here", 1, Needs(cores=2))


def measure(folder: str, *, full: bool) -> Iterator[Row]:
    yield from _core(10**6 if full else 10**5)
    yield _store(folder, 20_000 if full else 5_000)
    yield from _memory(folder, 100_000 if full else 20_000)


# --- the core ---------------------------------------------------------------------------------------------


def _core(most: int) -> Iterator[Row]:
    sizes = [n for n in (10**4, 10**5, 10**6) if n <= most]
    for name, run, limit in (
        ("one array", _spans, None),
        ("chains of 10, placed and ended, 32 a turn", lambda n: _chains(n, 32, submission=False), 32),
        ("chains of 10, submitted too, 32 ends a turn", lambda n: _chains(n, 32), 32),
        ("chains of 10, submitted too, one end a turn", lambda n: _chains(n, 1), 1),
    ):
        rates = {}
        for n in sizes:
            rates[n] = median(_tidy(run, n) for _ in range(3 if n < 10**6 else 1))
            bare = median(_tidy(_facts_alone, n, limit) for _ in range(3)) if limit else None
            yield Row(
                f"core alone, {name}, {n:,} tasks",
                per_second(1, 1 / rates[n]),
                "encoding the same facts" if bare else "",
                per_second(1, 1 / bare) if bare else "",
                rates[n] / bare if bare else None,
            )
        yield Row(
            f"core alone, {name}: flatness, {sizes[-1]:,} to {sizes[0]:,}",
            per_second(1, 1 / rates[sizes[-1]]),
            f"{sizes[0]:,}",
            per_second(1, 1 / rates[sizes[0]]),
            rates[sizes[-1]] / rates[sizes[0]],
            target=0.8,
        )


def _tidy(run, *arguments) -> float:
    """Run as a server does: what was there before is not looked through again by the garbage collector."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 50, 100)
    try:
        return run(*arguments)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _spans(n: int) -> float:
    machine = Machine(Fifo())
    begun = time.perf_counter()
    turn = machine.turn(0.0, [_JOINED, Submitted([ArraySpec(1, Kind.FUNCTION, b"f", n, b"t")])])
    now = 0.0
    while sends := [order for order in turn.orders if isinstance(order, SendSpan)]:
        encode(turn.facts)
        now += 0.001
        ends = [SpanEnded(o.span, o.start, o.stop, 1e-6 * (o.stop - o.start), b"x" * 10) for o in sends]
        turn = machine.turn(now, ends)
    assert machine.is_idle
    return n / (time.perf_counter() - begun)


def _tasks(n: int) -> list[TaskSpec]:
    links = [(Dep(On.TASK, i),) if i % 10 else () for i in range(n)]
    return [TaskSpec(i + 1, Kind.FUNCTION, b"f", b"p", template="f", after=links[i]) for i in range(n)]


def _chains(n: int, per_turn: int, *, submission: bool = True) -> float:
    machine, items = Machine(Fifo()), _tasks(n)
    begun = time.perf_counter()
    machine.turn(0.0, [_JOINED])
    queue: deque[SendSpan] = deque()
    for at in range(0, n, 1000):
        turn = machine.turn(0.0, [Submitted(items[at : at + 1000])])
        encode(turn.facts)
        queue += [order for order in turn.orders if type(order) is SendSpan]
    if not submission:
        begun = time.perf_counter()
    now = 0.0
    while queue:
        now += 0.001
        ends = [
            SpanEnded(order.span, 0, 1, 1e-5, b"x" * 10)
            for order in [queue.popleft() for _ in range(min(per_turn, len(queue)))]
        ]
        turn = machine.turn(now, ends)
        encode(turn.facts)
        queue += [order for order in turn.orders if type(order) is SendSpan]
    assert machine.is_idle
    return n / (time.perf_counter() - begun)


def _facts_alone(n: int, per_turn: int) -> float:
    """The limit: no scheduler, only the facts that any would have to write, made and encoded."""
    items = _tasks(n)
    begun = time.perf_counter()
    for at in range(0, n, 1000):
        encode([Submitted(items[at : at + 1000])])
    for at in range(0, n, per_turn):
        ends = [SpanEnded(i, 0, 1, 1e-5, b"x" * 10) for i in range(at, min(at + per_turn, n))]
        encode([*ends, *[Placed(i, i, 0, 1, 1, 1) for i in range(at, min(at + per_turn, n))]])
    return n / (time.perf_counter() - begun)


# --- the store --------------------------------------------------------------------------------------------


def _store(folder: str, count: int) -> Row:
    """Turns of one finished task each: the smallest, so the most expensive ones per task."""
    facts = [SpanEnded(1, 0, 1, 1e-5, b"x" * 10), Placed(2, 2, 0, 1, 1, 1)]
    ours, peer = [], []
    for _ in range(3):
        journal = SqliteStore(store(folder))
        begun = time.perf_counter()
        for turn in range(1, count + 1):
            journal.append(turn, 0.0, facts)
        ours.append(count / (time.perf_counter() - begun))
        journal._database.close()  # without folding it: these turns make no sense
        peer.append(_bare_sqlite(f"{store(folder)}.db", count, bytes(encode(facts))))
    return Row(
        "store: turns appended and committed",
        per_second(1, 1 / median(ours)),
        "bare sqlite3 INSERT",
        per_second(1, 1 / median(peer)),
        median(ours) / median(peer),
    )


def _bare_sqlite(path: str, count: int, data: bytes) -> float:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE TABLE journal (turn INTEGER PRIMARY KEY, time REAL, facts BLOB)")
    begun = time.perf_counter()
    for turn in range(1, count + 1):
        database.execute("INSERT INTO journal VALUES (?, ?, ?)", (turn, 0.0, data))
    rate = count / (time.perf_counter() - begun)
    database.close()
    return rate


# --- memory -----------------------------------------------------------------------------------------------


def _memory(folder: str, count: int) -> Iterator[Row]:
    """Bytes a server grows by: tasks that wait, tasks that have ended, elements of an array."""
    with bough.Session(name="bench", store=store(folder), cores=2) as session:
        list(session.map(calls.same, range(1000)))
        gate = session.submit(time.sleep, 600)
        waiting = session.options(after=[gate])
        before = _memory_of(session)
        tasks = [waiting.submit(calls.same, i) for i in range(count)]
        yield _bytes(f"server memory per waiting task, {count:,} loose", _memory_of(session) - before, count)
        gate.cancel()
        tasks[-1].exception()
    with bough.Session(name="bench", store=store(folder), cores=2) as session:
        list(session.map(calls.same, range(1000)))
        before = _memory_of(session)
        size = 50 * count
        array = session.map(calls.same, range(size))
        array.wait_all()
        yield _bytes(
            f"server memory per finished element, array of {50 * count:,}", _memory_of(session) - before, 50 * count
        )


def _memory_of(session) -> int:
    session.ask("status")  # everything sent before is in a turn when this is answered
    return resident(session.pid)


def _bytes(subject: str, grown: int, count: int) -> Row:
    return Row(subject, f"{grown / count:,.1f} bytes", "", "", None)
