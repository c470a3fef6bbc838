"""What a function is made of: its instructions, the globals it uses, and whether the code is the user's own.

`CodeFacts` digests a code object and lists the globals, attributes and imports it uses. `Watch` notes what a digest
was made of, so that a later look shows cheaply whether it still holds. `is_own` tells the user's own code, which is
followed into and travels by value, from a library's, which is known by name and version.

Rules: neither line numbers nor docstrings nor the order of constants count. What may change in place is compared by
digest, everything else by being the same object. Only what lies beside the script or in the folder it runs in, and is
not installed, is the user's own.
"""

from __future__ import annotations

import dis
import logging
import marshal
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Sequence
from hashlib import blake2b
from operator import is_
from typing import Any

from bough.model.ids import DIGEST_SIZE
from bough.model.refs import SIMPLE

_TAKES_CONST = frozenset(dis.hasconst)
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_LOAD_NAME = dis.opmap["LOAD_NAME"]
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_GLOBAL_SHIFT = 1  # since 3.11 the lowest bit says something else
_DOC_FLAG = 0x4000000  # since 3.13


class CodeFacts:
    """What a code object says, worked out once."""

    __slots__ = ("attributes", "digest", "globals", "imports", "nested", "odd")

    def __init__(self, code: types.CodeType) -> None:
        self.nested: list[types.CodeType] = []  # code in it, in order of use
        self.odd: list[Any] = []  # constants that marshal does not write: frozensets
        self.attributes: tuple[str, ...]
        self.globals: tuple[str, ...]
        self.imports: tuple[str, ...]
        names: set[str] = set()
        imports: set[str] = set()
        stream: list[Any] = [
            (
                code.co_name,
                code.co_argcount,
                code.co_posonlyargcount,
                code.co_kwonlyargcount,
                code.co_flags & ~_DOC_FLAG,
            ),
            (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
            getattr(code, "co_exceptiontable", b""),
        ]
        arg = 0
        raw = code.co_code
        for at in range(0, len(raw), 2):
            op, arg = raw[at], arg << 8 | raw[at + 1]
            if op == dis.EXTENDED_ARG:
                continue
            if op in _TAKES_CONST:
                stream.append((op, self._const(code.co_consts[arg])))
            else:
                stream.append(op << 32 | arg)
                if op == _LOAD_GLOBAL:
                    names.add(code.co_names[arg >> _GLOBAL_SHIFT])
                elif op == _LOAD_NAME:
                    names.add(code.co_names[arg])
                elif op == _IMPORT_NAME:
                    imports.add(code.co_names[arg])
            arg = 0
        self.attributes = tuple(sorted({*code.co_names, *(n for c in self.nested for n in facts_of(c).attributes)}))
        self.globals = tuple(sorted(names.union(*(facts_of(c).globals for c in self.nested))))
        self.imports = tuple(sorted(imports.union(*(facts_of(c).imports for c in self.nested))))
        self.digest = blake2b(marshal.dumps(stream, 2), digest_size=DIGEST_SIZE).digest()

    def _const(self, const: Any) -> Any:
        if isinstance(const, types.CodeType):
            self.nested.append(const)
            return "code"
        if type(const) in SIMPLE:
            return const
        self.odd.append(const)
        return "constant"


_code_facts: dict[types.CodeType, CodeFacts] = {}


def facts_of(code: types.CodeType) -> CodeFacts:
    """What a code object says; equal code is looked at once."""
    found = _code_facts.get(code)
    if found is None:
        if len(_code_facts) > 4096:
            _code_facts.clear()
        found = _code_facts[code] = CodeFacts(code)
    return found


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


_LIBRARIES = tuple({os.path.realpath(path) + os.sep for path in sysconfig.get_paths().values() if path})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_BEGUN: str = vars(sys.modules["bough"])["_BEGUN"]  # not imported: to mypy the package imports all of this
_own: dict[str, tuple[object, bool]] = {}  # module name -> (the module, whether it is the user's)


def is_own(name: str | None) -> bool:
    """Whether a module is the user's own: `__main__`, or a source file beside the script or in the directory."""
    if name is None or name == "__main__":
        return True
    module = sys.modules.get(name)
    known = _own.get(name)
    if known is None or known[0] is not module:
        known = _own[name] = (module, module is not None and _lies_beside_script(module))
    return known[1]


def _lies_beside_script(module: object) -> bool:
    name = getattr(module, "__name__", "")
    if name in sys.builtin_module_names or name.partition(".")[0] == "bough":
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith((".py", ".pyc")):
        return False
    path = os.path.realpath(file)
    if path.startswith(_LIBRARIES) or any(part in path for part in _INSTALLED):
        return False
    places = [_BEGUN, os.getcwd()]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if isinstance(script, str):
        places.append(os.path.dirname(os.path.abspath(script)))
    return any(path.startswith(os.path.join(os.path.realpath(place), "")) for place in places)


def library(name: str | None) -> str:
    """A library module by name and, if it says so itself, version."""
    if not name:
        return ""
    version = getattr(sys.modules.get(name.partition(".")[0]), "__version__", "")
    return f"{name} {version}" if isinstance(version, str) else name
