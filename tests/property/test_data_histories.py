"""Random histories of data: hostile reports, stale executors, caches that lie, under every policy that looks at data.

After every turn the laws hold, a replay of the facts gives the same state, and in the end every task has run once.
"""

from __future__ import annotations

from random import Random

import pytest

from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.core.scheduling.view import StateView
from bough.model.arrays.element_reads import pack_reads
from bough.model.events import facts, news
from bough.model.events.facts import decode_facts, encode_facts
from bough.model.ids import ExecutorId, FileId, RecordId, SpanId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import ArraySpec, Page, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.testing.builders import array, executor, submit, task

FILES = 12
POLICIES = [
    "max-cache-hit:patience=40",
    "max-compute-util",
    "good-cache-compute:threshold=0.5,patience=40",
    "good-cache-compute:threshold=0.5,patience=40,window=3,backlog=no",
    "max-cache-hit:patience=40,window=2",
    "data-conscious:hold=40",
    "storage-affinity",
    "storage-affinity:affinity=frozen,tie=random",
    "storage-affinity:tie=round-robin",
    "storage-affinity:tie=least-loaded",
    "bough",
    "bough:delay=5",
    "xsufferage",
    "xsufferage:plan=static,info=snapshot,link=serial",
    "heft",
]


def digest(file: int) -> bytes:
    return bytes([file]) * 32


class History:
    """A machine, its twin that only replays, and news of all kinds."""

    def __init__(self, policy: str, seed: int) -> None:
        self.dice = Random(seed)
        self.policies = load_policies(policy)
        self.machine, self.twin = Machine(self.policies, seed=seed), Machine(self.policies)
        self.now = 0.0
        self.alive: list[int] = []
        self.next_executor = 1
        self.feeds: dict[int, int] = {}  # arrays that are fed: how many elements they have
        self.turn(facts.RunOpened(1, "test", "h", 1))

    def turn(self, *said: object) -> None:
        turn = self.machine.turn(self.now, said)  # type: ignore[arg-type]
        assert turn.complaints == []
        check(self.machine.state)
        if turn.facts:
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        self.twin.state.now = self.now
        assert picture(self.twin.state) == picture(self.machine.state)
        assert self.twin.state.data.pairs == 0

    def work(self, number: int) -> TaskSpec | ArraySpec:
        dice = self.dice
        some = [[f"/{file}" for file in dice.sample(range(1, FILES + 1), dice.randint(0, 4))] for _ in range(6)]
        if dice.random() < 0.2:
            self.feeds[number] = 0
            return array(number, 0, open=True, fed=True, pages=())
        if dice.random() < 0.4:
            return array(number, 6, reads=pack_reads(some))
        return task(number, reads=tuple(some[0]), template=dice.choice("ab"))

    def fed(self, number: int, *, last: bool = False) -> news.PagesAdded:
        """Some more elements of an array, some of which read something; or the end of it."""
        dice, start = self.dice, self.feeds[number]
        if last:
            return news.PagesAdded(RecordId(number), [], last=True)
        rows = [[f"/{file}" for file in dice.sample(range(1, FILES + 1), dice.choice([0, 0, 1, 2]))] for _ in range(3)]
        reads = pack_reads(rows) if dice.random() < 0.7 else None
        self.feeds[number] += len(rows)
        return news.PagesAdded(RecordId(number), [Page(start, start + len(rows), b"rows", reads=reads)])

    def news(self) -> list[object]:
        """Something that a peer may say, right or wrong."""
        dice, deed = self.dice, self.dice.random()
        whom = ExecutorId(dice.choice([*self.alive, 999]))
        if deed < 0.4:
            held = tuple(news.HeldContent(digest(dice.randint(1, 20)), dice.choice([0, 5, 1 << 62])) for _ in range(3))
            lost = tuple(digest(dice.randint(1, 20)) for _ in range(2))
            return [news.CacheChanged(whom, held, lost, dice.random() < 0.1, shared=dice.random() < 0.3)]
        if deed < 0.6:
            file = FileId(dice.choice([1, 2, 3, 5, 8, 0, 1 << 60]))
            found = news.IdentifiedFile(file, digest(dice.randint(1, 9)), 7)
            return [news.FilesIdentified(dice.choice([1, 77]), (found,))]
        if deed < 0.7:
            return [news.BytesMoved(whom, dice.choice(["origin", "host1", ""]), dice.choice([0, 10**6]), dice.random())]
        if deed < 0.75 and len(self.alive) > 1:
            gone = self.alive.pop(dice.randrange(len(self.alive)))
            return [facts.ExecutorLost(ExecutorId(gone), "gone")]
        if deed < 0.8 and self.feeds and dice.random() < 0.5:
            return [self.fed(dice.choice(list(self.feeds)))]
        if deed < 0.8:
            number, self.next_executor = self.next_executor, self.next_executor + 1
            self.alive.append(number)
            return [executor(number, dice.choice([1, 2]), site=dice.choice(["one", "two"]))]
        return [news.WorkReturned(SpanId(dice.randint(1, 30)), 0, 1)]

    def end_something(self) -> None:
        spans = list(self.machine.state.spans.values())
        if spans:
            span = self.dice.choice(spans)
            start, stop = span.left[0]
            if self.dice.random() < 0.1:
                failure = Failure(Cause.NOT_STARTED, "not there", site=True)
                self.turn(news.WorkFailed(span.id, start, self.dice.choice([failure, Failure(Cause.LOST)])))
                return
            self.turn(news.WorkSucceeded(span.id, start, stop, self.dice.choice([0.01, 3.0])))


