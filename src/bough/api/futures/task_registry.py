"""The session's table of tasks: which task or array each message of the server is for.

Loose tasks are held here until they end. Taking one out of `tasks` decides which thread ends it: the one that read of
its end, or the caller that cancels it.

Rule: counts change before callers that wait for a task wake, so that these see them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from bough.api.futures.completed import read_stream_bytes
from bough.api.futures.elements import ArrayElements, Range
from bough.api.futures.feed_elements import FeedElements
from bough.api.futures.progress import FailureLine, Progress
from bough.api.futures.task import (
    CANCELLED,
    FINISHED,
    RUNNING,
    Elements,
    Task,
    end_together,
    ending_state,
    last_line,
    what_happened,
)
from bough.errors import BoughError, UserError
from bough.model.events.news import Cancel, Kill, PagesAdded
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Failure, Stream
from bough.model.states import TaskState
from bough.model.tasks import ArraySpec, Dep, Item, On, TaskSpec
from bough.wire import questions
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded, ToClient

if TYPE_CHECKING:
    from bough.api.client.connection import Connection

_S = TaskState
_NO_FAILURE = frozenset({Cause.CANCELLED, Cause.CLOSED})


class UnseenFailure(msgspec.Struct, frozen=True):
    """A failure that was not looked at: of the elements [start, stop) of a record."""

    record: int
    start: int
    stop: int
    text: str

    def __str__(self) -> str:
        return self.text


class TaskRegistry:
    """See the module."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.wait = _sleep_alone  # for a loose task; `connect` makes it that of the connection
        self.read_remote_output: Callable[[int, int, str, Stream], bytes] | None = None  # asks a service
        self.progress = Progress()
        self.tasks: dict[int, Task] = {}  # loose, not ended
        self.arrays: dict[int, ArrayElements] = {}  # with elements that have not ended
        self.refusals: list[tuple[Item | PagesAdded, BoughError]] = []  # what the server did not take
        self._unseen: dict[int, dict[int, _Unseen]] = {}  # failures: record -> start -> what
        self._looking = threading.Lock()  # guards `_unseen`

    def connect(self, connection: Connection) -> None:
        """Tell and ask the server by this connection."""
        self.connection = connection
        self.wait = connection.wait

    # --- what the server says -----------------------------------------------------------------------

    def on_messages(self, messages: Sequence[ToClient]) -> None:
        """Pass on what happened to tasks, in order; successes of loose tasks, many in a row, together."""
        tasks = self.tasks
        ended: list[tuple[Task, TasksSucceeded]] = []
        for message in messages:
            if isinstance(message, TasksSucceeded):
                task = tasks.pop(message.record, None)
                if task is not None:
                    ended.append((task, message))
                    continue
            if ended:
                self._succeeded(ended)
                ended = []
            if isinstance(message, TasksSucceeded):
                self._elements_succeeded(message)
            elif isinstance(message, TasksFailed):
                self._failed(message)
            elif isinstance(message, TasksRunning):
                self._runs(message)
        if ended:
            self._succeeded(ended)

    def _succeeded(self, ended: list[tuple[Task, TasksSucceeded]]) -> None:
        counts: dict[int, list[int]] = {}  # by group: how many, and how many of them were running
        for task, message in ended:
            count = counts.get(task.group)
            if count is None:
                count = counts[task.group] = [0, 0]
            count[0] += 1
            count[1] += task._state == RUNNING
            if message.reused:
                self.progress.reused += 1
        for group, (number, running) in counts.items():
            self.progress.moved(group, running, _S.DONE, number)
        end_together(ended)

    def _elements_succeeded(self, message: TasksSucceeded) -> None:
        array = self.arrays.get(message.record)
        if array is not None:
            news = array.on_ended(message)
            if message.reused:
                self.progress.reused += sum(stop - start for start, stop in news)
            self.forget_ended(array)

    def _failed(self, message: TasksFailed) -> None:
        if message.failure.cause is Cause.CANCELLED:
            self._cancelled(message)
            return
        state = ending_state(message.failure)
        task = self.tasks.pop(message.record, None)
        if task is not None:
            self._note(message, task.name, [(0, 1)], is_array=False)
            self.progress.moved(task.group, task._state == RUNNING, state, 1)
            task._end(message, FINISHED)
            return
        array = self.arrays.get(message.record)
        if array is not None:
            array.on_ended(message, lambda news: self._note(message, array.name, news, is_array=True))
            self.forget_ended(array)

    def _cancelled(self, message: TasksFailed) -> None:
        """It was cancelled elsewhere: by `bough cancel`, or with its group."""
        task = self.tasks.pop(message.record, None)
        if task is not None:
            self.progress.moved(task.group, task._state == RUNNING, _S.CANCELLED, 1)
            task._end(None, CANCELLED)
            return
        array = self.arrays.get(message.record)
        if array is not None:
            array.on_ended(message)
            self.forget_ended(array)

    def _runs(self, message: TasksRunning) -> None:
        task = self.tasks.get(message.record)
        if task is not None:
            was, now = task._state == RUNNING, bool(message.attempt)
            if was != now:
                self.progress.moved(task.group, was, _S.RUNNING if now else _S.WAITING, 1)
            task._on_running(message)
            return
        array = self.arrays.get(message.record)
        if array is not None:
            array.on_running(message)

    def unended(self) -> list[int | tuple[int, int]]:
        """The records that have not ended here; of what is fed also the element from which on."""
        arrays = [
            (array.record, array.first_open(0, len(array.states))) if isinstance(array, FeedElements) else array.record
            for array in list(self.arrays.values())
        ]
        return [*self.tasks, *arrays]

    def forget_ended(self, array: Elements) -> None:
        """Forget an array of which the server says nothing more."""
        if not array.left and not array.is_open:
            self.arrays.pop(array.record, None)

    # --- ends that do not come from the server --------------------------------------------------------

    def refused(self, item: Item | PagesAdded, error: BoughError) -> None:
        """The server did not take an item: its tasks fail with the reason."""
        self.refusals.append((item, error))
        if isinstance(item, PagesAdded):
            self._end_all([], [item.record], error)
        elif isinstance(item, TaskSpec):
            self._end_all([item.id], [], error)
        elif isinstance(item, ArraySpec):
            self._end_all([], [item.id], error)

    def lost(self, error: BoughError | None) -> None:
        """The server is gone: nothing that has not ended will. Without an error it was closed in good order."""
        self._end_all(list(self.tasks), list(self.arrays), error)

    def _end_all(self, tasks: list[int], arrays: list[int], error: BoughError | None) -> None:
        text = str(error) if error is not None else "the session was closed before it ran"
        failure = Failure(Cause.CLOSED if error is None else Cause.LOST, text)
        state = _S.SKIPPED if error is None else _S.FAILED
        for record in tasks:
            task = self.tasks.pop(record, None)
            if task is not None:
                self.progress.moved(task.group, task._state == RUNNING, state, 1)
                message = TasksFailed(RecordId(task.id), 0, 1, 0, failure)
                if error is None:
                    task._end(message, FINISHED)
                else:
                    task._fail(error, message)
        for record in arrays:
            array = self.arrays.pop(record, None)
            if array is not None:
                array.error = error
                array.close()
                array.on_ended(TasksFailed(RecordId(array.record), 0, len(array.states), 0, failure))

    # --- what users do --------------------------------------------------------------------------------

    def cancel_loose(self, task: Task) -> bool:
        """Cancel a loose task; False if it has ended."""
        if self.tasks.pop(task.id, None) is None:
            return task.cancelled()
        self.progress.moved(task.group, task._state == RUNNING, _S.CANCELLED, 1)
        task._end(None, CANCELLED)
        self._tell(Cancel(task.dep()))
        return True

    def cancelled_elements(self, array: Elements, ranges: Sequence[Range]) -> None:
        """Elements were cancelled here: the server must know."""
        for start, stop in ranges:
            self._tell(Cancel(Dep(On.TASK, array.record, start), stop))
        self.forget_ended(array)

    def cancelled_array(self, array: Elements) -> None:
        """A whole array was cancelled here: the server must know."""
        self._tell(Cancel(Dep(On.ARRAY, array.record)))
        self.forget_ended(array)

    def kill(self, target: Dep, stop: int = 0) -> None:
        """End running attempts."""
        self._tell(Kill(target, stop))

    def _tell(self, action: Cancel | Kill) -> None:
        connection = self.connection
        if connection is None or connection.ended.is_set():
            return
        try:
            connection.act(action)
        except BoughError:
            return  # the server is gone, and the tasks with it

    def explain(self, record: int, index: int) -> list[str]:
        """The server's answer to why a task is where it is."""
        return self._connected().ask(questions.Explain(RecordId(record), index))

    def read_output(self, record: int, index: int, name: str, stream: Stream | None) -> bytes:
        """A task's own part of an output file, which may lie where the server, but not this process, can read it."""
        if stream is None or not stream.length or self.read_remote_output is None:
            return read_stream_bytes(stream)
        return self.read_remote_output(record, index, name, stream)

    def may_wait(self) -> None:
        """Refuse to wait in the thread that brings what would be waited for."""
        if self.connection is not None:
            self.connection.may_wait()

    def will_sleep(self) -> None:
        """A caller is going to wait without reading: the reader's own thread must read."""
        if self.connection is not None:
            self.connection.will_sleep()

    def _connected(self) -> Connection:
        if self.connection is None:
            raise UserError("the session is not open")
        return self.connection

    # --- failures that were not looked at -------------------------------------------------------------

    def _note(self, message: TasksFailed, name: str, news: Sequence[Range], *, is_array: bool) -> None:
        failure = message.failure
        if failure.cause in _NO_FAILURE:
            return
        with self._looking:
            entries = self._unseen.setdefault(message.record, {})
            entries.update({start: (stop, message, name, is_array) for start, stop in news})
        if ending_state(failure) is _S.FAILED:
            for start, stop in news:
                self.progress.failed(_line((stop, message, name, is_array), start), stop - start)

    def looked_at(self, record: int, index: int) -> None:
        """A caller saw how this task failed."""
        if record not in self._unseen:
            return
        with self._looking:
            entries = self._unseen.get(record, {})
            start = index if index in entries else next((a for a, e in entries.items() if a <= index < e[0]), None)
            if start is not None:
                stop, message, name, is_array = entries.pop(start)
                if start < index:
                    entries[start] = (index, message, name, is_array)
                if index + 1 < stop:
                    entries[index + 1] = (stop, message, name, is_array)
            if not entries:
                self._unseen.pop(record, None)

    def looked_at_all(self, record: int) -> None:
        """A caller saw how the tasks of a record failed."""
        with self._looking:
            self._unseen.pop(record, None)

    def unretrieved(self) -> list[UnseenFailure]:
        """The failures that were not looked at."""
        with self._looking:
            return [
                UnseenFailure(record, start, entry[0], _line(entry, start).text)
                for record, entries in self._unseen.items()
                for start, entry in entries.items()
            ]


