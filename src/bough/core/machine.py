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
from bough.core.actions.dry_run import survey
from bough.core.apply import APPLY
from bough.core.effects import Effects
from bough.core.intake import Intake
from bough.core.records.array_record import Record
from bough.core.records.task_record import Success
from bough.core.replay_checks import fitted, misfit, pass_over, reserve
from bough.core.scheduling.placement import Placement
from bough.core.state import State
from bough.model.events.facts import Fact
from bough.model.events.news import Action, CallsEnded, News, WorkNews
from bough.model.events.orders import Order
from bough.model.ids import ExecutorId, Seconds, SpanId
from bough.model.resources import Needs
from bough.model.states import TaskState
from bough.model.tasks import Dep, On
from bough.policy.interface import PlacementPolicy


class Turn(msgspec.Struct, frozen=True):
    """What one turn brought about. Write the facts before carrying out the orders."""

    number: int
    facts: list[Fact]
    orders: list[Order]
    wake: Seconds | None  # call again at this time at the latest
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
        self, policy: PlacementPolicy, *, seed: int = 0, last_turn: int = 0, last_span: int = 0, pickup: int = 0
    ) -> None:
        self.state = State(policy, pickup)
        self.state.turn = last_turn
        self.state.last_span = last_span
        self.asides: list[State] = []  # retired workflows that are looked at; no turn sees them
        self._placement = Placement(self.state, Random(seed))
        self._intake = Intake(self.state)

    # --- driving ---------------------------------------------------------------------------------

    def turn(self, now: Seconds, events: Iterable[News]) -> Turn:
        """Take in what arrived, then let the policy place what can be placed."""
        state = self.state
        state.now = now
        state.turn += 1
        if not state.asks_policy:
            state.rank_queued()
        effects = Effects()
        written = self._intake.take_in(events, effects)
        if state.due and not state.stopping:
            written += self._placement.ask(now, effects.orders)
            state.due = False
        if not written:
            state.turn -= 1
        complaints, state.complaints = state.complaints, []
        return Turn(state.turn, written, effects.orders, self.wake, complaints)

    def replay(self, number: int, now: Seconds, written: Iterable[Fact]) -> None:
        """Apply one turn of a journal."""
        state = self.state
        state.asks_policy = False
        state.turn, state.now = number, now
        for fact in written:
            APPLY[type(fact)](state, None, fact)
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
    def restore(cls, data: bytes, policy: PlacementPolicy, *, seed: int = 0, pickup: int = 0) -> Machine:
        """A machine in the state of a snapshot."""
        machine = cls(policy, seed=seed, pickup=pickup)
        snapshot.restore(machine.state, data)
        return machine

    # --- questions -------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted has ended."""
        return self.state.unended == 0 and self.state.open_arrays == 0

    @property
    def wake(self) -> Seconds | None:
        """When something is due, at the latest."""
        return self.state.timers[0][0] if self.state.timers else None

    def explain(self, record: int, index: int = 0) -> list[str]:
        """Why a task is not running, or how it ended; one line a reason."""
        return explain.explain(self._state_with(record), record, index)

    def counts(self) -> dict[str, int]:
        """Tasks by state, over all groups."""
        totals = [sum(column) for column in zip(*(g.counts for g in self.state.groups.values()), strict=True)]
        return {TaskState(number).label: count for number, count in enumerate(totals)}

    def stranded(self) -> dict[Needs, int]:
        """Needs of ready tasks that no executor there is could ever meet, each with the first such record."""
        able = list(self.state.executors.values())
        found: dict[Needs, int] = {}
        for queue in self.state.waiting:
            head = queue.head()
            if able and head is not None and not any(executor.could_fit(queue.needs) for executor in able):
                found[queue.needs] = head[4].id
        return found

    def held_by(self, executor: int) -> list[SpanId]:
        """The spans that an executor is believed to have."""
        known = self.state.executors.get(ExecutorId(executor))
        return [span.id for span in known.spans.values()] if known is not None else []

    def is_known(self, span: int, executor: int) -> bool:
        """Whether what an executor has of a span may still be of use."""
        held = self.state.spans.get(span) or self.state.attempts.late.get(span)
        return held is not None and held.executor.id == executor

    def is_foreign(self, news: WorkNews, executor: int) -> bool:
        """Whether news is about a span that another executor has: an executor may report only its own tasks."""
        spans, late = self.state.spans, self.state.attempts.late
        numbers = (news.span,)
        if type(news) is CallsEnded:
            numbers = range(news.span + news.start, news.span + news.start + len(news.seconds))  # type: ignore[assignment]
        for number in numbers:
            held = spans.get(number) or late.get(number)
            if held is not None and held.executor.id != executor:
                return True
        return False

    def workflow_of(self, record: int) -> int:
        """The run that a record belongs to."""
        return self.state.records[record].group.workflow.run

    def find(self, record: int) -> Record | None:
        """A record, also one of a retired workflow that is looked at; for questions, never for actions."""
        return self._state_with(record).records.get(record)

    def _state_with(self, record: int) -> State:
        if record not in self.state.records:
            for aside in self.asides:
                if record in aside.records:
                    return aside
        return self.state

    def touched(self, action: Action) -> int:
        """How many tasks an action would change now."""
        return survey(self.state, action)[0]

    def left_out(self, action: Action) -> list[str]:
        """What of its target an action would not change although it was meant, and why."""
        return survey(self.state, action)[1]

    def result_turns(self, dep: Dep) -> list[Success]:
        """Where the results lie that a dependency points at: successes in order of their elements."""
        record = self.state.records.get(dep.id) or self._state_with(dep.id).records[dep.id]
        if dep.on is not On.TASK:
            return list(record.successes())
        found = record.success_of(dep.index)
        return [found] if found is not None else []
