"""Files of the command line: what is surely no list of commands is refused before its lines are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.describe.workflow_files import File
from bough.errors import UserError

SCRIPT = "#!/bin/bash -e\ncd /tmp\nrm -rf x\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(name: str, content: bytes, *, runs: bool = False) -> str:
    Path(name).write_bytes(content)
    Path(name).chmod(0o755 if runs else 0o644)
    with pytest.raises(UserError) as raised:
        File(name)
    return str(raised.value)


def test_the_lines_of_a_shell_script_are_not_run_as_commands_of_a_list() -> None:
    said = refusal("job.sh", SCRIPT.encode())
    assert said.startswith("job.sh is a script, and each line of a list is a command of its own; to run the script: ")
    assert "bough run -- /bin/bash -e job.sh;" in said
    assert "bough run -- ./job.sh;" in refusal("job.sh", SCRIPT.encode(), runs=True)


def test_a_list_may_have_comments_and_be_run_by_bough() -> None:
    for text in ("# a list\necho a\n", "#!/usr/bin/env -S bough run\necho a\n"):
        Path("list.txt").write_text(text)
        assert File("list.txt").reader is None


def test_json_that_is_no_workflow_is_no_list_of_commands() -> None:
    for text in (b'{"a": 1}', b"{", b"[]"):
        assert refusal("x.json", text).startswith("x.json is neither a recorded workflow (WfFormat) nor what bough")


def test_a_program_is_named_so() -> None:
    assert refusal("tool", b"\x7fELF\xff\xfe", runs=True) == "tool is a program; to run it: bough run -- ./tool"
    assert refusal("data", b"\xff\xfe") == "data:1: a flat list is UTF-8 text, and this line is not"
