"""Tasks that a person takes, runs and reports; no policy of its own any more.

Executors played by people: each has one task that somebody took by hand, and is gone when that is over.

The core knows a hand as an executor of the site "hand" without a process. It joins for one task, which it is given by
name, and is drained at once. Rule: a hand gets what was taken for it, and nothing else.

What may be taken by hand: the next ready command of a workflow or group, and all that is needed to run it.

Rule: only commands; nothing is unpickled here, so that the text of an array's element is made by who asked for it.

Tasks taken by hand: somebody asks for the next one, runs it as he likes, and says how it ended.

Who has a task is asked by name and told the same task again until he says that it is done. Only commands can be
taken: functions need a worker of ours. Rule: what is taken stands in the journal before anybody hears of it, so that a
server that was started anew knows who has what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

import msgspec

from bough.core.queries import TaskCounts, awaits_retry, below, workflows_of
from bough.core.records.array_record import FAILED, HELD, PLACED, RUNNING, SKIPPED, WAITING, ArrayRecord, Record
from bough.core.records.attempts import Span
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.ready_queue import Entry, ReadyQueue
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.errors import StoreFailed, UnknownName, UserError
from bough.model.events.facts import ExecutorDrained, ExecutorJoined, ExecutorLost
from bough.model.events.news import WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.ids import ExecutorId, RecordId, Seconds, SpanId
from bough.model.outcomes import Cause, Detail, Failure, Output
from bough.model.resources import Needs
from bough.model.states import TaskState
from bough.model.tasks import Kind, TaskSpec
from bough.policy.interface import ExecutorView, Place, PlacementPolicy, ReadyWork, View
from bough.server.peers import DeferredRequest
from bough.server.server_log import log
from bough.server.service.id_ranges import IdRanges
from bough.server.task_requests import TaskRequests
from bough.server.turns.shell import Shell
from bough.stores.store_errors import reported
from bough.wire import questions
from bough.wire.executor_messages import TaskAnswer, TaskRequest

SITE = "hand"


def is_hand(executor: ExecutorRecord) -> bool:
    """Whether an executor is played by somebody."""
    return executor.site == SITE and not executor.pid


def hands(state: State) -> Iterator[ExecutorRecord]:
    """Those that the core knows of."""
    return (executor for executor in state.executors.values() if is_hand(executor))


class TaskPerson:
    """Who took a task by hand and speaks for it: what `server.here` answers goes to the errand.

    `gone`: called when he has left before he got a lock that he waited for.
    """

    def __init__(self, number: ExecutorId, errand: DeferredRequest[questions.Here], gone: Callable[[], None]) -> None:
        self.number = number
        self._errand = errand
        self._gone = gone

    @property
    def connection(self) -> TaskPerson:
        """Himself."""
        return self

    def send(self, message: object) -> None:
        """Answer him."""
        assert isinstance(message, TaskAnswer)
        if message.error:
            self._errand.refuse(UserError(message.error))
        elif self._errand.client.connection.is_open:
            self._errand.answer(message.value)
        elif message.value.get("new"):
            self._gone()


class ManualPolicy:
    """Carries out what was taken by hand first, and leaves the rest to the policy it stands before."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.wishes: list[Place] = []  # of the turn that comes next
        self._policy = policy

    def rank(self, work: ReadyWork, /) -> float:
        """As the policy says."""
        return self._policy.rank(work)

    def place(self, view: View, /) -> Iterable[Place]:
        """What was taken, then what the policy wants for all but hands."""
        if not self.wishes:
            return self._policy.place(view)
        return self._by_hand(view)

    def _by_hand(self, view: View) -> Iterator[Place]:
        wishes, self.wishes = self.wishes, []
        yield from wishes
        yield from self._policy.place(_Others(view, frozenset(wish.executor for wish in wishes)))


