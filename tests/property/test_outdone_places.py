"""What is remembered of places, and what is found by holders, agrees with a look at everything, however caches change.

Few hosts and few contents, so that executors are left idle because another place has more of what waits.
"""

from __future__ import annotations

from random import Random

import pytest

from bough.core.machine import Machine
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.core.scheduling.view import StateDataView, StateView
from bough.model.events import facts, news
from bough.model.ids import ExecutorId, FileId, RecordId, SpanId
from bough.model.tasks import Dep, On
from bough.policies.policy_registry import load_policies
from bough.policy.interface import DataMatch, DataTask, ExecutorView
from bough.testing.builders import executor, submit, task

HOSTS = 8
FILES = 24


def digest(file: int) -> bytes:
    return bytes([file]) * 32


class Shop:
    """A machine, some executors of which wait for nothing that is better off with them."""

    def __init__(self, policy: str, seed: int) -> None:
        self.dice = Random(seed)
        self.machine = Machine(load_policies(policy), seed=seed)
        self.now, self.last, self.newest = 0.0, 0, HOSTS
        self.tell(facts.RunOpened(1, "test", "h", 1))
        self.tell(*(executor(one, 1) for one in range(1, HOSTS + 1)))
        some = tuple(news.NamedContent(f"/{file}", digest(file), 10) for file in range(1, FILES + 1))
        self.work(4)
        self.tell(news.FilesIdentified(1, (), some))

    @property
    def affinity(self) -> AffinityIndex:
        affinity = self.machine.state.affinity
        assert affinity is not None
        return affinity

    def tell(self, *said: object) -> None:
        self.now += 1.0
        assert self.machine.turn(self.now, said).complaints == []  # type: ignore[arg-type]

    def work(self, count: int) -> None:
        dice, items = self.dice, []
        for _ in range(count):
            self.last += 1
            reads = tuple(f"/{one}" for one in dice.sample(range(1, FILES + 1), dice.randint(1, 5)))
            items.append(task(self.last, reads=reads, priority=dice.choice([0, 0, 0, 1])))
        self.tell(submit(*items))

    def change(self) -> None:
        dice, deed, state = self.dice, self.dice.random(), self.machine.state
        there = list(state.executors)
        if deed < 0.15 and self.machine.counts()["ready"] < 20:
            self.work(dice.randint(1, 4))
        elif deed < 0.35 and state.spans:
            self.tell(news.WorkSucceeded(SpanId(dice.choice(list(state.spans))), 0, 1, 3.0))
        elif deed < 0.4:
            found = news.IdentifiedFile(
                FileId(dice.randint(1, state.workflows[1].files.last)), digest(dice.randint(1, FILES)), 10
            )
            self.tell(news.FilesIdentified(1, (found,)))
        elif deed < 0.48:
            target = Dep(On.TASK, RecordId(dice.randint(1, self.last)))
            self.tell(
                dice.choice(
                    (
                        news.Hold(target),
                        news.Hold(target),
                        news.Release(target),
                        news.Cancel(target),
                        news.Retry(target),
                    )
                )
            )
        elif deed < 0.51:
            self.newest += 1
            self.tell(facts.ExecutorLost(ExecutorId(dice.choice(there)), "gone"), executor(self.newest, 1))
        else:
            some = [news.HeldContent(digest(one), 10) for one in dice.sample(range(1, FILES + 1), 3)]
            lost = tuple(digest(one) for one in dice.sample(range(1, FILES + 1), 3))
            self.tell(news.CacheChanged(ExecutorId(dice.choice(there)), tuple(some), lost))

    def view(self) -> tuple[StateView, StateDataView]:
        state = self.machine.state
        view = StateView(state, self.now, Random(0))
        return view, StateDataView(view, state, self.affinity)

    def check(self) -> int:
        """Nothing is wrong that is remembered; of how many places something is."""
        _, data = self.view()

        def has_most(found: DataMatch) -> bool:
            return found.here >= found.total or found.here >= data.most_held(found.task)

        outdone = 0
        for one in self.machine.state.executors.values():
            place = self.affinity.place_of(one)
            if place is not None and place.name in self.affinity.outdone.places:
                outdone += 1
                assert data.best_here(one, has_most) is None
        return outdone

    def check_openings(self) -> int:
        """Those that are looked at for the most there is are all but those at outdone places, in order; how many."""
        view, data = self.view()
        there, outdone = list(data.openings()), self.affinity.outdone.places
        found = list(data.openings(for_most=True))
        assert found == [one for one in there if data.place_name(one) not in outdone]
        assert len(view.executors()) >= len(there)
        return len(there) - len(found)

    def check_takers(self) -> int:
        """The executor that is found by holders is the one found by asking each; how many were found."""
        view, data = self.view()
        found = 0
        for unit in list(self.affinity.waiting()):
            task: DataTask = unit
            best: ExecutorView | None = None
            most = -1.0
            for one in view.executors():
                if data.could_go(task, one) and data.match(task, one).here > most:
                    best, most = one, data.match(task, one).here
            assert data.best_taker(task, 64) is best
            if best is not None:
                found += 1
                assert view.offer is not None
                assert view.offer.executor is best
        return found


@pytest.mark.parametrize("policy", ["max-cache-hit:patience=0", "good-cache-compute:threshold=0,patience=0,by=bytes"])
def test_a_place_that_is_outdone_has_nothing_for_its_executors(policy: str) -> None:
    outdone = takers = passed_over = 0
    for seed in range(12):
        shop = Shop(policy, seed)
        for _ in range(200):
            shop.change()
            outdone += shop.check()
            takers += shop.check_takers()
            passed_over += shop.check_openings()
    assert outdone > 20
    assert passed_over > 20
    assert takers > 20


def test_a_new_reader_of_what_a_place_holds_goes_there_though_nothing_did_before() -> None:
    machine = Machine(load_policies("max-cache-hit:patience=0"))
    machine.turn(0.0, [facts.RunOpened(1, "test", "h", 1), executor(1, 1), executor(2, 1)])
    both, other = digest(1), digest(2)
    here = news.CacheChanged(ExecutorId(1), (news.HeldContent(both, 10),))
    there = news.CacheChanged(ExecutorId(2), (news.HeldContent(both, 10), news.HeldContent(other, 10)))
    machine.turn(1.0, [here, there])
    known = news.FilesIdentified(1, (), (news.NamedContent("/both", both, 10), news.NamedContent("/other", other, 10)))
    # more wait for the second host than are looked at one by one, and one of them could use the first
    waiting = [*(task(one, reads=("/other",)) for one in range(1, 21)), task(21, reads=("/both", "/other"))]
    machine.turn(2.0, [submit(*waiting), known])
    machine.turn(3.0, [here])
    affinity = machine.state.affinity
    assert affinity is not None
    assert len(affinity.outdone.places) == 1
    assert [span.executor.id for span in machine.state.spans.values()] == [2]
    machine.turn(4.0, [submit(task(22, reads=("/both",)))])
    assert [(span.record.id, span.executor.id) for span in machine.state.spans.values()][1:] == [(22, 1)]
