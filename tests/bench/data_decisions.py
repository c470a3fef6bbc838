"""Data-aware decisions a second.

Run: `.venv/bin/python -m tests.bench.data_decisions [--tasks N] [--executors N] [--files N] [--quick] [policy ...]`

Each turn takes in what a batch of executors report: their task has ended, their cache gained what it read and evicted
something else for it. The policy then gives each of them another of the waiting tasks, and the facts are encoded as for
the journal. A decision is a task that is placed. Tasks are submitted no faster than the index takes them up, so that
only decisions are counted. Others may use the machine at the same time: the rate is that of CPU time, and beside it are
that of the fastest quarter of the turns, and that of the time that passed. `--plain` compares turns of a workload
without declared files under the policies `fifo` and `bough`, with the replication that it brings. What the index costs
in memory is in `data_index_size`.
"""

from __future__ import annotations

import argparse
import gc
from random import Random
from time import perf_counter, process_time

from bough.core.machine import Machine
from bough.model.events import facts, news
from bough.model.events.facts import ExecutorJoined, encode_facts
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.policies.policy_registry import load_policies
from bough.testing.builders import submit, task

POLICIES = (
    "max-cache-hit",
    "max-compute-util",
    "good-cache-compute",
    "data-conscious",
    "storage-affinity",
    "bough",
)
CACHE = 300  # files that a cache holds
BATCH = 100  # executors that report in one turn


def digest(file: int) -> bytes:
    """The digest of a file's content."""
    return file.to_bytes(8, "little") * 4


class Shop:
    """A machine, caches as their hosts know them, and what runs where."""

    def __init__(self, policy: str, *, tasks: int, executors: int, files: int, seed: int = 1) -> None:
        self.dice = Random(seed)
        self.machine = Machine(load_policies(policy, replication="none"))  # placement alone is measured
        self.caches: list[dict[int, None]] = [{} for _ in range(executors)]
        self.reads: dict[int, tuple[int, ...]] = {}
        self.files = files
        self.known: set[int] = set()  # files whose content was told
        self.now = 0.0
        self.placed: list[facts.Placed] = []
        self.spent = 0.0  # seconds of CPU
        self.passed = 0.0  # seconds
        self.turn(facts.RunOpened(1, "bench", "h", 1))
        joined = [
            ExecutorJoined(ExecutorId(one + 1), f"site{one % 10}", f"host{one}", 1, Needs(cores=1))
            for one in range(executors)
        ]
        self.turn(*joined)
        for one in range(executors):
            some = self.dice.sample(range(1, files + 1), CACHE)
            self.caches[one] = dict.fromkeys(some)
            self.turn(news.CacheChanged(ExecutorId(one + 1), tuple(map(self._held, some))))
        self.last = 0
        self.submit(tasks)
        self.turn(news.BytesMoved(ExecutorId(1), "origin", 10_000_000, 0.1))
        self.turn(news.BytesMoved(ExecutorId(1), "host2", 10_000_000, 0.02))

    def _held(self, file: int) -> news.HeldContent:
        return news.HeldContent(digest(file), 1_000_000 + file)

    def submit(self, count: int) -> None:
        """More tasks, of one template, each with 1 to 5 files, whose contents are known."""
        while count > 0:
            some = min(count, 4000)
            items = []
            for number in range(self.last + 1, self.last + some + 1):
                reads = tuple(self.dice.sample(range(1, self.files + 1), self.dice.randint(1, 5)))
                self.reads[number] = reads
                items.append(task(number, template="work", reads=tuple(f"/data/{file}" for file in reads)))
            self.last += some
            count -= some
            fresh = sorted({file for item in items for file in self.reads[item.id]} - self.known)
            self.known.update(fresh)
            named = tuple(news.NamedContent(f"/data/{file}", digest(file), 1_000_000 + file) for file in fresh)
            self.turn(submit(*items), news.FilesIdentified(1, (), named))

    def turn(self, *said: object) -> int:
        """One turn, timed; how many tasks it placed."""
        begin, began = process_time(), perf_counter()
        turn = self.machine.turn(self.now, said)  # type: ignore[arg-type]
        encode_facts(turn.facts)
        self.spent += process_time() - begin
        self.passed += perf_counter() - began
        if turn.complaints:
            raise SystemExit(turn.complaints[0])
        placed = [fact for fact in turn.facts if isinstance(fact, facts.Placed)]
        self.placed += placed
        return len(placed)

    def reports(self) -> list[object]:
        """What a batch of executors says: their task has ended, and their cache has changed."""
        said: list[object] = []
        batch, self.placed = self.placed[:BATCH], self.placed[BATCH:]
        for fact in batch:
            cache = self.caches[fact.executor - 1]
            came = [file for file in self.reads.pop(fact.record) if file not in cache]
            cache.update(dict.fromkeys(came))
            gone = list(cache)[: max(0, len(cache) - CACHE)]
            for file in gone:
                del cache[file]
            if came:
                held, lost = tuple(map(self._held, came)), tuple(map(digest, gone))
                said.append(news.CacheChanged(fact.executor, held, lost))
            said.append(news.WorkSucceeded(fact.span, 0, 1, 10.0))
        return said


