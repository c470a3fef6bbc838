"""The minimal schedule: every task starts the moment that what it depends on is there, on any number of processors.

That is the longest path through the graph of dependencies with the measured times (TrellisDAG 3.6). Nodes that are no
tasks (gates, ends and releases of groups, whole arrays) take no time. Rule: pure, and without recursion, because
chains may be long.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Key = tuple[str, int, int]  # kind, number of a record or group, element


class Node(msgspec.Struct):
    """Something that is reached after others are."""

    seconds: float = 0.0
    before: list[Key] = []
    first: bool = False  # reached with the first of those before it, not with the last


class Schedule(msgspec.Struct):
    """When each node is reached at the earliest, and what it waited for last."""

    finish: dict[Key, float]
    waited: dict[Key, Key]

    @property
    def makespan(self) -> float:
        """When the last one is reached."""
        return max(self.finish.values(), default=0.0)

    def path(self) -> list[Key]:
        """The nodes of a longest path, in the order of time."""
        if not self.finish:
            return []
        at: Key | None = max(self.finish, key=lambda key: self.finish[key])
        found: list[Key] = []
        while at is not None:
            found.append(at)
            at = self.waited.get(at)
        return found[::-1]


def minimal(nodes: Mapping[Key, Node]) -> Schedule:
    """The minimal schedule; what is not among the nodes is there from the beginning, and so is what a cycle needs."""
    finish: dict[Key, float] = {}
    waited: dict[Key, Key] = {}
    entered: set[Key] = set()
    for root in nodes:
        stack = [root]
        while stack:
            key = stack[-1]
            if key in finish:
                stack.pop()
                continue
            node = nodes[key]
            if key not in entered:
                entered.add(key)
                open_ones = [one for one in node.before if one in nodes and one not in finish and one not in entered]
                if open_ones:
                    stack += open_ones
                    continue
            stack.pop()
            ready = [one for one in node.before if one in finish]
            if ready:
                last = (min if node.first else max)(ready, key=lambda one: finish[one])
                waited[key] = last
                finish[key] = finish[last] + node.seconds
            else:
                finish[key] = node.seconds
    return Schedule(finish, waited)
