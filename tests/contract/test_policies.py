"""Our own placement policies keep the promises of every policy."""

from __future__ import annotations

import pytest

from bough.policies.policy_registry import load_placement, placement_names
from bough.policy.interface import PlacementPolicy
from bough.testing.policy_conformance import PolicySuite

NAMES = [
    *placement_names(),
    "xsufferage:plan=static,info=snapshot",
    "storage-affinity:tie=round-robin",
    "storage-affinity:tie=least-loaded",
]


@pytest.mark.parametrize("name", NAMES, scope="class")
class TestEveryPolicy(PolicySuite):
    @pytest.fixture(autouse=True)
    def named(self, name: str) -> None:
        self.name = name

    def policy(self) -> PlacementPolicy:
        return load_placement(self.name)
