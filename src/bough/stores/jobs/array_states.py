"""One array while facts about it are folded: a byte per element, and rows for elements with values of their own.

An array that still grows, or is very long, keeps its states in a `StateWindow`. The translation tables below say how a
fact changes the states of a slice. Rule: the columns `done`, `failed`, `skipped` and `cancelled` always equal the
numbers of those bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from bough.model.arrays.ranges import runs_of
from bough.model.states import (
    BLOCK,
    ENDED,
    LABELS,
    OCCUPYING,
    OPEN,
    PENDING,
    UNSUCCESSFUL,
    StateWindow,
    TaskState,
    as_bytes,
)
from bough.stores.jobs.rows import ENDED_LABELS, ElementRow, SpanRow, TaskRow

SPAN_STATES: Final = tuple(state.name.lower() for state in TaskState)  # as the column `state` of spans holds them
CODES: Final = {word: code for code, word in enumerate(SPAN_STATES)}
# states kept as ranges; ready ones only of an array that waited, since the elements of others begin so
RANGED: Final = (TaskState.READY, TaskState.HELD, TaskState.SKIPPED, TaskState.CANCELLED)


def moves(to: TaskState, since: Iterable[TaskState] = tuple(TaskState)) -> bytes:
    """A translation table that brings elements in the states `since` to another, and leaves the rest."""
    table = bytearray(range(256))
    for state in since:
        table[state] = to
    return bytes(table)


PLACE: Final = moves(TaskState.PLACED)
START: Final = moves(TaskState.RUNNING)
SUCCEED: Final = moves(TaskState.DONE)
FAIL: Final = moves(TaskState.FAILED)
WAIT: Final = moves(TaskState.WAITING)
FREE: Final = moves(TaskState.READY, {TaskState.WAITING})
GIVE_BACK: Final = moves(TaskState.READY, OCCUPYING)
SKIP: Final = moves(TaskState.SKIPPED, OPEN)
CANCEL: Final = moves(TaskState.CANCELLED, OPEN)
HOLD: Final = moves(TaskState.HELD, PENDING)
RELEASE: Final = {first: moves(first, {TaskState.HELD}) for first in (TaskState.WAITING, TaskState.READY)}
REVIVE: Final = {first: moves(first, UNSUCCESSFUL) for first in (TaskState.WAITING, TaskState.READY)}
RESET: Final = {first: moves(first) for first in (TaskState.WAITING, TaskState.READY)}

_OCCUPIED: Final = re.compile(b"|".join(re.escape(bytes((code,))) + b"+" for code in as_bytes(OCCUPYING)))
_OUT: Final = as_bytes(OCCUPYING)
_READY: Final = as_bytes((TaskState.READY,))
_BIG: Final = 1 << 20  # elements


class FoldedArray:
    """An array's row, the states of its elements, and the rows of some of them."""

    __slots__ = ("counts", "dirty", "ranges", "ranges_changed", "row", "starts", "states", "unsuccessful")

    def __init__(self, row: TaskRow, rows: Iterable[SpanRow] = (), elements: Iterable[ElementRow] = ()) -> None:
        self.row = row
        self.states: bytearray | StateWindow = StateWindow() if row.is_open or row.length > _BIG else bytearray()
        self.unsuccessful: dict[int, ElementRow] = {}  # rows of elements that have not succeeded
        self.dirty: set[int] = set()  # those of them to be written
        self.ranges: list[SpanRow] = []  # of elements in the states `RANGED`, sorted, without overlap
        self.starts: list[int] = []
        self.ranges_changed = False
        for span in rows:
            self._reach(span.stop)
            self.states[span.start : span.stop] = bytes([CODES[span.state]]) * (span.stop - span.start)
            if CODES[span.state] in RANGED:
                self.ranges.append(span)
                self.starts.append(span.start)
        self._reach(row.length)
        for element in elements:
            code = CODES[element.state]
            if code != TaskState.READY or self.states[element.idx] not in _OUT:  # people see "ready" for placed ones
                self.states[element.idx : element.idx + 1] = bytes([code])
            self.unsuccessful[element.idx] = element
        self.counts = [self.states.count(code) for code in range(len(LABELS))]

    @property
    def first(self) -> TaskState:
        """The state elements begin in, as far as the facts say."""
        return TaskState.WAITING if self.row.waits else TaskState.READY

    def grow(self, length: int) -> None:
        """Add the elements of new pages."""
        more = length - len(self.states)
        if more > 0:
            self._reach(length)
            self.counts[self.first] += more
            self.row.length = length

    def _reach(self, length: int) -> None:
        """Extend the states to a length, a block at a time, so that a window can leave old elements behind."""
        states = self.states
        while (more := length - len(states)) > 0:
            if isinstance(states, StateWindow):
                states.advance()
                more = min(more, BLOCK)
            states.extend(bytes([self.first]) * more)

    def move(self, start: int, stop: int, table: bytes) -> list[tuple[int, int]]:
        """Change states of a slice; the ranges that changed."""
        states = self.states
        if isinstance(states, StateWindow) and start < states.first_kept and table[TaskState.DONE] == TaskState.DONE:
            older = states.exceptions_in(start, min(stop, states.first_kept))
            changed = [piece for index in older for piece in self._move(index, index + 1, table)]
            return changed + (self._move(states.first_kept, stop, table) if stop > states.first_kept else [])
        return self._move(start, stop, table)

    def _move(self, start: int, stop: int, table: bytes) -> list[tuple[int, int]]:
        old = self.states[start:stop]
        new = old.translate(table)
        if old == new:
            return []
        self.states[start:stop] = new
        for code in range(len(LABELS)):
            self.counts[code] += new.count(code) - old.count(code)
        for index in self.rows_in(start, stop):
            self.dirty.add(index)
        changed = list(_differences(old, new, start))
        if self.ranges:
            for low, high in changed:
                self._carve(low, high)
        if self.first == TaskState.WAITING and TaskState.READY in new:
            for low, high in changed:
                for first, last in runs_of(new, _READY, low - start, high - start):
                    self.add_range(SpanRow(self.row.id, start + first, start + last, "ready"))
        return changed

    def rows_in(self, start: int, stop: int) -> list[int]:
        """Elements of a slice that have a row and have not succeeded."""
        if not self.unsuccessful:
            return []
        if stop - start <= len(self.unsuccessful):
            return [index for index in range(start, stop) if index in self.unsuccessful]
        return [index for index in self.unsuccessful if start <= index < stop]

    def element(self, index: int) -> ElementRow:
        """The row of an element, made when it has none; it will be written."""
        self.dirty.add(index)
        if index not in self.unsuccessful:
            self.unsuccessful[index] = ElementRow(self.row.id, index)
        return self.unsuccessful[index]

    def add_range(self, row: SpanRow) -> None:
        """Add a range of elements in one of the states `RANGED`."""
        at = bisect_right(self.starts, row.start)
        self.ranges_changed = True
        if at and (before := self.ranges[at - 1]).stop == row.start and _alike(before, row):
            before.stop = row.stop
            return
        self.ranges.insert(at, row)
        self.starts.insert(at, row.start)

    def open_pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, str]]:
        """The placed and running pieces of a slice."""
        states = self.states[start:stop]
        for found in _OCCUPIED.finditer(states):
            yield start + found.start(), start + found.end(), SPAN_STATES[states[found.start()]]

    def update_row(self) -> None:
        """Bring the row's counts and state up to date."""
        row, counts = self.row, self.counts
        row.done, row.failed = counts[TaskState.DONE], counts[TaskState.FAILED]
        row.skipped, row.cancelled = counts[TaskState.SKIPPED], counts[TaskState.CANCELLED]
        row.state = self._state().label
        if row.state not in ENDED_LABELS:
            row.ended = None

    def _state(self) -> TaskState:
        counts = self.counts
        if counts[TaskState.PLACED] or counts[TaskState.RUNNING]:
            return TaskState.RUNNING
        if not self.row.is_open and sum(counts[state] for state in ENDED) == len(self.states):
            for state in (TaskState.FAILED, TaskState.SKIPPED, TaskState.CANCELLED):
                if counts[state]:
                    return state
            return TaskState.DONE
        if counts[TaskState.HELD] and not counts[TaskState.WAITING] and not counts[TaskState.READY]:
            return TaskState.HELD
        return TaskState.READY if counts[TaskState.READY] else TaskState.WAITING

    def _carve(self, start: int, stop: int) -> None:
        """Cut a slice out of the ranges."""
        low = bisect_right(self.starts, start) - 1
        if low < 0 or self.ranges[low].stop <= start:
            low += 1
        high = low
        kept: list[SpanRow] = []
        while high < len(self.ranges) and self.ranges[high].start < stop:
            row = self.ranges[high]
            if row.start < start:
                kept.append(_cut(row, row.start, start))
            if row.stop > stop:
                kept.append(_cut(row, stop, row.stop))
            high += 1
        if high > low:
            self.ranges[low:high] = kept
            self.starts[low:high] = [row.start for row in kept]
            self.ranges_changed = True


def _cut(row: SpanRow, start: int, stop: int) -> SpanRow:
    return SpanRow(row.id, start, stop, row.state, ended=row.ended, cause=row.cause, message=row.message)


def _alike(one: SpanRow, other: SpanRow) -> bool:
    return (one.state, one.cause, one.message, one.ended) == (other.state, other.cause, other.message, other.ended)


def _differences(old: bytearray, new: bytearray, offset: int) -> Iterator[tuple[int, int]]:
    """The ranges in which two strings of one length differ."""
    if len(old) == 1 or (old[0] != new[0] and old.count(old[0]) == len(old)):
        yield offset, offset + len(old)
        return
    begun = -1
    for at, (one, other) in enumerate(zip(old, new, strict=True)):
        if one != other:
            if begun < 0:
                begun = at
        elif begun >= 0:
            yield offset + begun, offset + at
            begun = -1
    if begun >= 0:
        yield offset + begun, offset + len(old)
