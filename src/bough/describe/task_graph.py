"""A workflow as tasks and arcs, with what is known of how it ran: what writers of graphs take.

It is made of a plan, of which nothing has run yet, or of the jobs database. Writers of flat graphs (WfFormat, DOT) know
no groups: waiting for a group becomes waiting for all in it, and what is in a group waits for what the group waits for.
Rule: where N tasks wait for M others through a group, a joint stands between them, which takes no time and does
nothing, so that a graph stays about as big as the workflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from bough.describe.plan import Plan, PlanTask
from bough.describe.steps import For, What, steps
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import ONE_CORE, Needs

_FEW = 64  # dependencies that a joint would save, before it is worth its place


class GraphNode(NamedTuple):
    """A task, or the begin or the end of a group; the end is when others may begin, if a task of it releases them."""

    kind: str  # "task", "begin", "end", "whole": the end of all in it, whatever is released
    id: int


class Arcs(NamedTuple):
    """What waits for what: every task, and the joints that were left, with what comes before them."""

    tasks: dict[int, list[GraphNode]]
    joints: dict[GraphNode, list[GraphNode]]  # each after those it waits for


class Ordering:
    """Collects groups and tasks, then says what waits for what."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        self._inside: dict[int, list[int]] = {}  # groups by the group they are in
        self._group_waits: dict[int, list[GraphNode]] = {}
        self._home: dict[int, int] = {}  # by task: its group
        self._tasks: dict[int, list[int]] = {}  # by group
        self._waits: dict[int, list[GraphNode]] = {}
        self._released: dict[int, list[int]] = {}  # by group: the tasks that let others begin

    def add_group(self, group: int, above: int, waits: Iterable[GraphNode] = ()) -> None:
        """Add a group; the root is 0 and is there already."""
        self._above[group] = above
        self._inside.setdefault(above, []).append(group)
        self._group_waits[group] = list(waits)

    def add_task(self, task: int, group: int, waits: Iterable[GraphNode] = (), *, release: bool = False) -> None:
        """Add a task; `release`: what waits for its group waits only for this one."""
        self._home[task] = group
        self._tasks.setdefault(group, []).append(task)
        self._waits[task] = list(waits)
        if release:
            self._released.setdefault(group, []).append(task)

    def add_waits(self, task: int, waits: Iterable[GraphNode]) -> None:
        """Add to what a task waits for."""
        self._waits[task] += waits

    def arcs(self) -> Arcs:
        """What waits for what."""
        begins = self._begins()
        before = {task: [*waits, *begins(self._home[task])] for task, waits in self._waits.items()}
        joints = self._joints(before, begins)
        uses = Counter(node for some in (*before.values(), *joints.values()) for node in some if node.kind != "task")
        left: dict[GraphNode, list[GraphNode]] = {}
        flat: dict[GraphNode, list[GraphNode]] = {}
        for joint, some in joints.items():  # in an order in which each comes after what it waits for
            inner = list(dict.fromkeys(_replaced(some, flat)))
            if len(inner) > 1 and uses[joint] > 1 and len(inner) * uses[joint] > _FEW + len(inner) + uses[joint]:
                left[joint] = inner
            else:
                flat[joint] = inner
        return Arcs({task: list(dict.fromkeys(_replaced(some, flat))) for task, some in before.items()}, left)

    def _begins(self) -> _Begins:
        return _Begins(self._above, self._group_waits)

    def _joints(self, before: dict[int, list[GraphNode]], begins: _Begins) -> dict[GraphNode, list[GraphNode]]:
        """Begins and ends of groups that something waits for, each after those it waits for itself."""
        found: dict[GraphNode, list[GraphNode]] = {}
        for start in {node: None for some in before.values() for node in some if node.kind != "task"}:
            stack: list[tuple[GraphNode, list[GraphNode], Iterator[GraphNode]]] = []
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

    def _enter(
        self, node: GraphNode, begins: _Begins, stack: list[tuple[GraphNode, list[GraphNode], Iterator[GraphNode]]]
    ) -> None:
        inner = self._behind(node, begins)
        stack.append((node, inner, iter(inner)))

    def _behind(self, node: GraphNode, begins: _Begins) -> list[GraphNode]:
        if node.kind == "begin":
            return [*self._group_waits[node.id], *begins(self._above[node.id])]
        if node.kind == "end" and node.id in self._released:
            return [GraphNode("task", task) for task in self._released[node.id]]
        inner = [GraphNode("task", task) for task in self._tasks.get(node.id, ())]
        inner += [GraphNode(node.kind, group) for group in self._inside.get(node.id, ())]
        return inner or begins(node.id)


class _Begins:
    """The begin that what is in a group waits for, if there is any."""

    def __init__(self, above: dict[int, int], waits: dict[int, list[GraphNode]]) -> None:
        self._above = above
        self._waits = waits
        self._found: dict[int, list[GraphNode]] = {0: []}

    def __call__(self, group: int) -> list[GraphNode]:
        path = []
        while group not in self._found:
            path.append(group)
            if self._waits.get(group):
                self._found[group] = [GraphNode("begin", group)]
            else:
                group = self._above.get(group, 0)
        found = self._found[group]
        for one in path:
            self._found.setdefault(one, found)
        return found


