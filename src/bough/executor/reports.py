"""The executor's reports: with what the server cannot read here, and written to a file when the server is away.

Rule: what is spilled is what would have been sent, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec.structs import replace

from bough import private
from bough.model.events.news import WorkFailed, WorkStopped, WorkSucceeded
from bough.model.outcomes import Cause, Detail, Failure, ResultFile, Stream
from bough.wire import framing
from bough.wire.framing import News

MOST_WRITTEN = 64 << 10  # bytes that a task wrote to a stream that are sent with its report
MOST_TOGETHER = 4 << 20  # bytes of all that the tasks of one piece of news wrote that are
# bytes of a result that goes with its report to a server that cannot read it as a file; bigger ones are contents
MOST_INLINE = 1 << 20


def inlined(news: WorkSucceeded, results: ResultFile) -> WorkSucceeded | WorkFailed:
    """The same with the result itself instead of a file that holds it; a failure when that cannot be read."""
    try:
        with open(results.path, "rb") as file:
            data = file.read()
        os.unlink(results.path)
    except OSError as error:
        text = f"the result of {results.size} bytes cannot be sent: {error.strerror}"
        detail = news.details[0] if news.details else None
        return WorkFailed(news.span, news.start, Failure(Cause.EXCEPTION, text, site=True), detail)
    return replace(news, results=data)


def are_long(*streams: Stream | None) -> bool:
    """Whether one of them is too long to be sent with its report."""
    return any(stream is not None and stream.length > MOST_WRITTEN for stream in streams)


def with_streams(news: News) -> News:
    """The same with what short outputs hold."""
    if isinstance(news, WorkSucceeded) and news.details:
        room = MOST_TOGETHER
        details = []
        for detail in news.details:
            found = _with_data(detail) if room > 0 else detail
            room -= sum(len(stream.data) for stream in (found.stdout, found.stderr) if stream is not None)
            details.append(found)
        return replace(news, details=tuple(details))
    if isinstance(news, WorkFailed | WorkStopped) and news.detail is not None:
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


class Reports(framing.KeptReports):
    """News on their way to the server."""

    def __init__(self) -> None:
        super().__init__()
        self.before_end: Callable[[News], None] | None = None  # what a task reported itself is told before its end
        self.excuse: Callable[[News], News] | None = None  # what is not the task's own doing
        self.is_far = False  # the server cannot read what tasks wrote, unless it is sent

    def add(self, news: News) -> None:
        """Say this with the next report."""
        if self.excuse is not None:
            news = self.excuse(news)
        if self.before_end is not None:
            self.before_end(news)
        self._news.append(with_streams(news) if self.is_far else news)

    def spill(self, directory: str, executor: int) -> str:
        """Write what was not heard to the executor's file, all or nothing; return its path, empty if all was heard."""
        self.cut()
        if not self._kept:
            return ""
        private.make_folder(directory)
        path = os.path.join(directory, f"{executor}.spill")
        private.write_file(path, *self.unheard())
        return path
