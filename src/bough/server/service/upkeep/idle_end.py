"""Ends a server that was started for one session, once nothing is left to do.

Such a server (`bough server start --until-idle`) belongs to nobody in particular: the script that had it started may
have died, and others may have joined it. Rule: it ends when nobody has been connected and no task has been unfinished
for a while; a task that is held or waits for a retry is unfinished. What a client left open and empty does not count:
it is in the journal, and the next server finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bough.model.ids import Seconds
from bough.server.turns.shell import Shell

_LOOK: Final = 0.5  # seconds between two looks


class IdleEnd:
    """See the module. `end` is called once, `pause` seconds after the last thing happened."""

    def __init__(self, shell: Shell, pause: Seconds, end: Callable[[], None]) -> None:
        self._shell = shell
        self._pause = pause
        self._end = end
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look."""
        self._since = self._shell.loop.time()
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        shell = self._shell
        now = shell.loop.time()
        if shell.peers.clients or not shell.queries.is_quiet():
            self._since = now
        elif now - self._since >= self._pause:
            self._end()
            return
        self._timer = shell.loop.call_later(min(_LOOK, self._pause), self._look)
