"""Which processors there are now, by site, for clients that ask and for those that follow.

A site that is away has none, nor have executors that are not connected. The server of a session has an executor of
its own, which is there soon after the server: who asks before that waits for it, so that no script hears that it has no
processors. Rule: while nobody follows or waits, a turn pays nothing for it; a client that follows is told what is new
once, and nothing when nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        self.start_own: Callable[[], None] | None = None  # starts the server's own executor, if it has one
        self._early: list[DeferredRequest[Processors]] = []  # asked before it was there

    def ask(self, deferred: DeferredRequest[Processors]) -> None:
        """Answer, and tell the client of changes if it wants to hear of them."""
        if self.start_own is not None and not self._shell.peers.executors and not deferred.question.follow:
            if not self._early:
                self._shell.on_facts.append(self._hear_join)
            self._early.append(deferred)
            self.start_own()
            return
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

    def _hear_join(self, facts: Sequence[Fact]) -> None:
        if any(isinstance(fact, ExecutorJoined) for fact in facts):
            self._shell.loop.call_soon(self._answer_early)  # the listeners of a turn stay as they are until it is over

    def _answer_early(self) -> None:
        if not self._early:
            return
        self._shell.on_facts.remove(self._hear_join)
        early, self._early = self._early, []
        for deferred in early:
            deferred.attempt(self.ask)
        self._shell.flush()

    def _cores(self) -> dict[str, float]:
        cores: dict[str, float] = {}
        for executor in self._shell.queries.executors():
            if executor.number in self._shell.peers.executors and not executor.is_away and executor.capacity.cores:
                cores[executor.site] = cores.get(executor.site, 0) + executor.capacity.cores
        return {site: int(count) if float(count).is_integer() else count for site, count in cores.items()}
