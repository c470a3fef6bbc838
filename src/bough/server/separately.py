"""A shell that does not let work travel with acknowledgements: Falkon without piggy-backing, for drawing its curves.

A report is acknowledged at once by a message of its own; what is placed on that executor meanwhile waits here until
it has said `Ready`. Rule: an executor is sent everything that the core has placed on it, in order, only later.
"""

from __future__ import annotations

import asyncio

from bough.core.machine import Machine
from bough.model.orders import SendSpan, StopSpan
from bough.server.peers import Executor
from bough.server.run import RunInfo
from bough.server.shell import Batch, Shell
from bough.stores.api import Store
from bough.wire.work import Heard


def make_shell(loop: asyncio.AbstractEventLoop, machine: Machine, store: Store, info: RunInfo) -> Shell:
    """The shell of a run: this one, or the usual one."""
    return (Shell if info.piggyback else SeparateShell)(loop, machine, store, info)


class SeparateShell(Shell):
    """See the module."""

    def ready(self, executor: Executor) -> None:
        """An executor asks for work: send what waits for it."""
        orders, executor.kept = executor.kept or [], None
        for order in orders:
            super()._send_span(order)
        self.flush()

    def _take_effect(self, batch: Batch) -> None:
        for executor, number in batch.reports:
            executor.acknowledged = number
            if executor.kept is None:
                executor.kept = []
            executor.connection.send(Heard(number))
        batch.reports.clear()
        super()._take_effect(batch)

    def _send_span(self, order: SendSpan) -> None:
        executor = self.peers.executors.get(order.executor)
        if executor is not None and executor.kept is not None:
            executor.kept.append(order)
        else:
            super()._send_span(order)

    def _stop_span(self, order: StopSpan) -> None:
        """What is to be stopped goes out first: it may be a part of it only."""
        executor = self.peers.executors.get(order.executor)
        if executor is not None and executor.kept:
            for kept in [kept for kept in executor.kept if kept.span == order.span]:
                executor.kept.remove(kept)
                super()._send_span(kept)
        super()._stop_span(order)
