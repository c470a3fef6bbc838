"""What tasks cost: functions, sleeps, commands, chains and fans, hops between executors, and how it all grows.

Functions stand beside `ProcessPoolExecutor` and, where it is installed, joblib. Sleeps and commands stand beside bare
loops in two processes. A pool knows no dependencies: beside chains and fans its script waits for each task itself.
In the chain that hops, links alternate between two executors, so that none can travel with the one before it.
Rule: ours and the peer's runs alternate, on warm workers; see `timing`.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import bough
from bough.bench import timed_functions
from bough.bench.bench_setup import ROUNDS, WORKERS, BenchSetting, Home, Pair, home, warm
from bough.bench.machine_limits import ping_pong
from bough.bench.timing import (
    BenchRow,
    Measured,
    Side,
    Took,
    by_turns,
    compare,
    cpu_each,
    milliseconds,
    rate_row,
    time_row,
)

if TYPE_CHECKING:
    from bough.api.session.session import Session

SLEEP_TARGETS = {0.01: 0.985, 0.1: 0.995, 1.0: 0.999}  # efficiency, by the seconds that a task sleeps
BUSY_TARGET = 0.9  # while the script computes
LOOPS = {"posix_spawn": timed_functions.spawn_loop, "subprocess.run": timed_functions.run_loop}
WAITING = "pool, the script waits"
_SIDES = ("left", "right")
_GROWTH = 2.2  # time at 4n over time at 2n


# --- functions ----------------------------------------------------------------------------------------


def measure_map(setting: BenchSetting) -> Iterator[BenchRow]:
    """One array of 100,000, over a range and over a list."""
    both = setting.pair()
    # a tenth of a second each: three rounds of that would measure the machine's other load
    rounds = (4 if setting.full else 2) * ROUNDS
    for what, items in (("range", range(100_000)), ("list", list(range(100_000)))):
        sides = [both.ours(partial(map_all, both.session, items)), _pool_map(both, items)]
        names = ["pool, chunksize=100"]
        parallel = _joblib()
        if parallel is not None:
            parallel(items)
            sides.append(Side(partial(parallel, items)))
            names.append("joblib")
        ours, *peers = by_turns(sides, rounds)
        subject = f"map of {len(items):,} no-ops over a {what}"
        for name, peer in zip(names, peers, strict=True):
            yield rate_row(subject, len(items), ours, name, peer, target=2.0)


def _pool_map(both: Pair, items: Sequence[int]) -> Side:
    return both.theirs(lambda: list(both.pool.map(timed_functions.same, items, chunksize=100)))


def _joblib() -> Any:
    """A warm pool of joblib's, if this environment happens to have it: it is not one of our dependencies."""
    try:
        joblib = importlib.import_module("joblib")
    except ImportError:
        return None
    pool, call = joblib.Parallel(n_jobs=WORKERS), joblib.delayed(timed_functions.same)
    return lambda items: pool(call(item) for item in items)


def map_all(session: Executor, items: Sequence[int]) -> None:
    """One array, all its values collected."""
    assert len(list(session.map(timed_functions.same, items))) == len(items)


def submit_all(executor: Executor, count: int) -> None:
    """Loose tasks with a future each, all their values collected."""
    futures = [executor.submit(timed_functions.same, i) for i in range(count)]
    assert [future.result() for future in futures] == list(range(count))


def measure_submit(setting: BenchSetting) -> Iterator[BenchRow]:
    """Loose tasks, one by one."""
    both, count = setting.pair(), setting.size(5_000, 20_000)
    ours, peer = compare(
        both.ours(lambda: submit_all(both.session, count)),
        both.theirs(lambda: submit_all(both.pool, count)),
        ROUNDS,
        setting.row_seconds,
    )
    yield rate_row(f"submit of {count:,} no-ops one by one", count, ours, "pool", peer, target=5.0)


def trips(executor: Executor, times: list[float], count: int) -> None:
    """Submit one and wait for it, so many times."""
    for _ in range(count):
        begun = time.perf_counter()
        executor.submit(timed_functions.nothing).result()
        times.append(time.perf_counter() - begun)


def measure_round_trip(setting: BenchSetting) -> Iterator[BenchRow]:
    """One function there and back, on warm workers."""
    both, bunch = setting.pair(), 50
    times: tuple[list[float], list[float]] = ([], [])
    ours, peer = compare(
        both.ours(lambda: trips(both.session, times[0], bunch)),
        both.theirs(lambda: trips(both.pool, times[1], bunch)),
        setting.size(18, 60),
    )
    mine = median(times[0])
    yield _trip("median", mine, median(times[1]), 1.2, cpu_each(bunch, ours, peer))
    yield _trip("p99", _p99(times[0]), _p99(times[1]), 1.5)
    yield time_row("round trip, median", mine, "two processes' bare ping-pong", 1 / ping_pong(2_000))


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]


