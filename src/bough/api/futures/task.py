"""A task as users hold it: a `concurrent.futures.Future` that costs little.

A stock future makes a condition, two lists and a dictionary at once. Here the first caller that needs one of them
makes them (`_Sync`), because most tasks of a big workload are never waited for singly. What a task that failed
raises is said in `endings`.

Rule: while a task has no `_Sync`, its state changes under the one module lock, in which a `_Sync` is also made. Once
it has one, its state changes under that condition only. So a thread that holds the condition sees the final state or
is woken by it; `concurrent.futures.wait` and `as_completed`, which hold `_condition` and touch `_waiters` and
`_state`, work unchanged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from bough.api.futures import observed
from bough.api.futures.completed import Completed, detail_of, load_results
from bough.api.futures.endings import ending_lines, ending_of, exception_of
from bough.errors import NotPicklable
from bough.model.arrays.array_indices import task_label
from bough.model.ids import number_of
from bough.model.outcomes import Detail, Results, Stream
from bough.model.tasks import Dep, On
from bough.model.texts.terminal_text import harmless_name
from bough.wire.client_messages import TasksFailed, TasksObserved, TasksRunning, TasksSucceeded

if TYPE_CHECKING:
    from bough.api.communicator import Communicator
    from bough.api.futures.observed import Emission, Point, TaskProgress
    from bough.api.futures.progress import Progress
    from bough.model.monitoring.monitors import Fail, Finish
    from bough.model.monitoring.observations import Fired, SeenTask
    from bough.monitors import Metric, Monitor, Remote
    from bough.wire.questions import Probe, ProbeReply

PENDING, RUNNING, FINISHED, CANCELLED = "PENDING", "RUNNING", "FINISHED", "CANCELLED_AND_NOTIFIED"
_OVER = frozenset({FINISHED, CANCELLED, "CANCELLED"})
_TASK = On.TASK
_TOGETHER = 256  # tasks that end under one hold of the lock
_UNREAD = object()  # the value has not been unpickled yet
_making = threading.Lock()  # guards the making of a `_Sync`, and the states of tasks without one


class Elements(Protocol):
    """What a task asks of the array it is an element of; see `elements.ArrayElements`."""

    record: int
    indices: str  # as its submitter wrote them, see `model.arrays.array_indices`
    left: int  # elements that have not ended
    is_open: bool  # more may come
    is_command: bool
    kept: dict[int, Task]  # tasks that must not be forgotten before they have ended

    def writes(self, index: int) -> dict[str, str]:
        """Declared outputs of an element by slot."""

    def command(self, index: int) -> str:
        """The text of an element's command."""

    def page(self, message: TasksSucceeded) -> Sequence[Any]:
        """The values that a message holds."""

    def error_of(self, message: TasksFailed) -> BaseException | None:
        """An exception that did not come from an executor."""

    def cancel(self, indices: Sequence[int]) -> Any:
        """Cancel elements."""


