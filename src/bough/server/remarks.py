"""What operators and users are told of a turn besides its effects: rests of executors, tasks that nobody can run.

Rule: nobody waits for it, and each kind of task is spoken of once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bough.core.machine import Machine, Turn
from bough.model.facts import Amended, ExecutorSuspended, Submitted
from bough.model.resources import Needs
from bough.server.clock import Clock
from bough.server.log import log
from bough.server.peers import Peers

_STRANDED = 1.0  # seconds after a submission until tasks that nobody can run are spoken of


class Remarks:
    """See the module. `announce` tells operators and users."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        machine: Machine,
        peers: Peers,
        clock: Clock,
        announce: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._peers = peers
        self._clock = clock
        self._announce = announce
        self._check: asyncio.TimerHandle | None = None
        self._told: set[Needs] = set()

    def on(self, turn: Turn) -> None:
        """A turn has taken effect."""
        kinds = set(map(type, turn.facts))
        if ExecutorSuspended in kinds:
            for fact in turn.facts:
                if type(fact) is ExecutorSuspended:
                    self._tell_suspended(fact)
        if self._check is None and (Submitted in kinds or Amended in kinds):
            self._check = self._loop.call_later(_STRANDED, self._tell_stranded)
        for complaint in turn.complaints:
            log(complaint)

    def _tell_stranded(self) -> None:
        """Say once of each kind of task that no executor can ever run it: the workflow would wait without a word."""
        self._check = None
        for needs, record in self._machine.stranded().items():
            if needs not in self._told:
                self._told.add(needs)
                self._announce(self._machine.explain(record)[0])

    def _tell_suspended(self, fact: ExecutorSuspended) -> None:
        """Say that the core gives an executor a rest; of those that are missing others speak."""
        executor = self._peers.executors.get(fact.executor)
        if executor is not None and executor.ready:
            rest = fact.until - self._clock.now()
            log(f"executor {fact.executor} on {executor.hello.host} is suspended for {rest:.0f} s: {fact.reason}")
