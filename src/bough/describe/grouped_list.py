"""Flat lists with groups: one line per task, which says where it belongs and what it waits for; read and written.

    #levels Night Field
    group=Night_1 level=Night deps=Night_0 ::
    group=Night_1 phase=prologue :: ./stage_in 1
    group=Night_1/Field_1_0 level=Field :: ./reduce 1 0
    group=Night_1 release=yes attr.est=3.5 :: ./mosaic 1
    group=Night_1 phase=epilogue :: ./archive 1
    summary: after=Night_1 cores=2 :: ./summary

It is a flat list (see `flat_list`) with more options: `group`, the path of the group a task is in, whose tasks run one
after the other; `deps`, groups and tasks that the group waits for; `phase`; `release`, `affinity`, `final`,
`priority`; `attr.KEY`, attributes of your own, with %20 for a blank. A line without a command says something of the
group itself: `level`, `pipeline=no`, `match=yes`, `barrier=no`, `limit`, `retries`, `timeout`. Rule: what is written
reads back as the same plan; groups and names may be used before the line that has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

from bough.describe.flat_list import (
    NAME,
    is_continued,
    logical_lines,
    prefix_words,
    read_paths,
    read_quoted,
    show_monitor,
    show_paths,
    show_quoted,
    split_prefix,
)
from bough.describe.plan import (
    MOST_DEEP,
    Plan,
    PlanGroup,
    PlanTask,
    Where,
    of_group,
    of_task,
    put_on_group,
    put_on_task,
)
from bough.describe.steps import steps
from bough.errors import InvalidWorkload

_GROUPED = re.compile(  # what only such a list may say
    r"(?:^|\s)(?:group|deps|phase|release|affinity|final|priority|memo|cwd|(?:attr|env)\.[^\s=]+)="
)
_LEVELS = re.compile(r"^#levels[ \t]+(.*)$", re.MULTILINE)
_PHASES = ("prologue", "", "epilogue")
_TASK_KEYS = (
    "name",
    "after",
    "release",
    "affinity",
    "final",
    "memo",
    "idempotent",
    "keep",
    "cores",
    "memory",
    "timeout",
    "retries",
    "priority",
    "cwd",
    "in",
    "out",
    "monitor",
    "sites",
    "requires",
    "queue",
)
_GROUP_KEYS = ("level", "pipeline", "match", "barrier", "limit", "retries", "timeout", "monitor")
_SAFE = "/:@+,~=^()[]{}!*'\"<>|&;$?`\\"


def is_grouped(text: str) -> bool:
    """Whether a flat list says more than a plain one can."""
    return any(_reads_so(line) for line in text.split("\n") if "::" in line)


def _reads_so(line: str) -> bool:
    end = line.rfind("::")
    while end > 0 and not line[end - 1].isspace():
        end = line.rfind("::", 0, end)
    if end <= 0:
        return False
    prefix = line[:end]
    found = _GROUPED.search(prefix)
    if found is None or "#" in prefix[: found.start()]:
        return False
    return split_prefix(f"{prefix.strip()} :: x") is not None


def read(text: str, file: str) -> Plan:
    """A flat list as a plan; a plain one has all its tasks outside of groups."""
    plan = Plan(source=file)
    reader = _Reader(plan, file)
    for number, line in logical_lines(text, file):
        reader.line(Where(file, number), line)
    found = _LEVELS.search(text)
    if found is not None:
        plan.levels = found[1].split()
    return plan


class _Reader:
    def __init__(self, plan: Plan, file: str) -> None:
        self._groups = {"": plan.root}
        self._file = file

    def line(self, where: Where, line: str) -> None:
        split = split_prefix(line)
        if split is None:
            self._groups[""].tasks.append(PlanTask(line, where=where))
            return
        prefix, command = split
        words = prefix_words(prefix)
        name = words.pop(0)[:-1] if words and words[0].endswith(":") else ""
        if name and not NAME.match(name):
            raise where.wrong(f"{name!r} is no name; use letters, digits and any of _ . + @ % ~ -")
        said = self._options(where, words)
        group = self._group(where, said.pop("group", ""))
        deps = said.pop("deps", "")
        group.after = list(dict.fromkeys((*group.after, *filter(None, deps.split(",")))))
        if command:
            self._add_task(where, group, PlanTask(command, name, where=where), said)
        elif group is self._groups[""]:
            raise where.wrong("there is no command after '::'")
        else:
            self._describe(where, group, said)

    def _options(self, where: Where, words: list[str]) -> dict[str, str]:
        said: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals:
                raise where.wrong(f"{word!r} is not of the form key=value; a command that holds '::' begins with ':: '")
            if key == "monitor":
                said[key] = "\n".join(filter(None, (said.get(key, ""), read_quoted(value))))
                continue
            if key in said:
                raise where.wrong(f"{key}= is given twice")
            said[key] = read_quoted(value) if key == "requires" else value
        return said

    def _add_task(self, where: Where, group: PlanGroup, task: PlanTask, said: dict[str, str]) -> None:
        phase = said.pop("phase", "")
        if phase not in _PHASES:
            raise where.wrong(f"phase={phase}: expected prologue or epilogue")
        if phase and group is self._groups[""]:
            raise where.wrong(f"phase={phase} is for a task in a group; say group=")
        for key, value in said.items():
            if key == "level" and group is not self._groups[""]:
                group.level = value
                continue
            self._put(where, task, key, value)
        (group.tasks if not phase else group.prologue if phase == _PHASES[0] else group.epilogue).append(task)

    def _put(self, where: Where, thing: PlanTask | PlanGroup, key: str, value: str) -> None:
        known = _TASK_KEYS if isinstance(thing, PlanTask) else _GROUP_KEYS
        own = key.removeprefix("attr.")
        if key not in known and own == key and not (key.startswith("env.") and isinstance(thing, PlanTask)):
            shown = ", ".join(("group", "deps", "phase", *known) if isinstance(thing, PlanTask) else known)
            raise where.wrong(f"{key}= is not one of the options {shown}; your own are written attr.{key}=")
        try:
            if own != key:
                thing.attributes = {**thing.attributes, own: unquote(value)}
            elif isinstance(thing, PlanTask) and key in {"in", "out"}:
                setattr(thing, "reads" if key == "in" else "writes", list(read_paths(key, value)))
            elif isinstance(thing, PlanTask):
                put_on_task(thing, key, unquote(value) if key == "cwd" or key.startswith("env.") else value)
            else:
                put_on_group(thing, key, value)
        except ValueError as error:
            raise where.wrong(str(error)) from None

    def _describe(self, where: Where, group: PlanGroup, said: dict[str, str]) -> None:
        group.where = where
        for key, value in said.items():
            self._put(where, group, key, value)

    def _group(self, where: Where, path: str) -> PlanGroup:
        found = self._groups.get(path)
        if found is not None:
            return found
        above, _, name = path.rpartition("/")
        if path.count("/") >= MOST_DEEP:
            raise where.wrong(f"group={path:.60}... lies in more than {MOST_DEEP} others")
        if not NAME.match(name):
            raise where.wrong(f"group={path}: {name!r} is no name; use letters, digits and any of _ . + @ % ~ -")
        made = self._groups[path] = PlanGroup(name, where=where)
        self._group(where, above).groups.append(made)
        return made


# --- writing ----------------------------------------------------------------------------------------------


def write(plan: Plan) -> str:
    """A plan as a flat list: the groups in the order of the plan, then the tasks in the order of their numbers."""
    lines = [f"#levels {' '.join(plan.levels)}"] if plan.levels else []
    places: dict[int, tuple[str, str]] = {}
    for path, group in plan.walk():
        if path:
            lines.append(_declaration(path, group))
            for phase, tasks in zip(_PHASES, (group.prologue, group.tasks, group.epilogue), strict=True):
                places.update((id(task), (path, phase)) for task in tasks)
    ordered = [step.task for step in steps(plan) if step.task is not None and id(step.task) in places]
    lines += [_task_line(*places[id(task)], task) for task in ordered]
    lines += [_task_line("", "", task) for task in plan.root.tasks]
    return "".join(f"{line}\n" for line in lines)


def _declaration(path: str, group: PlanGroup) -> str:
    words = [f"group={_path(path)}"]
    if group.level:
        words.append(f"level={group.level}")
    if group.after:
        words.append("deps=" + ",".join(map(_path, group.after)))
    own = group.attributes
    for key, value in of_group(group):
        if key == "monitor" and value in group.monitors:
            words.append(show_monitor(value))
        else:
            words.append(f"attr.{_key(key)}={_quoted(value)}" if key in own else f"{key}={value}")
    return " ".join([*words, "::"])


def _task_line(path: str, phase: str, task: PlanTask) -> str:
    command = task.command
    if "\n" in command or command != command.strip() or not command or is_continued(command):
        raise task.where.wrong(f"the command {command!r:.60} cannot stand on one line of a flat list")
    words = [f"{task.name}:"] if task.name else []
    if task.name and not NAME.match(task.name):
        raise task.where.wrong(
            f"the name {task.name!r} cannot stand in a flat list; use letters, digits and _ . + @ % ~ -"
        )
    words += [f"group={_path(path)}"] if path else []
    words += [f"phase={phase}"] if phase else []
    words += _options(task)
    if not words and not command.startswith("#") and split_prefix(command) is None:
        return command
    return " ".join([*words, "::", command])


def _options(task: PlanTask) -> Iterator[str]:
    for key, value in of_task(task):
        if key == "name":
            continue
        if key == "monitor" and value in task.monitors:
            yield show_monitor(value)
        elif key == "requires" and value == task.requires:
            yield show_quoted(key, value)
        elif key in task.attributes:
            yield f"attr.{_key(key)}={_quoted(value)}"
        elif key == "after":
            yield "after=" + ",".join(map(_path, task.after))
        else:
            yield f"{_key(key)}={_quoted(value) if key == 'cwd' or key.startswith('env.') else value}"
    if task.reads:
        yield "in=" + show_paths(task.reads)
    if task.writes:
        yield "out=" + show_paths(task.writes)


def _path(path: str) -> str:
    if all(NAME.match(part) for part in path.split("/")):
        return path
    raise InvalidWorkload(
        f"the name {path!r} cannot stand in a flat list; use letters, digits and any of _ . + @ % ~ -"
    )


def _key(name: str) -> str:
    if not name or "=" in name or any(char.isspace() for char in name):
        raise InvalidWorkload(
            f"the attribute or variable {name!r:.60} cannot stand in a flat list; leave out blanks and ="
        )
    return name


def _quoted(value: str) -> str:
    return quote(value, safe=_SAFE)
