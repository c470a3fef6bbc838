"""Plans: what a workflow description says, as pure data, whatever form it came in.

A plan is a tree of groups. In a group happen, in this order: what it waits for, its prologue, its subgroups, its own
tasks, its epilogue; own tasks run one after the other unless the group is no pipeline. References are texts: the path
of a group ("Night_0/Field_0_1") or the name of a task, which is unique in the plan.

Descriptions write attributes of tasks as key=value. `release`, `affinity`, `final`, `memo` are yes or no; `cores`,
`memory`, `timeout`, `retries`, `priority` amounts, `after`, `queue` and `name` texts; `monitor` is a text of
`model.monitoring.monitor_text`, and may be given several times; every other key is the user's own. What is written
reads back as the same task.
Rule: everything knows the line it was read from, so that every mistake is reported with file and line.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from bough.errors import InvalidWorkload, UserError
from bough.model.bounds import (
    LONGEST,
    NO_NUL,
    Amount,
    Count,
    Duration,
    Factor,
    FilePath,
    Name,
    QueueName,
    QueueRef,
    SiteName,
    Text,
    Whole,
    within,
)
from bough.model.commands.playpens import check_remote
from bough.model.files import is_pattern, is_url
from bough.model.ids import read_bytes, read_seconds, split_growth
from bough.model.sites.requirements import RequirementText, read_requirement
from bough.model.tasks import LATER, Keep

MOST_DEEP = 100  # groups in groups


class LocatedError(InvalidWorkload):
    """What is wrong in a workflow file; its message begins with the file, and with the line if there is one."""

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message)
        self.file = file


class Where(msgspec.Struct, frozen=True, gc=False):
    """A line of a file, from 1; 0: of no line in particular."""

    file: str = ""
    line: int = 0

    def wrong(self, message: str) -> InvalidWorkload:
        """The error to raise about what stands there."""
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return LocatedError(place + message, self.file) if place else InvalidWorkload(message)


NOWHERE = Where()


PlanTransfer = tuple[Literal["put", "store", "get"], FilePath, FilePath, RequirementText]
Transfers = Annotated[list[PlanTransfer], Meta(max_length=100_000)]


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
    release: bool = False  # when it is done, what waits for its group may start
    affinity: bool = False  # it runs where the task before it ran
    final: bool = False  # it runs whatever happened
    attributes: dict[str, str] = {}  # the user's own
    cwd: str = ""  # empty: where the workflow is submitted
    env: dict[str, str] = {}
    memo: bool = True  # False: it runs even if an earlier run has done the same
    reads: list[str] = []  # files that it declares, relative to its `cwd`
    writes: list[str] = []
    memory_growth: Factor = 0  # times so much after each attempt that its limit ended; 0: it does not grow
    timeout_growth: Factor = 0
    monitors: list[str] = []  # what watches it, as texts
    sites: list[str] = []  # where it may run; empty: anywhere
    requires: str = ""  # of the executor's attributes
    queue: QueueRef = ""  # the named queue of the server that it goes through
    idempotent: bool | None = None  # False: it never runs twice at the same time; None: nothing was said of it
    keep: Keep = True  # False: what it writes is temporary; "later": it is written back in bulk
    transfers: Transfers = []  # of a task in a playpen: put, store or get; the path here, the name there, a condition
    playpen: bool = False  # it runs in an empty folder of its own
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
    monitors: list[str] = []  # what watches each of its tasks, and of those below
    where: Where = NOWHERE

    def all_tasks(self) -> Iterator[PlanTask]:
        """Its own, in the order in which they run."""
        yield from self.prologue
        yield from self.tasks
        yield from self.epilogue


class Verdict(msgspec.Struct, omit_defaults=True):
    """How a workflow says itself whether it succeeded. Without one it has if all its tasks have."""

    decider: str = ""  # the task that alone decides, if there is one
    aborts: dict[str, tuple[int, int | None]] = {}  # by task: the exit code that ends all, and what all returns then
    ignored: list[str] = []  # tasks that do not count

    def exit_code(self, codes: Mapping[str, int | None], *, others_done: bool) -> int:
        """What the workflow returns. `codes`: how the tasks that matter ended; None: not by an exit code."""
        if self.decider:
            return 0 if codes.get(self.decider) == 0 else 1
        name = self.ended_by(codes)
        if name:
            value, returned = self.aborts[name]
            return value & 255 if returned is None else returned
        return 0 if others_done else 1

    def ended_by(self, codes: Mapping[str, int | None]) -> str:
        """The task that ended the workflow, if one did."""
        return next((name for name, (value, _) in self.aborts.items() if codes.get(name) == value), "")


class Plan(msgspec.Struct, omit_defaults=True):
    """A workflow: the levels of its groups, the highest first, and the root, whose own tasks are no pipeline."""

    levels: list[str] = []
    root: PlanGroup = msgspec.field(default_factory=lambda: PlanGroup("", pipeline=False))
    source: str = ""  # the file it was read from
    verdict: Verdict | None = None
    halt_file: str = ""  # while it is there, nothing starts

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
        if task.memory_growth or task.timeout_growth:
            _check_growth(task)
        if task.retries or task.priority:
            within("retries", task.retries, Count)
            within("priority", task.priority, Whole)
        if task.cwd:
            within("cwd", task.cwd, FilePath)
        if task.reads or task.writes:
            _check_files(task)
        if task.monitors:
            check_monitors(tuple(task.monitors))
        _check_where(task)
        _check_texts("env", task.env)
        _check_texts("attribute", task.attributes)
    except UserError as error:
        raise task.where.wrong(f"{task.label}: {error}") from None


def _check_transfers(task: PlanTask) -> None:
    if not task.playpen:
        raise UserError("files are put, stored and got for a task in a playpen; give playpen, too")
    for kind, local, remote, when in task.transfers:
        within(kind, local, FilePath)
        check_remote(remote, stored=kind == "store")
        if when:
            read_requirement(when)


def _check_where(task: PlanTask) -> None:
    if task.transfers:
        _check_transfers(task)
    if task.sites:
        within("sites", task.sites, _Sites)
    if task.requires:
        read_requirement(task.requires)


@functools.lru_cache(maxsize=1000)
def check_monitors(texts: tuple[str, ...]) -> None:
    """Refuse monitors that cannot be read, with the one that is wrong; many tasks have the same."""
    from bough.model.monitoring.monitor_text import read_plan  # few descriptions have monitors

    for text in texts:
        if "\n" in text:
            raise UserError(f"monitor {text!r:.60} has several lines; in a description it stands on one")
    read_plan(texts)


def _check_growth(task: PlanTask) -> None:
    for key in GROWING:
        within(f"the factor of {key}", getattr(task, f"{key}_growth"), Factor)
        if getattr(task, f"{key}_growth") and not task.retries:
            raise UserError(f"{key} grows from one attempt to the next; give retries= as well")


def _check_files(task: PlanTask) -> None:
    for path in (*task.reads, *task.writes):
        within("a declared file", path, FilePath)
    both = next((path for path in task.reads if path in task.writes), None)
    if both is not None:
        raise UserError(f"{both} is declared as an input and as an output; give what is written another name")


def file_writers(tasks: Sequence[PlanTask]) -> dict[str, int]:
    """The places of the tasks that declare to write a file, by absolute path; two of one file are an error."""
    found: dict[str, int] = {}
    for at, task in enumerate(tasks):
        for path in task.writes:
            first = tasks[found.setdefault(file_path(task, path), at)]
            if first is not task:
                raise task.where.wrong(f"{path} is written by {first.label} too (line {first.where.line})")
    return found


def made_place(path: str, made: Container[str]) -> str:
    """A file that tasks make, or the folder above it that one of them makes; empty: neither is made."""
    place = path
    while place and place not in made:
        place = "" if is_url(place) or is_pattern(path) else place.rpartition("/")[0]
    return place


def file_path(task: PlanTask, path: str) -> str:
    """A declared file's absolute path."""
    return path if is_url(path) else os.path.normpath(os.path.join(os.getcwd(), task.cwd, path))


