"""How this process hears that processes of its session have begun: each writes a line into one pipe.

Rule: whoever writes the line has opened its standard streams, so that this process may close its ends of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

Hear = Callable[[int], None]  # gets the process id

_lock = threading.Lock()
_starts: Starts | None = None


class Starts:
    """One pipe, and a thread that reads it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._read, self._write = os.pipe()
        self._waiting: dict[int, Hear] = {}
        self._last = 0
        threading.Thread(target=self._listen, name="bough-driver-starts", daemon=True).start()

    @property
    def path(self) -> str:
        """Where the line is to be written: the key, a blank, the process id."""
        return descriptor_path(self._write)

    def expect(self, hear: Hear) -> int:
        """A key for a process; `hear` is called, in a thread, when it has begun."""
        with _lock:
            self._last += 1
            self._waiting[self._last] = hear
            return self._last

    def forget(self, key: int) -> None:
        """The process has ended, or will not begin."""
        self._waiting.pop(key, None)

    def _listen(self) -> None:
        rest = b""
        while said := os.read(self._read, 1 << 16):
            *lines, rest = (rest + said).split(b"\n")
            for line in lines:
                key, pid = line.split()
                hear = self._waiting.pop(int(key), None)
                if hear is not None:
                    hear(int(pid))


def starts() -> Starts:
    """That of this process; a forked one makes its own."""
    global _starts
    if _starts is None or _starts.owner != os.getpid():
        with _lock:
            if _starts is None or _starts.owner != os.getpid():
                _starts = Starts()
    return _starts


def descriptor_path(fd: int) -> str:
    """A path by which other processes of this user open what a descriptor of this one stands for."""
    return f"/proc/{os.getpid()}/fd/{fd}"