def measure(policy: str, *, tasks: int, executors: int, files: int, decisions: int) -> None:
    """Print the decisions a second under a policy."""
    shop = Shop(policy, tasks=tasks, executors=executors, files=files)
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 100)  # as the server does
    made, shop.spent, shop.passed, hits, reads = 0, 0.0, 0.0, 0, 0
    each: list[float] = []  # seconds for a decision, by turn
    while made < decisions and shop.placed:
        said = shop.reports()
        shop.now += 1.0
        before, spent = len(shop.placed), shop.spent
        placed = shop.turn(*said)
        made += placed
        if placed > BATCH // 2:
            each.append((shop.spent - spent) / placed)
        for fact in shop.placed[before:]:
            cache = shop.caches[fact.executor - 1]
            hits += sum(file in cache for file in shop.reads[fact.record])
            reads += len(shop.reads[fact.record])
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    rate, by_clock = (made / shop.spent, made / shop.passed) if made else (0.0, 0.0)
    fastest = sorted(each)[: max(1, len(each) // 4)]
    best = len(fastest) / sum(fastest) if fastest else 0.0
    waiting = shop.machine.counts()["ready"]
    print(
        f"{policy:20} {tasks:>8} waiting {executors:>5} executors {files:>7} files: {rate:>8.0f} decisions/s of CPU"
        f" (fastest quarter {best:.0f}, by the clock {by_clock:.0f}; {made} made, {hits / max(reads, 1):.0%} of the"
        f" inputs there, {waiting} still wait)",
        flush=True,
    )


def plain(tasks: int) -> None:
    """Print turns of a workload without files, under `fifo` and `bough` by turns."""
    for round_ in range(3):
        for policy in ("fifo", "bough"):
            machine = Machine(load_policies(policy))  # as a service has them, with what `bough` replicates
            machine.turn(0.0, [facts.RunOpened(1, "bench", "h", 1)])
            machine.turn(0.0, [ExecutorJoined(ExecutorId(1), "s", "h", 1, Needs(cores=8))])
            spent, made, last = 0.0, 0, 0
            while made < tasks:
                said: list[object] = [submit(*(task(number, template="t") for number in range(last + 1, last + 101)))]
                last += 100
                said += [news.WorkSucceeded(span, 0, 1, 0.001) for span in list(machine.state.spans)]
                made += len(said) - 1
                begin = process_time()
                turn = machine.turn(0.0, said)  # type: ignore[arg-type]
                encode_facts(turn.facts)
                spent += process_time() - begin
            print(f"round {round_}: {policy:6} {made / spent:>9.0f} tasks/s without files", flush=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--executors", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="a hundredth of it")
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    if args.plain:
        plain(2000 if args.quick else 100_000)
        return
    part = 100 if args.quick else 1
    for policy in args.policies:
        for tasks in (args.tasks // 10, args.tasks):
            measure(
                policy,
                tasks=max(tasks // part, 200),
                executors=max(args.executors // part, 10),
                files=max(args.files // part, 1000),
                decisions=min(args.decisions // part, tasks // 2),
            )


if __name__ == "__main__":
    main()
