"""What clients and operators are told of a turn; failures withheld while their group may be retried.

Failures that clients are not told of yet, because the group in which they happened may be tried again as a whole.

A future that was told of a failure is resolved for good, so who asks for the result of a task in a group with retries
left must wait until the group is over, or was tried again. Only groups that are closed are waited for: while one is
open nobody knows when it ends, and a script may wait for a task in the middle of it. Rule: what is kept back is told
in the turn in which there is no more hope.

What clients are told of a turn: facts become messages.

Rule: pure translation; a client hears of every element that ended, exactly once per end, and of
starts and returns so that it can show what runs. A failure that may be undone by a retry of its group is no end.

What operators and users are told of a turn besides its effects: rests of executors, tasks that nobody can run.

Rule: nobody waits for it, and each kind of task is spoken of once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from bough.core.actions import task_actions
from bough.core.machine import Machine, Turn
from bough.core.records.array_record import CANCELLED, FAILED, SKIPPED, ArrayRecord, Record
from bough.core.records.group_record import GroupRecord
from bough.core.state import State
from bough.model import ranges
from bough.model.events.facts import (
    Amended,
    Cancelled,
    ElementFailed,
    ExecutorJoined,
    ExecutorLost,
    ExecutorSuspended,
    Fact,
    Killed,
    MemoLookedUp,
    Placed,
    Skipped,
    SpanEnded,
    SpanReturned,
    SpanStarted,
    Submitted,
    WasReset,
)
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.resources import Needs
from bough.server.peers import Peers
from bough.server.server_log import log
from bough.server.turns.result_parts import ResultCache, part
from bough.server.turns.run_info import Clock
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded

_BAD = bytes((FAILED, SKIPPED))


class _Kept(msgspec.Struct):
    """What is kept back because of one group, and how often that had been tried then."""

    group: GroupRecord
    tried: int
    messages: list[TasksFailed]


class WithheldFailures:
    """See the module. It is asked between turns."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: dict[int, _Kept] = {}  # by group

    def told(self, message: TasksFailed) -> Iterator[TasksRunning | TasksFailed]:
        """What is to be said now of elements that did not succeed."""
        record = self._state.records.get(message.record)
        groups: list[GroupRecord] = []
        if record is not None and message.failure.cause is not Cause.CANCELLED:
            groups += self._that_may_try_again(record, message.failure.source)
        if record is None or not groups:
            yield message
            return
        hope = next((group for group in groups if self._has_hope(group)), None)
        left = record.runs(_BAD, message.start, message.stop)
        if hope is not None or left != [[message.start, message.stop]]:  # what is not bad any more is tried again
            yield TasksRunning(message.record, message.start, message.stop, 0)
        for start, stop in left:
            part = msgspec.structs.replace(message, start=start, stop=stop)
            if hope is None:
                yield part
            else:
                kept = self._kept.setdefault(hope.id, _Kept(hope, hope.tried, []))
                kept.messages.append(part)

    def news(self) -> Iterator[TasksRunning | TasksFailed]:
        """What is to be said now of what was kept back."""
        for number, kept in list(self._kept.items()):
            if kept.group.tried != kept.tried or not self._has_hope(kept.group):
                del self._kept[number]
                for message in kept.messages:
                    yield from self.told(message)

    def __bool__(self) -> bool:
        """Whether anything is kept back."""
        return bool(self._kept)

    def _that_may_try_again(self, record: Record, source: int) -> Iterator[GroupRecord]:
        """Groups with retries around a task, or around the one that is to blame for it; inner ones first."""
        for one in (record, self._state.records.get(source)):
            if one is not None:
                yield from (group for group in one.group.chain() if group.retries)

    def _has_hope(self, group: GroupRecord) -> bool:
        known = self._state.groups.get(group.id) is group and not self._state.stopping
        return known and group.closed and not group.settled and group.tried < group.retries


Message = TasksSucceeded | TasksFailed | TasksRunning
Struck = Callable[[Cancelled | Killed], Iterable[tuple[RecordId, int, int, Failure]]]

_CANCELLED = Failure(Cause.CANCELLED, "somebody cancelled it")


def struck_by(state: State, deed: Cancelled | Killed) -> Iterator[tuple[RecordId, int, int, Failure]]:
    """The elements that a deed ended, after the turn that applied it; maybe also some that an earlier one had."""
    killed = isinstance(deed, Killed)
    wanted = bytes((FAILED if killed else CANCELLED,))
    for record, start, stop in task_actions.targets(state, deed.target, deed.stop):
        for low, high in record.runs(wanted, start, stop):
            if not killed:
                yield RecordId(record.id), low, high, _CANCELLED
                continue
            for index in range(low, high):
                failure = record.failure_of(index)
                if failure is not None and failure.cause is Cause.KILLED:
                    yield RecordId(record.id), index, index + 1, failure


