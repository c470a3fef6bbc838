"""Executors of a service that lost their connection: they have some time to reconnect, and then say what they hold.

A closed connection or silence makes an executor *missing*; it is lost only when its time to reconnect has passed. While
our own connection to its site is cut that is no wonder: then it has more time. Rule: nothing is sent to an executor
before it has said what it holds, so that comparing that with what the core believes is exact.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec.structs import replace

from bough import logs
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
from bough.model.texts.plurals import counted
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ExecutorPeer
from bough.server.service.id_ranges import IdRanges
from bough.server.turns.shell import Shell
from bough.wire.executor_messages import Drain, ExecutorHello, Resized, SpansHeld, StopElements

_ALL = 1 << 62  # an element that no span reaches
_LONGEST_CUT: Seconds = 900.0  # that executors of a site are waited for to which our connection is cut


class ReturningExecutors:
    """See the module. `reconnect`: seconds that a missing executor has to reconnect."""

    def __init__(self, shell: Shell, numbers: IdRanges, reconnect: Seconds) -> None:
        self._shell = shell
        self._peers = shell.peers
        self._reconnect = reconnect
        self._missing: dict[ExecutorId, tuple[ExecutorPeer | None, asyncio.TimerHandle]] = {}
        self._numbers = numbers
        self.is_cut_off: Callable[[str], bool] = lambda _: False  # whether our own connection to a site is cut
        manual = set(shell.queries.manual_executors())
        for number in shell.queries.executor_numbers():  # those of the server before this one
            if number not in manual:
                self._miss(number, None, "the server was started anew")

    @property
    def missing(self) -> list[ExecutorId]:
        """Those that have time to reconnect."""
        return list(self._missing)

    def accept(self, connection: PeerConnection, hello: ExecutorHello) -> ExecutorPeer:
        """An executor said hello: a new one gets a number, one that reconnects keeps its own."""
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
        """What is known of an executor that reconnects."""
        known = self._peers.executors.get(number)
        if known is not None:  # its old connection broke without a word
            self._peers.drop_executor(known)
            known.connection.abort()
            self._suspend(number, "it reconnected by another connection")
            return known
        if number in self._missing:
            executor, timer = self._missing.pop(number)
            timer.cancel()
            return executor
        return None

    def compare_spans(self, executor: ExecutorPeer, message: SpansHeld) -> None:
        """All its reports are said: compare once they are in a turn."""
        executor.shared = message.shared
        self._shell.after_turn(lambda: self._compare(executor, set(message.spans)))

    def resized(self, executor: ExecutorPeer, message: Resized) -> None:
        """A relay has more or fewer executors now; said before it has joined, that counts as if its hello said it."""
        if not executor.is_relay:
            return
        capacity, members, each, until = message.capacity, message.members, message.each, message.until
        executor.hello = replace(executor.hello, capacity=capacity, members=members, each=each, until=until)
        self._shell.news(ExecutorResized(executor.number, capacity, members, each, until))

    def _compare(self, executor: ExecutorPeer, spans: set[SpanId]) -> None:
        if self._peers.executors.get(executor.number) is not executor:
            return  # it disconnected again
        number, hello, shell = executor.number, executor.hello, self._shell
        if not shell.queries.has_executor(number):
            joined = ExecutorJoined(
                number,
                hello.site,
                hello.host,
                hello.pid,
                hello.capacity,
                hello.until,
                hello.members,
                hello.each,
                hello.python,
                hello.pilot,
                hello.attributes,
            )
            extra = [span for span in spans if not shell.queries.is_wanted(span, number)]
            shell.news(joined)
            if executor.leaving:  # it said so before it could be a fact
                shell.news(ExecutorDrained(number))
            said = "reconnected late" if hello.executor else "joined"
        else:
            believed = set(shell.queries.spans_on(number))
            for span in believed - spans:
                shell.news(WorkReturned(span, 0, _ALL))
            extra = [span for span in spans - believed if not shell.queries.is_wanted(span, number)]
            if hello.each is not None:
                shell.news(ExecutorResized(number, hello.capacity, hello.members, hello.each, hello.until))
            shell.news(ExecutorResumed(number))
            lost = len(believed - spans)
            said = f"reconnected with {counted(len(spans), 'span')}, {lost} are given to others"
        for span in extra:
            executor.connection.say(StopElements(span, 0, _ALL))
        executor.ready = True
        for span in sorted(spans):
            for order in shell.queries.orders_again(span):
                shell.perform[type(order)](order)
        logs.info(
            "executor-joined",
            f"executor {number} {said}: {hello.site}, {hello.host}, pid {hello.pid}, {hello.capacity},"
            f" Python {hello.python}",
        )

    # --- going -------------------------------------------------------------------------------------

    def leaves(self, executor: ExecutorPeer, reason: str) -> None:
        """It wants no more; it is told when nothing more will come."""
        executor.leaving = reason or "it left"
        self._shell.news(ExecutorDrained(executor.number), then=lambda: executor.connection.say(Drain()))

    def on_lost(self, executor: ExecutorPeer, reason: str) -> None:
        """Its connection was lost."""
        if self._peers.executors.get(executor.number) is not executor:
            return
        self._peers.drop_executor(executor)
        if executor.leaving:
            logs.info("executor-left", f"executor {executor.number} left: {executor.leaving}")
            self._lose(executor.number, executor.leaving)
        elif self._shell.queries.has_executor(executor.number):
            logs.warning(
                "executor-missing",
                f"executor {executor.number} disconnected: {reason}; it has {self._reconnect:g} s to reconnect",
            )
            self._miss(executor.number, executor, reason)

    def _miss(self, number: ExecutorId, executor: ExecutorPeer | None, reason: str) -> None:
        self._wait(number, executor, reason, self._shell.loop.time())
        self._suspend(number, reason)

    def _wait(
        self, number: ExecutorId, executor: ExecutorPeer | None, reason: str, since: Seconds, *, was_cut: bool = False
    ) -> None:
        timer = self._shell.loop.call_later(self._reconnect, self._give_up, number, reason, since, was_cut)
        self._missing[number] = (executor, timer)

    def _suspend(self, number: ExecutorId, reason: str) -> None:
        self._shell.news(ExecutorSuspended(number, self._shell.clock.now() + 10 * self._reconnect + 3600, reason))

    def _give_up(self, number: ExecutorId, reason: str, since: Seconds, was_cut: bool) -> None:
        if number not in self._missing:
            return
        executor, _ = self._missing.pop(number)
        known = self._shell.queries.executor(number)
        waited = self._shell.loop.time() - since
        is_cut = known is not None and self.is_cut_off(known.site)
        if known is not None and (is_cut or was_cut) and waited < _LONGEST_CUT:  # and all of it once the site is back
            logs.info(
                "executor-awaited", f"executor {number} has more time to reconnect: site {known.site} was not reached"
            )
            self._wait(number, executor, reason, since, was_cut=is_cut)
            return
        logs.warning(
            "executor-lost", f"executor {number} is lost: {reason}; it has not reconnected within {waited:.0f} s"
        )
        self._lose(number, reason)

    def _lose(self, number: ExecutorId, reason: str) -> None:
        self._shell.news(ExecutorLost(number, reason))
