"""Our own placement policies keep the promises of every policy."""

from __future__ import annotations

from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policy.interface import PlacementPolicy
from bough.testing.policy_conformance import PolicySuite


class TestFifo(PolicySuite):
    def policy(self) -> PlacementPolicy:
        return Fifo()


class TestShortestFirst(PolicySuite):
    def policy(self) -> PlacementPolicy:
        return ShortestFirst()
