"""Answers that only a service gives: the inventory of a workflow, its outcomes, the executors.

An inventory is {"records": [{"id", "kind", "is_command", "key", "occurrence", "after" and "inputs" [(on, id, index)],
"name", "group", "length", "is_array", "table", "pages" (a digest), "element_after", "open", "state", "counts",
"failed", "command", "writes"}], "groups": [{"id", "name", "parent", "closed", "settled", "failed"}]}.

Rule: a question changes nothing. Outcomes are told in slices, so that a client that reconnects to a big workflow delays
no other peer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bough.core.queries.answers import ExecutorInfo, GroupInfo, RecordInfo, WorkflowInfo
from bough.errors import UserError
from bough.model.arrays import ranges
from bough.model.commands.command import task_text
from bough.model.ids import RecordId
from bough.model.memo_keys import pages_digest
from bough.model.outcomes import Success
from bough.model.states import UNSUCCESSFUL, TaskState
from bough.model.tasks import Dep, Kind, TaskSpec
from bough.server.message_handlers import Answers
from bough.server.peers import ClientPeer, DeferredRequest, answered_by
from bough.server.service.returning_executors import ReturningExecutors
from bough.server.service.workflows import Workflows
from bough.server.turns.result_parts import part
from bough.server.turns.shell import Shell
from bough.server.turns.turn_messages import Message, cut_details
from bough.wire import questions
from bough.wire.client_messages import TasksFailed, TasksSucceeded

_SLICE = 200  # messages told at a time
_MOST_UNSENT = 8 << 20  # bytes that may wait to be sent before more is told
_PAUSE = 0.01


class ServiceAnswers(Answers):
    """See the module."""

    def __init__(self, shell: Shell, workflows: Workflows, returning: ReturningExecutors) -> None:
        super().__init__(shell.queries, shell.store, shell.peers, shell.info, shell.handler_errors)
        self._shell = shell
        self._workflows = workflows
        self._returning = returning
        self.add(
            {
                questions.Ids: answered_by(lambda client, wanted: self._workflows.more_numbers(client, wanted.count)),
                questions.Inventory: answered_by(self._inventory),
                questions.Outcomes: self._tell_outcomes,
                questions.Workflows: answered_by(self._all_workflows),
                questions.Executors: answered_by(self._executors),
            }
        )

    # --- a workflow --------------------------------------------------------------------------------

    def _inventory(self, client: ClientPeer, _: questions.Inventory) -> object:
        contents = self._queries.contents(client.group) if client.run else None
        if contents is None:
            raise UserError("only the client of a workflow has an inventory")
        return {
            "records": list(map(_record_entry, contents.records)),
            "groups": list(map(_group_entry, contents.groups)),
        }

    def _all_workflows(self, _client: ClientPeer, _: questions.Workflows) -> object:
        missing = self._queries.missing_sites()
        return [self._workflow(one, missing.get(one.run, [])) for one in self._queries.workflows(and_own=True)]

    def _workflow(self, workflow: WorkflowInfo, missing_sites: list[str]) -> dict[str, object]:
        clients = self._peers.of_run(workflow.run)
        return {
            "run": workflow.run,
            "name": workflow.name,
            "group": workflow.group,
            "user": workflow.user,
            "directory": workflow.directory,
            "closed": workflow.closed,
            "counts": self._queries.counts([workflow.group]).labels() if workflow.group else {},
            "unsaved": self._queries.count_unsaved(workflow.run),
            "missing_sites": missing_sites,
            "client": {"pid": clients[0].pid, "host": clients[0].host} if clients else None,
        }

    # --- outcomes ----------------------------------------------------------------------------------

    def _tell_outcomes(self, deferred: DeferredRequest[questions.Outcomes]) -> None:
        """Answer how many records are known, then tell of everything among them that has ended."""
        client = deferred.client
        own = [(record, first) for record, first in deferred.question.records if self._may_hear(client, record)]
        deferred.answer(len(own))
        self._tell(client, self._outcomes(own), lambda: self._workflows.let_close(client.run))

    def _may_hear(self, client: ClientPeer, record: RecordId) -> bool:
        """Whether a client is told how a task ended: one of its own workflow, of this run or an earlier one."""
        of, own = self._queries.find_workflow(record), self._queries.workflow(client.run)
        if of is None or not client.run:
            return of is not None
        return own is not None and (of.run == own.run or (of.name, of.user) == (own.name, own.user))

    def _tell(self, client: ClientPeer, messages: Iterator[Message], then: Callable[[], None]) -> None:
        try:
            self._tell_slice(client, messages, then)
        except Exception as error:  # noqa: BLE001 -- it concerns the client that asked and no other
            self._faults.concern(client.connection, "telling of outcomes", error)

    def _tell_slice(self, client: ClientPeer, messages: Iterator[Message], then: Callable[[], None]) -> None:
        connection = client.connection
        if not connection.is_open:
            return
        if connection.unsent < _MOST_UNSENT:
            for _ in range(_SLICE):
                message = next(messages, None)
                if message is None:
                    connection.flush()
                    then()
                    return
                connection.say(message)
            connection.flush()
            self._shell.loop.call_soon(self._tell, client, messages, then)
        else:
            self._shell.loop.call_later(_PAUSE, self._tell, client, messages, then)

    def _outcomes(self, records: Iterable[tuple[RecordId, int]]) -> Iterator[Message]:
        for record, first in records:
            for one in self._queries.outcomes(record, first):
                if isinstance(one, Success):
                    yield from self._success(record, first, one)
                else:
                    index, failure = one
                    failed = TasksFailed(record, index, index + 1, 0, failure)
                    yield from self._shell.withheld.release_or_keep(failed)

    def _success(self, record: RecordId, first: int, success: Success) -> Iterator[Message]:
        shift = success.start - success.source_start
        low, end = max(success.start, first) - shift, success.stop - shift
        while low < end:  # one by one: there may be any number of them
            span = self._shell.results.find(success.turn, RecordId(success.source), low)
            high = min(span.stop, end)
            told = [[low, high]]
            for index in self._queries.unsaved_of(record) if success.source == record else ():
                ranges.take(told, index, index + 1)  # it is told when its outputs are safe
            for start, stop in told:
                yield TasksSucceeded(
                    record,
                    start + shift,
                    stop + shift,
                    span.attempt,
                    self._queries.host_of(span.executor),
                    part(span, start, stop),
                    cut_details(span.details, start, stop, shift),
                    reused=success.source != record,
                )
            low = high

    # --- executors ---------------------------------------------------------------------------------

    def _executors(self, *_: object) -> object:
        found = []
        for executor in self._queries.executors():
            peer = self._peers.executors.get(executor.number)
            capacity = executor.capacity
            found.append(
                {
                    "executor": executor.number,
                    "site": executor.site,
                    "host": executor.host,
                    "pid": executor.pid,
                    "python": executor.python,
                    "cores": capacity.cores,
                    "memory": capacity.memory,
                    "gpus": capacity.gpus,
                    "named": dict(capacity.named),
                    "used": executor.used(),
                    "attributes": executor.attributes,
                    "state": _state_of(executor, is_connected=peer is not None),
                    "tasks": executor.tasks,
                    "members": executor.members,
                    "until": executor.until,
                    "joined": peer.joined if peer is not None else 0.0,
                }
            )
        return found


def _state_of(executor: ExecutorInfo, *, is_connected: bool) -> str:
    if executor.is_manual:
        return "manual"
    if not is_connected:
        return "missing"
    if executor.is_draining:
        return "draining"
    if executor.is_suspended:
        return "suspended"
    return "active" if executor.tasks else "idle"


def _record_entry(record: RecordInfo) -> dict[str, object]:
    spec, counts = record.spec, record.counts.by_state
    if isinstance(spec, TaskSpec):
        state = TaskState(counts.index(1))
        own: dict[str, object] = {
            "occurrence": record.occurrence,
            "inputs": [_dep_entry(dep) for dep in spec.inputs],
            "state": state.label,
            "failed": state in UNSUCCESSFUL,
            "command": task_text(spec) or "",
            "writes": list(record.writes),
        }
    else:
        has_ended = not record.counts.unfinished and not record.is_open
        own = {
            "table": spec.table,
            "pages": pages_digest(record.pages),
            "element_after": bool(spec.element_after),
            "open": record.is_open,
            "counts": record.counts.labels(),
            "failed": has_ended and counts[TaskState.DONE] < record.length,
        }
    return {
        "id": spec.id,
        "kind": int(spec.kind),
        "is_command": spec.kind == Kind.COMMAND,
        "key": spec.key,
        "after": [_dep_entry(dep) for dep in spec.after],
        "name": spec.name,
        "group": record.group,
        "length": record.length,
        "is_array": record.is_array,
        **own,
    }


def _dep_entry(dep: Dep) -> tuple[int, int, int]:
    return int(dep.on), dep.id, dep.index


def _group_entry(group: GroupInfo) -> dict[str, object]:
    return {
        "id": group.id,
        "name": group.name,
        "parent": group.parent,
        "closed": group.closed,
        "settled": group.finished,
        "failed": group.failed,
    }
