"""WfFormat, the JSON of the WfCommons project (version 1.5), read as plans, replayed, and written.

A trace says which tasks there were, what they waited for, how long they took and which files they read and wrote.
Replayed (`TraceReplay`), a task sleeps or computes as long as it took, times a factor, and reads and writes files of
the recorded sizes if they are asked for.

Any plan can be written, and any run with its times, machines and files. Ids have letters, digits, `_`, `-` and `.`
only, as those of WfInstances have; names are the tasks' own. A run has an `execution`; a plan has one only if every
task knows how long it took.
Rule: everything that is wrong is told with file and line; in what is written parents and children always agree.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from bough.describe.plan import Plan, PlanGroup, PlanTask, Where, without_gc
from bough.describe.task_graph import RecordedTask, RunMachine, TaskGraph
from bough.model.bounds import LONGEST, FilePath, Name, in_plain_words
from bough.model.texts.plurals import counted

VERSION = "1.5"
STAGE_IN = "stage-in"
_ID = re.compile(r'"id"\s*:\s*"((?:[^"\\]|\\.)*)"')
_BURN = "import time; any(time.process_time() > {seconds} for _ in iter(int, 1))"


class TraceReplay(NamedTuple):
    """How a trace is replayed."""

    kind: str = "sleep"  # or "cpu"
    scale: float = 1  # times the recorded run time
    files: float = 0  # times the recorded sizes; 0: no files
    folder: str = "files"  # where they are


class _Task(msgspec.Struct):
    """A task of the specification."""

    id: Name = ""
    parents: list[Name] | None = None
    children: list[Name] | None = None
    inputFiles: list[FilePath] | None = None  # noqa: N815 - the format's names, here and below
    outputFiles: list[FilePath] | None = None  # noqa: N815


class _File(msgspec.Struct):
    id: FilePath
    sizeInBytes: float | None = None  # noqa: N815


class _Call(msgspec.Struct):
    program: str | None = None
    arguments: list[str | int | float] | None = None


class _Ran(msgspec.Struct):
    """A task as it was executed."""

    id: Name = ""
    runtimeInSeconds: float | None = None  # noqa: N815
    coreCount: float | None = None  # noqa: N815
    command: _Call | None = None


class _Specification(msgspec.Struct):
    tasks: list[_Task]
    files: list[_File] | None = None


class _Execution(msgspec.Struct):
    tasks: list[_Ran] | None = None


class _Workflow(msgspec.Struct):
    specification: _Specification
    execution: _Execution | None = None


class _Instance(msgspec.Struct):
    """The parts of a file that are used."""

    workflow: _Workflow


class _Trace(msgspec.Struct):
    where: dict[str, int]  # lines of tasks by id
    tasks: dict[str, _Task]
    ran: dict[str, _Ran]
    sizes: dict[str, int]


_DONE_NOTHING = _Ran()


def is_wfformat(text: str) -> bool:
    """Whether a JSON text looks like a trace, by its beginning and its words."""
    return '"workflow"' in text and ('"specification"' in text or '"schemaVersion"' in text)


def read(
    text: str, filename: str, emulation: TraceReplay | None = None, note: Callable[[str], None] = lambda _: None
) -> Plan:
    """Read a trace; with an emulation the plan replays it. `note` is told that there are no commands to run."""
    with without_gc():
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
        silent = sum(not _command(trace, name) for name in trace.tasks)
        if replay is not None:
            tasks += replay.stage_in(tasks)
        elif silent:
            note(f"{filename} records no command of {counted(silent, 'task')}: sleep stands for it")
        return Plan(root=PlanGroup("", tasks=tasks, pipeline=False, where=Where(filename)), source=filename)


# --- the trace ------------------------------------------------------------------------------------------


def _parse(text: str, filename: str) -> _Trace:
    try:
        found = _loaded(text)
        version = found.get("schemaVersion", VERSION) if isinstance(found, dict) else ""
        instance = msgspec.convert(found, _Instance) if version == VERSION else None
    except json.JSONDecodeError as error:
        raise Where(filename, error.lineno).wrong(f"this is no JSON: {error.msg}") from None
    except msgspec.ValidationError as error:
        reason = in_plain_words(str(error))
        raise Where(filename).wrong(f"this is not as WfFormat {VERSION} has it: {reason}") from None
    except (RecursionError, ValueError) as error:  # the second: a number of thousands of digits
        raise Where(filename).wrong(f"this is no JSON that can be read: {error}") from None
    if instance is None:
        said = str(version or "of no version")
        raise Where(filename).wrong(f"this is WfFormat {said:.40}; version {VERSION} is read")
    lines = dict(_lines(text))
    specification, execution = instance.workflow.specification, instance.workflow.execution
    tasks: dict[str, _Task] = {}
    for number, task in enumerate(specification.tasks, 1):
        if not task.id:
            raise Where(filename).wrong(f"a task has no id: it is number {number}")
        if task.id in tasks:
            second = _second_line(text, task.id)
            raise Where(filename, second).wrong(f"the id {task.id!r} is taken by line {lines.get(task.id, 0)}")
        tasks[task.id] = task
    ran = {task.id: task for task in (execution.tasks if execution is not None else None) or () if task.id}
    for name in ran:
        if name not in tasks:
            line = lines.get(name, 0)
            raise Where(filename, line).wrong(f"task {name} is recorded, but is not in the specification")
    sizes = {file.id: _size(file.sizeInBytes) for file in specification.files or ()}
    return _Trace(lines, tasks, ran, sizes)


def _size(recorded: float | None) -> int:
    return int(recorded) if recorded is not None and 0 <= recorded <= LONGEST else 0


def _loaded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return json.loads(text)  # which is slower, takes NaN, and says in which line a mistake is


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
    found: dict[str, dict[str, None]] = {name: dict.fromkeys(task.parents or ()) for name, task in trace.tasks.items()}
    for name, task in trace.tasks.items():
        where = Where(filename, trace.where.get(name, 0))
        for parent in found[name]:
            if parent not in trace.tasks:
                raise where.wrong(f"task {name} has the parent {parent}, which does not exist")
        for child in task.children or ():
            if child not in trace.tasks:
                raise where.wrong(f"task {name} has the child {child}, which does not exist")
            found[child][name] = None
    return {name: list(parents) for name, parents in found.items()}


def _seconds(trace: _Trace, name: str) -> float:
    seconds = trace.ran.get(name, _DONE_NOTHING).runtimeInSeconds
    return seconds if seconds is not None and 0 <= seconds <= LONGEST else 0.0


# --- as it was recorded ---------------------------------------------------------------------------------


def _recorded(trace: _Trace, name: str, task: _Task, parents: list[str], where: Where) -> PlanTask:
    ran = trace.ran.get(name, _DONE_NOTHING)
    attributes = {"seconds": repr(_seconds(trace, name))} if name in trace.ran else {}
    for files, word in ((task.inputFiles, "inputs"), (task.outputFiles, "outputs")):
        if files:
            attributes[word] = json.dumps({file: trace.sizes.get(file, 0) for file in files})
    return PlanTask(
        _command(trace, name) or f"sleep {_seconds(trace, name):g}",
        name=name,
        after=parents,
        cores=_cores(ran),
        attributes=attributes,
        where=where,
    )


def _command(trace: _Trace, name: str) -> str:
    called = trace.ran.get(name, _DONE_NOTHING).command or _Call()
    return " ".join([called.program or "", *map(str, called.arguments or ())]).strip()


def _cores(ran: _Ran) -> float:
    cores = 1 if ran.coreCount is None else ran.coreCount
    return cores if 0 < cores <= LONGEST else 1


# --- replayed -------------------------------------------------------------------------------------------


class _Replay:
    def __init__(self, trace: _Trace, emulation: TraceReplay) -> None:
        self.trace = trace
        self.emulation = emulation
        self.paths: dict[str, str] = {}
        self.taken = {"", ".", ".."}
        self.written = {file for task in trace.tasks.values() for file in task.outputFiles or ()}
        self.first: dict[str, None] = {}  # files that are there before anything runs
        self.readers: list[str] = []  # tasks that read some of them

    def task(self, name: str, task: _Task, parents: list[str], where: Where) -> PlanTask:
        seconds = _seconds(self.trace, name) * self.emulation.scale
        parts = [self._work(seconds)]
        if self.emulation.files:
            inputs = list(dict.fromkeys(task.inputFiles or ()))
            outputs = list(dict.fromkeys(task.outputFiles or ()))
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
            cores=_cores(self.trace.ran.get(name, _DONE_NOTHING)),
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


_SHELL = re.compile(r"[\n;|&<>$`()]")
_PLAIN = re.compile(r"[\w@%+=:,./-]+(?: [\w@%+=:,./-]+)*")
_UNFIT = re.compile(r"[^0-9a-zA-Z_.-]+")


# --- writing ------------------------------------------------------------------------------------------


def write(graph: TaskGraph, *, version: str = "") -> str:
    """A workflow as the text of a WfFormat file; `version`: of Bough."""
    ids = _ids(graph.tasks)
    children: dict[str, list[str]] = {task.id: [] for task in graph.tasks}
    for task in graph.tasks:
        for before in task.before:
            children[before].append(ids[task.id])
    files: dict[str, int] = {}
    for task in graph.tasks:
        files.update(task.inputs)
        files.update(task.outputs)
    specification: dict[str, Any] = {
        "tasks": [_specified(task, ids, children[task.id]) for task in graph.tasks],
        "files": [{"id": name, "sizeInBytes": size} for name, size in files.items()],
    }
    workflow: dict[str, Any] = {"specification": specification}
    real = [task for task in graph.tasks if not task.is_joint]
    if real and all(task.seconds is not None for task in real):
        workflow["execution"] = _execution(graph, ids)
    return _text(
        {
            "name": graph.name,
            "description": "Written by Bough",
            "createdAt": _instant(graph.closed or graph.opened or time.time()),
            "schemaVersion": VERSION,
            "runtimeSystem": {
                "name": "Bough",
                "version": version or "unknown",
                "url": "https://pypi.org/project/bough/",
            },
            "workflow": workflow,
        }
    )


def _text(value: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _ids(tasks: Iterable[RecordedTask]) -> dict[str, str]:
    """Ids as the schema wants them, all different."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for task in tasks:
        fit = _UNFIT.sub("_", task.id) or "task"
        while fit in taken:
            fit = f"{fit}_{len(taken)}"
        taken.add(fit)
        found[task.id] = fit
    return found


