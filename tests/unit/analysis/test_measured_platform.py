"""Platforms from what was measured: hosts, speeds and links by hand; the text is one that the simulator reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bough.analysis.measured_platform import measured_sites, platform_text, speeds_of
from bough.errors import UserError
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.site_specs import SiteSpec
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import BatchQueueSpec, read_platform
from bough.sim.workload import SimulatedTask, Workload

Rows = Sequence[Mapping[str, Any]]


def _executor(
    site: str, host: str, cores: float, *, left: float | None = None, memory: int = 0, **others: Any
) -> dict[str, Any]:
    said = {"gpus": 0, "resources": None, "attributes": None, **others}
    return {"site": site, "host": host, "cores": cores, "memory": memory, "left": left, **said}


def _database(executors: Rows = (), tasks: Rows = (), spans: Rows = (), staging: Rows = (), queues: Rows = ()) -> Any:
    tables = (("from staging", staging), ("from spans", spans), ("from tasks", tasks), ("from queues", queues))

    def ask(statement: str) -> Rows:
        for word, rows in tables:
            if word in statement:
                return rows
        return executors

    return ask


def _task(host: str, seconds: float, command: str = "solve") -> dict[str, Any]:
    return {"name": "", "command": command, "host": host, "seconds": seconds, "cores": 1}


def test_hosts_that_are_there_count_and_else_those_that_were() -> None:
    executors = [
        _executor("lab", "l1", 4, memory=8_000_000_000),
        _executor("lab", "l2", 4, memory=8_000_000_000),
        _executor("lab", "old", 4, left=5.0),
        _executor("cluster", "c1", 16, left=9.0),
        _executor("cluster", "c1", 16, left=7.0),  # the same host, earlier
        _executor("cluster", "c2", 32, left=9.0),
        _executor("big", "b1", 2),
        _executor("big", "b1", 2),  # two executors share a host
    ]
    platform = read_platform(platform_text(measured_sites(_database(executors))))
    shapes = {name: (site.hosts, site.cores, site.memory) for name, site in platform.site.items()}
    assert shapes == {
        "lab": (2, 4, 8_000_000_000), "cluster": (1, 16, 0), "cluster-2": (1, 32, 0), "big": (1, 4, 0),
    }  # fmt: skip
    assert platform.home is None


def test_speeds_come_from_tasks_that_ran_on_several_hosts() -> None:
    tasks = (
        [_task("fast", 1.0)] * 3 + [_task("slow", 4.0)] * 3 + [_task("other", 9.0)] * 2 + [_task("fast", 7.0, "x")] * 5
    )
    executors = [_executor("lab", name, 1) for name in ("fast", "slow", "other")]
    found = measured_sites(_database(executors, tasks))
    assert dict(found.speeds) == {"fast": pytest.approx(2.0), "slow": pytest.approx(0.5)}  # too few on the other
    assert read_platform(platform_text(found)).site["lab"].speed == [0.5, 2.0]
    assert speeds_of({"a": {"h": [1, 1, 1]}}, ["h"]) == {}  # nothing to compare with


def test_links_come_from_tasks_whose_inputs_came_one_way() -> None:
    def staged(site: str, seconds: float, origin: int, peers: int) -> dict[str, Any]:
        return {"site": site, "seconds": seconds, "origin": origin, "peers": peers, "cached": 0}

    staging = [staged("lab", 1.0, 1_000_000 * n, 0) for n in (1, 8, 10, 12)]  # the link was shared at first
    staging += [staged("lab", 1.0, 0, 50_000_000)] * 3 + [staged("lab", 1.0, 99_000_000, 99_000_000)] * 9
    staging += [staged("far", 1.0, 2_000_000, 0)] * 2 + [staged("lab", 1.0, 5, 0)] * 9
    found = measured_sites(_database([_executor("lab", "l1", 1), _executor("far", "f1", 1)], staging=staging))
    platform = read_platform(platform_text(found, {"lab": [10.0, 30.0]}))
    lab, far = platform.site["lab"], platform.site["far"]
    assert lab.uplink is not None
    assert lab.nic is not None
    assert platform.home is not None
    assert (lab.uplink.bandwidth, lab.nic.bandwidth) == (11_000_000, 50_000_000)
    assert platform.home.bandwidth == 11_000_000
    assert (far.uplink, far.nic) == (None, None)  # two transfers are too few
    assert "the median of 2 pilots is 20 s" in platform_text(found, {"lab": [10.0, 30.0]})
    assert lab.queue is not None
    assert lab.queue.waits == [10.0, 30.0]
    assert far.queue is None


def test_simulated_pilots_wait_as_those_did_that_were_measured() -> None:
    found = measured_sites(_database([_executor("lab", "l1", 1), _executor("lab", "l2", 1)]))
    platform = read_platform(platform_text(found, {"lab": [40.0]}))
    (run,) = simulate(Workload("two", [SimulatedTask("t", 10.0)] * 2), platform, ["fifo"]).runs
    assert run.makespan == pytest.approx(50.0)


def test_how_pilots_come_and_go_is_in_the_definition_of_their_site() -> None:
    executors = [_executor("lab", "l1", 2), _executor("cluster", "c1", 8), _executor("desk", "d1", 1)]
    definitions = {
        "cluster": SiteSpec(
            batch="slurm", max_pilots=50, idle=300.0, walltime=7200.0, cache_size=10**9, eviction="lfu"
        ),
        "desk": SiteSpec(kind="local", idle=0.0),
    }
    found = measured_sites(_database(executors))
    platform = read_platform(platform_text(found, {"cluster": [10.0, 30.0]}, definitions))
    cluster, desk, lab = (platform.site[name] for name in ("cluster", "desk", "lab"))
    assert cluster.queue == BatchQueueSpec(idle=300.0, walltime=7200.0, waits=[10.0, 30.0])
    assert (cluster.hosts, desk.hosts) == (50, 1)  # as many pilots as there may be
    assert (cluster.cache_bytes, cluster.eviction) == (1e9, "lfu")
    assert desk.queue == BatchQueueSpec(idle=0.0)  # its hosts stay, and their jobs have no end
    assert lab.queue is None  # they were started by hand
    assert platform.transfers.outputs == "home"


def test_what_hosts_have_and_all_of_them_say_of_themselves_is_there() -> None:
    gpu = {"gpus": 2, "resources": '{"a license":3}'}
    executors = [
        _executor("lab", "l1", 4, attributes='{"os":"linux","cpu":["avx2","sse"],"disk_gb":50.5}', **gpu),
        _executor("lab", "l2", 4, attributes='{"os":"linux","cpu":["avx2","sse"],"disk_gb":40}', **gpu),
        _executor("lab", "l3", 4, attributes='{"os":"linux"}'),
    ]
    sites = read_platform(platform_text(measured_sites(_database(executors)))).site
    first, second = sites["lab"], sites["lab-2"]
    assert (first.hosts, first.gpus, first.resources) == (2, 2.0, {"a license": 3.0})
    assert first.attributes == {"os": "linux", "cpu": ("avx2", "sse")}  # their disks differ
    assert (second.hosts, second.gpus, second.attributes) == (1, 0.0, {"os": "linux"})


def test_named_queues_are_there_with_the_limits_that_they_were_given_last() -> None:
    queues = [
        {"queue": "night", "limits": '{"max_cores":4}'},
        {"queue": "gone", "limits": "{}"},
        {"queue": "night", "limits": '{"max_cores":8,"sites":["lab"],"share":2.5}'},
        {"queue": "gone", "limits": None},
    ]
    found = measured_sites(_database([_executor("lab", "l1", 1)], queues=queues))
    assert read_platform(platform_text(found)).queue == {"night": QueueSpec(max_cores=8, sites=("lab",), share=2.5)}


def test_names_are_quoted_and_nothing_seen_is_said() -> None:
    text = platform_text(measured_sites(_database([_executor("a.b c", "h", 1)])))
    assert '[site."a.b c"]' in text
    strange = 'a"\\\n\x7f'
    assert set(read_platform(platform_text(measured_sites(_database([_executor(strange, "h", 1)])))).site) == {strange}
    with pytest.raises(UserError, match="no executor was seen"):
        platform_text(measured_sites(_database()))
