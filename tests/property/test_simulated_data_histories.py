"""Any small workload on any platform, under every placement policy and replication: all tasks end, no byte is lost.

What is checked after each step: the bytes that attempts asked for are those of their kinds, no cache is above its bound
but for what is pinned, and what the core believes of caches is what they hold.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bough.core.machine import Machine
from bough.model.events.facts import ExecutorLost
from bough.model.ids import ExecutorId
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies, placement_names
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.platforms.link_specs import LinkSpec, TransferRules
from bough.sim.platforms.network import Sharing
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate
from bough.sim.simulation import Simulation
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

MOST_STEPS = 20_000


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to 12 tasks that read some of up to 6 files, and some that others write."""
    files = [
        SimulatedFile(f"f{n}", draw(st.sampled_from([0, 1, 70_000, 1_000_000]))) for n in range(draw(st.integers(1, 6)))
    ]
    inputs = len(files)
    tasks: list[SimulatedTask] = []
    for number in range(draw(st.integers(1, 12))):
        reads = tuple(draw(st.lists(st.integers(0, len(files) - 1), max_size=3)))
        writes: tuple[int, ...] = ()
        if draw(st.integers(0, 3)) == 0:
            files.append(SimulatedFile(f"o{number}", draw(st.sampled_from([0, 500_000]))))
            writes = (len(files) - 1,)
        seconds = draw(st.sampled_from([0.0, 0.01, 1.0, 30.0]))
        tasks.append(SimulatedTask(f"t{number}", seconds, reads=reads, writes=writes, template=f"{number % 2}"))
    assert inputs
    return Workload("any", tasks, files)


links = st.none() | st.builds(
    LinkSpec,
    bandwidth=st.sampled_from([1e4, 1e5, 1e7]),
    latency=st.sampled_from([0.0, 0.1]),
    sharing=st.sampled_from(list(Sharing)),
)
sites = st.builds(
    SitePlatform,
    hosts=st.integers(1, 3),
    cores=st.sampled_from([1.0, 2.0]),
    speed=st.sampled_from([0.2, 1.0]),
    cache=st.sampled_from([None, 0, 1_000_000, 2_500_000]),
    eviction=st.sampled_from(["needed-last", "lru", "lfu", "fifo", "random"]),
    store=st.sampled_from(["host", "site"]),
    disk_read=st.sampled_from([0.0, 1e6]),
    disk_write=st.sampled_from([0.0, 1e6]),
    nic=links,
    uplink=links,
)
platforms = st.builds(
    Platform,
    site=st.fixed_dictionaries({"a": sites}, optional={"b": sites}),
    home=links,
    transfers=st.builds(
        TransferRules,
        peers=st.sampled_from(["all", "site", "none"]),
        startup=st.sampled_from([0.0, 0.5]),
        streams=st.integers(0, 2),
        outputs=st.sampled_from(["keep", "home"]),
        killed=st.sampled_from(["end", "stay"]),
        early=st.booleans(),
    ),
)


def simulation(workload: Workload, platform: Platform, policy: str, replication: str, *, arrays: bool) -> Simulation:
    firsts: dict[int, int] = {}

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(workload.tasks[firsts[spec.id] + index].seconds)

    data = SimulatedData(workload, platform)
    machine = Machine(load_policies(policy, replication=replication), seed=1)
    sim = Simulation(machine, model, platform.executors(1), data=data)
    firsts.update(sim.submit(0.0, workload, arrays=arrays).first)
    return sim


def go(sim: Simulation) -> None:
    for _ in range(MOST_STEPS):
        if sim._next_time() is None:
            return
        sim.step()
        check(sim)
    raise AssertionError("it does not end")


def check(sim: Simulation) -> None:
    data = sim.data
    assert data is not None
    index = sim.machine.state.data
    for store in data.stores.values():
        assert store.held <= max(store.limit, store.pinned)
        if store.name and (store.site, store.name) in index.hosts and sim._next_time() != sim.now:  # all is told
            believed = index.hosts[store.site, store.name]
            assert believed.held == len(store)
            assert sum(index.contents.sizes[content] for content in believed.contents(index)) == store.held
    for one in (*data.attempts, *[staging.attempt for staging in data.running.values()]):
        assert one.asked == one.hit + one.store + one.joined + one.peer + one.origin


def check_ended(sim: Simulation, workload: Workload) -> None:
    data = sim.data
    assert data is not None
    assert not sim.complaints
    assert not data.running
    assert data.next_time() is None
    done = [one for one in data.attempts if one.outcome == "done"]
    with_files = {place for place, task in enumerate(workload.tasks) if task.reads or task.writes}
    assert {one.task for one in done} >= with_files
    for one in done:
        task = workload.tasks[one.task]
        assert one.asked == sum(workload.files[file].size for file in set(task.reads))
        assert one.written == sum(workload.files[file].size for file in task.writes)
        assert one.began <= one.staged <= one.ran <= one.ended
        assert one.run == pytest.approx(task.seconds / one.speed)
    if not any(one.outcome == "killed" for one in data.attempts):
        measured = data.measured()
        moved = measured.total("peer") + measured.total("origin") + measured.total("returned")
        assert measured.total("moved") == pytest.approx(moved)
    assert all(store.serving == 0 for store in data.stores.values())


@pytest.mark.parametrize("policy", placement_names())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    workload=workloads(),
    platform=platforms,
    replication=st.sampled_from(["none", "wqr", "wqr:cap=2", "storage-affinity"]),
    arrays=st.booleans(),
)
def test_all_tasks_end_and_no_byte_is_lost(
    policy: str, workload: Workload, platform: Platform, replication: str, arrays: bool
) -> None:
    sim = simulation(workload, platform, policy, replication, arrays=arrays)
    go(sim)
    sim.check_complete()
    check_ended(sim, workload)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    workload=workloads(),
    platform=platforms,
    policy=st.sampled_from(["fifo", "bough", "storage-affinity", "data-conscious"]),
    when=st.floats(0.0, 60.0),
    arrays=st.booleans(),
)
def test_hosts_that_are_lost_leave_nothing_behind(
    workload: Workload, platform: Platform, policy: str, when: float, arrays: bool
) -> None:
    """All hosts but the last are lost at some time; what was only there is made again, and all tasks end well."""
    sim = simulation(workload, platform, policy, "wqr", arrays=arrays)
    executors = list(sim._executors)
    for number in executors[:-1]:
        sim.at(when, ExecutorLost(ExecutorId(number), "gone"))
    go(sim)
    assert sim.data is not None
    assert not sim.data.running
    assert sim.machine.is_idle
    assert sim.machine.counts()["done"] == len(workload.tasks)
    gone = {(sim._executors[number].traits.site, sim._executors[number].host) for number in executors[:-1]}
    assert not gone & {(store.site, store.name) for store in sim.data.stores.values() if store.name}
