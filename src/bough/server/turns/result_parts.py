"""Values of finished tasks for those that want them: recent ones in memory, older ones from the store.

Results are pickled lists, one value per element of a span, and opaque here: nothing is ever unpickled
by a server. A part of a list is named by wrapping its bytes in a pickle that takes the slice when it
is loaded. Rule: at most `limit` bytes are kept, the least recently used go first.
"""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable

from bough import private
from bough.errors import StoreFailed
from bough.model.arrays.result_lists import HEAD, cut, tail
from bough.model.events.facts import SpanEnded
from bough.model.ids import RecordId, number_of
from bough.model.outcomes import ResultFile, Results

LIMIT = 64 << 20
_OVERHEAD = 600  # bytes an entry costs besides its results

Pages = list[tuple[int, int, bytes | ResultFile]]
Reader = Callable[[int, RecordId, int], SpanEnded | None]


def cut_file(source: ResultFile, skip: int, count: int) -> ResultFile:
    """The same for results that lie in a file: a new file beside it, made once."""
    path = f"{source.path}.{skip}-{skip + count}"
    if not os.path.exists(path):
        hidden = f"{path}.{os.getpid()}"
        with open(source.path, "rb") as old, open(hidden, "wb", opener=private.opener) as new:
            new.write(HEAD)
            left = source.size - 1
            while left > 0 and (block := old.read(min(left, 1 << 20))):
                new.write(block)
                left -= len(block)
            new.write(tail(skip, count))
        os.replace(hidden, path)
    return ResultFile(path, os.path.getsize(path))


def part(span: SpanEnded, start: int, stop: int) -> Results:
    """The results of the elements [start, stop) of a success that covers them."""
    whole = span.results
    if whole is None or (start == span.start and stop == span.stop):
        return whole
    if isinstance(whole, ResultFile):
        return cut_file(whole, start - span.start, stop - start)
    return cut(whole, start - span.start, stop - start)


class ResultCache:
    """See the module."""

    def __init__(self, read: Reader, limit: int = LIMIT) -> None:
        self._read = read
        self._limit = limit
        self._size = 0
        self._spans: OrderedDict[tuple[RecordId, int], SpanEnded] = OrderedDict()
        self._starts: dict[RecordId, list[int]] = {}

    def remember(self, span: SpanEnded) -> None:
        """Keep a success that has just been written."""
        place = (span.record, span.start)
        size = _size(span)
        if size > self._limit or place in self._spans:
            return
        self._spans[place] = span
        starts = self._starts.get(span.record)
        if starts is None:
            self._starts[span.record] = [span.start]
        else:
            insort(starts, span.start)
        self._size += size
        while self._size > self._limit:
            self._forget_oldest()

    def forget(self, record: RecordId, start: int, stop: int) -> None:
        """Successes of elements that were reset are not to be found any more."""
        for first in list(self._starts.get(record, ())):
            if first < stop and start < self._spans[record, first].stop:
                self._drop(record, first)

    def forget_all(self, records: Iterable[int]) -> None:
        """These will not be asked for soon: their workflow has finished."""
        for record in records:
            for first in list(self._starts.get(RecordId(record), ())):
                self._drop(RecordId(record), first)

    def find(self, turn: int, record: RecordId, index: int, *, again: bool = True) -> SpanEnded:
        """The success that covers an element; StoreFailed when the journal does not have it.

        `again`: it may be asked for again. Turn 0: the store finds out which one it is.
        """
        starts = self._starts.get(record)
        if starts:
            at = bisect_right(starts, index) - 1
            if at >= 0:
                place = (record, starts[at])
                span = self._spans[place]
                if index < span.stop:
                    self._spans.move_to_end(place)
                    return span
        found = self._read(turn, record, index)
        if found is None:
            raise StoreFailed(f"the result of task {number_of(record)}.{index} is not in turn {turn} of the journal")
        if again:
            self.remember(found)
        return found

    def successes(
        self, turn: int, record: RecordId, start: int, stop: int, *, again: bool = True
    ) -> list[tuple[int, int, SpanEnded]]:
        """The successes that together cover the elements [start, stop) of a record, each with its part of them."""
        found = []
        while start < stop:
            span = self.find(turn, record, start, again=again)
            end = min(span.stop, stop)
            found.append((start, end, span))
            start = end
        return found

    def _forget_oldest(self) -> None:
        self._drop(*next(iter(self._spans)))

    def _drop(self, record: RecordId, start: int) -> None:
        self._size -= _size(self._spans.pop((record, start)))
        starts = self._starts[record]
        del starts[bisect_right(starts, start) - 1]
        if not starts:
            del self._starts[record]


def _size(span: SpanEnded) -> int:
    return _OVERHEAD + (len(span.results) if isinstance(span.results, bytes) else 0) + 200 * len(span.details)