class Home(Protocol):
    """What tasks and arrays ask of the session they belong to; see `task_registry.TaskRegistry`."""

    progress: Progress
    unsent: set[int]  # loose tasks that could not be sent to the server
    deferred: dict[int, Future[None]]  # tasks that wait for futures of others; done once they are with the server
    observers: dict[int, list[Callable[[TasksObserved], None]]]  # by record: who is told what is seen of tasks
    keeps_dropped: bool  # the server goes on with what a script leaves: a dropped iterator cancels nothing

    @property
    def wait(self) -> Callable[[Callable[[], bool], Callable[[float | None], bool], float | None], bool]:
        """Waits until something is true, by reading what the server says or by sleeping; whether it is true."""

    @property
    def is_closed(self) -> bool:
        """Whether the server cannot be asked any more."""

    def may_wait(self) -> None:
        """Refuse to wait in the thread that brings what would be waited for."""

    def will_sleep(self) -> None:
        """A caller is going to wait without reading."""

    def cancel_loose(self, task: Task) -> bool:
        """Cancel a loose task; False if it has ended."""

    def cancelled_elements(self, array: Elements, ranges: Sequence[tuple[int, int]]) -> None:
        """Elements were cancelled here: the server must know."""

    def cancelled_array(self, array: Elements) -> None:
        """A whole array was cancelled here: the server must know."""

    def kill(self, target: Dep, stop: int = 0) -> None:
        """End running attempts."""

    def monitor(self, targets: Iterable[tuple[Dep, int]], monitors: Sequence[object]) -> None:
        """Have tasks watched from now on."""

    def rule(self, target: Dep, rule: object) -> None:
        """Let a rule decide which tasks of an array or a group need not go on."""

    def seen(self, record: int, start: int, stop: int) -> list[SeenTask]:
        """What was seen of elements [start, stop) of a record: of each its attempts in order."""

    def probe(self, question: Probe) -> ProbeReply:
        """Ask a running task something."""

    def end_early(self, target: Dep, verdict: Finish | Fail, reason: str) -> int:
        """End running attempts with a verdict, as a monitor does; how many."""

    def explain(self, record: int, index: int) -> list[str]:
        """Why a task is where it is."""

    def seen_lines(self, record: int, index: int) -> list[str]:
        """What monitors and metrics saw of a task, for people."""

    def state(self, record: int, index: int) -> str:
        """The state of a task that has not started, as far as this process has heard."""

    def read_output(self, record: int, index: int, name: str, stream: Stream | None) -> bytes:
        """A task's own part of an output file."""

    def written_by(self, record: int, index: int, name: str) -> bytes:
        """What a task has written that runs, or was ended from outside."""

    def looked_at(self, record: int, index: int) -> None:
        """The caller has seen how this task failed."""

    def looked_at_all(self, record: int, *, for_good: bool = False) -> None:
        """The caller has seen how the tasks of a record failed; `for_good`: it wants to know of no more of them."""


class _Sync:
    """What a task has once a caller waits for it."""

    __slots__ = ("callbacks", "condition", "waiters")

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiters: list[Any] = []
        self.callbacks: list[Callable[[Any], object]] = []


