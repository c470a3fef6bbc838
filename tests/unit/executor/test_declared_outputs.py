from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bough.executor.files.command_files import declared_outputs
from bough.executor.files.command_files.declared_outputs import Outputs
from bough.executor.host.devices import WorkerDevices
from bough.executor.host.processes import Unstartable
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


def test_what_matches_a_pattern_and_has_a_name_that_cannot_be_sent_is_said_to_be_missing(tmp_path: Path) -> None:
    outputs = Outputs({}, 3, 4, 1, patterns=[f"{tmp_path}/*.txt"])
    outputs.prepare()
    (tmp_path / "a.txt").touch()
    (tmp_path / os.fsdecode(b"\xff.txt")).touch()
    (said,) = outputs.missing()
    assert said.isascii()  # else the worker could not tell it, and would end
    assert r"'\udcff.txt'" in said


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
    made = Environments({b"MKL_NUM_THREADS": b"8"}, WorkerDevices()).make({"OPENBLAS_NUM_THREADS": "5"}, 2.5, "7.1", 3)
    assert made[b"OMP_NUM_THREADS"] == b"2"
    assert made[b"MKL_NUM_THREADS"] == b"8"
    assert made[b"OPENBLAS_NUM_THREADS"] == b"5"
    assert (made[b"BOUGH_TASK"], made[b"BOUGH_ATTEMPT"]) == (b"7.1", b"3")


