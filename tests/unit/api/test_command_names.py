"""What commands are called when nobody says it: after their program, never after an option."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.api.submit.command_lines.commands import command_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sort -n data.txt", "sort"),
        ("LANG=C /usr/bin/sort data.txt", "sort"),
        ("make; true", "make"),
        ("--seed 3", "3"),
        ("-n", ""),
        ("", ""),
    ],
)
def test_a_command_is_called_after_its_program(text: str, name: str) -> None:
    assert command_name(text) == name


@pytest.mark.parametrize(
    ("text", "values", "name"),
    [
        ("{python} {program:r} --seed {seed}", {"python": "/usr/bin/python3"}, "python3"),
        ("{python} {program:r} --seed {seed}", {}, "python"),
        ("{program:r} --seed {seed}", {"program": Path("tools/fold.py")}, "fold.py"),
        ("{program:r} --seed {seed}", {"program": object()}, "program"),
        ("{script} x", {"script": "runs/{seed}.sh"}, "script"),
        ("{line:raw} x", {"line": "sort -n"}, "line"),
        ("{folder}/run.sh {seed}", {"folder": "/opt/a"}, "run.sh"),
        ("run-{seed}.sh", {}, "run-seed.sh"),
        ("{flag} sort", {"flag": "--x"}, "sort"),
        ("{{ true; }} {n}", {}, "true"),
    ],
)
def test_a_slot_stands_for_its_value_or_its_name(text: str, values: dict[str, object], name: str) -> None:
    assert command_name(text, values) == name
