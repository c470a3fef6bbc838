"""Parts by themselves: the core without I/O, and the store, beside what no scheduler could do without.

Rule: the clock of the core is a number here, and its facts are encoded as for the journal; the peer only makes and
encodes the same facts.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from bough.bench.bench_setup import ROUNDS, BenchSetting, store
from bough.bench.machine_limits import sqlite_rate
from bough.bench.timing import BenchRow
from bough.core.machine import Machine
from bough.journal.codec import encode
from bough.model.events.facts import ExecutorJoined, Fact, Placed, SpanEnded, Submitted
from bough.model.events.news import WorkSucceeded
from bough.model.events.orders import SendSpan
from bough.model.ids import ROOT, BlobId, ExecutorId, GroupId, RecordId, SpanId
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, Kind, On, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.stores.sql.sqlite import SqliteStore

_EXECUTOR, _BLOB = ExecutorId(1), BlobId(b"f")
_JOINED = ExecutorJoined(_EXECUTOR, "local", "here", 1, Needs(cores=2))
_FLAT = 0.8  # of the rate with few tasks, with many

Run = Callable[[int], float]  # a number of tasks -> tasks a second


def measure_core(setting: BenchSetting) -> Iterator[BenchRow]:
    """Spans, and single tasks in chains of 10, from 10^4 to 10^6 of them."""
    sizes = [10**4, 10**5, 10**6][: setting.size(2, 3)]
    yield from _flat("spans of one array", _spans, None, 5e6, sizes)
    yield from _flat("chains of 10, submitted, placed and ended, 32 a turn", partial(_chains, 32), 32, 1.5e5, sizes)
    yield from _flat("in groups of 5 that run one at a time", _throttled, None, None, sizes[:2])
    if setting.full:
        yield from _flat("chains of 10, placed and ended, 32 a turn", partial(_chains, 32, late=True), 32, 1.5e5, sizes)
        yield from _flat("chains of 10, submitted, placed and ended, one a turn", partial(_chains, 1), 1, None, sizes)


def _flat(name: str, run: Run, per_turn: int | None, target: float | None, sizes: list[int]) -> Iterator[BenchRow]:
    """The rate at every size beside its target and the bare facts, and the biggest size's beside the smallest's."""
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    bare: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(ROUNDS):
        for size in sizes:
            rates[size].append(_tidy(run, size))
            if per_turn:
                bare[size].append(_tidy(partial(_facts_alone, per_turn), size))
    found = {size: median(several) for size, several in rates.items()}
    for size, rate in found.items():
        subject = f"core alone, {name}, {size:,} tasks"
        if target:
            yield BenchRow(subject, f"{rate:,.0f}/s", "target", f"{target:,.0f}/s", rate / target, target=1.0)
        if per_turn:
            least = median(bare[size])
            yield BenchRow(subject, f"{rate:,.0f}/s", "encoding the same facts", f"{least:,.0f}/s", rate / least)
    few, many = sizes[0], sizes[-1]
    subject = f"core alone, {name}: {many:,} beside {few:,}"
    yield BenchRow(
        subject, f"{found[many]:,.0f}/s", f"{few:,}", f"{found[few]:,.0f}/s", found[many] / found[few], target=_FLAT
    )


def _tidy(run: Run, size: int) -> float:
    """Run as a server does: what was there before is not looked through again by the garbage collector."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 50, 100)
    try:
        return run(size)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _spans(n: int) -> float:
    machine = Machine(Policies(Fifo()))
    begun = time.perf_counter()
    turn = machine.turn(0.0, [_JOINED, Submitted([ArraySpec(RecordId(1), Kind.FUNCTION, _BLOB, n, BlobId(b"t"))])])
    now = 0.0
    while sends := [order for order in turn.orders if isinstance(order, SendSpan)]:
        encode(turn.facts)
        now += 0.001
        ends = [WorkSucceeded(o.span, o.start, o.stop, 1e-6 * (o.stop - o.start), b"x" * 10) for o in sends]
        turn = machine.turn(now, ends)
    assert machine.is_idle
    return n / (time.perf_counter() - begun)


