"""Descriptions as a boundary: what no store can hold, what has no end and what stands for too much is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bough.describe import flat_list, formats, grouped_list, wfformat
from bough.describe.dagman.dag_plan import read as read_dag
from bough.describe.flat_list import flat_steps
from bough.describe.formats import FLAT, Source
from bough.describe.formats import read as read_source
from bough.describe.make.make_database import read_output
from bough.describe.plan import Plan
from bough.describe.source_files import MOST_BYTES, read_file
from bough.describe.steps import steps
from bough.describe.trellisdag import mqsub, trellis_makefile
from bough.describe.trellisdag.description_script import is_description, read_script
from bough.errors import InvalidWorkload, UserError

BEYOND = ("9223372036854775808", "99999999999999999999", "9" * 5000, "nan", "inf", "1e400", "-1")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sub").write_text("executable = /bin/true\nqueue\n")


def dag(text: str, submit: str = "") -> Plan:
    Path("w.dag").write_text(text)
    if submit:
        Path("a.sub").write_text(submit)
    plan = read_dag("w.dag")
    steps(plan)
    return plan


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        work()
    return str(caught.value)


# --- numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", BEYOND)
def test_numbers_beyond_a_store_are_refused_with_their_line(number: str) -> None:
    for option in ("cores", "memory", "timeout", "retries"):
        line = f"a: {option}={number} :: true\n"
        assert refused(lambda line=line: flat_list.read(line, "f")).startswith("f:1: ")
        assert refused(lambda line=line: grouped_list.read(line, "f")).startswith("f:1: ")
        call = f'mqsub -l "g" -c "true" -attr "{option}={number}"\n'
        assert refused(lambda call=call: mqsub.read(call, "f")).startswith("f:1: ")
        rule = f"#AutoMakefile\na:\n#attribute {option}={number}\n\ttrue\n"
        assert refused(lambda rule=rule: trellis_makefile.read(rule, "f")).startswith("f:4: ")
    for option in ("limit", "retries", "timeout"):
        assert refused(lambda option=option: grouped_list.read(f"group=g {option}={number} ::\n", "f")).startswith(
            "f:1: "
        )
    lines = [f"RETRY A {number}", f"MAXJOBS c {number}", f"PRE_SKIP A {number}"]
    if number != "-1":  # that may be a signal
        lines += [f"RETRY A 1 UNLESS-EXIT {number}", f"ABORT-DAG-ON A {number}"]
    for line in lines:
        assert refused(lambda line=line: dag(f"JOB A a.sub\n{line}\n")).startswith("w.dag:2: ")
    for setting in ("request_cpus", "request_memory", "max_retries", "priority"):
        if (setting, number) != ("priority", "-1"):
            text = f"executable = x\n{setting} = {number}\nqueue\n"
            assert refused(lambda text=text: dag("JOB A a.sub\n", text)).startswith("a.sub:2: ")
    assert refused(lambda: dag("JOB A a.sub\n", f"executable = x\nqueue {number}\n")).startswith("a.sub:2: ")


@pytest.mark.parametrize("number", ["--5", "+5", "5.0", "²", "", "-", "9" * 16, "-" + "9" * 16])
def test_a_priority_is_a_whole_number(number: str) -> None:
    assert refused(lambda: dag(f"JOB A a.sub\nPRIORITY A {number}\n")).startswith("w.dag:2: ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("cores", value) for value in (1e400, 1e19, -1, "x", None, True)),
        *(("memory", value) for value in (1 << 63, -1, 1.5, "4GB")),
        *(("timeout", value) for value in (1e16, -1)),
        *(("retries", value) for value in (1 << 63, -1)),
        *(("priority", value) for value in (1 << 63, -(1 << 63) - 1)),
        *(("command", value) for value in ("a\0b", "", "\ud800", 5)),
        *(("name", value) for value in ("a\0b", "x" * 70_000)),
        *(("cwd", value) for value in ("a\0b", "x" * 70_000)),
        *(("env", value) for value in ({"a": "\0"}, {"\0": "a"}, [])),
        *(("attributes", value) for value in ({"a": "\0"}, {"a": "x" * 70_000}, {"a": 1})),
    ],
)
def test_a_plan_as_json_has_the_bounds_of_its_types(field: str, value: Any) -> None:
    text = json.dumps({"bough_plan": 1, "root": {"name": "", "tasks": [{"command": "x", field: value}]}})
    assert refused(lambda: steps(formats.read_json(text, "p.json"))).startswith("p.json: ")


# --- WfFormat -------------------------------------------------------------------------------------------


def trace(**task: Any) -> str:
    ran = {key: task.pop(key) for key in ("runtimeInSeconds", "coreCount", "command") if key in task}
    found = {
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": [{"id": "a", **task}], "files": [{"id": "f", "sizeInBytes": 5}]},
            "execution": {"tasks": [{"id": "a", **ran}]},
        },
    }
    return json.dumps(found)


@pytest.mark.parametrize(
    "said",
    [
        {"parents": [[]]},
        {"parents": "b"},
        {"children": {"a": 1}},
        {"inputFiles": [5]},
        {"outputFiles": ["a\0b"]},
        {"id": 5},
        {"id": ["a"]},
        {"id": "a\0b"},
        {"command": "x"},
        {"command": {"arguments": [[]]}},
        {"runtimeInSeconds": "x"},
        {"coreCount": []},
    ],
)
def test_a_trace_of_other_types_is_refused(said: dict[str, Any]) -> None:
    assert refused(lambda: wfformat.read(trace(**said), "t.json")).startswith("t.json")


@pytest.mark.parametrize(
    "part", [[], {}, 5, {"specification": []}, {"specification": {"tasks": [], "files": [{}]}}, {"execution": []}]
)
def test_a_trace_without_its_parts_is_refused(part: Any) -> None:
    text = json.dumps({"schemaVersion": "1.5", "workflow": part})
    assert refused(lambda: wfformat.read(text, "t.json")).startswith("t.json")


@pytest.mark.parametrize("value", [1e400, -5, 1e16])
def test_what_was_recorded_wrongly_counts_for_nothing(value: float) -> None:
    plan = wfformat.read(trace(runtimeInSeconds=value, coreCount=value), "t.json")
    (task,) = plan.root.tasks
    assert (task.cores, task.attributes["seconds"]) == (1, "0.0")


# --- nesting, and what stands for too much --------------------------------------------------------------


def test_deep_nesting_is_refused() -> None:
    assert "too deep" in refused(lambda: formats.read_json('{"bough_plan":1,"root":' + '{"groups":[' * 50_000, "p"))
    deep: dict[str, Any] = {"name": "g"}
    for _ in range(150):
        deep = {"name": "g", "groups": [deep]}
    text = json.dumps({"bough_plan": 1, "root": {"name": "", "groups": [deep]}})
    assert "more than 100" in refused(lambda: steps(formats.read_json(text, "p")))
    assert "more than 100" in refused(lambda: grouped_list.read(f"group={'a/' * 5000}b :: true\n", "f"))
    nested = '{"schemaVersion": "1.5", "workflow": ' + "[" * 100_000
    assert refused(lambda: wfformat.read(nested, "t"))
    assert not is_description("generateGroup = " + "(" * 100_000)
    assert not is_description("generateGroup = " + "-" * 100_000 + "1")


def test_macros_and_variables_that_stand_for_too_much_are_refused() -> None:
    macros = "".join(f"v{n} = {f'$(v{n + 1})' * 10}\n" for n in range(19))
    assert "macros" in refused(lambda: dag("JOB A a.sub\n", f"{macros}executable = $(v0)\nqueue\n"))
    long = f"x = {'y' * 1000}\nlong = {'$(x)' * 9000}\nexecutable = $(long)\n"
    assert "macros" in refused(lambda: dag("JOB A a.sub\n", long))
    variables = "".join(f"v{n} = {f'$(v{n + 1})' * 10}\n" for n in range(19)) + "v19 = x\n"
    assert "characters" in refused(lambda: trellis_makefile.read(f"#AutoMakefile\n{variables}a:\n\techo $(v0)\n", "m"))
    doubled = "A := x\n" + "A := $(A)$(A)\n" * 60
    assert "characters" in refused(lambda: trellis_makefile.read(f"#AutoMakefile\n{doubled}a:\n\techo $(A)\n", "m"))


@pytest.mark.parametrize("kind", ["SPLICE {0} {1}", "INCLUDE {1}", "SUBDAG EXTERNAL {0} {1}"])
def test_files_that_contain_each_other_many_times_over_are_refused(kind: str) -> None:
    for number in range(12):
        Path(f"d{number}").write_text("\n".join(kind.format(f"N{at}", f"d{number + 1}") for at in range(10)))
    Path("d12").write_text("CONFIG x\n")
    assert "more than" in refused(lambda: dag("SPLICE S d0\n"))
    for number in range(150):
        Path(f"d{number}").write_text(kind.format("N", f"d{number + 1}"))
    Path("d150").write_text("CONFIG x\n")
    assert "more than 100" in refused(lambda: dag("SPLICE S d0\n"))


def test_a_queue_of_too_many_is_refused() -> None:
    assert "at most" in refused(lambda: dag("JOB A a.sub\n", "executable = x\nqueue 99999999\n"))


def test_any_number_of_retries_is_a_short_command() -> None:
    (task,) = dag("JOB A a.sub\nRETRY A 999999999999 UNLESS-EXIT 2\n").root.tasks
    assert len(task.command) < 300


# --- files ----------------------------------------------------------------------------------------------


def test_a_file_that_is_named_must_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.describe.source_files._WRITER", 0.05)
    os.mkfifo("pipe")
    with open("long", "wb") as file:
        file.truncate(MOST_BYTES + 1)
    for name in ("/dev/zero", "pipe", "long", ".", "a\0b"):
        assert "cannot read" in refused(lambda name=name: read_file(name))
        assert refused(lambda name=name: dag(f"INCLUDE {name}\n"))
    assert read_file("/dev/null") == b""
    assert read_file("a.sub").startswith(b"executable")


def test_half_a_character_is_refused_with_its_line() -> None:
    assert refused(lambda: read_source(Source("x", "true\na\udcff\n"), FLAT)).startswith("x:2: ")


# --- scripts, make --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", ["limit=2**63", "limit=-1", "timeout=float('inf')", "retries='x'", "where=5", "name='x'"]
)
def test_options_of_a_level_are_bounded(said: str) -> None:
    text = f"from bough.describe import level\n@level(range(2), {said})\ndef Night(g, n):\n    g.task('x')\n"
    with pytest.raises(InvalidWorkload, match=r"s\.py"):
        read_script(text, "s.py")


def test_what_make_says_of_a_line_beyond_all_files_is_text() -> None:
    assert read_output(f"Makefile:{'9' * 5000}: target 'a' does not exist\n").made == []


def test_a_flat_list_s_tasks_are_bounded() -> None:
    long = flat_list.read(f"{'n' * 70_000}: cores=1 :: true\n", "f")
    assert "the name" in refused(lambda: flat_steps(long, "f"))
