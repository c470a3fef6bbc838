"""Data-conscious scheduling: the worked example of the thesis, and the properties that it states."""

from __future__ import annotations

import heapq
from math import inf
from typing import NamedTuple

import pytest

from bough.model.events import news
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.policies.placement.data_aware.data_conscious import _first_and_last
from bough.policies.policy_registry import load_placement
from bough.policy.interface import DataMatch
from bough.testing.builders import task
from tests.unit.policies.data_bench import DataBench

BLAST = {1: 3.8, 2: 3.3, 3: 3.0}
TRANSFER = {1: 1.1, 2: 1.1, 3: 1.0}
PARSE = {1: 0.5, 2: 0.6, 3: 0.7}
A, B = 1, 2


class TwoHosts:
    """The batch queues of 3.4: one task of ours, then a foreign one of a second; nothing for us: another foreign one.

    Executors come when it is our turn and leave with the task, as placeholders do. The database is on both hosts.
    """

    def __init__(self, policy: str) -> None:
        self.shop = DataBench(policy)
        self.shop.sizes.update(db=1_000_000, h1=1_100_000, h2=1_100_000, h3=1_000_000)
        self.events: list[tuple[float, int, str, int]] = []  # when, order, what, host
        self.holds = {A: {"db"}, B: {"db"}}
        self.log: dict[str, tuple[str, float, float]] = {}
        self.free = {A: True, B: True}
        self.running: dict[int, int] = {}

    def at(self, when: float, what: str, host: int) -> None:
        heapq.heappush(self.events, (round(when, 6), host, what, host))

    def run(self) -> float:
        """All tasks; the makespan."""
        shop = self.shop
        shop.executor(A, "db", host="A")
        shop.executor(B, "db", host="B")
        shop.tell(
            news.BytesMoved(ExecutorId(A), "B", 1_000_000, 1.0), news.BytesMoved(ExecutorId(B), "A", 1_000_000, 1.0)
        )
        for protein in (1, 2, 3):
            shop.submit(2 * protein - 1, "db")  # BLAST
            shop.submit(2 * protein, f"h{protein}", after=(shop.after(2 * protein - 1),))  # parsing
        self._started(0.0)
        makespan = 0.0
        while self.events:
            now, _, what, host = heapq.heappop(self.events)
            shop.bench.now = now
            if what == "end":
                number = self.running.pop(host)
                protein = (number + 1) // 2
                made = [f"h{protein}"] if number % 2 else []
                if made:
                    self.holds[host].add(made[0])
                makespan = max(makespan, now)
                shop.tell(news.WorkSucceeded(shop.bench.span(number), 0, 1, 1.0), *shop.drained(host))
                if made:
                    shop.cache(host, *made)
                self.at(now + 1.0, "ask", host)
            else:
                shop.tell(*shop.resumed(host))
                if host not in self.running:
                    self._started(now)
                if host not in self.running:
                    shop.tell(*shop.drained(host))
                    if shop.machine.counts()["done"] < 6:
                        self.at(now + 1.0, "ask", host)
            self._started(now)
        return makespan

    def _started(self, now: float) -> None:
        """Note what was placed, and when it will have ended."""
        for (number, _), host in self.shop.went.items():
            protein, name = (number + 1) // 2, ("B" if number % 2 else "P") + str((number + 1) // 2)
            if name in self.log:
                continue
            far = f"h{protein}" not in self.holds[host] and not number % 2
            length = BLAST[protein] if number % 2 else PARSE[protein] + (TRANSFER[protein] if far else 0)
            self.log[name] = ("AB"[host - 1], now, round(now + length, 6))
            self.running[host] = number
            self.at(now + length, "end", host)


@pytest.mark.parametrize(
    ("policy", "makespan", "schedule"),
    [
        (
            "fifo",
            12.2,
            {"B1": ("A", 0, 3.8), "P2": ("A", 4.8, 6.5), "P3": ("A", 10.5, 12.2), "B2": ("B", 0, 3.3),
             "P1": ("B", 4.3, 5.9), "B3": ("B", 6.9, 9.9)},
        ),
        (
            "data-conscious:rate=1e6",
            10.6,
            {"B1": ("A", 0, 3.8), "P1": ("A", 4.8, 5.3), "B2": ("B", 0, 3.3), "P2": ("B", 4.3, 4.9),
             "B3": ("B", 5.9, 8.9), "P3": ("B", 9.9, 10.6)},
        ),
    ],
)  # fmt: skip
def test_the_worked_example_of_two_hosts_and_three_proteins(
    policy: str, makespan: float, schedule: dict[str, tuple[str, float, float]]
) -> None:
    hosts = TwoHosts(policy)
    assert hosts.run() == pytest.approx(makespan)
    assert hosts.log == {
        name: (host, pytest.approx(start), pytest.approx(end)) for name, (host, start, end) in schedule.items()
    }


