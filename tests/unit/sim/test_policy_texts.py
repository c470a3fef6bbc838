"""Policies as people write them: lists with options, replication by a plus, and what is no policy."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.policies.replication.wqr import Wqr
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import one_site, read_platform
from bough.sim.policy_texts import compared, load_compared, read_list
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

EIGHT = Workload("eight", [SimulatedTask(f"t{n}", 10.0) for n in range(8)])
SLOW = read_platform("[site.fast]\nhosts = 3\n[site.slow]\nspeed = 0.1\n")


def test_a_part_without_a_name_is_an_option_of_the_policy_before_it() -> None:
    said = "good-cache-compute:threshold=0.9,window=5, fifo,,workqueue+wqr:cap=2,age=30s,sjf"
    names = ["good-cache-compute:threshold=0.9,window=5", "fifo", "workqueue+wqr:cap=2,age=30s", "sjf"]
    assert read_list(said) == compared(said) == compared(names) == names


@pytest.mark.parametrize("wrong", ["window=5", "fifo,window=5", "fifo,=5"])
def test_an_option_of_no_policy_is_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="=5"):
        compared(wrong)


def test_every_policy_meets_every_replication_unless_it_names_its_own() -> None:
    assert compared("fifo,workqueue+wqr,sjf+none", "none,tail") == [
        "fifo", "fifo+tail", "workqueue+wqr", "sjf",
    ]  # fmt: skip
    assert compared("fifo,fifo+none", ["none"]) == ["fifo"]
    assert isinstance(load_compared("fifo+wqr:cap=2").replication, Wqr)
    assert compared("storage-affinity+none,wqr", "none") == ["storage-affinity+none", "wqr+none"]
    assert compared("storage-affinity,wqr,fifo") == ["storage-affinity", "wqr", "fifo"]
    assert load_compared("storage-affinity").replication is not None  # as live
    assert load_compared("storage-affinity+none").replication is None


@pytest.mark.parametrize(
    ("policies", "replication", "said"),
    [
        ("", "none", "no policy is named"),
        ([], "none", "no policy is named"),
        ("fifo", "", "no replication policy is named"),
        ("fifo", "wqrr", "no replication policy 'wqrr'"),
        ("fifo+wqrr", "none", "no replication policy 'wqrr'"),
        (["fifo,sjf"], "none", "no placement policy 'fifo,sjf'"),
        ([3], "none", "policies: 3 is no name"),
        (3, "none", "policies: 3 is no name"),
        ("fifo", 3, "replication: 3 is no name"),
    ],
)
def test_what_names_no_policy_is_said(policies: str, replication: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        compared(policies, replication)


def test_replicas_run_in_an_experiment_and_their_waste_is_counted() -> None:
    """As in `test_replicated_runs`: the slow host takes 100 s for the task that another one runs again from 20 s on."""
    alone, again = simulate(EIGHT, SLOW, "workqueue", replication="none,wqr").rows()
    assert (alone.policy, alone.makespan, alone.cpu_waste) == ("workqueue", 100.0, 0.0)
    assert (again.policy, again.makespan) == ("workqueue+wqr", 30.0)
    assert again.cpu_waste == pytest.approx((30.0 + 10.0) / 80.0)


def test_storage_affinity_replicates_unless_it_is_told_not_to() -> None:
    """One task for each site, which both have the file; the slow one holds up the whole, unless it is run again."""
    files = [SimulatedFile("in", 1000)]
    tasks = [SimulatedTask(f"t{n}", 10.0, reads=(0,)) for n in range(2)]
    platform = read_platform("[site.fast]\nstore = 'site'\n[site.slow]\nspeed = 0.1\nstore = 'site'\n")
    two = Workload("two", tasks, files)
    alone, again = simulate(two, platform, "storage-affinity+none,storage-affinity").rows()
    assert (alone.makespan, alone.cpu_waste) == (100.0, 0.0)
    assert again.makespan == 20.0
    assert again.cpu_waste == pytest.approx(1.0)


def test_provisioning_is_chosen_where_pilots_are_asked_for_and_refused_elsewhere() -> None:
    """Each request waits as long as the next of the list says: all hosts come by one request, or by one each."""
    queue = read_platform("[site.a]\nhosts = 4\nqueue = {waits = [60, 70, 80, 90]}\n")
    four = Workload("four", [SimulatedTask(f"t{n}", 100.0) for n in range(4)])
    latest = {
        name: simulate(four, queue, "fifo", provisioning=name).runs[0].provisioning
        for name in ("all-at-once", "one-at-a-time")
    }
    assert latest["all-at-once"] in {60.0, 70.0, 80.0, 90.0}
    assert latest["one-at-a-time"] == 90.0
    assert simulate(four, queue, "fifo") == simulate(four, queue, "fifo", provisioning="adaptive")
    with pytest.raises(UserError, match="no site of the platform has a queue"):
        simulate(four, one_site(2), "fifo", provisioning="static")
    with pytest.raises(UserError, match="no provisioning policy 'statics'"):
        simulate(four, queue, "fifo", provisioning="statics")


def test_bough_replicates_late_tasks_that_write_declared_files_as_it_does_live() -> None:
    """Ten tasks of 20 s, and one of the four hosts is slow: that needs 200 s for its first task. At 60 s the others are
    done. What is expected of a task is known from three of them, and it is late: its replica ends at 80 s."""
    files = [SimulatedFile(f"o{number}", 1) for number in range(10)]
    declared = [SimulatedTask(f"t{number}", 20.0, writes=(number,), template="t") for number in range(10)]
    unsaid = [SimulatedTask(f"t{number}", 20.0, template="t") for number in range(10)]
    usual, alone = simulate(Workload("declared", declared, files), SLOW, "bough,bough+none").rows()
    assert (usual.makespan, alone.makespan) == (80.0, 200.0)
    assert (usual.cpu_waste, alone.cpu_waste) == (pytest.approx(80.0 / 200.0), 0.0)
    usual, alone = simulate(Workload("unsaid", unsaid), SLOW, "bough,bough+none").rows()
    assert usual.makespan == alone.makespan == 200.0