_SHORT = 65_536
_Sites = Annotated[list[SiteName], Meta(max_length=100)]
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
        if group.monitors:
            check_monitors(tuple(group.monitors))
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


def with_explicit_order(plan: Plan) -> Plan:
    """The same plan, for forms without declared files: who reads a file comes after who writes it, by name."""
    tasks = [task for _, group in plan.walk() for task in group.all_tasks()]
    writers = file_writers(tasks)
    if not writers:
        return plan
    taken = {task.name for task in tasks} | {path for path, _ in plan.walk()}
    for task in tasks:
        for path in (file_path(task, path) for path in task.reads):
            place = made_place(path, writers)
            maker = tasks[writers[place]] if place else task
            if maker is task:
                continue
            if not maker.name:
                maker.name = _free_name(os.path.basename(path), taken)
                taken.add(maker.name)
            if maker.name not in task.after:
                task.after = [*task.after, maker.name]
    return plan


def _free_name(wanted: str, taken: Collection[str]) -> str:
    """A name that nothing has and every form can write."""
    name = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in wanted) or "task"
    number = 1
    while (name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return name if number == 1 else f"{name}_{number}"


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


_SWITCHES = {"release": False, "affinity": False, "final": False, "memo": True, "idempotent": None}  # what is usual
_AMOUNTS: dict[str, tuple[str, Callable[[str], float]]] = {
    "cores": ("a number such as 2; 0 for a task that only waits", float),
    "memory": ("an amount such as 4GB", read_bytes),
    "timeout": ("a time such as 90s, 1h or 1:30:00", read_seconds),
    "retries": ("a whole number such as 2", int),
    "priority": ("a whole number such as 2", int),
    "limit": ("a whole number such as 2", int),
}
GROWING = ("memory", "timeout")
_TASK_AMOUNTS = ("cores", "memory", "timeout", "retries", "priority")
_GROUP_AMOUNTS = ("limit", "retries", "timeout")
MONITORS = ("monitor", "monitors")  # one, or several that newlines separate
_SETTINGS = frozenset({*_SWITCHES, *_TASK_AMOUNTS, "keep", "cwd", "env", "monitor", "sites", "requires", "queue"})
_GROUP_SWITCHES = ("pipeline", "match", "barrier")
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False, "": False}


