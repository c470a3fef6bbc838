"""The heuristics of `spec/storage-affinity.md` 3.4 to 3.7: which task goes first, and where."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from bough.core.data.estimates import Basis
from bough.core.scheduling.view import StateView
from bough.model.arrays.element_reads import pack_reads
from bough.model.events import facts, news
from bough.model.ids import ExecutorId
from bough.model.outcomes import Detail, Output
from bough.policy.batch_heuristics import Table
from bough.testing.builders import array, limits, submit, task
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
    shop.went = {(span.record.id, 0): span.executor.id for span in shop.machine.state.spans.values()}
    for number, other in ((1, "host2"), (2, "host1")):
        shop.tell(news.BytesMoved(ExecutorId(number), other, 10_000_000, 1.0))
    shop.tell(submit(task(1, limits=limits(walltime=2.0)), request=1))
    shop.submit(2, "far", limits=limits(walltime=2.0))
    ends = (news.WorkSucceeded(shop.bench.span(number), 0, 1, 1.0) for number in (101, 102))
    shop.tell(*ends)
    return shop


@pytest.mark.parametrize(
    "policy",
    [
        "xsufferage",
        "xsufferage:link=serial",
        "xsufferage:link=fair-share",
        "xsufferage:info=snapshot",
        "xsufferage:info=oracle",
        "xsufferage:info=noisy,sigma=0.1",
    ],
)
def test_the_task_that_would_suffer_most_has_its_choice(policy: str) -> None:
    shop = two_hosts(policy)
    assert (shop.went.get((2, 0)), shop.went.get((1, 0))) == (1, 2)


def test_sufferage_knows_of_processors_and_not_of_data() -> None:
    shop = two_hosts("sufferage")
    assert (shop.went.get((1, 0)), shop.went.get((2, 0))) == (1, 2)


def test_in_order_the_first_task_takes_the_place_and_the_other_waits_for_it() -> None:
    shop = two_hosts("mct")
    assert shop.went.get((1, 0)) == 1
    assert (2, 0) not in shop.went  # two seconds are less than ten
    shop.end(1)
    assert shop.went[2, 0] == 1


def test_data_only_goes_by_bytes() -> None:
    assert two_hosts("data-only").went[2, 0] == 1


@pytest.mark.parametrize(("window", "first"), [(24, 3), (3, 3), (2, 1)])
def test_only_the_tasks_in_the_window_are_compared(window: int, first: int) -> None:
    shop = lined_up(f"min-min:window={window}")
    shop.executor(1)
    assert [number for number, _ in shop.went] == [first]


@pytest.mark.parametrize("policy", ["heft", "fpltf", "ljf", "critical-path"])
@pytest.mark.parametrize("reads", [(), ("x",)])
def test_the_longest_of_many_is_found_wherever_it_stands_in_the_queue(policy: str, reads: tuple[str, ...]) -> None:
    shop = DataBench(policy)
    files = tuple(f"/{name}" for name in reads)
    lengths = [*[1.0] * 40, 9.0]
    items = [
        task(number, reads=files, template=f"t{number}", limits=limits(walltime=seconds))
        for number, seconds in enumerate(lengths, 1)
    ]
    shop.tell(submit(*items, request=1))
    shop.executor(1)
    assert [number for number, _ in shop.went] == [len(lengths)]


@pytest.mark.parametrize(("order", "in_order"), [("index", True), ("random", False)])
def test_the_workqueue_takes_tasks_in_order_or_any_of_the_first(order: str, *, in_order: bool) -> None:
    for name in ("workqueue", "wqr"):
        shop = DataBench(f"{name}:order={order}")
        for number in range(1, 31):
            shop.tell(submit(task(number), request=1))
        shop.executor(1)
        begun = []
        for _ in range(30):
            begun.append(next(iter(shop.machine.state.spans.values())).record.id)
            shop.end(begun[-1])
        assert sorted(begun) == list(range(1, 31))
        assert (begun == sorted(begun)) == in_order


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
    times = [affinity.expected_on(record, 0, f"host{where[number, 0]}") for number in (1, 2)]
    assert [seconds for seconds, _ in times] == pytest.approx([4.0, 8.0])
    assert {basis for _, basis in times} == {Basis.HOST}
    assert affinity.expected_on(record, 0, "host9") == (record.expected, Basis.TEMPLATE)


def ran_by_size(shop: DataBench, sizes: dict[str, int]) -> None:
    """Tasks of one template run for a second for each megabyte of their input, and a second besides."""
    shop.sizes.update(sizes)
    for number, name in enumerate(sizes, 1):
        spec = task(number, reads=(f"/{name}",), template="t")
        shop.tell(submit(spec, request=1))
        shop.tell(*shop._known_first([name]))
        shop.end(number, seconds=1.0 + shop.sizes[name] / 1e6)


def test_run_times_follow_the_size_of_the_input_where_it_tells_them() -> None:
    shop = DataBench("mct")
    shop.executor(1)
    ran_by_size(shop, {f"f{number}": number * 1_000_000 for number in range(1, 13)})
    affinity, state = shop.machine.state.affinity, shop.machine.state
    here = [affinity.expected_on(state.records[number], 0, "host1") for number in (2, 12)]
    assert [seconds for seconds, _ in here] == pytest.approx([3.0, 13.0])
    assert {basis for _, basis in here} == {Basis.SIZE_HERE}
    seconds, basis = affinity.expected_on(state.records[2], 0, "host9")
    assert (pytest.approx(seconds), basis) == (3.0, Basis.SIZE)
    shop.sizes["big"] = 20_000_000
    shop.tell(submit(task(98), request=1))  # somebody has the core
    shop.tell(submit(task(99, reads=("/big",), template="t"), request=1))
    assert affinity.expected_on(state.records[99], 0, "host1")[1] is Basis.HOST  # its size is not known
    shop.tell(*shop._known_first(["big"]))
    assert affinity.expected_on(state.records[99], 0, "host1")[0] == pytest.approx(21.0)
    said = "it is expected to run for 21 s: by the size of its input, as such tasks ran on any host"
    assert shop.machine.explain(99)[-1] == said


def test_explain_says_where_an_estimate_comes_from_and_that_there_is_none() -> None:
    shop = DataBench("mct")
    shop.executor(1)
    shop.tell(submit(task(1, template="t"), task(2, template="t", limits=limits(walltime=7.0)), request=1))
    assert "nobody knows how long it runs" in shop.machine.explain(1)[-1]
    assert shop.machine.explain(2)[-1] == "it is expected to run for 7 s: the estimate that it was submitted with"
    shop.end(1, seconds=4.0)
    assert shop.machine.explain(2)[-1] == "it is expected to run for 4 s: the mean of such tasks on host1"
    shop.tell(submit(task(3, template="t"), request=1))
    assert shop.machine.explain(3)[-1] == "it is expected to run for 4 s: the mean of such tasks on any host"
    for policy in ("fifo", "ljf"):
        other = DataBench(policy)
        other.executor(1)
        other.tell(submit(task(1), request=1))
        assert ("nobody knows" in other.machine.explain(1)[-1]) == (policy == "ljf")


def planned_for_both(plan: str) -> DataBench:
    """Two executors are busy, and two long tasks wait, each of which is planned for one of them."""
    shop = DataBench(f"xsufferage:plan={plan}")
    shop.executor(1, site="one")
    shop.executor(2, site="two")
    shop.bench.submit(task(101), task(102))
    shop.went = {(span.record.id, 0): span.executor.id for span in shop.machine.state.spans.values()}
    for number in (1, 2):
        shop.submit(number, "near", limits=limits(walltime=10.0))
    return shop


def on_executor(shop: DataBench, number: int) -> int:
    """The task that an executor runs."""
    return next(span.record.id for span in shop.machine.state.spans.values() if span.executor.id == number)


@pytest.mark.parametrize(("plan", "waits"), [("static", True), ("on-event", False)])
def test_a_static_plan_is_kept_also_if_the_other_executor_is_free_first(plan: str, waits: bool) -> None:
    shop = planned_for_both(plan)
    shop.end(on_executor(shop, 1))
    shop.end(on_executor(shop, 1))
    placed = sorted(number for number, _ in shop.went if number < 100)
    assert len(placed) == (1 if waits else 2)


def test_a_static_plan_is_made_anew_for_an_executor_that_has_left() -> None:
    shop = planned_for_both("static")
    planned = shop.machine.state.affinity.notes(shop.machine.state.run).assigned
    assert sorted(where for where, _ in planned.values()) == [1, 2]
    shop.end(on_executor(shop, 1))
    assert [where for where, _ in planned.values()] == [2]
    shop.tell(facts.ExecutorLost(ExecutorId(2), "its host is down"))
    shop.end(on_executor(shop, 1))
    shop.end(on_executor(shop, 1))
    assert {(1, 0), (2, 0)} <= shop.went.keys()


@pytest.mark.parametrize("reads", [(), ("near",)])
def test_a_static_plan_fills_all_executors_in_one_turn_also_more_than_a_table_has(reads: tuple[str, ...]) -> None:
    shop = DataBench("xsufferage:plan=static")
    for number in range(1, 41):
        shop.executor(number, site=f"s{number % 2}")
    each = pack_reads([[f"/{name}" for name in reads]] * 100)
    shop.tell(submit(array(1, 100, reads=each), request=1))
    assert len(set(shop.went.values())) == 40


def test_a_snapshot_stays_what_it_was_and_a_forecast_follows_what_is_measured() -> None:
    for info, expected in (("snapshot", 1), ("forecast", 2)):
        shop = DataBench(f"xsufferage:info={info}")
        shop.executor(1, site="one")
        shop.executor(2, site="two")
        shop.bench.submit(task(101), task(102))
        shop.went = {(101, 0): 1, (102, 0): 2}
        affinity = shop.machine.state.affinity
        shop.submit(1, "x")
        record = shop.machine.state.records[1]
        affinity.note_runtime(record, "host1", 0, 1, 1.0)
        affinity.note_runtime(record, "host2", 0, 1, 5.0)
        shop.tell(*shop.drained(1), *shop.drained(2))
        shop.tell(*(news.WorkSucceeded(shop.bench.span(number), 0, 1, 1.0) for number in (101, 102)))
        view = StateView(shop.machine.state, shop.machine.state.now, Random(1))
        table = Table(view, view.estimates, 24, info=info)
        table.executors, table.free_in = list(shop.machine.state.executors.values()), [0.0, 0.0]
        assert table.best(0) == 0
        for _ in range(30):
            affinity.note_runtime(record, "host1", 0, 1, 60.0)
        table = Table(view, view.estimates, 24, info=info)
        table.executors, table.free_in = list(shop.machine.state.executors.values()), [0.0, 0.0]
        assert table.best(0) == expected - 1


def test_an_oracle_knows_how_long_tasks_will_run() -> None:
    shop = DataBench("xsufferage:info=oracle")
    state = shop.machine.state
    state.policies = replace(state.policies, foresight=lambda record, index, host: {"host1": 9.0}.get(host, 1.0))
    shop.executor(1, site="one")
    shop.executor(2, site="two")
    shop.submit(1, "x", limits=limits(walltime=1.0))
    assert shop.went[1, 0] == 2


def test_sizes_of_outputs_are_kept_by_template_and_count_for_the_way_home() -> None:
    shop = DataBench("mct")
    shop.executor(1, site="one")
    shop.executor(2, site="two")
    shop.submit(1, "x")
    made = Output("y", "/y", 30_000_000, 1)
    done = news.WorkSucceeded(shop.bench.span(1), 0, 1, 1.0, None, (Detail(0, outputs=(made,)),))
    shop.tell(done)
    for number, seconds in ((1, 1.0), (2, 10.0)):
        shop.tell(news.BytesMoved(ExecutorId(number), "origin", 10_000_000, seconds))
    shop.tell(*shop.drained(1), *shop.drained(2))
    shop.tell(submit(task(3, template="t1", reads=("/x",)), request=1))
    view = StateView(shop.machine.state, shop.machine.state.now, Random(1))
    [waiting] = view.estimates.candidates(5)
    assert view.estimates.expected_output(waiting) == 30_000_000
    times = [view.estimates.return_time(waiting, one) for one in shop.machine.state.executors.values()]
    assert times == pytest.approx([3.0, 30.0])
    twin = shop.bench.twin.state.affinity
    assert twin.expected_output(shop.bench.twin.state.records[3]) == 30_000_000  # a replay knows it, too
