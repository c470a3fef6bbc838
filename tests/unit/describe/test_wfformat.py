"""WfFormat: traces read, replayed and written again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bough.describe import wfformat
from bough.describe.formats import Source, find_reader, left_out, write
from bough.describe.plan import Plan, PlanTask
from bough.describe.steps import steps
from bough.describe.task_graph import of_plan
from bough.describe.wfformat import TraceReplay, read
from bough.errors import InvalidWorkload
from tests.unit.describe.wfstructure import check_wfformat

INSTANCES = os.environ.get("BOUGH_WFINSTANCES", "")


def trace(**changes: Any) -> dict[str, Any]:
    specification = {
        "tasks": [
            {"name": "split", "id": "split_1", "parents": [], "children": ["work_2", "work_3"], "inputFiles": ["in"]},
            {"name": "work", "id": "work_2", "parents": ["split_1"], "children": [], "outputFiles": ["/o/2"]},
            {"name": "work", "id": "work_3", "parents": ["split_1"], "inputFiles": ["in", "part"]},
        ],
        "files": [
            {"id": "in", "sizeInBytes": 1000},
            {"id": "/o/2", "sizeInBytes": 500},
            {"id": "part", "sizeInBytes": 8},
        ],
    }
    specification["tasks"][0]["outputFiles"] = ["part"]  # type: ignore[index]
    execution = {
        "makespanInSeconds": 30,
        "executedAt": "2020-01-01T00:00:00Z",
        "tasks": [
            {"id": "split_1", "runtimeInSeconds": 10.5, "command": {"program": "split", "arguments": ["-n 2", "in"]}},
            {"id": "work_2", "runtimeInSeconds": 20, "coreCount": 4},
            {"id": "work_3", "runtimeInSeconds": 0},
        ],
    }
    found = {"name": "t", "schemaVersion": "1.5", "workflow": {"specification": specification, "execution": execution}}
    return found | changes


def plan_of(found: dict[str, Any], emulation: TraceReplay | None = None) -> Plan:
    plan = read(json.dumps(found, indent=1), "t.json", emulation)
    steps(plan)
    return plan


def by_name(plan: Plan) -> dict[str, PlanTask]:
    return {task.name: task for task in plan.root.tasks}


def error_of(text: str) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        steps(read(text, "t.json"))
    return str(caught.value)


def test_a_trace_has_tasks_dependencies_commands_and_cores() -> None:
    tasks = by_name(plan_of(trace()))
    assert tasks["split_1"].command == "split -n 2 in"
    assert (tasks["work_2"].after, tasks["work_2"].cores) == (["split_1"], 4)
    assert tasks["work_3"].command == "sleep 0"
    assert tasks["split_1"].where.line == 9


def test_tasks_without_a_command_are_told_unless_they_are_replayed() -> None:
    told: list[str] = []
    text = json.dumps(trace())
    read(text, "t.json", note=told.append)
    assert told == ["t.json records no command of 2 tasks: sleep stands for it"]
    read(text, "t.json", TraceReplay(), told.append)
    assert len(told) == 1


def test_what_has_not_run_is_written_without_commands_and_that_is_told() -> None:
    plan = Plan()
    plan.root.tasks = [PlanTask("true"), PlanTask("false")]
    assert left_out(plan, "wfformat") == (
        "wfformat has commands only of workflows that have run, and 2 tasks have no run time: all commands are left out"
    )
    assert not left_out(plan_of(trace()), "wfformat")


def test_parents_may_be_told_by_the_parents_alone() -> None:
    found = trace()
    for task in found["workflow"]["specification"]["tasks"]:
        task["parents"] = []
    assert by_name(plan_of(found))["work_2"].after == ["split_1"]


def test_replayed_a_task_sleeps_as_long_as_it_took() -> None:
    plan = plan_of(trace(), TraceReplay("sleep", 0.01))
    assert [task.command for task in plan.root.tasks] == ["sleep 0.105", "sleep 0.2", "true"]
    assert not any(task.memo for task in plan.root.tasks)
    assert by_name(plan)["work_2"].after == ["split_1"]


def test_replayed_with_work_a_task_uses_the_processor() -> None:
    [command, *_] = [task.command for task in plan_of(trace(), TraceReplay("cpu", 0.005)).root.tasks]
    before = os.times()
    subprocess.run(["/bin/bash", "-c", command], check=True)
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system > 0.04


def test_replayed_with_files_tasks_read_and_write_what_they_did(tmp_path: Path) -> None:
    plan = plan_of(trace(), TraceReplay("sleep", 0, files=0.5, folder="f"))
    assert by_name(plan)["split_1"].after == ["stage-in"]
    assert set(by_name(plan)["work_3"].after) == {"split_1", "stage-in"}
    for step in steps(plan):
        if step.task is not None:
            subprocess.run(["/bin/bash", "-eo", "pipefail", "-c", step.task.command], cwd=tmp_path, check=True)
    assert {path.name: path.stat().st_size for path in (tmp_path / "f").iterdir()} == {"in": 500, "o_2": 250, "part": 4}


def test_names_of_files_never_leave_the_folder() -> None:
    found = trace()
    found["workflow"]["specification"]["tasks"][0]["inputFiles"] = ["..", "/", "a/b", "a_b", "x;y"]
    command = by_name(plan_of(found, TraceReplay("sleep", 0, files=1, folder="f")))["split_1"].command
    assert command.startswith("cat f/...0 f/.1 f/a_b f/a_b.3 'f/x;y' > /dev/null")


def test_what_is_written_is_read_as_the_same() -> None:
    plan = plan_of(trace())
    text = write(plan, "wfformat")
    check_wfformat(json.loads(text))
    again = read(text, "again.json")
    for task in plan.root.tasks:
        same = by_name(again)[task.name]
        assert (same.after, same.attributes) == (task.after, task.attributes)


def test_a_plan_without_times_has_no_execution() -> None:
    plan = Plan()
    plan.root.tasks = [PlanTask("echo a", name="a b/c"), PlanTask("echo", after=["a b/c"])]
    found = json.loads(wfformat.write(of_plan(plan, "p")))
    check_wfformat(found)
    assert "execution" not in found["workflow"]
    assert [task["id"] for task in found["workflow"]["specification"]["tasks"]] == ["a_b_c", "task-2"]


def test_traces_are_known_by_what_is_in_them() -> None:
    reader = find_reader(Source("x.json", json.dumps(trace())))
    assert reader is not None
    assert reader.form == "wfformat"


def test_what_is_wrong_is_named_with_its_line() -> None:
    assert error_of('{"a": 1,\n "b": }') == "t.json:2: this is no JSON: Expecting value"
    assert error_of(json.dumps(trace(schemaVersion="1.4"))).startswith("t.json: this is WfFormat 1.4; version 1.5")
    assert error_of('{"workflow": {}}').startswith("t.json: this is not as WfFormat 1.5 has it: ")
    found = trace()
    found["workflow"]["specification"]["tasks"][2]["parents"] = ["nobody"]
    assert error_of(json.dumps(found, indent=1)) == "t.json:35: task work_3 has the parent nobody, which does not exist"
    found = trace()
    found["workflow"]["specification"]["tasks"][1]["id"] = "split_1"
    assert error_of(json.dumps(found, indent=1)) == "t.json:24: the id 'split_1' is taken by line 9"
    found = trace()
    found["workflow"]["specification"]["tasks"][0]["parents"] = ["work_3"]
    assert "these wait for each other: split_1 (line 9) -> work_3 (line 37) -> split_1" in error_of(
        json.dumps(found, indent=1)
    )
    found = trace()
    found["workflow"]["execution"]["tasks"][0]["id"] = "ghost"
    assert "task ghost is recorded, but is not in the specification" in error_of(json.dumps(found))


@pytest.mark.skipif(
    not INSTANCES,
    reason="there are no recorded workflows: set BOUGH_WFINSTANCES to a folder of WfFormat files to include them",
)
def test_recorded_workflows_are_read_and_written_without_loss() -> None:
    paths = sorted(Path(INSTANCES).glob("*.json"))
    assert paths
    for path in paths:
        plan = read(path.read_text(), str(path))
        text = write(plan, "wfformat")
        check_wfformat(json.loads(text))
        again = by_name(read(text, "again.json"))
        assert {name: (set(task.after), task.attributes) for name, task in by_name(plan).items()} == {
            name: (set(task.after), task.attributes) for name, task in again.items()
        }
