"""Data-aware decisions a second, and what the index of where data is costs in memory.

Run: `.venv/bin/python -m tests.bench.data_decisions [--tasks N] [--executors N] [--files N] [--quick] [policy ...]`

Each turn takes in what a batch of executors report: their task has ended, their cache gained what it read and evicted
something else for it. The policy then gives each of them another of the waiting tasks, and the facts are encoded as for
the journal. A decision is a task that is placed. `--memory` prints the bytes of the index for each pair of content and
holder instead. `--plain` compares turns of a workload without declared files under the policies `fifo` and `bough`.
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc
from random import Random
from time import process_time as perf_counter  # others may use the machine at the same time

from bough.core.machine import Machine
from bough.model.events import facts, news
from bough.model.events.facts import ExecutorJoined, encode_facts
from bough.model.ids import ExecutorId, FileId
from bough.model.resources import Needs
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
        self.machine = Machine(load_policies(policy))
        self.caches: list[dict[int, None]] = [{} for _ in range(executors)]
        self.reads: dict[int, tuple[int, ...]] = {}
        self.files = files
        self.now = 0.0
        self.placed: list[facts.Placed] = []
        self.spent = 0.0
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
            some = min(count, 5000)
            items = []
            for number in range(self.last + 1, self.last + some + 1):
                reads = tuple(self.dice.sample(range(1, self.files + 1), self.dice.randint(1, 5)))
                self.reads[number] = reads
                items.append(task(number, template="work", reads=tuple(f"/data/{file}" for file in reads)))
            self.last += some
            count -= some
            self.turn(submit(*items))
            workflow = self.machine.state.workflows[1]
            known = {file.id: int(file.path.rpartition("/")[2]) for file in workflow.files.all()}
            fresh = [one for one in known if self.machine.state.data.content_of(1, one) < 0]
            self.turn(
                news.FilesIdentified(
                    1,
                    tuple(
                        news.IdentifiedFile(FileId(one), digest(known[one]), 1_000_000 + known[one]) for one in fresh
                    ),
                )
            )

    def turn(self, *said: object) -> int:
        """One turn, timed; how many tasks it placed."""
        begin = perf_counter()
        turn = self.machine.turn(self.now, said)  # type: ignore[arg-type]
        encode_facts(turn.facts)
        self.spent += perf_counter() - begin
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
    gc.collect()
    gc.freeze()
    made, shop.spent, hits, reads = 0, 0.0, 0, 0
    while made < decisions and shop.placed:
        said = shop.reports()
        shop.now += 1.0
        before = len(shop.placed)
        made += shop.turn(*said)
        for fact in shop.placed[before:]:
            cache = shop.caches[fact.executor - 1]
            hits += sum(file in cache for file in shop.reads[fact.record])
            reads += len(shop.reads[fact.record])
    gc.unfreeze()
    rate = made / shop.spent if shop.spent else 0.0
    waiting = shop.machine.counts()["ready"]
    print(
        f"{policy:20} {tasks:>8} waiting {executors:>5} executors {files:>7} files: {rate:>8.0f} decisions/s"
        f"  ({made} made, {hits / max(reads, 1):.0%} of the inputs there, {waiting} still wait)",
        flush=True,
    )


def memory(files: int, hosts: int, copies: int) -> None:
    """Print the bytes of the index for each pair of content and holder."""
    machine = Machine(load_policies("fifo"))
    machine.turn(0.0, [facts.RunOpened(1, "bench", "h", 1)])
    joined = [ExecutorJoined(ExecutorId(one + 1), "s", f"h{one}", 1, Needs(cores=1)) for one in range(hosts)]
    machine.turn(0.0, joined)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    dice, spent = Random(1), 0.0
    for start in range(0, files * copies, 10_000):
        some = range(start, min(start + 10_000, files * copies))
        held = tuple(news.HeldContent(digest(one % files), 1000) for one in some)
        said = [news.CacheChanged(ExecutorId(dice.randrange(hosts) + 1), held)]
        begin = perf_counter()
        machine.turn(0.0, said)
        spent += perf_counter() - begin
        del said, held
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    pairs = machine.state.data.pairs
    print(
        f"{files} contents, {hosts} hosts, {pairs} pairs: {used / pairs:.0f} bytes a pair, "
        f"{spent / pairs * 1e6:.1f} us a pair (with the memory traced)",
        flush=True,
    )


def plain(tasks: int) -> None:
    """Print turns of a workload without files, under `fifo` and `bough` by turns."""
    for round_ in range(3):
        for policy in ("fifo", "bough"):
            machine = Machine(load_policies(policy))
            machine.turn(0.0, [facts.RunOpened(1, "bench", "h", 1)])
            machine.turn(0.0, [ExecutorJoined(ExecutorId(1), "s", "h", 1, Needs(cores=8))])
            spent, made, last = 0.0, 0, 0
            while made < tasks:
                said: list[object] = [submit(*(task(number, template="t") for number in range(last + 1, last + 101)))]
                last += 100
                said += [news.WorkSucceeded(span, 0, 1, 0.001) for span in list(machine.state.spans)]
                made += len(said) - 1
                begin = perf_counter()
                turn = machine.turn(0.0, said)  # type: ignore[arg-type]
                encode_facts(turn.facts)
                spent += perf_counter() - begin
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
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    if args.memory:
        for copies in (1, 3):
            memory(1_000_000 if not args.quick else 10_000, 1000 if not args.quick else 50, copies)
        return
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
