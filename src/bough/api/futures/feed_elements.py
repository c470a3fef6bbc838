"""What this process knows of the tasks that a generator feeds: ended ones are summed up or discarded.

With `keep` all ends are kept, as of any array. Without it a result is held until a caller takes it, in the order of
tasks or of ends; failures are kept.

Rule: a result that was not taken is discarded only after `abandon`; until then it holds up the generator.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bough.api.futures.completed import CommandRows
from bough.api.futures.elements import ArrayElements, Range, Rows
from bough.api.futures.task import FINISHED, Task
from bough.errors import UserError
from bough.model.ids import number_of
from bough.model.states import ENDED, OPEN, StateWindow, TaskState, as_bytes
from bough.model.texts.plurals import counted
from bough.wire.client_messages import TasksFailed, TasksSucceeded

if TYPE_CHECKING:
    from bough.api.futures.task import Home

_DONE = TaskState.DONE
_ENDED = as_bytes(ENDED)
_OPEN = as_bytes(OPEN)
MOST_BYTES = 64 << 20  # of results that were not taken, before the generator has to wait

IN_ORDER, AS_ENDED = "in order", "as they end"
Told = tuple[int, int, TasksSucceeded | TasksFailed | None]


class FeedElements(ArrayElements):
    """See the module."""

    states: StateWindow  # type: ignore[assignment] # it is used as a bytearray is

    def __init__(self, registry: Home, record: int, *, keep: bool, rows: Rows | None = None, **about: Any) -> None:
        super().__init__(registry, record, 0, rows=rows, **about)
        self.states = StateWindow()
        self.keep = keep
        self._abandoned = keep  # no caller takes results one by one
        self._untaken = 0
        self._untaken_bytes = 0
        self._ends: deque[Range] = deque()  # not taken, in the order of their ends
        self._way = ""  # in which results are taken
        self._next = 0  # the element to be taken, in order
        self._taker: int | None = None  # the thread that takes them

    # --- what is said of single elements ------------------------------------------------------------

    def task(self, index: int) -> Task:
        """The task of one element; of what was discarded there is none."""
        with self.condition:
            if not self.keep and self.states[index] == _DONE and index not in self._live and not self._said(index):
                raise UserError(
                    f"task {number_of(self.record)}.{index} was discarded when it had ended; give keep=True to feed"
                )
            return super().task(index)

    def ended_tasks(self, start: int, stop: int) -> list[Task]:
        """The tasks of a range that ended together and was not taken; to be held only by the caller that takes them."""
        with self.condition:
            live, message = self._live, self._said(start)
            if message is None or live:
                return [self.task(index) for index in range(start, stop)]
            about = (self.registry, self.record, self.name, self.group)
            made = [Task(*about, index=index, array=self) for index in range(start, stop)]
            for task in made:  # which no other thread knows
                task._message = message
                task._state = FINISHED
            return made

    def first_open(self, start: int, stop: int) -> int:
        """See `ArrayElements.first_open`."""
        found = self.states.runs(_OPEN, start, stop)
        return found[0][0] if found else stop

    def chosen(self, indices: Sequence[int], wanted: Iterable[TaskState]) -> array[int]:
        """See `ArrayElements.chosen`."""
        found = array("q")
        if isinstance(indices, range) and indices.step == 1:
            for low, high in self.states.runs(bytes(map(int, wanted)), indices.start, indices.stop):
                found.extend(range(low, high))
            return found
        kept = frozenset(wanted)
        found.extend(i for i in indices if self.states[i] in kept)
        return found

    def watch(self) -> deque[Range]:
        """See `ArrayElements.watch`."""
        with self.condition:
            queue: deque[Range] = deque((low, high) for low, high in self.states.runs(_ENDED, 0, len(self.states)))
            self._watchers.append(queue)
            return queue

    def _open_runs(self, start: int, stop: int) -> list[Range]:
        return [(low, high) for low, high in self.states.runs(_OPEN, start, stop)]

    # --- growing, and being held up -----------------------------------------------------------------

    def grow(self, count: int) -> int:
        """See `ArrayElements.grow`."""
        with self.condition:
            if self.states.advance():
                base = self.states.first_kept
                self._running = {start: said for start, said in self._running.items() if said.stop > base}
                if not self.keep and isinstance(self.rows, CommandRows):
                    held = (at for at, span in zip(self._starts, self._spans, strict=True) if not _is_bad(span[1]))
                    self.rows.forget(min(base, next(held, base)))
            return super().grow(count)

    def pressure(self) -> int:
        """How many tasks have not ended, or ended and were not taken."""
        return self.left + self._untaken

    @property
    def is_heavy(self) -> bool:
        """Whether what was not taken fills the room there is for it."""
        return self._untaken_bytes > MOST_BYTES

    def _keep(self, start: int, stop: int, message: TasksSucceeded | TasksFailed | None) -> None:
        if message is not None and (self.keep or not self._abandoned or isinstance(message, TasksFailed)):
            self._insert(start, stop, message)
        if not self._abandoned:
            self._untaken += stop - start
            self._untaken_bytes += _bytes(message, start, stop)
            if self._way is not IN_ORDER:
                self._ends.append((start, stop))

    # --- taking -------------------------------------------------------------------------------------

    def begin(self, way: str) -> None:
        """A caller begins to take results, or continues."""
        with self.condition:
            if self._way and self._way is not way:
                raise UserError(f"the results of {self.name or 'this feed'} are taken {self._way}; continue that way")
            if self._abandoned:
                raise UserError("feed: its results were discarded by wait_all, or at the session's end; iterate first")
            self._way = way
            self._taker = threading.get_ident()
            if way is IN_ORDER:
                self._ends.clear()

    def pause(self) -> None:
        """No caller takes results for now."""
        self._taker = None

    def wait_in_order(self, deadline: float | None) -> Told | None:
        """What is to be taken next in order, once it has ended; None: nothing more will come."""
        with self.condition:
            at = self._next
            if not self._wait(lambda: at < len(self.states) and self.states[at] >= _DONE, deadline):
                return None
            if self.states[at] == TaskState.CANCELLED:
                return at, at + 1, None
            stop, message = self._spans[bisect_right(self._starts, at) - 1]
            return at, stop, message

    def wait_for_ends(self, deadline: float | None) -> Range | None:
        """What ended next; None: nothing more will."""
        with self.condition:
            return self._ends.popleft() if self._wait(lambda: bool(self._ends), deadline) else None

    def _wait(self, is_there: Any, deadline: float | None) -> bool:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())

        def news() -> bool:
            return self._abandoned or is_there() or not (self.left or self._untaken or self.is_open)

        if not self.condition.wait_for(news, left):
            raise TimeoutError(
                f"{counted(self.left + self._untaken, 'task of the feed has', 'tasks of the feed have')} not ended"
            )
        if self._abandoned:
            raise UserError("feed: its results were discarded while they were taken, by wait_all or the session's end")
        return bool(is_there())

    def taken(self, start: int, at: int, stop: int) -> None:
        """Of a range the elements before `at` were taken."""
        with self.condition:
            if self._way is IN_ORDER:
                self._next = at
            elif at < stop:
                self._ends.appendleft((at, stop))
            if self._abandoned:
                return
            self._untaken -= at - start
            place = bisect_right(self._starts, start) - 1
            if place >= 0 and self._spans[place][0] > start:
                end, message = self._spans[place]
                self._untaken_bytes -= _bytes(message, start, at)
                if at >= end and isinstance(message, TasksSucceeded):
                    del self._starts[place], self._spans[place]
                    self._page = (None, []) if self._page[0] is message else self._page
            self.condition.notify_all()

    def abandon(self) -> None:
        """No caller will take what is not taken, unless another thread is about to."""
        with self.condition:
            taker = self._taker
            if self._abandoned or (taker is not None and taker != threading.get_ident() and _is_alive(taker)):
                return
            self._abandoned = True
            kept = [(start, span) for start, span in zip(self._starts, self._spans, strict=True) if _is_bad(span[1])]
            self._starts, self._spans = [start for start, _ in kept], [span for _, span in kept]
            self._ends.clear()
            self._untaken = self._untaken_bytes = 0
            self._page = (None, [])
            self.condition.notify_all()


def _is_bad(message: TasksSucceeded | TasksFailed) -> bool:
    return isinstance(message, TasksFailed)


def _is_alive(thread: int) -> bool:
    return any(one.ident == thread for one in threading.enumerate())


def _bytes(message: TasksSucceeded | TasksFailed | None, start: int, stop: int) -> int:
    """About the bytes that results of some elements occupy."""
    if not isinstance(message, TasksSucceeded):
        return 0
    many = message.stop - message.start
    size = len(message.results) if isinstance(message.results, bytes) else 0
    return (size + 200 * len(message.details)) * (stop - start) // many
