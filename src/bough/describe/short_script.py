"""Description scripts in their short form: one function per level, which says what is in a group of it.

    from bough.describe import arguments, level

    nights, fields = arguments(int, int)

    @level(range(nights))
    def Night(g, n):
        g.after(n - 1)
        g.prologue(f"./stage_in {n}")
        g.task(f"./mosaic {n}")
        g.epilogue(f"./archive {n}")

    @level(lambda n: [(n, f) for f in range(fields)], within=Night)
    def Field(g, n, f):
        g.task(f"./reduce {n} {f}")

Rule: a group is named by its level and its vector, `Field_0_1`; a sibling that does not exist is not waited for,
but `g.after(Night[3])`, which may stand anywhere, must exist.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

from bough.describe.plan import MONITORS, Plan, PlanGroup, PlanTask, Where, put_on_group, put_on_task
from bough.errors import InvalidWorkload, UserError
from bough.model.texts.plurals import counted

Vector = tuple[Any, ...]
_OPTIONS = ("limit", "retries", "timeout", "match", "barrier", "pipeline", *MONITORS)
_levels: ContextVar[list[Level] | None] = ContextVar("bough_levels", default=None)


def is_used_in(tree: ast.Module) -> bool:
    """Whether a script imports `level` from here."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "bough.describe"
        and any(name.name == "level" for name in node.names)
        for node in tree.body
    )


@contextlib.contextmanager
def collecting() -> Iterator[list[Level]]:
    """The levels that are defined meanwhile."""
    found: list[Level] = []
    token = _levels.set(found)
    try:
        yield found
    finally:
        _levels.reset(token)


def arguments(*kinds: Callable[[str], Any]) -> Any:
    """The arguments of the script, each made into what its kind says; a single one comes as itself."""
    given = sys.argv[1:]
    if len(given) != len(kinds):
        takes = counted(len(kinds), "argument")
        raise UserError(f"{sys.argv[0]} takes {takes}, not {len(given)}: bough run {sys.argv[0]} ARGUMENTS")
    found = []
    for kind, text in zip(kinds, given, strict=True):
        try:
            found.append(kind(text))
        except ValueError:
            raise UserError(
                f"{text!r} is no {getattr(kind, '__name__', 'argument')}, as {sys.argv[0]} wants it"
            ) from None
    return found[0] if len(found) == 1 else tuple(found)


class Level:
    """A kind of groups: which there are, and what is in one."""

    def __init__(
        self, describe: Callable[..., object], groups: Any, within: Level | None, options: dict[str, Any]
    ) -> None:
        self.name = describe.__name__
        self.describe = describe
        self.within = within
        self.options = options
        self._groups = groups

    def vectors(self, above: Vector) -> list[Vector]:
        """The groups that are in a group of the level above."""
        given = self._groups(*above) if callable(self._groups) else self._groups
        return [as_vector(vector) for vector in given]

    def __getitem__(self, vector: Any) -> Reference:
        """A group of this level, wherever it is."""
        return Reference(self, as_vector(vector))

    def __call__(self, *_: Any) -> NoReturn:
        """Levels are not called: what looks like it is a mistake."""
        raise UserError(f"{self.name} is a level; {self.name}[...] names one of its groups")


class Reference:
    """A group that something waits for."""

    def __init__(self, level: Level, vector: Vector) -> None:
        self.name = "_".join([level.name, *map(str, vector)])


def as_vector(given: Any) -> Vector:
    """A vector: a tuple or a list of numbers or texts, or a single one."""
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def level(groups: Iterable[Any] | Callable[..., Iterable[Any]], *, within: Level | None = None, **options: Any) -> Any:
    """Make a function into a level: what it calls on its first argument is what is in one group.

    Args:
        groups: the vectors of its groups, or a function that gives those within a group from the numbers of that.
        within: the level above.
        options: for all its groups: limit, retries, timeout, match, barrier, pipeline, monitors.
    """

    def make(describe: Callable[..., object]) -> Level:
        made = Level(describe, groups, within, options)
        levels = _levels.get()
        if levels is not None:
            levels.append(made)
        return made

    return make


