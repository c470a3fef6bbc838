"""What clients and operators are told of a turn; failures withheld while their group may be retried.

`TurnMessages` translates the facts of a turn into messages for clients, `OperatorMessages` tells operators of suspended
executors and of tasks that no executor can run, each kind of task once. Rule: a client is told of every element that
ended, once per end, of starts and returns so that it can show what runs, and of what is seen of watched tasks. A
failure that a retry of its group may undo is no end: it is withheld, and told in the turn in which no retry can come
any more. Nor is a success whose outputs are on their way: it is told when they are safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from bough import logs
from bough.core.machine import Turn
from bough.core.queries.answers import GroupTry
from bough.core.queries.facade import Queries
from bough.model.arrays import ranges
from bough.model.events.facts import (
    Amended,
    Cancelled,
    ElementFailed,
    ExecutorJoined,
    ExecutorLost,
    ExecutorSuspended,
    Fact,
    Killed,
    MadeAgain,
    MemoLookedUp,
    Observed,
    OutputsSafe,
    Placed,
    Replicated,
    Skipped,
    SpanEnded,
    SpanReturned,
    SpanStarted,
    Submitted,
    WasReset,
)
from bough.model.ids import ExecutorId, GroupId, RecordId, SpanId
from bough.model.outcomes import Cause, Detail
from bough.model.sites.resources import Needs
from bough.model.tasks import Dep, On
from bough.server.peers import Peers
from bough.server.turns.result_parts import ResultCache, part
from bough.server.turns.run_info import Clock
from bough.wire.client_messages import TasksFailed, TasksObserved, TasksRunning, TasksSucceeded

Message = TasksSucceeded | TasksFailed | TasksRunning | TasksObserved
_UNPLACEABLE_AFTER = 1.0  # seconds after a submission until tasks that no executor can run are spoken of


class TurnMessages:
    """Turns facts into messages; remembers hosts, and which executor has which span."""

    def __init__(
        self,
        results: ResultCache,
        queries: Queries,
        withheld: WithheldFailures,
    ) -> None:
        self._results = results
        self._queries = queries
        self._withheld = withheld
        self._hosts: dict[ExecutorId, str] = {}
        self._out: dict[SpanId, _SpanOut] = {}
        self._replicas: dict[RecordId, set[int]] = {}  # elements that were replicated, by record, until they succeed
        self._translate: dict[type, Callable[..., Iterable[Message]]] = {
            Amended: self._reset,
            Cancelled: self._ended_by_action,
            ElementFailed: self._failed,
            ExecutorJoined: self._joined,
            ExecutorLost: self._lost,
            Killed: self._ended_by_action,
            Skipped: self._not_run,
            Observed: self._observed,
            Placed: self._placed,
            Replicated: self._replicated,
            MemoLookedUp: self._recalled,
            WasReset: self._reset,
            MadeAgain: self._made_again,
            OutputsSafe: self._safe,
            SpanEnded: self._ended,
            SpanReturned: self._returned,
            SpanStarted: self._started,
        }

    def restore(self) -> None:
        """Know what was out when an earlier server ended."""
        for executor in self._queries.executors():
            self._hosts[executor.number] = executor.host
        for one in self._queries.attempts():
            self._out[one.span] = _SpanOut(one.record, one.attempt, one.executor, [list(part) for part in one.left])
        for record, index in self._queries.replicated():
            self._replicas.setdefault(record, set()).add(index)

    def messages(self, facts: Sequence[Fact]) -> list[Message]:
        """What the facts of one turn mean to a client, in order."""
        said: list[Message] = []
        translate = self._translate
        for fact in facts:
            handler = translate.get(type(fact))
            if handler is not None:
                said += handler(fact)
        if self._withheld:
            said += self._withheld.released()
        return said

    def _joined(self, fact: ExecutorJoined) -> Iterable[Message]:
        self._hosts[fact.executor] = fact.host
        return ()

    def _placed(self, fact: Placed) -> Iterable[Message]:
        self._out[fact.span] = _SpanOut(fact.record, fact.attempt, fact.executor, [[fact.start, fact.stop]])
        return ()

    def _replicated(self, fact: Replicated) -> Iterable[Message]:
        at = fact.index
        self._out[fact.span] = _SpanOut(fact.record, fact.attempt, fact.executor, [[at, at + 1]])
        self._replicas.setdefault(fact.record, set()).add(at)
        return ()

    def _elsewhere(self, record: RecordId, start: int, stop: int) -> TasksRunning | None:
        """Of one task that was replicated: that another attempt of it runs on, if one does."""
        if stop - start > 1 or start not in self._replicas.get(record, ()):
            return None
        other = self._queries.attempt_at(record, start)
        return TasksRunning(record, start, stop, other.attempt, other.host) if other is not None else None

    def _supersede(self, record: RecordId, start: int, stop: int) -> None:
        """Of the other attempts of tasks that succeeded nothing more will be heard."""
        replicated = self._replicas[record]
        for index in [index for index in replicated if start <= index < stop]:
            replicated.discard(index)
            for span in [span for span, out in self._out.items() if out.record == record and out.has(index)]:
                self.withdrawn(span, index, index + 1)
        if not replicated:
            del self._replicas[record]

    def _lost(self, fact: ExecutorLost) -> Iterable[Message]:
        """What a lost executor had, and did not cost an attempt, went back without a fact of its own."""
        self._hosts.pop(fact.executor, None)
        gone = [span for span, out in self._out.items() if out.executor == fact.executor]
        for span in gone:
            out = self._out.pop(span)
            for start, stop in out.left:
                yield self._elsewhere(out.record, start, stop) or TasksRunning(out.record, start, stop, 0)

    def _started(self, fact: SpanStarted) -> Iterable[Message]:
        out = self._out.get(fact.span)
        if out is None:
            return ()
        host = fact.host or self._hosts.get(out.executor, "")
        return (TasksRunning(out.record, fact.start, fact.stop, out.attempt, host),)

    def _observed(self, fact: Observed) -> Iterable[Message]:
        return (TasksObserved(fact.record, fact.index, fact.attempt, fact.observations),)

    def _ended(self, fact: SpanEnded) -> Iterable[Message]:
        self.withdrawn(fact.span, fact.start, fact.stop)
        if fact.record in self._replicas:
            self._supersede(fact.record, fact.start, fact.stop)
        unsaved = self._queries.unsaved_in(fact) if fact.details else None
        if fact.stop == 1 or unsaved or self._queries.results_wanted(fact.record):  # loose tasks need no question
            self._results.remember(fact)
        if unsaved:
            told = [[fact.start, fact.stop]]
            for index in unsaved:
                ranges.take(told, index, index + 1)
            return [self._succeeded(fact, start, stop) for start, stop in told]
        host = fact.host or self._hosts.get(fact.executor, "")
        return (TasksSucceeded(fact.record, fact.start, fact.stop, fact.attempt, host, fact.results, fact.details),)

    def _succeeded(self, fact: SpanEnded, start: int, stop: int) -> TasksSucceeded:
        """What is said of a part of a success."""
        host = fact.host or self._hosts.get(fact.executor, "")
        details = cut_details(fact.details, start, stop, 0)
        return TasksSucceeded(fact.record, start, stop, fact.attempt, host, part(fact, start, stop), details)

    def _safe(self, fact: OutputsSafe) -> Iterable[Message]:
        """The outputs of elements that had succeeded are in their places: now they are done for their client."""
        for index in range(fact.start, fact.stop):
            for success in self._queries.results_of(Dep(On.TASK, fact.record, index)):
                found = self._results.find(success.turn, fact.record, index)
                yield self._succeeded(found, index, index + 1)

    def _failed(self, fact: ElementFailed) -> Iterable[Message]:
        index = fact.index
        self.withdrawn(fact.span, index, index + 1)
        if fact.retry_at >= 0:
            other = self._elsewhere(fact.record, index, index + 1)
            if other is not None:
                return (other,)
            return (TasksRunning(fact.record, index, index + 1, 0, ended=fact.attempt, detail=fact.detail),)
        host = fact.host or self._hosts.get(fact.executor, "")
        return self._unsuccess(
            TasksFailed(fact.record, index, index + 1, fact.attempt, fact.failure, host, fact.detail)
        )

    def _returned(self, fact: SpanReturned) -> Iterable[Message]:
        self.withdrawn(fact.span, fact.start, fact.stop)
        other = self._elsewhere(fact.record, fact.start, fact.stop)
        return (other or TasksRunning(fact.record, fact.start, fact.stop, 0),)

    def _not_run(self, fact: Skipped) -> Iterable[Message]:
        return self._unsuccess(TasksFailed(fact.record, fact.start, fact.stop, 0, fact.failure))

    def _unsuccess(self, message: TasksFailed) -> Iterable[Message]:
        return self._withheld.release_or_keep(message)

    def _ended_by_action(self, action: Cancelled | Killed) -> Iterable[Message]:
        by_record: dict[RecordId, list[_SpanOut]] = {}
        for span in self._out.values():
            by_record.setdefault(span.record, []).append(span)
        for record, start, stop, failure in self._queries.ended_by(action):
            found = next((span for span in by_record.get(record, ()) if span.has(start)), None)
            attempt, host = (found.attempt, self._hosts.get(found.executor, "")) if found else (0, "")
            yield TasksFailed(record, start, stop, attempt, failure, host)

    def _reset(self, fact: WasReset | Amended) -> Iterable[Message]:
        """What was out is with no executor any more. No client is told that a success does not count any more."""
        reset: dict[RecordId, list[tuple[int, int]]] = {}
        for record, start, stop in fact.parts:
            self._results.forget(record, start, stop)
            reset.setdefault(record, []).append((start, stop))
        return [
            TasksRunning(out.record, max(low, start), min(high, stop), 0)
            for out in self._out.values()
            if out.record in reset
            for low, high in out.left
            for start, stop in reset[out.record]
            if low < stop and start < high
        ]

    def _made_again(self, fact: MadeAgain) -> Iterable[Message]:
        """What is known of its success is that of the next. No client is told: for users it stays done."""
        self._results.forget(fact.record, fact.index, fact.index + 1)
        return ()

    def _recalled(self, fact: MemoLookedUp) -> Iterable[Message]:
        if not fact.found:
            return ()
        begin, end = fact.source_start, fact.source_start + fact.stop - fact.start
        if end - begin == 1:
            found = [(begin, end, self._results.find(fact.turn, fact.source, begin))]
        else:
            found = self._results.successes(
                fact.turn, fact.source, begin, end, again=self._queries.results_wanted(fact.record)
            )
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
        out = self._out.get(span)
        if out is not None:
            ranges.take(out.left, start, stop)
            if not out.left:
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


class _Withheld(msgspec.Struct):
    """What is withheld because of one group."""

    group: GroupTry
    messages: list[TasksFailed]


class WithheldFailures:
    """Failures that clients are not told of yet, because the group around them may be retried as a whole.

    A future that was told of a failure is resolved for good, so a client must not hear of one that may be undone. Only
    groups that are closed count: while one is open nothing says when it ends, and a script may wait for a task in it.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._withheld: dict[GroupId, _Withheld] = {}

    def release_or_keep(self, message: TasksFailed) -> Iterator[TasksRunning | TasksFailed]:
        """What is to be said now of elements that did not succeed."""
        queries, record, failure = self._queries, message.record, message.failure
        known = failure.cause is not Cause.CANCELLED and queries.has_record(record)
        if not known or not queries.has_retrying_groups(record, failure.source):
            yield message
            return
        group = queries.retrying_group(record, failure.source)
        left = queries.failed_parts(record, message.start, message.stop)
        if group is not None or left != [(message.start, message.stop)]:  # what has not failed any more is retried
            yield TasksRunning(record, message.start, message.stop, 0)
        for start, stop in left:
            part = msgspec.structs.replace(message, start=start, stop=stop)
            if group is None:
                yield part
            else:
                self._withheld.setdefault(group.group, _Withheld(group, [])).messages.append(part)

    def released(self) -> Iterator[TasksRunning | TasksFailed]:
        """What is to be said now of what was withheld."""
        for number, withheld in list(self._withheld.items()):
            if not self._queries.may_be_retried(withheld.group):
                del self._withheld[number]
                for message in withheld.messages:
                    yield from self.release_or_keep(message)

    def __bool__(self) -> bool:
        """Whether anything is withheld."""
        return bool(self._withheld)


class OperatorMessages:
    """See the module. `announce` tells operators and users."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        queries: Queries,
        peers: Peers,
        clock: Clock,
        announce: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._queries = queries
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
            self._check = self._loop.call_later(_UNPLACEABLE_AFTER, self._tell_unplaceable)
        for complaint in turn.complaints:
            logs.warning("policy-failed", complaint)

    def _tell_unplaceable(self) -> None:
        """Say once of each kind of task that no executor can ever run it: the workflow would wait without a word."""
        self._check = None
        for needs, record in self._queries.unplaceable().items():
            if needs not in self._told:
                self._told.add(needs)
                self._announce(self._queries.explain(record, 0)[0])

    def _tell_suspended(self, fact: ExecutorSuspended) -> None:
        """Say that the core suspends an executor; a missing one is told of elsewhere."""
        executor = self._peers.executors.get(fact.executor)
        if executor is not None and executor.ready:
            rest = fact.until - self._clock.now()
            logs.warning(
                "executor-suspended",
                f"executor {fact.executor} on {executor.hello.host} is suspended for {rest:.0f} s: {fact.reason}",
            )