def without_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that keeps no extended attributes."""

    def refuse(*_: object, **__: object) -> bytes:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "setxattr", refuse)
    monkeypatch.setattr(os, "getxattr", refuse)


def need_attributes(folder: Path) -> None:
    try:
        os.setxattr(folder, "user.test", b"")
    except OSError:
        pytest.skip("this file system keeps no extended attributes")


@pytest.mark.parametrize("old", [False, True])
def test_of_two_attempts_at_a_time_the_first_to_show_its_output_wins_and_both_say_so(tmp_path: Path, old: bool) -> None:
    need_attributes(tmp_path)
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


def test_without_attributes_the_same_bytes_stay_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_attributes(monkeypatch)
    final = tmp_path / "out.txt"
    first, second = (Outputs({"o": str(final)}, 1, 0, attempt) for attempt in (1, 2))
    first.prepare()
    second.prepare()
    for outputs in (first, second):
        Path(outputs.hidden["o"]).write_text("the same")

    shown = second.show()
    number = final.stat().st_ino

    assert first.show() == shown
    assert final.stat().st_ino == number
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("attributes", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_what_a_stranger_wrote_meanwhile_is_never_reported_as_the_commands_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool, attributes: bool
) -> None:
    if not attributes:
        without_attributes(monkeypatch)
    final = tmp_path / "out.txt"
    if old:  # shown by this task, so that a stranger who writes into it finds its signature there
        earlier = Outputs({"o": str(final)}, 1, 0, 1)
        earlier.prepare()
        Path(earlier.hidden["o"]).write_text("of an earlier attempt")
        earlier.show()
    outputs = Outputs({"o": str(final)}, 1, 0, 2)
    outputs.prepare()
    final.write_text("of a stranger")
    Path(outputs.hidden["o"]).write_text("of the command")

    (shown,) = outputs.show()

    assert final.read_text() == "of the command"
    assert (shown.size, shown.mtime_ns) == (final.stat().st_size, final.stat().st_mtime_ns)
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_task_of_another_workflow_with_the_same_number_is_a_stranger(tmp_path: Path) -> None:
    final = tmp_path / "out.txt"
    theirs, ours = (Outputs({"o": str(final)}, 1, 0, 1, mark=mark) for mark in (b"theirs:1", b"ours:1"))
    ours.prepare()
    theirs.prepare()
    Path(theirs.hidden["o"]).write_text("theirs")
    theirs.show()
    Path(ours.hidden["o"]).write_text("of ours")
    (shown,) = ours.show()
    assert (final.read_text(), shown.size) == ("of ours", 7)


def test_a_folder_of_a_stranger_is_not_deleted(tmp_path: Path) -> None:
    final = tmp_path / "out"
    outputs = Outputs({"o": str(final)}, 1, 0, 1)
    outputs.prepare()
    final.mkdir()
    (final / "theirs").touch()
    Path(outputs.hidden["o"]).write_text("of the command")
    with pytest.raises(OSError, match="out"):
        outputs.show()
    assert os.listdir(final) == ["theirs"]


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


def test_a_missing_output_is_named_by_its_slot_only_if_the_user_chose_that(tmp_path: Path) -> None:
    path = str(tmp_path / "o.txt")
    assert Outputs({"o_txt": path}, 1, 0, 1).missing() == [path]
    assert Outputs({"sub_o_txt_": path}, 1, 0, 1).missing() == [path]
    assert Outputs({"table": path}, 1, 0, 1).missing() == [f"table ({path})"]


@pytest.mark.parametrize("attributes", [False, True])
def test_of_two_attempts_that_make_a_folder_the_first_to_show_it_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: bool
) -> None:
    if attributes:
        need_attributes(tmp_path)
    else:
        without_attributes(monkeypatch)
    final = tmp_path / "out"
    first = Outputs({"o": str(final)}, 1, 0, 1)
    replica = Outputs({"o": str(final)}, 1, 0, 2, is_replica=True)
    first.prepare()
    Path(first.hidden["o"]).mkdir()
    (Path(first.hidden["o"]) / "begun").touch()
    replica.prepare()
    assert os.listdir(first.hidden["o"]) == ["begun"]
    Path(replica.hidden["o"]).mkdir()
    (Path(replica.hidden["o"]) / "whole").touch()

    shown = replica.show()

    if attributes:
        assert first.show() == shown
    else:  # it cannot know whose the folder is: it fails, and the success of the other one counts
        with pytest.raises(OSError, match="out"):
            first.show()
        first.discard()
    assert os.listdir(final) == ["whole"]
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("old", [False, True])
def test_of_two_attempts_that_show_several_outputs_at_once_all_are_of_one_of_them(tmp_path: Path, old: bool) -> None:
    need_attributes(tmp_path)
    writes = {slot: str(tmp_path / slot) for slot in "abc"}
    for path in writes.values() if old else ():
        Path(path).write_text("of an earlier run")
    slow, fast = Slow(writes, 1, 0, 1), Outputs(writes, 1, 0, 2, is_replica=True)
    for outputs, text in ((slow, "slow"), (fast, "at once")):
        outputs.prepare()
        for path in outputs.hidden.values():
            Path(path).write_text(text)
    thread = threading.Thread(target=slow.show)
    thread.start()
    assert slow.has_begun.wait(30)
    shown = fast.show()
    thread.join()
    assert [Path(path).read_text() for path in writes.values()] == ["slow"] * 3
    assert [one.size for one in shown] == [4] * 3
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


class Slow(Outputs):
    """An attempt that takes its time between two outputs."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.has_begun = threading.Event()

    def _give_name(self, hidden: str, path: str) -> os.stat_result | None:
        if self.has_begun.is_set():
            time.sleep(0.1)
        found = super()._give_name(hidden, path)
        self.has_begun.set()
        return found


def test_what_an_attempt_that_died_did_not_get_to_show_is_that_of_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_attributes(tmp_path)
    monkeypatch.setattr(declared_outputs, "_SHOWING", 0.05)
    writes = {slot: str(tmp_path / slot) for slot in "ab"}
    first, second = (Outputs(writes, 1, 0, attempt) for attempt in (1, 2))
    for outputs in (first, second):
        outputs.prepare()
    for outputs in (first, second):
        for path in outputs.hidden.values():
            Path(path).write_text("made")
    first._sign(first.hidden["a"])
    first._give_name(first.hidden["a"], writes["a"])
    assert [one.size for one in second.show()] == [4, 4]
    assert Path(writes["b"]).read_text() == "made"
