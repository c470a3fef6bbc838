from __future__ import annotations

import os
from pathlib import Path

from bough.executor.reports import MOST_TOGETHER, MOST_WRITTEN, Reports
from bough.executor.worker.worker_channel import SpanProgress, batch_ends
from bough.model.events.news import CallsEnded, WorkReturned, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.outcomes import Detail, Stream
from bough.wire.executor_messages import Report
from bough.wire.framing import MOST, Frames, server_frames
from bough.wire.handshake import ROLE_FRAME


def news(span: int) -> WorkReturned:
    return WorkReturned(SpanId(span), 0, 1)


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


# --- no report is bigger than what a server takes from an executor ---------------------------------------------


def test_news_that_are_big_together_become_several_reports() -> None:
    reports = Reports()
    said = [WorkSucceeded(SpanId(number), 0, 1, 0.0, bytes(MOST // 4)) for number in range(10)]
    for one in said:
        reports.add(one)
    data = reports.cut()
    assert data == b"".join(reports.unheard())
    assert max(map(len, reports.unheard())) <= MOST
    heard = Frames(Report, ROLE_FRAME["execute"]).feed(bytes(data or b""))
    assert [report.number for report in heard] == list(range(1, len(heard) + 1))
    assert [one for report in heard for one in report.news] == said
    assert len(heard) > 2
    reports.heard(2)
    assert len(reports.unheard()) == len(heard) - 2


def test_what_many_tasks_of_one_span_wrote_is_sent_along_only_as_far_as_it_is_short_together(tmp_path: Path) -> None:
    written = tmp_path / "out"
    written.write_bytes(bytes(MOST_WRITTEN))
    streams = [Detail(index, stdout=Stream(str(written), 0, MOST_WRITTEN)) for index in range(1000)]
    reports = Reports()
    reports.is_far = True
    reports.add(WorkSucceeded(SpanId(1), 0, 1000, 1.0, None, tuple(streams)))
    data = reports.cut()
    assert data is not None
    assert MOST_TOGETHER < len(data) < 2 * MOST_TOGETHER
    (report,) = server_frames().feed(data)
    (ended,) = report.news  # type: ignore[union-attr]
    assert len(ended.details) == 1000
    assert ended.details[0].stdout.data
    assert not ended.details[-1].stdout.data


def test_results_of_many_like_tasks_become_several_pieces_of_news() -> None:
    values: list[object] = [bytes(200_000) for _ in range(40)]
    news = batch_ends(SpanProgress(SpanId(7), 0, 40, "x", is_batch=True), 0, values, 0.5, [], "")
    assert [type(one) for one in news] == [CallsEnded] * len(news)
    assert len(news) > 3
    start = 0
    for one in news:
        assert isinstance(one, CallsEnded)
        assert (one.span, one.start, len(one.seconds)) == (7, start, len(one.results))
        assert sum(map(len, one.results)) < 2 << 20
        start += len(one.results)
    assert start == 40
