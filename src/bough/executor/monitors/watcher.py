"""The watcher: one process per executor, which watches all of its tasks that want it.

It runs at a low priority and sleeps unless something is written, a time has come or the executor says something. What
was written is read in rounds of some tens of milliseconds, so that a busy file costs as much as its bytes and not as
its writes. It never skips a line: when tasks write faster than it reads, it is late, and says so.

Rules: in the shared memory stands whose code runs, before it runs. It dies with its executor.
"""

from __future__ import annotations

import heapq
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from functools import partial

from bough.errors import BadValue
from bough.executor.host.processes import give_way, groups_memory
from bough.executor.monitors.code_timer import CodeTimer
from bough.executor.monitors.custom_runner import CustomRunner
from bough.executor.monitors.evaluation.conditions import NEVER
from bough.executor.monitors.evaluation.engine import Engine
from bough.executor.monitors.executables import Executables
from bough.executor.monitors.followed_files import FileFollower
from bough.executor.monitors.task_watch import Surroundings, TaskWatch
from bough.executor.monitors.watcher_protocol import (
    JUDGED,
    MONITOR,
    PLAN,
    SINCE,
    TASK,
    DrainTask,
    ForgetTask,
    HearReported,
    PlanState,
    TaskDrained,
    TaskSeen,
    ToWatcher,
    WatchMore,
    WatchTask,
    to_watcher_frames,
)
from bough.model.ids import BlobId
from bough.model.monitoring.monitors import ENDING, SendSignal, WatchPlan, decode_plan
from bough.model.monitoring.observations import MOST_OBSERVATIONS, Observation, Trouble
from bough.wire.client_messages import Blob
from bough.wire.framing import frame

_ROUND = (0.02, 0.05)  # seconds from one reading of files to the next: at least, at most
_NICE = 15  # lower priority than tasks by so much
_TURN = 0.0001  # seconds that it runs at a time while others want to
_MEMORY = 1.0  # seconds between looks at the memory that tasks use
_LATE = 10.0  # seconds behind after which it is said
_IN = select.EPOLLIN


