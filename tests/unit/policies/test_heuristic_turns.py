"""What comes before run times, under policies that go by them: priorities, fair shares, and the turn of who waits."""

from __future__ import annotations

from itertools import count

import pytest

from bough.model.events import facts, news
from bough.model.ids import ExecutorId, GroupId, RecordId
from bough.model.sites.resources import Needs
from bough.model.tasks import Page
from bough.testing.builders import array, limits, submit, task
from tests.unit.policies.data_bench import DataBench

LISTS = ["sjf", "ljf", "critical-path", "heft", "fpltf"]
TABLES = ["min-min", "max-min", "mct", "olb", "sufferage", "xsufferage", "xsufferage:plan=static"]
VICTIM = 5
STEP = 20.0  # seconds between two looks


def busy(policy: str, executors: int = 1) -> DataBench:
    """Each executor has a task, and brings a megabyte in a tenth of a second."""
    shop = DataBench(policy)
    for number in range(1, executors + 1):
        shop.executor(number, f"at{number}", site=f"site{number}")
        shop.tell(news.BytesMoved(ExecutorId(number), "origin", 10_000_000, 1.0))
    shop.bench.submit(*(task(100 + number) for number in range(1, executors + 1)))
    return shop


def step(shop: DataBench) -> None:
    """What runs ends."""
    shop.bench.now += STEP
    shop.tell(*(news.WorkSucceeded(span.id, *span.left[0], 1.0) for span in list(shop.machine.state.spans.values())))


def offer(shop: DataBench, number: int, seconds: float, *, chain: float = 0.0, reads: str = "") -> None:
    """A task that is expected to run for so long, 0: nobody knows; it may have one that waits for it."""
    if reads:
        shop.submit(number, reads, limits=limits(walltime=seconds))
    else:
        shop.tell(submit(task(number, limits=limits(walltime=seconds)), request=1))
    if chain:
        shop.tell(submit(task(number + 100_000, number, limits=limits(walltime=chain)), request=1))


def waited(shop: DataBench, rival: dict[str, object], steps: int = 100) -> float:
    """For how long the victim waits while rivals come as fast as others end; infinite: it is never placed."""
    numbers, begun = count(1000), shop.bench.now
    rivals = len(shop.machine.state.executors)
    for number in range(1, 4 * rivals + 1):
        offer(shop, 900 + number, **rival)  # type: ignore[arg-type]
    for _ in range(steps):
        for number, _ in zip(numbers, range(rivals), strict=False):
            offer(shop, number, **rival)  # type: ignore[arg-type]
        step(shop)
        if (VICTIM, 0) in shop.went:
            return shop.bench.now - begun
    return float("inf")


HOSTILE = [
    ("sjf", 100.0, {"seconds": 1.0}),
    ("sjf", 100.0, {"seconds": 0.0}),
    ("min-min", 100.0, {"seconds": 1.0}),
    ("min-min", 100.0, {"seconds": 0.0}),
    ("ljf", 1.0, {"seconds": 100.0}),
    ("ljf", 0.0, {"seconds": 100.0}),
    ("fpltf", 1.0, {"seconds": 100.0}),
    ("max-min", 1.0, {"seconds": 100.0}),
    ("heft", 1.0, {"seconds": 100.0}),
    ("heft", 1.0, {"seconds": 1.0, "chain": 50.0}),
    ("critical-path", 1.0, {"seconds": 100.0}),
    ("critical-path", 1.0, {"seconds": 1.0, "chain": 50.0}),
]


@pytest.mark.parametrize(("policy", "victim", "rival"), HOSTILE)
def test_nothing_starves_while_tasks_come_that_go_before_it(
    policy: str, victim: float, rival: dict[str, object]
) -> None:
    shop = busy(policy)
    offer(shop, VICTIM, victim)
    assert waited(shop, rival) < 2000.0  # ten times a hundred seconds more of run time, and some luck


@pytest.mark.parametrize(("policy", "victim", "rival"), HOSTILE)
def test_without_ageing_the_policy_is_the_published_one(policy: str, victim: float, rival: dict[str, object]) -> None:
    shop = busy(f"{policy}:ageing=0")
    offer(shop, VICTIM, victim)
    assert waited(shop, rival) == float("inf")


def measure(shop: DataBench, template: str, first: float, others: float) -> None:
    """How long tasks of a template ran on the first of three hosts and on the others, which are busy again."""
    shop.tell(submit(*(task(800 + number, template=template) for number in (1, 2, 3)), request=1))
    step(shop)
    spans = list(shop.machine.state.spans.values())
    assert len(spans) == 3
    shop.bench.submit(*(task(810 + number) for number in (1, 2, 3)))
    ran = {span.id: first if span.executor.id == 1 else others for span in spans}
    shop.tell(*(news.WorkSucceeded(span.id, 0, 1, ran[span.id]) for span in spans))


@pytest.mark.parametrize("policy", ["sufferage", "xsufferage"])
@pytest.mark.parametrize(("ageing", "goes"), [("0.1", True), ("0", False)])
def test_who_suffers_nothing_has_its_turn_among_tasks_that_do(policy: str, ageing: str, *, goes: bool) -> None:
    shop = busy(f"{policy}:ageing={ageing}", executors=3)
    shop.sizes["at1"] = 200_000_000  # it would travel for 20 s
    shop.cache(1, "at1")
    if policy == "sufferage":  # it knows of run times alone: the first host is 20 s faster
        measure(shop, "quick", 5.0, 25.0)
    offer(shop, VICTIM, 5.0)
    for number in range(900, 1000):
        if policy == "sufferage":
            shop.tell(submit(task(number, template="quick"), request=1))
        else:
            offer(shop, number, 5.0, reads="at1")
        shop.bench.now += STEP
        first = [span for span in shop.machine.state.spans.values() if span.executor.id == 1]  # the others are busy
        shop.tell(*(news.WorkSucceeded(span.id, *span.left[0], 1.0) for span in first))
    assert ((VICTIM, 0) in shop.went) == goes


