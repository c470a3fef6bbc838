"""One command with its monitors, and nothing else: no store, no server, no socket. Behind `bough watchdog`.

What the command writes passes through unchanged, and is judged on its way. A monitor that fires is told in one line on
stderr. Rule: the command is a process group of its own, which gets our signals, and nothing of it is left when a
monitor has ended it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial

from bough.errors import UserError
from bough.executor.host.processes import group_memory, kill_group
from bough.executor.monitors.code_timer import CodeTimer
from bough.executor.monitors.custom_runner import CustomRunner
from bough.executor.monitors.evaluation.conditions import NEVER
from bough.executor.monitors.evaluation.engine import Engine, Firing
from bough.executor.monitors.executables import Executables
from bough.executor.monitors.followed_files import FileFollower
from bough.executor.monitors.task_watch import Surroundings, TaskWatch
from bough.executor.worker.output_streams import sizes_of
from bough.executor.worker_protocol import TaskPlace
from bough.model.monitoring.monitors import (
    ENDING,
    REPORTED,
    Fail,
    Restart,
    SendSignal,
    WatchPlan,
    files_followed,
    places_followed,
)
from bough.model.monitoring.observations import Observation, Trouble, ended_by

FAILED = 1  # the exit code of a command that a monitor has failed
_CHUNK = 1 << 18
_MEMORY = 1.0  # seconds between looks at the memory that it uses
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NOT_FOUND, _NOT_RUN = 127, 126  # exit codes of a shell for what cannot be started

Say = Callable[[str], None]


def watch_command(argv: Sequence[str], plan: WatchPlan, say: Say) -> int:
    """Run a command until it ends or a monitor ends it; the exit code. A monitor may begin it anew."""
    if REPORTED in places_followed(plan):
        raise UserError(
            "a command that has no executor cannot report numbers: watch what it prints, as in "
            "plateau:score=([-0-9.]+),25,1e-4"
        )
    attempt = 1
    while True:
        run = _Run(argv, plan, attempt, say)
        code = run.follow()
        restart = run.ending.action if run.ending is not None else None
        if not isinstance(restart, Restart) or attempt > restart.times:
            return code
        attempt += 1


class _Run:
    """One attempt."""

    def __init__(self, argv: Sequence[str], plan: WatchPlan, attempt: int, say: Say) -> None:
        self._say = say
        self._plan = plan
        self._handlers: dict[int, Callable[[float], object]] = {}
        self._epoll = select.epoll()
        self._kill_at = NEVER
        self._memory_at = NEVER
        self.ending: Firing | None = None  # what ended it
        files = FileFollower()
        self._around = Surroundings(
            files, CustomRunner(self._watch, self._unwatch), Executables(self._watch, self._unwatch), time.time
        )
        sizes = sizes_of(sorted(files_followed(plan)))
        self._process = process = _start(argv, attempt)
        place = TaskPlace(0, 0, attempt, process.pid, os.getcwd(), ("", 0), ("", 0), [], sizes)
        self._task = TaskWatch(0, place, time.time(), self._around, lambda _: None)
        timer = CodeTimer()
        self._task.add(
            plan,
            lambda _: Engine(plan, time.time(), inside=lambda number: timer.start() if number >= 0 else timer.stop()),
            streams=False,
        )
        if self._task.wants_memory:
            self._memory_at = time.time() + _MEMORY
        assert process.stdout is not None
        assert process.stderr is not None
        self._pipes = {"stdout": process.stdout.fileno(), "stderr": process.stderr.fileno()}
        for where, pipe in self._pipes.items():
            os.set_blocking(pipe, False)
            self._watch(pipe, partial(self._pass_on, where, pipe))
        self._pidfd = os.pidfd_open(process.pid)
        self._watch(self._pidfd, lambda _: None)
        if files.inotify.fileno() >= 0:
            self._watch(files.inotify.fileno(), lambda _: files.hear())

    def _watch(self, descriptor: int, handler: Callable[[float], object]) -> None:
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, select.EPOLLIN)

    def _unwatch(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def follow(self) -> int:
        """Watch it to its end; the exit code."""
        handlers = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        try:
            while self._process.poll() is None:
                self._round()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.ending is not None:
            kill_group(self._process.pid)
        for where, pipe in list(self._pipes.items()):
            while pipe in self._handlers and self._pass_on(where, pipe, time.time()):
                pass
        files = self._around.files
        self._task.drain(None, None)
        while not self._task.is_drained():
            files.read_some(time.time())
        self._task.finish()
        self._act()
        self._close()
        if self.ending is not None:
            return FAILED if isinstance(self.ending.action, Fail | Restart) else 0
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def _forward(self, number: int, _frame: object) -> None:
        kill_group(self._process.pid, number)

    def _round(self) -> None:
        around, task = self._around, self._task
        due = min(
            task.due, self._kill_at, self._memory_at, around.functions.due, around.programs.due, around.files.next_look
        )
        wait = 0.0 if around.files.is_behind else min(max(0.0, due - time.time()), 60.0)
        for descriptor, _ in self._epoll.poll(wait):
            if descriptor in self._handlers:
                self._handlers[descriptor](time.time())
        now = time.time()
        around.files.read_some(now)
        if task.due <= now:
            task.tick(now)
        around.functions.check(now)
        around.programs.check(now)
        if around.files.next_look <= now:
            around.files.look(now)
        if self._memory_at <= now:
            self._memory_at = now + _MEMORY if task.wants_memory else NEVER
            task.memory_is(group_memory(self._process.pid))
        if self._kill_at <= now:
            self._kill_at = NEVER
            kill_group(self._process.pid)
        self._act()

    def _pass_on(self, where: str, pipe: int, _now: float) -> bool:
        """Pass on what the command wrote, and have it judged; whether there may be more."""
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._unwatch(pipe)
            return False
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(1 if where == "stdout" else 2, left) :]
        except BrokenPipeError:  # nobody reads it: the command shall know
            self._unwatch(pipe)
            stream = self._process.stdout if where == "stdout" else self._process.stderr
            assert stream is not None
            stream.close()
            return False
        self._task.feed(where, data)
        return True

    def _act(self) -> None:
        """Tell what was found, and do what it says."""
        for found in self._task.take():
            for seen in found.observations:
                self._tell(seen)
            for firing in found.firings:
                if self.ending is None:
                    self._do(firing)

    def _do(self, firing: Firing) -> None:
        fired, group = firing.fired, self._process.pid
        if isinstance(firing.action, ENDING):
            self.ending = firing
            self._say(f"{ended_by(fired)}")
            self._kill_at = time.time() + firing.action.grace
            kill_group(group, signal.SIGTERM)
            return
        what = f"{fired.action} {fired.name}" if fired.name else fired.action
        self._say(f"{fired.monitor}: {what}: {fired.reason}")
        if isinstance(firing.action, SendSignal):
            kill_group(group, firing.action.number)

    def _tell(self, seen: Observation) -> None:
        if isinstance(seen, Trouble):
            self._say(f"trouble{f' of {seen.monitor}' if seen.monitor else ''}: {seen.message}")

    def _close(self) -> None:
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        os.close(self._pidfd)
        self._epoll.close()


def _start(argv: Sequence[str], attempt: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "BOUGH_ATTEMPT": str(attempt)}
    try:
        return subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, process_group=0, env=environment
        )
    except OSError as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN
        raise CannotStart(f"the program {argv[0]!r} cannot be started: {error.strerror}", code) from error


class CannotStart(UserError):
    """The command cannot be started; `code` is the exit code that a shell has for it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
