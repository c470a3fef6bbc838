"""What this process knows of one array's tasks: a byte for each, and the messages that told of them by range.

Rules: an element's end is final here, whatever comes later. Ranges in `_spans` do not overlap. Everything changes
under `condition`; tasks that users hold are told after it has been released, because telling them runs callbacks.
"""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from bough.api.futures.completed import load_results
from bough.api.futures.endings import ending_state
from bough.api.futures.task import CANCELLED, FINISHED, Task
from bough.errors import BoughError
from bough.model.outcomes import Cause
from bough.model.states import ENDED, OPEN, TaskState, as_bytes
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded

if TYPE_CHECKING:
    from bough.api.futures.task import Home

_S = TaskState
_OPEN = re.compile(b"[" + re.escape(as_bytes(OPEN)) + b"]")
_OPEN_RUN = re.compile(_OPEN.pattern + b"+")
_NOT_STARTED = OPEN - {_S.RUNNING}
_NOT_STARTED_RUN = re.compile(b"[" + re.escape(as_bytes(_NOT_STARTED)) + b"]+")
_ENDED_RUN = re.compile(b"[" + re.escape(as_bytes(ENDED)) + b"]+")

Range = tuple[int, int]
Note = Callable[[list[Range]], None]


class Rows(Protocol):
    """How to tell what an element of a command array runs and writes."""

    def text(self, index: int) -> str:
        """Its command."""

    def writes(self, index: int) -> dict[str, str]:
        """Its output slots and their absolute paths."""


