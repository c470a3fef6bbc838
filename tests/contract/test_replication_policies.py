"""Our own replication policies keep the promises of every such policy."""

from __future__ import annotations

import pytest

from bough.policies.policy_registry import load_replication, replication_names
from bough.policy.interface import ReplicationPolicy
from bough.testing.replication_conformance import ReplicationSuite

OPTIONS = ["", ":cap=3,age=20s"]


@pytest.mark.parametrize("text", [name + more for name in replication_names() for more in OPTIONS], scope="class")
class TestEveryPolicy(ReplicationSuite):
    @pytest.fixture(autouse=True)
    def named(self, text: str) -> None:
        self.text = text

    def policy(self) -> ReplicationPolicy:
        made = load_replication(self.text)
        assert made is not None
        return made