def is_awaited(machine: Machine, record: RecordId) -> bool:
    """Whether results of a record may be asked for soon: those of what a generator feeds only if somebody waits."""
    known = machine.state.records.get(record)
    if not isinstance(known, ArrayRecord) or not known.spec.fed:
        return True
    return bool(known.dependents or known.element_dependents)


class TurnMessages:
    """Turns facts into messages; remembers hosts, and what is out with whom."""

    def __init__(
        self,
        results: ResultCache,
        struck: Struck,
        wanted: Callable[[RecordId], bool] = lambda record: True,
        patience: WithheldFailures | None = None,
    ) -> None:
        self._results = results
        self._patience = patience  # of what did not succeed and may be tried again
        self._wanted = wanted  # whether somebody may ask for the results of a record soon
        self._struck = struck
        self._hosts: dict[ExecutorId, str] = {}
        self._out: dict[SpanId, _SpanOut] = {}
        self._translate: dict[type, Callable[..., Iterable[Message]]] = {
            Amended: self._reset,
            Cancelled: self._ended_by_hand,
            ElementFailed: self._failed,
            ExecutorJoined: self._joined,
            ExecutorLost: self._lost,
            Killed: self._ended_by_hand,
            Skipped: self._not_run,
            Placed: self._placed,
            MemoLookedUp: self._recalled,
            WasReset: self._reset,
            SpanEnded: self._ended,
            SpanReturned: self._returned,
            SpanStarted: self._started,
        }

    def restore(self, state: State) -> None:
        """Know what was out when an earlier server ended."""
        for executor in state.executors.values():
            self._hosts[executor.id] = executor.host
        for span in state.spans.values():
            left = [list(part) for part in span.left]
            self._out[span.id] = _SpanOut(RecordId(span.record.id), span.attempt, span.executor.id, left)

    def messages(self, facts: Sequence[Fact]) -> list[Message]:
        """What the facts of one turn mean to a client, in order."""
        said: list[Message] = []
        translate = self._translate
        for fact in facts:
            handler = translate.get(type(fact))
            if handler is not None:
                said += handler(fact)
        if self._patience:
            said += self._patience.news()
        return said

    def _joined(self, fact: ExecutorJoined) -> Iterable[Message]:
        self._hosts[fact.executor] = fact.host
        return ()

    def _placed(self, fact: Placed) -> Iterable[Message]:
        self._out[fact.span] = _SpanOut(fact.record, fact.attempt, fact.executor, [[fact.start, fact.stop]])
        return ()

    def _lost(self, fact: ExecutorLost) -> Iterable[Message]:
        """What a lost executor had, and did not cost an attempt, went back without a fact of its own."""
        self._hosts.pop(fact.executor, None)
        gone = [span for span, hand in self._out.items() if hand.executor == fact.executor]
        for span in gone:
            hand = self._out.pop(span)
            for start, stop in hand.left:
                yield TasksRunning(hand.record, start, stop, 0)

    def _started(self, fact: SpanStarted) -> Iterable[Message]:
        hand = self._out.get(fact.span)
        if hand is None:
            return ()
        host = fact.host or self._hosts.get(hand.executor, "")
        return (TasksRunning(hand.record, fact.start, fact.stop, hand.attempt, host),)

    def _ended(self, fact: SpanEnded) -> Iterable[Message]:
        self.withdrawn(fact.span, fact.start, fact.stop)
        if fact.stop == 1 or self._wanted(fact.record):  # loose tasks need no question
            self._results.remember(fact)
        host = fact.host or self._hosts.get(fact.executor, "")
        return (TasksSucceeded(fact.record, fact.start, fact.stop, fact.attempt, host, fact.results, fact.details),)

    def _failed(self, fact: ElementFailed) -> Iterable[Message]:
        index = fact.index
        self.withdrawn(fact.span, index, index + 1)
        if fact.retry_at >= 0:
            return (TasksRunning(fact.record, index, index + 1, 0),)
        host = fact.host or self._hosts.get(fact.executor, "")
        return self._unsuccess(
            TasksFailed(fact.record, index, index + 1, fact.attempt, fact.failure, host, fact.detail)
        )

    def _returned(self, fact: SpanReturned) -> Iterable[Message]:
        self.withdrawn(fact.span, fact.start, fact.stop)
        return (TasksRunning(fact.record, fact.start, fact.stop, 0),)

    def _not_run(self, fact: Skipped) -> Iterable[Message]:
        return self._unsuccess(TasksFailed(fact.record, fact.start, fact.stop, 0, fact.failure))

    def _unsuccess(self, message: TasksFailed) -> Iterable[Message]:
        return self._patience.told(message) if self._patience is not None else (message,)

    def _ended_by_hand(self, deed: Cancelled | Killed) -> Iterable[Message]:
        out: dict[RecordId, list[_SpanOut]] = {}
        for hand in self._out.values():
            out.setdefault(hand.record, []).append(hand)
        for record, start, stop, failure in self._struck(deed):
            found = next((hand for hand in out.get(record, ()) if hand.has(start)), None)
            attempt, host = (found.attempt, self._hosts.get(found.executor, "")) if found else (0, "")
            yield TasksFailed(record, start, stop, attempt, failure, host)

    def _reset(self, fact: WasReset | Amended) -> Iterable[Message]:
        """What was out is with nobody any more. Nobody is told that something is not done after all."""
        reset: dict[RecordId, list[tuple[int, int]]] = {}
        for record, start, stop in fact.parts:
            self._results.forget(record, start, stop)
            reset.setdefault(record, []).append((start, stop))
        return [
            TasksRunning(hand.record, max(low, start), min(high, stop), 0)
            for hand in self._out.values()
            if hand.record in reset
            for low, high in hand.left
            for start, stop in reset[hand.record]
            if low < stop and start < high
        ]

    def _recalled(self, fact: MemoLookedUp) -> Iterable[Message]:
        if not fact.found:
            return ()
        begin, end = fact.source_start, fact.source_start + fact.stop - fact.start
        if end - begin == 1:
            found = [(begin, end, self._results.find(fact.turn, fact.source, begin))]
        else:
            found = self._results.successes(fact.turn, fact.source, begin, end, again=self._wanted(fact.record))
        shift = fact.start - begin
        return [
            TasksSucceeded(
                fact.record,
                start + shift,
                stop + shift,
                span.attempt,
                results=part(span, start, stop),
                details=cut_details(span.details, start, stop, shift) if span.details else (),
                reused=True,
            )
            for start, stop, span in found
        ]

    def withdrawn(self, span: SpanId, start: int, stop: int) -> None:
        """Of these elements of a span nothing more will be heard."""
        hand = self._out.get(span)
        if hand is not None:
            ranges.take(hand.left, start, stop)
            if not hand.left:
                del self._out[span]


