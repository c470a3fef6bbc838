"""Memo lookups: the core asks for successes of earlier runs, the store answers.

Loose tasks are looked up together, a batch in one statement. With what is found comes what was seen of it when it ran,
see `recalled_tasks`. Rule: answers are news of the next turn, and looking
takes only a slice of time between two turns; a store that cannot be asked has found nothing, because running again is
always right.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from bough import logs
from bough.core.queries.facade import Queries
from bough.errors import StoreFailed
from bough.model.events.arriving import Recalled
from bough.model.events.facts import MemoLookedUp
from bough.model.events.orders import LookUpMemo
from bough.model.ids import MemoKey, RecordId
from bough.server.turns import recalled_tasks
from bough.server.turns.run_info import RunInfo
from bough.stores.store import Store

_SLICE = 0.02  # seconds of looking up between turns
_TOGETHER = 256  # loose tasks looked up at once


class MemoLookups:
    """See the module."""

    def __init__(self, store: Store, queries: Queries, info: RunInfo) -> None:
        self._store = store
        self._queries = queries
        self._info = info
        self._is_projected = not info.memos
        self.waiting: deque[LookUpMemo] = deque()
        self._found: deque[MemoLookedUp] = deque()  # to be told, with what was seen of tasks of these sources
        self._watched: set[RecordId] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether something is to be looked up or told."""
        return bool(self.waiting or self._found)

    def refresh(self) -> None:
        """What other workflows did meanwhile is to be found from now on."""
        self._is_projected = False

    def answers(self) -> list[MemoLookedUp | Recalled]:
        """What is found, and what is not, in a slice of time."""
        until = time.monotonic() + _SLICE
        told: list[MemoLookedUp | Recalled] = []
        while self.is_waiting:
            if self._found:
                told.append(self._recall(self._found.popleft()))
            else:
                found = self._answer(*self._next())
                self._watched = self._sources(found)
                if self._watched:
                    self._found += recalled_tasks.pieces(found, self._watched)
                else:
                    told += found
            if time.monotonic() >= until:
                break
        return told

    def _sources(self, found: Sequence[MemoLookedUp]) -> set[RecordId]:
        if not any(one.found for one in found):
            return set()
        try:
            return self._store.watched_sources(found)
        except StoreFailed as error:
            logs.warning("memo-lookup-failed", f"what was seen of earlier runs could not be looked up: {error}")
            return set()

    def _recall(self, found: MemoLookedUp) -> MemoLookedUp | Recalled:
        if not found.found or found.source not in self._watched:
            return found
        try:
            return recalled_tasks.recalled(self._store, found)
        except StoreFailed as error:
            logs.warning("memo-lookup-failed", f"what was seen of earlier runs could not be read: {error}")
            return MemoLookedUp(found.record, found.start, found.stop, found=False)

    def _next(self) -> tuple[list[LookUpMemo], int]:
        """The next lookup, with the loose tasks of the same workflow that follow it; and the run they are of."""
        waiting = self.waiting
        first = waiting.popleft()
        some, run = [first], self._run_of(first)
        while (
            waiting
            and len(some) < _TOGETHER
            and not (first.reuse or waiting[0].reuse)
            and waiting[0].always is first.always
            and self._run_of(waiting[0]) == run
        ):
            some.append(waiting.popleft())
        return some, run

    def _run_of(self, order: LookUpMemo) -> int:
        """The run whose workflow's earlier runs count, 0: all; -1: nothing is to be found."""
        if not self._info.memos or not self._queries.has_record(order.record):
            return -1
        return 0 if self._info.embedded else self._queries.run_of(order.record)

    def _answer(self, orders: Sequence[LookUpMemo], run: int) -> Sequence[MemoLookedUp]:
        if run >= 0:
            try:
                if not self._is_projected:
                    self._store.project()
                    self._is_projected = True
                if len(orders) > 1:
                    wanted: list[tuple[RecordId, MemoKey]] = [(order.record, order.key) for order in orders]
                    return self._store.look_up_tasks(wanted, run, always=orders[0].always)
                only = orders[0]
                place = (only.record, only.start, only.stop)
                return self._store.look_up(*place, only.key, only.reuse, run, always=only.always)
            except StoreFailed as error:
                logs.warning("memo-lookup-failed", f"results of earlier runs could not be looked up: {error}")
        return [MemoLookedUp(order.record, order.start, order.stop, found=False) for order in orders]
