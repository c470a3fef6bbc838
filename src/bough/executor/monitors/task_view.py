"""What a function of the user's that watches a task gets to see of it (`bough.monitors.Custom`).

Rule: it only looks; whatever cannot be looked at any more is empty.
"""

from __future__ import annotations

import os
import time

from bough.executor.host.processes import group_memory

_MOST = 1 << 20  # bytes that are read unless more is asked for


class TaskView:
    """A running task. `task` is its number, `directory` where it runs, `pid` its process group."""

    def __init__(self, task: str, attempt: int, directory: str, pid: int, started: float) -> None:
        self.task = task
        self.attempt = attempt
        self.directory = directory
        self.pid = pid
        self.started = started  # seconds since 1970
        self._streams: dict[str, tuple[str, int]] = {}

    def _set_streams(self, streams: dict[str, tuple[str, int]]) -> None:
        self._streams = streams

    def __repr__(self) -> str:
        return f"TaskView(task={self.task!r}, attempt={self.attempt}, directory={self.directory!r}, pid={self.pid})"

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return max(0.0, time.time() - self.started)

    def read(self, where: str = "stdout", most: int = _MOST) -> str:
        """The end of what it wrote so far to "stdout", "stderr" or a file: at most so many bytes."""
        path, begin = self._streams.get(where, (os.path.join(self.directory, where), 0))
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(begin, size - most))
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return ""

    def lines(self, where: str = "stdout", last: int = 100) -> list[str]:
        """The last lines of it."""
        return self.read(where).splitlines()[-last:]

    def exists(self, path: str) -> bool:
        """Whether a file is there; a relative path counts from where the task runs."""
        return os.path.lexists(os.path.join(self.directory, path))

    def size(self, path: str) -> int:
        """The size of a file in bytes, 0 if there is none."""
        try:
            return os.stat(os.path.join(self.directory, path)).st_size
        except OSError:
            return 0

    def memory(self) -> int:
        """Bytes of memory that its processes use."""
        return group_memory(self.pid)