class ArrayElements:
    """See the module."""

    def __init__(
        self,
        registry: Home,
        record: int,
        length: int,
        *,
        name: str = "",
        group: int = 0,
        is_command: bool = False,
        rows: Rows | None = None,
    ) -> None:
        self.registry = registry
        self.progress = registry.progress
        self.record = record
        self.indices = ""  # as its submitter wrote them, if that was not in Python
        self.name = name
        self.group = group
        self.is_command = is_command
        self.rows = rows  # of a command array: how to tell an element's text and outputs
        self.condition = threading.Condition()
        self.states: bytearray = bytearray(length)
        self.left = length  # not ended
        self.error: BoughError | None = None  # why the server did not take it, or went away
        self.is_open = False  # more elements may come
        self.is_shared = False  # used by more than an iteration over its values, which must not cancel it then
        self.feed_error: BaseException | None = None  # what the generator that feeds it raised
        self.is_feed_error_seen = False  # the script has got it
        self._starts: list[int] = []  # of `_spans`, which are sorted by it
        self._spans: list[tuple[int, TasksSucceeded | TasksFailed]] = []  # (stop, what was said of [start, stop))
        self._running: dict[int, TasksRunning] = {}  # by start
        self._live: WeakValueDictionary[int, Task] = WeakValueDictionary()
        self.kept: dict[int, Task] = {}  # tasks with callbacks, which may be held here only
        self._watchers: list[deque[Range]] = []
        self._page: tuple[TasksSucceeded | None, list[Any]] = (None, [])  # the results read last

    # --- looking ------------------------------------------------------------------------------------

    def task(self, index: int) -> Task:
        """The task of one element: the same object while a caller holds it."""
        with self.condition:
            task = self._live.get(index)
            if task is None:
                task = Task(self.registry, self.record, self.name, self.group, index=index, array=self)
                state = self.states[index]
                if state >= _S.DONE:
                    is_cancelled = state == _S.CANCELLED
                    task._end(None if is_cancelled else self._said(index), CANCELLED if is_cancelled else FINISHED)
                elif state == _S.RUNNING and (message := self._running_message(index)) is not None:
                    task._on_running(message)
                self._live[index] = task
            return task

    def page(self, message: TasksSucceeded) -> list[Any]:
        """All values that came with a message: they are read together, and the last ones kept."""
        held, values = self._page
        if held is not message:
            values = load_results(message.results)
            self._page = (message, values)
        return values

    def said(self, index: int) -> TasksSucceeded | TasksFailed | None:
        """What was said of an element's end, and None while it has not ended or was cancelled here."""
        with self.condition:
            return self._said(index) if _S.DONE <= self.states[index] < _S.CANCELLED else None

    def span_at(self, index: int) -> tuple[int, TasksSucceeded | TasksFailed | None]:
        """The end of the range that was told together with an element, and what was told."""
        with self.condition:
            if self.states[index] == _S.CANCELLED:
                return index + 1, None
            at = bisect_right(self._starts, index) - 1
            return self._spans[at]

    def _said(self, index: int) -> TasksSucceeded | TasksFailed | None:
        at = bisect_right(self._starts, index) - 1
        if at < 0 or index >= self._spans[at][0]:
            return None
        return self._spans[at][1]

    def _running_message(self, index: int) -> TasksRunning | None:
        return next((m for m in reversed(self._running.values()) if m.start <= index < m.stop), None)

    def first_open(self, start: int, stop: int) -> int:
        """The first element in [start, stop) that has not ended, or `stop`."""
        found = _OPEN.search(self.states, start, stop)
        return found.start() if found else stop

    def count(self, indices: Sequence[int] | None, *wanted: TaskState) -> int:
        """How many of these elements (None: all) are in one of these states."""
        states = self.states
        if indices is None:
            return sum(states.count(state) for state in wanted)
        if isinstance(indices, range) and indices.step == 1:
            return sum(states.count(state, indices.start, indices.stop) for state in wanted)
        chosen = set(wanted)
        return sum(states[i] in chosen for i in indices)

    def chosen(self, indices: Sequence[int], wanted: Iterable[TaskState]) -> array[int]:
        """Those of these elements that are in one of these states."""
        kept = frozenset(wanted)
        states = bytes(self.states)
        return array("q", [i for i in indices if states[i] in kept])

    def error_of(self, message: TasksFailed) -> BoughError | None:
        """What every element fails with when the server did not take the array, or went away."""
        return self.error if message.failure.cause is Cause.LOST and not message.attempt else None

    def writes(self, index: int) -> dict[str, str]:
        """The output slots of an element and their paths."""
        return self.rows.writes(index) if self.rows is not None else {}

    def command(self, index: int) -> str:
        """The text of an element of a command array."""
        return self.rows.text(index) if self.rows is not None else ""

    def watch(self) -> deque[Range]:
        """A queue that gets the ranges that have ended already, then those that end, until `unwatch`."""
        with self.condition:
            queue: deque[Range] = deque(m.span() for m in _ENDED_RUN.finditer(bytes(self.states)))
            self._watchers.append(queue)
            return queue

    def unwatch(self, queue: deque[Range]) -> None:
        """No caller looks at that queue any more."""
        with self.condition:
            self._watchers = [other for other in self._watchers if other is not queue]

    # --- waiting ------------------------------------------------------------------------------------

    def wait_for_news(self, queue: deque[Range], timeout: float | None) -> bool:
        """Wait until something is in a watcher's queue, or nothing can come any more; False: the time is over."""
        with self.condition:
            return self.condition.wait_for(lambda: bool(queue) or not (self.left or self.is_open), timeout)

    def wait_for_end(self, index: int, timeout: float | None) -> bool:
        """Wait until an element has ended; False: the time is over."""
        if self.states[index] >= _S.DONE:
            return True
        with self.condition:
            return self.condition.wait_for(lambda: self.states[index] >= _S.DONE, timeout)

    def wait_for_length(self, length: int, timeout: float | None) -> bool:
        """Wait until there are so many elements; False: there never will be."""
        if len(self.states) >= length:
            return True
        with self.condition:
            if not self.condition.wait_for(lambda: len(self.states) >= length or not self.is_open, timeout):
                raise TimeoutError("the array is still being fed")
            return len(self.states) >= length

    # --- news ---------------------------------------------------------------------------------------

    def grow(self, count: int) -> int:
        """More elements were added; returns where they begin."""
        with self.condition:
            start = len(self.states)
            self.states.extend(bytes(count))
            self.left += count
            self.condition.notify_all()
            return start

    def close(self) -> None:
        """No more elements will come."""
        with self.condition:
            self.is_open = False
            self.condition.notify_all()

    def on_running(self, message: TasksRunning) -> None:
        """Elements were started, or went back to waiting."""
        new = _S.RUNNING if message.attempt else _S.WAITING
        with self.condition:
            if message.attempt:
                self._running[message.start] = message
            else:
                self._running.pop(message.start, None)
            for start, stop in self._open_runs(message.start, message.stop):
                before = self.states.count(_S.RUNNING, start, stop)
                self.states[start:stop] = bytes([new]) * (stop - start)
                self.progress.moved(self.group, before, new, stop - start)
            live = self._live_in(message.start, message.stop)
        for _, task in live:
            task._on_running(message)

    def on_ended(self, message: TasksSucceeded | TasksFailed, note: Note | None = None) -> list[Range]:
        """Elements ended; returns the ranges for which this is news; `note` gets them before any caller wakes."""
        new = _S.DONE if isinstance(message, TasksSucceeded) else ending_state(message.failure)
        return self._end(message, new, [(message.start, message.stop)], note)

    def cancel(self, indices: Sequence[int]) -> list[Range]:
        """Cancel elements, final at once, and tell the server; returns the ranges that were not ended."""
        if isinstance(indices, range) and indices.step < 0:
            indices = indices[::-1]
        return self._cancel(list(runs_of(indices)))

    def cancel_waiting(self, indices: Sequence[int] | None = None) -> list[Range]:
        """Cancel what has not started, of all elements or of some."""
        with self.condition:
            if indices is None:
                ranges = [found.span() for found in _NOT_STARTED_RUN.finditer(self.states)]
            else:
                ranges = list(runs_of([index for index in sorted(indices) if self.states[index] in _NOT_STARTED]))
        return self._cancel(ranges)

    def _cancel(self, ranges: list[Range]) -> list[Range]:
        ended = self._end(None, _S.CANCELLED, ranges)
        self.registry.cancelled_elements(self, ended)
        return ended

    def cancel_all(self) -> list[Range]:
        """Cancel the whole array, final at once; nothing more will be added to it."""
        self.close()
        ended = self._end(None, _S.CANCELLED, [(0, len(self.states))])
        self.registry.cancelled_array(self)
        return ended

    def _end(
        self,
        message: TasksSucceeded | TasksFailed | None,
        new: TaskState,
        ranges: Iterable[Range],
        note: Note | None = None,
    ) -> list[Range]:
        state = CANCELLED if new is _S.CANCELLED else FINISHED
        live: list[tuple[int, Task]] = []
        with self.condition:
            ended = [run for start, stop in ranges for run in self._open_runs(start, stop)]
            for start, stop in ended:
                running = self.states.count(_S.RUNNING, start, stop)
                self.states[start:stop] = bytes([new]) * (stop - start)
                self.left -= stop - start
                self.progress.moved(self.group, running, new, stop - start)
                self._keep(start, stop, message if new is not _S.CANCELLED else None)
                for queue in self._watchers:
                    queue.append((start, stop))
                live += self._live_in(start, stop)
                self._running.pop(start, None)
            if ended:
                if note is not None:
                    note(ended)
                self.condition.notify_all()
        for _, task in live:
            task._end(message if new is not _S.CANCELLED else None, state)
        return ended

    def _keep(self, start: int, stop: int, message: TasksSucceeded | TasksFailed | None) -> None:
        """Elements ended; of those that were cancelled here nothing was said."""
        if message is not None:
            self._insert(start, stop, message)

    def _insert(self, start: int, stop: int, message: TasksSucceeded | TasksFailed) -> None:
        starts, spans = self._starts, self._spans
        if not starts or start > starts[-1]:  # nearly always
            starts.append(start)
            spans.append((stop, message))
            return
        at = bisect_right(starts, start)
        starts.insert(at, start)
        spans.insert(at, (stop, message))

    def _open_runs(self, start: int, stop: int) -> list[Range]:
        found = _OPEN_RUN.match(self.states, start, stop)
        if found is not None and found.end() == min(stop, len(self.states)):  # nearly always
            return [(start, found.end())]
        return [m.span() for m in _OPEN_RUN.finditer(self.states, start, stop)]

    def _live_in(self, start: int, stop: int) -> list[tuple[int, Task]]:
        live = self._live
        if not live:
            return []
        if stop - start <= len(live):
            return [(i, task) for i in range(start, stop) if (task := live.get(i)) is not None]
        return [(i, task) for i, task in list(live.items()) if start <= i < stop]


def runs_of(indices: Sequence[int]) -> Iterable[Range]:
    """Indices in rising order as ranges."""
    if isinstance(indices, range) and indices.step == 1:
        if indices:
            yield indices.start, indices.stop
        return
    start = stop = -1
    for index in indices:
        if index != stop:
            if stop > start:
                yield start, stop
            start = index
        stop = index + 1
    if stop > start:
        yield start, stop
