"""Random histories of replicated tasks: hostile policies, stale and duplicate answers, losses, restarts, replay."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.model.events import arriving, facts, news
from bough.model.events.facts import decode_facts, encode_facts
from bough.model.events.orders import SendSpan, StopSpan
from bough.model.outcomes import Cause, Detail, Failure, Staged
from bough.model.tasks import Dep, On
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies, is_unasked
from bough.testing.builders import array, executor, limits, submit, task
from tests.property.test_machine import find_replication
from tests.unit.core.core_bench import check_waits

TASKS, LENGTH = 6, 5  # loose tasks, and the elements of the array after them
UNSAID = 5  # the task of which nothing is said: only who asked for replication has it replicated
ARRAY = TASKS + 1
OF_ATTEMPTS = ("start", "end", "fail", "give_back", "lock", "free", "stopped")
STEPS = (
    *OF_ATTEMPTS,
    *("start", "start", "start", "end", "fail", "free", "join", "join", "join", "back", "lose", "time", "time"),
    *("kill", "cancel", "retry", "retry", "reset", "reset", "hold", "release", "release", "restart", "both", "drain"),
)
SEEN: Counter[str] = Counter()  # over all histories: that they are about what they are meant to be about


class World:
    """A machine and its twin, executors that say anything, and what must hold of every history."""

    def __init__(self, policy: str, seed: int) -> None:
        self.dice = Random(seed)
        self.policies = Policies(Fifo(), replication=find_replication(policy))
        self.machine, self.twin = Machine(self.policies, seed=seed), Machine(self.policies)
        self.now, self.executors = 0.0, 0
        self.sent: list[SendSpan] = []
        self.stopped: set[tuple[int, int]] = set()  # span and element
        self.numbers: set[tuple[int, int, int]] = set()  # record, element, attempt
        self.attempts: dict[int, int] = {}  # by span
        self.journal: list[tuple[int, float, list[facts.Fact]]] = []
        self.ended: set[tuple[int, int]] = set()
        self.wasted = 0  # bytes
        own = limits(retries=2, losses=3)
        twice = limits(retries=2, losses=3, idempotent=True)
        tasks = [task(number, limits=own if number == UNSAID else twice, template="t") for number in range(1, TASKS)]
        tasks.append(task(TASKS, limits=limits(idempotent=False, resend_after=20.0), template="t"))
        many = structs.replace(array(ARRAY, LENGTH, limits=own, template="t"), atomic_outputs=True)
        self.is_unasked = is_unasked(self.policies.replication)
        self.turn(facts.RunOpened(1, "w", "h", 1), submit(*tasks, many))
        for machine in (self.machine, self.twin):
            machine.state.records[ARRAY].runtime.note(3, 3.0)  # which is that of all of them
        for _ in range(2):
            self.join(6)
        self.turn(*(news.WorkStarted(order.span, order.start, order.stop) for order in self.sent))

    def turn(self, *said: arriving.News) -> None:
        turn = self.machine.turn(self.now, said)
        for order in turn.orders:
            if isinstance(order, SendSpan):
                self.sent += order.singly()
                assert not order.replica or order.stop == order.start + 1
                assert not order.replica or order.spec.id != TASKS
                assert not (order.replica and self.is_unasked and order.spec.id == UNSAID)
                SEEN["unasked"] += order.replica and self.is_unasked
            elif isinstance(order, StopSpan):
                self.stopped |= {(order.span, index) for index in range(order.start, order.stop)}
        for fact in turn.facts:
            self.look(fact)
        if turn.facts:
            self.journal.append((turn.number, self.now, turn.facts))
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        self.twin.state.now = self.now
        waste = self.machine.state.replicas.waste
        assert waste.bytes <= waste.superseded, "the byte of a superseded attempt counts twice"
        SEEN["wasted byte"] += waste.bytes > self.wasted
        self.wasted = waste.bytes
        check(self.machine.state)
        check_waits(self.machine)
        mine = picture(self.machine.state)
        assert picture(self.twin.state) == mine
        assert picture(Machine.restore(self.machine.snapshot(), self.policies).state) == mine

    def look(self, fact: facts.Fact) -> None:
        SEEN[type(fact).__name__] += 1
        if isinstance(fact, facts.Placed | facts.Replicated):
            start, stop = (
                (fact.index, fact.index + 1) if isinstance(fact, facts.Replicated) else (fact.start, fact.stop)
            )
            for index in range(start, stop):
                name = (fact.record, index, fact.attempt)
                assert name not in self.numbers, "the number of an attempt is given twice"
                self.numbers.add(name)
                assert (fact.record, index) not in self.ended, "what has ended is sent again"
            self.attempts[fact.span] = fact.attempt
        elif isinstance(fact, facts.SpanReturned):  # it never began
            for index in range(fact.start, fact.stop):
                self.numbers.discard((fact.record, index, self.attempts[fact.span]))
        elif isinstance(fact, facts.SpanEnded):
            new = {(fact.record, index) for index in range(fact.start, fact.stop)}
            assert not new & self.ended, "two attempts of a task count"
            assert not new & {(fact.record, i) for s, i in self.stopped if s == fact.span}, "a stopped attempt counts"
            self.ended |= new
        elif isinstance(fact, facts.WasReset):
            self.ended -= {(record, index) for record, start, stop in fact.parts for index in range(start, stop)}

    def join(self, cores: int = 0) -> None:
        self.executors += 1
        self.turn(executor(self.executors, cores or self.dice.choice([1, 1, 2])))

    def step(self) -> None:
        """Something happens."""
        what = self.dice.choice(STEPS)
        if what in OF_ATTEMPTS:
            self.answer(what)
        elif what in {"kill", "cancel", "retry", "reset", "hold", "release"}:
            record = self.dice.randrange(1, ARRAY + 1)
            target = Dep(On.TASK, record, self.dice.randrange(LENGTH) if record == ARRAY else 0)
            self.turn(getattr(news, what.capitalize())(target))
        else:
            getattr(self, what)()

    def answer(self, what: str) -> None:
        """An executor says something of an attempt, twice; many have been stopped or forgotten by then."""
        dice = self.dice
        order = dice.choice(self.sent[-12:])
        at = dice.randrange(order.start, order.stop)
        failure = Failure(dice.choice([Cause.EXIT, Cause.LOST, Cause.GIVEN_BACK, Cause.TIMEOUT]), "x")
        detail = Detail(at, staged=Staged(from_origin=1))
        said: arriving.News = {
            "start": news.WorkStarted(order.span, at, at + 1),
            "end": news.WorkSucceeded(order.span, at, at + 1, 1.0, None, (detail,)),
            "fail": news.WorkFailed(order.span, at, failure, detail),
            "stopped": news.WorkStopped(order.span, order.spec.id, at, order.attempt, detail),
            "give_back": news.WorkReturned(order.span, at, at + 1),
            "lock": news.TakeLock("l", order.span, at),
            "free": news.FreeLock("l", order.span, at),
        }[what]
        self.turn(said)
        self.turn(said)

    def both(self) -> None:
        """All attempts of a record ever made succeed in one turn."""
        record = self.dice.choice(self.sent[-12:]).spec.id
        alike = [one for one in self.sent if one.spec.id == record]
        self.dice.shuffle(alike)
        self.turn(*(news.WorkSucceeded(one.span, one.start, one.stop, 1.0) for one in alike))

    def lose(self) -> None:
        self.turn(facts.ExecutorLost(self.dice.randrange(1, self.executors + 1), "gone"))

    def drain(self) -> None:
        if self.dice.random() < 0.3:
            self.turn(facts.ExecutorDrained(self.dice.randrange(1, self.executors + 1)))

    def back(self) -> None:
        self.turn(executor(self.dice.randrange(1, self.executors + 1), 1))

    def time(self) -> None:
        self.now += self.dice.choice([0.1, 1.0, 30.0])
        self.turn()

    def restart(self) -> None:
        self.machine = Machine.restore(self.machine.snapshot(), self.policies, seed=self.dice.randrange(99))
        self.twin = Machine.restore(self.twin.snapshot(), self.policies)

    def heal(self, share: float) -> None:
        """A journal from which facts are missing makes a lawful state, with which a server goes on."""
        healed = Machine(self.policies)
        for number, now, written in self.journal:
            left = [fact for fact in written if number == 1 or self.dice.random() >= share]
            passed = healed.replay_what_fits(number, now, left)
            check(healed.state)
            assert share or not passed
        healed.state.now = self.now
        if not share:
            assert picture(healed.state) == picture(self.machine.state)
        healed.turn(self.now + 100, [executor(self.executors + 1, 4)])
        check(healed.state)

    def finish(self) -> None:
        """Whatever happened: once executors do their work, every task ends."""
        self.turn(news.Release(Dep(On.ARRAY, ARRAY)), *(news.Release(Dep(On.TASK, one)) for one in range(1, TASKS + 1)))
        self.turn(*(news.Release(Dep(On.TASK, ARRAY, index)) for index in range(LENGTH)))
        for _ in range(60):
            if self.machine.is_idle:
                break
            self.join()
            self.now += 100.0
            self.turn()
            for span in list(self.machine.state.spans.values()):
                for start, stop in [tuple(part) for part in span.left]:
                    self.turn(news.WorkSucceeded(span.id, start, stop, 1.0))
        assert self.machine.is_idle
        assert not self.machine.state.spans
        assert not self.machine.state.attempts.replicas
        assert not self.machine.state.replicas.started


@pytest.mark.parametrize(
    "policy", ["hostile", "wqr:cap=3", "tail:age=1s,factor=1", "wqr:age=20s", "careful-tail:age=1s,factor=1,cap=2"]
)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_of_all_attempts_of_a_task_one_counts_whatever_happens(policy: str, seed: int) -> None:
    world = World(policy, seed)
    for _ in range(60):
        world.step()
    world.heal(0.0)
    world.heal(0.2)
    world.finish()


def test_the_histories_above_were_about_replicas() -> None:
    if SEEN:  # it may be run alone
        assert SEEN["Replicated"] > 30
        assert SEEN["SpanEnded"] > 30
        assert SEEN["wasted byte"]
        assert SEEN["unasked"] > 5
