"""`bough log -f` passes on all that a task wrote, whenever between two questions it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from bough.cli.targets import follow_output
from bough.cli.targets.follow_output import OutputFollower
from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.locate import ServiceAddress
from bough.cli.targets.selection import Selected
from bough.cli.targets.task_rows import Fields
from bough.wire.questions import Output, OutputReply

WRITTEN = b"begin\nend\n"


class EndingDatabase:
    """A service with one task, which ends after it was asked so many questions."""

    place = ServiceAddress("")
    live = True

    def __init__(self, questions: int) -> None:
        self.server = self
        self._left = questions

    def refresh(self) -> None:
        """Every question finds what is so now."""

    def _runs(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def rows(self, statement: str, _: Sequence[object] = ()) -> list[Fields]:
        """Answer for the tables of tasks and attempts."""
        runs = self._runs()
        if "from attempts" in statement:
            return [{"name": "", "attempt": 1}] if runs else []
        row: Fields = {"id": 1, "name": "", "path": "", "kind": "command", "run": 1, "executor": 1, "attempt": 1}
        row |= {"state": "running" if runs else "failed", "stderr_path": None, "stderr_offset": 0, "stderr_length": 0}
        return [row | {"stdout_path": None if runs else "x", "stdout_offset": 0, "stdout_length": len(WRITTEN)}]

    def ask(self, asked: Output) -> OutputReply:
        """What the executor says while the task runs, and the place where its output is kept afterwards."""
        if asked.path:
            return OutputReply(WRITTEN[asked.offset : asked.offset + asked.length])
        if self._runs():
            return OutputReply(WRITTEN[:6][asked.offset :], more=True)
        return OutputReply(b"", error="its executor does not have it any more")


@pytest.mark.parametrize("questions", range(12))
def test_what_a_task_wrote_last_is_passed_on(questions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_output, "_PAUSE", 0.0)
    told: list[bytes] = []

    def write(stream: str, data: bytes, *, ends: bool = False) -> None:
        assert stream == "stdout"
        told.append(data)

    database = cast(OpenDatabase, EndingDatabase(questions))
    whole = Selected(1, 0, 0, is_array=False, whole=True)
    assert not OutputFollower(database, [whole], ["stdout"], write).follow()
    assert b"".join(told) == WRITTEN
