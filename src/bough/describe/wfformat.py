"""WfFormat, the JSON of the WfCommons project (version 1.5), read as plans: to run, to convert or to replay.

A trace says which tasks there were, what they waited for, how long they took and which files they read and wrote.
Replayed (`Emulation`), a task sleeps or computes as long as it took, times a factor, and reads and writes files of the
recorded sizes if they are asked for. Rule: everything that is wrong is told with file and line.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from bough.describe.plan import Plan, PlanGroup, PlanTask, Where
from bough.describe.uncollected import uncollected

VERSION = "1.5"
STAGE_IN = "stage-in"
_ID = re.compile(r'"id"\s*:\s*"((?:[^"\\]|\\.)*)"')
_BURN = "import time; any(time.process_time() > {seconds} for _ in iter(int, 1))"


class Emulation(NamedTuple):
    """How a trace is replayed."""

    kind: str = "sleep"  # or "cpu"
    scale: float = 1  # times the recorded run time
    files: float = 0  # times the recorded sizes; 0: no files
    folder: str = "files"  # where they are


class _Trace(msgspec.Struct):
    """The parts of a trace that are used."""

    name: str
    where: dict[str, int]  # lines of tasks by id
    tasks: dict[str, dict[str, Any]]
    ran: dict[str, dict[str, Any]]
    sizes: dict[str, int]


def is_wfformat(text: str) -> bool:
    """Whether a JSON text looks like a trace, by its beginning and its words."""
    return '"workflow"' in text and ('"specification"' in text or '"schemaVersion"' in text)


def read(text: str, filename: str, emulation: Emulation | None = None) -> Plan:
    """Read a trace; with an emulation the plan replays it."""
    with uncollected():
        trace = _parse(text, filename)
        parents = _parents(trace, filename)
        replay = None if emulation is None else _Replay(trace, emulation)
        tasks = []
        for name, task in trace.tasks.items():
            where = Where(filename, trace.where.get(name, 0))
            tasks.append(
                _recorded(trace, name, task, parents[name], where)
                if replay is None
                else replay.task(name, task, parents[name], where)
            )
        if replay is not None:
            tasks += replay.stage_in(tasks)
        return Plan(root=PlanGroup("", tasks=tasks, pipeline=False, where=Where(filename)), source=filename)


# --- the trace ------------------------------------------------------------------------------------------


def _parse(text: str, filename: str) -> _Trace:
    try:
        found = _loaded(text)
    except json.JSONDecodeError as error:
        raise Where(filename, error.lineno).wrong(f"this is no JSON: {error.msg}") from None
    version = found.get("schemaVersion", VERSION) if isinstance(found, dict) else ""
    if version != VERSION:
        raise Where(filename).wrong(f"this is WfFormat {version or 'of no version'}; version {VERSION} is read")
    workflow = _part(found, "workflow", dict, filename)
    specification = _part(workflow, "specification", dict, filename)
    execution = workflow.get("execution") or {}
    lines = dict(_lines(text))
    tasks: dict[str, dict[str, Any]] = {}
    for task in _part(specification, "tasks", list, filename):
        name = task.get("id") if isinstance(task, dict) else None
        if not isinstance(name, str) or not name:
            raise Where(filename).wrong(f"a task has no id: {json.dumps(task):.80}")
        if name in tasks:
            second = _second_line(text, name)
            raise Where(filename, second).wrong(f"the id {name!r} is taken by line {lines.get(name, 0)}")
        tasks[name] = task
    ran = {task["id"]: task for task in execution.get("tasks", ()) if isinstance(task, dict) and "id" in task}
    for name in ran:
        if name not in tasks:
            line = lines.get(name, 0)
            raise Where(filename, line).wrong(f"task {name} is recorded, but is not in the specification")
    sizes = {file["id"]: int(file.get("sizeInBytes") or 0) for file in specification.get("files") or ()}
    return _Trace(str(found.get("name", "")), lines, tasks, ran, sizes)


def _loaded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return json.loads(text)  # which is slower, takes NaN, and says in which line a mistake is


def _part(owner: Any, name: str, kind: type, filename: str) -> Any:
    found = owner.get(name) if isinstance(owner, dict) else None
    if not isinstance(found, kind):
        raise Where(filename).wrong(f"there is no {name}, as WfFormat {VERSION} has it")
    return found


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """The line where each id stands first, found from the end, so that the first one counts."""
    line, at = 1, 0
    found = []
    for match in _ID.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        found.append((match[1] if "\\" not in match[1] else json.loads(f'"{match[1]}"'), line))
    return reversed(found)


def _second_line(text: str, name: str) -> int:
    places = [match.start() for match in _ID.finditer(text) if match[1] == name]
    return text.count("\n", 0, places[1]) + 1 if len(places) > 1 else 0


def _parents(trace: _Trace, filename: str) -> dict[str, list[str]]:
    """What each task waits for: as it says itself, and as others say of it."""
    found: dict[str, dict[str, None]] = {
        name: dict.fromkeys(task.get("parents") or ()) for name, task in trace.tasks.items()
    }
    for name, task in trace.tasks.items():
        where = Where(filename, trace.where.get(name, 0))
        for parent in found[name]:
            if parent not in trace.tasks:
                raise where.wrong(f"task {name} has the parent {parent}, which does not exist")
        for child in task.get("children") or ():
            if child not in trace.tasks:
                raise where.wrong(f"task {name} has the child {child}, which does not exist")
            found[child][name] = None
    return {name: list(parents) for name, parents in found.items()}


def _seconds(trace: _Trace, name: str) -> float:
    seconds = trace.ran.get(name, {}).get("runtimeInSeconds", 0)
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < math.inf else 0.0


# --- as it was recorded ---------------------------------------------------------------------------------


def _recorded(trace: _Trace, name: str, task: dict[str, Any], parents: list[str], where: Where) -> PlanTask:
    ran = trace.ran.get(name, {})
    called = ran.get("command") or {}
    command = " ".join([str(called.get("program") or ""), *map(str, called.get("arguments") or ())]).strip()
    attributes = {"seconds": repr(_seconds(trace, name))} if name in trace.ran else {}
    for key, word in (("inputFiles", "inputs"), ("outputFiles", "outputs")):
        files = task.get(key) or ()
        if files:
            attributes[word] = json.dumps({file: trace.sizes.get(file, 0) for file in files})
    return PlanTask(
        command or f"sleep {_seconds(trace, name):g}",
        name=name,
        after=parents,
        cores=_cores(ran),
        attributes=attributes,
        where=where,
    )


def _cores(ran: dict[str, Any]) -> float:
    cores = ran.get("coreCount", 1)
    return cores if isinstance(cores, int | float) and cores > 0 else 1


# --- replayed -------------------------------------------------------------------------------------------


class _Replay:
    def __init__(self, trace: _Trace, emulation: Emulation) -> None:
        self.trace = trace
        self.emulation = emulation
        self.paths: dict[str, str] = {}
        self.taken = {"", ".", ".."}
        self.written = {file for task in trace.tasks.values() for file in task.get("outputFiles") or ()}
        self.first: dict[str, None] = {}  # files that are there before anything runs
        self.readers: list[str] = []  # tasks that read some of them

    def task(self, name: str, task: dict[str, Any], parents: list[str], where: Where) -> PlanTask:
        seconds = _seconds(self.trace, name) * self.emulation.scale
        parts = [self._work(seconds)]
        if self.emulation.files:
            inputs = list(dict.fromkeys(task.get("inputFiles") or ()))
            outputs = list(dict.fromkeys(task.get("outputFiles") or ()))
            if inputs:
                parts.insert(0, f"cat {' '.join(self._path(file) for file in inputs)} > /dev/null")
            parts += [self._write(file) for file in outputs]
            first = [file for file in inputs if file not in self.written]
            if first:
                self.first.update(dict.fromkeys(first))
                self.readers.append(name)
        return PlanTask(
            " && ".join(parts),
            name=name,
            after=parents,
            cores=_cores(self.trace.ran.get(name, {})),
            memo=False,
            where=where,
        )

    def _work(self, seconds: float) -> str:
        if not seconds:
            return "true"
        shown = f"{seconds:.6f}".rstrip("0").rstrip(".")
        if self.emulation.kind == "cpu":
            return f"python3 -S -c {shlex.quote(_BURN.format(seconds=shown))}"
        return f"sleep {shown}"

    def stage_in(self, tasks: list[PlanTask]) -> list[PlanTask]:
        """The task that makes the files which were there before; those that read them wait for it."""
        if not self.emulation.files:
            return []
        lines = [f"mkdir -p {shlex.quote(self.emulation.folder)}", *map(self._write, self.first)]
        readers = set(self.readers)
        for task in tasks:
            if not task.after or task.name in readers:
                task.after.append(STAGE_IN)
        return [PlanTask(" && ".join(lines), name=STAGE_IN, memo=False)]

    def _write(self, file: str) -> str:
        size = round(self.trace.sizes.get(file, 0) * self.emulation.files)
        return f"head -c {size} /dev/zero > {self._path(file)}"

    def _path(self, file: str) -> str:
        found = self.paths.get(file)
        if found is None:
            flat = file.strip("/").replace("/", "_")
            if flat in self.taken:
                flat = f"{flat}.{len(self.paths)}"
            self.taken.add(flat)
            found = self.paths[file] = shlex.quote(f"{self.emulation.folder}/{flat}")
        return found