def _sleep_alone(
    is_done: Callable[[], bool], sleep: Callable[[float | None], bool], timeout: float | None = None
) -> bool:
    """Wait for a task without a connection."""
    return sleep(timeout)


_Unseen = tuple[int, TasksFailed, str, bool]  # where the range stops, how it failed, the record's name, is it an array


def _line(unseen: _Unseen, start: int) -> FailureLine:
    """A failure as it is shown."""
    stop, message, name, is_array = unseen
    failure = message.failure
    label = _label(message.record, start, stop, name, is_array=is_array)
    return FailureLine(
        label,
        _describe(failure, label),
        time.time(),
        failure.cause.value,
        failure.exit_code,
        failure.signal,
        message.host,
        message.attempt,
        failure.stderr,
    )


def _label(record: int, start: int, stop: int, name: str, *, is_array: bool) -> str:
    number = f"{record}"
    if is_array:
        number += f".{start}" if stop - start == 1 else f".{start}-{stop - 1}"
    return f"task {number} ({name})" if name else f"task {number}"


def _describe(failure: Failure, label: str) -> str:
    if ending_state(failure) is _S.SKIPPED:
        return f"{label} was not run: {failure.message or failure.cause.value}"
    last = last_line(failure.stderr)
    return f"{label}: {what_happened(failure)}{': ' + last if last else ''}"
