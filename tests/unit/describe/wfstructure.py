"""A check of the structure of WfFormat 1.5, as its documentation has it: what must be there, and of which kind."""

from __future__ import annotations

import re
from typing import Any

ID = re.compile(r"[0-9a-zA-Z_.-]+")


def check_wfformat(found: dict[str, Any]) -> None:
    """Fail if a decoded file is no WfFormat 1.5."""
    assert found["schemaVersion"] == "1.5"
    assert found["name"]
    assert re.match(r"\d{4}-\d\d-\d\dT", found["createdAt"])
    specification = found["workflow"]["specification"]
    files = {file["id"]: file["sizeInBytes"] for file in specification["files"]}
    assert all(isinstance(size, int) and size >= 0 for size in files.values())
    tasks = {task["id"]: task for task in specification["tasks"]}
    assert len(tasks) == len(specification["tasks"])
    for name, task in tasks.items():
        assert ID.fullmatch(name)
        assert task["name"]
        assert all(name in tasks[parent]["children"] for parent in task["parents"])
        assert all(name in tasks[child]["parents"] for child in task["children"])
        assert set(task["inputFiles"]) | set(task["outputFiles"]) <= set(files)
    execution = found["workflow"].get("execution")
    if execution is not None:
        _check_execution(execution, set(tasks))


def _check_execution(execution: dict[str, Any], tasks: set[str]) -> None:
    assert execution["makespanInSeconds"] >= 0
    assert execution["executedAt"]
    assert {task["id"] for task in execution["tasks"]} == tasks
    machines = {machine["nodeName"]: machine for machine in execution.get("machines", [])}
    for task in execution["tasks"]:
        assert task["runtimeInSeconds"] >= 0
        assert isinstance(task["command"]["program"], str)
        assert all(isinstance(word, str) for word in task["command"]["arguments"])
        assert set(task.get("machines", [])) <= set(machines)
