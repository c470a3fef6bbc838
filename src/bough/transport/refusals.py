"""Lines in the log about peers that were not let in: a few at a time, the others are counted.

Rule: neither memory nor the log grows with the number of strangers, and no address is treated differently because of
what another peer of the same address did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_MOST_LINES = 20
_WINDOW = 10.0  # seconds


class Refusals:
    """See the module. Times are the caller's, in seconds."""

    def __init__(self, say: Callable[[str], None], *, most: int = _MOST_LINES, window: float = _WINDOW) -> None:
        self._say = say
        self._most = most  # lines within a window
        self._window = window
        self._lines: deque[float] = deque()
        self._unsaid = 0

    def refused(self, peer: str, reason: str, now: float) -> None:
        """A peer was not let in."""
        self.note(f"a connection from {peer} was refused: {reason}", now)

    def note(self, text: str, now: float) -> None:
        """Write a line to the log, unless there were many lately; those are counted."""
        while self._lines and now - self._lines[0] > self._window:
            self._lines.popleft()
        if len(self._lines) >= self._most:
            self._unsaid += 1
            return
        self._lines.append(now)
        if self._unsaid:
            self._say(f"{self._unsaid} more refusals were not logged")
            self._unsaid = 0
        self._say(text)
