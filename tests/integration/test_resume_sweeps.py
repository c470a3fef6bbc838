"""Sweeps that build on each other element by element, run again after something changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import bough

LENGTHS = (1, 2, 3)


def run(folder: Path) -> list[str]:
    """Run two sweeps, the second reading what the first wrote; return which of their commands really ran."""
    log = folder / "log.txt"
    log.write_text("")
    with bough.Session(name="sweeps") as s:
        first = s.sweep("echo a{i} >> log.txt; echo {i} > {o:w}", bough.product(i=LENGTHS), o="a{i}.txt")
        second = s.sweep(
            "echo b{i} >> log.txt; cat {x:r} > {o:w}", bough.product(i=LENGTHS), x="a{i}.txt", o="b{i}.txt"
        )
        third = s.sweep("echo c{i} >> log.txt; true", bough.product(i=LENGTHS), after=[second])
        for array in (first, second, third):
            array.wait_all()
            assert [task.result().returncode for task in array] == [0, 0, 0]
    return sorted(log.read_text().split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_element_runs_again_when_what_it_reads_was_made_again(folder: Path) -> None:
    assert run(folder) == ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"]
    assert run(folder) == []
    os.remove("a2.txt")
    assert run(folder) == ["a2", "b2", "c1", "c2", "c3"]
    assert run(folder) == []
    assert (folder / "b2.txt").read_text() == "2\n"
