"""What follows from a fact that was just applied: others that will never run, groups that are tried again.

Rule: what follows is recorded as facts of its own, so that a replay needs no decision.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bough.core import amending, declaring, deeds, graph, resetting
from bough.core.apply import APPLY
from bough.core.groups import GroupRecord
from bough.core.memo import key_of
from bough.core.records import Record
from bough.core.state import State
from bough.core.storable import shortened
from bough.model import facts
from bough.model.facts import Fact
from bough.model.ids import RecordId, Seconds
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Dep, Kind, On

_PENDING = bytes((0, 1, 2))
_REST: Seconds = 60.0  # of an executor that is suspended for the first time
_LONGEST_REST: Seconds = 3600.0
_DOUBLED = 6  # times, after which it is the longest


class Consequences:
    """Records facts, and what follows from them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._facts: list[Fact] = []

    def _record(self, fact: Fact) -> None:
        """Make something a fact: note it and apply it."""
        self._facts.append(fact)
        APPLY[type(fact)](self._state, fact)

    def _abandon(self) -> None:
        """Record, one after the other, what will never run because of what was just applied."""
        state = self._state
        while state.doomed:
            record, start, stop, failure = state.doomed.pop()
            for low, high in record.runs(_PENDING, start, min(stop, record.length)):
                self._record(facts.NotRunnable(RecordId(record.id), low, high, failure))

    def _abandon_pending(self, failure: Failure, records: Iterable[Record]) -> None:
        """What has not started of these will not: the workflow stops at its first failure, or the session closes."""
        for record in records:
            if graph.is_final(record):
                continue  # what it waits for has ended, or will
            for start, stop in record.runs(_PENDING, 0, record.length):
                self._record(facts.NotRunnable(RecordId(record.id), start, stop, failure))
        self._state.doomed.clear()

    def _on_hold(self, event: facts.Held | facts.Released) -> None:
        if deeds.is_lawful(self._state, event):
            self._record(event)

    def _on_reset(self, event: facts.Reset) -> None:
        parts, _ = resetting.reach(self._state, event)
        if parts:
            self._record(msgspec.structs.replace(event, parts=parts))

    def _on_amended(self, event: facts.Amended) -> None:
        """What stays and had not succeeded is tried again, as if all were submitted anew; then comes the difference."""
        if amending.why_not(self._state, event.run) is not None:
            return
        for record in amending.unsuccessful(self._state, event.run, set(event.removed)):
            if record.runs(deeds.REVIVABLE, 0, record.length):
                self._record(facts.Retried(Dep(On.TASK, record.id)))
        self._abandon()
        if event.added or event.changed or event.removed or event.removed_groups:
            parts = amending.amend(self._state, event)
            self._facts.append(msgspec.structs.replace(event, parts=parts))

    def _on_declared(self, event: facts.Declared) -> None:
        """What ended without success is revived first, and with it what was not run because of it."""
        parts, _ = declaring.reach(self._state, event)
        for record, start, stop in parts:
            if record.runs(deeds.REVIVABLE, start, stop):
                self._record(facts.Retried(Dep(On.TASK, record.id, start), stop))
        for record, start, stop in parts:
            for low, high in record.runs(declaring.PENDING, start, stop):
                done = declaring.success(record, low, high)
                key = key_of(self._state, record, low) if declaring.kind_of(record) is Kind.COMMAND else done.key
                self._record(msgspec.structs.replace(done, key=key))

    def _try_again(self, group: GroupRecord) -> None:
        """A whole group is tried again, because the user allowed so many retries of it."""
        if not group.settled and not group.unfinished:
            self._record(facts.Retried(Dep(On.GROUP, group.id), automatic=True))

    def _expire(self, group: GroupRecord) -> None:
        """The time limit of a group is over: what runs in it is ended, the rest is not started."""
        if group.settled or not group.deadline or self._state.now < group.deadline:
            return
        message = shortened(f"the time limit of group {group.path}, {group.timeout:g} s, is over")
        self._record(facts.Killed(Dep(On.GROUP, group.id), message=message))
        failure = Failure(Cause.KILLED, message)
        self._state.doomed += [(one, 0, one.length, failure) for one in group.records() if not graph.is_final(one)]
        self._abandon()

    def _suspend(self) -> None:
        """Give a rest to executors on which much failed that worked elsewhere; a longer one each time."""
        state = self._state
        troubled, state.troubled = state.troubled, []
        for executor in troubled:
            if executor.id in state.executors and not executor.suspended:
                until = state.now + min(_REST * 2 ** min(executor.suspensions, _DOUBLED), _LONGEST_REST)
                reason = f"{executor.trouble} tasks in a row failed there and worked elsewhere"
                self._record(facts.ExecutorSuspended(executor.id, until, reason))
