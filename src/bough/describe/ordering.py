"""What each task of a workflow waits for, told by tasks alone: groups are replaced by what is in them.

Writers of flat graphs (WfFormat, DOT) know no groups. Waiting for a group is waiting for all in it, and what is in a
group waits for what the group waits for. Rule: where N tasks wait for M others through a group, a joint stands between
them, so that a graph stays about as big as the workflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_FEW = 64  # dependencies that a joint would save, before it is worth its place


class Node(NamedTuple):
    """A task, or the begin or the end of a group."""

    kind: str  # "task", "begin", "end"
    id: int


class Arcs(NamedTuple):
    """What waits for what: every task, and the joints that were left, with what comes before them."""

    tasks: dict[int, list[Node]]
    joints: dict[Node, list[Node]]  # each after those it waits for


class Ordering:
    """Collects groups and tasks, then says what waits for what."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        self._inside: dict[int, list[int]] = {}  # groups by the group they are in
        self._group_waits: dict[int, list[Node]] = {}
        self._home: dict[int, int] = {}  # by task: its group
        self._tasks: dict[int, list[int]] = {}  # by group
        self._waits: dict[int, list[Node]] = {}
        self._released: dict[int, list[int]] = {}  # by group: the tasks that let others begin

    def add_group(self, group: int, above: int, waits: Iterable[Node] = ()) -> None:
        """Add a group; the root is 0 and is there already."""
        self._above[group] = above
        self._inside.setdefault(above, []).append(group)
        self._group_waits[group] = list(waits)

    def add_task(self, task: int, group: int, waits: Iterable[Node] = (), *, release: bool = False) -> None:
        """Add a task; `release`: who waits for its group waits only for this one."""
        self._home[task] = group
        self._tasks.setdefault(group, []).append(task)
        self._waits[task] = list(waits)
        if release:
            self._released.setdefault(group, []).append(task)

    def add_waits(self, task: int, waits: Iterable[Node]) -> None:
        """Add to what a task waits for."""
        self._waits[task] += waits

    def arcs(self) -> Arcs:
        """What waits for what."""
        begins = self._begins()
        before = {task: [*waits, *begins(self._home[task])] for task, waits in self._waits.items()}
        joints = self._joints(before, begins)
        uses = Counter(node for some in (*before.values(), *joints.values()) for node in some if node.kind != "task")
        left: dict[Node, list[Node]] = {}
        flat: dict[Node, list[Node]] = {}
        for joint, some in joints.items():  # in an order in which each comes after what it waits for
            inner = list(dict.fromkeys(_replaced(some, flat)))
            if len(inner) > 1 and uses[joint] > 1 and len(inner) * uses[joint] > _FEW + len(inner) + uses[joint]:
                left[joint] = inner
            else:
                flat[joint] = inner
        return Arcs({task: list(dict.fromkeys(_replaced(some, flat))) for task, some in before.items()}, left)

    def _begins(self) -> _Begins:
        return _Begins(self._above, self._group_waits)

    def _joints(self, before: dict[int, list[Node]], begins: _Begins) -> dict[Node, list[Node]]:
        """Begins and ends of groups that somebody waits for, each after those it waits for itself."""
        found: dict[Node, list[Node]] = {}
        for start in {node: None for some in before.values() for node in some if node.kind != "task"}:
            stack: list[tuple[Node, list[Node], Iterator[Node]]] = []
            self._enter(start, begins, stack)
            while stack:
                node, inner, left = stack[-1]
                following = next((one for one in left if one.kind != "task" and one not in found), None)
                if following is None:
                    found[node] = inner
                    stack.pop()
                else:
                    self._enter(following, begins, stack)
        return found

    def _enter(self, node: Node, begins: _Begins, stack: list[tuple[Node, list[Node], Iterator[Node]]]) -> None:
        inner = self._behind(node, begins)
        stack.append((node, inner, iter(inner)))

    def _behind(self, node: Node, begins: _Begins) -> list[Node]:
        if node.kind == "begin":
            return [*self._group_waits[node.id], *begins(self._above[node.id])]
        if node.id in self._released:
            return [Node("task", task) for task in self._released[node.id]]
        inner = [Node("task", task) for task in self._tasks.get(node.id, ())]
        inner += [Node("end", group) for group in self._inside.get(node.id, ())]
        return inner or begins(node.id)


class _Begins:
    """The begin that what is in a group waits for, if there is any."""

    def __init__(self, above: dict[int, int], waits: dict[int, list[Node]]) -> None:
        self._above = above
        self._waits = waits
        self._found: dict[int, list[Node]] = {0: []}

    def __call__(self, group: int) -> list[Node]:
        path = []
        while group not in self._found:
            path.append(group)
            if self._waits.get(group):
                self._found[group] = [Node("begin", group)]
            else:
                group = self._above.get(group, 0)
        found = self._found[group]
        for one in path:
            self._found.setdefault(one, found)
        return found


def _replaced(some: Iterable[Node], flat: dict[Node, list[Node]]) -> Iterator[Node]:
    for node in some:
        if node in flat:
            yield from flat[node]
        else:
            yield node
