"""Tasks taken by hand: somebody asks for the next one, runs it as he likes, and says how it ended.

Who has a task is asked by name and told the same task again until he says that it is done. Only commands can be
taken: functions need a worker of ours. Rule: what is taken stands in the journal before anybody hears of it, so that a
server that was started anew knows who has what.
"""

from __future__ import annotations

import msgspec

from bough.core.records import PLACED, RUNNING, Record
from bough.core.room import ExecutorRecord, Span
from bough.core.states import TaskState
from bough.errors import UnknownName, UserError
from bough.model.facts import (
    ElementFailed,
    ExecutorDrained,
    ExecutorJoined,
    ExecutorLost,
    SpanEnded,
    SpanReturned,
    SpanStarted,
)
from bough.model.ids import ExecutorId, RecordId, Seconds, SpanId
from bough.model.outcomes import Cause, Detail, Failure, Output
from bough.policy.api import Place
from bough.server.errand import Errand
from bough.server.hands import SITE, HandPolicy, Speaker, hands, is_hand
from bough.server.here import Here
from bough.server.log import log
from bough.server.numbers import NumberBook
from bough.server.shell import Shell
from bough.server.takeable import Scope, describe, label
from bough.wire import questions
from bough.wire.work import HereAsk

_TRIES = 5  # what was chosen may be gone when the turn comes
_ALL = 1 << 62  # an element that no span reaches