class _Others:
    """The world without some executors."""

    def __init__(self, view: View, hidden: frozenset[int]) -> None:
        self._view = view
        self._hidden = hidden

    @property
    def now(self) -> Seconds:
        """The time."""
        return self._view.now

    @property
    def random(self) -> Random:
        """The only dice."""
        return self._view.random

    def ready(self) -> Iterator[ReadyWork]:
        """What is ready, best first."""
        return self._view.ready()

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs."""
        self._view.skip(needs)

    def room_for(self, work: ReadyWork, excluding: frozenset[int] | set[int] = frozenset()) -> ExecutorView | None:
        """The executor that has had room the longest and would take a task of this work."""
        return self._view.room_for(work, self._hidden | excluding)

    def rooms(self) -> list[ExecutorView]:
        """Every executor that may take something."""
        return [room for room in self._view.rooms() if room.id not in self._hidden]

    def roomiest(self, needs: Needs) -> ExecutorView | None:
        """The executor most of whose cores are free, among those that could ever fit these needs."""
        if self._view.roomiest(needs) is None:
            return None
        able = [room for room in self.rooms() if room.could_fit(needs)]
        return max(able, key=lambda room: room.free("cores"), default=None)


_DEEP = 100_000  # entries of one queue that are looked at


class TakeScope:
    """The workflows, or groups of them, that somebody takes tasks from."""

    def __init__(self, shell: Shell, workflow: str = "", group: str = "") -> None:
        self._shell = shell
        self._state = shell.machine.state
        known = workflows_of(self._state)
        self.workflows: list[Workflow] = [one for one in known if not workflow or workflow in _names(one)]
        if workflow and not self.workflows:
            names = ", ".join(dict.fromkeys(one.name for one in known)) or "none"
            raise UnknownName(f"there is no workflow {workflow!r}; there are: {names}")
        self._tops: list[GroupRecord] = [one.group for one in self.workflows]
        if group:
            path = group.strip("/")
            self._tops = [found for one in self._tops for found in below(one) if found.path == path]
            if not self._tops:
                raise UnknownName(f"there is no group {path!r}; see bough status")
        self._is_part = bool(group)

    def choose(self, host: str = "") -> Record | None:
        """The command that goes next: of the workflow that holds the fewest cores, in the policy's order.

        Those with affinity to the host of who asks go first, and those with affinity to where somebody else took their
        predecessor go last: he may come back for them. What belongs to the host of an executor is that one's.
        """
        best: tuple[int, float, Entry] | None = None
        for queue in [leaf for root in self._state.waiting for leaf in root.leaves()]:
            if queue.workflow not in self.workflows or queue.place in self._state.hosts:
                continue
            entry = self._first(queue)
            near = 1 if not queue.place else 0 if queue.place.rpartition("@")[2] == host else 2
            if entry is not None and (best is None or (near, queue.workflow.cores, entry) < best):
                best = near, queue.workflow.cores, entry
        return best[2][4] if best is not None else None

    def _first(self, queue: ReadyQueue) -> Entry | None:
        taken: list[Entry] = []
        found = None
        while len(taken) < _DEEP and (entry := queue.take()) is not None:
            taken.append(entry)
            if entry[4].spec.kind is Kind.COMMAND and self._holds(entry[4]):
                found = entry
                break
        for entry in reversed(taken):
            queue.put_back(entry)
        return found

    def _holds(self, record: Record) -> bool:
        return not self._is_part or any(group in self._tops for group in record.group.chain())

    def none(self) -> dict[str, object]:
        """Why there is nothing to take: "none" just now, all is "done", or it is "blocked" until somebody acts."""
        standing = TaskCounts(group for top in self._tops for group in below(top))
        failed = standing.counts[FAILED] + standing.counts[SKIPPED]
        value: dict[str, object] = {
            "counts": {TaskState(state).label: count for state, count in enumerate(standing.counts) if count}
        }
        if not standing.unended:
            return {"answer": "done", "text": f"everything has ended: {standing}", "failed": failed, **value}
        around = TaskCounts(group for one in self.workflows for group in below(one.group))
        if self._goes_on(around):
            return {"answer": "none", "text": "nothing is ready now; ask again later", **value}
        if standing.counts[HELD]:
            text = f"tasks are held ({standing.counts[HELD]}); let them go with bough release"
        elif around.ready:
            text = f"what is ready ({around.ready}) are functions, which need an executor: bough executor start"
        else:
            text = f"nothing can become ready: {standing}; see bough status and bough explain"
        return {"answer": "blocked", "text": text, **value}

    def _goes_on(self, around: TaskCounts) -> bool:
        """Whether something may become ready without anybody's help."""
        if around.out or self._shell.is_busy or any(awaits_retry(self._state, one) for one in self.workflows):
            return True
        if around.ready and any(not is_hand(one) and not one.draining for one in self._state.executors.values()):
            return True
        if around.ready and self._is_part and self._whole().choose() is not None:
            return True
        return bool(around.counts[WAITING]) and any(self._shell.peers.of_run(one.run) for one in self.workflows)

    def _whole(self) -> TakeScope:
        """The same workflows without the restriction to a group."""
        whole = TakeScope(self._shell)
        whole.workflows = self.workflows
        return whole


