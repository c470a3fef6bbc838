"""Remote monitors: functions of the user's that run beside the script, each with a communicator to a running task.

    task.monitor(Remote(watch))      # watch(communicator) is called once the task has started

Those of a group are for all tasks of this script in it and below, also for those that come later. A function is called
once for each task, in a thread, when the task has started, and is done when it returns; a retry does not call it again:
its communicator follows. A task that waits holds no thread; tasks that start while all threads of a monitor are busy
get the next free one. Rules: what a function raises is told on stderr and kept
(`session.monitor_failures()`), and harms no task. A `TaskEnded` that leaves it is its normal end.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bough.api.communicator import Communicator
from bough.errors import PeerLost, SessionClosed, TaskEnded
from bough.model.states import TaskState
from bough.model.tasks import Dep, On
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded, ToClient

if TYPE_CHECKING:
    from bough.api.futures.elements import ArrayElements
    from bough.api.futures.task import Task
    from bough.api.futures.task_registry import TaskRegistry
    from bough.monitors import Remote

MOST_FAILURES = 1000  # that are kept
MOST_TOLD = 10  # on stderr, by one monitor
LAST_CALLS = 5.0  # seconds that the end of a session may be delayed


class MonitorFailure(NamedTuple):
    """What a remote monitor's function raised; the task was not harmed."""

    task: Task
    monitor: str
    error: BaseException

    def __str__(self) -> str:
        from bough.api.futures.task import label_of

        return f"{label_of(self.task)}: the remote monitor {self.monitor} failed: {describe(self.error)}"


Place = tuple[int, int]  # record and index of a task


