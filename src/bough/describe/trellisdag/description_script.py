"""Description scripts: Python modules that generate a workflow from a few functions, in the form of TrellisDAG.

`Levels` names the levels, highest first, each with the length of its vectors; `generateGroup` gives the groups in a
group, `getDependent` or `isDependent` what a group waits for among its siblings, and `getJobs...`, `getPrologue...`,
`getEpilogue...` the commands (Goldenberg, TrellisDAG, 2003, chapter 4). Rule: dependencies on groups that are not
generated are dropped, vectors of a wrong length are reported. What the other form of scripts gives is in
`short_script`.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bough.describe import short_script
from bough.describe.plan import LocatedError, Plan, PlanGroup, PlanTask, Where, put_on_task
from bough.errors import BoughError, InvalidWorkload

_PARTS = ("Prologue", "Jobs", "Epilogue")
_MODULE = "__description__"
Vector = list[Any]


def is_description(source: bytes | str) -> bool:
    """Whether a Python file is a description script, found by looking at it and not by running it."""
    text = source.encode() if isinstance(source, str) else source
    if b"generateGroup" not in text and b"bough.describe" not in text:
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: it is nested too deep for Python
        return False  # running it will say what is wrong
    return _defines(tree, ("Levels", "Groups"), "generateGroup") or short_script.is_used_in(tree)


def _defines(tree: ast.Module, variables: Sequence[str], function: str) -> bool:
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return function in functions and any(name in named for name in variables)


def read_script(source: bytes | str, file: str, args: Sequence[str] = ()) -> Plan:
    """Run a description script with its arguments, and take the workflow it describes."""
    script = _Script(source, file)
    with _as_program(script.path, [file, *args], script.module):  # also while its functions are called
        script.run()
        with script.blamed():
            if script.levels:
                plan = short_script.build(script.levels, file)
            elif "generateGroup" in script.names:
                plan = _Thesis(script).build()
            else:
                raise Where(file).wrong("it defines no generateGroup and no @level, and so describes nothing")
    plan.source = file
    return plan


class _Script:
    """A script, and calls into it."""

    def __init__(self, source: bytes | str, file: str) -> None:
        self.file = file
        self.path = os.path.abspath(file)
        self.module = types.ModuleType(_MODULE)
        self.module.__dict__["__file__"] = self.path
        self.names: dict[str, Any] = self.module.__dict__
        self.levels: list[short_script.Level] = []
        self._source = source

    def run(self) -> None:
        with short_script.collecting() as self.levels, self.blamed():
            exec(compile(self._source, self.path, "exec", dont_inherit=True), self.names)

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Errors of the script become errors with the line they come from."""
        try:
            yield
        except BoughError as error:
            if isinstance(error, LocatedError) and error.file == self.file:
                raise
            raise self._wrong_here(error, str(error)) from error
        except SyntaxError as error:
            raise Where(self.file, error.lineno or 0).wrong(error.msg) from error
        except SystemExit as leaving:
            if isinstance(leaving.code, str):
                raise Where(self.file).wrong(leaving.code) from leaving
            raise InvalidWorkload(f"{self.file} ended with exit({leaving.code}) and described nothing") from leaving
        except Exception as error:
            raise self._wrong_here(error, f"{type(error).__name__}: {error}") from error

    def _wrong_here(self, error: BaseException, message: str) -> InvalidWorkload:
        lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == self.path]
        return Where(self.file, (lines[-1] if lines else 0) or 1).wrong(message)

    def where(self, function: Callable[..., Any]) -> Where:
        code = getattr(function, "__code__", None)
        return Where(self.file, code.co_firstlineno if code is not None and code.co_filename == self.path else 0)


@contextlib.contextmanager
def _as_program(path: str, argv: list[str], module: types.ModuleType) -> Iterator[None]:
    """Let a script find its arguments and its neighbours; what it prints goes to standard error."""
    kept_argv, kept_path = sys.argv, list(sys.path)
    sys.argv = argv
    sys.path.insert(0, os.path.dirname(path))
    sys.modules[_MODULE] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path[:] = kept_argv, kept_path
        sys.modules.pop(_MODULE, None)


