"""Random graphs whose files are lost at random times: every task ends right, and nothing goes on for ever."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bough.core.data.remakes import MOST_REMAKES
from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.model.events import facts, news
from bough.model.events.facts import decode_facts, encode_facts
from bough.model.events.orders import SendSpan
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Dep, On
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, limits, submit, task


class World:
    """A machine, its twin, and the files that its tasks have made: by record and element."""

    def __init__(self, shape: list[tuple[int, list[int]]], losses: int) -> None:
        self.machine, self.twin = Machine(Policies(Fifo())), Machine(Policies(Fifo()))
        self.there: set[tuple[int, int]] = set()
        self.reads: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.runs: dict[tuple[int, int], int] = {}
        self.out: list[SendSpan] = []
        self.now = 0.0
        items, lengths = [], []
        for number, (length, before) in enumerate(shape, 1):
            makers = sorted({1 + one % (number - 1) for one in before}) if number > 1 else []
            deps = [Dep(On.ARRAY if lengths[one - 1] else On.TASK, one) for one in makers]
            made = [(one, index) for one in makers for index in range(max(1, lengths[one - 1]))]
            lengths.append(length)
            few = limits(losses=losses)
            items.append(array(number, length, *deps, limits=few) if length else task(number, *deps, limits=few))
            self.reads |= {(number, index): made for index in range(max(1, length))}
        self.turn(facts.RunOpened(1, "test", "h", 1), executor(1, 3), submit(*items))

    def turn(self, *events: object) -> None:
        turn = self.machine.turn(self.now, events)  # type: ignore[arg-type]
        self.out += [one for order in turn.orders if isinstance(order, SendSpan) for one in order.singly()]
        if turn.facts:
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        check(self.machine.state)

    def step(self) -> None:
        """One element that an executor has begins: with all its inputs, or not at all."""
        order = self.out.pop(0)
        for index in range(order.start, order.stop):
            key = (order.spec.id, index)
            lost = [one for one in self.reads[key] if one not in self.there]
            for record, element in lost:  # as the server does, when it is asked for them
                self.turn(news.OutputLost(RecordId(record), element, "it was lost"))
            if lost:
                self.turn(news.WorkFailed(order.span, index, Failure(Cause.INPUT_LOST, "in vain")))
                continue
            self.runs[key] = self.runs.get(key, 0) + 1
            self.there.add(key)
            self.turn(news.WorkSucceeded(order.span, index, index + 1, 0.01))


SHAPES = st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 20), max_size=3)), min_size=2, max_size=9)


@settings(max_examples=150, deadline=None)
@given(SHAPES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=25))
def test_every_task_ends_right_whatever_is_lost_and_when(
    shape: list[tuple[int, list[int]]], thefts: list[tuple[int, int]]
) -> None:
    world = World(shape, losses=1000)
    wanted = dict(thefts)  # step -> which of the files that are there then
    steps = 0
    while world.out:
        if steps in wanted and world.there:
            world.there.discard(sorted(world.there)[wanted[steps] % len(world.there)])
        world.step()
        steps += 1
        assert steps < 10_000
    state = world.machine.state
    assert state.unfinished == 0
    assert all(runs <= MOST_REMAKES + 1 for runs in world.runs.values())
    remade = {key for key, runs in world.runs.items() if runs > 1}
    # of all tasks only those are not done whose files were lost more often than may be
    if all(remake.count < MOST_REMAKES for one in state.remakes.by_record.values() for remake in one.values()):
        assert world.machine.counts()["done"] == len(world.reads)
    assert len(remade) <= len(thefts) * len(world.reads)
    world.twin.state.now = state.now
    assert picture(world.twin.state) == picture(state)


@settings(max_examples=50, deadline=None)
@given(SHAPES)
def test_what_is_lost_as_soon_as_it_is_made_ends_in_a_failure_that_says_so(shape: list[tuple[int, list[int]]]) -> None:
    world = World(shape, losses=3)
    for _ in range(20_000):
        if not world.out:
            break
        world.there.clear()
        world.step()
    assert not world.out
    assert world.machine.state.unfinished == 0
    for (record, index), made in world.reads.items():
        found = world.machine.state.records[record]
        if made:
            failure = found.failure_of(index)
            assert failure is not None
            assert failure.cause in {Cause.INPUT_LOST, Cause.DEPENDENCY}
