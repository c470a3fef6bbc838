"""The states of a task and their edges, once for all layers; the states of a growing array.

The states of a task and the edges between them; diagrams and tests are made from this table.

Rule: a retry is a new attempt, not a new state. States are small integers because arrays keep one
byte per task.

The states of an array that goes on growing: what lies behind is summed up, the rest has a byte each.

Elements below `base` succeeded, except for those in `odd`: failures, and the few that take longer than all others.
Rule: of every element it says what a bytearray would; moving the base changes what it costs, never what it says.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, overload

from bough.model.ranges import Ranges, runs_of


class TaskState(enum.IntEnum):
    """Where a task is in its life."""

    WAITING = 0  # some predecessor is not done, or a memo is being looked up, or a retry is not due
    HELD = 1  # could run, but somebody holds it
    READY = 2  # could run now, has no executor
    PLACED = 3  # given to an executor, not known to have started
    RUNNING = 4  # the executor said that it started
    DONE = 5
    FAILED = 6  # out of attempts
    SKIPPED = 7  # something it depends on did not succeed
    CANCELLED = 8

    @property
    def label(self) -> str:
        """The word people see."""
        return self.name.lower()


class Trigger(enum.StrEnum):
    """What moves a task from one state to another."""

    FREE = "free"
    HOLD = "hold"
    RELEASE = "release"
    PLACE = "place"
    START = "start"
    SUCCEED = "succeed"
    GIVE_BACK = "give back"
    RETRY_LATER = "retry later"
    FAIL = "fail"
    RECALL = "recall"
    TRAVEL = "travel"
    ABANDON = "abandon"
    CANCEL = "cancel"
    REVIVE = "revive"
    RESET = "reset"


_S, _T = TaskState, Trigger

EDGES: Final[Mapping[tuple[TaskState, Trigger], TaskState]] = {
    (_S.WAITING, _T.FREE): _S.READY,  # the last predecessor succeeded, the memo was not found, the retry is due
    (_S.WAITING, _T.RECALL): _S.DONE,  # an earlier run did it already
    (_S.WAITING, _T.TRAVEL): _S.PLACED,  # short, and sent along with the one task it waits for
    (_S.WAITING, _T.ABANDON): _S.SKIPPED,  # a predecessor did not succeed, or the run stops
    (_S.WAITING, _T.CANCEL): _S.CANCELLED,
    (_S.HELD, _T.RELEASE): _S.READY,  # nobody holds it any more
    (_S.HELD, _T.ABANDON): _S.SKIPPED,
    (_S.HELD, _T.CANCEL): _S.CANCELLED,
    (_S.READY, _T.HOLD): _S.HELD,  # somebody holds it, or did so before it became ready
    (_S.READY, _T.RECALL): _S.DONE,  # an executor that was given up came back with the result
    (_S.HELD, _T.RECALL): _S.DONE,
    (_S.READY, _T.PLACE): _S.PLACED,  # the policy chose an executor
    (_S.READY, _T.ABANDON): _S.SKIPPED,  # fail-fast, or the run stops
    (_S.READY, _T.CANCEL): _S.CANCELLED,
    (_S.PLACED, _T.START): _S.RUNNING,  # the executor confirmed
    (_S.PLACED, _T.SUCCEED): _S.DONE,  # so short that start and end came together
    (_S.PLACED, _T.GIVE_BACK): _S.READY,  # the executor was lost, or gave it back unstarted
    (_S.PLACED, _T.RETRY_LATER): _S.WAITING,  # failed, and will be tried again
    (_S.PLACED, _T.FAIL): _S.FAILED,
    (_S.PLACED, _T.CANCEL): _S.CANCELLED,
    (_S.RUNNING, _T.SUCCEED): _S.DONE,
    (_S.RUNNING, _T.GIVE_BACK): _S.READY,
    (_S.RUNNING, _T.RETRY_LATER): _S.WAITING,
    (_S.RUNNING, _T.FAIL): _S.FAILED,
    (_S.RUNNING, _T.CANCEL): _S.CANCELLED,
    (_S.FAILED, _T.REVIVE): _S.WAITING,  # somebody asked for another try
    (_S.SKIPPED, _T.REVIVE): _S.WAITING,
    (_S.CANCELLED, _T.REVIVE): _S.WAITING,
    (_S.DONE, _T.RESET): _S.WAITING,  # somebody wants it done again
    (_S.READY, _T.RESET): _S.WAITING,  # something it depends on is to be done again
    (_S.HELD, _T.RESET): _S.WAITING,
}

# Sets of states that every layer tells apart. Arrays keep a byte a task: `as_bytes` gives a set as they want it.
# The jobs database and the command line speak in labels: `labels_of` and `sql_list` give a set as they want it.
PENDING: Final = frozenset({_S.WAITING, _S.HELD, _S.READY})
OCCUPYING: Final = frozenset({_S.PLACED, _S.RUNNING})
OPEN: Final = PENDING | OCCUPYING
ENDED: Final = frozenset({_S.DONE, _S.FAILED, _S.SKIPPED, _S.CANCELLED})
UNSUCCESSFUL: Final = frozenset({_S.FAILED, _S.SKIPPED, _S.CANCELLED})
LABELS: Final = tuple(state.label for state in TaskState)  # by the number of the state


def as_bytes(states: Iterable[TaskState]) -> bytes:
    """A set of states as the bytes that arrays keep, in order."""
    return bytes(sorted(states))


def labels_of(states: Iterable[TaskState]) -> tuple[str, ...]:
    """A set of states in the words people see, in order."""
    return tuple(LABELS[state] for state in sorted(states))


def sql_list(states: Iterable[TaskState]) -> str:
    """A set of states for SQL: `state IN (...)`."""
    return ", ".join(f"'{label}'" for label in labels_of(states))


# The table once more, as the hot paths want it: which states may come right before a state, as bytes.
BEFORE: Final[tuple[bytes, ...]] = tuple(
    bytes(sorted({int(old) for (old, _), new in EDGES.items() if new == state})) for state in TaskState
)


_DONE = int(TaskState.DONE)
BLOCK = 1024  # elements that the base moves over at a time
FEW = 16  # of them may go on without holding up the base


class StateWindow:
    """See the module."""

    __slots__ = ("base", "odd", "tail")

    def __init__(self, base: int = 0, odd: dict[int, int] | None = None, tail: bytes = b"") -> None:
        self.base = base
        self.odd = {} if odd is None else odd  # states of elements below the base that have not succeeded
        self.tail = bytearray(tail)

    def __len__(self) -> int:
        return self.base + len(self.tail)

    @overload
    def __getitem__(self, where: int) -> int: ...
    @overload
    def __getitem__(self, where: slice) -> bytearray: ...
    def __getitem__(self, where: int | slice) -> int | bytearray:
        base = self.base
        if not isinstance(where, slice):
            return self.tail[where - base] if where >= base else self.odd.get(where, _DONE)
        start, stop, _ = where.indices(base + len(self.tail))
        if start >= base:
            return self.tail[start - base : stop - base]
        below = min(stop, base)
        found = bytearray((_DONE,)) * (below - start)
        for index in self.odd_in(start, below):
            found[index - start] = self.odd[index]
        if stop > base:
            found += self.tail[: stop - base]
        return found

    def __setitem__(self, where: slice, states: bytes | bytearray) -> None:
        base, odd = self.base, self.odd
        start, stop, _ = where.indices(base + len(self.tail))
        if start >= base:
            self.tail[start - base : stop - base] = states
            return
        below = min(stop, base)
        for index, state in zip(range(start, below), states, strict=False):
            if state == _DONE:
                odd.pop(index, None)
            else:
                odd[index] = state
        if stop > base:
            self.tail[: stop - base] = states[base - start :]

    def extend(self, states: bytes) -> None:
        """More elements came."""
        self.tail += states

    def count(self, state: int, start: int = 0, stop: int | None = None) -> int:
        """How many elements of a range are in a state."""
        base = self.base
        stop = base + len(self.tail) if stop is None else stop
        many = self.tail.count(state, max(start - base, 0), max(stop - base, 0))
        if start < base:
            below = min(stop, base)
            odd = self.odd_in(start, below)
            if state == _DONE:
                many += max(below - start, 0) - len(odd)
            else:
                many += sum(self.odd[index] == state for index in odd)
        return many

    def runs(self, wanted: bytes, start: int, stop: int) -> Ranges:
        """The maximal runs within [start, stop) whose state is one of `wanted`."""
        base = self.base
        stop = min(stop, base + len(self.tail))
        found: Ranges = []
        if start < base:
            found = self._runs_below(wanted, start, min(stop, base))
        if stop > base:
            after = runs_of(self.tail, wanted, max(start - base, 0), stop - base)
            for low, high in after:
                if found and found[-1][1] == low + base:
                    found[-1][1] = high + base
                else:
                    found.append([low + base, high + base])
        return found

    def _runs_below(self, wanted: bytes, start: int, stop: int) -> Ranges:
        found: Ranges = []

        def add(low: int, high: int) -> None:
            if found and found[-1][1] == low:
                found[-1][1] = high
            elif low < high:
                found.append([low, high])

        at = start
        for index in self.odd_in(start, stop):
            if _DONE in wanted:
                add(at, index)
            if self.odd[index] in wanted:
                add(index, index + 1)
            at = index + 1
        if _DONE in wanted and at < stop:
            add(at, stop)
        return found

    def odd_in(self, start: int, stop: int) -> list[int]:
        """The elements of a range below the base that have not succeeded, in order."""
        odd = self.odd
        if not odd:
            return []
        if stop - start <= len(odd):
            return [index for index in range(start, stop) if index in odd]
        return sorted(index for index in odd if start <= index < stop)

    def advance(self) -> bool:
        """Move the base over all that has ended, and over the few that go on among it; False if it stays.

        It is left alone until there is enough to move for the cost of looking through what is odd.
        """
        tail, odd = self.tail, self.odd
        if len(tail) < 2 * BLOCK + len(odd) // 4:
            return False
        moved = 0
        while len(tail) - moved >= BLOCK:
            block = tail[moved : moved + BLOCK]
            if block.count(_DONE) < BLOCK:
                if BLOCK - len(block.translate(None, _UNENDED)) > FEW:
                    break
                start = self.base + moved
                odd.update((index, state) for index, state in enumerate(block, start) if state != _DONE)
            moved += BLOCK
        del tail[:moved]
        self.base += moved
        return moved > 0


_UNENDED = bytes(int(state) for state in TaskState if state not in ENDED)


def holds_any(ordered: list[int], start: int, stop: int) -> bool:
    """Whether some of these numbers, in rising order, lie in [start, stop)."""
    at = bisect_left(ordered, start)
    return at < len(ordered) and ordered[at] < stop
