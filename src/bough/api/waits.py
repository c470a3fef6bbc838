"""What can be waited for, and what arguments wait for: tasks, arrays and groups become dependencies.

Rule: a dependency belongs to the same session; a task inside a list, tuple or dict stands for its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bough.api.array import Array
from bough.api.task import Task
from bough.api.view import View
from bough.errors import UserError
from bough.model.refs import Ref, replaced
from bough.model.tasks import Dep

if TYPE_CHECKING:
    from bough.api.ledger import Ledger


def is_waitable(thing: object) -> bool:
    """Whether something can stand in `after`."""
    return isinstance(thing, Task | Array) or hasattr(type(thing), "__bough_deps__") or _producer(thing) is not None


def deps_of(thing: object, ledger: Ledger) -> tuple[Dep, ...]:
    """The dependencies that one entry of `after` means."""
    if isinstance(thing, Task):
        _same_session(thing._ledger, ledger, thing)
        return (thing.dep(),)
    if isinstance(thing, Array):
        for owner in thing.owners():
            _same_session(owner, ledger, thing)
        return thing.deps()
    find = getattr(thing, "__bough_deps__", None)
    if find is not None:
        owner, deps = find()
        _same_session(owner, ledger, thing)
        return tuple(deps)
    producer = _producer(thing)
    if producer is not None:
        return deps_of(producer, ledger)
    raise UserError(f"after holds {thing!r:.80}; give tasks, arrays and groups")


def after_deps(things: Iterable[object], ledger: Ledger) -> tuple[Dep, ...]:
    """The dependencies of an `after`, each once, in order."""
    deps = [dep for thing in things for dep in deps_of(thing, ledger)]
    return tuple(deps) if len(deps) < 2 else tuple(dict.fromkeys(deps))


def _producer(thing: object) -> Task | None:
    found = getattr(thing, "task", None) if isinstance(thing, str) else None
    return found if isinstance(found, Task) else None


def _same_session(owner: Ledger, ledger: Ledger, thing: object) -> None:
    if owner is not ledger:
        raise UserError(f"{thing!r:.80} belongs to another session; a task can wait only for what its own session runs")


_SHALLOW: frozenset[type] = frozenset({Task, int, float, str, bytes, bool, complex, type(None)})


class Arguments:
    """The arguments of a call, with marks in the places of values that come later."""

    __slots__ = ("_ledger", "after", "args", "commands", "inputs", "kwargs")

    def __init__(self, ledger: Ledger, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._ledger = ledger
        self.inputs: dict[Dep, int] = {}
        self.after: dict[Dep, None] = {}
        self.commands: list[str] = []  # texts of the commands whose results are wanted, in the order of their marks
        if not kwargs and _SHALLOW.issuperset(map(type, args)):  # most calls that wait for something
            self.args = tuple([self._mark(thing) if type(thing) is Task else thing for thing in args])
            self.kwargs = kwargs
            return
        kinds = (Task, Array, str)
        self.args = replaced(args, kinds, self._mark)
        self.kwargs = replaced(kwargs, kinds, self._mark)

    def _mark(self, thing: Any) -> Any:
        if isinstance(thing, str):
            producer = _producer(thing)
            if producer is None:
                return thing
            self.after[deps_of(producer, self._ledger)[0]] = None
            return str(thing)
        if isinstance(thing, Task):
            if thing.is_command:
                self.commands.append(thing.command)
            return self._ref(deps_of(thing, self._ledger)[0])
        deps = deps_of(thing, self._ledger)
        if thing.is_command:
            self.commands += [task.command for task in thing.tasks()]
        if isinstance(thing, View) and thing.is_whole and deps:
            return self._ref(deps[0])
        return [self._ref(dep) for dep in deps]

    def _ref(self, dep: Dep) -> Ref:
        number = self.inputs.setdefault(dep, len(self.inputs))
        self.after[dep] = None
        return Ref(number)
