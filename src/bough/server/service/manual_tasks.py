"""Tasks that a person takes, runs and reports.

A person asks for the next command by name, and is given the same one again until the person reports its end. The core
chooses the command and gives it to an executor that stands for the person (see `core.actions.manual`). Only commands
can be taken: functions need a worker of ours. Rule: what was taken is on the disk before the person hears of it, so
that a server that was restarted knows which person has which task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from bough import logs
from bough.core.queries.answers import Attempt, ExecutorInfo, TaskCounts, WorkflowInfo
from bough.errors import StoreFailed, UnknownName, UserError
from bough.model.events.facts import ExecutorDrained, ExecutorLost
from bough.model.events.news import TakeTask, WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.events.orders import AnswerTake
from bough.model.ids import ExecutorId, GroupId, RecordId, Seconds, number_of
from bough.model.outcomes import Cause, Detail, Failure, Output
from bough.model.states import OCCUPYING, TaskState
from bough.model.tasks import ArraySpec, Kind, TaskSpec, index_of
from bough.model.texts.plurals import counted
from bough.server.peers import DeferredRequest
from bough.server.service.id_ranges import IdRanges
from bough.server.task_requests import TaskRequests
from bough.server.turns.shell import Shell
from bough.stores.store_errors import reported
from bough.wire import here_questions, questions
from bough.wire.executor_messages import TaskAnswer, TaskRequest

_ALL: Final = 1 << 62  # an element that no span reaches
_LONGEST_NAME: Final = 200  # characters


class ManualTasks:
    """See the module."""

    def __init__(self, shell: Shell, numbers: IdRanges, requests: TaskRequests) -> None:
        self._shell = shell
        self._queries = shell.queries
        self._numbers = numbers
        self._requests = requests
        self._spare: ExecutorId | None = None  # a number that was not used
        self._last_request = 0
        self._answers: dict[int, AnswerTake] = {}  # of the turn that takes effect, by request
        self._coming: set[str] = set()  # names of persons who are just being given something
        self._since: dict[ExecutorId, Seconds] = {}  # when each took its task; under an earlier server: not known
        self._manual: set[ExecutorId] = set(self._queries.manual_executors())
        for number in self._manual:  # an older version could end between giving a task and saying that it began
            shell.news(ExecutorDrained(number))
            for span in self._queries.spans_on(number):
                shell.news(WorkStarted(span, 0, _ALL))
        shell.perform[AnswerTake] = lambda order: self._answers.__setitem__(order.request, order)
        shell.on_turn.append(self._drop_idle)

    # --- taking --------------------------------------------------------------------------------------

    def take(self, deferred: DeferredRequest[questions.Take]) -> None:
        """Give a person the task that the person has, or the next that is ready, or say why there is none."""
        wanted = deferred.question
        name = _check_name(wanted.name)
        host = name.rpartition("@")[2] if "@" in name else _check_host(wanted.host)
        scope = TakeScope(self._shell, wanted.queue, wanted.group)
        if name in self._coming:  # the same person asked twice at once
            self._shell.after_turn(lambda: deferred.attempt(self.take))
            return
        attempt = self._attempt_of(name)
        if attempt is not None:
            deferred.answer(self._given(attempt))
            return
        number = self._spare or self._numbers.new_executor()
        self._spare = None
        self._last_request += 1
        request = self._last_request
        self._coming.add(name)
        self._shell.news(
            TakeTask(request, number, name if "@" in name else f"{name}@{host}", host, scope.groups),
            then=lambda: self._taken(deferred, name, number, scope, self._answers.pop(request, None)),
        )

    def _taken(
        self,
        deferred: DeferredRequest[questions.Take],
        name: str,
        number: ExecutorId,
        scope: TakeScope,
        order: AnswerTake | None,
    ) -> None:
        """The core has chosen."""
        if order is None or not order.span:
            self._coming.discard(name)
            self._spare = number
            deferred.attempt(
                lambda same: same.answer(scope.why_nothing(elsewhere=order is not None and order.elsewhere))
            )
            return
        self._manual.add(number)
        self._since[number] = self._shell.clock.now()
        attempt = self._queries.attempt(order.span)
        if attempt is not None:
            logs.info(
                "task-taken", f"{attempt.host} took task {self._queries.label(attempt.record, attempt.left[0][0])}"
            )

        def synced() -> None:
            self._coming.discard(name)
            deferred.attempt(lambda same: same.answer(self._given(self._queries.attempt(order.span))))

        self._shell.background.when_synced(synced)

    def _given(self, attempt: Attempt | None) -> dict[str, object]:
        if attempt is None:  # in the same moment
            return {"answer": "none", "text": "the task that was taken was cancelled; ask again"}
        return {"answer": "task", "text": "", **self._describe(attempt.record, attempt.left[0][0])}

    # --- ending --------------------------------------------------------------------------------------

    def done(self, deferred: DeferredRequest[questions.Done]) -> None:
        """A person says how the task ended that the person took; said again it changes nothing."""
        said = deferred.question
        name = _check_name(said.name)
        record, index, task = self._find(said)
        attempt = self._queries.attempt_at(record, index)
        state = self._queries.state_of(record, index)
        if attempt is None or state not in OCCUPYING:
            deferred.answer({"id": task, "state": state.label if state is not None else "", "changed": False})
            return
        executor = self._queries.executor(attempt.executor)
        if executor is None or not executor.is_manual:
            raise UserError(
                f"task {task} runs on executor {attempt.executor} at {attempt.host}, which will say itself how it ends"
            )
        _check_owner(executor, name, task)
        if said.give_back:
            self._shell.news(WorkReturned(attempt.span, index, index + 1))
        else:
            self._end(said, attempt, index)
        self._shell.news(ExecutorLost(executor.number, "its task has ended"), then=lambda: self._ended(deferred, task))

    def _end(self, said: questions.Done, attempt: Attempt, index: int) -> None:
        now = self._shell.clock.now()
        begun = self._since.pop(attempt.executor, 0.0)
        code, missing = said.exit_code, said.missing
        outputs = tuple(Output(*each) for each in said.outputs)
        detail = Detail(index, exit_code=code, started=begun, ended=now, outputs=outputs)
        if code:
            failure = Failure(Cause.EXIT, f"exit code {code}, said {attempt.host}", exit_code=code)
        elif missing:
            failure = Failure(Cause.MISSING_OUTPUT, f"the declared output {missing} is not there", exit_code=0)
        else:
            expected = self._queries.task(attempt.record, index).expected
            seconds = max(now - begun, 0.0) if begun else max(expected, 1.0)
            self._shell.news(WorkSucceeded(attempt.span, index, index + 1, seconds, None, (detail,)))
            return
        self._shell.news(WorkFailed(attempt.span, index, failure, detail))

    def _ended(self, deferred: DeferredRequest[questions.Done], task: str) -> None:
        state = self._queries.state_of(deferred.question.record, deferred.question.index)
        value = {"id": task, "state": state.label if state is not None else "", "changed": True}
        self._shell.background.when_synced(lambda: deferred.answer(value))

    def _drop_idle(self) -> None:
        """Executors of people whose task was cancelled, killed or taken from them go."""
        for number in list(self._manual):
            executor = self._queries.executor(number)
            if executor is None:
                self._manual.discard(number)
                self._since.pop(number, None)
            elif executor.is_draining and not executor.tasks:
                self._shell.news(ExecutorLost(number, "its task has ended"))

    # --- what a task asks for and what is known of it ------------------------------------------------

    def here(self, deferred: DeferredRequest[questions.Here]) -> None:
        """What a task that a person took says of itself or asks for, as tasks on other executors do."""
        asked = deferred.question
        record, index, task = self._find(asked)
        attempt = self._queries.attempt_at(record, index)
        executor = self._queries.executor(attempt.executor) if attempt is not None else None
        if attempt is None or executor is None or not executor.is_manual:
            raise UserError(f"task {task} was not taken manually; tasks that executors run speak for themselves")
        _check_owner(executor, _check_name(asked.name), task)
        message = TaskRequest(0, attempt.span, attempt.record, index, attempt.attempt, asked.question)
        name = asked.question.name if isinstance(asked.question, here_questions.Lock) else ""
        person = TaskPerson(
            executor.number,
            deferred,
            lambda: self._requests.ask(person, msgspec.structs.replace(message, question=here_questions.Unlock(name))),
        )
        self._requests.ask(person, message)

    def numbered(self, deferred: DeferredRequest[questions.Numbered]) -> None:
        """The tasks of a number; that which the person has comes first."""
        asked = deferred.question
        attempt = self._attempt_of(asked.taker) if asked.taker else None
        taken = attempt.record if attempt is not None else None
        found = sorted(self._queries.numbered(asked.number, asked.workflow), key=lambda task: task.record != taken)
        deferred.answer(
            [
                {
                    "record": task.record,
                    "workflow": task.workflow,
                    "length": self._queries.length_of(task.record),
                    "indices": task.spec.indices if isinstance(task.spec, ArraySpec) else "",
                    "taken": task.record == taken,
                }
                for task in found
            ]
        )

    def task(self, deferred: DeferredRequest[questions.Task]) -> None:
        """All that there is to know of one task, to run it manually."""
        record, index, _ = self._find(deferred.question)
        deferred.answer(self._describe(record, index))

    def _describe(self, record: RecordId, index: int) -> dict[str, object]:
        """A task's attributes, and what its command is made of."""
        task, attempt = self._queries.task(record, index), self._queries.attempt_at(record, index)
        spec, needs, limits = task.spec, task.needs, task.spec.limits
        return {
            "id": task.id,
            "record": number_of(record),
            "index": index_of(spec, index),
            "position": index,
            "is_array": task.is_array,
            "kind": spec.kind.name.lower(),
            "name": spec.name,
            "group": task.path,
            "workflow": task.workflow,
            "state": task.state.label,
            "attempt": attempt.attempt if attempt is not None else task.attempt,
            "host": attempt.host if attempt is not None else "",
            "cores": needs.cores,
            "memory": needs.memory,
            "gpus": needs.gpus,
            "resources": dict(needs.named),
            "timeout": limits.timeout,
            "walltime": limits.walltime,
            "retries": limits.retries,
            "priority": task.priority,
            "release": spec.extras.release,
            "affinity": bool(spec.extras.same_host_as),
            "attributes": task.attributes,
            **self._parts_of_command(record, index),
        }

    def _parts_of_command(self, record: RecordId, index: int) -> dict[str, object]:
        """What the text of a command is made of. Nothing is unpickled here: the client makes the text."""
        spec = self._queries.spec_of(record)
        payload, body, table = b"", b"", b""
        pages: list[tuple[int, int, bytes]] = []
        if isinstance(spec, TaskSpec):
            if spec.kind is Kind.COMMAND:
                payload = spec.payload
                if spec.payload_path:
                    with reported(spec.payload_path), open(spec.payload_path, "rb") as file:
                        payload = file.read()
        elif spec.kind is Kind.COMMAND:
            store = self._shell.store
            try:
                body, table = store.blob(spec.body), store.blob(spec.table) if spec.table else b""
            except KeyError:
                raise StoreFailed(f"the command of array {number_of(record)} was never sent to the server") from None
            pages = [(page.start, page.stop, page.data) for page in self._queries.pages_of(record, index)]
        return {"payload": payload, "body": body, "table": table, "pages": pages}

    # --- which person has what -----------------------------------------------------------------------

    def _find(self, task: questions.Task | questions.Done | questions.Here) -> tuple[RecordId, int, str]:
        """The task that is named, and its id as people write it."""
        record, index = task.record, task.index
        length = self._queries.length_of(record)
        if length is None:
            raise UnknownName(f"there is no task {number_of(record)}; see bough status")
        if not 0 <= index < length:
            raise UnknownName(
                f"{number_of(record)} has {counted(length, 'task')}, there is no {number_of(record)}.{index}"
            )
        return record, index, self._queries.label(record, index)

    def _attempt_of(self, name: str) -> Attempt | None:
        """The task that a person has."""
        for number in self._manual:
            executor = self._queries.executor(number)
            if executor is not None and executor.tasks and _is_of(executor, name):
                return next(iter(self._queries.attempts_on(number)), None)
        return None