class _SpanOut(msgspec.Struct, gc=False):
    """A span that is out."""

    record: RecordId
    attempt: int
    executor: ExecutorId
    left: ranges.Ranges

    def has(self, index: int) -> bool:
        """Whether an element is still out with it."""
        return any(start <= index < stop for start, stop in self.left)


def cut_details(details: tuple[Detail, ...], start: int, stop: int, shift: int) -> tuple[Detail, ...]:
    """The details of the elements [start, stop), renumbered by `shift`."""
    wanted = (detail for detail in details if start <= detail.index < stop)
    if not shift:
        return tuple(wanted)
    return tuple(msgspec.structs.replace(detail, index=detail.index + shift) for detail in wanted)


_STRANDED = 1.0  # seconds after a submission until tasks that nobody can run are spoken of


class OperatorMessages:
    """See the module. `announce` tells operators and users."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        machine: Machine,
        peers: Peers,
        clock: Clock,
        announce: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._peers = peers
        self._clock = clock
        self._announce = announce
        self._check: asyncio.TimerHandle | None = None
        self._told: set[Needs] = set()

    def on(self, turn: Turn) -> None:
        """A turn has taken effect."""
        kinds = set(map(type, turn.facts))
        if ExecutorSuspended in kinds:
            for fact in turn.facts:
                if type(fact) is ExecutorSuspended:
                    self._tell_suspended(fact)
        if self._check is None and (Submitted in kinds or Amended in kinds):
            self._check = self._loop.call_later(_STRANDED, self._tell_stranded)
        for complaint in turn.complaints:
            log(complaint)

    def _tell_stranded(self) -> None:
        """Say once of each kind of task that no executor can ever run it: the workflow would wait without a word."""
        self._check = None
        for needs, record in self._machine.stranded().items():
            if needs not in self._told:
                self._told.add(needs)
                self._announce(self._machine.explain(record)[0])

    def _tell_suspended(self, fact: ExecutorSuspended) -> None:
        """Say that the core gives an executor a rest; of those that are missing others speak."""
        executor = self._peers.executors.get(fact.executor)
        if executor is not None and executor.ready:
            rest = fact.until - self._clock.now()
            log(f"executor {fact.executor} on {executor.hello.host} is suspended for {rest:.0f} s: {fact.reason}")