def put_on_task(task: PlanTask, key: str, value: str) -> None:
    """Give a task an attribute; ValueError says what would be right."""
    if key in _SWITCHES:
        setattr(task, key, read_switch(key, value))
    elif key in GROWING:
        amount, growth = read_growing(key, value)
        setattr(task, key, amount)
        setattr(task, f"{key}_growth", growth)
    elif key in _TASK_AMOUNTS:
        setattr(task, key, read_amount(key, value))
    elif key in {"name", "cwd"}:
        setattr(task, key, value)
    elif key == "after":
        task.after = [*task.after, *filter(None, value.split(","))]
    elif key in MONITORS:
        task.monitors = [*task.monitors, *value.split("\n")]
    elif key in _READERS:
        setattr(task, key, _READERS[key](value))
    elif key.startswith("env.") and key != "env.":
        task.env = {**task.env, key[4:]: value}
    elif not key:
        raise ValueError(f"'={value}' has no key; write key=value")
    else:
        task.attributes = {**task.attributes, key: value}


def of_task(task: PlanTask) -> Iterator[tuple[str, str]]:
    """The attributes that make a bare command into the task."""
    if task.name:
        yield "name", task.name
    if task.after:
        yield "after", ",".join(task.after)
    for key, usual in _SWITCHES.items():
        if (on := getattr(task, key)) is not usual:
            yield key, "yes" if on else "no"
    yield from [("keep", show_keep(task.keep))] if task.keep is not True else []
    for key in _TASK_AMOUNTS:
        value = getattr(task, key)
        if value != (1 if key == "cores" else 0):
            yield key, show_growing(value, getattr(task, f"{key}_growth")) if key in GROWING else _shown(value)
    for text in task.monitors:
        yield "monitor", text
    yield from [("sites", ",".join(task.sites))] if task.sites else []
    yield from [(key, getattr(task, key)) for key in ("requires", "queue", "cwd") if getattr(task, key)]
    for name, text in task.env.items():
        yield f"env.{name}", text
    yield from task.attributes.items()


def settings_of(task: PlanTask) -> set[str]:
    """The keys under which descriptions say how a task runs; all variables of its environment are one, `env`."""
    return {word for key, _ in of_task(task) if (word := "env" if key.startswith("env.") else key) in _SETTINGS}