def be_watcher(sock: socket.socket, cells: memoryview[int]) -> None:
    """In a helper process of the executor: watch until it ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # programs that it starts must not ignore it
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # what functions of users print
    give_way(_NICE, _TURN)
    Watcher(sock, cells).run()


class Watcher:
    """See the module."""

    def __init__(self, sock: socket.socket, cells: memoryview[int]) -> None:
        self._sock = sock
        self._cells = cells
        self._timer = CodeTimer()
        self._frames = to_watcher_frames()
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[float], object]] = {}
        self._offset = time.time() - time.monotonic()  # one clock that never jumps
        files = FileFollower()
        self._around = Surroundings(
            files,
            CustomRunner(self._watch, self._unwatch),
            Executables(self._watch, self._unwatch),
            self._clock,
        )
        self._tasks: dict[int, TaskWatch] = {}
        self._plans: dict[BlobId, WatchPlan | str] = {}  # a text: what is wrong with it
        self._dirty: dict[int, TaskWatch] = {}  # something may be there to be told
        self._timers: list[tuple[float, int]] = []
        self._set: dict[int, float] = {}  # the earliest timer of each task
        self._draining: dict[int, TaskWatch] = {}
        self._with_memory: dict[int, TaskWatch] = {}
        self._next_memory = NEVER
        self._behind_since = NEVER
        self._watch(sock.fileno(), self._hear)
        if files.inotify.fileno() >= 0:
            self._epoll.register(files.inotify.fileno(), _IN | select.EPOLLONESHOT)

    def _clock(self) -> float:
        return time.monotonic() + self._offset

    def _watch(self, descriptor: int, handler: Callable[[float], object]) -> None:
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, _IN)

    def _unwatch(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def run(self) -> None:
        """Watch."""
        files = self._around.files
        notices = files.inotify.fileno()
        next_round, is_told = 0.0, False  # `is_told`: the kernel has something to tell, which waits for the next round
        while True:
            now = self._clock()
            wait = self._next_due() - now
            if is_told:
                wait = min(wait, next_round - now)
            if files.is_behind or self._draining:
                wait = 0.0
            for descriptor, _ in self._epoll.poll(min(max(0.0, wait), 3600.0)):
                if descriptor == notices:
                    is_told = True
                elif descriptor in self._handlers:
                    self._handlers[descriptor](self._clock())
            now = self._clock()
            if is_told and now >= next_round:
                files.hear()
                self._epoll.modify(notices, _IN | select.EPOLLONESHOT)
                is_told = False
                files.read_some(now)
                spent = self._clock() - now
                next_round = now + min(max(_ROUND[0], 2 * spent), _ROUND[1])
            elif files.is_behind:
                files.read_some(now)
            self._cells[JUDGED] = files.judged  # whoever waits for the end of a task sees that it is not in vain
            self._notice_lateness(now)
            self._by_the_clock(now)
            self._tell_all()

    # --- what the executor says ---

    def _hear(self, _now: float) -> None:
        data = self._sock.recv(1 << 18)
        if not data:
            os._exit(0)
        for message in self._frames.feed(data):
            self._on_message(message)

    def _on_message(self, message: ToWatcher) -> None:
        match message:
            case Blob():
                try:
                    self._plans[message.id] = decode_plan(message.data)
                except BadValue as error:
                    self._plans[message.id] = str(error)
            case WatchTask():
                task = TaskWatch(message.task, message.place, message.started, self._around, self._mark)
                self._tasks[message.task] = task
                for state in message.plans:
                    self._add_plan(task, state, message.started)
            case DrainTask():
                self._drain(message)
            case _ if message.task in self._tasks:
                self._on_watched(self._tasks[message.task], message)

    def _on_watched(self, task: TaskWatch, message: WatchMore | HearReported | ForgetTask) -> None:
        """Something about a task that is watched."""
        match message:
            case WatchMore():
                self._add_plan(task, message.plan, self._clock())
            case HearReported():
                task.hear_reported(message.lines, message.skipped, message.plan)
            case ForgetTask():
                task.forget()
                self._drop(message.task)

    def _drain(self, order: DrainTask) -> None:
        task = self._tasks.get(order.task)
        if task is None:
            self._send(TaskDrained(order.task))
            return
        task.drain(order.stdout, order.stderr)
        self._draining[order.task] = task

    def _add_plan(self, task: TaskWatch, state: PlanState, since: float) -> None:
        plan = self._plans.get(state.plan, "they did not arrive")
        if isinstance(plan, str):
            trouble = Trouble(self._clock(), "", f"its monitors cannot be used: {plan}"[:2000])
            self._send(TaskSeen(task.task, task.plans, [trouble], [], {}))
            plan = WatchPlan()

        def make(number: int) -> Engine:
            return Engine(
                plan,
                since,
                progress=state.progress,
                told=state.told,
                aside=state.aside,
                inside=partial(self._inside, task.task, number),
            )

        task.add(plan, make)
        if task.wants_memory:
            self._with_memory[task.task] = task
            self._next_memory = min(self._next_memory, self._clock() + _MEMORY)

    def _inside(self, task: int, plan: int, monitor: int) -> None:
        """Show whose code runs now."""
        cells = self._cells
        if monitor < 0:
            self._timer.stop()
            cells[SINCE] = 0
        else:
            cells[TASK], cells[PLAN], cells[MONITOR] = task, plan, monitor
            cells[SINCE] = time.monotonic_ns()
            self._timer.start()

    def _drop(self, number: int) -> None:
        for table in (self._tasks, self._dirty, self._draining, self._with_memory, self._set):
            table.pop(number, None)

    # --- by the clock ---

    def _next_due(self) -> float:
        due = min(self._around.functions.due, self._around.programs.due, self._around.files.next_look)
        if self._with_memory:
            due = min(due, self._next_memory)
        return min(due, self._timers[0][0]) if self._timers else due

    def _by_the_clock(self, now: float) -> None:
        around = self._around
        while self._timers and self._timers[0][0] <= now:
            due, number = heapq.heappop(self._timers)
            if self._set.get(number) == due:
                del self._set[number]
                self._tasks[number].tick(now)
                self._mark(self._tasks[number])
        if around.functions.due <= now:
            around.functions.check(now)
        if around.programs.due <= now:
            around.programs.check(now)
        if around.files.next_look <= now:
            around.files.look(now)
        if self._with_memory and self._next_memory <= now:
            self._next_memory = now + _MEMORY
            used = groups_memory({task.place.group for task in self._with_memory.values()})
            for number, task in list(self._with_memory.items()):
                task.memory_is(used.get(task.place.group, 0))
                if not task.wants_memory:
                    self._with_memory.pop(number, None)

    def _notice_lateness(self, now: float) -> None:
        """Say so, once, to tasks that write faster than is read."""
        files = self._around.files
        if not files.is_behind:
            self._behind_since = NEVER
        elif self._behind_since == NEVER:
            self._behind_since = now
        elif now - self._behind_since > _LATE:
            self._behind_since = NEVER
            for task in self._tasks.values():
                if not task.is_drained() and not task.is_late:
                    task.is_late = True
                    message = f"it writes faster than is read; monitors have been late for {_LATE:g} s"
                    self._send(TaskSeen(task.task, 0, [Trouble(now, "", message)], [], {}))

    # --- what is told ---

    def _mark(self, task: TaskWatch) -> None:
        self._dirty[task.task] = task

    def _tell_all(self) -> None:
        while self._dirty:
            number, task = self._dirty.popitem()
            self._tell(task)
            due = task.due
            if due < self._set.get(number, NEVER):
                self._set[number] = due
                heapq.heappush(self._timers, (due, number))
        if self._draining:
            for number, task in list(self._draining.items()):
                if task.is_drained():
                    task.finish()
                    self._tell(task)
                    self._send(TaskDrained(number))
                    self._drop(number)

    def _tell(self, task: TaskWatch) -> None:
        for found in task.take():
            progress = {firing.progress.monitor: firing.progress for firing in found.firings}
            signals = [firing.action.number for firing in found.firings if isinstance(firing.action, SendSignal)]
            ending = next((firing for firing in found.firings if isinstance(firing.action, ENDING)), None)
            parts = _parts(found.observations)
            for part in parts[:-1]:
                self._send(TaskSeen(task.task, found.plan, part, [], {}))
            self._send(
                TaskSeen(
                    task.task,
                    found.plan,
                    parts[-1],
                    list(progress.values()),
                    task.told(found.plan),
                    found.aside,
                    signals,
                    ending.action if ending is not None and isinstance(ending.action, ENDING) else None,
                    ending.fired if ending is not None else None,
                )
            )

    def _send(self, message: TaskSeen | TaskDrained) -> None:
        self._sock.sendall(frame(message))


def _parts(observations: list[Observation]) -> list[list[Observation]]:
    """Observations in as many as one message may have; at least one, which may be empty."""
    return [observations[at : at + MOST_OBSERVATIONS] for at in range(0, len(observations), MOST_OBSERVATIONS)] or [[]]
