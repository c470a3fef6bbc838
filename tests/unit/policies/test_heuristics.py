"""The heuristics of `spec/storage-affinity.md` 3.4 to 3.7: which task goes first, and where."""

from __future__ import annotations

import pytest

from bough.model.events import news
from bough.model.ids import ExecutorId
from bough.testing.builders import limits, submit, task
from tests.unit.policies.data_bench import DataBench

LENGTHS = {1: 5.0, 2: 9.0, 3: 1.0}  # seconds by task


def lined_up(policy: str) -> DataBench:
    """Three tasks of known length wait for one executor; a chain of two waits for the first."""
    shop = DataBench(policy)
    items = [task(number, limits=limits(walltime=seconds)) for number, seconds in LENGTHS.items()]
    items += [task(4, 1, limits=limits(walltime=20.0)), task(5, 4, limits=limits(walltime=20.0))]
    shop.tell(submit(*items, request=1))
    return shop


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        ("workqueue", 1),
        ("mct", 1),
        ("olb", 1),
        ("min-min", 3),
        ("max-min", 2),
        ("fpltf", 2),
        ("ljf", 2),
        ("sjf", 3),
        ("critical-path", 1),
        ("heft", 1),
    ],
)
def test_which_task_goes_first(policy: str, first: int) -> None:
    shop = lined_up(policy)
    shop.executor(1)
    assert [number for number, _ in shop.went] == [first]


def two_hosts(policy: str) -> DataBench:
    """Executor 1 holds the input of task 2, which would travel for ten seconds; both tasks run for two."""
    shop = DataBench(policy)
    shop.sizes["far"] = 100_000_000
    shop.executor(1, "far", site="one")
    shop.executor(2, site="two")
    shop.bench.submit(task(101), task(102))
    shop.went = {(101, 0): 1, (102, 0): 2}
    for number, other in ((1, "host2"), (2, "host1")):
        shop.tell(news.BytesMoved(ExecutorId(number), other, 10_000_000, 1.0))
    shop.tell(submit(task(1, limits=limits(walltime=2.0)), request=1))
    shop.submit(2, "far", limits=limits(walltime=2.0))
    ends = (news.WorkSucceeded(shop.bench.span(number), 0, 1, 1.0) for number in (101, 102))
    shop.tell(*ends)
    return shop


@pytest.mark.parametrize("policy", ["sufferage", "xsufferage", "xsufferage:link=serial", "xsufferage:link=fair-share"])
def test_the_task_that_would_suffer_most_has_its_choice(policy: str) -> None:
    shop = two_hosts(policy)
    assert (shop.went.get((2, 0)), shop.went.get((1, 0))) == (1, 2)


def test_in_order_the_first_task_takes_the_place_and_the_other_waits_for_it() -> None:
    shop = two_hosts("mct")
    assert shop.went.get((1, 0)) == 1
    assert (2, 0) not in shop.went  # two seconds are less than ten
    shop.end(1)
    assert shop.went[2, 0] == 1


def test_data_only_goes_by_bytes() -> None:
    assert two_hosts("data-only").went[2, 0] == 1


def test_random_is_repeatable_and_uses_all_room() -> None:
    seen = []
    for _ in range(2):
        shop = DataBench("random")
        shop.executor(1, cores=2)
        shop.executor(2, cores=2)
        shop.bench.submit(*(task(number) for number in range(1, 9)))
        spans = shop.machine.state.spans.values()
        seen.append(sorted((span.record.id, span.executor.id) for span in spans))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 4


def test_run_times_are_kept_by_template_and_host() -> None:
    shop = DataBench("mct")
    shop.executor(1)
    shop.executor(2)
    for number in (1, 2):
        shop.tell(submit(task(number, template="t"), request=1))
    where = dict(shop.went)
    for (number, _), seconds in zip(where, (4.0, 8.0), strict=True):
        shop.end(number, seconds=seconds)
    affinity, record = shop.machine.state.affinity, shop.machine.state.records[1]
    times = [affinity.expected_on(record, f"host{where[number, 0]}") for number in (1, 2)]
    assert times == pytest.approx([4.0, 8.0])
    assert affinity.expected_on(record, "host9") == pytest.approx(record.expected)