def read_queue_name(value: str) -> str:
    """The name of a named queue; ValueError says what would be right."""
    try:
        return msgspec.convert(value, QueueName)
    except msgspec.ValidationError:
        raise ValueError(f"queue={value:.60}: a queue's name has letters, digits and any of . _ -") from None


def put_on_group(group: PlanGroup, key: str, value: str) -> None:
    """Give a group an attribute; ValueError says what would be right."""
    if key in _GROUP_SWITCHES:
        setattr(group, key, read_switch(key, value))
    elif key in _GROUP_AMOUNTS:
        setattr(group, key, read_amount(key, value))
    elif key in MONITORS:
        group.monitors = [*group.monitors, *value.split("\n")]
    elif key == "level":
        group.level = value
    elif not key:
        raise ValueError(f"'={value}' has no key; write key=value")
    else:
        group.attributes = {**group.attributes, key: value}


def of_group(group: PlanGroup) -> Iterator[tuple[str, str]]:
    """The attributes that make a bare group, which is a pipeline, into the group; its level is not among them."""
    for key, usual in zip(_GROUP_SWITCHES, (True, False, True), strict=True):
        if getattr(group, key) is not usual:
            yield key, "no" if usual else "yes"
    for key in _GROUP_AMOUNTS:
        if getattr(group, key):
            yield key, _shown(getattr(group, key))
    for text in group.monitors:
        yield "monitor", text
    yield from group.attributes.items()


def read_site_names(value: str) -> list[str]:
    """Names of sites with commas or newlines between them, each once, in order; ValueError says what would be right."""
    names = sorted(set(value.replace("\n", ",").split(",")))
    if not all(names):
        raise ValueError(f"sites={value:.60}: give one name or several, separated by commas without spaces")
    return names


def read_switch(key: str, value: str) -> bool:
    """Whether a value says yes; ValueError says what would be right."""
    found = _YES.get(value.lower())
    if found is None:
        raise ValueError(f"{key}={value}: expected yes or no")
    return found


def read_keep(value: str) -> Keep:
    """Whether outputs are kept, and when; ValueError says what would be right."""
    if value.lower() == LATER:
        return LATER
    try:
        return read_switch("keep", value)
    except ValueError:
        raise ValueError(f"keep={value}: expected yes, no or later") from None


_READERS: dict[str, Callable[[str], list[str] | str | bool]] = {
    "sites": read_site_names,
    "requires": str.strip,
    "queue": read_queue_name,
    "keep": read_keep,
}


def show_keep(keep: Keep) -> str:
    """The same as descriptions write it."""
    return keep if isinstance(keep, str) else "yes" if keep else "no"


def read_amount(key: str, value: str) -> Any:
    """An amount as descriptions write it; ValueError says what would be right."""
    expected, convert = _AMOUNTS[key]
    try:
        amount = convert(value)
    except (ValueError, OverflowError):
        amount = math.nan
    enough = (
        amount >= -LONGEST if key == "priority" else amount >= 0 if key in {"retries", "limit", "cores"} else amount > 0
    )
    if not enough or amount > LONGEST:
        raise ValueError(f"{key}={value:.60}: expected {expected}")
    return amount


def read_growing(key: str, value: str) -> tuple[Any, float]:
    """An amount that may grow, as 4GB*2; ValueError says what would be right."""
    try:
        amount, growth = split_growth(value)
    except ValueError:
        expected = "4GB*2" if key == "memory" else "1h*2"
        raise ValueError(f"{key}={value:.60}: expected an amount and a factor above 1, such as {expected}") from None
    return read_amount(key, amount), growth


def show_growing(amount: float, growth: float) -> str:
    """As `read_growing` reads it."""
    return f"{_shown(amount)}*{growth:.15g}" if growth else _shown(amount)


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.15g}"


@contextlib.contextmanager
def without_gc(*, for_ever: bool = False) -> Iterator[None]:
    """Make many things that are all kept, without the garbage collector looking through them again and again.

    `for_ever`: it never looks at what was made, for a process soon to end.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if for_ever:
            gc.freeze()
        if collects:
            gc.enable()
