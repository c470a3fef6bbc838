"""The simulator and the server are two shells around one core: the same news at the same times makes the same facts."""

from __future__ import annotations

import pytest
from server_fakes import FakeLoop, FakeStore

from bough.core.machine import Machine
from bough.model.events.arriving import News
from bough.model.events.facts import encode_facts
from bough.model.ids import Seconds
from bough.policies.policy_registry import load_policies
from bough.server.turns.run_info import RunInfo
from bough.server.turns.shell import Shell
from bough.sim.application_workloads import application
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.platforms.platform import read_platform
from bough.sim.platforms.simulated_executor import Fate
from bough.sim.simulation import Simulation

PLATFORM = """
[site.near]
hosts = 3
cores = 2
speed = [0.5, 2.0]
nic = {bandwidth = "100MB/s"}
[site.far]
hosts = 2
cores = 4
cache = "200MB"
nic = {bandwidth = "100MB/s"}
uplink = {bandwidth = "10MB/s", latency = 0.05}
[home]
bandwidth = "50MB/s"
"""
Recorded = list[tuple[Seconds, list[News]]]


def simulated(name: str, policy: str, replication: str) -> tuple[Recorded, dict[int, bytes]]:
    """What a simulation told the core and when, and the facts of each turn."""
    workload, platform = application(name), read_platform(PLATFORM)
    machine = Machine(load_policies(policy, replication=replication), seed=7)
    recorded: Recorded = []
    turn = machine.turn

    def record(now: Seconds, news: list[News]):
        recorded.append((now, list(news)))
        return turn(now, news)

    machine.turn = record  # type: ignore[method-assign]
    sim = Simulation(
        machine, lambda spec, *_: Fate(workload.tasks[spec.id - 1].seconds), platform.executors(3),
        data=SimulatedData(workload, platform) if workload.files else None,
    )  # fmt: skip
    sim.submit(0.0, workload)
    sim.run()
    sim.check_complete()
    return recorded, {number: encode_facts(facts) for number, _, facts in sim.journal}


def live(recorded: Recorded, policy: str, replication: str) -> dict[int, bytes]:
    """The facts that the server's shell wrote of the same news; what its orders cause is in the news already."""
    loop, store = FakeLoop(), FakeStore()
    machine = Machine(load_policies(policy, replication=replication), seed=7)
    shell = Shell(loop, machine, store, RunInfo(1, "/store", "id:1"))
    failed: list[object] = []
    shell.on_fatal = failed.append
    shell.perform = dict.fromkeys(shell.perform, lambda *_: None)
    shell._set_alarm = lambda wake: None  # type: ignore[method-assign] # the recorded times are when it was due
    clock = [0.0]
    shell.clock.now = lambda: clock[0]  # type: ignore[method-assign]
    for now, news in recorded:
        clock[0] = now
        for one in news:
            shell.news(one)
        shell.schedule()
        loop.run()
    assert failed == []
    return {number: encode_facts(facts) for number, _, facts in store.rows}


@pytest.mark.parametrize(
    ("name", "policy", "replication"),
    [
        ("stages", "fifo", "none"),
        ("generations:4", "critical-path", "wqr:cap=2"),
        ("montage:20", "bough", "none"),
        ("proteome:60", "data-conscious", "none"),
        ("mars:100", "storage-affinity", "storage-affinity:cap=2"),
        ("mars:100", "storage-affinity:tie=round-robin", ""),
        ("stacking:300", "good-cache-compute", "tail"),
    ],
)
def test_the_same_news_makes_the_same_facts(name: str, policy: str, replication: str) -> None:
    recorded, expected = simulated(name, policy, replication)
    found = live(recorded, policy, replication)
    assert len(expected) > 10
    assert found == expected