class Taking:
    """See the module."""

    def __init__(self, shell: Shell, numbers: NumberBook, here: Here) -> None:
        self._shell = shell
        self._here = here
        self._state = shell.machine.state
        self._numbers = numbers
        self._policy = HandPolicy(self._state.policy)
        self._state.policy = self._policy
        self._coming: set[str] = set()  # who is just being given something
        self._since: dict[int, Seconds] = {}  # when each took its task; those of an earlier server: not known
        self._hands: set[ExecutorId] = {hand.id for hand in hands(self._state)}
        for hand in hands(self._state):  # those of an earlier server, which may have ended in the middle of a hand-out
            shell.news(ExecutorDrained(hand.id))
            for number in hand.spans:
                shell.news(SpanStarted(SpanId(number), 0, _ALL))
        shell.on_turn.append(self._let_go)

    # --- taking --------------------------------------------------------------------------------------

    def take(self, errand: Errand[questions.Take]) -> None:
        """Give somebody the task he has, or the next that is ready, or say why there is none."""
        wanted = errand.question
        name = _check_name(wanted.name)
        host = name.rpartition("@")[2] if "@" in name else wanted.host
        scope = Scope(self._shell, wanted.queue, wanted.group)
        self._take(errand, name, host, scope, _TRIES)

    def _take(self, errand: Errand[questions.Take], name: str, host: str, scope: Scope, tries: int) -> None:
        if name in self._coming:  # he asked twice at once
            self._shell.after_turn(lambda: errand.attempt(self.take))
            return
        hand = self._hand_of(name)
        if hand is not None and (span := _span_of(hand)) is not None:
            errand.answer(self._given(span))
            return
        record = scope.choose(host) if tries else None
        if record is None:
            errand.answer(scope.none())
            return
        number = self._numbers.new_executor()
        self._coming.add(name)
        self._policy.wishes.append(Place(record.id, number, 1))
        where = name if "@" in name else f"{name}@{host}"
        self._shell.news(
            ExecutorJoined(number, SITE, where, 0, record.needs),
            then=lambda: self._placed(errand, name, host, scope, number, tries),
        )

    def _placed(  # noqa: PLR0917
        self, errand: Errand[questions.Take], name: str, host: str, scope: Scope, number: ExecutorId, tries: int
    ) -> None:
        """The turn is over: what was wished for is there, or was gone before."""
        self._policy.wishes = [wish for wish in self._policy.wishes if wish.executor != number]
        hand, shell = self._state.executors[number], self._shell
        self._hands.add(number)
        span = _span_of(hand)
        shell.news(ExecutorDrained(number))
        for other in list(hand.spans.values()):
            if other is not span:
                shell.news(SpanReturned(SpanId(other.id), 0, _ALL))
        if span is None:
            shell.news(ExecutorLost(number, "there was nothing to take any more"))
            self._coming.discard(name)
            errand.attempt(lambda same: self._take(same, name, host, scope, tries - 1))
            return
        self._since[number] = self._shell.clock.now()
        index = span.left[0][0]
        shell.news(SpanReturned(SpanId(span.id), index + 1, _ALL))
        log(f"{hand.host} took task {label(span.record, index)} by hand")

        def given() -> None:
            self._coming.discard(name)
            shell.upkeep.when_synced(lambda: errand.answer(self._given(span)))

        shell.news(SpanStarted(SpanId(span.id), index, index + 1), then=given)

    def _given(self, span: Span) -> dict[str, object]:
        if not span.left:  # cancelled in the same moment
            return {"answer": "none", "text": "the task that was taken was cancelled; ask again"}
        record, index = span.record, span.left[0][0]
        return {"answer": "task", "text": "", **describe(self._shell, record, index)}

    # --- ending --------------------------------------------------------------------------------------

    def done(self, errand: Errand[questions.Done]) -> None:
        """Somebody says how the task that he took ended; said again it changes nothing."""
        said = errand.question
        name = _check_name(said.name)
        record, index = self._find(said)
        task = label(record, index)
        span = self._span_with(record, index)
        if span is None or record.state_of(index) not in {PLACED, RUNNING}:
            state = TaskState(record.state_of(index)).label
            errand.answer({"id": task, "state": state, "changed": False})
            return
        hand = span.executor
        if not is_hand(hand):
            raise UserError(f"task {task} runs on executor {hand.id} at {hand.host}, which will say itself how it ends")
        _check_owner(hand, name, task)
        if said.give_back:
            self._shell.news(SpanReturned(SpanId(span.id), index, index + 1))
        else:
            self._end(said, span, index)
        self._shell.news(ExecutorLost(hand.id, "its task is over"), then=lambda: self._said(errand, record, index))

    def _end(self, said: questions.Done, span: Span, index: int) -> None:
        now = self._shell.clock.now()
        begun = self._since.pop(span.executor.id, 0.0)
        seconds = max(now - begun, 0.0) if begun else max(span.record.expected, 1.0)
        code, missing = said.exit_code, said.missing
        outputs = tuple(Output(*each) for each in said.outputs)
        detail = Detail(index, exit_code=code, started=begun, ended=now, outputs=outputs)
        if code:
            failure = Failure(Cause.EXIT, f"exit code {code}, said {span.executor.host}", exit_code=code)
        elif missing:
            failure = Failure(Cause.MISSING_OUTPUT, f"the declared output {missing} is not there", exit_code=0)
        else:
            self._shell.news(SpanEnded(SpanId(span.id), index, index + 1, seconds, None, (detail,)))
            return
        self._shell.news(ElementFailed(SpanId(span.id), index, failure, detail))

    def _said(self, errand: Errand[questions.Done], record: Record, index: int) -> None:
        task, state = label(record, index), TaskState(record.state_of(index)).label
        self._shell.upkeep.when_synced(lambda: errand.answer({"id": task, "state": state, "changed": True}))

    def here(self, errand: Errand[questions.Here]) -> None:
        """What a task that somebody took says of itself or asks for, as those that executors run do."""
        asked = errand.question
        record, index = self._find(asked)
        span, task = self._span_with(record, index), label(record, index)
        if span is None or not is_hand(span.executor):
            raise UserError(f"task {task} was not taken by hand; tasks that executors run speak for themselves")
        _check_owner(span.executor, _check_name(asked.name), task)
        message = HereAsk(0, SpanId(span.id), RecordId(record.id), index, span.attempt, asked.question)
        name = asked.question.name if isinstance(asked.question, questions.Lock) else ""
        speaker = Speaker(
            span.executor.id,
            errand,
            lambda: self._here.ask(speaker, msgspec.structs.replace(message, question=questions.Unlock(name))),
        )
        self._here.ask(speaker, message)

    def task(self, errand: Errand[questions.Task]) -> None:
        """All that there is to know of one task, to run it by hand."""
        record, index = self._find(errand.question)
        errand.answer(describe(self._shell, record, index))

    # --- who has what --------------------------------------------------------------------------------

    def _find(self, task: questions.Task | questions.Done | questions.Here) -> tuple[Record, int]:
        number, index = task.record, task.index
        record = self._shell.machine.find(number)
        if record is None:
            raise UnknownName(f"there is no task {number}; see bough status")
        if not 0 <= index < record.length:
            raise UnknownName(f"{number} has {record.length} tasks, there is no {number}.{index}")
        return record, index

    def _hand_of(self, name: str) -> ExecutorRecord | None:
        known = (self._state.executors.get(number) for number in self._hands)
        return next((hand for hand in known if hand is not None and hand.spans and _is_of(hand, name)), None)

    def _span_with(self, record: Record, index: int) -> Span | None:
        for span in self._state.spans.values():
            if span.record is record and any(low <= index < high for low, high in span.left):
                return span
        return None

    def _let_go(self) -> None:
        """Hands whose task was cancelled, killed or taken from them are gone."""
        for number in list(self._hands):
            hand = self._state.executors.get(number)
            if hand is None:
                self._hands.discard(number)
                self._since.pop(number, None)
            elif hand.draining and not hand.spans:
                self._shell.news(ExecutorLost(hand.id, "its task is over"))


def _span_of(hand: ExecutorRecord) -> Span | None:
    return next((span for span in hand.spans.values() if span.left), None)


def _is_of(hand: ExecutorRecord, name: str) -> bool:
    return name in {hand.host, hand.host.rpartition("@")[0]}


def _check_owner(hand: ExecutorRecord, name: str, task: str) -> None:
    if not _is_of(hand, name):
        raise UserError(f"task {task} was taken by {hand.host}, not by {name}; say --as if that is you")


def _check_name(name: str) -> str:
    if not name or len(name) > 200 or not name.isprintable():
        raise UserError("say who you are with a name of 1 to 200 letters")
    return name
