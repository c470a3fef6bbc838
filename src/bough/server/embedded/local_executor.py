"""The server's own executor on this machine: started early, started again when it dies.

Imports stay light because the executor is started before anything else is loaded. Rule: a dead
executor's processes are gone before the next one is started, so that no task runs twice at a time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from bough import logs

if TYPE_CHECKING:
    import asyncio

_MOST_STARTS = 20  # within a minute; beyond it one a second
_MINUTE = 60.0
_PAUSE = 1.0
_SPARE = 0.25  # seconds after which an executor is started although no task needs it yet: one soon will
_HANGING = 5.0  # seconds between the loss of its connection and its end


class ExecutorCommand:
    """How the executor is started."""

    __slots__ = ("arguments", "environment", "log_path")

    def __init__(
        self, socket_path: str, store_dir: str, cores: float, marker: str, gpus: int | None = None, *, pin: bool = False
    ) -> None:
        self.arguments = [sys.executable, "-P", "-m", "bough.executor", "--server", f"unix:{socket_path}"]
        self.arguments += ["--allow-commands", "yes"]  # it is the user's own machine, and only they can ask
        if cores:
            self.arguments += ["--cores", f"{cores:g}"]
        if gpus is not None:
            self.arguments += ["--gpus", str(gpus)]
        if pin:
            self.arguments += ["--pin", "yes"]
        self.environment = {**os.environ, "BOUGH_RUN": marker}
        self.log_path = os.path.join(store_dir, "executor.log")

    def start(self) -> int:
        """Start it in a session of its own, so that no signal of a terminal reaches it; return its pid."""
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawn(
            sys.executable,
            self.arguments,
            self.environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, self.log_path, append, 0o600),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        )


class LocalExecutor:
    """Watches one executor process, of pid 0 if it is to be started; `sweep` ends what a dead one left behind."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, command: ExecutorCommand, pid: int, sweep: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._command = command
        self._sweep = sweep
        self._starts: deque[float] = deque(maxlen=_MOST_STARTS)
        self._retiring = False
        self._timer: asyncio.TimerHandle | None = None
        self._pid = 0
        self._pidfd = -1
        self._gone: asyncio.Event | None = None
        self._spared = not pid  # it was not started yet, because there may be nothing for it to do
        if pid:
            self._watch(pid)
        else:
            self._timer = loop.call_later(_SPARE, self._start)

    @property
    def pid(self) -> int:
        """The executor's process, 0 when there is none."""
        return self._pid

    def need(self) -> None:
        """There is work for it: if it was not started yet, that is done now."""
        if self._spared:
            assert self._timer is not None
            self._timer.cancel()
            self._start()

    def retire(self) -> None:
        """Start no other one."""
        self._retiring = True
        if self._timer is not None:
            self._timer.cancel()

    async def gone(self, patience: float) -> None:
        """Wait until it has exited; after `patience` seconds end it. Whatever it left is ended too."""
        import asyncio

        self.retire()
        if self._pid:
            self._gone = asyncio.Event()
            try:
                await asyncio.wait_for(self._gone.wait(), patience)
            except TimeoutError:
                logs.warning(
                    "executor-killed", f"executor process {self._pid} did not leave within {patience:g} s and is killed"
                )
                self.kill()
                await self._gone.wait()

    def lost(self, pid: int) -> None:
        """Its connection is gone: it should exit by itself, and is helped if it hangs."""
        if pid == self._pid and not self._retiring:
            self._loop.call_later(_HANGING, self._kill_if_still, pid)

    def _kill_if_still(self, pid: int) -> None:
        if pid == self._pid:
            logs.warning("executor-killed", f"executor process {pid} hangs without a connection and is killed")
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _watch(self, pid: int) -> None:
        self._pid = pid
        self._starts.append(monotonic())
        self._pidfd = os.pidfd_open(pid)
        self._loop.add_reader(self._pidfd, self._exited)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        pid, self._pid = self._pid, 0
        _, status = os.waitpid(pid, 0)
        if status:  # one that left in good order has ended everything itself
            self._sweep()
        if self._retiring:
            if self._gone is not None:
                self._gone.set()
            return
        crowded = len(self._starts) == _MOST_STARTS and monotonic() - self._starts[0] < _MINUTE
        logs.warning(
            "executor-restarted",
            f"executor process {pid} {_ending(status)}; another one is started{' in a second' if crowded else ''}",
        )
        self._timer = self._loop.call_later(_PAUSE if crowded else 0, self._start)

    def _start(self) -> None:
        self._spared = False
        if self._retiring:
            return
        try:
            self._watch(self._command.start())
        except OSError as error:
            logs.error("executor-not-started", f"the executor cannot be started: {error}")
            self._timer = self._loop.call_later(_PAUSE, self._start)


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