def _replaced(some: Iterable[GraphNode], flat: dict[GraphNode, list[GraphNode]]) -> Iterator[GraphNode]:
    for node in some:
        if node in flat:
            yield from flat[node]
        else:
            yield node


@dataclass(slots=True)
class RecordedTask:
    """One task. What is unknown is None."""

    id: str
    name: str
    command: str = ""
    before: list[str] = field(default_factory=list)  # ids
    group: str = ""  # path
    state: str = ""
    needs: Needs = ONE_CORE  # what it asks for, and where it may run
    priority: int = 0
    seconds: float | None = None
    submitted: float | None = None
    started: float | None = None
    staged: float = 0.0  # seconds for moving its files, beside those in which it ran
    tried: float = 0.0  # seconds of tries before the one that counts
    cpu: float | None = None  # seconds
    memory: int | None = None  # bytes that it used
    host: str = ""
    inputs: dict[str, int] = field(default_factory=dict)  # files by name, with sizes
    outputs: dict[str, int] = field(default_factory=dict)
    is_joint: bool = False

    @property
    def cores(self) -> float:
        """That it asks for."""
        return self.needs.cores


@dataclass(slots=True)
class RunMachine:
    """A host that took part."""

    host: str
    cores: int = 0
    memory: int = 0


@dataclass(slots=True)
class RunExecutor:
    """An executor that took part: of which site and host, what it had, and when it was there."""

    id: int
    site: str
    host: str
    has: Needs  # no memory: not said
    joined: float = 0.0
    left: float | None = None
    attributes: Attributes = ()  # what it says of itself, for requirements

    @property
    def cores(self) -> float:
        """That it has."""
        return self.has.cores


class QueueChange(NamedTuple):
    """A named queue was given limits at an instant; None: it was removed."""

    when: float
    queue: str
    spec: QueueSpec | None


@dataclass(slots=True)
class TaskGraph:
    """A workflow, and how it ran."""

    name: str
    tasks: list[RecordedTask] = field(default_factory=list)
    machines: list[RunMachine] = field(default_factory=list)
    executors: list[RunExecutor] = field(default_factory=list)
    policy: str = ""
    opened: float | None = None  # instants; None: it has not run
    closed: float | None = None
    queues: list[QueueChange] = field(default_factory=list)  # in the order of their times


def order(graph: TaskGraph, ordering: Ordering, tasks: dict[int, RecordedTask]) -> None:
    """Fill in what waits for what, and put joints where they are worth it."""
    arcs = ordering.arcs()

    def named(node: GraphNode) -> str:
        return tasks[node.id].id if node.kind == "task" else f"joint-{node.kind}-{node.id}"

    joints = [
        RecordedTask(named(joint), "joint", "true", [named(node) for node in before], is_joint=True)
        for joint, before in arcs.joints.items()
    ]
    for number, before in arcs.tasks.items():
        tasks[number].before = [named(node) for node in before]
    graph.tasks = [*joints, *tasks.values()]


def of_plan(plan: Plan, name: str) -> TaskGraph:
    """A plan as tasks and arcs."""
    graph = TaskGraph(name)
    ordering = Ordering()
    tasks: dict[int, RecordedTask] = {}
    paths = {0: ""}
    for step in steps(plan):
        waits = [GraphNode("task" if kind is For.TASK else "end", number) for kind, number in step.waits]
        if step.what is What.OPEN:
            ordering.add_group(step.number, step.group, waits)
            above = paths[step.group]
            paths[step.number] = above if step.name.startswith(".") else f"{above}/{step.name}".lstrip("/")
        elif step.what is What.TASK and step.task is not None:
            ordering.add_task(step.number, step.group, waits, release=step.task.release)
            tasks[step.number] = _task(step.task, step.number, paths[step.group])
    order(graph, ordering, tasks)
    return graph


def _task(said: PlanTask, number: int, path: str) -> RecordedTask:
    task = RecordedTask(said.name or f"task-{number}", said.label, said.command, group=path, priority=said.priority)
    sites = tuple(dict.fromkeys(said.sites))
    task.needs = Needs(said.cores, said.memory, sites=sites, requires=said.requires, queue=said.queue)
    task.inputs, task.outputs = files_of(said, "inputs"), files_of(said, "outputs")
    seconds = said.attributes.get("seconds", "")
    try:
        task.seconds = float(seconds) if seconds else None
    except ValueError:
        task.seconds = None  # the user's own attribute of that name, and no time
    return task


def files_of(said: PlanTask, attribute: str) -> dict[str, int]:
    """The files that a reader of a trace has noted in an attribute of a task."""
    text = said.attributes.get(attribute, "")
    if not text.startswith("{"):
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        return {}
