from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest

from bough.api.display.sparkline import sparkline
from bough.cli.commands.manual import attributes, found_outputs, make_command, read_id, script
from bough.cli.commands.stats import figure_lines
from bough.errors import UserError
from bough.model.commands.command import CommandCall, CommandSettings, CommandTemplate, TemplateSlot, encode_call

SHELL = ("/bin/bash", "-eo", "pipefail", "-c")


def loose(call: CommandCall, **fields: object) -> dict[str, object]:
    own = {"payload": encode_call(call), "body": b"", "table": b"", "pages": [], "is_array": False, "index": 0}
    task = {"id": "12", "record": 12, "kind": "command", "attempt": 2, "cores": 3, "name": "sort", "attributes": {}}
    return {**task, **own, **fields}


def test_the_text_of_a_command_names_its_outputs_as_they_will_be(tmp_path: Path) -> None:
    path = str(tmp_path / "out 1.txt")
    call = CommandCall(
        CommandSettings(str(tmp_path), SHELL), ["sort in > ", TemplateSlot("o", "", "w")], writes={"o": path}
    )

    made = make_command(loose(call))

    assert made.text == f"sort in > '{path}'"
    assert found_outputs(made) == ([], path)
    Path(path).write_text("abc")
    found, missing = found_outputs(made)
    assert (found[0][:3], missing) == (("o", path, 3), "")


def test_words_without_a_shell_are_quoted(tmp_path: Path) -> None:
    call = CommandCall(
        CommandSettings(str(tmp_path)), argv=[["echo"], ["a b"], [TemplateSlot("cores")], [TemplateSlot("attempt")]]
    )
    assert make_command(loose(call)).text == "echo 'a b' 3 2"


@pytest.mark.parametrize("paged", [True, False])
def test_an_element_of_an_array_gets_its_own_row(tmp_path: Path, paged: bool) -> None:
    template = CommandTemplate(CommandSettings(str(tmp_path), SHELL), ["run ", TemplateSlot("x")], ("x",))
    rows = [(f"v{n}",) for n in range(10)]
    table = {"table": b"", "pages": [(5, 10, pickle.dumps(rows[5:]))]} if paged else {"table": pickle.dumps(rows)}
    call = CommandCall(template.settings)

    task = loose(call, is_array=True, index=7, position=7, body=encode_call(template), **table)

    assert make_command(task).text == "run v7"
    assert attributes(task)["directory"] == str(tmp_path)


def test_a_script_runs_a_task_as_an_executor_would(tmp_path: Path) -> None:
    settings = CommandSettings(str(tmp_path), SHELL, {"GREETING": "it's me"}, stdin=b"in put")
    text = 'cat > sub/out; echo "$GREETING $OMP_NUM_THREADS $BOUGH_TASK $BOUGH_ATTEMPT" >> sub/out'
    call = CommandCall(settings, [text], writes={"o": str(tmp_path / "sub" / "out")})

    subprocess.run(
        ["bash", "-c", "\n".join(script(loose(call)))], check=True, timeout=60, env={"PATH": "/usr/bin:/bin"}
    )

    assert (tmp_path / "sub" / "out").read_text() == "in putit's me 3 12.0 2\n"


def test_a_function_has_no_command_and_ids_name_one_task() -> None:
    with pytest.raises(UserError, match="only an executor can run it"):
        make_command({"kind": "function", "id": "3"})
    assert [read_id(text) for text in ("12", "12.3", "q:12")] == [("", 12, None), ("", 12, 3), ("q", 12, None)]
    for wrong in ("all", "12.", "12.3-5", "-1"):
        with pytest.raises(UserError, match="not the id of one task"):
            read_id(wrong)


def test_a_sparkline_shows_the_highest_as_full() -> None:
    assert sparkline([0, 1, 2, 4], 60) == "▁▃▅█"
    assert sparkline([0, 0], 60) == "▁▁"
    assert sparkline([-4, -3, -2], 60, from_zero=False) == "▁▅█"
    assert len(sparkline(list(range(1000)), 60)) == 60


def test_figures_say_what_is_there() -> None:
    states = ("active", "idle", "suspended", "draining", "missing", "running", "placed", "ready", "waiting", "held")
    sample = dict.fromkeys((*states, "clients", "connections", "allocated", "cores", "ended", "failed"), 1)
    sample |= {"time": 100.0, "started": 40.0, "reused": 0, "throughput": 2.0, "throughput_60": 1.5, "cpu": 12.3}
    sample |= {"memory": 35_000_000, "turns": 9, "hands": 1}

    text = "\n".join(figure_lines([sample, sample]))

    assert "1 active, 1 idle, 1 suspended" in text
    assert "35.0 MB" in text
    assert "manual " in text


def test_figures_of_one_subject_stand_together() -> None:
    states = ("active", "idle", "suspended", "draining", "missing", "running", "placed", "ready", "waiting", "held")
    sample = dict.fromkeys((*states, "clients", "connections", "allocated", "cores", "ended", "failed"), 1)
    sample |= {"time": 100.0, "started": 40.0, "reused": 0, "throughput": 2.0, "throughput_60": 1.5, "cpu": 12.3}
    sample |= {
        "memory": 35_000_000,
        "turns": 9,
        "hands": 1,
        "cached_bytes": 5,
        "replicas": 2,
        "superseded": 1,
        "wasted": 1,
    }
    sample |= {"core_seconds": {"a": [5.0, 1.0, 1.0, 0.0], "b": [5.0, 1.0, 1.0, 0.0]}}

    names = [line.split()[0] for line in figure_lines([sample, sample])]
    assert names[:6] == ["time", "clients", "executors", "manual", "tasks", "ended"]
    assert names[6] == "throughput"
    assert names[8:] == ["replicas", "inputs", "cache", "server", "core-hours", "core-hours"]  # 7: its bars
