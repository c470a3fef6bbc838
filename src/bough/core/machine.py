"""The scheduler: told the time and the news, it returns facts to write and orders to carry out.

`turn` is the only thing that changes the state. What a peer says is filtered (see `intake`); what the core decides is
asserted. `replay` applies the facts of a journal: it asks no policy and gives no order; `replay_what_fits` does so for
a journal that lacks some. Rule: no clock, dice or I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random

import msgspec

from bough.core import explain, snapshot
from bough.core.actions.remaking import drop_read
from bough.core.apply import APPLY
from bough.core.effects import Effects
from bough.core.graph.readiness import still_ready
from bough.core.intake import Intake
from bough.core.replay_checks import fitted, misfit, pass_over, reserve
from bough.core.scheduling.placement import Placement
from bough.core.scheduling.prefetch import announce
from bough.core.scheduling.provisioning import is_due, next_provision, provision
from bough.core.scheduling.recall import next_look, recall
from bough.core.scheduling.replication import catch_up, replicate, stop_waiting
from bough.core.state import State
from bough.model.events.arriving import News
from bough.model.events.facts import Fact
from bough.model.events.orders import Order
from bough.model.ids import Seconds
from bough.model.states import TaskState
from bough.policy.interface import Policies


class Turn(msgspec.Struct, frozen=True):
    """What one turn brought about. Write the facts before carrying out the orders."""

    number: int
    facts: list[Fact]
    orders: list[Order]
    next_timer: Seconds | None  # call again at this time at the latest
    complaints: list[str] = []  # for the operator: a policy that raised


class Unappliable(Exception):
    """A fact of a journal that raised when it was applied."""

    def __init__(self, turn: int, position: int, reason: str) -> None:
        super().__init__(reason)
        self.turn = turn
        self.position = position
        self.reason = reason


class Machine:
    """See the module."""

    def __init__(
        self,
        policies: Policies,
        *,
        seed: int = 0,
        last_turn: int = 0,
        last_span: int = 0,
        pickup: int = 0,
        accounts: bool = False,
    ) -> None:
        """`accounts`: core-hours are added up for all executors, not only for those that pilots brought."""
        self.state = State(policies, pickup, accounts=accounts)
        self.state.turn = last_turn
        self.state.last_span = last_span
        self._random = Random(seed)
        self._placement = Placement(self.state, Random(seed))
        self._intake = Intake(self.state, Random(seed))

    # --- driving ---------------------------------------------------------------------------------

    def turn(self, now: Seconds, events: Iterable[News]) -> Turn:
        """Take in what arrived, then let the policies place what can be placed, and ask for pilots for the rest."""
        state = self.state
        state.now = now
        state.turn += 1
        if not state.asks_policy:
            state.rank_queued()
            state.pilots_due = True
            if state.replicas.is_on:
                catch_up(state)
                state.replicas_due = True
        effects = Effects()
        written = self._intake.take_in(events, effects)
        if state.last_reads:
            drop_read(state, effects.orders)
        if state.place_again is not None and now >= state.place_again:
            state.due, state.place_again = True, None
        if state.due and not state.stopping:
            written += self._placement.ask(now, effects.orders)
            state.due = False
            state.demand_due = state.replicas_due = True
        if state.crowded or state.defined_sites or state.replicas.by_element or state.replicas_at > now:
            written += self._ask_others(now, effects.orders)
        affinity = state.affinity if state.announces else None
        if affinity is not None and affinity.units and affinity.announcements.is_due(now) and not state.stopping:
            announce(state, affinity, now, effects.orders)
        if effects.freed:
            written += still_ready(effects.freed)
        if not written:
            state.turn -= 1
        complaints, state.complaints = state.complaints, []
        return Turn(state.turn, written, effects.orders, self.next_timer, complaints)

    def _ask_others(self, now: Seconds, orders: list[Order]) -> list[Fact]:
        """What is decided after placement: what is recalled, what runs twice, which pilots there are."""
        state = self.state
        written: list[Fact] = []
        if state.crowded:
            recall(state, orders)
        if state.replicas_due and state.replicas.is_on and not state.stopping:
            written += replicate(state, self._random, orders)
        if state.defined_sites and not state.stopping and is_due(state):
            written += provision(state, orders)
        if state.replicas_at > now and not state.unfinished:
            stop_waiting(state)
        return written

    def replay(self, number: int, now: Seconds, written: Iterable[Fact]) -> None:
        """Apply one turn of a journal."""
        state = self.state
        state.asks_policy = False
        state.turn, state.now = number, now
        for fact in written:
            APPLY[type(fact)](state, None, fact)
        state.last_reads.clear()
        self._drop_due_timers(now)

    def replay_what_fits(
        self, number: int, now: Seconds, written: Sequence[Fact], without: Collection[int] = ()
    ) -> list[tuple[int, str]]:
        """Apply one turn of a journal from which facts are missing; the positions of those passed over, and why.

        `Unappliable` names a fact that seemed to fit and raised: the state is then spoilt, and is to be built again
        `without` that one.
        """
        state = self.state
        state.turn, state.now = number, now
        passed: list[tuple[int, str]] = []
        for position, fact in enumerate(written):
            if position in without:
                continue
            reason = misfit(state, fact)
            if reason:
                passed.append((position, reason))
                pass_over(state, fact)
                continue
            try:
                self.replay(number, now, [fitted(state, fact)])
            except MemoryError:
                raise
            except Exception as error:
                raise Unappliable(number, position, f"{type(error).__name__}: {error}") from error
        self._drop_due_timers(now)
        return passed

    def reserve(self, span: int) -> None:
        """Executors may know spans up to this number, whatever became of them here: new ones have higher numbers."""
        reserve(self.state, span)

    def _drop_due_timers(self, now: Seconds) -> None:
        """What was due in a turn that is replayed is among its facts."""
        while self.state.due_timer(now) is not None:
            pass

    def snapshot(self) -> bytes:
        """The state as bytes, to be taken between two turns."""
        return snapshot.take(self.state)

    @classmethod
    def restore(
        cls, data: bytes, policies: Policies, *, seed: int = 0, pickup: int = 0, accounts: bool = False
    ) -> Machine:
        """A machine in the state of a snapshot."""
        machine = cls(policies, seed=seed, pickup=pickup, accounts=accounts)
        snapshot.restore(machine.state, data)
        return machine

    # --- questions -------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted has ended."""
        return self.state.unfinished == 0 and self.state.open_arrays == 0

    @property
    def next_timer(self) -> Seconds | None:
        """When something is due, at the latest."""
        state = self.state
        timers = state.timers
        times = [timers[0][0]] if timers else []
        if state.place_again is not None:
            times.append(state.place_again)
        affinity = state.affinity if state.announces else None
        if affinity is not None and affinity.units and (due := affinity.announcements.due) is not None:
            times.append(due)
        if state.crowded:
            times += next_look(state)
        if state.defined_sites and (asked := next_provision(state)) is not None:
            times.append(asked)
        return min(times) if times else None

    def explain(self, record: int, index: int = 0) -> list[str]:
        """Why a task is not running, or how it ended; one line a reason."""
        return explain.explain(self.state, record, index)

    def counts(self) -> dict[str, int]:
        """Tasks by state, over all groups; the states' own names, so that placed ones can be told apart."""
        totals = [sum(column) for column in zip(*(g.counts for g in self.state.groups.values()), strict=True)]
        return {TaskState(number).name.lower(): count for number, count in enumerate(totals)}
