"""Counts of a session's tasks by group and state, its rate and its latest failures: what `bough run` draws.

Rule: it is updated from what the server says, at a cost per message and not per task; reading it asks no server.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from bough.model.states import ENDED, TaskState

_S = TaskState
_STATES = len(TaskState)
_WAITING, _RUNNING, _DONE = int(_S.WAITING), int(_S.RUNNING), int(_S.DONE)  # plain numbers are the quicker indices
_SHOWN = (_S.WAITING, _S.RUNNING, *sorted(ENDED))  # the states that a client is told
ASIDE = -1  # stands for the group of tasks that count for nothing here: found, not submitted
_TICK = 0.25  # seconds between two samples of the rate
_WINDOW = 40  # samples


class FailureLine(msgspec.Struct, frozen=True):
    """One failure, as it is shown while the workflow runs."""

    task: str  # as in "task 12 (plot)"
    text: str
    when: float  # seconds since the epoch
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    attempt: int = 0
    stderr: str = ""  # the last lines
    parameters: str = ""  # of the call, or of the sweep's row
    traceback: str = ""  # of a function
    command: Callable[[], str] = str  # its text; asked when it is shown, for values of its row are the user's objects


class GroupLine(msgspec.Struct, frozen=True):
    """One group and its own tasks by state, without those of its subgroups."""

    id: int
    path: str  # as in "align/sub"; the workflow itself is ""
    counts: dict[str, int]


class Progress:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.condition = threading.Condition(self._lock)
        self._watchers = 0  # callers that wait for it
        self.reused = 0  # successes that were found in an earlier run
        self.failures: deque[FailureLine] = deque(maxlen=200)
        self.failure_count = 0
        self.set_root(0)
        self._ended = 0
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=_WINDOW)

    def set_root(self, root: int) -> None:
        """The workflow's own group, before anything is in it."""
        self._root = root
        self._counts: dict[int, list[int]] = {root: [0] * _STATES, ASIDE: [0] * _STATES}
        self._paths: dict[int, str] = {root: ""}
        self._children: dict[int, list[int]] = {root: []}
        self._parents: dict[int, int] = {}

    # --- news ---------------------------------------------------------------------------------------

    def group_added(self, group: int, parent: int, name: str) -> None:
        """A group was made."""
        with self.condition:
            self._counts[group] = [0] * _STATES
            self._children[group] = []
            self._children[parent].append(group)
            self._parents[group] = parent
            above = self._paths[parent]
            self._paths[group] = f"{above}/{name}" if above else name

    def added(self, group: int, count: int) -> None:
        """Tasks were submitted."""
        with self._lock:  # not through the condition, which takes longer to say the same: one of these per task
            self._counts[group][_WAITING] += count

    def moved(self, group: int, were_running: int, new: TaskState, count: int) -> None:
        """Tasks that were waiting, or running, are in a new state."""
        with self._lock:
            counts = self._counts[group]
            counts[_RUNNING] -= were_running
            counts[_WAITING] -= count - were_running
            counts[new] += count
            if new >= _DONE:
                self._ended += count
                now = time.monotonic()
                if now - self._samples[-1][0] >= _TICK:
                    self._samples.append((now, self._ended))
                if self._watchers:
                    self.condition.notify_all()

    def failed(self, line: FailureLine, count: int = 1) -> None:
        """Remember a failure, to be shown."""
        with self.condition:
            self.failures.append(line)
            self.failure_count += count

    # --- looking ------------------------------------------------------------------------------------

    def counts(self, group: int | None = None) -> dict[str, int]:
        """Tasks by state in a group and everything below it (by default the whole workflow)."""
        with self.condition:
            total = self._total(self._root if group is None else group)
        return {state.label: total[state] for state in _SHOWN}

    def around(self, group: int) -> list[int]:
        """A group and all that it is in, the workflow's own last."""
        found = [group]
        while (parent := self._parents.get(found[-1])) is not None:
            found.append(parent)
        return found

    def groups(self) -> list[GroupLine]:
        """All groups in the order in which they were made, each with its own tasks only."""
        with self.condition:
            return [
                GroupLine(group, self._paths[group], {state.label: counts[state] for state in _SHOWN})
                for group, counts in self._counts.items()
                if group != ASIDE
            ]

    def rate(self) -> float:
        """Tasks that end in a second, over the last ten seconds or so."""
        with self.condition:
            then, before = self._samples[0]
            seconds = time.monotonic() - then
            return (self._ended - before) / seconds if seconds > 0 else 0.0

    def left(self, group: int | None = None) -> int:
        """Tasks that have not ended, in a group and everything below it (by default the whole workflow)."""
        with self.condition:
            return self._left(self._root if group is None else group)

    def wait(self, group: int, timeout: float | None = None) -> bool:
        """Wait until everything in a group has ended; False when the time was over before."""
        with self.condition:
            self._watchers += 1
            try:
                return self.condition.wait_for(lambda: not self._left(group), timeout)
            finally:
                self._watchers -= 1

    def path(self, group: int) -> str:
        """A group's path."""
        return self._paths[group]

    def _left(self, group: int) -> int:
        total = self._total(group)
        return sum(total[: _S.DONE])

    def _total(self, group: int) -> list[int]:
        return [sum(column) for column in zip(*(self._counts[g] for g in self._below(group)), strict=True)]

    def _below(self, group: int) -> Iterator[int]:
        yield group
        for child in self._children[group]:
            yield from self._below(child)