def _names(workflow: Workflow) -> tuple[str, str]:
    return workflow.name, workflow.group.name


def label(record: Record, index: int) -> str:
    """A task's id as people write it."""
    return f"{record.id}.{index}" if record.is_array else str(record.id)


def describe(shell: Shell, record: Record, index: int) -> dict[str, object]:
    """A task's attributes, and what its command is made of."""
    spec, needs, limits = record.spec, record.needs, record.spec.limits
    held = _whereabouts(shell, record, index)
    return {
        "id": label(record, index),
        "record": record.id,
        "index": index,
        "is_array": record.is_array,
        "kind": spec.kind.name.lower(),
        "name": spec.name,
        "group": record.group.path,
        "workflow": record.group.workflow.name,
        "state": TaskState(record.state_of(index)).label,
        "attempt": held[0] if held else _attempts(record, index),
        "host": held[1] if held else "",
        "cores": needs.cores,
        "memory": needs.memory,
        "gpus": needs.gpus,
        "resources": dict(needs.named),
        "timeout": limits.timeout,
        "walltime": limits.walltime,
        "retries": limits.retries,
        "priority": record.priority,
        "release": spec.terms.release,
        "affinity": bool(spec.terms.near),
        "attributes": record.attributes,
        **_making(shell, record, index),
    }


def _whereabouts(shell: Shell, record: Record, index: int) -> tuple[int, str] | None:
    for span in shell.machine.state.spans.values():
        if span.record is record and any(low <= index < high for low, high in span.left):
            return span.attempt, span.executor.host
    return None


def _attempts(record: Record, index: int) -> int:
    if isinstance(record, TaskRecord):
        return record.attempt
    return record.attempts.get(index, 0)


def _making(shell: Shell, record: Record, index: int) -> dict[str, object]:
    """What the text of a command is made of."""
    spec = record.spec
    if spec.kind is not Kind.COMMAND:
        return {"payload": b"", "body": b"", "table": b"", "pages": []}
    if isinstance(spec, TaskSpec):
        payload = spec.payload
        if spec.payload_path:
            with reported(spec.payload_path), open(spec.payload_path, "rb") as file:
                payload = file.read()
        return {"payload": payload, "body": b"", "table": b"", "pages": []}
    assert isinstance(record, ArrayRecord)
    try:
        body, table = shell.store.blob(spec.body), shell.store.blob(spec.table) if spec.table else b""
    except KeyError:
        raise StoreFailed(f"the command of array {record.id} was never sent to the server") from None
    return {"payload": b"", "body": body, "table": table, "pages": list(_pages(record, index))}


def _pages(record: ArrayRecord, index: int) -> Iterator[tuple[int, int, bytes]]:
    for page in record.pages(index, index + 1):
        yield page.start, page.stop, page.data


_TRIES = 5  # what was chosen may be gone when the turn comes
_ALL = 1 << 62  # an element that no span reaches