def test_a_task_that_nobody_has_data_of_goes_out_at_once() -> None:
    shop = DataBench("data-conscious")
    shop.executor(1)
    shop.submit(1, "cold")
    assert shop.went[1, 0] == 1


def test_waiting_ends_with_the_bound_on_holding_back() -> None:
    shop = DataBench("data-conscious:hold=50,age=0")
    shop.sizes["far"] = 10**9
    shop.executor(2, "far")
    shop.submit(1, "far")
    assert shop.went[1, 0] == 2
    shop.submit(2, "far")
    shop.executor(1)
    assert (2, 0) not in shop.went
    shop.wait(49)
    assert (2, 0) not in shop.went
    shop.wait(1)
    assert shop.went[2, 0] == 1


def asked(options: str, size: int) -> DataBench:
    """The first executor asks; the second one holds two files, and is expected in 5 s."""
    shop = DataBench(f"data-conscious:rate=1e6,age=0,hold=0,{options}")
    shop.sizes.update(far=size, too=size)
    shop.executor(2, "far", "too")
    for number in range(50, 54):
        shop.submit(number, "far")
        shop.bench.now += 5.0
        shop.end(number)
    shop.submit(54, "far")  # it is busy
    shop.submit(1, "far")
    shop.executor(1)
    return shop


@pytest.mark.parametrize(
    ("options", "size", "goes"),
    [
        ("penalty=25", 1_000_000, False),  # a second of travel counts as 25
        ("penalty=4", 1_000_000, True),
        ("penalty=25", 100_000, True),  # 2.5 s
        ("startup=0.19", 0, True),  # 4.75 s, and no bytes
        ("startup=0.21", 0, False),  # 5.25 s
    ],
)
def test_a_task_is_held_back_if_its_transfer_costs_more_than_waiting(options: str, size: int, *, goes: bool) -> None:
    """`spec/trellis-driver.md` 3.3: withheld if the penalised transfer is above the time until a holder asks."""
    assert ((1, 0) in asked(options, size).went) == goes


@pytest.mark.parametrize(("window", "goes"), [(1, False), (2, True)])
def test_no_more_tasks_are_examined_than_the_window_has(window: int, *, goes: bool) -> None:
    shop = asked(f"window={window}", 1_000_000)
    shop.sizes["light"] = 1
    shop.cache(2, "light")
    shop.tell(*shop.drained(1))
    shop.submit(2, "light")
    shop.tell(*shop.resumed(1))
    assert (1, 0) not in shop.went
    assert ((2, 0) in shop.went) == goes


@pytest.mark.parametrize("other", ["cold", "light"])
def test_a_little_data_of_what_is_held_back_keeps_no_other_task_from_running(other: str) -> None:
    shop = asked("penalty=25", 1_000_000)
    shop.sizes.update(little=1, cold=1_000_000, light=1)
    shop.cache(2, "light")
    shop.submit(2, "far", "little")
    shop.cache(1, "little")
    assert not {(1, 0), (2, 0)} & shop.went.keys()
    shop.submit(3, other)
    assert shop.went[3, 0] == 1


def test_nothing_is_left_to_a_holder_that_could_never_run_it() -> None:
    shop = DataBench("data-conscious:rate=1e6,age=0,hold=0")
    shop.sizes["far"] = 1_000_000
    shop.executor(2, "far")
    for number in range(50, 54):
        shop.submit(number, "far")
        shop.bench.now += 5.0
        shop.end(number)
    shop.submit(1, "far", needs=Needs(cores=2))
    shop.submit(2, "far", "more", needs=Needs(cores=2))
    shop.executor(1, cores=2)
    assert shop.went.get((1, 0)) == 1


