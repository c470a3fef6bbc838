"""Makefiles of TrellisDAG: a rule per group and per prologue, attributes in comments; written and read.

    #AutoMakefile
    #Night
    #Field
    all: Night_0
    Night_0: Field_0_0
    #attribute release=yes
    <TAB>./mosaic 0

`make` runs such a file as it stands, one command after the other, in the shell, the folder and the environment that
Bough gives them: what a command needs before it is a prelude, `cd -- raw || exit; export N=3; ./sweep`. What a Makefile
cannot say stands in comments: `#attribute k=v` before a command, `#group k=v` before a rule, `#epilogue` before the
commands that end a group. Rule: what is written reads back as the same plan; a file written by hand needs none of the
comments, and no prelude.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from bough.describe.plan import Index, Plan, PlanGroup, PlanTask, Where, of_group, of_task, put_on_group, put_on_task
from bough.describe.trellisdag.expansion import PROLOGUE, ExpandedRule, rules, target_names
from bough.errors import InvalidWorkload
from bough.model.commands.shell_text import needs_shell

_HEAD = "#AutoMakefile"
_LOOSE, _EPILOGUE = "#loose", "#epilogue"
_NOTHING = "echo"  # the command of a group that has none
_OURS = re.compile(r"^#(AutoMakefile\s*$|attribute\s|group\s|loose\s*$)", re.MULTILINE)
_TARGET = re.compile(r"[\w./+@~,^-]+\Z")
_ASSIGNED = re.compile(r"(?P<name>[\w.-]+)\s*(?P<how>[:?+]?=)\s*(?P<value>.*)\Z")
_VARIABLE = re.compile(r"\$(?:\$|\((?P<round>[\w.-]+)\)|\{(?P<curly>[\w.-]+)\}|(?P<one>[@<^]))")

_SHELL = ("SHELL = bash", ".SHELLFLAGS = -eo pipefail -c")  # as commands run that need one
_EXPORTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_DEPTH = 20  # variables in variables
_FILLED = 1 << 20  # characters that variables of one line stand for


def is_trellis(text: str) -> bool:
    """Whether a Makefile has the comments of this form; others are for `make` itself to expand."""
    return _OURS.search(text) is not None


def has_name_for_shells(variable: str) -> bool:
    """Whether a shell can set a variable of the environment."""
    return _EXPORTED.match(variable) is not None


def _is_exact(key: str) -> bool:
    """Whether blanks at the end of an attribute belong to it."""
    return key == "cwd" or key.startswith("env.")


def _prelude(task: PlanTask) -> str:
    """What stands before a command for the sake of `make`, which passes over the attributes."""
    words = [f"cd -- {shlex.quote(task.cwd)} || exit; "] if task.cwd else []
    there = [f"{name}={shlex.quote(value)}" for name, value in task.env.items() if has_name_for_shells(name)]
    return "".join(words) + (f"export {' '.join(there)}; " if there else "")


# --- writing ----------------------------------------------------------------------------------------------


def write(plan: Plan) -> str:
    """A plan as a Makefile."""
    return "\n".join(_Writer(plan).lines()) + "\n"


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._names = target_names(plan)
        self._index = Index(plan)

    def lines(self) -> Iterator[str]:
        plan, every = self._plan, rules(self._plan)
        yield _HEAD
        yield from (f"#{level}" for level in plan.levels)
        if any(needs_shell(task.command) for _, group in plan.walk() for task in group.all_tasks()):
            yield from _SHELL
        first = [self._names[id(one)] for some in (plan.root.groups, plan.root.tasks) for one in some]
        yield " ".join(["all:", *first])
        for rule in every:
            yield ""
            yield from self._rule(rule)
        yield ""
        yield " ".join([".PHONY: all", *(rule.name for rule in every)])

    def _rule(self, rule: ExpandedRule) -> Iterator[str]:
        if not _TARGET.match(rule.name):
            raise InvalidWorkload(f"{rule.name!r} cannot be the name of a target in a Makefile; rename it")
        if rule.is_loose:
            yield _LOOSE
        elif not rule.is_prologue:
            yield from (f"#group {key}={value}" for key, value in self._about(rule.group))
        yield " ".join([f"{rule.name}:", *rule.needs, *(["|", *rule.order] if rule.order else ())])
        last = 0 if rule.is_prologue or rule.is_loose else len(rule.group.tasks)
        for at, task in enumerate(rule.tasks):
            if at == last and not rule.is_prologue and not rule.is_loose:
                yield _EPILOGUE
            yield from self._recipe(task, rule)
        if not rule.tasks:
            yield f"\t{_NOTHING}"

    def _about(self, group: PlanGroup) -> Iterator[tuple[str, str]]:
        """What neither the name of a group nor its place says."""
        depth = self._index.paths[id(group)].count("/")
        if _level_by_name(group.name, self._plan.levels) != (depth, group.level):
            yield "depth", str(depth)
            yield "level", group.level
        tasks = [other for other in group.after if id(self._index.find(other)) not in self._names]
        if tasks:
            yield "after", ",".join(tasks)
        yield from of_group(group)

    def _recipe(self, task: PlanTask, rule: ExpandedRule) -> Iterator[str]:
        command = task.command
        if "\n" in command or command.endswith("\\") or command[0] in "@+-#" or command == _NOTHING:
            raise task.where.wrong(f"the command {command!r:.60} cannot stand on one line of a Makefile")
        for key, whole in of_task(task):
            value = whole
            if value.endswith("\\"):  # make would read the next line as a part of the comment
                if _is_exact(key):
                    raise task.where.wrong(f"attribute {key} ends with a backslash, which a Makefile cannot hold")
                value += " "
            if "\n" in value:
                raise task.where.wrong(f"attribute {key} has several lines, which a Makefile cannot hold")
            if rule.is_loose and key == "after":  # what is a target stands in the rule
                value = ",".join(other for other in task.after if id(self._index.find(other)) not in self._names)
            if value and not (rule.is_loose and key == "name" and value == rule.name):
                yield f"#attribute {key}={value}"
        yield "\t" + (_prelude(task) + command).replace("$", "$$")


def _level_by_name(name: str, levels: list[str]) -> tuple[int, str]:
    """The level that a group's name tells, as in Field_0_1; the first one if it tells none."""
    fitting = [level for level in levels if name == level or name.startswith(f"{level}_")]
    return (levels.index(best), best) if (best := max(fitting, key=len, default="")) else (0, "")


