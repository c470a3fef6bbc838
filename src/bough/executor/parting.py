"""When and how an executor leaves a service in good order: its time is nearly over, it was idle, it was told to.

It says `Leaving`, gives back what it has not begun, and waits for the server's `Drain`, behind which nothing more is
sent. Rule: it goes only once nothing runs here and everything was heard, or when its time is over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bough.executor.terms import Terms

if TYPE_CHECKING:
    from bough.executor.roster import Roster


class Parting:
    """Decides; the loop says and does."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._idle_since = time.monotonic()
        self.draining = False  # told to finish what is here, and go
        self.reason = ""  # why it is leaving, once it is
        self.confirmed = False  # nothing more will be sent

    def told(self) -> None:
        """The server said `Drain`: an order, or the answer to `Leaving`."""
        if self.reason:
            self.confirmed = True
        else:
            self.draining = True

    def due(self, roster: Roster, now: float) -> str:
        """Why it should say that it leaves now; empty: it should not."""
        if self.reason:
            return ""
        terms, idle = self._terms, roster.idle
        if not idle:
            self._idle_since = now
        if terms.until and time.time() >= terms.leaves_at:
            return "its time is nearly over"
        if self.draining and idle:
            return "it was drained"
        if terms.idle and idle and now - self._idle_since >= terms.idle:
            return f"it had nothing to do for {terms.idle:g} s"
        return ""

    def is_over(self) -> bool:
        """Whether its time is over, whatever runs."""
        return bool(self._terms.until) and time.time() >= self._terms.ends_at

    def wait(self, now: float, idle: bool) -> float:
        """Seconds after which to look again."""
        terms, waits = self._terms, [3600.0]
        if terms.until:
            waits.append((terms.ends_at if self.reason else terms.leaves_at) - time.time())
        if terms.idle and idle and not self.reason:
            waits.append(self._idle_since + terms.idle - now)
        return max(0.01, min(waits))
