"""The executor's reports: numbered, kept until heard, written to a file when nobody hears them.

Rule: a report has one number and one encoding for ever, so that it can be sent again, or spilled, and
whoever reads it twice sees that it is the same.
"""

from __future__ import annotations

import os
from collections import deque

from msgspec.structs import replace

from bough.model.facts import ElementFailed, SpanEnded, SpanReturned, SpanStarted
from bough.model.outcomes import Cause, Detail, Failure, ResultFile, Stream
from bough.wire.framing import frame
from bough.wire.work import Report

News = SpanStarted | SpanEnded | ElementFailed | SpanReturned


MOST_WRITTEN = 64 << 10  # bytes that a task wrote to a stream that are sent with its report
MOST_INLINE = 64 << 20  # bytes of a result that goes with its report to a server that cannot read it as a file


def inlined(news: SpanEnded, results: ResultFile) -> SpanEnded | ElementFailed:
    """The same with the result itself instead of a file that holds it; a failure when that cannot be read."""
    try:
        with open(results.path, "rb") as file:
            data = file.read()
        os.unlink(results.path)
    except OSError as error:
        text = f"the result of {results.size} bytes cannot be sent: {error.strerror}"
        detail = news.details[0] if news.details else None
        return ElementFailed(news.span, news.start, Failure(Cause.UNSENDABLE, text), detail)
    return replace(news, results=data)


def with_streams(news: News) -> News:
    """The same with what short outputs hold."""
    if isinstance(news, SpanEnded) and news.details:
        return replace(news, details=tuple(map(_with_data, news.details)))
    if isinstance(news, ElementFailed) and news.detail is not None:
        return replace(news, detail=_with_data(news.detail))
    return news


def _with_data(detail: Detail) -> Detail:
    return replace(detail, stdout=_read(detail.stdout), stderr=_read(detail.stderr))


def _read(stream: Stream | None) -> Stream | None:
    if stream is None or stream.length > MOST_WRITTEN:
        return stream
    try:
        with open(stream.path, "rb") as file:
            return replace(stream, data=os.pread(file.fileno(), stream.length, stream.offset))
    except OSError:
        return stream


class Reports:
    """News on their way to the server."""

    def __init__(self) -> None:
        self._news: list[News] = []
        self._number = 0
        self.is_far = False  # the server cannot read what tasks wrote, unless it is sent
        self._kept: deque[tuple[int, bytearray]] = deque()

    def add(self, news: News) -> None:
        """Say this with the next report."""
        self._news.append(with_streams(news) if self.is_far else news)

    def cut(self) -> bytearray | None:
        """Number what was added since the last time and return its frame; None if there is nothing."""
        if not self._news:
            return None
        self._number += 1
        data = frame(Report(self._number, self._news))
        self._news = []
        self._kept.append((self._number, data))
        return data

    def heard(self, number: int) -> None:
        """Forget reports up to this number."""
        kept = self._kept
        while kept and kept[0][0] <= number:
            kept.popleft()

    def unheard(self) -> list[bytearray]:
        """Frames of the reports nobody has acknowledged, in order."""
        return [data for _, data in self._kept]

    def spill(self, directory: str, executor: int) -> str:
        """Write what was not heard to the executor's file, all or nothing; return its path, empty if all was heard."""
        self.cut()
        if not self._kept:
            return ""
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, f"{executor}.spill")
        hidden = os.path.join(directory, f".{executor}.spill.part")
        with open(hidden, "wb") as file:
            file.writelines(self.unheard())
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
        return path
