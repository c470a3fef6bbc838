"""Policies that look at data: Falkon's five, storage affinity, data-conscious, and our own."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.model.arrays.element_reads import pack_reads
from bough.model.events import facts, news
from bough.model.ids import ExecutorId
from bough.model.outcomes import Cause, Failure
from bough.model.sites.resources import Needs
from bough.model.tasks import Dep, On, TaskExtras
from bough.policies.policy_registry import load_placement, placement_names
from bough.testing.builders import array, submit, task
from tests.unit.policies.data_bench import DataBench, digest

AWARE = ["max-cache-hit", "max-compute-util", "good-cache-compute", "bough", "data-conscious", "storage-affinity"]


def filled(policy: str, **sizes: int) -> DataBench:
    """Two hosts of one core, each busy with a task without inputs; the first holds file a, the second file b."""
    shop = DataBench(policy)
    shop.sizes.update(sizes)
    shop.executor(1, "a", site="s1")
    shop.executor(2, "b", site="s2")
    shop.bench.submit(task(101), task(102))
    shop.went = {(101, 0): 1, (102, 0): 2}
    return shop


@pytest.mark.parametrize("policy", AWARE)
def test_an_executor_that_gets_room_takes_the_task_whose_data_it_has(policy: str) -> None:
    shop = filled(policy)
    shop.submit(1, "b")
    shop.submit(2, "a")
    assert shop.went.keys() == {(101, 0), (102, 0)}
    shop.end(101)
    assert shop.went.get((2, 0)) == 1
    shop.end(102)
    assert shop.went.get((1, 0)) == 2


@pytest.mark.parametrize("policy", AWARE)
def test_what_was_held_and_is_released_goes_where_its_data_is(policy: str) -> None:
    shop = filled(policy)
    shop.tell(news.Hold(Dep(On.GROUP, 0)))
    shop.submit(1, "b")
    shop.submit(2, "a")
    shop.tell(news.Release(Dep(On.GROUP, 0)))
    shop.end(101)
    shop.end(102)
    assert (shop.went[2, 0], shop.went[1, 0]) == (1, 2)


@pytest.mark.parametrize("policy", AWARE)
def test_what_is_sent_for_each_attempt_anew_attracts_no_task_and_keeps_none_from_running(policy: str) -> None:
    shop = filled(policy)
    shop.submit(1, "c", "a", fresh=1)
    shop.submit(2, "b", fresh=1)
    record = shop.machine.state.records[1]
    assert record.reusable_reads == record.own.reads[:1]
    assert not shop.machine.state.records[2].has_inputs
    shop.end(102)
    shop.end(101)
    assert shop.went.keys() >= {(1, 0), (2, 0)}


@pytest.mark.parametrize("policy", ["first-available", "first-cache-available", "fifo"])
def test_what_is_blind_to_data_takes_the_next_task(policy: str) -> None:
    shop = filled(policy)
    shop.submit(1, "b")
    shop.submit(2, "a")
    shop.end(101)
    assert shop.went[1, 0] == 1


@pytest.mark.parametrize("policy", ["max-compute-util", "bough"])
def test_what_is_known_when_a_task_is_submitted_counts_for_its_first_place(policy: str) -> None:
    for known, where in ((True, 2), (False, 1)):
        shop = DataBench(policy)
        shop.sizes["b"] = 10**9
        shop.executor(1, site="s1")
        shop.executor(2, "b", site="s2")
        named = (news.NamedContent("/b", digest("b"), 10**9),) if known else ()
        run = shop.machine.state.run
        shop.tell(submit(task(1, reads=("/b",)), request=1), news.FilesIdentified(run, (), named))
        assert shop.went[1, 0] == where


def test_the_baseline_uses_no_cache_and_the_other_does() -> None:
    assert load_placement("first-available").uses_caches is False
    assert load_placement("first-cache-available").uses_caches is True


# --- falkon.md 3.2: if the preferred executor is busy, and what an executor without useful task does ------


def test_max_cache_hit_waits_for_the_busy_holder() -> None:
    shop = filled("max-cache-hit")
    shop.submit(1, "b")
    shop.end(101)
    assert (1, 0) not in shop.went
    shop.end(102)
    assert shop.went[1, 0] == 2


def test_max_cache_hit_lets_go_anywhere_what_nobody_holds_and_what_has_no_inputs() -> None:
    shop = filled("max-cache-hit")
    shop.submit(1, "b")
    shop.submit(2, "c")
    shop.end(101)
    assert shop.went[2, 0] == 1
    shop.bench.submit(task(3))
    shop.end(2)
    assert shop.bench.machine.state.records[3].state == 3


def test_max_cache_hit_forgets_a_holder_that_has_left() -> None:
    shop = filled("max-cache-hit")
    shop.submit(1, "b")
    shop.end(101)
    assert (1, 0) not in shop.went
    shop.tell(facts.ExecutorLost(ExecutorId(2), "gone"))
    assert shop.went[102, 0] == 1  # it had run there, and is tried again first
    shop.end(102)
    assert shop.went[1, 0] == 1


def test_max_cache_hit_lets_go_what_the_holder_has_thrown_away() -> None:
    shop = filled("max-cache-hit")
    shop.submit(1, "b")
    shop.end(101)
    shop.cache(2, lost=["b"])
    assert shop.went[1, 0] == 1


def test_max_cache_hit_waits_no_longer_than_its_patience() -> None:
    shop = filled("max-cache-hit:patience=30")
    shop.submit(1, "b")
    shop.end(101)
    for seconds in (28, 0.5, 0.5):  # by then both executors were looked at, whether something is to be announced
        shop.wait(seconds)
    assert (1, 0) not in shop.went
    assert shop.machine.next_timer == 30
    shop.wait(1)
    assert shop.went[1, 0] == 1


@pytest.mark.parametrize("policy", ["max-cache-hit:patience=30", "good-cache-compute:threshold=0,patience=30"])
def test_what_fits_nowhere_keeps_nobody_behind_it_waiting_for_ever(policy: str) -> None:
    shop = filled(policy)
    shop.submit(1, "b", needs=Needs(cores=1, gpus=1))
    shop.submit(2, "b", needs=Needs(cores=1, gpus=1))
    shop.submit(3, "b")
    shop.end(101)
    assert (3, 0) not in shop.went
    shop.wait(31)
    assert shop.went[3, 0] == 1


@pytest.mark.parametrize("policy", ["max-cache-hit:patience=30", "data-conscious:hold=30"])
def test_a_task_with_inputs_is_not_kept_out_by_work_without_any_that_keeps_coming(policy: str) -> None:
    shop = filled(policy)
    shop.submit(1, "b")
    running = [101, 102]
    for number in range(300, 400, 2):
        shop.wait(5)
        shop.bench.submit(task(number), task(number + 1))
        ended = [news.WorkSucceeded(shop.bench.span(one), 0, 1, 1.0) for one in running]
        shop.tell(*ended)
        running = [span.record.id for span in shop.machine.state.spans.values()]
        if 1 in running:
            return
    pytest.fail("it never had a turn")


def test_good_cache_compute_gives_work_without_inputs_to_anybody_also_behind_what_waits() -> None:
    shop = filled("good-cache-compute:threshold=0")
    shop.submit(1, "b")
    shop.submit(2)
    shop.end(101)
    assert shop.went == {(101, 0): 1, (102, 0): 2, (2, 0): 1}


@pytest.mark.parametrize("policy", ["max-cache-hit", "good-cache-compute:threshold=0", "bough:delay=20"])
@pytest.mark.parametrize("why", ["needs", "leaves", "place"])
def test_nobody_waits_for_a_place_that_could_never_run_the_task(policy: str, why: str) -> None:
    shop = DataBench(policy)
    shop.executor(1, "a")
    shop.tell(facts.ExecutorJoined(ExecutorId(2), "local", "host2", 1, Needs(cores=1, gpus=1)))
    shop.bench.submit(task(101), task(102))
    shop.went = {(101, 0): 1, (102, 0): 2}
    wants = {"needs": Needs(cores=1, gpus=1)} if why == "needs" else {}
    shop.submit(1, "a", extras=TaskExtras(host="host2" if why == "place" else ""), **wants)
    if why == "leaves":
        shop.tell(facts.ExecutorDrained(ExecutorId(1)))
    shop.end(102)
    assert shop.went[1, 0] == 2


@pytest.mark.parametrize(
    "policy", ["max-cache-hit", "good-cache-compute:threshold=0", "bough:delay=20", "data-conscious:age=0"]
)
@pytest.mark.parametrize("is_array", [False, True])
def test_a_task_that_failed_for_reasons_of_its_place_is_not_left_to_that_place(policy: str, *, is_array: bool) -> None:
    shop = DataBench(policy)
    shop.executor(1)
    if is_array:
        shop.tell(submit(array(1, 1, reads=pack_reads([["/a"]])), request=1))
    else:
        shop.submit(1, "a")
    shop.tell(*shop._known_first(["a"]))
    shop.executor(2)
    shop.bench.submit(task(2))
    shop.cache(1, "a")
    shop.bench.now += 1.0
    failure = Failure(Cause.NOT_STARTED, "a library is missing there", site=True)
    shop.tell(news.WorkFailed(shop.bench.span(1), 0, failure))
    shop.bench.now += 1.0
    assert shop.went == {(1, 0): 1}
    shop.tell(news.WorkSucceeded(shop.bench.span(2), 0, 1, 1.0))
    assert shop.went == {(1, 0): 2}


def test_max_cache_hit_prefers_the_place_with_more_files() -> None:
    shop = filled("max-cache-hit")
    shop.cache(2, "x", "y")
    shop.cache(1, "x")
    shop.submit(1, "x", "y")
    shop.end(101)
    assert (1, 0) not in shop.went
    shop.end(102)
    assert shop.went[1, 0] == 2


def test_max_compute_util_uses_another_free_executor() -> None:
    shop = filled("max-compute-util")
    shop.submit(1, "b")
    shop.end(101)
    assert shop.went[1, 0] == 1


@pytest.mark.parametrize(("threshold", "placed"), [(0, False), (0.4, False), (0.5, False), (0.6, True), (1, True)])
def test_good_cache_compute_goes_by_how_many_are_busy(threshold: float, placed: bool) -> None:
    shop = filled(f"good-cache-compute:threshold={threshold}")
    shop.submit(1, "b")
    shop.end(101)  # half of the cores are busy
    assert ((1, 0) in shop.went) is placed


def test_bytes_or_files_count() -> None:
    for by, expected in (("files", 1), ("bytes", 2)):
        shop = DataBench(f"max-compute-util:by={by}")
        shop.sizes.update(big=1000, small=1, tiny=1)
        shop.executor(1)
        shop.executor(2)
        shop.bench.submit(task(101), task(102))
        shop.went = {(101, 0): 1, (102, 0): 2}
        shop.cache(1, "small", "tiny")
        shop.cache(2, "big")
        shop.submit(1, "big", "small", "tiny")
        data = shop.machine.state.affinity
        unit = next(iter(data.units.values()))
        amounts = data.holders(unit)
        best = max(amounts, key=amounts.__getitem__)
        assert best == f"local/host{expected}"


# --- our own ----------------------------------------------------------------------------------------------


def test_ours_waits_for_a_busy_holder_only_while_that_is_shorter_than_moving_the_data() -> None:
    for size, waits in ((1_000_000, False), (100_000_000, True)):
        shop = filled("bough", b=size)
        shop.bench.now = 0.0
        shop.tell(news.BytesMoved(ExecutorId(1), "host2", 10_000_000, 1.0))  # 10 MB/s
        for number in (3, 4):  # the second executor takes something every five seconds
            shop.submit(number, "b")
            shop.bench.now += 5.0
            shop.end(102 if number == 3 else 3)
        assert shop.went[4, 0] == 2
        shop.submit(1, "b")
        shop.end(101)
        assert ((1, 0) not in shop.went) is waits
        if waits:
            assert shop.machine.next_timer is not None
            shop.end(4)
            assert shop.went[1, 0] == 2


@pytest.mark.parametrize(
    ("size", "affinity", "waits"),
    [(100_000_000, 1.0, True), (100_000_000, 0.1, False), (100_000_000, 0.0, False), (1_000_000, 100.0, True)],
)
def test_soft_affinity_multiplies_what_moving_the_data_is_worth(size: int, affinity: float, *, waits: bool) -> None:
    shop = filled(f"bough:affinity={affinity}", b=size)
    shop.tell(news.BytesMoved(ExecutorId(1), "host2", 10_000_000, 1.0))  # 10 MB/s
    for number in (3, 4):  # the second executor takes something every five seconds
        shop.submit(number, "b")
        shop.bench.now += 5.0
        shop.end(102 if number == 3 else 3)
    shop.submit(1, "b")
    shop.end(101)
    assert ((1, 0) not in shop.went) is waits


def test_ours_holds_nothing_back_while_no_bandwidth_is_known_unless_told_to() -> None:
    for policy, waits in (("bough", False), ("bough:delay=10", True)):
        shop = filled(policy)
        shop.submit(1, "b")
        shop.end(101)
        assert ((1, 0) not in shop.went) is waits
        shop.wait(10)
        assert shop.went[1, 0] == 1


def test_ours_works_off_a_long_queue_by_its_data_however_long_that_takes() -> None:
    shop = filled("bough:patience=30")
    for number in range(1, 9):
        shop.submit(number, "b" if number <= 4 else "a")
    shop.wait(100)
    shop.end(101)
    shop.end(102)
    for first, second in ((5, 1), (6, 2), (7, 3), (8, 4)):
        assert (shop.went[first, 0], shop.went[second, 0]) == (1, 2)
        shop.wait(100)
        shop.end(first)
        shop.end(second)


def test_ours_lets_nothing_starve_behind_tasks_that_keep_coming_and_have_their_data() -> None:
    shop = DataBench("bough:patience=30")
    shop.executor(1, "a")
    shop.bench.submit(task(101))
    shop.went = {(101, 0): 1}
    shop.submit(1, "b")
    shop.submit(2, "b")
    running, turns = 101, []
    for number in range(3, 40):
        shop.wait(5)
        shop.submit(number, "a")
        shop.submit(100 + number, "a")
        before = set(shop.went)
        shop.end(running)
        (((running, _)),) = set(shop.went) - before
        turns.append(running)
    assert turns.index(1) < turns.index(2) < 20
    assert all(turn > 2 for turn in turns[:4])  # at first they are overtaken


def test_ours_leaves_out_an_executor_that_ends_before_the_data_has_come() -> None:
    shop = DataBench("bough:patience=1000")
    shop.sizes["b"] = 100_000_000
    shop.executor(2, "b")
    shop.bench.submit(task(102))
    shop.went = {(102, 0): 2}
    shop.submit(1, "b")
    shop.tell(news.BytesMoved(ExecutorId(2), "origin", 1_000_000, 1.0))
    shop.tell(news.BytesMoved(ExecutorId(2), "host9", 1_000_000, 1.0))
    shop.executor(1, until=50.0)  # the data would travel for 100 s
    assert (1, 0) not in shop.went
    shop.executor(3)
    assert shop.went[1, 0] == 3


def test_explain_says_how_much_data_was_there_and_where_it_is() -> None:
    shop = filled("bough", a=5_000_000)
    shop.tell(news.BytesMoved(ExecutorId(2), "host1", 1_000_000, 1.0))
    shop.submit(1, "a", "new")
    lines = shop.machine.explain(1)
    assert any(line.startswith("most of its input is at s1/host1: 5.0 MB of ") for line in lines), lines
    shop.tell(news.BytesMoved(ExecutorId(1), "origin", 2_000_000, 1.0))
    shop.end(101)
    said = "5.0 MB of 5.0 MB of its input were at host1 when it was placed; none of it is elsewhere now"
    assert shop.machine.explain(1)[1] == f"{said}; that saved about 2.5 s, at 2.0 MB/s from the origin"
    shop.cache(2, "a")
    shop.tell(news.BytesMoved(ExecutorId(1), "host2", 50_000_000, 1.0))  # this link, and not the fastest of all
    shop.tell(news.BytesMoved(ExecutorId(2), "host1", 900_000_000, 1.0))
    shop.end(1)
    done, line = shop.machine.explain(1)
    assert done == "task 1 is done"
    assert line.endswith(
        "; the most elsewhere is 5.0 MB now, at s2/host2; that saved about 0.1 s, at 50.0 MB/s from host2"
    )
    shop.tell(facts.ExecutorLost(ExecutorId(1), "gone"))
    assert shop.machine.explain(1)[1].endswith("at 50.0 MB/s from host2")  # what is known of a host outlives it


def test_explain_says_that_a_task_went_where_none_of_its_data_was() -> None:
    shop = filled("max-compute-util", a=5_000_000)
    shop.tell(news.BytesMoved(ExecutorId(2), "origin", 1_000_000, 0.5))
    shop.submit(1, "a", "new")
    shop.end(102)
    line = shop.machine.explain(1)[1]
    assert line.startswith("nothing of its input (2 files, 5.0 MB) was at host2 when it was placed; the most elsewhere")
    assert line.endswith("is 1 file now, at s1/host1; moving it takes about 2.5 s, at 2.0 MB/s from the origin")


def test_explain_says_nothing_of_data_of_tasks_without_inputs_and_what_was_not_known() -> None:
    shop = DataBench("bough")
    shop.executor(1)
    shop.bench.submit(task(101))
    assert len(shop.machine.explain(101)) == 1
    shop.bench.end(101)
    shop.submit(1, "a")  # its content is told after it was placed
    assert shop.machine.explain(1)[1] == "what its input holds was not known when it went to host1"
    assert len(shop.machine.explain(101)) == 1


# --- storage affinity --------------------------------------------------------------------------------------


def test_storage_affinity_counts_bytes_at_the_whole_site() -> None:
    shop = DataBench("storage-affinity")
    shop.sizes.update(big=1000, small=10)
    for number in (1, 2):
        shop.executor(number, site="one")
    shop.executor(3, "small", site="two")
    shop.cache(1, "big")
    shop.bench.submit(*(task(100 + number) for number in (1, 2, 3)))
    shop.went = {(100 + number, 0): number for number in (1, 2, 3)}
    shop.submit(1, "small", "big")
    shop.end(102)  # the executor of the site that has it, but not the one that fetched it
    assert shop.went[1, 0] == 2


def test_storage_affinity_counts_what_lies_in_the_shared_store_of_a_site() -> None:
    shop = filled("storage-affinity")
    shop.executor(3, site="s2")
    shop.bench.submit(task(103))
    shop.went[103, 0] = 3
    shop.cache(2, "x", shared=True)
    shop.submit(1, "a")
    shop.submit(2, "x")
    shop.end(103)
    assert shop.went[2, 0] == 3  # its own cache has nothing
    shop.tell(facts.ExecutorLost(ExecutorId(2), "gone"))
    assert shop.machine.state.data.stores == {}  # 3 never said that it sees it


def test_what_only_a_shared_store_has_keeps_nobody_waiting_for_a_host() -> None:
    shop = filled("max-cache-hit")
    shop.cache(2, "x", shared=True)
    shop.submit(1, "x")
    shop.end(101)
    assert shop.went[1, 0] == 1


def test_storage_affinity_never_waits_and_gives_the_most_bytes_first() -> None:
    shop = filled("storage-affinity", b=1000, c=10)
    shop.cache(1, "c")
    shop.submit(1, "b")
    shop.submit(2, "c")
    shop.end(101)
    assert shop.went[2, 0] == 1
    shop.end(2)
    assert shop.went[1, 0] == 1  # its data is at the busy site: it is dragged here


@pytest.mark.parametrize(("tie", "first"), [("last", 3), ("round-robin", 1), ("least-loaded", 1)])
def test_among_sites_without_data_the_tie_decides(tie: str, first: int) -> None:
    shop = DataBench(f"storage-affinity:tie={tie}")
    shop.executor(1, site="one")
    shop.executor(2, site="one")
    shop.executor(3, site="two")
    shop.submit(1, "a")
    assert shop.went[1, 0] == first


def three_sites(tie: str, *held: str) -> DataBench:
    """Three sites with one executor of four cores each, which all hold the same."""
    shop = DataBench(f"storage-affinity:tie={tie}")
    for number in (1, 2, 3):
        shop.executor(number, *held, cores=4, site=f"site{number}")
    return shop


def went_in_turn(shop: DataBench, count: int) -> list[int]:
    """Where tasks went that came one by one."""
    for number in range(1, count + 1):
        shop.submit(number, "shared")
    return [shop.went[number, 0] for number in range(1, count + 1)]


@pytest.mark.parametrize("held", [(), ("shared",)])
@pytest.mark.parametrize(
    ("tie", "order"),
    [("last", [3, 3, 3, 3, 2, 2]), ("round-robin", [1, 2, 3, 1, 2, 3]), ("least-loaded", [1, 2, 3, 1, 2, 3])],
)
def test_ties_are_settled_from_task_to_task(tie: str, order: list[int], held: tuple[str, ...]) -> None:
    assert went_in_turn(three_sites(tie, *held), 6) == order


@pytest.mark.parametrize("tie", ["round-robin", "least-loaded"])
def test_ties_are_settled_alike_when_tasks_wait_together(tie: str) -> None:
    shop = three_sites(tie)
    shop.bench.submit(*(task(100 + number, needs=Needs(cores=4)) for number in (1, 2, 3)))
    for number in range(1, 7):
        shop.submit(number, "shared")
    assert shop.went == {}
    spans = [shop.bench.span(100 + number) for number in (1, 2, 3)]
    shop.tell(*(news.WorkSucceeded(span, 0, 1, 1.0) for span in spans))
    assert sorted(shop.went.values()) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(("tie", "fifth"), [("round-robin", 2), ("least-loaded", 3)])
def test_the_turn_goes_on_where_it_was_and_the_load_is_what_runs_now(tie: str, fifth: int) -> None:
    shop = three_sites(tie)
    assert went_in_turn(shop, 4) == [1, 2, 3, 1]
    shop.tell(news.WorkSucceeded(shop.bench.span(3), 0, 1, 1.0))  # the third site is idle
    shop.submit(5, "other")
    assert shop.went[5, 0] == fifth


def test_frozen_affinity_counts_only_what_was_there_before() -> None:
    for affinity, expected in (("live", 1), ("frozen", 2)):
        shop = DataBench(f"storage-affinity:affinity={affinity}")
        shop.executor(1, site="one")
        shop.executor(2, site="two")
        shop.bench.submit(task(101), task(102))
        shop.went = {(101, 0): 1, (102, 0): 2}
        shop.submit(1, "a")
        shop.submit(2, "a")
        shop.cache(1, "a")  # it came after the job began
        shop.tell(
            news.WorkSucceeded(shop.bench.span(101), 0, 1, 1.0), news.WorkSucceeded(shop.bench.span(102), 0, 1, 1.0)
        )
        assert {shop.went[1, 0], shop.went[2, 0]} == {1, 2}
        assert shop.went[1, 0] == expected


@pytest.mark.parametrize("affinity", ["live", "frozen"])
def test_what_one_workflow_left_draws_the_next_one_also_with_frozen_affinity(affinity: str) -> None:
    """`spec/storage-affinity.md` 1.3: what a site holds before the job starts, which is the reuse between jobs."""
    shop = DataBench(f"storage-affinity:affinity={affinity}")
    for number in (1, 2, 3):
        shop.executor(number, site=f"s{number}")
    for first in (101, 201):
        for number in (0, 1, 2):
            shop.submit(first + number)
        shop.submit(first // 100, "a")
        ends = [news.WorkSucceeded(shop.bench.span(first + number), 0, 1, 1.0) for number in (0, 1, 2)]
        shop.tell(*ends)
        if first == 101:
            shop.cache(shop.went[1, 0], "a")
            shop.end(1)
            shop.executor(4, site="s4")  # it is the last one, so it would be next if nothing counted
            shop.tell(facts.RunOpened(2, "again", "h", 1))
            shop.submit(104)
    assert shop.went[2, 0] == shop.went[1, 0]


@pytest.mark.parametrize(("place", "went"), [("site", 2), ("host", 3)])
def test_data_only_goes_by_the_bytes_at_the_site_or_at_the_host(place: str, went: int) -> None:
    shop = DataBench(f"data-only:place_of_data={place}")
    shop.sizes.update(big=1000, small=10)
    shop.executor(1, "big", site="one")
    shop.executor(2, site="one")
    shop.executor(3, "small", site="two")
    shop.bench.submit(*(task(number) for number in (101, 102, 103)))
    shop.submit(1, "big", "small")
    ends = [news.WorkSucceeded(shop.bench.span(number), 0, 1, 1.0) for number in (102, 103)]
    shop.tell(*ends)  # the first one is busy
    assert shop.went[1, 0] == went


# --- options -----------------------------------------------------------------------------------------------


def test_options_are_checked_and_named() -> None:
    falkon = load_placement("good-cache-compute")
    assert (falkon.threshold, falkon.by) == (0.9, "files")  # `spec/falkon.md` 2.8 and 3
    policy = load_placement("good-cache-compute:threshold=0.8,by=bytes")
    assert (policy.threshold, policy.by) == (0.8, "bytes")
    for wrong, said in (
        ("good-cache-compute:limit=1", "its options are: by, window, backlog, patience, threshold"),
        ("good-cache-compute:threshold=2", "threshold"),
        ("good-cache-compute:threshold=many", "threshold"),
        ("fifo:x=1", "it has none"),
        ("good-cash", "good-cache-compute"),
        ("good-cache-compute:by=size", "by is 'size'; it must be files or bytes"),
        ("xsufferage:link=fare", "link is 'fare'; it must be alone, fair-share or serial"),
        ("bough:delay=soon", "delay is 'soon'; it must be a time, as 30s or 5m"),
        ("bough:delay=-1s", "delay is '-1s'; it must be a number >= 0"),
        ("data-conscious:latency=0", "latency is '0'; it must be a number > 0"),
        ("wqr:cap=0", "cap is '0'; it must be a whole number >= 1"),
    ):
        with pytest.raises(UserError, match=said) as raised:
            load_placement(wrong)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("held", [(), ("little",)])
def test_bough_sends_nothing_to_an_executor_that_leaves_before_the_data_could_come(held: tuple[str, ...]) -> None:
    """Also what nobody holds yet, and what has a little of its input there."""
    shop = DataBench("bough:patience=1000")
    shop.sizes.update(big=100_000_000, little=1000)
    shop.executor(2, "little")
    shop.bench.submit(task(102))
    shop.went = {(102, 0): 2}
    shop.submit(1, "big", *held)
    shop.tell(news.BytesMoved(ExecutorId(2), "origin", 1_000_000, 1.0))  # so the big one travels for 100 s
    shop.executor(1, *held, until=50.0)
    assert (1, 0) not in shop.went
    shop.executor(3, *held, until=200.0, host="host3")
    assert shop.went[1, 0] == 3


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("bough:delay=10s", "delay", 10.0),
        ("bough:delay=10", "delay", 10.0),
        ("max-cache-hit:patience=1:30", "patience", 90.0),
        ("data-conscious:hold=2m", "hold", 120.0),
        ("data-conscious:latency=20ms", "latency", 0.02),
        ("data-conscious:startup=1s", "startup", 1.0),
        ("xsufferage:plan=on_event", "plan", "on-event"),
        ("xsufferage:link=fair_share", "link", "fair-share"),
        ("storage-affinity:tie=round_robin", "tie", "round-robin"),
        ("storage-affinity:tie=least_loaded", "tie", "least-loaded"),
    ],
)
def test_options_take_times_with_units_and_the_spellings_of_the_papers(text: str, option: str, value: object) -> None:
    assert getattr(load_placement(text), option) == value


def test_every_name_loads() -> None:
    for name in placement_names():
        assert load_placement(name) is not None
