"""DOT, the language of Graphviz, written: a run or a plan as a picture.

In the picture of a run (`write`) groups are clusters, joints are points, and the colour tells the state. In the picture
of a plan (`write_plan`) groups are boxes, tasks are nodes, and an arrow says what waits for what; an arrow between
groups is drawn once, not for every pair of their tasks.
Rule: any name is quoted, so that what Graphviz reads is what the workflow says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from bough.describe.plan import Index, Plan, PlanGroup, PlanTask
from bough.describe.task_graph import RecordedTask, TaskGraph

_LONG = 40  # letters of a command
_COLOURS = {
    "done": "palegreen",
    "failed": "salmon",
    "skipped": "lightgrey",
    "cancelled": "lightgrey",
    "running": "lightblue",
}


def write(graph: TaskGraph) -> str:
    """A workflow as the text of a DOT file."""
    return "".join(f"{line}\n" for line in _lines(graph))


def _lines(graph: TaskGraph) -> Iterator[str]:
    yield f"digraph {_quoted(graph.name or 'workflow')} {{"
    yield "  rankdir=TB;"
    yield "  node [shape=box, style=filled, fillcolor=white];"
    tree: dict[str, list[RecordedTask]] = {"": []}
    inside: dict[str, list[str]] = {}
    for task in graph.tasks:
        path = task.group
        while path not in tree:
            tree[path] = []
            above = path.rpartition("/")[0]
            inside.setdefault(above, []).append(path)
            path = above
        tree[task.group].append(task)
    yield from _cluster("", tree, inside)
    for task in graph.tasks:
        for before in task.before:
            yield f"  {_quoted(before)} -> {_quoted(task.id)};"
    yield "}"


def _cluster(root: str, tree: dict[str, list[RecordedTask]], inside: dict[str, list[str]]) -> Iterator[str]:
    stack: list[tuple[str, bool]] = [(root, False)]
    while stack:
        path, is_done = stack.pop()
        depth = path.count("/") + 1 if path else 0
        blank = "  " * (depth + 1)
        if is_done:
            yield f"{'  ' * depth}}}"
            continue
        if path:
            yield f"{'  ' * depth}subgraph {_quoted('cluster_' + path)} {{"
            yield f"{blank}label={_quoted(path.rpartition('/')[2])};"
            stack.append((path, True))
        for task in tree[path]:
            yield blank + _node(task)
        stack += [(inner, False) for inner in reversed(inside.get(path, []))]


def _node(task: RecordedTask) -> str:
    if task.is_joint:
        return f"{_quoted(task.id)} [shape=point];"
    label = task.name or task.id
    if task.seconds is not None:
        label = f"{label}\n{task.seconds:.3g} s"
    colour = _COLOURS.get(task.state)
    more = f", fillcolor={colour}" if colour else ""
    return f"{_quoted(task.id)} [label={_quoted(label)}{more}];"


def write_plan(plan: Plan) -> str:
    """A plan as DOT."""
    return "\n".join(_Drawing(plan).lines()) + "\n"


class _Drawing:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._index = Index(plan)
        self._boxes = {id(group): number for number, (_, group) in enumerate(plan.walk())}
        self._nodes: dict[int, str] = {}  # by the identity of a task
        self._ends: dict[int, tuple[str, str]] = {}  # by the identity of a group: its first node and its last

    def lines(self) -> Iterator[str]:
        yield "digraph workflow {"
        yield "  compound=true; rankdir=LR; node [shape=box, fontsize=10];"
        yield from self._group(self._plan.root, "  ")
        yield from self._edges()
        yield "}"

    def _group(self, group: PlanGroup, indent: str) -> Iterator[str]:
        number = self._boxes[id(group)]
        inner = indent if not number else indent + "  "
        if number:
            yield f"{indent}subgraph cluster_{number} {{"
            yield f"{inner}label={_quoted(group.name)};"
        nodes = []
        for task in group.all_tasks():
            node = self._nodes[id(task)] = f"t{len(self._nodes) + 1}"
            nodes.append(node)
            yield f"{inner}{node} [label={_quoted(task.name or _short(task.command))}];"
        if number and (not nodes or group.groups):
            nodes.append(f"g{number}")
            yield f'{inner}g{number} [shape=point, label=""];'
        for one in group.groups:
            yield from self._group(one, inner)
        if number:
            self._ends[id(group)] = (nodes[0], nodes[-1])
            yield f"{indent}}}"

    def _edges(self) -> Iterator[str]:
        for path, group in self._plan.walk():
            if path:
                for reference in group.after:
                    yield self._edge(reference, self._ends[id(group)][0], f"lhead=cluster_{self._boxes[id(group)]}")
                yield from self._inside(group)
            for task in group.all_tasks():
                for reference in task.after:
                    yield self._edge(reference, self._nodes[id(task)], "")

    def _inside(self, group: PlanGroup) -> Iterator[str]:
        """One after the other: the prologue, the own tasks, the epilogue."""
        some = [group.prologue, *([[task] for task in group.tasks] if not group.pipeline else [group.tasks])]
        for tasks in [*some, group.epilogue]:
            for before, after in pairwise(tasks):
                yield f"  {self._nodes[id(before)]} -> {self._nodes[id(after)]};"

    def _edge(self, reference: str, to: str, head: str) -> str:
        found = self._index.find(reference)
        if isinstance(found, PlanTask):
            source, tail = self._nodes[id(found)], ""
        else:
            source, tail = self._ends[id(found)][1], f"ltail=cluster_{self._boxes[id(found)]}"
        options = ", ".join(filter(None, (tail, head)))
        return f"  {source} -> {to}{f' [{options}]' if options else ''};"


def _short(command: str) -> str:
    return command if len(command) <= _LONG else command[: _LONG - 3] + "..."


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "")
    return f'"{escaped}"'
