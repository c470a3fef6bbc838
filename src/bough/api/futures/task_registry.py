"""The session's table of tasks: which task or array each message of the server is for.

Loose tasks are held here until they end. Taking one out of `tasks` decides which thread ends it: the one that read of
its end, or the caller that cancels it.

Rule: counts change before callers that wait for a task wake, so that these see them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bough.api.futures.completed import read_kept, read_seen, read_stream_bytes
from bough.api.futures.elements import ArrayElements, Range
from bough.api.futures.endings import ending_state, last_line, what_happened
from bough.api.futures.feed_elements import FeedElements
from bough.api.futures.progress import ASIDE, FailureLine, Progress
from bough.api.futures.task import CANCELLED, FINISHED, RUNNING, Elements, Task, end_together
from bough.errors import BoughError, NotPicklable, UserError, WrongType
from bough.model.arrays.array_indices import range_label
from bough.model.bounds import MOST
from bough.model.events.news import AddMonitors, Cancel, EndEarly, Kill, PagesAdded, SetRule
from bough.model.ids import RecordId, number_of
from bough.model.monitoring.monitors import Fail, Finish
from bough.model.outcomes import Cause, Failure, Stream
from bough.model.states import TaskState
from bough.model.tasks import ArraySpec, Dep, Item, On, TaskSpec
from bough.model.texts.terminal_text import harmless_name
from bough.wire import questions
from bough.wire.client_messages import TasksFailed, TasksObserved, TasksRunning, TasksSucceeded, ToClient

if TYPE_CHECKING:
    from bough.api.client.connection import Connection
    from bough.api.remote_monitors import RemoteMonitors
    from bough.api.values.argument_values import ArgumentValues
    from bough.model.monitoring.observations import SeenTask

OUTPUT_PIECE = 4 << 20  # bytes of what a task wrote that are asked for at a time
_S = TaskState
_NO_FAILURE = frozenset({Cause.CANCELLED, Cause.CLOSED})


class Unseen(NamedTuple):
    """How elements from some index to `stop` failed, and the task or array that they are of."""

    stop: int
    message: TasksFailed
    owner: Task | ArrayElements

    @property
    def is_array(self) -> bool:
        """Whether it is of an array."""
        return not isinstance(self.owner, Task)

    def label(self, start: int) -> str:
        """As in "task 12 (plot)" or "task 7.3-5 (align)"; `start` is the first element."""
        return _label(self.message.record, start, self.stop, self.owner)

    def command(self, start: int) -> str:
        """The text of the first one's command; empty for a function, or if it cannot be told any more."""
        try:
            return self.owner.command if isinstance(self.owner, Task) else self.owner.command(start)
        except Exception:  # noqa: BLE001 - values of a row are the user's objects
            return ""


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
        self.values: ArgumentValues | None = None  # the big buffers of arguments, if there are some
        self.listeners: list[Callable[[Sequence[ToClient]], None]] = []  # hear all that the server says of tasks
        self.store = ""  # of an embedded session, which can be read when its server has ended
        self.progress = Progress()
        self.tasks: dict[int, Task] = {}  # loose, not ended
        self.arrays: dict[int, ArrayElements] = {}  # with elements that have not ended
        self.keeps_dropped = False  # the server goes on with what a script leaves: a dropped iterator cancels nothing
        self.unsent: set[int] = set()  # loose tasks that could not be sent to the server
        self.deferred: dict[int, Future[None]] = {}  # tasks that wait for others' futures, and are not sent yet
        self.refusals: list[tuple[Item | PagesAdded, BoughError]] = []  # what the server did not take
        self._unseen: dict[int, dict[int, Unseen]] = {}  # failures: record -> start -> what
        self._handled: set[int] = set()  # records with ends that the script knows of: it looked, cancelled or killed
        self._unwanted: set[int] = set()  # arrays of which a failure was raised to a caller that iterated
        self.observers: dict[int, list[Callable[[TasksObserved], None]]] = {}  # by record: who is told what is seen
        self.has_killed = False  # this process killed something
        self._looking = threading.Lock()  # guards `_unseen`

    def connect(self, connection: Connection) -> None:
        """Tell and ask the server by this connection."""
        self.connection = connection
        self.wait = connection.wait

    @functools.cached_property
    def remote_monitors(self) -> RemoteMonitors:
        """Functions that talk to running tasks; made for the first one."""
        from bough.api.remote_monitors import RemoteMonitors

        return RemoteMonitors(self)

    @property
    def has_remote_monitors(self) -> bool:
        """Whether there are such functions."""
        return "remote_monitors" in self.__dict__

    # --- what the server says -----------------------------------------------------------------------

    def on_messages(self, messages: Sequence[ToClient]) -> None:
        """Pass on what happened to tasks, in order; successes of loose tasks, many in a row, together."""
        for listener in self.listeners:
            listener(messages)
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
            elif isinstance(message, TasksRunning | TasksObserved):
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
        if self.values is not None:
            for task, _ in ended:
                self.values.succeeded(task.record)
        end_together(ended)

    def _elements_succeeded(self, message: TasksSucceeded) -> None:
        array = self.arrays.get(message.record)
        if array is not None:
            news = array.on_ended(message)
            if message.reused:
                self.progress.reused += sum(stop - start for start, stop in news)
            if self.values is not None:
                self.values.succeeded(message.record, message.start, message.stop)
            self.forget_ended(array)

    def _failed(self, message: TasksFailed) -> None:
        if message.failure.cause is Cause.CANCELLED:
            self._cancelled(message)
            return
        state = ending_state(message.failure)
        task = self.tasks.pop(message.record, None)
        if task is not None:
            self._note(message, task, [(0, 1)])
            self.progress.moved(task.group, task._state == RUNNING, state, 1)
            task._end(message, FINISHED)
            return
        array = self.arrays.get(message.record)
        if array is not None:
            array.on_ended(message, lambda news: self._note(message, array, news))
            self.forget_ended(array)

    def _cancelled(self, message: TasksFailed) -> None:
        """It was cancelled elsewhere: by `bough cancel`, or with its group."""
        self._handled.add(message.record)
        if self.values is not None:
            self.values.succeeded(message.record, message.start, message.stop)
        task = self.tasks.pop(message.record, None)
        if task is not None:
            self.progress.moved(task.group, task._state == RUNNING, _S.CANCELLED, 1)
            task._end(None, CANCELLED)
            return
        array = self.arrays.get(message.record)
        if array is not None:
            array.on_ended(message)
            self.forget_ended(array)

    def _runs(self, message: TasksRunning | TasksObserved) -> None:
        if isinstance(message, TasksObserved):
            for listener in list(self.observers.get(message.record, ())):
                listener(message)
            return
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
            self._end_all([], [item.record], error, noted=True)
        elif isinstance(item, TaskSpec):
            self._end_all([item.id], [], error, noted=True)
        elif isinstance(item, ArraySpec):
            self._end_all([], [item.id], error, noted=True)

    def not_sent(self, task: Task, error: BoughError) -> None:
        """A loose task could not be sent to the server: it fails here."""
        cause = Cause.UNSENDABLE if isinstance(error, NotPicklable) else Cause.DEPENDENCY
        message = TasksFailed(RecordId(task.record), 0, 1, 0, Failure(cause, str(error)))
        self.unsent.add(task.record)
        self.progress.added(task.group, 1)
        self._note(message, task, [(0, 1)])
        self.progress.moved(task.group, False, ending_state(message.failure), 1)
        task._fail(error, message)

    def lost(self, error: BoughError | None) -> None:
        """The server is gone: nothing that has not ended will. Without an error it was closed in good order."""
        self._end_all(list(self.tasks), list(self.arrays), error)

    def _end_all(self, tasks: list[int], arrays: list[int], error: BoughError | None, *, noted: bool = False) -> None:
        """End tasks and arrays; `noted`: as failures that somebody must look at."""
        text = str(error) if error is not None else "the session was closed before it ran"
        failure = Failure(Cause.CLOSED if error is None else Cause.LOST, text)
        state = _S.SKIPPED if error is None else _S.FAILED
        for record in tasks:
            task = self.tasks.pop(record, None)
            if task is not None:
                self.progress.moved(task.group, task._state == RUNNING, state, 1)
                message = TasksFailed(RecordId(task.record), 0, 1, 0, failure)
                if noted:
                    self._note(message, task, [(0, 1)])
                if error is None:
                    task._end(message, FINISHED)
                else:
                    task._fail(error, message)
        for record in arrays:
            array = self.arrays.pop(record, None)
            if array is not None:
                array.error = error
                array.close()
                message = TasksFailed(RecordId(array.record), 0, len(array.states), 0, failure)
                array.on_ended(message, partial(self._note, message, array) if noted else None)

    # --- what users do --------------------------------------------------------------------------------

    def cancel_loose(self, task: Task) -> bool:
        """Cancel a loose task; False if it has ended."""
        if self.tasks.pop(task.record, None) is None:
            return task.cancelled()
        self._handled.add(task.record)
        if self.values is not None:
            self.values.succeeded(task.record)
        self.progress.moved(task.group, task._state == RUNNING, _S.CANCELLED, 1)
        is_sent = task.record not in self.deferred
        task._end(None, CANCELLED)
        if is_sent:
            self._tell(Cancel(task.dep()))
        return True

    def cancelled_elements(self, array: Elements, ranges: Sequence[Range]) -> None:
        """Elements were cancelled here: the server must know."""
        self._handled.add(array.record)
        for start, stop in ranges:
            self._tell(Cancel(Dep(On.TASK, array.record, start), stop))
            if self.values is not None:
                self.values.succeeded(array.record, start, stop)
        self.forget_ended(array)

    def cancelled_array(self, array: Elements) -> None:
        """A whole array was cancelled here: the server must know."""
        self._handled.add(array.record)
        self._tell(Cancel(Dep(On.ARRAY, array.record)))
        if self.values is not None:
            self.values.succeeded(array.record, 0, MOST)
        self.forget_ended(array)

    def kill(self, target: Dep, stop: int = 0) -> None:
        """End running attempts."""
        self.has_killed = True
        self._tell(Kill(target, stop))

    def monitor(self, targets: Iterable[tuple[Dep, int]], monitors: Sequence[object]) -> None:
        """Have tasks watched from now on: there by a plan that is sent, or here by functions that talk to them."""
        from bough.api.submit.task_options.monitor_options import read_monitors
        from bough.monitors import Remote

        targets = list(targets)
        watching = read_monitors([one for one in monitors if not isinstance(one, Remote)])
        for one in monitors:
            if isinstance(one, Remote):
                self.remote_monitors.watch(targets, one)
        if watching is None:
            return
        connection = self._connected()
        for target, stop in targets:
            if (sent := self.deferred.get(target.id)) is not None:
                sent.result()
            connection.put_blob(*watching.blob, "the monitors")
            connection.act_and_wait(AddMonitors(target, watching.id, stop))

    def rule(self, target: Dep, rule: object) -> None:
        """Let a rule decide which tasks of an array or a group need not go on; None: no rule any more."""
        from bough.monitors.comparison import Rule

        if rule is not None and not isinstance(rule, Rule):
            raise WrongType(f"{rule!r:.60} is no rule; give one of bough.monitors.comparison, such as Halving")
        if rule is not None and rule.metric is not None:
            self.monitor([(target, 0)], [rule.metric])
        if (sent := self.deferred.get(target.id)) is not None:
            sent.result()
        self._connected().act_and_wait(SetRule(target, rule.rule if rule is not None else None))

    def seen(self, record: int, start: int, stop: int) -> list[SeenTask]:
        """What was seen of elements of a record; more than fits into one answer is asked for in pieces."""
        connection = self._connected()
        if connection.ended.is_set():
            return read_seen(self.store, record, start, stop) if self.store else []
        try:
            return connection.ask(questions.Observations(RecordId(record), start, stop))
        except UserError:
            if stop - start < 2:
                raise
        middle = (start + stop) // 2
        return [*self.seen(record, start, middle), *self.seen(record, middle, stop)]

    def _tell(self, action: Cancel | Kill) -> None:
        connection = self.connection
        if connection is None or connection.ended.is_set():
            return
        try:
            connection.act(action)
        except BoughError:
            return  # the server is gone, and the tasks with it

    def end_early(self, target: Dep, verdict: Finish | Fail, reason: str) -> int:
        """End running attempts with a verdict, as a monitor does; how many."""
        answer = self._connected().act_and_wait(EndEarly(target, verdict, "remote monitor", reason))
        count = answer.get("tasks", 0) if isinstance(answer, dict) else answer
        return count if isinstance(count, int) else 0

    def probe(self, question: questions.Probe) -> questions.ProbeReply:
        """Ask a running task something."""
        return self._connected().ask(question)

    @property
    def is_closed(self) -> bool:
        """Whether the server cannot be asked any more."""
        return self.connection is None or self.connection.ended.is_set()

    def explain(self, record: int, index: int) -> list[str]:
        """The server's answer to why a task is where it is."""
        if record in self.deferred:
            return [f"task {number_of(record)} waits for futures of another executor or session among its arguments"]
        if record in self.unsent:
            return [f"task {number_of(record)} was never sent: see its exception()"]
        return [*self._connected().ask(questions.Explain(RecordId(record), index)), *self.seen_lines(record, index)]

    def seen_lines(self, record: int, index: int) -> list[str]:
        """What monitors and metrics saw of a task, for people; nothing, if there is nobody to ask."""
        from bough.model.monitoring.observations import seen_lines

        try:
            return seen_lines(self.seen(record, index, index + 1))
        except BoughError:
            return []

    def state(self, record: int, index: int) -> str:
        """The state of a task that has not started, as the server says it; waiting, if the server cannot be asked."""
        connection = self.connection
        if connection is None or connection.ended.is_set() or connection.is_away or connection.is_forked:
            return "waiting"
        try:
            return connection.ask(questions.State(RecordId(record), index))
        except BoughError:  # it ended meanwhile, or does not know the task yet
            return "waiting"

    def read_output(self, record: int, index: int, name: str, stream: Stream | None) -> bytes:
        """A task's own part of an output file, which may lie where the server, but not this process, can read it."""
        if stream is None or not stream.length or self.read_remote_output is None:
            return read_stream_bytes(stream)
        return self.read_remote_output(record, index, name, stream)

    def written_by(self, record: int, index: int, name: str) -> bytes:
        """What a task has written that runs, or was ended from outside: the server knows, or later the store."""
        connection = self._connected()
        if connection.ended.is_set():
            return read_kept(self.store, record, index, name) if self.store else b""
        pieces: list[bytes] = []
        got = 0
        while True:
            question = questions.Output(RecordId(record), index, questions.stream_name(name), got, OUTPUT_PIECE)
            said = connection.ask(question)
            pieces.append(said.data)
            got += len(said.data)
            if said.error or len(said.data) < OUTPUT_PIECE:
                return b"".join(pieces)

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

    def _note(self, message: TasksFailed, owner: Task | ArrayElements, news: Sequence[Range]) -> None:
        failure = message.failure
        if failure.cause in _NO_FAILURE or owner.group == ASIDE:
            return
        noted = [(start, Unseen(stop, message, owner)) for start, stop in news]
        if message.record not in self._unwanted:
            with self._looking:
                self._unseen.setdefault(message.record, {}).update(noted)
        if ending_state(failure) is _S.FAILED:
            for start, unseen in noted:
                self.progress.failed(_line(unseen, start), unseen.stop - start)

    def looked_at(self, record: int, index: int) -> None:
        """A caller saw how this task failed."""
        if record not in self._unseen:
            return
        with self._looking:
            entries = self._unseen.get(record, {})
            start = index if index in entries else next((a for a, e in entries.items() if a <= index < e.stop), None)
            if start is not None:
                unseen = entries.pop(start)
                if start < index:
                    entries[start] = unseen._replace(stop=index)
                if index + 1 < unseen.stop:
                    entries[index + 1] = unseen
                self._handled.add(record)
                self._cause_seen(unseen.message.failure)
            if not entries:
                self._unseen.pop(record, None)

    def _cause_seen(self, failure: Failure) -> None:
        """Whoever sees that a task was not run is told why, so has seen how that one task failed."""
        cause = self._unseen.get(failure.source) if ending_state(failure) is _S.SKIPPED else None
        if cause and not any(unseen.is_array for unseen in cause.values()):
            del self._unseen[failure.source]
            self._handled.add(failure.source)

    def looked_at_all(self, record: int, *, for_good: bool = False) -> None:
        """A caller saw how the tasks of a record failed; `for_good`: it wants to know of no more of them."""
        if for_good:
            self._unwanted.add(record)
        with self._looking:
            if self._unseen.pop(record, None):
                self._handled.add(record)

    @property
    def has_unseen(self) -> bool:
        """Whether there are failures that were not looked at."""
        return bool(self._unseen)

    def unseen(self) -> list[tuple[int, Unseen]]:
        """Failures that the script does not know of: the first element, and what; also what was not run for others.

        What the script killed, and what was not run because of an end that it knows of, is no news to it.
        """
        with self._looking:
            return [
                (start, unseen)
                for entries in self._unseen.values()
                for start, unseen in entries.items()
                if not self._is_known(unseen.message.failure)
            ]

    def _is_known(self, failure: Failure) -> bool:
        if failure.cause is Cause.KILLED:
            return self.has_killed
        return ending_state(failure) is _S.SKIPPED and failure.source in self._handled

    def unretrieved(self) -> list[UnseenFailure]:
        """The failures that were not looked at."""
        with self._looking:
            return [
                UnseenFailure(record, start, entry.stop, _line(entry, start).text)
                for record, entries in self._unseen.items()
                for start, entry in entries.items()
            ]


def _sleep_alone(
    is_done: Callable[[], bool], sleep: Callable[[float | None], bool], timeout: float | None = None
) -> bool:
    """Wait for a task without a connection."""
    return sleep(timeout)


def _line(unseen: Unseen, start: int) -> FailureLine:
    """A failure as it is shown."""
    message = unseen.message
    failure = message.failure
    label = unseen.label(start)
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
        failure.parameters,
        failure.traceback,
        partial(unseen.command, start),
    )


def _label(record: int, start: int, stop: int, owner: Task | ArrayElements) -> str:
    name, array = owner.name, None if isinstance(owner, Task) else owner
    number = str(number_of(record)) if array is None else range_label(record, start, stop - 1, array.indices)
    return f"task {number} ({harmless_name(name)})" if name else f"task {number}"


def _describe(failure: Failure, label: str) -> str:
    if ending_state(failure) is _S.SKIPPED:
        return f"{label} was not run: {failure.message or failure.cause.value}"
    last = last_line(failure.stderr)
    return f"{label}: {what_happened(failure)}{': ' + last if last else ''}"