class TakeScope:
    """The workflows, or groups of them, that a person takes tasks from."""

    def __init__(self, shell: Shell, workflow: str = "", group: str = "") -> None:
        self._shell = shell
        self._queries = queries = shell.queries
        self._workflows: list[WorkflowInfo] = queries.workflows_named(workflow) if workflow else queries.workflows()
        if workflow and not self._workflows:
            names = ", ".join(dict.fromkeys(one.name for one in queries.workflows())) or "none"
            raise UnknownName(f"there is no workflow {workflow!r}; there are: {names}")
        self._tops = tuple(one.group for one in self._workflows)
        self.groups: tuple[GroupId, ...] = self._tops
        if group:
            path = group.strip("/")
            self.groups = tuple(one.id for top in self._tops for one in queries.subtree(top) if one.path == path)
            if not self.groups:
                raise UnknownName(f"there is no group {path!r}; see bough status")

    def why_nothing(self, *, elsewhere: bool) -> dict[str, object]:
        """Why there is nothing to take: "none" just now, all is "done", or it is "blocked" until a user acts.

        `elsewhere`: something can be taken outside of the groups that were named.
        """
        counts = self._queries.counts(self.groups)
        failed = counts.by_state[TaskState.FAILED] + counts.by_state[TaskState.SKIPPED]
        value: dict[str, object] = {"counts": counts.labels()}
        if not counts.unfinished:
            return {"answer": "done", "text": f"everything has ended: {counts}", "failed": failed, **value}
        around = self._queries.counts(self._tops)
        if elsewhere or self._may_become_ready(around):
            return {"answer": "none", "text": "nothing is ready now; ask again later", **value}
        held = counts.by_state[TaskState.HELD]
        if held:
            text = f"tasks are held ({held}); {self._queries.how_to_start(self.groups)}"
        elif around.ready:
            text = f"what is ready ({around.ready}) are functions, which need an executor: bough executor start"
        else:
            text = f"nothing can become ready: {counts}; see bough status and bough explain"
        return {"answer": "blocked", "text": text, **value}

    def _may_become_ready(self, around: TaskCounts) -> bool:
        """Whether a task may become ready without a user's help."""
        if around.out or self._shell.is_busy or any(self._queries.awaits_retry(one.run) for one in self._workflows):
            return True
        if around.ready and self._queries.takes_functions():
            return True
        waiting = around.by_state[TaskState.WAITING]
        return bool(waiting) and any(self._shell.peers.of_run(one.run) for one in self._workflows)


