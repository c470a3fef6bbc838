"""Nothing starves, under any of our policies: tasks of all kinds come as fast as others end, and none waits for long.

There are as many tasks at any time, so who waits for very long is passed over again and again.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from bough.model.events import news
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.policies.policy_registry import placement_names
from bough.testing.builders import limits, submit, task
from tests.unit.core.core_bench import Bench
from tests.unit.policies.data_bench import DataBench

FILES = [f"f{number}" for number in range(12)]
WAITING = 40
ENDED = 900
LONG = 1500.0  # seconds; in order none waits for more than 300, and patience is 600


class Stream:
    """Three hosts, each with a part of the files; tasks that run as long as is said of them, if anything is."""

    def __init__(self, policy: str, seed: int) -> None:
        self.dice = Random(seed)
        self.shop = DataBench(policy)
        self.born: list[float] = []
        self.begun: dict[int, float] = {}
        self.lengths: list[float] = []
        self.ends: list[tuple[float, int, int]] = []  # when, task, span
        self.shop.sizes = {name: self.dice.choice([100, 10**6, 10**8, 10**9]) for name in FILES}
        for host in (1, 2, 3):
            held = [name for at, name in enumerate(FILES) if at % 3 == host - 1 or self.dice.random() < 0.2]
            self.shop.executor(host, *held, cores=4, site=f"s{host % 2}")
            self.shop.tell(news.BytesMoved(ExecutorId(host), "origin", 10_000_000, 1.0))

    def comes(self) -> None:
        """A task: short or long, narrow or wide, with inputs or without, of known or unknown length."""
        dice, number = self.dice, len(self.born)
        self.born.append(self.shop.bench.now)
        self.lengths.append(dice.choice([1.0, 5.0, 5.0, 20.0, 60.0]))
        told = self.lengths[-1] if dice.random() < 0.8 else 0.0
        fields = {"needs": Needs(cores=dice.choice([1, 1, 1, 2, 4])), "limits": limits(walltime=told)}
        reads = dice.sample(FILES, dice.choice([0, 1, 1, 2, 3]))
        if reads:
            self.shop.submit(number + 1, *reads, **fields)
        else:
            self.shop.tell(submit(task(number + 1, template=f"t{number + 1}", **fields), request=1))
        self.note_begun()

    def note_begun(self) -> None:
        """What was placed begins to run."""
        for span in self.shop.machine.state.spans.values():
            if span.record.id not in self.begun:
                self.begun[span.record.id] = self.shop.bench.now
                heappush(self.ends, (self.shop.bench.now + self.lengths[span.record.id - 1], span.record.id, span.id))

    def goes_on(self) -> int:
        """Until the next task has ended, or somebody wants to be asked again; how many have ended."""
        asked = self.shop.machine.next_timer
        assert self.ends or asked is not None, "tasks wait, and nothing will happen"
        if not self.ends or (asked is not None and asked < self.ends[0][0]):
            self.shop.bench.now = max(self.shop.bench.now + 0.001, asked or 0.0)
            self.shop.tell()
            self.note_begun()
            return 0
        self.shop.bench.now, number, span = heappop(self.ends)
        self.shop.tell(news.WorkSucceeded(span, 0, 1, self.lengths[number - 1]))  # type: ignore[arg-type]
        self.note_begun()
        return 1

    def longest_wait(self) -> float:
        """Of all tasks, those included that wait still."""
        now = self.shop.bench.now
        return max(self.begun.get(number, now) - born for number, born in enumerate(self.born, 1))


@pytest.mark.parametrize("policy", placement_names())
def test_none_waits_for_long_while_as_many_come_as_go(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "_compare", lambda bench: None)  # other tests see to that
    stream = Stream(policy, 1)
    for _ in range(WAITING):
        stream.comes()
    ended = 0
    while ended < ENDED:
        if stream.goes_on():
            ended += 1
            stream.comes()
    assert stream.shop.bench.now > LONG + 500
    assert stream.longest_wait() < LONG
