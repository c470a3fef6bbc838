"""What comes before data, under every policy that looks at data: priorities, fair shares, and the turn of who waits."""

from __future__ import annotations

import pytest

from bough.model.events import facts
from bough.model.ids import GroupId
from bough.model.sites.resources import Needs
from bough.testing.builders import submit, task
from tests.unit.policies.data_bench import DataBench

AWARE = [
    "max-cache-hit",
    "max-compute-util",
    "good-cache-compute",
    "bough",
    "data-conscious",
    "storage-affinity",
    "data-only",
]


def busy(policy: str, *held: str, cores: float = 1) -> DataBench:
    """A host that holds files, and is busy with task 101."""
    shop = DataBench(policy)
    shop.executor(1, *held, cores=cores)
    shop.bench.submit(task(101, needs=Needs(cores=cores)))
    shop.went = {(101, 0): 1}
    return shop


def order_of(shop: DataBench, running: int, most: int = 50) -> list[int]:
    """Let one task after the other end; the order in which the others begin."""
    found: list[int] = []
    while len(found) < most:
        before = set(shop.went)
        shop.end(running)
        new = [record for record, _ in set(shop.went) - before]
        if not new:
            break
        (running,) = new
        found.append(running)
    return found


@pytest.mark.parametrize("policy", AWARE)
def test_a_higher_priority_goes_first_with_the_same_data_and_without_any(policy: str) -> None:
    shop = busy(policy, "a")
    for number in range(1, 13):
        shop.submit(number, "a")
    shop.submit(20, "a", priority=100)
    shop.tell(submit(task(21, priority=100), request=1))
    assert set(order_of(shop, 101)[:2]) == {20, 21}


@pytest.mark.parametrize("policy", AWARE)
def test_work_without_inputs_has_its_turn_in_the_queue(policy: str) -> None:
    shop = busy(policy, "a")
    shop.submit(1, "a")
    shop.tell(submit(task(2), request=1))
    for number in range(3, 9):
        shop.submit(number, "a")
    assert 2 in order_of(shop, 101)[:2]


@pytest.mark.parametrize("policy", AWARE)
def test_workflows_share_cores_evenly_wherever_their_data_is(policy: str) -> None:
    shop = busy(policy, "a")
    for number in range(1, 9):
        shop.submit(number, "a")
    shop.tell(facts.RunOpened(2, "other", "h", 1, group=GroupId(7)))
    theirs = range(200, 204)
    shop.tell(submit(*(task(number, group=GroupId(7)) for number in theirs), request=1))
    begun = order_of(shop, 101)
    assert len([number for number in begun[:8] if number in theirs]) >= 3, begun


@pytest.mark.parametrize("policy", AWARE)
def test_who_waits_long_is_not_overtaken_for_ever(policy: str) -> None:
    bound = {"data-conscious": "hold"}.get(policy, "patience")
    shop = busy(f"{policy}:{bound}=30", "a")
    shop.submit(1, "b")
    running = 101
    for number in range(300, 400):
        shop.wait(5)
        shop.submit(number, "a")
        shop.submit(number + 100, "a")
        before = set(shop.went)
        shop.end(running)
        ((running, _),) = set(shop.went) - before
        if running == 1:
            return
    pytest.fail("it never had a turn")


@pytest.mark.parametrize("policy", AWARE)
def test_a_wide_task_is_not_kept_out_by_narrow_ones_with_data(policy: str) -> None:
    shop = DataBench(policy)
    shop.executor(1, "a", cores=2)
    shop.bench.submit(task(101), task(102))
    shop.went = {(101, 0): 1, (102, 0): 1}
    shop.tell(submit(task(1, needs=Needs(cores=2)), request=1))
    for number in range(2, 12):
        shop.submit(number, "a")
    shop.end(101)
    shop.end(102)
    assert (1, 0) in shop.went
    assert not [record for record, _ in shop.went if 2 <= record < 12]


@pytest.mark.parametrize("policy", ["max-compute-util", "bough", "data-only", "storage-affinity"])
def test_who_has_no_data_leaves_an_executor_with_data_to_others(policy: str) -> None:
    shop = DataBench(policy)
    shop.executor(1, "a", site="one")
    shop.executor(2, site="two")
    shop.bench.submit(task(101), task(102))
    shop.went = {(span.record.id, 0): span.executor.id for span in shop.machine.state.spans.values()}
    shop.tell(submit(task(1), request=1))
    shop.submit(2, "a")
    shop.tell(*shop.drained(1), *shop.drained(2))
    shop.end(101)
    shop.end(102)
    shop.tell(*shop.resumed(1), *shop.resumed(2))
    assert (shop.went[2, 0], shop.went[1, 0]) == (1, 2)
