"""Our makespans against SimGrid's on random platforms: placed tasks fetch their inputs over shared links, then compute.

Needs python3-simgrid. Transfers alone are compared in `test_simgrid`.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from bough.core.machine import Machine
from bough.policies.policy_registry import load_policies
from bough.policy.interface import Place, ReadyWork, View
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.platforms.link_specs import LinkSpec, TransferRules
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate
from bough.sim.schedule import intervals
from bough.sim.simulation import Simulation
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

SYSTEM_PYTHON = "/usr/bin/python3"
DRIVER = Path(__file__).with_name("simgrid_makespan_driver.py")
HOME = "home"


@pytest.fixture(scope="module", autouse=True)
def _simgrid() -> None:
    try:
        found = subprocess.run([SYSTEM_PYTHON, "-c", "import simgrid"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("the system has no Python of its own")
    if found.returncode:
        pytest.skip("SimGrid is not installed: apt-get install python3-simgrid")


class Case:
    """A random platform, and tasks that are placed on it.

    A lane is a core; its tasks wait for each other, so that both simulators run them in the same order. Each file has
    one reader: nothing is found in a cache.
    """

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.sites = {f"s{number}": self._site(dice) for number in range(dice.randint(1, 4))}
        self.home = self._link(dice)
        self.hosts = [(f"{name}{n}", name) for name, site in self.sites.items() for n in range(1, site.hosts + 1)]
        lanes = [(host, lane) for host, site in self.hosts for lane in range(int(self.sites[site].cores))]
        last: dict[tuple[str, int], int] = {}
        self.files: list[SimulatedFile] = []
        self.tasks: list[SimulatedTask] = []
        self.where: list[str] = []
        self.reads: list[list[tuple[str, int]]] = []  # by task: from where, and how many bytes
        writes: dict[int, list[int]] = {}
        drafts: list[tuple[float, tuple[int, ...], list[int]]] = []
        for number in range(dice.randint(20, 60)):
            lane = dice.choice(lanes)
            before = {last[lane]} if lane in last else set()
            last[lane] = number
            self.where.append(lane[0])
            wanted, sources = [], []
            for _ in range(dice.randint(0, 3)):
                size = dice.randint(10**5, 5 * 10**7)
                source = dice.randrange(number) if number and dice.random() < 0.6 else None
                wanted.append(len(self.files))
                self.files.append(SimulatedFile(f"f{len(self.files)}", size))
                sources.append((HOME if source is None else self.where[source], size))
                if source is not None:
                    before.add(source)
                    writes.setdefault(source, []).append(wanted[-1])
            self.reads.append(sources)
            drafts.append((round(dice.uniform(0.1, 20), 3), tuple(sorted(before)), wanted))
        for number, (seconds, after, wanted) in enumerate(drafts):
            self.tasks.append(
                SimulatedTask(f"t{number}", seconds, after, reads=tuple(wanted), writes=tuple(writes.get(number, ())))
            )

    @staticmethod
    def _link(dice: random.Random) -> LinkSpec:
        bandwidth = dice.choice([1.25e6, 12.5e6, 125e6]) * dice.uniform(0.5, 1.5)
        return LinkSpec(bandwidth, dice.choice([1e-4, 1e-3, 2e-2]) * dice.uniform(0.5, 1.5))

    def _site(self, dice: random.Random) -> SitePlatform:
        speed = dice.choice([0.5, 1.0, 2.0])
        return SitePlatform(
            dice.randint(1, 4), dice.randint(1, 3), speed, nic=self._link(dice), uplink=self._link(dice)
        )

    def asked(self) -> dict[str, Any]:
        """The same for SimGrid: each direction of a link is a link, each pair of places has a route."""
        specs = {f"nic {host}": self.sites[site].nic for host, site in self.hosts}
        specs |= {f"uplink {name}": site.uplink for name, site in self.sites.items()} | {f"uplink {HOME}": self.home}
        links = [
            (f"{name} {way}", spec.bandwidth, spec.latency)
            for name, spec in specs.items()
            if spec is not None
            for way in ("in", "out")
        ]
        places = [*self.hosts, (HOME, HOME)]
        routes = []
        for one, site in places:
            for other, target in places:
                if one != other:
                    crossed = [] if one == HOME else [f"nic {one} out"]
                    crossed += [f"uplink {site} out", f"uplink {target} in"] if site != target else []
                    routes.append((one, other, crossed + ([] if other == HOME else [f"nic {other} in"])))
        tasks = [
            {"host": host, "seconds": task.seconds, "after": task.after, "reads": reads}
            for task, host, reads in zip(self.tasks, self.where, self.reads, strict=True)
        ]
        hosts = [(host, self.sites[site].speed, int(self.sites[site].cores)) for host, site in self.hosts]
        return {"hosts": [*hosts, (HOME, 1.0, 1)], "links": links, "routes": routes, "tasks": tasks}


class Assigned:
    """A policy that places each task where it was said."""

    def __init__(self, where: dict[int, int]) -> None:
        self._where = where

    def rank(self, work: ReadyWork, /) -> float:
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        return self._wishes(view)

    def _wishes(self, view: View) -> Iterator[Place]:
        for work in view.ready():
            yield Place(work.id, self._where[work.id])  # type: ignore[arg-type]


def our_ends(case: Case, fairness: Literal["rtt", "max-min"] | None = None) -> list[float]:
    """When tasks end by our own reckoning. All links have latencies, so that without a word they share by these."""
    platform = Platform(case.sites, case.home, TransferRules(fairness=fairness, outputs="keep"))
    executors = list(platform.executors(1))
    numbers = {one.host: one.id for one in executors}
    assigned = Assigned({n: numbers[host] for n, host in enumerate(case.where, 1)})
    policies = msgspec.structs.replace(load_policies("fifo"), placement=assigned)
    workload = Workload("w", case.tasks, case.files)

    def model(spec: Any, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(case.tasks[spec.id - 1].seconds)

    data = SimulatedData(workload, platform)
    simulation = Simulation(Machine(policies), model, executors, data=data)
    simulation.submit(0.0, workload)
    simulation.run()
    simulation.check_complete()
    assert not simulation.complaints
    ran = intervals(simulation)
    ends = [ran[number].end for number in range(1, len(case.tasks) + 1)]
    for attempt in data.measured().attempts:
        assert attempt.host == case.where[attempt.task]
    return ends


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_tasks_end_when_simgrid_says(first: int) -> None:
    for seed in range(first, first + 10):
        case = Case(seed)
        said = subprocess.run(
            [SYSTEM_PYTHON, str(DRIVER)], input=json.dumps(case.asked()), capture_output=True, text=True, check=True
        )
        theirs, ours = json.loads(said.stdout), our_ends(case)
        assert max(ours) == pytest.approx(max(theirs), rel=0.05), f"platform {seed}"
        assert ours == pytest.approx(theirs, rel=0.05), f"platform {seed}"