@pytest.mark.parametrize("seed", range(3))
def test_the_share_of_busy_cores_is_what_a_look_at_all_executors_says(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    told = StateView.busy_share

    def compared(view: StateView) -> float:
        found = told(view)
        asked.append(found)
        view.free_cores = None
        assert found == told(view)
        return found

    monkeypatch.setattr(StateView, "busy_share", compared)
    live_through("good-cache-compute:threshold=0.7,patience=40", seed)
    assert len(set(asked)) > 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_any_history_ends_with_everything_done_once(policy: str, seed: int) -> None:
    live_through(policy, seed)


def live_through(policy: str, seed: int) -> None:
    history = History(policy, seed)
    for _ in range(3):
        number, history.next_executor = history.next_executor, history.next_executor + 1
        history.alive.append(number)
        history.turn(executor(number, 2, site=f"s{number % 2}"))
    number = 0
    for _ in range(60):
        history.now += 1.0
        if history.dice.random() < 0.3 and number < 20:
            history.turn(submit(*(history.work(number + one) for one in (1, 2))))
            number += 2
        history.turn(*history.news())
        if history.dice.random() < 0.5:
            history.end_something()
    for feed in history.feeds:
        history.turn(history.fed(feed, last=True))
    for _ in range(2000):
        if history.machine.is_idle:
            break
        history.now += 1.0
        history.turn()
        history.end_something()
    counts = history.machine.counts()
    assert counts["done"] + counts["failed"] == sum(counts.values()), (policy, counts)


def test_a_machine_that_is_restored_places_by_what_executors_tell_again() -> None:
    history = History("max-cache-hit", 1)
    history.turn(executor(1, 1), executor(2, 1))
    history.turn(submit(*(task(number, reads=("/1",)) for number in (1, 2, 3))))
    machine = Machine.restore(history.machine.snapshot(), history.policies)
    assert machine.state.data.pairs == 0
    files = news.FilesIdentified(1, (news.IdentifiedFile(FileId(1), digest(1), 10),))
    machine.turn(1.0, [files, news.CacheChanged(ExecutorId(2), (news.HeldContent(digest(1), 10),))])
    assert machine.counts()["ready"] == 1
    first = next(span for span in machine.state.spans.values() if span.executor.id == 1)
    machine.turn(2.0, [news.WorkSucceeded(first.id, 0, 1, 9.0)])
    assert machine.counts()["ready"] == 1  # it waits for the second executor, which has its data
    check(machine.state)
