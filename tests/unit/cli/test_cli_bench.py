"""`bough bench`: one cheap measurement, the list, mistakes, progress."""

from __future__ import annotations

import io
import json

import pytest

from bough.bench.timing import BenchRow
from bough.cli.commands.bench import BenchProgress, said
from bough.cli.main import main


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROW = BenchRow("map", "400/s", "pool", "100/s", 4.0)
LIMIT = BenchRow("limit: fsync", "", "this machine", "4,000/s", None)


def test_a_cheap_measurement_as_json(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    assert main(["bench", "--quick", "--only", "store", "--json", "--folder", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [row["subject"] for row in found["rows"]] == ["store: turns appended"]
    assert found["rows"][0]["ratio"] > 0
    assert err == ""
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_measured_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list", "--json"]) == 0
    assert {"name": "map", "what": "one array of 100,000 functions"} in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "mop"], "there is no measurement 'mop'"),
        (["--only", ","], "--only names nothing"),
        (["--quick", "--full"], "not allowed with"),
    ],
)
def test_mistakes_are_the_users(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_row_is_told_in_a_line() -> None:
    assert said(ROW) == "  map: 400/s, pool: 100/s (4.00)"
    assert said(LIMIT) == "  limit: fsync: 4,000/s"


def test_progress_is_lines_in_a_log_and_one_that_changes_on_a_terminal() -> None:
    log, terminal = io.StringIO(), _Terminal()
    for stream in (log, terminal):
        progress = BenchProgress(2, stream)
        progress(1, "map", None)
        progress(1, "map", ROW)
        progress.end()
    assert log.getvalue() == "[1/2] map\n  map: 400/s, pool: 100/s (4.00)\n"
    assert terminal.getvalue().endswith("[1/2] map ...\r\x1b[K")
    BenchProgress(1, None)(1, "map", ROW)
