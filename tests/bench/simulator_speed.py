"""Simulated completions a second, and the memory that it takes.

Run: `.venv/bin/python -m tests.bench.simulator_speed [--quick] [case ...]`

Cases: `loose` (independent tasks, each a record of its own, on 1,000 hosts; no two end together, so that each is a
turn), `loose-alike` (they do), `arrays` (tasks of 1 ms as one array: the core sends spans of 50 ms of work;
`arrays-10ms` and `arrays-0.1ms` are the same with other tasks), `arrays-long` (tasks that go out alone), `data`
(each task reads one of 10,000 files: placed by where its data is, over links that share fairly), `large` (160,000
executors and 10^6 tasks of an array, and as loose tasks with `large-loose`). Each is run with a quarter and half of
the tasks, too: the cost of a task should be the same. Times are those of the process: others may use the machine.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
from collections.abc import Callable
from random import Random
from time import process_time

from bough.core.machine import Machine
from bough.model.events.facts import Submitted
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.models.run_time_models import ElementTimes
from bough.sim.platforms.link_specs import LinkSpec
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, Model, SimulatedExecutor
from bough.sim.simulation import Simulation
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload
from bough.testing.builders import array, needs, task

SECONDS = 10.0


def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
    """All tasks take about as long, and no two end together."""
    return Fate(SECONDS * (1.0 + ((spec.id * 7919 + index) * 2654435761 % 1_000_003) / 1_000_003))


def alike(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
    """All tasks take as long, so that hosts end their tasks together."""
    return Fate(SECONDS)


def short(tasks: int, mean: float) -> ElementTimes:
    """Tasks of an array, each between half and one and a half of a mean; they go out in spans."""
    dice = Random(1)
    return ElementTimes(mean * (0.5 + dice.random()) for _ in range(tasks))


def plain(tasks: int, hosts: int, *, arrays: bool, times: Model = model) -> Simulation:
    """Independent tasks."""
    executors = [SimulatedExecutor(number, needs(1)) for number in range(1, hosts + 1)]
    sim = Simulation(Machine(load_policies("fifo")), times, executors, keeps_journal=False)
    if arrays:
        sim.at(0.0, Submitted([array(1, tasks)]))
    else:
        for start in range(0, tasks, 10_000):
            some = range(start + 1, min(start + 10_000, tasks) + 1)
            sim.at(0.0, Submitted([task(number, template="t") for number in some]))
    return sim


def with_data(tasks: int, hosts: int, policy: str) -> Simulation:
    """Tasks that read one of 10,000 files each, of which a cache holds 200."""
    dice = Random(1)
    files = [SimulatedFile(f"f{number}", 10_000_000) for number in range(10_000)]
    work = Workload(
        "data",
        [SimulatedTask("t", SECONDS, reads=(dice.randrange(len(files)),), template="t") for _ in range(tasks)],
        files,
    )
    site = SitePlatform(hosts, cache=2_000_000_000, eviction="lru", nic=LinkSpec(125e6), disk_read=400e6)
    platform = Platform({"lab": site}, home=LinkSpec(5e9))
    data = SimulatedData(work, platform)
    sim = Simulation(Machine(load_policies(policy)), model, platform.executors(1), data=data, keeps_journal=False)
    sim.submit(0.0, work)
    return sim


CASES: dict[str, tuple[int, Callable[[int], Simulation], int]] = {  # tasks, how, completions/s that are wanted
    "loose": (400_000, lambda tasks: plain(tasks, 1000, arrays=False), 50_000),
    "loose-alike": (400_000, lambda tasks: plain(tasks, 1000, arrays=False, times=alike), 50_000),
    "arrays": (4_000_000, lambda tasks: plain(tasks, 1000, arrays=True, times=short(tasks, 0.001)), 500_000),
    "arrays-0.1ms": (20_000_000, lambda tasks: plain(tasks, 1000, arrays=True, times=short(tasks, 0.0001)), 0),
    "arrays-10ms": (1_000_000, lambda tasks: plain(tasks, 1000, arrays=True, times=short(tasks, 0.01)), 0),
    "arrays-long": (400_000, lambda tasks: plain(tasks, 1000, arrays=True), 0),
    "data": (100_000, lambda tasks: with_data(tasks, 1000, "max-compute-util"), 10_000),
    "data-gcc": (100_000, lambda tasks: with_data(tasks, 1000, "good-cache-compute"), 10_000),
    "data-bough": (100_000, lambda tasks: with_data(tasks, 1000, "bough"), 10_000),
    "large": (1_000_000, lambda tasks: plain(tasks, 160_000, arrays=True), 0),
    "large-loose": (1_000_000, lambda tasks: plain(tasks, 160_000, arrays=False), 0),
}


def measure(name: str, tasks: int, make: Callable[[int], Simulation], wanted: int) -> float:
    """Print the completions a second of a case, submission included."""
    gc.collect()
    begin = process_time()
    sim = make(tasks)
    made = process_time()
    sim.run()
    sim.check_complete()
    spent = process_time() - made
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform != "darwin" else 1 << 30)
    more = ""
    if sim.data is not None:
        measured = sim.data.measured()
        more = f", {measured.hit_rate:.0%} of the bytes there"
    print(
        f"{name:12} {tasks:>10,} tasks: {tasks / spent:>9,.0f} completions/s"
        f" ({spent:.1f} s, made in {made - begin:.1f} s; wanted {wanted or 'minutes'};"
        f" at most {memory:.2f} GiB so far{more})",
        flush=True,
    )
    return spent / tasks


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the tasks")
    parser.add_argument("--once", action="store_true", help="not also with a quarter and half of the tasks")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    for name in args.cases:
        tasks, make, wanted = CASES[name]
        tasks //= 100 if args.quick else 1
        if args.profile:
            import cProfile

            cProfile.runctx("measure(name, tasks // 4, make, wanted)", globals(), locals(), sort="tottime")
            continue
        parts = (1,) if args.once else (4, 2, 1)
        costs = [measure(name, tasks // part, make, wanted) for part in parts]
        if not args.once:
            said = " and ".join(f"{cost / costs[0]:.2f}" for cost in costs[1:])
            print(f"{name:12} a task costs {said} times as much with twice and four times as many", flush=True)


if __name__ == "__main__":
    main()