class _Watch:
    """One monitor, what it watches, and its threads; guarded by the lock of `RemoteMonitors`."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.begun: set[Place] = set()  # tasks for which it was called, or will be
        self.ready: dict[Place, None] = {}  # tasks that have started and wait for a thread, in order
        self.threads = 0
        self.told = 0
        self.late = 0  # tasks that ended before there was a thread


class RemoteMonitors:
    """All remote monitors of a session."""

    def __init__(self, registry: TaskRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._watches: dict[int, list[tuple[_Watch, Sequence[int] | None]]] = {}  # by record, with the indexes meant
        self._groups: dict[int, list[_Watch]] = {}  # by group: what watches all tasks in it and below
        self._by_monitor: dict[int, _Watch] = {}
        self._tasks: dict[int, Task] = {}  # loose ones, which may be held here only
        self._arrays: dict[int, ArrayElements] = {}
        self.failures: list[MonitorFailure] = []
        registry.listeners.append(self.on_messages)

    # --- what is watched ------------------------------------------------------------------------------

    def watch(self, targets: Iterable[tuple[Dep, int]], remote: Remote) -> None:
        """Monitor tasks, elements from some index to another, arrays, or groups; what has ended is left out."""
        for target, stop in targets:
            if target.is_group:
                self._watch_group(target.id, remote)
            elif (task := self._registry.tasks.get(target.id)) is not None:
                self._watch_task(task, remote)
            elif (elements := self._registry.arrays.get(target.id)) is not None:
                chosen = None if target.on is On.ARRAY else range(target.index, stop or target.index + 1)
                self._watch_elements(elements, chosen, remote)

    def _watch_group(self, group: int, remote: Remote) -> None:
        """Monitor all tasks in a group and below: those that run now, and each that starts later."""
        registry = self._registry
        with self._lock:
            self._groups.setdefault(group, []).append(self._of(remote))
        for task in list(registry.tasks.values()):
            if task.running() and group in registry.progress.around(task.group):
                self._watch_task(task, remote)
        for elements in list(registry.arrays.values()):
            if group in registry.progress.around(elements.group):
                self._watch_elements(elements, None, remote)

    def _watch_of_groups(self, record: int) -> None:
        """A task starts: what watches the groups around it watches it, too."""
        registry = self._registry
        task, elements = registry.tasks.get(record), registry.arrays.get(record)
        owner = task or elements
        if owner is None:
            return
        around = registry.progress.around(owner.group)
        with self._lock:
            known = [watch for watch, indices in self._watches.get(record, ()) if indices is None]
            missing = [watch for group in around for watch in self._groups.get(group, ()) if watch not in known]
            if missing and task is not None:
                self._tasks[record] = task
            elif missing and elements is not None:
                self._arrays[record] = elements
            for watch in missing:
                self._watches.setdefault(record, []).append((watch, None))

    def _watch_task(self, task: Task, remote: Remote) -> None:
        with self._lock:
            self._tasks[task.record] = task
            watch = self._add(task.record, remote, None)
        if task.running():
            self._start(watch, [(task.record, 0)])

    def _watch_elements(self, elements: ArrayElements, indices: Sequence[int] | None, remote: Remote) -> None:
        """Monitor elements of an array; None: all, also those to come."""
        with self._lock:
            self._arrays[elements.record] = elements
            watch = self._add(elements.record, remote, indices)
        with elements.condition:
            running = list(elements.chosen(indices or range(len(elements.states)), (TaskState.RUNNING,)))
        self._start(watch, [(elements.record, index) for index in running])

    def _add(self, record: int, remote: Remote, indices: Sequence[int] | None) -> _Watch:
        watch = self._of(remote)
        self._watches.setdefault(record, []).append((watch, indices))
        return watch

    def _of(self, remote: Remote) -> _Watch:
        watch = self._by_monitor.get(id(remote))
        if watch is None:
            watch = self._by_monitor[id(remote)] = _Watch(remote)
        return watch

    # --- from the server, in the thread that reads ----------------------------------------------------

    def on_messages(self, messages: Sequence[ToClient]) -> None:
        """Note what starts and ends."""
        for message in messages:
            if not isinstance(message, TasksRunning | TasksSucceeded | TasksFailed):
                continue
            if self._groups and isinstance(message, TasksRunning) and message.attempt:
                self._watch_of_groups(message.record)
            for watch, indices in self._watches.get(message.record, ()):
                if not isinstance(message, TasksRunning):
                    self._forget(watch, message)
                elif message.attempt:
                    self._start(watch, _meant(message, indices))
            if not isinstance(message, TasksRunning) and message.record in self._tasks:
                with self._lock:  # no thread looks for it any more
                    del self._tasks[message.record]
                    self._watches.pop(message.record, None)

    def _start(self, watch: _Watch, places: Sequence[Place]) -> None:
        with self._lock:
            for place in places:
                if place not in watch.begun:
                    watch.begun.add(place)
                    watch.ready[place] = None
            missing = min(len(watch.ready), watch.remote.threads - watch.threads)
            watch.threads += max(0, missing)
        for _ in range(missing):
            threading.Thread(target=self._serve, args=(watch,), name="bough-remote-monitor", daemon=True).start()

    def _forget(self, watch: _Watch, message: TasksSucceeded | TasksFailed) -> None:
        """Tasks ended: those that waited for a thread are not monitored any more."""
        with self._lock:
            for index in range(message.start, message.stop) if watch.begun else ():
                place = (message.record, index)
                if place in watch.begun:
                    watch.begun.discard(place)
                    if place in watch.ready:
                        del watch.ready[place]
                        watch.late += 1

    # --- in threads of their own ----------------------------------------------------------------------

    def _serve(self, watch: _Watch) -> None:
        while True:
            with self._lock:
                if not watch.ready:
                    watch.threads -= 1
                    self._idle.notify_all()
                    return
                record, index = place = next(iter(watch.ready))
                del watch.ready[place]
                task = self._tasks.get(record) or self._arrays[record].task(index)
            self._call(watch, task)

    def _call(self, watch: _Watch, task: Task) -> None:
        try:
            watch.remote.function(Communicator(task))
        except TaskEnded:
            return
        except (PeerLost, SessionClosed) as error:
            if not self._registry.is_closed:  # the session was closed: nothing is monitored any more
                self._failed(watch, task, error)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, it concerns the monitor and not the task
            self._failed(watch, task, error)

    def _failed(self, watch: _Watch, task: Task, error: BaseException) -> None:
        failure = MonitorFailure(task, watch.remote.name, error)
        with self._lock:
            if len(self.failures) < MOST_FAILURES:
                self.failures.append(failure)
            watch.told += 1
            told = watch.told
        if told <= MOST_TOLD:
            more = "; what else it raises is in session.monitor_failures()" if told == MOST_TOLD else ""
            sys.stderr.write(f"bough: {failure}; the task goes on{more}\n")
            sys.stderr.flush()

    # --- the end --------------------------------------------------------------------------------------

    def finish(self, patience: float = LAST_CALLS) -> None:
        """All tasks have ended: let functions return, and say what was not monitored."""
        deadline = time.monotonic() + patience
        with self._lock:
            watches = list(self._by_monitor.values())
            self._idle.wait_for(
                lambda: not any(watch.threads for watch in watches), max(0.0, deadline - time.monotonic())
            )
        for watch in watches:
            if watch.late:
                sys.stderr.write(
                    f"bough: {watch.late} tasks ended before the remote monitor {watch.remote.name} had a thread for"
                    f" them; it has {watch.remote.threads}, see Remote(..., threads=N)\n"
                )
                watch.late = 0
        if self.on_messages in self._registry.listeners:
            self._registry.listeners.remove(self.on_messages)


def _meant(message: TasksRunning, indices: Sequence[int] | None) -> list[Place]:
    return [
        (message.record, index) for index in range(message.start, message.stop) if indices is None or index in indices
    ]


def describe(error: BaseException) -> str:
    """An exception in one line, with the line of the user's code that it came from."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    text = str(error).strip().replace("\n", " ")
    return f"{type(error).__name__}{': ' if text else ''}{text[:300]}{where}"
