"""Half-written outputs are found by the workers' notes; nothing else is touched."""

from __future__ import annotations

import os
from pathlib import Path

from bough.executor.worker.commands.command_runner import OutputNote
from bough.server import cleanup


def test_what_the_last_note_of_a_worker_names_is_deleted_with_the_note(tmp_path: Path) -> None:
    files = [tmp_path / f".bough-1.{index}-1.a b.txt" for index in range(3)]
    for path in files:
        path.write_text("half")
    note = OutputNote(str(tmp_path / "x1-0.hidden"))
    note.write([str(files[0]), "a much longer name that is gone after the next note"])
    note.write([str(files[1]), str(files[2])])
    assert cleanup.clear(str(tmp_path)) == 2
    assert sorted(tmp_path.iterdir()) == [files[0]]


def test_only_hidden_names_are_deleted_and_what_is_gone_is_no_error(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("whole")
    folder = tmp_path / ".bough-1.0-1.folder"
    (folder / "inside").mkdir(parents=True)
    OutputNote(str(tmp_path / "x1-0.hidden")).write(
        [str(mine), str(folder), str(tmp_path / ".bough-gone"), "bough-here"]
    )
    (tmp_path / "x1-1.hidden").write_bytes(b"/torn")
    assert cleanup.clear(str(tmp_path)) == 1
    assert sorted(tmp_path.iterdir()) == [mine]
    assert cleanup.clear(str(tmp_path / "not there")) == 0


def test_a_note_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    OutputNote(str(tmp_path / "no folder" / "x1-0.hidden")).write(["/.bough-1"])
    assert not list(tmp_path.iterdir())


def test_half_written_results_are_deleted_and_whole_ones_stay(tmp_path):
    for name in (".1-1-1-0.part", ".2-1-2-0.part", "1-1-1-0.pickle", "odd.part", ".hidden"):
        (tmp_path / name).write_bytes(b"x")
    os.utime(tmp_path / ".1-1-1-0.part", (1, 1))
    assert cleanup.clear_results(str(tmp_path), older_than=3600) == 1
    assert cleanup.clear_results(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == [".hidden", "1-1-1-0.pickle", "odd.part"]
    assert cleanup.clear_results(str(tmp_path / "not there")) == 0
