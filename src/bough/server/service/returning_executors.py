"""Executors of a service: missing ones have a time to come back, returning ones say what they hold.

A closed connection or silence makes an executor *missing*; it is lost only when its time to come back is over.
Rule: nothing is sent to an executor before it has said what it holds, so that comparing that with what the core
believes is exact.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from bough.model.events.facts import (
    ExecutorDrained,
    ExecutorJoined,
    ExecutorLost,
    ExecutorResized,
    ExecutorResumed,
    ExecutorSuspended,
)
from bough.model.events.news import WorkReturned
from bough.model.ids import ExecutorId, Seconds, SpanId
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ExecutorPeer
from bough.server.server_log import log
from bough.server.service.id_ranges import IdRanges
from bough.server.service.manual_tasks import is_hand
from bough.server.turns.shell import Shell
from bough.wire.executor_messages import Drain, ExecutorHello, SpansHeld, StopElements

_ALL = 1 << 62  # an element that no span reaches


class ReturningExecutors:
    """See the module. `patience`: seconds that a missing executor has to come back."""

    def __init__(self, shell: Shell, numbers: IdRanges, patience: Seconds) -> None:
        self._shell = shell
        self._peers = shell.peers
        self._patience = patience
        self._missing: dict[ExecutorId, tuple[ExecutorPeer | None, asyncio.TimerHandle]] = {}
        self._numbers = numbers
        self.on_lost: Callable[[ExecutorId], None] = lambda _: None
        for executor in list(shell.machine.state.executors.values()):  # those of the server before this one
            if not is_hand(executor):
                self._miss(executor.id, None, "the server was started anew")

    @property
    def missing(self) -> list[ExecutorId]:
        """Those that have a time to come back."""
        return list(self._missing)

    def appoint(self, connection: PeerConnection, hello: ExecutorHello) -> ExecutorPeer:
        """An executor said hello: a new one gets a number, one that comes back keeps its own."""
        number = hello.executor or self._numbers.new_executor()
        before = self._before(number)
        executor = ExecutorPeer(connection, number, hello, time.time(), self._shell.loop.time())
        executor.ready = False
        if before is not None:
            # not what was sent to it: the last of that may have been lost with the connection
            executor.reported, executor.joined = before.reported, before.joined
            executor.leaving = before.leaving
        self._peers.add_executor(executor)
        return executor

    def _before(self, number: ExecutorId) -> ExecutorPeer | None:
        """What is known of an executor that comes back."""
        known = self._peers.executors.get(number)
        if known is not None:  # its old connection broke without a word
            self._peers.drop_executor(known)
            known.connection.abort()
            self._suspend(number, "it came back by another connection")
            return known
        if number in self._missing:
            executor, timer = self._missing.pop(number)
            timer.cancel()
            return executor
        return None

    def holds(self, executor: ExecutorPeer, message: SpansHeld) -> None:
        """All its reports are said: compare once they are in a turn."""
        executor.shared = message.shared
        self._shell.after_turn(lambda: self._compare(executor, set(message.spans)))

    def _compare(self, executor: ExecutorPeer, spans: set[SpanId]) -> None:
        if self._peers.executors.get(executor.number) is not executor:
            return  # it is gone again
        number, hello, shell = executor.number, executor.hello, self._shell
        if number not in shell.machine.state.executors:
            joined = ExecutorJoined(
                number,
                hello.site,
                hello.host,
                hello.pid,
                hello.capacity,
                hello.until,
                hello.members,
                hello.each,
            )
            extra = [span for span in spans if not shell.machine.is_known(span, number)]
            shell.news(joined)
            said = "came back late" if hello.executor else "joined"
        else:
            believed = set(shell.machine.held_by(number))
            for span in believed - spans:
                shell.news(WorkReturned(span, 0, _ALL))
            extra = [span for span in spans - believed if not shell.machine.is_known(span, number)]
            if hello.each is not None:
                shell.news(ExecutorResized(number, hello.capacity, hello.members, hello.each, hello.until))
            shell.news(ExecutorResumed(number))
            said = f"came back with {len(spans)} spans, {len(believed - spans)} are given to others"
        for span in extra:
            executor.connection.say(StopElements(span, 0, _ALL))
        executor.ready = True
        log(f"executor {number} {said}: {hello.site}, {hello.host}, pid {hello.pid}, {hello.capacity}")

    # --- going -------------------------------------------------------------------------------------

    def leaves(self, executor: ExecutorPeer, reason: str) -> None:
        """It wants no more; it is told when nothing more will come."""
        executor.leaving = reason or "it left"
        self._shell.news(ExecutorDrained(executor.number), then=lambda: executor.connection.say(Drain()))

    def gone(self, executor: ExecutorPeer, reason: str) -> None:
        """Its connection is gone."""
        if self._peers.executors.get(executor.number) is not executor:
            return
        self._peers.drop_executor(executor)
        if executor.leaving:
            log(f"executor {executor.number} left: {executor.leaving}")
            self._lose(executor.number, executor.leaving)
        elif executor.number in self._shell.machine.state.executors:
            log(f"executor {executor.number} is missing: {reason}; it has {self._patience:g} s to come back")
            self._miss(executor.number, executor, reason)

    def _miss(self, number: ExecutorId, executor: ExecutorPeer | None, reason: str) -> None:
        timer = self._shell.loop.call_later(self._patience, self._give_up, number, reason)
        self._missing[number] = (executor, timer)
        self._suspend(number, reason)

    def _suspend(self, number: ExecutorId, reason: str) -> None:
        self._shell.news(ExecutorSuspended(number, self._shell.clock.now() + 10 * self._patience + 3600, reason))

    def _give_up(self, number: ExecutorId, reason: str) -> None:
        if self._missing.pop(number, None) is not None:
            log(f"executor {number} is lost: {reason}, and it did not come back within {self._patience:g} s")
            self._lose(number, reason)

    def _lose(self, number: ExecutorId, reason: str) -> None:
        self._shell.news(ExecutorLost(number, reason))
        self.on_lost(number)
