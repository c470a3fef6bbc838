"""Asking the policy, and carrying out its wishes: what turns ready tasks into placed ones.

Wishes are enacted as they are yielded, so that a policy sees the world after each. Rule: an unlawful
wish is passed over; a policy that raises is replaced, for that turn, by placing in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from bough.core import lifecycle
from bough.core.records import ArrayRecord, Record
from bough.core.room import ExecutorRecord
from bough.core.state import State
from bough.core.timing import span_size
from bough.core.view import StateView
from bough.errors import BoughError
from bough.model import facts
from bough.model.facts import Fact
from bough.model.ids import Seconds, SpanId
from bough.model.orders import SendSpan
from bough.model.tasks import Page
from bough.policy.api import Place
from bough.policy.greedy import in_order

_PATIENCE = 1000  # unlawful wishes in a row before a policy is not asked further in a turn


class Placement:
    """See the module."""

    def __init__(self, state: State, random: Random) -> None:
        self.state = state
        self._random = random
        self._facts: list[Fact] = []

    def ask(self, now: Seconds) -> list[Fact]:
        """Place what the policy wants placed, as far as it is lawful; return the facts."""
        state = self.state
        self._facts = []
        if state.waiting and state.roomy:
            self._ask(now)
        return self._facts

    def _ask(self, now: Seconds) -> None:
        state = self.state
        view = StateView(state, now, self._random)
        try:
            self.follow(view, state.policy.place(view))
        except BoughError:
            raise  # our own bug, found while carrying out a wish
        except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
            state.complaints.append(f"the policy failed and was replaced for this turn: {error!r}")
            view.give_back()
            self.follow(view, in_order(view))
        finally:
            view.give_back()

    def follow(self, view: StateView, wishes: Iterable[Place]) -> None:
        """Carry out the lawful ones of a policy's wishes."""
        refused = 0
        for wish in wishes:
            record, executor, fits = view.take_offer()
            if executor is not None and record.id == wish.record and executor.id == wish.executor:
                self._place(record, executor, wish.count, fits=fits)
                if not fits and not wish.count:
                    self._send_along(view, record, executor)
            elif not self._enact(wish):
                refused += 1
                if refused > _PATIENCE:
                    break
                continue
            refused = 0

    def _send_along(self, view: StateView, record: Record, executor: ExecutorRecord) -> None:
        """Loose tasks like one that waits in a backlog, next in the queue, travel with it: one hand-out together."""
        if isinstance(record, ArrayRecord):
            return
        runtime = record.runtime
        for _ in range(span_size(runtime, len(record.queue), self.state.cores) - 1):
            if not executor.takes_backlog(record):
                return
            following = view.take_following(record)
            if following is None:
                return
            self._place(following, executor, 1, fits=False)

    def _enact(self, wish: Place) -> bool:
        """Carry out a wish if it is lawful: something ready, and room for it."""
        record = self.state.records.get(wish.record)
        executor = self.state.executors.get(wish.executor)
        if record is None or executor is None or not record.ready or executor.draining:
            return False
        fits = executor.fits(record)
        if not fits and not executor.takes_backlog(record):
            return False
        self._place(record, executor, wish.count, fits=fits)
        return True

    def _place(self, record: Record, executor: ExecutorRecord, count: int, *, fits: bool) -> None:
        """Give the next ready elements of a record to an executor."""
        state = self.state
        runtime = record.runtime
        pages: tuple[Page, ...] = ()
        if isinstance(record, ArrayRecord):
            limit = span_size(runtime, record.ready, state.cores)
            start, stop, attempt = record.next_range(min(limit, count) if count > 0 else limit)
            pages = record.pages(start, stop)
        else:
            start, stop, attempt = 0, 1, record.attempt + 1
        span = SpanId(state.last_span + 1)
        fact = facts.Placed(span, record.id, start, stop, attempt, executor.id, not fits)  # type: ignore[arg-type]
        self._facts.append(fact)
        lifecycle.place(state, fact, record, executor)
        state.orders.append(SendSpan(executor.id, span, record.spec, start, stop, attempt, pages, runtime.mean))
