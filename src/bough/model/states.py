"""The states of a task and their edges, once for all layers; the states of an array that grows.

`TaskState`, `EDGES` and the sets of states below are what the core, the stores, the client and the command line share;
the page `docs/spec/states.md` and the tests are made from the table. `StateWindow` holds the states of an array that
a generator feeds: a byte for each of its newest elements, and for the older ones only what did not succeed.

Rule: a retry is a new attempt, not a new state. A state is a small integer, because arrays keep one byte a task. A
`StateWindow` answers for every element what a bytearray of all states would answer, in less memory.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, overload

from bough.model.arrays.ranges import Ranges, runs_of


class TaskState(enum.IntEnum):
    """Where a task is in its life."""

    WAITING = 0  # some predecessor is not done, or a memo is being looked up, or a retry is not due
    HELD = 1  # could run, but a user holds it
    READY = 2  # could run now, has no executor
    PLACED = 3  # given to an executor, not known to have started; people see "ready"
    RUNNING = 4  # the executor said that it started
    DONE = 5
    FAILED = 6  # out of attempts
    SKIPPED = 7  # something it depends on did not succeed
    CANCELLED = 8

    @property
    def label(self) -> str:
        """The word people see: one of `WORDS`."""
        return "ready" if self is TaskState.PLACED else self.name.lower()


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
    FIND_RESULT = "find result"
    CHAIN = "chain"
    SKIP = "skip"
    CANCEL = "cancel"
    REVIVE = "revive"
    RESET = "reset"


_S, _T = TaskState, Trigger

EDGES: Final[Mapping[tuple[TaskState, Trigger], TaskState]] = {
    (_S.WAITING, _T.FREE): _S.READY,  # the last predecessor succeeded, the memo was not found, the retry is due
    (_S.WAITING, _T.FIND_RESULT): _S.DONE,  # an earlier run did it already
    (_S.WAITING, _T.CHAIN): _S.PLACED,  # short, and sent together with the one task it waits for: a chain
    (_S.WAITING, _T.SKIP): _S.SKIPPED,  # a predecessor did not succeed, or the run stops
    (_S.WAITING, _T.CANCEL): _S.CANCELLED,
    (_S.HELD, _T.RELEASE): _S.READY,  # no hold is left on it
    (_S.HELD, _T.SKIP): _S.SKIPPED,
    (_S.HELD, _T.CANCEL): _S.CANCELLED,
    (_S.READY, _T.HOLD): _S.HELD,  # a user holds it, or did so before it became ready
    (_S.READY, _T.FIND_RESULT): _S.DONE,  # an executor that had been given up reconnected with the result
    (_S.HELD, _T.FIND_RESULT): _S.DONE,
    (_S.READY, _T.PLACE): _S.PLACED,  # the policy chose an executor
    (_S.READY, _T.SKIP): _S.SKIPPED,  # fail-fast, or the run stops
    (_S.READY, _T.CANCEL): _S.CANCELLED,
    (_S.PLACED, _T.START): _S.RUNNING,  # the executor confirmed
    (_S.PLACED, _T.SUCCEED): _S.DONE,  # so short that start and end came together
    (_S.PLACED, _T.GIVE_BACK): _S.READY,  # the executor was lost, or gave it back unstarted
    (_S.PLACED, _T.RETRY_LATER): _S.WAITING,  # failed, and will be retried
    (_S.PLACED, _T.FAIL): _S.FAILED,
    (_S.PLACED, _T.CANCEL): _S.CANCELLED,
    (_S.RUNNING, _T.SUCCEED): _S.DONE,
    (_S.RUNNING, _T.GIVE_BACK): _S.READY,
    (_S.RUNNING, _T.RETRY_LATER): _S.WAITING,
    (_S.RUNNING, _T.FAIL): _S.FAILED,
    (_S.RUNNING, _T.CANCEL): _S.CANCELLED,
    (_S.FAILED, _T.REVIVE): _S.WAITING,  # a user asked for a retry
    (_S.SKIPPED, _T.REVIVE): _S.WAITING,
    (_S.CANCELLED, _T.REVIVE): _S.WAITING,
    (_S.DONE, _T.RESET): _S.WAITING,  # a user wants it to run again
    (_S.READY, _T.RESET): _S.WAITING,  # something it depends on is to run again
    (_S.HELD, _T.RESET): _S.WAITING,
}

# Sets of states that every layer tells apart. `as_bytes` gives a set as arrays keep it, a byte a task; `labels_of`
# gives it in the words people see.
PENDING: Final = frozenset({_S.WAITING, _S.HELD, _S.READY})
OCCUPYING: Final = frozenset({_S.PLACED, _S.RUNNING})
OPEN: Final = PENDING | OCCUPYING
ENDED: Final = frozenset({_S.DONE, _S.FAILED, _S.SKIPPED, _S.CANCELLED})
UNSUCCESSFUL: Final = frozenset({_S.FAILED, _S.SKIPPED, _S.CANCELLED})
LABELS: Final = tuple(state.label for state in TaskState)  # by the number of the state
# the words people see, once each, in the order of a task's life: on the command line, in SQL, in Python, in metrics
WORDS: Final = ("waiting", "held", "ready", "running", "done", "failed", "skipped", "cancelled")


def as_bytes(states: Iterable[TaskState]) -> bytes:
    """A set of states as the bytes that arrays keep, in order."""
    return bytes(sorted(states))


def labels_of(states: Iterable[TaskState]) -> tuple[str, ...]:
    """A set of states in the words people see, in order."""
    return tuple(dict.fromkeys(LABELS[state] for state in sorted(states)))


def says(word: str) -> str:
    """The predicate of a sentence about a task: "is ready", "failed", "was skipped"."""
    return {"failed": "failed", "skipped": "was skipped", "cancelled": "was cancelled"}.get(word, f"is {word}")


def counts_of(by_state: Iterable[int]) -> dict[str, int]:
    """Numbers of tasks by state, in the words people see; every word is there."""
    counts = dict.fromkeys(WORDS, 0)
    for label, number in zip(LABELS, by_state, strict=True):
        counts[label] += number
    return counts


# The table once more, for the hot paths: which states may come right before a state, as bytes.
BEFORE: Final[tuple[bytes, ...]] = tuple(
    bytes(sorted({int(old) for (old, _), new in EDGES.items() if new == state})) for state in TaskState
)


BLOCK: Final = 1024  # elements that a window leaves behind at a time
FEW: Final = 16  # of them may be unfinished when it does
_DONE: Final = int(TaskState.DONE)
_UNFINISHED: Final = as_bytes(OPEN)


class StateWindow:
    """The states of an array, of which elements below `first_kept` succeeded but for those in `exceptions`.

    Exceptions are failures, and the few elements that take longer than all others around them.
    """

    __slots__ = ("exceptions", "first_kept", "kept")

    def __init__(self, first_kept: int = 0, exceptions: dict[int, int] | None = None, kept: bytes = b"") -> None:
        self.first_kept = first_kept
        self.exceptions = {} if exceptions is None else exceptions  # states of older elements that did not succeed
        self.kept = bytearray(kept)  # a byte for each element from `first_kept` on

    def __len__(self) -> int:
        return self.first_kept + len(self.kept)

    @overload
    def __getitem__(self, where: int) -> int: ...
    @overload
    def __getitem__(self, where: slice) -> bytearray: ...
    def __getitem__(self, where: int | slice) -> int | bytearray:
        first = self.first_kept
        if not isinstance(where, slice):
            return self.kept[where - first] if where >= first else self.exceptions.get(where, _DONE)
        start, stop, _ = where.indices(first + len(self.kept))
        if start >= first:
            return self.kept[start - first : stop - first]
        below = min(stop, first)
        found = bytearray((_DONE,)) * (below - start)
        for index in self.exceptions_in(start, below):
            found[index - start] = self.exceptions[index]
        if stop > first:
            found += self.kept[: stop - first]
        return found

    def __setitem__(self, where: slice, states: bytes | bytearray) -> None:
        first, exceptions = self.first_kept, self.exceptions
        start, stop, _ = where.indices(first + len(self.kept))
        if start >= first:
            self.kept[start - first : stop - first] = states
            return
        below = min(stop, first)
        for index, state in zip(range(start, below), states, strict=False):
            if state == _DONE:
                exceptions.pop(index, None)
            else:
                exceptions[index] = state
        if stop > first:
            self.kept[: stop - first] = states[first - start :]

    def extend(self, states: bytes) -> None:
        """Append elements."""
        self.kept += states

    def count(self, state: int, start: int = 0, stop: int | None = None) -> int:
        """How many elements of a range are in a state."""
        first = self.first_kept
        stop = first + len(self.kept) if stop is None else stop
        many = self.kept.count(state, max(start - first, 0), max(stop - first, 0))
        if start < first:
            below = min(stop, first)
            exceptions = self.exceptions_in(start, below)
            if state == _DONE:
                many += max(below - start, 0) - len(exceptions)
            else:
                many += sum(self.exceptions[index] == state for index in exceptions)
        return many

    def runs(self, wanted: bytes, start: int, stop: int) -> Ranges:
        """The maximal runs within [start, stop) whose state is one of `wanted`."""
        first = self.first_kept
        stop = min(stop, first + len(self.kept))
        found: Ranges = []
        if start < first:
            found = self._runs_below(wanted, start, min(stop, first))
        if stop > first:
            after = runs_of(self.kept, wanted, max(start - first, 0), stop - first)
            for low, high in after:
                if found and found[-1][1] == low + first:
                    found[-1][1] = high + first
                else:
                    found.append([low + first, high + first])
        return found

    def _runs_below(self, wanted: bytes, start: int, stop: int) -> Ranges:
        found: Ranges = []

        def add(low: int, high: int) -> None:
            if found and found[-1][1] == low:
                found[-1][1] = high
            elif low < high:
                found.append([low, high])

        at = start
        for index in self.exceptions_in(start, stop):
            if _DONE in wanted:
                add(at, index)
            if self.exceptions[index] in wanted:
                add(index, index + 1)
            at = index + 1
        if _DONE in wanted and at < stop:
            add(at, stop)
        return found

    def exceptions_in(self, start: int, stop: int) -> list[int]:
        """The elements of a range below `first_kept` that have not succeeded, in order."""
        exceptions = self.exceptions
        if not exceptions:
            return []
        if stop - start <= len(exceptions):
            return [index for index in range(start, stop) if index in exceptions]
        return sorted(index for index in exceptions if start <= index < stop)

    def advance(self) -> bool:
        """Leave behind all elements that have ended, and the few unfinished ones among them; False if none was left.

        Nothing happens until enough elements can be left behind to pay for looking through the exceptions.
        """
        kept, exceptions = self.kept, self.exceptions
        if len(kept) < 2 * BLOCK + len(exceptions) // 4:
            return False
        moved = 0
        while len(kept) - moved >= BLOCK:
            block = kept[moved : moved + BLOCK]
            if block.count(_DONE) < BLOCK:
                if BLOCK - len(block.translate(None, _UNFINISHED)) > FEW:
                    break
                start = self.first_kept + moved
                exceptions.update((index, state) for index, state in enumerate(block, start) if state != _DONE)
            moved += BLOCK
        del kept[:moved]
        self.first_kept += moved
        return moved > 0


def holds_any(ordered: list[int], start: int, stop: int) -> bool:
    """Whether some of these numbers, in rising order, lie in [start, stop)."""
    at = bisect_left(ordered, start)
    return at < len(ordered) and ordered[at] < stop
