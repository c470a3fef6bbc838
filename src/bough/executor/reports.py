"""The executor's reports: numbered, kept until heard, written to a file when nobody hears them.

Rule: a report has one number and one encoding for ever, so that it can be sent again, or spilled, and
whoever reads it twice sees that it is the same.
"""

from __future__ import annotations

import os
from collections import deque

from msgspec.structs import replace

from bough.model.facts import ElementFailed, SpanEnded, SpanReturned, SpanStarted
from bough.model.outcomes import Cause, Failure, ResultFile
from bough.wire.framing import frame
from bough.wire.messages import Report

News = SpanStarted | SpanEnded | ElementFailed | SpanReturned


MOST_INLINE = 64 << 20  # bytes of a result that is sent to a server that cannot read it as a file


def inlined(news: SpanEnded | ElementFailed) -> SpanEnded | ElementFailed:
    """The same with the result itself instead of a file that holds it; a failure when it cannot be sent."""
    results = news.results if isinstance(news, SpanEnded) else None
    if not isinstance(news, SpanEnded) or not isinstance(results, ResultFile):
        return news
    try:
        if results.size > MOST_INLINE:
            raise OSError(0, f"at most {MOST_INLINE >> 20} MB can be sent; let the task write a file")
        with open(results.path, "rb") as file:
            data = file.read()
        os.unlink(results.path)
    except OSError as error:
        text = f"the result of {results.size} bytes cannot be sent: {error.strerror}"
        detail = news.details[0] if news.details else None
        return ElementFailed(news.span, news.start, Failure(Cause.UNSENDABLE, text), detail)
    return replace(news, results=data)


class Reports:
    """News on their way to the server."""

    def __init__(self) -> None:
        self._news: list[News] = []
        self._number = 0
        self._kept: deque[tuple[int, bytearray]] = deque()

    def add(self, news: News) -> None:
        """Say this with the next report."""
        self._news.append(news)

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