def _trip(which: str, mine: float, theirs: float, target: float, cpu: str = "") -> BenchRow:
    return BenchRow(
        f"round trip, {which}",
        milliseconds(mine),
        "pool",
        milliseconds(theirs),
        mine / theirs,
        better="low",
        target=target,
        cpu=cpu,
    )


# --- sleeps -------------------------------------------------------------------------------------------


def measure_sleeps(setting: BenchSetting) -> Iterator[BenchRow]:
    """10 ms, 100 ms and 1 s; 10 ms also while the script computes."""
    both, work = setting.pair(), setting.size(4, 64)
    for seconds, target in SLEEP_TARGETS.items():
        count = round(work / seconds)
        list(both.session.map(time.sleep, [seconds] * WORKERS))  # how long these tasks take is known from here on
        sides = [
            both.ours(partial(_sleep_all, both, count, seconds)),
            _bare_loops(both, timed_functions.sleep_loop, count, seconds),
        ]
        if busy_too(seconds):
            sides.append(both.ours(partial(_beside_a_busy_thread, both, count, seconds)))
        ours, peer, *busy = by_turns(sides, setting.size(2 if busy_too(seconds) else 1, ROUNDS))
        what = f"{count:,} sleeps of {seconds * 1e3:g} ms on {WORKERS} slots"
        yield _efficiency_row(what, count * seconds / WORKERS, ours, peer, target)
        for found in busy:
            yield _efficiency_row(f"{what}, the script computing", count * seconds / WORKERS, found, peer, BUSY_TARGET)


def busy_too(seconds: float) -> bool:
    """Whether this length is also measured beside a script that computes: the shortest one suffers most."""
    return seconds == min(SLEEP_TARGETS)


def _efficiency_row(subject: str, ideal: float, ours: Measured, peer: Measured, target: float) -> BenchRow:
    return BenchRow(
        f"efficiency of {subject}",
        f"{ideal / ours.seconds:.4f}",
        "two bare sleep loops",
        f"{ideal / peer.seconds:.4f}",
        peer.seconds / ours.seconds,
        target=target,
    )


def _sleep_all(both: Pair, count: int, seconds: float) -> None:
    list(both.session.map(time.sleep, [seconds] * count))


def _beside_a_busy_thread(both: Pair, count: int, seconds: float) -> None:
    with _computing():
        _sleep_all(both, count, seconds)