class TaskPerson:
    """A person who took a task and speaks for it: what `task_requests` answers goes to the client that asked.

    `gone` is called when the person left before getting a lock that the person waited for.
    """

    def __init__(self, number: ExecutorId, deferred: DeferredRequest[questions.Here], gone: Callable[[], None]) -> None:
        self.number = number
        self._errand = deferred
        self._gone = gone

    @property
    def connection(self) -> TaskPerson:
        """The person itself."""
        return self

    def send(self, message: object) -> None:
        """Answer the person."""
        assert isinstance(message, TaskAnswer)
        if message.error:
            self._errand.refuse(UserError(message.error))
        elif self._errand.client.connection.is_open:
            self._errand.answer(message.value)
        elif message.value.get("new"):
            self._gone()


def _is_of(executor: ExecutorInfo, name: str) -> bool:
    return name in {executor.host, executor.host.rpartition("@")[0]}


def _check_owner(executor: ExecutorInfo, name: str, task: str) -> None:
    if not _is_of(executor, name):
        raise UserError(f"task {task} was taken by {executor.host}, not by {name}; say --as if that is you")


def _check_name(name: str) -> str:
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise UserError(f"say who you are with a name of 1 to {_LONGEST_NAME} letters")
    return name


def _check_host(host: str) -> str:
    if len(host) > _LONGEST_NAME or not host.isprintable():
        raise UserError(f"the name of a host has at most {_LONGEST_NAME} letters")
    return host
