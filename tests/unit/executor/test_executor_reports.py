from __future__ import annotations

import os
from pathlib import Path

from bough.executor.reports import Reports
from bough.model.facts import SpanReturned
from bough.model.ids import SpanId
from bough.wire.framing import server_frames
from bough.wire.work import Report


def news(span: int) -> SpanReturned:
    return SpanReturned(SpanId(span), 0, 1)


def test_reports_are_numbered_and_kept_until_heard() -> None:
    reports = Reports()
    assert reports.cut() is None
    for span in (1, 2, 3):
        reports.add(news(span))
        reports.cut()
    reports.heard(2)
    (left,) = reports.unheard()
    assert server_frames().feed(left) == [Report(3, [news(3)])]
    reports.heard(3)
    assert reports.unheard() == []


def test_what_was_not_heard_is_spilled_with_the_last_news(tmp_path: Path) -> None:
    reports = Reports()
    reports.add(news(1))
    reports.cut()
    reports.add(news(2))
    path = reports.spill(str(tmp_path / "spill"), 4)
    assert os.listdir(tmp_path / "spill") == ["4.spill"]
    assert server_frames().feed(Path(path).read_bytes()) == [Report(1, [news(1)]), Report(2, [news(2)])]


def test_nothing_is_spilled_when_all_was_heard(tmp_path: Path) -> None:
    reports = Reports()
    reports.add(news(1))
    reports.cut()
    reports.heard(1)
    assert reports.spill(str(tmp_path / "spill"), 4) == ""
    assert not (tmp_path / "spill").exists()
