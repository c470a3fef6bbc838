"""WfFormat 1.5 written: any plan, and any run with its times, machines and files.

Ids have letters, digits, `_`, `-` and `.` only, as those of WfInstances have; names are the tasks' own. A run has an
`execution`; a plan has one only if every task knows how long it took. Rule: parents and children always agree.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from bough.describe.record import Machine, Record, RecordedTask
from bough.describe.wfformat import VERSION

_SHELL = re.compile(r"[\n;|&<>$`()]")
_PLAIN = re.compile(r"[\w@%+=:,./-]+(?: [\w@%+=:,./-]+)*")
_UNFIT = re.compile(r"[^0-9a-zA-Z_.-]+")


def write(record: Record, *, version: str = "") -> str:
    """A workflow as the text of a WfFormat file; `version`: of Bough."""
    ids = _ids(record.tasks)
    children: dict[str, list[str]] = {task.id: [] for task in record.tasks}
    for task in record.tasks:
        for before in task.before:
            children[before].append(ids[task.id])
    files: dict[str, int] = {}
    for task in record.tasks:
        files.update(task.inputs)
        files.update(task.outputs)
    specification: dict[str, Any] = {
        "tasks": [_specified(task, ids, children[task.id]) for task in record.tasks],
        "files": [{"id": name, "sizeInBytes": size} for name, size in files.items()],
    }
    workflow: dict[str, Any] = {"specification": specification}
    real = [task for task in record.tasks if not task.is_joint]
    if real and all(task.seconds is not None for task in real):
        workflow["execution"] = _execution(record, ids)
    return _text(
        {
            "name": record.name,
            "description": "Written by Bough",
            "createdAt": _instant(record.closed or record.opened or time.time()),
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


def _execution(record: Record, ids: dict[str, str]) -> dict[str, Any]:
    begun = min((task.started for task in record.tasks if task.started), default=record.opened or 0)
    ended = max((task.started + (task.seconds or 0) for task in record.tasks if task.started), default=begun)
    found: dict[str, Any] = {
        "makespanInSeconds": round(max(ended - begun, 0), 6),
        "executedAt": _instant(begun),
        "tasks": [_executed(task, ids) for task in record.tasks],
    }
    if record.machines:
        found["machines"] = [_machine(machine) for machine in record.machines]
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


def _machine(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = {"nodeName": machine.host}
    if machine.memory:
        found["memoryInBytes"] = machine.memory
    if machine.cores:
        found["cpu"] = {"coreCount": machine.cores}
    return found


def _instant(when: float) -> str:
    return dt.datetime.fromtimestamp(when, dt.UTC).isoformat()
