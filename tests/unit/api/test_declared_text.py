"""Files that a command declares beside its text: which places become slots, and what is put around the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bough.api.submit.command_lines.declared_text import plan_with_files, with_slots
from bough.model.commands.command import final_text, shown_text


def test_a_path_that_stands_by_itself_becomes_a_slot_and_other_text_is_data() -> None:
    found = with_slots("cat a.txt xa.txt 'a.txt' a.txt.gz {a.txt} {x} > out/b", ["a.txt"], ["out/b"])
    assert found.text == "cat {a_txt:r} xa.txt '{a_txt:r}' a.txt.gz {{{a_txt:r}}} {{x}} > {out_b:w}"
    assert found.paths == {"a_txt": "a.txt", "out_b": "out/b"}


def test_slots_have_names_of_their_own() -> None:
    assert with_slots("x a.b a_b 1 cores", ["a.b", "a_b", "1", "cores"], []).paths == {
        "a_b": "a.b",
        "a_b_": "a_b",
        "_1": "1",
        "_cores": "cores",
    }


def test_the_command_is_shown_as_it_was_written_and_stored_with_its_final_paths() -> None:
    planned = plan_with_files("sort -o out.txt in.txt", ["in.txt", "more.txt"], ["out.txt"], cwd="/w")
    assert planned.reads == ("/w/in.txt", "/w/more.txt")
    assert planned.writes == {"out_txt": "/w/out.txt"}
    assert shown_text(planned.call) == "sort -o out.txt in.txt"
    assert final_text(planned.call) == "sort -o /w/out.txt in.txt"


@pytest.mark.parametrize(("command", "code"), [("cd /; cd - > /dev/null; echo {x} > 'free 1'", 0), ("exit 3", 3)])
def test_an_output_that_the_text_does_not_name_is_moved_to_its_slot(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "free 1").write_text("old\n")
    found = with_slots(command.replace("'free 1'", "free*1"), [], ["free 1"])
    assert list(found.paths.values()) == ["free 1"]
    text = with_slots("./simulate", [], ["free 1"]).text.replace("./simulate", command)
    text = text.replace("{free_1:w}", "hidden").replace("{{", "{").replace("}}", "}")
    ended = subprocess.run(["bash", "-eo", "pipefail", "-c", text], cwd=tmp_path, check=False)
    assert ended.returncode == code
    assert not (tmp_path / "free 1").exists()
    assert (tmp_path / "hidden").exists() is (code == 0)


def test_an_output_that_the_text_does_not_name_is_written_by_the_command_itself_and_so_not_atomic() -> None:
    assert plan_with_files("sort -o out.txt in.txt", ["in.txt"], ["out.txt"], cwd="/w").has_atomic_outputs
    assert not plan_with_files("./simulate", [], ["out.txt"], cwd="/w").has_atomic_outputs
    assert not plan_with_files("./simulate > out.txt", [], ["out.txt", "log.txt"], cwd="/w").has_atomic_outputs
    assert not plan_with_files("./simulate > out.txt", [], ["out.txt", "*.log"], cwd="/w").has_atomic_outputs
    assert not plan_with_files("./simulate", ["in.txt"], [], cwd="/w").has_atomic_outputs


def test_a_text_that_makes_another_name_of_that_of_an_output_is_not_atomic() -> None:
    by_part = "./simulate > out.txt.tmp && mv out.txt.tmp out.txt"
    assert not plan_with_files(by_part, [], ["out.txt"], cwd="/w").has_atomic_outputs