@contextmanager
def _computing() -> Iterator[None]:
    """A thread of this process that never gives up the interpreter by itself."""
    ended = False

    def compute() -> None:
        total = 0
        while not ended:
            for number in range(10_000):
                total += number * number

    thread = threading.Thread(target=compute, name="bench-computing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended = True
        thread.join()


# --- commands -----------------------------------------------------------------------------------------


def measure_commands(setting: BenchSetting) -> Iterator[BenchRow]:
    """Exit code and output are kept of each of them, as always."""
    both, count = setting.pair(), setting.size(2_500, 10_000)
    loops = list(LOOPS)
    if not setting.full:  # the better one of a trial
        trial = by_turns([_bare_loops(both, loop, 200) for loop in LOOPS.values()], ROUNDS)
        loops = [min(zip(trial, loops, strict=True))[1]]
    array, loose, *bare = by_turns(
        [
            both.ours(lambda: array_of(both.session, count)),
            both.ours(lambda: one_by_one(both.session, count)),
            *[_bare_loops(both, loop, count) for loop in map(LOOPS.__getitem__, loops)],
        ],
        ROUNDS,
        1.5 * setting.row_seconds,  # three rounds, where two thousand programs are started in a second
    )
    peer, name = min(zip(bare, loops, strict=True))
    for how, ours in (("one array", array), ("one by one", loose)):
        yield rate_row(f"{count:,} commands /bin/true, {how}", count, ours, f"two loops of {name}", peer, target=0.9)


def array_of(session: Session, count: int) -> None:
    """A sweep. Each has two arguments, as with one alone `true` looks for --help, and sets up its locale first."""
    session.sweep("/bin/true {i} {i}", bough.product(i=range(count)), memo=False).wait_all()


def one_by_one(session: Session, count: int) -> None:
    """A future each."""
    for task in [session.command(["/bin/true"], memo=False) for _ in range(count)]:
        task.result()


def _bare_loops(both: Pair, loop: Callable[..., float], count: int, *given: object) -> Side:
    """Both workers of the pool do nothing but this loop; the slower one's own time counts."""

    def run() -> Took:
        loops = [both.pool.submit(loop, count // WORKERS, *given) for _ in range(WORKERS)]
        return Took(max(one.result() for one in loops))

    return both.theirs(run)


# --- chains and fans ----------------------------------------------------------------------------------


def chain(session: Session, length: int) -> None:
    """Every task takes the value of the one before it."""
    task = session.submit(timed_functions.one_more, 0)
    for _ in range(length - 1):
        task = session.submit(timed_functions.one_more, task)
    assert task.result() == length


def chain_in_script(pool: ProcessPoolExecutor, length: int) -> None:
    """The same where the script must wait for each."""
    value = 0
    for _ in range(length):
        value = pool.submit(timed_functions.one_more, value).result()


def fan(session: Session, width: int) -> None:
    """One task, many that take its value, one that takes all of theirs."""
    first = session.submit(timed_functions.one_more, 0)
    middle = [session.submit(timed_functions.one_more, first) for _ in range(width)]
    assert session.submit(timed_functions.how_many, middle).result() == width


def fan_in_script(pool: ProcessPoolExecutor, width: int) -> None:
    """The same where the script must wait."""
    value = pool.submit(timed_functions.one_more, 0).result()
    middle = [pool.submit(timed_functions.one_more, value) for _ in range(width)]
    assert pool.submit(timed_functions.how_many, [future.result() for future in middle]).result() == width


def measure_chain(setting: BenchSetting) -> Iterator[BenchRow]:
    """A chain of 2,000."""
    both, length = setting.pair(), 2_000
    ours, peer = compare(
        both.ours(lambda: chain(both.session, length)),
        both.theirs(lambda: chain_in_script(both.pool, length)),
        ROUNDS,
        setting.row_seconds,
    )
    yield rate_row(f"chain of {length:,} dependent functions", length, ours, WAITING, peer)


def measure_fan(setting: BenchSetting) -> Iterator[BenchRow]:
    """1 to 5,000 to 1."""
    both, width = setting.pair(), 5_000
    ours, peer = compare(
        both.ours(lambda: fan(both.session, width)),
        both.theirs(lambda: fan_in_script(both.pool, width)),
        ROUNDS,
        setting.row_seconds,
    )
    yield rate_row(f"fan 1 to {width:,} to 1", width + 2, ours, WAITING, peer)


# --- hops between two executors -----------------------------------------------------------------------


@contextmanager
def two_executors(folder: str) -> Iterator[tuple[Home, Session]]:
    """A service on a Unix socket with two executors of one core, each with something that the other has not."""
    with home(folder) as there:
        there.serve()
        for side in _SIDES:
            there.execute(1, "--resource", f"{side}=1", tls=False)
        with bough.Session(there.socket, name="hops") as session:
            hop(session, 4)  # both are there
            warm(session)
            yield there, session


def hop(session: Session, length: int) -> None:
    """The chain."""
    left, right = (session.options(resources={side: 1}) for side in _SIDES)
    task = left.submit(timed_functions.one_more, 0)
    for number in range(1, length):
        task = (right if number % 2 else left).submit(timed_functions.one_more, task)
    assert task.result() == length


def measure_hops(setting: BenchSetting) -> Iterator[BenchRow]:
    """Beside a pool whose script waits for every link."""
    length, pool = setting.size(500, 2_000), setting.pair().pool
    with two_executors(setting.folder) as (there, session):
        ours, peer = compare(
            there.side(session, lambda: hop(session, length)),
            setting.pair().theirs(lambda: chain_in_script(pool, length)),
            ROUNDS,
            setting.row_seconds,
        )
    yield rate_row(f"chain of {length:,} that hops between two executors", length, ours, WAITING, peer)


# --- growth -------------------------------------------------------------------------------------------


def measure_growth(setting: BenchSetting) -> Iterator[BenchRow]:
    """Each row is the time at 4n beside that at 2n."""
    both, size = setting.pair(), setting.size
    session = both.session
    works: tuple[tuple[str, int, Callable[[int], None]], ...] = (
        ("map", size(100_000, 500_000), lambda count: map_all(session, range(count))),
        ("submit", size(1_500, 20_000), lambda count: submit_all(session, count)),
        ("chain", size(1_000, 5_000), lambda count: chain(session, count)),
        ("fan", size(1_000, 5_000), lambda count: fan(session, count)),
        ("commands, one array", size(100, 2_500), lambda count: array_of(session, count)),
        ("commands, one by one", size(100, 2_500), lambda count: one_by_one(session, count)),
    )
    for name, n, work in works:
        work(n)  # the first round is as warm as the others
        sides = [both.ours(partial(work, times * n)) for times in (1, 2, 4)]
        once, twice, four = by_turns(sides, ROUNDS, setting.row_seconds / 2)
        yield BenchRow(
            f"growth of {name}: time at 4n over 2n, n = {n:,}",
            milliseconds(four.seconds),
            f"2n (n: {milliseconds(once.seconds)})",
            milliseconds(twice.seconds),
            four.seconds / twice.seconds,
            better="low",
            target=_GROWTH,
        )
