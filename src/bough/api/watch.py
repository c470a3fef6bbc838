"""Whether a function is still what it was when its digest was made, without making the digest again.

While a digest is made, everything it was made of is noted: globals, cells, functions and classes. Rule:
what may change in place is compared by digest, everything else by being the same object.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from bough.model.shortcalls import SIMPLE

MISSING = object()  # stands for a global that is not there, or a cell not filled in yet
_FIXED = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, logging.Logger)


class Watch:
    """What a function's digest was made of, to see cheaply whether it still holds."""

    __slots__ = ("cells", "classes", "functions", "globals")

    def __init__(self) -> None:
        self.globals: list[tuple[dict[str, Any], str, object, bytes | None]] = []
        self.cells: list[tuple[types.CellType, object, bytes | None]] = []
        self.functions: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self.classes: list[tuple[type, list[Any]]] = []

    def holds(self, digest_of: Callable[[object], bytes | None]) -> bool:
        """Whether everything is as it was; what may change in place is asked for its digest again."""
        for scope, name, thing, digest in self.globals:
            now = scope.get(name, MISSING)
            if now is not thing if digest is None else digest_of(now) != digest:
                return False
        for cell, thing, digest in self.cells:
            now = contents(cell)
            if now is not thing if digest is None else digest_of(now) != digest:
                return False
        for fn, parts in self.functions:
            if fn.__dict__ or len(parts) > 4:
                if not _same(made_of(fn), parts):
                    return False
            elif (
                fn.__code__ is not parts[0]
                or fn.__defaults__ is not parts[1]
                or fn.__kwdefaults__ is not parts[2]
                or fn.__closure__ is not parts[3]
            ):
                return False
        return all(_same(list(vars(cls).values()), parts) for cls, parts in self.classes) if self.classes else True


def contents(cell: types.CellType) -> object:
    """What a closure's cell holds, or MISSING."""
    try:
        return cell.cell_contents
    except ValueError:  # not filled in yet
        return MISSING


def made_of(fn: types.FunctionType) -> tuple[Any, ...]:
    """The parts of a function that may be exchanged."""
    return (fn.__code__, fn.__defaults__, fn.__kwdefaults__, fn.__closure__, *fn.__dict__.values())


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(is_, a, b))


def is_fixed(obj: object) -> bool:
    """Whether being the same object means being the same value, given that functions and classes are watched."""
    return type(obj) in SIMPLE or isinstance(obj, _FIXED) or (callable(obj) and hasattr(obj, "__wrapped__"))
