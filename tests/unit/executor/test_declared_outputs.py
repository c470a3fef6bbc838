from __future__ import annotations

import os
from pathlib import Path

import pytest

from bough.executor.files.declared_outputs import Outputs
from bough.executor.processes import Unstartable
from bough.executor.worker.environment import Environments, ProgramPaths


def test_outputs_get_their_names_only_when_shown(tmp_path: Path) -> None:
    final = tmp_path / "a" / "b.txt"
    final.parent.mkdir()
    final.write_text("older")
    outputs = Outputs({"o": str(final)}, 3, 4, 1)
    outputs.prepare()
    hidden = Path(outputs.hidden["o"])
    assert hidden == tmp_path / "a" / ".bough-3.4-1.b.txt"
    assert outputs.missing() == [f"o ({final})"]
    hidden.write_text("new")
    assert outputs.missing() == []
    assert final.read_text() == "older"
    (shown,) = outputs.show()
    assert final.read_text() == "new"
    assert (shown.slot, shown.path, shown.size) == ("o", str(final), 3)


def test_a_folder_can_be_an_output_and_replaces_the_older_one(tmp_path: Path) -> None:
    final = tmp_path / "d"
    final.mkdir()
    (final / "old").touch()
    outputs = Outputs({"o": str(final)}, 1, 0, 1)
    outputs.prepare()
    os.mkdir(outputs.hidden["o"])
    (Path(outputs.hidden["o"]) / "new").touch()
    outputs.show()
    assert os.listdir(final) == ["new"]


def test_discarding_and_preparing_remove_what_attempts_left(tmp_path: Path) -> None:
    old = Outputs({"o": str(tmp_path / "x")}, 1, 0, 1)
    Path(old.hidden["o"]).touch()
    new = Outputs({"o": str(tmp_path / "x")}, 1, 0, 2)
    new.prepare()
    assert os.listdir(tmp_path) == []
    os.mkdir(new.hidden["o"])
    new.discard()
    new.discard()
    assert os.listdir(tmp_path) == []


def test_programs_are_found_as_a_shell_finds_them(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("")
    programs = ProgramPaths()
    path = os.fsencode(tmp_path)
    with pytest.raises(Unstartable, match="'tool' was not found in PATH"):
        next(programs.ways(["tool"], path))
    (tmp_path / "tool").chmod(0o755)
    assert next(programs.ways(["tool", "x"], path)) == (str(tmp_path / "tool"), ["tool", "x"])
    assert next(programs.ways(["./tool"], path)) == ("./tool", ["./tool"])
    with pytest.raises(Unstartable, match="empty"):
        next(programs.ways([], path))


def test_thread_counts_follow_the_cores_unless_they_are_set() -> None:
    made = Environments({b"MKL_NUM_THREADS": b"8"}).make({"OPENBLAS_NUM_THREADS": "5"}, 2.5, "7.1", 3)
    assert made[b"OMP_NUM_THREADS"] == b"2"
    assert made[b"MKL_NUM_THREADS"] == b"8"
    assert made[b"OPENBLAS_NUM_THREADS"] == b"5"
    assert (made[b"BOUGH_TASK"], made[b"BOUGH_ATTEMPT"]) == (b"7.1", b"3")


@pytest.mark.parametrize("old", [False, True])
def test_of_two_attempts_at_a_time_the_first_to_show_its_output_wins_and_both_say_so(tmp_path: Path, old: bool) -> None:
    final = tmp_path / "out.txt"
    if old:
        final.write_text("of an earlier run")
    first, second = (Outputs({"o": str(final)}, 1, 0, attempt) for attempt in (1, 2))
    first.prepare()
    second.prepare()
    Path(first.hidden["o"]).write_text("first")
    Path(second.hidden["o"]).write_text("second")

    shown = second.show()
    late = first.show()

    assert final.read_text() == "second"
    assert late == shown
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_later_attempt_replaces_what_an_earlier_one_had_shown(tmp_path: Path) -> None:
    """It had shown its output and died before it could say so."""
    final = tmp_path / "out.txt"
    for attempt in (1, 2):
        outputs = Outputs({"o": str(final)}, 1, 0, attempt)
        outputs.prepare()
        Path(outputs.hidden["o"]).write_text(f"attempt {attempt}")
        outputs.show()
    assert final.read_text() == "attempt 2"


def test_a_link_is_shown_as_a_link(tmp_path: Path) -> None:
    outputs = Outputs({"o": str(tmp_path / "link")}, 1, 0, 1)
    outputs.prepare()
    Path(outputs.hidden["o"]).symlink_to("elsewhere")
    outputs.show()
    assert (tmp_path / "link").readlink() == Path("elsewhere")