def test_a_shared_store_that_was_found_last_is_no_executor_that_may_ask() -> None:
    shop = DataBench("data-conscious")
    shop.sizes.update(x=1000, y=1000)
    shop.executor(1, "x", "y")
    shop.executor(2, "y", site="s2")
    shop.bench.submit(*(task(100 + number) for number in (1, 2)))
    shop.cache(2, "x", shared=True)  # its number is above those of all hosts
    shop.submit(1, "x", "y")
    shop.submit(2, "x")
    shop.wait(1.0)
    shop.tell(news.WorkSucceeded(shop.bench.span(101), 0, 1, 1.0))
    assert shop.machine.state.spans[shop.bench.span(1)].executor.id == 1


class Named(NamedTuple):
    """An executor."""

    id: int


class Asked(NamedTuple):
    """A task, its work, the world and its data, as far as the formula asks."""

    since: float
    dependents_count: int
    elsewhere: float  # what it costs to leave it to the best holder
    now: float = 1000.0

    @property
    def work(self) -> Asked:
        return self

    def rate_to(self, executor: object) -> float:
        return 100.0

    def cost_elsewhere(self, task: object, executor: object, rate: float, latest: float) -> float:
        assert rate == pytest.approx(25 / 100)  # the penalty on each byte
        return self.elsewhere


@pytest.mark.parametrize(
    ("options", "waited", "dependents", "elsewhere", "goes"),
    [
        # 1000 bytes travel for 10 s, which counts 25 times: 250 s
        ("", 0.0, 0, 250.0, True),
        ("", 0.0, 0, 249.99, False),  # 100 * -0.01 = -1
        ("", 0.16, 0, 249.99, True),  # and 0.16 / 0.15 for having waited
        ("", 0.14, 0, 249.99, False),
        ("latency=0.3s", 0.16, 0, 249.99, False),
        ("age=2", 0.14, 0, 249.99, True),
        ("affinity=200", 0.16, 0, 249.99, False),
        ("", 0.0, 9, 249.99, False),  # the thesis leaves dependents out
        ("dependents=1.1", 0.0, 1, 249.99, True),
        ("dependents=0.9", 0.0, 1, 249.99, False),
        ("", 0.0, 0, inf, True),  # nobody holds any: it is no worse here than where somebody asks next
    ],
)
def test_the_priority_is_that_of_the_thesis(
    options: str, waited: float, dependents: int, elsewhere: float, goes: bool
) -> None:
    """`spec/trellis-driver.md` 3.3: affinity * (elsewhere - here) + age * waited / latency + dependents * how many."""
    policy = load_placement(f"data-conscious{':' * bool(options)}{options}")
    asked = Asked(1000.0 - waited, dependents, elsewhere)
    found = [DataMatch(asked, 0.0, 1000.0)]
    best = policy._cheapest(asked, asked, None, (1000.0, 1000.0), found)
    assert (best is asked) is goes


def test_the_one_that_asks_first_counts_among_those_that_hold_nothing() -> None:
    """It asks in 5 s, so a cold task has 100 * 5; one that a holder may have for 252 s has 100 * 2."""
    cold, held = Asked(1000.0, 0, inf), Asked(1000.0, 0, 252.0)

    class Both(Asked):
        def cost_elsewhere(self, task: object, executor: object, rate: float, latest: float) -> float:
            return task.elsewhere

    both = Both(0.0, 0, 0.0)
    found = [DataMatch(held, 0.0, 1000.0), DataMatch(cold, 0.0, 1000.0)]
    assert load_placement("data-conscious")._cheapest(both, both, None, (1005.0, 1005.0), found) is cold


def test_the_numbers_of_the_thesis_are_the_defaults() -> None:
    policy = load_placement("data-conscious")
    assert (policy.penalty, policy.arrivals, policy.window) == (25, 32, 128)
    assert (policy.affinity, policy.age, policy.dependents) == (100, 1, 0)


@pytest.mark.parametrize(
    ("asks", "found"),
    [(9, (1.0, 2.0)), (0, (2.0, 3.0)), (1, (1.0, 3.0)), (2, (1.0, 2.0))],
)
def test_as_many_others_are_looked_at_as_it_says_whoever_asks(asks: int, found: tuple[float, float]) -> None:
    """Two others, of the three that ask next or beside them."""
    next_ones = [(1.0 + one, Named(one)) for one in range(3)]
    assert _first_and_last(next_ones, Named(asks), 2, is_named=asks < 3) == found
    assert _first_and_last([], Named(asks), 2, is_named=False) == (None, 0.0)