class ManualTasks:
    """See the module."""

    def __init__(self, shell: Shell, numbers: IdRanges, here: TaskRequests) -> None:
        self._shell = shell
        self._here = here
        self._state = shell.machine.state
        self._numbers = numbers
        self._policy = ManualPolicy(self._state.policy)
        self._state.policy = self._policy
        self._coming: set[str] = set()  # who is just being given something
        self._since: dict[int, Seconds] = {}  # when each took its task; those of an earlier server: not known
        self._hands: set[ExecutorId] = {hand.id for hand in hands(self._state)}
        for hand in hands(self._state):  # those of an earlier server, which may have ended in the middle of a hand-out
            shell.news(ExecutorDrained(hand.id))
            for number in hand.spans:
                shell.news(WorkStarted(SpanId(number), 0, _ALL))
        shell.on_turn.append(self._let_go)

    # --- taking --------------------------------------------------------------------------------------

    def take(self, errand: DeferredRequest[questions.Take]) -> None:
        """Give somebody the task he has, or the next that is ready, or say why there is none."""
        wanted = errand.question
        name = _check_name(wanted.name)
        host = name.rpartition("@")[2] if "@" in name else wanted.host
        scope = TakeScope(self._shell, wanted.queue, wanted.group)
        self._take(errand, name, host, scope, _TRIES)

    def _take(
        self, errand: DeferredRequest[questions.Take], name: str, host: str, scope: TakeScope, tries: int
    ) -> None:
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
        self,
        errand: DeferredRequest[questions.Take],
        name: str,
        host: str,
        scope: TakeScope,
        number: ExecutorId,
        tries: int,
    ) -> None:
        """The turn is over: what was wished for is there, or was gone before."""
        self._policy.wishes = [wish for wish in self._policy.wishes if wish.executor != number]
        hand, shell = self._state.executors[number], self._shell
        self._hands.add(number)
        span = _span_of(hand)
        shell.news(ExecutorDrained(number))
        for other in list(hand.spans.values()):
            if other is not span:
                shell.news(WorkReturned(SpanId(other.id), 0, _ALL))
        if span is None:
            shell.news(ExecutorLost(number, "there was nothing to take any more"))
            self._coming.discard(name)
            errand.attempt(lambda same: self._take(same, name, host, scope, tries - 1))
            return
        self._since[number] = self._shell.clock.now()
        index = span.left[0][0]
        shell.news(WorkReturned(SpanId(span.id), index + 1, _ALL))
        log(f"{hand.host} took task {label(span.record, index)} by hand")

        def given() -> None:
            self._coming.discard(name)
            shell.upkeep.when_synced(lambda: errand.answer(self._given(span)))

        shell.news(WorkStarted(SpanId(span.id), index, index + 1), then=given)

    def _given(self, span: Span) -> dict[str, object]:
        if not span.left:  # cancelled in the same moment
            return {"answer": "none", "text": "the task that was taken was cancelled; ask again"}
        record, index = span.record, span.left[0][0]
        return {"answer": "task", "text": "", **describe(self._shell, record, index)}

    # --- ending --------------------------------------------------------------------------------------

    def done(self, errand: DeferredRequest[questions.Done]) -> None:
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
            self._shell.news(WorkReturned(SpanId(span.id), index, index + 1))
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
            self._shell.news(WorkSucceeded(SpanId(span.id), index, index + 1, seconds, None, (detail,)))
            return
        self._shell.news(WorkFailed(SpanId(span.id), index, failure, detail))

    def _said(self, errand: DeferredRequest[questions.Done], record: Record, index: int) -> None:
        task, state = label(record, index), TaskState(record.state_of(index)).label
        self._shell.upkeep.when_synced(lambda: errand.answer({"id": task, "state": state, "changed": True}))

    def here(self, errand: DeferredRequest[questions.Here]) -> None:
        """What a task that somebody took says of itself or asks for, as those that executors run do."""
        asked = errand.question
        record, index = self._find(asked)
        span, task = self._span_with(record, index), label(record, index)
        if span is None or not is_hand(span.executor):
            raise UserError(f"task {task} was not taken by hand; tasks that executors run speak for themselves")
        _check_owner(span.executor, _check_name(asked.name), task)
        message = TaskRequest(0, SpanId(span.id), RecordId(record.id), index, span.attempt, asked.question)
        name = asked.question.name if isinstance(asked.question, questions.Lock) else ""
        speaker = TaskPerson(
            span.executor.id,
            errand,
            lambda: self._here.ask(speaker, msgspec.structs.replace(message, question=questions.Unlock(name))),
        )
        self._here.ask(speaker, message)

    def task(self, errand: DeferredRequest[questions.Task]) -> None:
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
