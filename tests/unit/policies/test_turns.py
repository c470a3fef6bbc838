"""What comes before data, under every policy that looks at data: priorities, fair shares, and the turn of who waits."""

from __future__ import annotations

from random import Random

import pytest

from bough.core.scheduling.view import StateView
from bough.model.arrays.element_reads import pack_reads
from bough.model.events import facts, news
from bough.model.ids import ExecutorId, GroupId, RecordId
from bough.model.sites.resources import Needs
from bough.model.tasks import Page
from bough.testing.builders import array, submit, task
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


def others(shop: DataBench, *numbers: int) -> None:
    """Loose tasks of another workflow, which read the file that all read."""
    shop.tell(submit(*(task(number, group=GroupId(7), reads=("/shared",)) for number in numbers), request=1))


@pytest.mark.parametrize("held", [(), ("shared",)])
@pytest.mark.parametrize("contest", ["workflows", "priorities"])
@pytest.mark.parametrize(
    ("tie", "order"),
    [("last", [3, 3, 3, 3, 2, 2]), ("round-robin", [1, 2, 3, 1, 2, 3]), ("least-loaded", [1, 2, 3, 1, 2, 3])],
)
def test_ties_between_sites_are_settled_alike_where_several_compete(
    tie: str, order: list[int], contest: str, held: tuple[str, ...]
) -> None:
    shop = DataBench(f"storage-affinity:tie={tie}")
    for number in (1, 2, 3):
        shop.executor(number, *held, cores=4, site=f"site{number}")
    shop.bench.submit(*(task(100 + number, needs=Needs(cores=4)) for number in (1, 2, 3)))
    for number in range(1, 4):
        shop.submit(number, "shared", priority=5 if contest == "priorities" else 0)
    if contest == "workflows":
        shop.tell(facts.RunOpened(2, "other", "h", 1, group=GroupId(7)))
        others(shop, 4, 5, 6)
    else:
        for number in range(4, 7):
            shop.submit(number, "shared")
    assert shop.went == {}
    assert shop.machine.state.affinity is not None
    shop.tell(*(news.WorkSucceeded(shop.bench.span(100 + number), 0, 1, 1.0) for number in (1, 2, 3)))
    assert list(shop.went.values()) == order
    if contest == "priorities":
        assert [record for record, _ in shop.went][:3] == [1, 2, 3]
    else:
        assert {record for record, _ in list(shop.went)[:2]} & {4, 5, 6}


def test_a_random_tie_between_sites_counts_where_several_compete_too() -> None:
    shop = DataBench("storage-affinity:tie=random")
    for number in (1, 2, 3):
        shop.executor(number, cores=20, site=f"site{number}")
    shop.bench.submit(task(100, priority=1))  # from now on there are priorities
    for number in range(1, 31):
        shop.submit(number, "shared")
    assert {*shop.went.values()} == {1, 2, 3}


def test_where_several_compete_the_site_with_most_of_a_task_has_it_and_no_tie_counts() -> None:
    shop = DataBench("storage-affinity:tie=last")
    shop.sizes["big"] = 1000
    for number, held in ((1, ("big", "small")), (2, ("small",)), (3, ())):
        shop.executor(number, *held, cores=4, site=f"site{number}")
    shop.bench.submit(*(task(100 + number, needs=Needs(cores=4), priority=9) for number in (1, 2, 3)))
    for number, reads in ((1, ("big", "small")), (2, ("small",)), (3, ("none",))):
        shop.submit(number, *reads)
    assert shop.went == {}
    shop.tell(*(news.WorkSucceeded(shop.bench.span(100 + number), 0, 1, 1.0) for number in (1, 2, 3)))
    assert shop.went == {(1, 0): 1, (2, 0): 2, (3, 0): 3}  # of the two that have the small one the last


def test_a_site_without_room_left_for_a_task_leaves_it_to_others_where_several_compete() -> None:
    shop = DataBench("storage-affinity:tie=last")
    for number in (1, 2):
        shop.executor(number, cores=4 if number == 1 else 2, site=f"site{number}")
    shop.bench.submit(task(101, needs=Needs(cores=4), priority=9), task(102, needs=Needs(cores=2), priority=9))
    shop.submit(1, "shared", needs=Needs(cores=3))
    shop.submit(2, "shared", priority=5)
    shop.tell(*(news.WorkSucceeded(shop.bench.span(100 + number), 0, 1, 1.0) for number in (1, 2)))
    assert shop.went == {(2, 0): 2, (1, 0): 1}


def test_whether_workflows_compete_is_answered_alike_while_somebody_looks_at_all_of_one() -> None:
    shop = busy("bough", "x")
    shop.submit(50, "x")
    shop.tell(facts.RunOpened(2, "other", "h", 1, group=GroupId(70)))
    shop.tell(submit(task(2, group=GroupId(70)), request=1))
    view = StateView(shop.machine.state, 0.0, Random(1))
    data = view.data
    assert data is not None
    assert data.is_contested
    looked = 0
    for _ in view.ready():
        looked += 1
        assert data.is_contested, "what a scan holds is ready all the same"
    assert looked == 2
    view.give_back()
    assert data.is_contested


@pytest.mark.parametrize("policy", [*AWARE, "mct", "min-min", "xsufferage", "heft"])
@pytest.mark.parametrize("fed", [False, True])
def test_elements_without_inputs_of_an_array_that_has_some_wait_for_nobody(policy: str, *, fed: bool) -> None:
    shop = DataBench(policy)
    shop.sizes["a"] = 10**9
    shop.executor(1, "a")
    shop.executor(2)
    shop.tell(news.BytesMoved(ExecutorId(2), "host1", 1_000_000, 1.0))
    shop.bench.submit(task(101), task(102))
    shop.submit(1, "a")
    reads: list[list[str]] = [[], ["/a"], [], []]
    if fed:
        shop.tell(submit(array(2, 0, open=True, fed=True, pages=()), request=1))
        shop.tell(news.PagesAdded(RecordId(2), [Page(0, 1, b"rows")]))
        shop.tell(news.PagesAdded(RecordId(2), [Page(1, 4, b"rows", reads=pack_reads(reads[1:]))]))
    else:
        shop.tell(submit(array(2, 4, reads=pack_reads(reads)), request=1))
    for _ in range(6):  # the first executor is busy all the time
        shop.bench.now += 1.0
        there = [span for span in shop.machine.state.spans.values() if span.executor.id == 2]
        shop.tell(*(news.WorkSucceeded(span.id, *span.left[0], 1.0) for span in there))
    assert {(2, 0), (2, 2), (2, 3)} <= shop.went.keys()