def _throttled(n: int) -> float:
    machine = Machine(Policies(Fifo()))
    groups: list[Item] = [GroupSpec(GroupId(i + 1), f"g{i}", ROOT, limit=1) for i in range(n // 5)]
    tasks: list[Item] = [
        TaskSpec(RecordId(i + 1), Kind.FUNCTION, _BLOB, b"p", GroupId(i % (n // 5) + 1), template="f") for i in range(n)
    ]
    begun = time.perf_counter()
    machine.turn(0.0, [_JOINED])
    turn, now = machine.turn(0.0, [Submitted(groups + tasks)]), 0.0
    while sends := [order for order in turn.orders if isinstance(order, SendSpan)]:
        encode(turn.facts)
        now += 1.0
        turn = machine.turn(now, [WorkSucceeded(order.span, 0, 1, 1.0, b"x" * 10) for order in sends])
    assert machine.is_idle
    return n / (time.perf_counter() - begun)


def _tasks(n: int) -> list[Item]:
    links = [(Dep(On.TASK, i),) if i % 10 else () for i in range(n)]
    return [TaskSpec(RecordId(i + 1), Kind.FUNCTION, _BLOB, b"p", template="f", after=links[i]) for i in range(n)]


def _chains(per_turn: int, n: int, *, late: bool = False) -> float:
    """With `late` the clock starts when all of them are there."""
    machine, items = Machine(Policies(Fifo())), _tasks(n)
    begun = time.perf_counter()
    machine.turn(0.0, [_JOINED])
    queue: deque[SendSpan] = deque()
    for at in range(0, n, 1000):
        turn = machine.turn(0.0, [Submitted(items[at : at + 1000])])
        encode(turn.facts)
        queue += [order for order in turn.orders if type(order) is SendSpan]
    if late:
        begun = time.perf_counter()
    now = 0.0
    while queue:
        now += 0.001
        ends = [
            WorkSucceeded(order.span, 0, 1, 1e-5, b"x" * 10)
            for order in [queue.popleft() for _ in range(min(per_turn, len(queue)))]
        ]
        turn = machine.turn(now, ends)
        encode(turn.facts)
        queue += [order for order in turn.orders if type(order) is SendSpan]
    assert machine.is_idle
    return n / (time.perf_counter() - begun)


def _facts_alone(per_turn: int, n: int) -> float:
    """The limit: no scheduler, only the facts that any would have to write, made and encoded."""
    items, records, spans = _tasks(n), list(map(RecordId, range(n))), list(map(SpanId, range(n)))
    begun = time.perf_counter()
    for at in range(0, n, 1000):
        encode([Submitted(items[at : at + 1000])])
    for at in range(0, n, per_turn):
        stop = min(at + per_turn, n)
        facts: list[Fact] = [SpanEnded(span, 0, 1, 1e-5, b"x" * 10) for span in spans[at:stop]]
        facts += [Placed(spans[i], records[i], 0, 1, 1, _EXECUTOR) for i in range(at, stop)]
        encode(facts)
    return n / (time.perf_counter() - begun)


def measure_store(setting: BenchSetting) -> Iterator[BenchRow]:
    """Turns of one finished task each: the smallest, so the most expensive ones per task."""
    count = setting.size(5_000, 20_000)
    facts: list[Fact] = [
        SpanEnded(SpanId(1), 0, 1, 1e-5, b"x" * 10),
        Placed(SpanId(2), RecordId(2), 0, 1, 1, _EXECUTOR),
    ]
    ours, peer = [], []
    for _ in range(ROUNDS):
        journal = SqliteStore(store(setting.folder))
        begun = time.perf_counter()
        for turn in range(1, count + 1):
            journal.append(turn, 0.0, facts)
        ours.append(count / (time.perf_counter() - begun))
        journal._database.close()  # without folding it: these turns make no sense
        peer.append(sqlite_rate(f"{store(setting.folder)}.db", count, 1, bytes(encode(facts))))
    mine, theirs = median(ours), median(peer)
    yield BenchRow("store: turns appended", f"{mine:,.0f}/s", "bare sqlite3 INSERT", f"{theirs:,.0f}/s", mine / theirs)
