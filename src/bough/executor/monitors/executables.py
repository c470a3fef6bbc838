"""Programs that are run beside tasks again and again (`Executable`): exit code 0 fires.

Each is a process group of its own, in the task's directory and environment, and dies with the watcher. Rule: a program
that is over its time is ended with all that it started.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple

from bough.executor.host.processes import die_with_parent, kill_group
from bough.executor.worker_protocol import TaskPlace
from bough.model.monitoring.monitors import Executable

MOST = 16  # that run at a time
_NOT_STARTED = frozenset({126, 127})  # exit codes by which a shell says so

Exited = Callable[[int | None, str, float], None]  # exit code, what is wrong, when


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    pidfd: int
    until: float
    timeout: float
    exited: Exited


class Executables:
    """All that run. `watch` and `unwatch` have the end of a process waited for."""

    def __init__(self, watch: Callable[[int, Callable[[float], object]], None], unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._running: dict[Hashable, _Running] = {}

    @property
    def is_full(self) -> bool:
        """Whether no more may be started now."""
        return len(self._running) >= MOST

    @property
    def due(self) -> float:
        """When one is over its time."""
        return min([one.until for one in self._running.values()], default=float("inf"))

    def start(self, key: Hashable, condition: Executable, place: TaskPlace, exited: Exited, now: float) -> None:
        """Run a program."""
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", condition.command],
                cwd=place.directory,
                env=_environment(place),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
                preexec_fn=partial(die_with_parent, signal.SIGKILL),  # noqa: PLW1509 -- the watcher has no threads
            )
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            exited(None, f"its command cannot be started: {error}", now)
            return
        pidfd = os.pidfd_open(process.pid)
        self._running[key] = _Running(process, pidfd, now + condition.timeout, condition.timeout, exited)
        self._watch(pidfd, partial(self._on_exit, key))

    def _on_exit(self, key: Hashable, now: float) -> None:
        running = self._end(key)
        if running is not None:
            code = running.process.returncode
            wrong = "its command cannot be run: exit code {code}" if code in _NOT_STARTED else ""
            running.exited(code, wrong.format(code=code), now)

    def check(self, now: float) -> None:
        """End what is over its time."""
        for key, running in list(self._running.items()):
            if now >= running.until:
                self._end(key)
                running.exited(None, f"its command ran for more than {running.timeout:g} s and was ended", now)

    def forget(self, key: Hashable) -> None:
        """End a program in whose answer nobody is interested any more."""
        self._end(key)

    def _end(self, key: Hashable) -> _Running | None:
        running = self._running.pop(key, None)
        if running is not None:
            kill_group(running.process.pid)
            running.process.wait()
            self._unwatch(running.pidfd)
            os.close(running.pidfd)
        return running


def _environment(place: TaskPlace) -> dict[bytes, bytes]:
    """That of the task's program, or if it is none that of the watcher; with the task and its process group."""
    environment = dict(os.environb)
    try:
        with open(f"/proc/{place.group}/environ", "rb") as file:
            pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
        if pairs:
            environment = {name: value for name, _, value in pairs}
    except OSError:
        pass
    environment[b"BOUGH_TASK"] = b"%d.%d" % (place.record, place.index)
    environment[b"BOUGH_ATTEMPT"] = b"%d" % place.attempt
    environment[b"BOUGH_PID"] = b"%d" % place.group
    return environment
