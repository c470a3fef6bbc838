"""What every policy about populations must do: subclass `PopulationSuite` and say which policy, and a rule for it.

    class TestMine(PopulationSuite):
        rule = PopulationRule("mine", "score", (1.0, 2.0, 3.0))

        def policy(self) -> PopulationPolicy:
            return Mine()

Rule: each promise is tried through the real machine, whose laws are checked after every turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from bough.core.invariants import check
from bough.core.machine import Machine, Turn
from bough.model.events import arriving, news
from bough.model.events.orders import EndSpan
from bough.model.monitoring.observations import Points
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.tasks import Dep, On
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import EndMember, EndOthers, Policies, PopulationPolicy, PopulationView
from bough.testing.builders import BOOM, array, executor, limits, submit

_LENGTH = 16
_LAST = 4  # steps of a member that is not ended


class WatchedRule:
    """A policy as the machine sees it, with all it wished for."""

    def __init__(self, inner: PopulationPolicy) -> None:
        self._inner = inner
        self.wishes: list[EndMember | EndOthers] = []

    def decide(self, view: PopulationView, /) -> Iterable[EndMember | EndOthers]:
        """As the policy decides."""
        for wish in self._inner.decide(view):
            self.wishes.append(wish)
            yield wish


class PopulationSuite:
    """The promises; a subclass names the policy and a rule with checkpoints at 1, 2 and 3, or none."""

    rule: PopulationRule
    spares_the_best = True  # who is best at every checkpoint goes on

    def policy(self) -> PopulationPolicy:
        """The policy under test, fresh."""
        raise NotImplementedError

    def begin(self, cores: int, length: int = _LENGTH, retries: int = 0) -> tuple[Machine, WatchedRule]:
        """A population that has its rule, on an executor."""
        watched = WatchedRule(self.policy())
        machine = Machine(Policies(Fifo(), population=lambda _: watched))
        machine.turn(0, [executor(1, cores)])
        machine.turn(0, [submit(array(1, length, limits=limits(retries=retries)))])
        self.turn(machine, news.SetRule(Dep(On.ARRAY, 1), self.rule))
        return machine, watched

    def turn(self, machine: Machine, *said: arriving.News) -> Turn:
        """One turn, after which the laws hold and the policy has not raised."""
        turn = machine.turn(machine.state.now + 1, said)
        check(machine.state)
        assert turn.complaints == []
        return turn

    def run(self, seed: int, cores: int = 5, fails: float = 0.0) -> tuple[Machine, WatchedRule, list[int]]:
        """Let members take their steps in any order; who was ended by order, in order. Member i scores about i."""
        dice = Random(seed)
        machine, watched = self.begin(cores, retries=3 if fails else 0)
        steps: dict[tuple[int, int], int] = {}  # by element and span
        ended: list[int] = []
        while machine.state.spans:
            span = dice.choice(list(machine.state.spans.values()))
            start, index = span.left[0][0], dice.choice([i for low, high in span.left for i in range(low, high)])
            index = start if span.stop - span.start == 1 else index
            step = steps[index, span.id] = steps.get((index, span.id), 0) + 1
            said: arriving.News
            if dice.random() < fails:
                said = news.WorkFailed(span.id, index, BOOM)
            elif step >= _LAST or index in ended:  # also who was asked to end, after what it had in hand
                said = news.WorkSucceeded(span.id, index, index + 1, 1.0)
            else:
                said = news.WorkObserved(span.id, index, [self._score(index, step)])
            turn = self.turn(machine, said)
            ends = [order for order in turn.orders if isinstance(order, EndSpan)]
            ended += [at for order in ends for at in range(order.start, order.stop)]
        return machine, watched, ended

    def _score(self, index: int, step: int) -> Points:
        value = float(-index if self.rule.maximise else index)
        return Points(self.rule.metric or "score", ((float(step), 0.0, value + 0.1 / step),))

    # --- the promises ----------------------------------------------------------------------------

    def test_somebody_always_comes_to_the_end(self) -> None:
        """However they run, not all are ended by the rule."""
        for seed in range(10):
            machine, _, ended = self.run(seed, cores=seed % 7 + 1)
            assert machine.is_idle
            by_themselves = machine.counts()["done"] - len(set(ended))
            assert by_themselves >= 1, f"seed {seed}"

    def test_failures_and_retries_are_no_trouble(self) -> None:
        for seed in range(10):
            machine, _, _ = self.run(seed, fails=0.2)
            assert machine.is_idle

    def test_the_same_happenings_give_the_same_decisions(self) -> None:
        first, second = self.run(3), self.run(3)
        assert first[1].wishes == second[1].wishes
        assert first[2] == second[2]

    def test_a_population_of_one_is_left_alone(self) -> None:
        machine, watched = self.begin(1, length=1)
        for step in range(1, _LAST):
            (span,) = machine.state.spans.values()
            self.turn(machine, news.WorkObserved(span.id, 0, [self._score(0, step)]))
        assert watched.wishes == []

    def test_nobody_is_ended_twice(self) -> None:
        for seed in range(5):
            _, _, ended = self.run(seed)
            assert len(ended) == len(set(ended))

    def test_who_is_best_at_every_checkpoint_goes_on(self) -> None:
        for seed in range(10) if self.spares_the_best else ():
            _, _, ended = self.run(seed)
            assert 0 not in ended

    def test_every_wish_says_why(self) -> None:
        for seed in range(5):
            _, watched, _ = self.run(seed)
            assert all(wish.reason and "\n" not in wish.reason for wish in watched.wishes)
