"""A jobs database made by hand, and ways to call commands in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_workshop import Workshop

from bough.cli.main import main


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    return Workshop(tmp_path)


@pytest.fixture
def filled(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """One run with a done, a failed and a not run task, and an array of ten in the group align/sub.

    The rows are written by hand, so nothing is there to be folded from the journal.
    """
    monkeypatch.setattr("bough.cli.targets.jobs_database.catch_up", lambda place: False)
    folder = workshop.store()
    insert, task = workshop.insert, workshop.task
    insert("runs", run=1, name="wf", host="here", pid=1, opened=100.0, closed=103.5, reason="done", policy="fifo")
    insert("groups", id=0, run=1, parent=0, name="", path="")
    insert("groups", id=1, run=1, parent=0, name="align", path="align")
    insert("groups", id=2, run=1, parent=1, name="sub", path="align/sub")
    (folder / "out").mkdir()
    (folder / "out" / "1.out").write_bytes(b"before|one\ntwo\nthree\n|after")
    (folder / "out" / "1.err").write_bytes(b"warning\n")
    streams = {"stdout_path": "out/1.out", "stdout_offset": 7, "stdout_length": 14}
    task(1, "done", name="first", seconds=0.5, host="here", exit_code=0, **streams)
    task(2, "failed", name="second", cause="exit", message="exit code 3", exit_code=3, host="here", grp=1)
    insert("after", id=3, on_kind="task", on_id=2, on_idx=0, idx=-1)
    task(3, "skipped", name="third", cause="dependency", message="task 2 (second) failed", grp=1, waits=1)
    counts = {"done": 4, "failed": 2, "skipped": 0, "cancelled": 1}
    task(4, "running", name="many", grp=2, length=10, is_array=1, command="count {n}", **counts)
    for start, stop, state in [(0, 4, "done"), (6, 8, "running"), (9, 10, "cancelled")]:
        insert("spans", id=4, start=start, stop=stop, state=state)
    errors = {"stderr_path": "out/1.err", "stderr_offset": 0, "stderr_length": 8}
    insert("elements", id=4, idx=1, state="done", attempt=1, host="here", exit_code=0, reused=0, **streams)
    insert(
        "elements", id=4, idx=4, state="failed", attempt=2, host="here", exit_code=7, message="exit code 7", **errors
    )
    insert("elements", id=4, idx=5, state="failed", attempt=2, host="here", signal=11, cause="signal", message="")
    return workshop


@pytest.fixture
def bough(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call the command line: exit code, stdout, stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capfd.readouterr()
        return code, said.out, said.err

    return call
