"""Notes every minute what each site has used, so that core-hours can be looked at over months.

The core adds them up as executors come, go and end tasks; the store keeps what has come since the last time, thinned
with age (see `stores.core_hours`). Rule: a note costs a look at each executor that is there, once a minute; a store
that cannot be written is tried again a minute later, and nothing is lost by that.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from bough import logs
from bough.errors import BoughError
from bough.server.peers import DeferredRequest
from bough.server.turns.shell import Shell
from bough.wire import questions

EVERY: Final = 60.0  # seconds
_FIRST: Final = 5.0  # after the start: what the server before has not noted


class UsageHistory:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to take notes."""
        self._timer = self._shell.loop.call_later(_FIRST, self._go_on)

    def stop(self) -> None:
        """Note what is not noted, and nothing more: the store is about to be closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.note()

    def _go_on(self) -> None:
        self.note()
        self._timer = self._shell.loop.call_later(EVERY, self._go_on)

    def note(self) -> None:
        """Write down what sites have used by now."""
        now = self._shell.clock.now()
        try:
            self._shell.store.note_core_seconds(now, self._shell.queries.core_seconds(now))
        except BoughError as error:
            logs.warning("core-hours-not-noted", f"core-hours are noted later: {error}")

    def answer(self, deferred: DeferredRequest[questions.CoreHours]) -> None:
        """What sites have used in all, and over time."""
        self.note()
        now, queries = self._shell.clock.now(), self._shell.queries
        usage = {site: queries.site_usage(site, now) for site in queries.core_seconds(now)}
        history = self._shell.store.core_hours(now - deferred.question.seconds)
        deferred.answer(
            {
                "sites": {site: msgspec.structs.asdict(one) for site, one in usage.items() if one is not None},
                "history": [msgspec.structs.asdict(one) for one in history],
            }
        )
