"""Our own policies about populations keep the promises of every such policy."""

from __future__ import annotations

from bough.model.monitoring.population_rules import PopulationRule
from bough.policies.population.first_answer import FirstAnswer
from bough.policies.population.halving import Halving
from bough.policies.population.median import Median
from bough.policy.interface import PopulationPolicy
from bough.testing.population_conformance import PopulationSuite

STEPS = (1.0, 2.0, 3.0)


class TestHalving(PopulationSuite):
    rule = PopulationRule("halving", "score", STEPS)

    def policy(self) -> PopulationPolicy:
        return Halving()


class TestHalvingForTheHighest(TestHalving):
    rule = PopulationRule("halving", "score", STEPS, maximise=True, keep=0.25)


class TestMedian(PopulationSuite):
    rule = PopulationRule("median", "score", STEPS, least=2)

    def policy(self) -> PopulationPolicy:
        return Median()


class TestFirstAnswer(PopulationSuite):
    rule = PopulationRule("first-answer")
    spares_the_best = False

    def policy(self) -> PopulationPolicy:
        return FirstAnswer()