class Draft:
    """One group while a script describes it."""

    def __init__(self, group: PlanGroup, siblings: dict[Vector, str]) -> None:
        self._group = group
        self._siblings = siblings

    def after(self, *others: Any) -> None:
        """Wait for siblings by their vectors, those that exist; and for groups anywhere by `Level[...]`."""
        for other in others:
            if isinstance(other, Reference):
                self._wait(f"={other.name}")
            elif (found := self._siblings.get(as_vector(other))) is not None and found != self._group.name:
                self._wait(found)

    def _wait(self, reference: str) -> None:
        if reference not in self._group.after:
            self._group.after.append(reference)

    def task(self, command: str, **options: Any) -> None:
        """A command; the own tasks of a group run one after the other.

        Options: release, affinity, final, cores, memory, timeout, retries, priority, name, monitors (a text such as
        "after:1h -> fail", or a list of them), sites (a name, or a list), requires, queue; others are your own
        attributes.
        """
        self._group.tasks.append(self._task(command, options))

    def prologue(self, command: str, **options: Any) -> None:
        """A command that runs before everything else in the group."""
        self._group.prologue.append(self._task(command, options))

    def epilogue(self, command: str, **options: Any) -> None:
        """A command that runs after everything else in the group."""
        self._group.epilogue.append(self._task(command, options))

    def attributes(self, **attributes: Any) -> None:
        """Attributes of the group, your own."""
        self._group.attributes = self._group.attributes | {key: str(value) for key, value in attributes.items()}

    def _task(self, command: str, options: dict[str, Any]) -> PlanTask:
        task = PlanTask(command, where=self._group.where)
        for key, value in options.items():
            try:
                put_on_task(task, key, _text(value))
            except ValueError as error:
                raise InvalidWorkload(f"{self._group.name}: {error}") from None
        return task


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _put(group: PlanGroup, key: str, value: Any) -> None:
    if key not in _OPTIONS:
        raise InvalidWorkload(f"level {group.level} has no option {key}; there are {', '.join(_OPTIONS)}")
    try:
        put_on_group(group, key, _text(value))
    except ValueError as error:
        raise InvalidWorkload(f"level {group.level}: {error}") from None


def build(levels: list[Level], file: str) -> Plan:
    """The plan that levels make."""
    plan = Plan([one.name for one in levels], source=file)
    known = set(map(id, levels))
    for one in levels:
        if one.within is not None and id(one.within) not in known:
            raise Where(file).wrong(f"level {one.name} is within {one.within!r}; give a level of this script")
    plan.root.groups = [group for one in levels if one.within is None for group in _expand(one, (), "", levels, file)]
    _find_references(plan)
    return plan


def _expand(one: Level, above: Vector, path: str, levels: list[Level], file: str) -> list[PlanGroup]:
    code = getattr(one.describe, "__code__", None)
    where = Where(file, code.co_firstlineno if code is not None else 0)
    siblings = {vector: "_".join([one.name, *map(str, vector)]) for vector in one.vectors(above)}
    prefix = f"{path}/" if path else ""
    groups: list[PlanGroup] = []
    for vector, name in siblings.items():
        group = PlanGroup(name, one.name, [], where=where)
        for key, value in one.options.items():
            _put(group, key, value)
        one.describe(Draft(group, siblings), *vector)
        group.after = [other if other[0] == "=" else prefix + other for other in group.after]
        group.groups = [
            inner
            for other in levels
            if other.within is one
            for inner in _expand(other, vector, prefix + name, levels, file)
        ]
        groups.append(group)
    return groups


def _find_references(plan: Plan) -> None:
    """Names of groups that were given by level and vector become their paths."""
    wanted = [group for _, group in plan.walk() if any(other[0] == "=" for other in group.after)]
    if not wanted:
        return
    paths = {group.name: path for path, group in plan.walk()}
    for group in wanted:
        group.after = [paths.get(other[1:], other[1:]) if other[0] == "=" else other for other in group.after]