# --- reading ----------------------------------------------------------------------------------------------


class _Read(msgspec.Struct):
    """A rule as it stands in the file."""

    name: str
    where: Where
    needs: list[str] = []
    tasks: list[PlanTask] = []
    own: int = -1  # how many of the tasks are no epilogue; -1: all
    about: list[tuple[str, str]] = []
    is_loose: bool = False


def read(text: str, file: str) -> Plan:
    """A Makefile of this form as a plan."""
    return _Reader(text, file).plan()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._levels: list[str] = []
        self._variables: dict[str, str] = {}
        self._filled = 0  # characters, of the text that is being expanded
        self._rules: dict[str, _Read] = {}
        self._rule: _Read | None = None
        self._attributes: list[tuple[str, str]] = []
        self._about: list[tuple[str, str]] = []
        self._is_loose = False
        self._in_head = False
        for number, line in _lines(text):
            self._line(Where(file, number), line)

    # --- lines ---

    def _line(self, where: Where, line: str) -> None:
        stripped = line.strip()
        if stripped.startswith("#"):
            self._comment(where, stripped, line)
        elif line.startswith("\t"):
            if stripped:
                self._command(where, stripped)
        elif stripped:
            self._in_head = False
            assigned = _ASSIGNED.match(stripped)
            if assigned is not None:
                self._assign(where, **assigned.groupdict())
            else:
                self._header(where, self._expanded(where, stripped))

    def _comment(self, where: Where, line: str, whole: str) -> None:
        if line == _HEAD:
            self._in_head = True
        elif line == _LOOSE:
            self._is_loose = True
        elif line == _EPILOGUE:
            if self._rule is not None:
                self._rule.own = len(self._rule.tasks)
        elif line.startswith(("#attribute ", "#group ")):
            word, _, rest = line.partition(" ")
            key, equals, value = rest.strip().partition("=")
            if not equals:
                raise where.wrong(f"{line!r} is not of the form {word} key=value")
            if _is_exact(key):
                value = whole.partition("=")[2]
            (self._attributes if word == "#attribute" else self._about).append((key, value))
        elif self._in_head and line[1:].strip():
            self._levels.append(line[1:].strip())

    def _assign(self, where: Where, name: str, how: str, value: str) -> None:
        if how == "+=":
            value = f"{self._variables.get(name, '')} {value}".strip()
        if how != "?=" or name not in self._variables:
            self._variables[name] = self._expanded(where, value) if how == ":=" else value

    def _expanded(self, where: Where, text: str, rule: _Read | None = None, depth: int = 0) -> str:
        """A text with its variables filled in; `$$` stands for a dollar sign."""
        if "$" not in text:
            return text
        if depth > _DEPTH:
            raise where.wrong("a variable is defined by itself")
        if depth == 0:
            self._filled = 0

        def fill(found: re.Match[str]) -> str:
            name = found["round"] or found["curly"]
            if name is not None:
                if name not in self._variables:
                    raise where.wrong(f"there is no variable {name} in this file")
                self._filled += 1 + len(self._variables[name])
                if self._filled > _FILLED:
                    raise where.wrong(f"{name} and others stand for more than {_FILLED} characters")
                return self._expanded(where, self._variables[name], rule, depth + 1)
            if found["one"] is None:
                return "$"
            if rule is None:
                raise where.wrong(f"{found[0]} means something only in a command")
            return rule.name if found["one"] == "@" else " ".join(rule.needs[: 1 if found["one"] == "<" else None])

        return _VARIABLE.sub(fill, text)

    def _header(self, where: Where, line: str) -> None:
        names, colon, needs = line.partition(":")
        targets = names.split()
        if not colon or not targets or needs.startswith(":"):
            raise where.wrong(f"{line!r:.60} is no rule, command or assignment that this form of Makefile knows")
        plain = needs.partition("|")[0].split()
        self._rule = None
        for name in targets:
            if name == "all" or name.startswith("."):
                self._rule = _Read(name, where)  # its commands, if any, belong to no group
                continue
            rule = self._rules.get(name)
            if rule is None:
                rule = self._rules[name] = _Read(name, where, about=self._about, is_loose=self._is_loose)
            elif rule.tasks and not plain:
                raise where.wrong(f"there is a rule for {name} already, at line {rule.where.line}")
            rule.needs = list(dict.fromkeys((*rule.needs, *plain)))
            self._rule = rule
        self._about, self._attributes, self._is_loose = [], [], False

    def _command(self, where: Where, line: str) -> None:
        rule = self._rule
        if rule is None:
            raise where.wrong("a command stands here before the first rule")
        attributes, self._attributes = self._attributes, []
        command = self._expanded(where, line.lstrip("@+-").lstrip(), rule)
        if command == _NOTHING or not command:
            return
        task = PlanTask(command, where=where)
        for key, value in attributes:
            try:
                put_on_task(task, key, value)
            except ValueError as error:
                raise where.wrong(str(error)) from None
        task.command = task.command.removeprefix(_prelude(task))
        rule.tasks.append(task)

    # --- the plan ---

    def plan(self) -> Plan:
        plan = Plan(list(self._levels), source=self._file)
        groups = {name: rule for name, rule in self._rules.items() if not self._is_prologue(name) and not rule.is_loose}
        depths = {name: self._depth(rule) for name, rule in groups.items()}
        made = {name: self._group(rule) for name, rule in groups.items()}
        parents: dict[str, str] = {}
        for name, rule in groups.items():
            for other in rule.needs:
                if other in depths and depths[other] > depths[name]:
                    if parents.setdefault(other, name) != name:
                        raise rule.where.wrong(f"{other} is in {parents[other]} and in {name}; it can be in one only")
                    made[name].groups.append(made[other])
        paths: dict[str, str] = {}
        for name in groups:
            paths[name] = self._path(name, parents, made)
        for name, rule in groups.items():
            wanted = [other for other in rule.needs if parents.get(other) != name]
            prologue = self._rules.get(name + PROLOGUE)
            wanted += prologue.needs if prologue is not None else ()
            after = [self._reference(rule, other, paths) for other in wanted if not self._is_prologue(other)]
            made[name].after = [*after, *filter(None, dict(rule.about).get("after", "").split(","))]
        plan.root.groups = [group for name, group in made.items() if name not in parents]
        for rule in self._rules.values():
            if rule.is_loose:
                plan.root.tasks.append(self._loose(rule, paths))
        return plan

    def _is_prologue(self, name: str) -> bool:
        return name.endswith(PROLOGUE) and name.removesuffix(PROLOGUE) in self._rules

    def _depth(self, rule: _Read) -> int:
        said = dict(rule.about).get("depth")
        return int(said) if said is not None and said.isdecimal() else _level_by_name(rule.name, self._levels)[0]

    def _group(self, rule: _Read) -> PlanGroup:
        prologue = self._rules.get(rule.name + PROLOGUE)
        own = len(rule.tasks) if rule.own < 0 else rule.own
        group = PlanGroup(
            rule.name.rpartition("/")[2],
            _level_by_name(rule.name.rpartition("/")[2], self._levels)[1],
            prologue=prologue.tasks if prologue is not None else [],
            tasks=rule.tasks[:own],
            epilogue=rule.tasks[own:],
            where=rule.where,
        )
        for key, value in rule.about:
            if key not in {"depth", "after"}:
                try:
                    put_on_group(group, key, value)
                except ValueError as error:
                    raise rule.where.wrong(str(error)) from None
        return group

    def _path(self, name: str, parents: dict[str, str], made: dict[str, PlanGroup]) -> str:
        parts = [made[name].name]
        while name in parents:
            name = parents[name]
            parts.append(made[name].name)
        return "/".join(reversed(parts))

    def _reference(self, rule: _Read, name: str, paths: dict[str, str]) -> str:
        if name in paths:
            return paths[name]
        if name in self._rules:
            return name
        raise rule.where.wrong(f"{rule.name} waits for {name}, for which there is no rule")

    def _loose(self, rule: _Read, paths: dict[str, str]) -> PlanTask:
        if len(rule.tasks) != 1:
            raise rule.where.wrong(f"{rule.name} is a task outside of groups; it has one command")
        task = rule.tasks[0]
        after = [*(self._reference(rule, other, paths) for other in rule.needs), *task.after]
        name = task.name or ("" if re.fullmatch(r"task_\d+", rule.name) else rule.name)
        return msgspec.structs.replace(task, name=name, after=after)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash joins to them; in a command the shell sees the backslash, too."""
    joined, first = "", 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.rstrip("\r")
        joined, first = (joined + line.lstrip("\t"), first) if joined else (line, number)
        if (len(joined) - len(joined.rstrip("\\"))) % 2 and not joined.lstrip().startswith("#"):
            joined = joined + "\n" if joined.startswith("\t") else joined[:-1] + " "
            continue
        yield first, joined
        joined = ""
    if joined:
        yield first, joined