class Task(Future[Any]):
    """One command line or function call; `result()` is the function's value, or a `Completed`.

    Tasks are made by a session. `id` is the number that people use, `index` its place when it is one of an array;
    `record` is what the server knows it by.
    """

    __slots__ = (
        *("_array", "_command", "_error", "_registry", "_message", "_results", "_state", "_sync", "_value"),
        *("group", "index", "name", "record", "writes"),
    )

    def __init__(
        self,
        registry: Home,
        record: int,
        name: str = "",
        group: int = 0,
        *,
        index: int = 0,
        array: Elements | None = None,
        command: str = "",
        writes: Mapping[str, str] | None = None,
    ) -> None:
        self._registry = registry
        self._array = array
        self._state = PENDING
        self._sync: _Sync | None = None
        self._message: TasksRunning | TasksSucceeded | TasksFailed | None = None
        self._results: Results = None  # what `_value` is read from, if the message does not hold it
        self._value: Any = _UNREAD
        self._error: BaseException | None = None
        self.record = record
        self.group = group
        self.index = index
        self.name = name
        self._command = command
        self.writes = writes  # output slots and their paths, of a loose command; None: a function

    # --- what Future keeps in attributes ------------------------------------------------------------

    def _synced(self) -> _Sync:
        sync = self._sync
        if sync is None:
            with _making:
                sync = self._sync
                if sync is None:
                    sync = self._sync = _Sync()
        return sync

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._synced().condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        self._registry.will_sleep()
        return self._synced().waiters

    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]:
        self._registry.will_sleep()
        return self._synced().callbacks

    # --- looking ------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        """Its number, which people use: 1, 2, 3 in each workflow; for one of an array, that of the array."""
        return number_of(self.record)

    @property
    def state(self) -> str:
        """One of waiting, held, ready, running, done, failed, skipped, cancelled.

        The server is asked about a task that has not started; `counts()` of arrays and groups call all these waiting.
        """
        if self._state == PENDING:
            return self._registry.state(self.record, self.index)
        return self.known_state

    @property
    def known_state(self) -> str:
        """As `state`, as far as this process has heard: what has not started is waiting."""
        if self._state == PENDING:
            return "waiting"
        if self._state == RUNNING:
            return "running"
        return ending_of(self._message)

    @property
    def attempts(self) -> int:
        """How often it was started, as far as is known here."""
        message = self._heard()
        if isinstance(message, TasksRunning) and not message.attempt:
            return message.ended  # it waits to be tried again
        return message.attempt if message is not None else 0

    @property
    def host(self) -> str:
        """Where it runs or ran; empty while it is not known."""
        message = self._heard()
        return message.host if message is not None else ""

    @property
    def reused(self) -> bool:
        """Whether its result was found in an earlier run."""
        message = self._message
        return isinstance(message, TasksSucceeded) and message.reused

    @property
    def outputs(self) -> dict[str, OutputPath]:
        """Declared outputs of a command by slot; each path knows its task, so it can be given to another one."""
        writes = self.writes if self._array is None else self._array.writes(self.index)
        return {slot: OutputPath(path, self) for slot, path in (writes or {}).items()}

    @property
    def command(self) -> str:
        """The text of a command, as it was submitted; empty for a function."""
        return self._command if self._array is None else self._array.command(self.index)

    @property
    def stdout(self) -> str:
        """What it wrote to standard output, so far if it runs; empty if nothing."""
        return self._written("stdout").decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error, so far if it runs; empty if nothing."""
        return self._written("stderr").decode("utf-8", "replace")

    def _written(self, name: str) -> bytes:
        detail = self._detail()
        if detail is not None:
            return self._output(name, detail.stdout if name == "stdout" else detail.stderr)
        if isinstance(self._message, TasksSucceeded):
            return b""
        return self._registry.written_by(self.record, self.index, name)  # it runs, or was cancelled or killed

    def _output(self, name: str, stream: Stream | None) -> bytes:
        return self._registry.read_output(self.record, self.index, name, stream)

    # --- what was seen of it, if it is watched or reports -------------------------------------------

    def series(self, metric: str = "value") -> list[Point]:
        """The values of a metric so far, as (step, time, value): few of many, the lowest and the highest among them."""
        seen = self._seen()
        return observed.points(seen[-1] if seen else None, metric)

    @property
    def progress(self) -> TaskProgress:
        """How far it is, by the metrics that it prints or reports: step, total, share, and the latest values."""
        seen = self._seen()
        return observed.progress(seen[-1] if seen else None)

    @property
    def tags(self) -> list[str]:
        """The tags that monitors have put on it."""
        return observed.tags(self._seen())

    @property
    def emitted(self) -> list[Emission]:
        """The values that monitors of it have emitted."""
        return observed.emitted(self, self._seen())

    @property
    def fired(self) -> list[Fired]:
        """What fired, when, and on which value; of all attempts."""
        return [fired for seen in self._seen() for fired in seen.fired]

    def _seen(self) -> list[SeenTask]:
        return self._registry.seen(self.record, self.index, self.index + 1)

    def explain(self) -> str:
        """Why it is not running, or how it ended, in a few lines."""
        self._registry.looked_at(self.record, self.index)
        if self._state in _OVER and self._registry.is_closed:  # the server that could be asked is gone
            lines = ending_lines(self._message, label_of(self))
            return "\n".join([*lines, *self._registry.seen_lines(self.record, self.index)])
        return "\n".join(self._registry.explain(self.record, self.index))

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._state in _OVER

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state == CANCELLED

    def running(self) -> bool:
        """Whether an executor said that it is running."""
        return self._state == RUNNING

    def __repr__(self) -> str:
        return f"<{label_of(self)}: {self.known_state}>"

    # --- waiting ------------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Any:
        """The function's value or the command's `Completed`; raises what made it fail."""
        try:
            error = self.exception(timeout)
            if error is not None:
                raise error
            if self._value is _UNREAD:
                self._value = self._read()
            return self._value
        finally:
            del self  # a raised exception's traceback would hold the task, and the task the exception

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What made it fail, or None; raises CancelledError when it was cancelled."""
        if self._state not in _OVER:
            self._wait(timeout)
        if self._state == CANCELLED:
            raise CancelledError(label_of(self))
        message = self._message
        if isinstance(message, TasksFailed):
            self._registry.looked_at(self.record, self.index)
            if self._error is None and self._array is not None:
                self._error = self._array.error_of(message)
            if self._error is None:
                self._error = exception_of(message, label_of(self), is_command=self.is_command)
        return self._error

    def _wait(self, timeout: float | None) -> None:
        if self._array is None:
            ended = self._registry.wait(self.done, self._sleep, timeout)
        else:
            self._registry.may_wait()
            ended = self._sleep(timeout)
        if not ended:
            raise TimeoutError(f"{label_of(self)} has not ended within {timeout} s")

    def _sleep(self, timeout: float | None) -> bool:
        sync = self._synced()
        with sync.condition:
            return sync.condition.wait_for(self.done, timeout)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn(task)` once it has ended; at once if it has."""
        if self._state in _OVER:
            _call(fn, self)
            return
        if self._array is not None:
            self._array.kept[self.index] = self
        super().add_done_callback(fn)
        if self._state in _OVER and self._array is not None:
            self._array.kept.pop(self.index, None)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    # --- acting -------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancel it, running or not; final at once. False if it has ended already."""
        if self._array is None:
            return self._registry.cancel_loose(self)
        self._array.cancel((self.index,))
        return self._state == CANCELLED

    def kill(self) -> None:
        """End the running attempt: the task fails and is not tried again. What is not running is left alone."""
        self._registry.kill(self.dep())

    def monitor(self, *monitors: Monitor | Metric | Remote | str) -> None:
        """Have it watched from now on, also if it runs already. They do not count for its memo key."""
        self._registry.monitor([(self.dep(), 0)], monitors)

    def communicator(self, timeout: float | None = None) -> Communicator:
        """What talks to it while it runs, wherever that is; `timeout`: seconds that a call may wait until it does."""
        from bough.api.communicator import Communicator

        return Communicator(self, timeout)

    def dep(self) -> Dep:
        """This task as a dependency."""
        return Dep(_TASK, self.record, self.index)

    # --- for the registry, which tells a task its story -------------------------------------------------

    def _end(self, message: TasksSucceeded | TasksFailed | None, state: str) -> bool:
        """Enter a final state and wake the callers that wait; False if it was final before."""
        with _making:
            if self._state in _OVER:
                return False
            sync = self._sync
            if sync is None:
                self._message = message
                self._state = state
                return True
        with sync.condition:
            if self._state in _OVER:
                return False
            self._message = message
            self._state = state
            for waiter in sync.waiters:
                if state == CANCELLED:
                    waiter.add_cancelled(self)
                elif isinstance(message, TasksFailed):
                    waiter.add_exception(self)
                else:
                    waiter.add_result(self)
            sync.condition.notify_all()
        for callback in sync.callbacks:
            _call(callback, self)
        if self._array is not None and sync.callbacks:
            self._array.kept.pop(self.index, None)
        return True

    def _fail(self, error: BaseException, message: TasksFailed) -> bool:
        """End with an exception that did not come from an executor."""
        self._error = error
        return self._end(message, FINISHED)

    def _on_running(self, message: TasksRunning) -> None:
        with _making:
            sync = self._sync
            if sync is None:
                self._set_running(message)
                return
        with sync.condition:
            self._set_running(message)

    def _set_running(self, message: TasksRunning) -> None:
        if self._state not in _OVER:
            self._message = message
            self._state = RUNNING if message.attempt else PENDING

    # --- reading the message ------------------------------------------------------------------------

    def _heard(self) -> TasksRunning | TasksSucceeded | TasksFailed | None:
        return self._message

    @property
    def is_command(self) -> bool:
        """Whether it is a command and not a function."""
        return self._array.is_command if self._array is not None else self.writes is not None

    def _detail(self) -> Detail | None:
        message = self._message
        if isinstance(message, TasksFailed):
            return message.detail if message.detail is not None and message.detail.index == self.index else None
        if isinstance(message, TasksSucceeded):
            return detail_of(message, self.index)
        return None

    def _read(self) -> Any:
        message = self._message
        assert isinstance(message, TasksSucceeded)
        if self.is_command:
            detail = detail_of(message, self.index) or Detail(self.index)
            return Completed(self.command, detail, self.outputs, self._output)
        if self._array is not None:
            return self._array.page(message)[self.index - message.start]
        results = self._results
        if results is None:
            results = message.results
        if results is None and self._value is not _UNREAD:
            return self._value  # another thread has read it meanwhile, and dropped the bytes after that
        value = self._value = load_results(results)[0]
        self._message = _without_results(message)
        self._results = None
        return value

    def __reduce__(self) -> Any:
        raise NotPicklable(
            f"{label_of(self)} cannot travel inside another object;"
            " give the task itself, or a list, tuple or dict of tasks"
        )


def end_together(ended: Sequence[tuple[Task, TasksSucceeded]]) -> None:
    """Tasks succeeded: those that no caller waits for at one go, the others in order, each with its callers."""
    rest = _without_results(ended[0][1])  # most say the same, apart from their results: one will do for all
    for at in range(0, len(ended), _TOGETHER):
        waited: list[tuple[Task, TasksSucceeded]] = []
        with _making:
            for pair in ended[at : at + _TOGETHER]:
                task, message = pair
                if task._sync is None and task._state not in _OVER:
                    if message.details or task.writes is not None:
                        task._message = message
                    else:
                        if (
                            message.host != rest.host
                            or message.attempt != rest.attempt
                            or message.reused is not rest.reused
                        ):
                            rest = _without_results(message)
                        task._results = message.results
                        task._message = rest
                    task._state = FINISHED
                else:
                    waited.append(pair)
        for task, message in waited:
            task._end(message, FINISHED)


def _without_results(message: TasksSucceeded) -> TasksSucceeded:
    """The same message without the bytes that have been read; tasks of which no more is known share one."""
    if message.details:
        return msgspec.structs.replace(message, results=None)
    same = (message.attempt, message.host, message.reused)
    found = _shared.get(same)
    if found is None:
        if len(_shared) >= 1000:
            _shared.clear()
        found = _shared[same] = msgspec.structs.replace(message, results=None)
    return found


_shared: dict[tuple[int, str, bool], TasksSucceeded] = {}  # of no record in particular


def _call(fn: Callable[[Any], object], task: Task) -> None:
    """Call a callback as `concurrent.futures` does: what it raises is logged and goes no further."""
    try:
        fn(task)
    except Exception:
        import logging

        logging.getLogger("concurrent.futures").exception("exception calling callback for %r", task)


class OutputPath(str):
    """The path of a task's declared output; given to another command it brings the dependency along."""

    __slots__ = ("task",)

    task: Any

    def __new__(cls, path: str, task: Any) -> Self:
        """Make a path that knows the task that makes the file."""
        self = super().__new__(cls, path)
        self.task = task
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:  # elsewhere it is a plain path
        return str, (str(self),)


def label_of(task: Task) -> str:
    """A task's name in messages, as in "task 12 (plot)" or "task 7.3 (align)"."""
    array = task._array
    number = str(task.id) if array is None else task_label(task.record, task.index, array.indices)
    return f"task {number} ({harmless_name(task.name)})" if task.name else f"task {number}"
