"""DOT, the language of Graphviz, written: a plan or a run as a picture of its tasks and groups.

Groups are clusters, joints are points, and in a run the colour tells the state. Rule: any name is quoted, so that what
Graphviz reads is what the workflow says.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.describe.record import Record, RecordedTask

_COLOURS = {
    "done": "palegreen",
    "failed": "salmon",
    "notrun": "lightgrey",
    "cancelled": "lightgrey",
    "running": "lightblue",
    "placed": "lightblue",
}


def write(record: Record) -> str:
    """A workflow as the text of a DOT file."""
    return "".join(f"{line}\n" for line in _lines(record))


def _lines(record: Record) -> Iterator[str]:
    yield f"digraph {_quoted(record.name or 'workflow')} {{"
    yield "  rankdir=TB;"
    yield "  node [shape=box, style=filled, fillcolor=white];"
    tree: dict[str, list[RecordedTask]] = {"": []}
    inside: dict[str, list[str]] = {}
    for task in record.tasks:
        path = task.group
        while path not in tree:
            tree[path] = []
            above = path.rpartition("/")[0]
            inside.setdefault(above, []).append(path)
            path = above
        tree[task.group].append(task)
    yield from _cluster("", tree, inside)
    for task in record.tasks:
        for before in task.before:
            yield f"  {_quoted(before)} -> {_quoted(task.id)};"
    yield "}"


def _cluster(root: str, tree: dict[str, list[RecordedTask]], inside: dict[str, list[str]]) -> Iterator[str]:
    stack: list[tuple[str, bool]] = [(root, False)]
    while stack:
        path, is_over = stack.pop()
        depth = path.count("/") + 1 if path else 0
        blank = "  " * (depth + 1)
        if is_over:
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


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "")
    return f'"{escaped}"'
