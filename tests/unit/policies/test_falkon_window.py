"""Falkon's window: only the first tasks that wait are looked at, and the next one is when one of them leaves."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from bough.core.records.array_record import READY
from bough.errors import UserError
from bough.model.events import news
from bough.model.tasks import Dep, On
from bough.policies.policy_registry import load_placement
from bough.testing.builders import submit, task
from tests.unit.policies.data_bench import DataBench


def two_hosts(policy: str) -> DataBench:
    """Two hosts of one core, each busy with a task without inputs; the first holds file a, the second file b."""
    shop = DataBench(policy)
    shop.executor(1, "a")
    shop.executor(2, "b")
    shop.bench.submit(task(101), task(102))
    shop.went = {(101, 0): 1, (102, 0): 2}
    return shop


@pytest.mark.parametrize("policy", ["max-cache-hit", "good-cache-compute:threshold=0"])
def test_what_waits_behind_the_window_is_not_seen(policy: str) -> None:
    mark = "," if ":" in policy else ":"
    for window, expected in ((0, 1), (3, 1), (2, None)):
        shop = two_hosts(f"{policy}{mark}window={window},patience=0")
        shop.submit(1, "b")
        shop.submit(2, "b")
        shop.submit(3, "a")
        shop.end(101)
        assert shop.went.get((3, 0)) == expected


def test_when_a_task_leaves_the_window_the_next_is_in_it_in_the_same_turn() -> None:
    shop = two_hosts("max-cache-hit:window=1,patience=0")
    shop.submit(1, "b")
    shop.submit(2, "a")
    shop.submit(3, "b")
    shop.end(101)
    assert (2, 0) not in shop.went  # task 1 waits for the second host, and is all that is seen
    shop.end(102)
    assert (shop.went[1, 0], shop.went[2, 0]) == (2, 1)
    assert (3, 0) not in shop.went


def test_max_compute_util_takes_the_first_task_where_the_window_has_none_with_data() -> None:
    for window, expected in ((0, 2), (1, 1)):
        shop = two_hosts(f"max-compute-util:window={window}")
        shop.submit(1, "b")
        shop.submit(2, "a")
        shop.end(101)
        assert shop.went.get((expected, 0)) == 1
        assert (3 - expected, 0) not in shop.went


@pytest.mark.parametrize("action", [news.Cancel, news.Hold])
def test_a_task_that_is_cancelled_or_held_has_no_place_in_the_window(action: type) -> None:
    shop = two_hosts("max-cache-hit:window=1,patience=0")
    shop.submit(1, "b")
    shop.submit(2, "a")
    shop.end(101)
    assert (2, 0) not in shop.went
    shop.tell(action(Dep(On.TASK, 1)))
    assert shop.went[2, 0] == 1


@pytest.mark.parametrize("seed", range(8))
def test_the_window_holds_the_first_that_are_ready_whatever_happens(seed: int) -> None:
    dice, window = Random(seed), 4
    shop = DataBench(f"max-cache-hit:window={window},patience=0")
    names = "abcdef"
    for number in (1, 2, 3):
        shop.executor(number, *dice.sample(names, 2))
    waiting: list[int] = []  # in the order they became ready
    last, running = 0, set()
    for _ in range(120):
        what = dice.random()
        if what < 0.5:
            last += 1
            shop.submit(last, dice.choice(names))
            waiting.append(last)
        elif what < 0.8 and running:
            shop.end(running.pop())
        elif what < 0.9 and waiting:
            shop.tell(news.Cancel(Dep(On.TASK, dice.choice(waiting))))
        else:
            number = dice.choice((1, 2, 3))
            shop.cache(number, dice.choice(names), lost=[dice.choice(names)])
        states = {number: shop.machine.state.records.get(number) for number in waiting}
        running |= {number for number in waiting if (number, 0) in shop.went and states[number] is not None}
        waiting = [number for number, record in states.items() if record is not None and record.state == READY]
        running -= set(waiting)
        affinity = shop.machine.state.affinity
        seen = [unit.work.id for unit in affinity.units.values() if unit.is_ready]
        assert len(affinity.units) <= window
        assert seen == waiting[:window]
    assert last > 40


def test_without_backlogs_an_executor_has_no_more_tasks_than_cores() -> None:
    taken = {}
    for backlog in ("yes", "no"):
        shop = DataBench(f"max-compute-util:backlog={backlog}")
        shop.executor(1, "a")
        spec = task(1, reads=("/a",), template="short")
        for number in range(1, 5):
            shop.tell(submit(msgspec.structs.replace(spec, id=number), request=number))
            shop.end(number, seconds=0.001)
        for number in range(5, 12):
            shop.tell(submit(msgspec.structs.replace(spec, id=number), request=number))
        taken[backlog] = sum(number > 4 for number, _ in shop.went)
    assert taken["no"] == 1
    assert taken["yes"] == 7


def test_a_window_below_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="window"):
        load_placement("max-cache-hit:window=-1")