class _Thesis:
    """The functions of one script, and the plan they make."""

    def __init__(self, script: _Script) -> None:
        self._script = script
        names = script.names
        self._generate = names["generateGroup"]
        self._dependent = names.get("getDependent")
        self._is_dependent = names.get("isDependent")
        self._levels = self._read_levels(names.get("Levels", names.get("Groups")))
        self._functions = {
            (part, what): names.get(f"get{part}{what}")
            for part in _PARTS
            for what in ("Executables", "Parameters", "Attributes")
        }
        for part in _PARTS:
            if self._functions[part, "Parameters"] is None and self._functions[part, "Executables"] is not None:
                raise Where(script.file).wrong(f"there is a get{part}Executables, but no get{part}Parameters")

    def _read_levels(self, given: object) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for entry in given if isinstance(given, list | tuple) else ():
            if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[1], int):
                raise Where(self._script.file).wrong(f"Levels holds {entry!r}; give [name, length of vectors]")
            found.append((str(entry[0]), entry[1]))
        if not found:
            raise Where(self._script.file).wrong(f"Levels is {given!r}; give a list of [name, length of vectors]")
        return found

    def build(self) -> Plan:
        plan = Plan([name for name, _ in self._levels])
        plan.root.groups = self._expand(0, [], "")
        return plan

    def _expand(self, depth: int, above: Vector, path: str) -> list[PlanGroup]:
        level, _ = self._levels[depth]
        vectors = [self._vector(depth, vector, "generateGroup") for vector in self._generate(level, list(above))]
        names = {tuple(vector): name_of(level, vector) for vector in vectors}
        prefix = f"{path}/" if path else ""
        groups: list[PlanGroup] = []
        where = self._script.where(self._generate)
        for vector in vectors:
            name = names[tuple(vector)]
            after = dict.fromkeys(names[other] for other in self._wanted(depth, vector, above, list(names)))
            after.pop(name, None)
            groups.append(
                PlanGroup(
                    name,
                    level,
                    [prefix + other for other in after],
                    self._commands("Prologue", level, vector),
                    self._expand(depth + 1, vector, prefix + name) if depth + 1 < len(self._levels) else [],
                    self._commands("Jobs", level, vector),
                    self._commands("Epilogue", level, vector),
                    where=where,
                )
            )
        return groups

    def _vector(self, depth: int, given: Any, function: str) -> Vector:
        level, length = self._levels[depth]
        vector = list(given) if isinstance(given, list | tuple) else [given]
        if len(vector) != length:
            raise self._wrong(
                function, f"{function} gave {given!r} for level {level}, whose vectors have {length} numbers"
            )
        return vector

    def _wrong(self, function: str, message: str) -> InvalidWorkload:
        return self._script.where(self._script.names[function]).wrong(message)

    def _wanted(
        self, depth: int, vector: Vector, above: Vector, siblings: list[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        level = self._levels[depth][0]
        if self._dependent is not None:
            there = set(siblings)
            given = self._dependent(level, list(vector), list(above)) or ()
            found = [tuple(self._vector(depth, other, "getDependent")) for other in given]
            return [other for other in found if other in there]
        if self._is_dependent is not None:
            asks = self._is_dependent
            mine = tuple(vector)
            return [o for o in siblings if o != mine and asks(level, list(vector), list(o), list(above))]
        return []

    def _commands(self, part: str, level: str, vector: Vector) -> list[PlanTask]:
        executables = self._functions[part, "Executables"]
        if executables is None:
            return []
        programs = self._called(part, "Executables", level, vector)
        parameters = self._called(part, "Parameters", level, vector)
        attributes = self._called(part, "Attributes", level, vector) or [""] * len(programs)
        where = self._script.where(executables)
        name = name_of(level, vector)
        if not len(programs) == len(parameters) == len(attributes):
            raise where.wrong(
                f"{name}: get{part}Executables gives {len(programs)} entries, get{part}Parameters {len(parameters)},"
                f" get{part}Attributes {len(attributes)}; give one of each per job"
            )
        tasks: list[PlanTask] = []
        for program, parameter, said in zip(programs, parameters, attributes, strict=True):
            task = PlanTask(f"{program} {parameter}".rstrip(), where=where)
            for text in [said] if isinstance(said, str) and said else said or ():
                key, _, value = str(text).partition("=")
                try:
                    put_on_task(task, key.strip(), value.strip())
                except ValueError as error:
                    raise where.wrong(f"{name}: {error}") from None
            tasks.append(task)
        return tasks

    def _called(self, part: str, what: str, level: str, vector: Vector) -> list[Any]:
        function = self._functions[part, what]
        return list(function(level, list(vector)) or ()) if function is not None else []


def name_of(level: str, vector: Sequence[object]) -> str:
    """The name of a group: its level and its vector."""
    return "_".join([level, *map(str, vector)])
