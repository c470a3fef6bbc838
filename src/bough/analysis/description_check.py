"""What a description could do without: edges that others imply, and what each supergroup costs.

An edge is redundant if what it waits for comes before anyway: by another edge, by the order inside a group, or by a
file. A supergroup costs what the minimal schedule (any number of processors, no overheads; TrellisDAG 3.6) takes longer
with it than if it ordered nothing (`barrier=no`). That is an upper bound where tasks need each other and say so only by
their groups: then the cost is the price of not saying more. Beside it stands what `match=yes` would save, where
subgroups wait only for their namesakes.
Rule: nothing runs; the plan is not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from bough.analysis.recorded_workloads import workload_of
from bough.describe.plan import Index, Plan, PlanGroup, PlanTask, Where, file_path, file_writers, join, made_place
from bough.describe.task_graph import of_plan
from bough.errors import UserError
from bough.model.ids import Seconds

MOST_NODES = 20_000  # groups and tasks among which redundant edges are looked for: each keeps a bit for each other
MOST_GROUPS = 500  # supergroups that are tried: each is a model run

_GATE, _READY, _OWN, _RELEASE, _END = range(5)
_KINDS = 5


class RedundantEdge(msgspec.Struct, frozen=True):
    """A declared dependency that could be left out."""

    waiting: str  # a group's path or a task's name
    on: str
    because: str
    where: Where


class SupergroupCost(msgspec.Struct, frozen=True):
    """What a group of groups costs, by model runs."""

    path: str
    subgroups: int
    makespan: Seconds  # as it is described
    free: Seconds  # if it ordered nothing
    matched: Seconds | None = None  # if its subgroups waited only for their namesakes; None: it waits for no group

    @property
    def cost(self) -> Seconds:
        """What it adds to the makespan, at most."""
        return max(0.0, self.makespan - self.free)


class _Edge(NamedTuple):
    node: int
    on: int
    waiting: str
    name: str
    where: Where


class _Graph:
    """Groups and tasks with all that comes before each, as lists of nodes."""

    def __init__(self, plan: Plan) -> None:
        self.index = Index(plan)
        self.groups = [(path, group) for path, group in plan.walk()]
        self.number = {id(group): at for at, (_, group) in enumerate(self.groups)}
        self.tasks: list[PlanTask] = []
        self.task_node: dict[int, int] = {}  # by the identity of a task
        self.before: list[list[int]] = [[] for _ in range(_KINDS * len(self.groups))]
        self.edges: list[_Edge] = []
        for _, group in self.groups:
            for task in group.all_tasks():
                self.task_node[id(task)] = len(self.before)
                self.tasks.append(task)
                self.before.append([])
        for path, group in self.groups:
            self._add_group(path, group)
        self._add_files()

    def _node(self, group: PlanGroup, kind: int) -> int:
        return self.number[id(group)] * _KINDS + kind

    def _reference(self, text: str) -> int:
        group = self.index.groups.get(text)
        if group is not None:
            return self._node(group, _RELEASE)
        return self.task_node[id(self.index.tasks[text])]

    def _add_group(self, path: str, group: PlanGroup) -> None:
        gate, ready, own, release, end = (self._node(group, kind) for kind in range(_KINDS))
        above = self.index.above.get(id(group))
        if above is not None:
            self.before[gate].append(self._node(above, _READY))
        if group.barrier and not group.match:
            for text in group.after:
                self._declare(gate, text, path, group.where)
        self.before[ready] = [gate, *self._phase(group.prologue, [gate])]
        orders = group.barrier and path  # the root and groups to look at order nothing
        self.before[own] = [ready, *(self._node(inner, _END) for inner in group.groups if orders)]
        tasks = self._phase(group.tasks, [own], pipeline=group.pipeline)
        last = self._phase(group.epilogue, [own, *tasks])
        self.before[end] = [own, *tasks, *last, *(self._node(inner, _END) for inner in group.groups)]
        released = [self.task_node[id(task)] for task in group.tasks if task.release]
        inner = [self._node(one, _RELEASE) for one in group.groups]
        self.before[release] = released or [ready, *tasks, *last, *inner]

    def _phase(self, tasks: Sequence[PlanTask], start: list[int], *, pipeline: bool = True) -> list[int]:
        """The tasks of one part of a group, after what comes before that part."""
        last = start
        for task in tasks:
            node = self.task_node[id(task)]
            self.before[node] += last
            for text in task.after:
                self._declare(node, text, task.label, task.where)
            if pipeline:
                last = [node]
        return [self.task_node[id(task)] for task in tasks]

    def _declare(self, node: int, text: str, waiting: str, where: Where) -> None:
        on = self._reference(text)
        self.edges.append(_Edge(node, on, waiting, text, where))
        self.before[node].append(on)

    def _add_files(self) -> None:
        writers = file_writers(self.tasks)
        for task in self.tasks if writers else ():
            for path in task.reads:
                place = made_place(file_path(task, path), writers)
                if place and self.tasks[writers[place]] is not task:
                    self.before[self.task_node[id(task)]].append(self.task_node[id(self.tasks[writers[place]])])

    def ancestors(self) -> list[int]:
        """By node: a number with a bit for each node that comes before it."""
        found: list[int | None] = [None] * len(self.before)
        for root in range(len(self.before)):
            stack = [root]
            while stack:
                node = stack[-1]
                missing = [one for one in self.before[node] if found[one] is None] if found[node] is None else []
                if missing:
                    stack += missing
                    continue
                stack.pop()
                if found[node] is None:
                    bits = 0
                    for one in self.before[node]:
                        bits |= (1 << one) | (found[one] or 0)
                    found[node] = bits
        return [bits or 0 for bits in found]


def redundant_edges(plan: Plan) -> list[RedundantEdge]:
    """Declared dependencies that others imply; the plan was lowered before, so that it has no cycle."""
    graph = _Graph(plan)
    if len(graph.before) > MOST_NODES * _KINDS:
        raise UserError(f"more than {MOST_NODES} groups and tasks: redundant edges are not looked for")
    above = graph.ancestors()
    names = {(edge.node, edge.on): edge.name for edge in graph.edges}
    found: list[RedundantEdge] = []
    for edge in graph.edges:
        others = list(graph.before[edge.node])
        others.remove(edge.on)
        via = next((one for one in others if one == edge.on or above[one] >> edge.on & 1), None)
        if via is None:
            continue
        graph.before[edge.node] = others  # of what is said twice, one is needed
        if via == edge.on:
            because = "it is said twice, or by a file that it reads"
        elif (edge.node, via) in names:
            because = f"it waits for {names[edge.node, via]}, which comes after that"
        else:
            because = "its place in its group, or a file that it reads, puts it after that"
        found.append(RedundantEdge(edge.waiting, edge.name, because, edge.where))
    return found


def supergroup_costs(plan: Plan, *, unknown: Seconds | None = None) -> list[SupergroupCost]:
    """What each group of groups costs that orders something; `unknown`: the seconds of tasks that say none."""
    described = minimal_makespan(plan, unknown)
    awaited = {text for _, group in plan.walk() for text in group.after}
    found: list[SupergroupCost] = []
    for path, group in plan.walk():
        if not path or not group.groups or not group.barrier or group.prologue or group.epilogue:
            continue
        if not group.after and path not in awaited:
            continue
        if len(found) == MOST_GROUPS:
            break
        free = minimal_makespan(_changed(plan, {path: {"barrier": False, "after": [], "match": False}}), unknown)
        matched = None
        if group.after and not group.match:
            matched = minimal_makespan(_changed(plan, {path: {"match": True}}), unknown)
        found.append(SupergroupCost(path, len(group.groups), described, free, matched))
    return sorted(found, key=lambda one: (-one.cost, one.path))


def minimal_makespan(plan: Plan, unknown: Seconds | None = None) -> Seconds:
    """What it takes on any number of processors, without overheads."""
    return workload_of(of_plan(plan, plan.source or "the description"), unknown=unknown).critical_path


def _changed(plan: Plan, changes: Mapping[str, dict[str, object]]) -> Plan:
    """The plan with some groups changed; one that orders nothing is waited for by nobody, either."""
    gone = {path for path, change in changes.items() if change.get("barrier") is False}
    return msgspec.structs.replace(plan, root=_copy(plan.root, "", changes, gone))


def _copy(group: PlanGroup, path: str, changes: Mapping[str, dict[str, object]], gone: set[str]) -> PlanGroup:
    inner = [_copy(one, join(path, one.name), changes, gone) for one in group.groups]
    after = [text for text in group.after if text not in gone]
    return msgspec.structs.replace(group, **{"groups": inner, "after": after, **changes.get(path, {})})


def check_lines(edges: Sequence[RedundantEdge], costs: Sequence[SupergroupCost]) -> Iterator[str]:
    """What people read."""
    for edge in edges:
        place = f"{edge.where.file}:{edge.where.line}: " if edge.where.line else ""
        yield f"{place}{edge.waiting} need not wait for {edge.on}: {edge.because}"
    if not edges:
        yield "no dependency is redundant"
    for cost in costs:
        text = (
            f"supergroup {cost.path} ({cost.subgroups} groups) costs at most {cost.cost:.2f} s of {cost.makespan:.2f}"
        )
        if cost.matched is not None and cost.makespan - cost.matched > 1e-9:
            text += f"; match=yes would save {cost.makespan - cost.matched:.2f} s"
        yield text
