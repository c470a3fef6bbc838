"""A workflow as tasks and arcs, with what is known of how it ran: what writers of graphs take.

It is made of a plan, of which nothing has run yet, or of the jobs database. Rule: joints stand for groups that many
wait for; they take no time and do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from bough.describe.lowering import For, What, steps
from bough.describe.ordering import Node, Ordering
from bough.describe.plan import Plan, PlanTask


@dataclass(slots=True)
class RecordedTask:
    """One task. What is unknown is None."""

    id: str
    name: str
    command: str = ""
    before: list[str] = field(default_factory=list)  # ids
    group: str = ""  # path
    state: str = ""
    cores: float = 1
    priority: int = 0
    seconds: float | None = None
    started: float | None = None
    cpu: float | None = None  # seconds
    memory: int | None = None  # bytes
    host: str = ""
    inputs: dict[str, int] = field(default_factory=dict)  # files by name, with sizes
    outputs: dict[str, int] = field(default_factory=dict)
    is_joint: bool = False


@dataclass(slots=True)
class Machine:
    """A host that took part."""

    host: str
    cores: int = 0
    memory: int = 0


@dataclass(slots=True)
class Record:
    """A workflow, and how it ran."""

    name: str
    tasks: list[RecordedTask] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    opened: float | None = None  # instants; None: it has not run
    closed: float | None = None


def order(record: Record, ordering: Ordering, tasks: dict[int, RecordedTask]) -> None:
    """Fill in what waits for what, and put joints where they are worth it."""
    arcs = ordering.arcs()

    def named(node: Node) -> str:
        return tasks[node.id].id if node.kind == "task" else f"joint-{node.kind}-{node.id}"

    joints = [
        RecordedTask(named(joint), "joint", "true", [named(node) for node in before], is_joint=True)
        for joint, before in arcs.joints.items()
    ]
    for number, before in arcs.tasks.items():
        tasks[number].before = [named(node) for node in before]
    record.tasks = [*joints, *tasks.values()]


def of_plan(plan: Plan, name: str) -> Record:
    """A plan as tasks and arcs."""
    record = Record(name)
    ordering = Ordering()
    tasks: dict[int, RecordedTask] = {}
    paths = {0: ""}
    for step in steps(plan):
        waits = [Node("task" if kind is For.TASK else "end", number) for kind, number in step.waits]
        if step.what is What.OPEN:
            ordering.add_group(step.number, step.group, waits)
            above = paths[step.group]
            paths[step.number] = above if step.name.startswith(".") else f"{above}/{step.name}".lstrip("/")
        elif step.what is What.TASK and step.task is not None:
            ordering.add_task(step.number, step.group, waits, release=step.task.release)
            tasks[step.number] = _task(step.task, step.number, paths[step.group])
    order(record, ordering, tasks)
    return record


def _task(said: PlanTask, number: int, path: str) -> RecordedTask:
    task = RecordedTask(
        said.name or f"task-{number}", said.label, said.command, group=path, cores=said.cores, priority=said.priority
    )
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
