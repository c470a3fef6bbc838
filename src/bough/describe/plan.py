"""Plans: what a workflow description says, as pure data, whatever form it came in.

A plan is a tree of groups. In a group happen, in this order: what it waits for, its prologue, its subgroups, its own
tasks, its epilogue; own tasks run one after the other unless the group is no pipeline. References are texts: the path
of a group ("Night_0/Field_0_1") or the name of a task, which is unique in the plan. Rule: everything knows the
line it was read from, so that every mistake is reported with file and line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.errors import InvalidWorkload, UserError
from bough.model.bounds import NO_NUL, Amount, Count, Duration, FilePath, Name, Text, Whole, within

MOST_DEEP = 100  # groups in groups


class Where(msgspec.Struct, frozen=True, gc=False):
    """A line of a file, from 1; 0: of no line in particular."""

    file: str = ""
    line: int = 0

    def wrong(self, message: str) -> InvalidWorkload:
        """The error to raise about what stands there."""
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return InvalidWorkload(place + message)


NOWHERE = Where()


class PlanTask(msgspec.Struct, omit_defaults=True):
    """One command. Amounts that were not given are 0 (cores: 1)."""

    command: str
    name: str = ""
    after: list[str] = []  # groups and tasks, besides what its place in the group makes it wait for
    cores: Amount = 1
    memory: Count = 0  # bytes
    timeout: Duration = 0  # seconds
    retries: Count = 0
    priority: Whole = 0
    release: bool = False  # when it is done, who waits for its group may start
    affinity: bool = False  # it runs where the task before it ran
    final: bool = False  # it runs whatever happened
    attributes: dict[str, str] = {}  # the user's own
    cwd: str = ""  # empty: where the workflow is submitted
    env: dict[str, str] = {}
    memo: bool = True  # False: it runs even if an earlier run has done the same
    where: Where = NOWHERE

    @property
    def label(self) -> str:
        """How messages name it."""
        return self.name or f"{self.command:.40}"


class PlanGroup(msgspec.Struct, omit_defaults=True):
    """A group. In a plan its name is that of its path's last part."""

    name: str
    level: str = ""  # what kind of group it is, such as Night
    after: list[str] = []  # groups and tasks
    prologue: list[PlanTask] = []
    groups: list[PlanGroup] = []
    tasks: list[PlanTask] = []
    epilogue: list[PlanTask] = []
    pipeline: bool = True
    match: bool = False  # its subgroups wait only for the subgroups of the same name of the groups in `after`
    barrier: bool = True  # False: it is there for people to look at, and orders nothing
    limit: Count = 0
    retries: Count = 0
    timeout: Duration = 0
    attributes: dict[str, str] = {}
    where: Where = NOWHERE

    def all_tasks(self) -> Iterator[PlanTask]:
        """Its own, in the order in which they run."""
        yield from self.prologue
        yield from self.tasks
        yield from self.epilogue


class Plan(msgspec.Struct, omit_defaults=True):
    """A workflow: the levels of its groups, the highest first, and the root, whose own tasks are no pipeline."""

    levels: list[str] = []
    root: PlanGroup = msgspec.field(default_factory=lambda: PlanGroup("", pipeline=False))
    source: str = ""  # the file it was read from

    def walk(self) -> Iterator[tuple[str, PlanGroup]]:
        """All groups with their paths, each before those in it; the root's path is empty."""
        stack = [("", self.root)]
        while stack:
            path, group = stack.pop()
            yield path, group
            stack += [(join(path, inner.name), inner) for inner in reversed(group.groups)]

    @property
    def task_count(self) -> int:
        """How many tasks there are."""
        return sum(len(group.prologue) + len(group.tasks) + len(group.epilogue) for _, group in self.walk())


def check_task(task: PlanTask) -> None:
    """Refuse what no store can hold and no shell can run, with its place."""
    try:
        if len(task.command) > _SHORT or "\0" in task.command or not task.command.isascii():
            within("the command", task.command, _Command)
        if task.name:
            within("the name", task.name, Name)
        if task.cores != 1 or task.memory or task.timeout:
            within("cores", task.cores, Amount)
            within("memory", task.memory, Count)
            within("timeout", task.timeout, Duration)
        if task.retries or task.priority:
            within("retries", task.retries, Count)
            within("priority", task.priority, Whole)
        if task.cwd:
            within("cwd", task.cwd, FilePath)
        _check_texts("env", task.env)
        _check_texts("attribute", task.attributes)
    except UserError as error:
        raise task.where.wrong(f"{task.label}: {error}") from None


