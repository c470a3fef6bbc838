"""Data-conscious scheduling: the worked example of the thesis, and the properties that it states."""

from __future__ import annotations

import heapq

import pytest

from bough.model.events import news
from bough.model.ids import ExecutorId
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
