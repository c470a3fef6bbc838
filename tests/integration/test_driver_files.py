"""Jobs that declare their files, on this machine: order by data, nothing half-written, codes of their own.

Where nothing is shared: `test_far_files.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bough
from bough import driver


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[driver.Driver]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    with bough.Session(cores=2) as session, driver.Driver(session) as one:
        yield one


def test_bundles_of_jobs_read_and_write_their_own_files(made: driver.Driver, tmp_path: Path) -> None:
    made.set_group("twice", 4, timeout=600)
    for number in range(10):
        (tmp_path / f"in{number}").write_text(f"{number}\n")
        out = f"out/{number}.txt"
        command = f"cat in{number} in{number} > {out}; echo {number}"
        made.exec_async(command, group="twice", inputs=f"in{number}", outputs=out)
    assert made.wait_all() == [0] * 10
    assert made.submissions == 3
    assert made.result(8).stdout == "7\n"
    assert (tmp_path / "out/7.txt").read_text() == "7\n7\n"


def test_a_job_waits_for_those_that_make_its_inputs(made: driver.Driver, tmp_path: Path) -> None:
    made.set_group("g", 100, timeout=600)
    for number in range(4):
        made.exec_async(f"sleep 0.1; echo {3 - number} > part{number}", group="g", outputs=f"part{number}")
    parts = [f"part{number}" for number in range(4)]
    made.exec_async(["sort", *parts, "--output=all"], group="g", inputs=parts, outputs="all")
    made.exec_async("grep 2 all", inputs="all")
    assert made.wait_all() == [0] * 6
    assert (tmp_path / "all").read_text() == "0\n1\n2\n3\n"


def test_a_failed_job_leaves_no_output_and_what_reads_it_is_not_run(made: driver.Driver, tmp_path: Path) -> None:
    made.exec_async("echo half > x; exit 9", outputs="x")
    made.exec_async(["cat", "x"], inputs="x")
    made.exec_async(["true", "y"], outputs="y")
    assert made.wait_all() == [9, driver.NOT_RUN, driver.NO_OUTPUT]
    assert not list(tmp_path.glob("*x*"))


def test_an_output_that_is_there_is_replaced(made: driver.Driver, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old\n")
    assert made.exec_sync("echo new > old", outputs="old") == 0
    assert (tmp_path / "old").read_text() == "new\n"


def test_an_input_beside_the_command_keeps_exit_code_and_signal(made: driver.Driver, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("x\n")
    made.exec_async("cat config; exit 5", inputs=["config", __file__])
    made.exec_async(["sh", "-c", "kill -USR1 $$"], inputs="config")
    assert made.wait_all() == [5, -10]
    assert made.result(1).stdout == "x\n"