def test_tasks_that_are_ready_together_keep_the_order_of_the_list() -> None:
    for policy, order in (("sjf", [3, 1, 2]), ("ljf", [2, 1, 3])):
        shop = busy(policy)
        for number, seconds in ((1, 5.0), (2, 9.0), (3, 1.0)):
            offer(shop, number, seconds)
        for _ in range(3):
            step(shop)
        assert [number for number, _ in shop.went if number < 10] == order


def fed(start: int) -> news.PagesAdded:
    """One more element of the array that is fed."""
    return news.PagesAdded(RecordId(VICTIM), (Page(start, start + 1, b"x"),))


def test_an_array_that_is_fed_ages_and_leaves_others_their_turn() -> None:
    shop = busy("sjf")
    opened = array(VICTIM, 0, open=True, fed=True, pages=(), limits=limits(walltime=100.0))
    shop.tell(submit(opened, request=1), fed(0))
    went, others = [], 0
    for number in range(1, 170):
        shop.tell(fed(number))
        offer(shop, 1000 + number, 1.0)
        before = set(shop.went)
        step(shop)
        ((record, _),) = set(shop.went) - before
        others += record != VICTIM
        if record == VICTIM:
            went.append(number)
    assert went[0] <= 110  # its elements have waited for half as long on average as the first of them
    assert len(went) > 20
    assert others > 20


@pytest.mark.parametrize("policy", LISTS + TABLES)
@pytest.mark.parametrize("reads", ["", "at1"])
@pytest.mark.parametrize(("high", "low"), [(100.0, 1.0), (1.0, 100.0)])
def test_a_higher_priority_goes_before_any_run_time(policy: str, reads: str, high: float, low: float) -> None:
    shop = busy(policy)
    for number in range(1, 41):
        offer(shop, number, low, reads=reads)
    for number in (50, 51):
        more = {"limits": limits(walltime=high), "priority": 5}
        if reads:
            shop.submit(number, reads, **more)
        else:
            shop.tell(submit(task(number, **more), request=1))
    for _ in range(2):
        step(shop)
    assert {number for number, _ in shop.went if number < 100} == {50, 51}


@pytest.mark.parametrize("policy", LISTS + TABLES)
@pytest.mark.parametrize("reads", ["", "at1"])
@pytest.mark.parametrize(("own", "theirs"), [(100.0, 1.0), (1.0, 100.0)])
def test_workflows_share_cores_evenly_whatever_their_tasks_are_like(
    policy: str, reads: str, own: float, theirs: float
) -> None:
    shop = DataBench(policy)
    shop.executor(1, "at1", cores=3)
    shop.bench.submit(*(task(100 + number) for number in range(1, 4)))
    for number in range(1, 60):
        offer(shop, number, own, reads=reads)
    shop.tell(facts.RunOpened(2, "other", "h", 1, group=GroupId(70)))
    files = (f"/{reads}",) if reads else ()
    others = (
        task(number, group=GroupId(70), limits=limits(walltime=theirs), reads=files, template=f"t{number}")
        for number in range(200, 230)
    )
    shop.tell(submit(*others, request=1))
    for _ in range(20):
        shop.bench.now += 5.0
        span = next(iter(shop.machine.state.spans.values()))
        shop.tell(news.WorkSucceeded(span.id, 0, 1, 1.0))
    begun = [number for number, _ in shop.went if number not in range(101, 104)]
    assert (
        len([number for number in begun if number >= 200]) >= len(begun) // 3
    )  # lists decide for whom a core is that is left over


def test_a_wide_task_whose_turn_it_is_holds_up_no_other_workflow() -> None:
    shop = DataBench("mct")
    shop.executor(1, cores=2)
    shop.executor(2, cores=1)
    shop.bench.submit(task(101, needs=Needs(cores=2)), task(102))
    for number in range(1, 60):
        shop.submit(number, "a")
    shop.tell(facts.RunOpened(2, "other", "h", 1, group=GroupId(70)))
    shop.tell(submit(task(300, group=GroupId(70), needs=Needs(cores=9)), request=1))
    step(shop)
    assert len([number for number, _ in shop.went if number < 60]) == 3


@pytest.mark.parametrize("policy", TABLES)
@pytest.mark.parametrize("reads", ["", "at1"])
def test_no_executor_is_kept_for_a_task_that_others_than_those_of_a_table_would_take(policy: str, reads: str) -> None:
    shop = busy(policy, 60)
    shop.tell(facts.RunOpened(2, "other", "h", 1, group=GroupId(70)))
    files = (f"/{reads}",) if reads else ()
    for group in (GroupId(0), GroupId(70)):
        first = 200 if group else 300
        shop.tell(submit(*(task(one, group=group, reads=files) for one in range(first, first + 60)), request=1))
    step(shop)
    assert len({span.executor.id for span in shop.machine.state.spans.values()}) == 60
