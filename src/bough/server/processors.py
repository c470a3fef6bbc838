"""Which processors there are now, by site, for clients that ask and for those that follow.

A site that is away has none, nor have executors that are not connected. Rule: while nobody follows, a turn pays nothing
for it; a client that follows is told what is new once, and nothing when nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bough.model.events.facts import (
    ExecutorDrained,
    ExecutorJoined,
    ExecutorLost,
    ExecutorResized,
    ExecutorResumed,
    ExecutorSuspended,
    Fact,
    SiteLeft,
    SiteReturned,
)
from bough.server.peers import ClientPeer, DeferredRequest
from bough.server.turns.shell import Shell
from bough.wire.client_messages import ProcessorsChanged
from bough.wire.questions import Processors

_CHANGES: Final = frozenset(
    {
        ExecutorJoined,
        ExecutorLost,
        ExecutorDrained,
        ExecutorResized,
        ExecutorSuspended,
        ExecutorResumed,
        SiteLeft,
        SiteReturned,
    }
)


class ProcessorAnswers:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._told: dict[ClientPeer, dict[str, float]] = {}

    def ask(self, deferred: DeferredRequest[Processors]) -> None:
        """Answer, and tell the client of changes if it wants to hear of them."""
        cores = self._cores()
        if deferred.question.follow:
            if not self._told:
                self._shell.on_facts.append(self._hear)
            self._told[deferred.client] = cores
            deferred.client.connection.send(ProcessorsChanged(cores))  # one that is back has missed changes
        deferred.answer(cores)

    def on_lost(self, client: ClientPeer) -> None:
        """A client is gone."""
        if self._told.pop(client, None) is not None and not self._told:
            self._shell.on_facts.remove(self._hear)

    def _hear(self, facts: Sequence[Fact]) -> None:
        if _CHANGES.isdisjoint(map(type, facts)):
            return
        cores = self._cores()
        for client, told in list(self._told.items()):
            if told != cores:
                self._told[client] = cores
                client.connection.say(ProcessorsChanged(cores))

    def _cores(self) -> dict[str, float]:
        cores: dict[str, float] = {}
        for executor in self._shell.queries.executors():
            if executor.number in self._shell.peers.executors and not executor.is_away and executor.capacity.cores:
                cores[executor.site] = cores.get(executor.site, 0) + executor.capacity.cores
        return {site: int(count) if float(count).is_integer() else count for site, count in cores.items()}