def _specified(task: RecordedTask, ids: dict[str, str], children: list[str]) -> dict[str, Any]:
    return {
        "name": task.name or ids[task.id],
        "id": ids[task.id],
        "parents": [ids[before] for before in task.before],
        "children": children,
        "inputFiles": list(task.inputs),
        "outputFiles": list(task.outputs),
    }


def _execution(graph: TaskGraph, ids: dict[str, str]) -> dict[str, Any]:
    begun = min((task.started for task in graph.tasks if task.started), default=graph.opened or 0)
    ended = max((task.started + (task.seconds or 0) for task in graph.tasks if task.started), default=begun)
    found: dict[str, Any] = {
        "makespanInSeconds": round(max(ended - begun, 0), 6),
        "executedAt": _instant(begun),
        "tasks": [_executed(task, ids) for task in graph.tasks],
    }
    if graph.machines:
        found["machines"] = [_machine(machine) for machine in graph.machines]
    return found


def _executed(task: RecordedTask, ids: dict[str, str]) -> dict[str, Any]:
    seconds = task.seconds or 0.0
    program, *arguments = _words(task.command) or ["true"]
    found: dict[str, Any] = {
        "id": ids[task.id],
        "runtimeInSeconds": round(seconds, 6),
        "command": {"program": program, "arguments": arguments},
        "priority": task.priority,
    }
    if task.cores >= 1:
        found["coreCount"] = task.cores
    if task.started:
        found["executedAt"] = _instant(task.started)
    if task.cpu is not None and seconds:
        found["avgCPU"] = round(100 * task.cpu / seconds, 4)
    if task.memory:
        found["memoryInBytes"] = task.memory
    if task.host:
        found["machines"] = [task.host]
    return found


def _words(command: str) -> list[str]:
    """A command as program and arguments; what needs a shell stays one text, as other systems write it."""
    if _SHELL.search(command):
        return [command]
    if _PLAIN.fullmatch(command):
        return command.split()
    try:
        words = shlex.split(command)
    except ValueError:
        return [command]
    return words if shlex.join(words) == command else [command]


def _machine(machine: RunMachine) -> dict[str, Any]:
    found: dict[str, Any] = {"nodeName": machine.host}
    if machine.memory:
        found["memoryInBytes"] = machine.memory
    if machine.cores:
        found["cpu"] = {"coreCount": machine.cores}
    return found


def _instant(when: float) -> str:
    return dt.datetime.fromtimestamp(when, dt.UTC).isoformat()
