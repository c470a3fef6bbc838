"""What tasks wrote on machines whose files the server cannot read: short outputs come with their report and stay here.

Rule: an output that was kept here is named by its place here from then on, so that whoever reads it need not know
where its task ran, nor whether its executor is still there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from bough import private
from bough.model.facts import ElementFailed, SpanEnded, WorkNews
from bough.model.outcomes import Cause, Detail, Failure, ResultFile, Stream
from bough.model.sandboxes import is_tidy


def with_own_results(news: Sequence[WorkNews], folder: str) -> Sequence[WorkNews]:
    """The same news; a big result that is said to lie outside of our folder for them is none."""
    if any(_is_strange(fact, folder) for fact in news):
        return [_refused(fact) if _is_strange(fact, folder) else fact for fact in news]
    return news


def _is_strange(fact: WorkNews, folder: str) -> bool:
    if type(fact) is not SpanEnded or type(fact.results) is not ResultFile:
        return False
    return not fact.results.path.startswith(f"{folder}/") or not is_tidy(fact.results.path)


def _refused(fact: WorkNews) -> WorkNews:
    assert isinstance(fact, SpanEnded)
    return ElementFailed(fact.span, fact.start, Failure(Cause.UNSENDABLE, "its result is not where results are kept"))


class FarStreams:
    """Two append-only files for every executor."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def kept(self, executor: int, news: Sequence[WorkNews]) -> list[WorkNews]:
        """The same news, with what was written kept here."""
        return [self._kept(executor, fact) for fact in news]

    def _kept(self, executor: int, fact: WorkNews) -> WorkNews:
        if isinstance(fact, SpanEnded) and fact.details:
            return replace(fact, details=tuple(self._detail(executor, detail) for detail in fact.details))
        if isinstance(fact, ElementFailed) and fact.detail is not None:
            return replace(fact, detail=self._detail(executor, fact.detail))
        return fact

    def _detail(self, executor: int, detail: Detail) -> Detail:
        if not (detail.stdout and detail.stdout.data) and not (detail.stderr and detail.stderr.data):
            return detail
        stdout, stderr = self._stream(executor, "out", detail.stdout), self._stream(executor, "err", detail.stderr)
        return replace(detail, stdout=stdout, stderr=stderr)

    def _stream(self, executor: int, suffix: str, stream: Stream | None) -> Stream | None:
        if stream is None or not stream.data:
            return stream
        path = f"{self._folder}/x{executor}-far.{suffix}"
        offset = 0
        try:
            descriptor = private.opener(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                offset = os.lseek(descriptor, 0, os.SEEK_END)
                written = os.write(descriptor, stream.data)
            finally:
                os.close(descriptor)
        except OSError:
            written = 0
        if written < len(stream.data):  # the disk is full: it can still be asked for where it is
            return replace(stream, data=b"")
        return Stream(path, offset, written)