_SHORT = 65_536
_Command = Annotated[Text, Meta(pattern=NO_NUL)]


def check_group(group: PlanGroup, path: str) -> None:
    """The same for what is said of a group."""
    if path.count("/") >= MOST_DEEP:
        raise group.where.wrong(f"group {path:.60}... lies in more than {MOST_DEEP} others")
    try:
        within("a group's name", group.name, Name)
        if group.limit or group.retries or group.timeout:
            within("limit", group.limit, Count)
            within("retries", group.retries, Count)
            within("timeout", group.timeout, Duration)
        _check_texts("attribute", group.attributes)
    except UserError as error:
        raise group.where.wrong(f"group {group.name:.40}: {error}") from None


def _check_texts(what: str, texts: Mapping[str, str]) -> None:
    for name, value in texts.items():
        within(f"the name of an {what}", name, Name)
        within(f"{what} {name:.40}", value, Name)


def join(path: str, name: str) -> str:
    """The path of a group in another one."""
    return f"{path}/{name}" if path else name


class Index:
    """What references of a plan stand for. Making one finds what is there twice, or wrongly named."""

    def __init__(self, plan: Plan) -> None:
        self.groups: dict[str, PlanGroup] = {}
        self.tasks: dict[str, PlanTask] = {}
        self.above: dict[int, PlanGroup] = {}  # by the identity of a group: the one it is in
        self.home: dict[int, PlanGroup] = {}  # by the identity of a named task: its group
        self.paths: dict[int, str] = {}  # by the identity of a group
        for path, group in plan.walk():
            self._add_group(path, group)
        self._check_references(plan)

    def _add_group(self, path: str, group: PlanGroup) -> None:
        name = group.name
        check_group(group, path)
        if path and (not name or "/" in name or name[0] == "."):
            raise group.where.wrong(f"{name!r} is no name of a group: it has no / and does not begin with a dot")
        other = self.groups.setdefault(path, group)
        if other is not group:
            raise group.where.wrong(f"there are two groups {path}; the other one is at {_place(other.where)}")
        if not group.barrier and (group.prologue or group.epilogue):
            raise group.where.wrong(f"group {path} orders nothing (barrier=no), so that it has no prologue or epilogue")
        if group.prologue and any(inner.name == "prologue" for inner in group.groups):
            raise group.where.wrong(f"group {path} has a prologue and a subgroup of that name; rename the subgroup")
        self.paths[id(group)] = path
        for inner in group.groups:
            self.above[id(inner)] = group
        for task in group.all_tasks():
            check_task(task)
            if not task.command.strip():
                raise task.where.wrong(f"task {task.name or '(without a name)'} has no command")
            if task.name:
                self.home[id(task)] = group
                first = self.tasks.setdefault(task.name, task)
                if first is not task and first.name:
                    self._twice(first, task)

    def _twice(self, first: PlanTask, task: PlanTask) -> None:
        raise task.where.wrong(f"the name {task.name!r} is taken by {_place(first.where)}")

    def _check_references(self, plan: Plan) -> None:
        for path, group in plan.walk():
            for reference in group.after:
                if self.find(reference) is None:
                    raise group.where.wrong(f"group {path} waits for {reference}, which does not exist")
            for task in group.all_tasks():
                for reference in task.after:
                    if self.find(reference) is None:
                        raise task.where.wrong(f"{task.label} waits for {reference}, which does not exist")

    def find(self, reference: str) -> PlanGroup | PlanTask | None:
        """What a reference stands for: a group, or else a task of that name."""
        return self.groups.get(reference) or self.tasks.get(reference) if reference else None


def _place(where: Where) -> str:
    return f"{where.file}:{where.line}" if where.line else where.file or "another place"


def tidy(plan: Plan) -> Plan:
    """The same plan without the places it was read from: equal workflows are equal values."""

    def task(one: PlanTask) -> PlanTask:
        return msgspec.structs.replace(one, where=NOWHERE)

    def group(one: PlanGroup) -> PlanGroup:
        return msgspec.structs.replace(
            one,
            prologue=list(map(task, one.prologue)),
            tasks=list(map(task, one.tasks)),
            epilogue=list(map(task, one.epilogue)),
            groups=list(map(group, one.groups)),
            where=NOWHERE,
        )

    return msgspec.structs.replace(plan, root=group(plan.root), source="")
