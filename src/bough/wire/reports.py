"""Reports on their way to whoever gave the work: numbered, and kept until they are heard.

Rule: a report has one number and one encoding for ever, so that it can be sent again, and whoever reads it twice sees
that it is the same. News that are big together become several reports, each well below the frame of an executor.
"""

from __future__ import annotations

from collections import deque

from bough.model.facts import WorkNews
from bough.wire.framing import frame
from bough.wire.work import Report

News = WorkNews
MOST = 1 << 24  # bytes of a report of more than one piece of news; none is bigger than that by itself (see `executor`)


class Reports:
    """See the module."""

    def __init__(self) -> None:
        self._news: list[News] = []
        self._number = 0
        self._kept: deque[tuple[int, bytearray]] = deque()

    def add(self, news: News) -> None:
        """Say this with the next report."""
        self._news.append(news)

    def cut(self) -> bytearray | None:
        """Number what was added since the last time and return its frames; None if there is nothing."""
        if not self._news:
            return None
        news, self._news = self._news, []
        return self._frame(news)

    def _frame(self, news: list[News]) -> bytearray:
        data = frame(Report(self._number + 1, news))
        if len(data) > MOST and len(news) > 1:
            middle = len(news) // 2
            return self._frame(news[:middle]) + self._frame(news[middle:])
        self._number += 1
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
