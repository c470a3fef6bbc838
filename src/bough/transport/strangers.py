"""Who was refused lately: an address that fails too often is not listened to for a while.

Rule: neither memory nor the log grows with the number of strangers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_MOST_ADDRESSES = 4096
_MOST_LINES = 20  # in the log, within a window


class Strangers:
    """Counts failed handshakes by address. Times are the caller's, in seconds."""

    def __init__(
        self, say: Callable[[str], None], *, most: int = 10, window: float = 10.0, pause: float = 10.0
    ) -> None:
        self._say = say
        self._most = most  # failures within a window
        self._window = window
        self._pause = pause  # seconds that an address is barred
        self._failures: dict[str, deque[float]] = {}
        self._barred: dict[str, float] = {}  # until when
        self._lines: deque[float] = deque()
        self._unsaid = 0

    def failed(self, peer: str, reason: str, now: float) -> None:
        """A handshake failed."""
        self.note(f"a connection from {peer} was refused: {reason}", now)
        times = self._failures.pop(peer, None) or deque(maxlen=self._most)
        times.append(now)
        self._failures[peer] = times  # the latest are last
        if len(times) == self._most and now - times[0] <= self._window:
            del self._failures[peer]
            self._barred[peer] = now + self._pause
            self.note(f"connections from {peer} are dropped for {self._pause:g} s: {self._most} were refused", now)
            _shorten(self._barred)
        _shorten(self._failures)

    def is_barred(self, peer: str, now: float) -> bool:
        """Whether an address is not to be listened to now."""
        until = self._barred.get(peer)
        if until is None:
            return False
        if now < until:
            return True
        del self._barred[peer]
        return False

    def note(self, text: str, now: float) -> None:
        """Write a line to the log, unless there were many lately; those are counted."""
        while self._lines and now - self._lines[0] > self._window:
            self._lines.popleft()
        if len(self._lines) >= _MOST_LINES:
            self._unsaid += 1
            return
        self._lines.append(now)
        if self._unsaid:
            self._say(f"{self._unsaid} more refusals were not logged")
            self._unsaid = 0
        self._say(text)


def _shorten(table: dict[str, deque[float]] | dict[str, float]) -> None:
    if len(table) > _MOST_ADDRESSES:
        table.pop(next(iter(table)))
