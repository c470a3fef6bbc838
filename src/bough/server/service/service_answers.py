"""What clients of a service ask besides: what there is of their workflow, how it went, who is there.

An inventory is {"records": [{"id", "kind", "is_command", "key", "occurrence", "after" and "inputs" [(on, id, index)],
"name", "group", "length", "is_array", "table", "pages" (a digest), "element_after", "open", "state", "counts",
"failed", "command", "writes"}], "groups": [{"id", "name", "parent", "closed", "settled", "failed"}]}.

Rule: as in `questions`: a question changes nothing. What has ended is told again in slices, so that a client that
comes back to a big workflow keeps nobody waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bough.core.records.array_record import CANCELLED, DONE, FAILED, SKIPPED, ArrayRecord, Record
from bough.core.records.group_record import GroupRecord
from bough.core.records.task_record import TaskRecord
from bough.errors import UserError
from bough.model.commands.command import task_text
from bough.model.ids import RecordId
from bough.model.memo_keys import pages_digest
from bough.model.outcomes import Cause, Failure
from bough.model.states import TaskState
from bough.model.tasks import Dep, Kind, TaskSpec
from bough.server.message_handlers import Answers
from bough.server.peers import ClientPeer, DeferredRequest, answered_by
from bough.server.service.manual_tasks import is_hand
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
_UNSUCCESSFUL = bytes((FAILED, SKIPPED, CANCELLED))
_CANCELLED = Failure(Cause.CANCELLED, "somebody cancelled it")
_UNKNOWN = Failure(Cause.LOST, "why it failed is not known any more")


class ServiceAnswers(Answers):
    """See the module."""

    def __init__(self, shell: Shell, workflows: Workflows, returning: ReturningExecutors) -> None:
        super().__init__(shell.machine, shell.store, shell.peers, shell.info, shell.faults)
        self._shell = shell
        self._workflows = workflows
        self._returning = returning
        self.add(
            {
                questions.Ids: answered_by(lambda client, wanted: self._workflows.more_numbers(client, wanted.count)),
                questions.Inventory: answered_by(self._inventory),
                questions.Outcomes: self._tell_outcomes,
                questions.Workflows: answered_by(
                    lambda *_: [self._workflow(run) for run in self._machine.state.workflows]
                ),
                questions.Executors: answered_by(self._executors),
            }
        )

    # --- a workflow --------------------------------------------------------------------------------

    def _inventory(self, client: ClientPeer, _: questions.Inventory) -> object:
        state = self._machine.state
        if client.group not in state.groups or not client.run:
            raise UserError("only the client of a workflow has an inventory")
        group = state.groups[client.group]
        return {
            "records": [_record_entry(record) for record in group.records()],
            "groups": [_group_entry(one) for one in _below(group)],
        }

    def _workflow(self, run: int) -> dict[str, object]:
        workflow = self._machine.state.workflows[run]
        clients = self._peers.of_run(run)
        return {
            "run": run,
            "name": workflow.name,
            "group": workflow.group.id,
            "user": workflow.user,
            "directory": workflow.directory,
            "closed": workflow.closed,
            "counts": _counts([workflow.group, *_below(workflow.group)]) if workflow.group.id else {},
            "client": {"pid": clients[0].pid, "host": clients[0].host} if clients else None,
        }

    # --- outcomes ----------------------------------------------------------------------------------

    def _tell_outcomes(self, errand: DeferredRequest[questions.Outcomes]) -> None:
        """Answer how many records are known, then tell of everything among them that has ended."""
        client, find = errand.client, self._machine.find
        wanted = [(record, first) for number, first in errand.question.records if (record := find(number)) is not None]
        own = [(record, first) for record, first in wanted if client.run in {0, record.group.workflow.run}]
        errand.answer(len(own))
        self._tell(client, self._outcomes(own), lambda: self._workflows.let_close(client.run))

    def _tell(self, client: ClientPeer, messages: Iterator[Message], then: Callable[[], None]) -> None:
        try:
            self._tell_slice(client, messages, then)
        except Exception as error:  # noqa: BLE001 -- it concerns who asked and nobody else
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

    def _outcomes(self, records: Iterable[tuple[Record, int]]) -> Iterator[Message]:
        for record, first in records:
            yield from self._successes(record, first)
            for low, high in record.runs(_UNSUCCESSFUL, first, record.length):
                for index in range(low, high):
                    failure = record.failure_of(index)
                    if failure is None:
                        failure = _CANCELLED if record.state_of(index) == CANCELLED else _UNKNOWN
                    yield from self._shell.patience.told(TasksFailed(RecordId(record.id), index, index + 1, 0, failure))

    def _successes(self, record: Record, first: int) -> Iterator[Message]:
        hosts = {executor.id: executor.host for executor in self._machine.state.executors.values()}
        for success in [success for success in record.successes() if success.stop > first]:
            shift = success.start - success.source_start
            low, end = max(success.start, first) - shift, success.stop - shift
            while low < end:  # one by one: there may be any number of them
                span = self._shell.results.find(success.turn, RecordId(success.source), low)
                high = min(span.stop, end)
                yield TasksSucceeded(
                    RecordId(record.id),
                    low + shift,
                    high + shift,
                    span.attempt,
                    hosts.get(span.executor, ""),
                    part(span, low, high),
                    cut_details(span.details, low, high, shift),
                    reused=success.source != record.id,
                )
                low = high

    # --- executors ---------------------------------------------------------------------------------

    def _executors(self, *_: object) -> object:
        found = []
        for executor in self._machine.state.executors.values():
            peer = self._peers.executors.get(executor.id)
            capacity = executor.capacity
            if is_hand(executor):
                state = "hand"
            elif peer is None:
                state = "missing"
            elif executor.draining:
                state = "draining"
            elif executor.suspended:
                state = "suspended"
            else:
                state = "active" if executor.spans else "idle"
            found.append(
                {
                    "executor": executor.id,
                    "site": executor.site,
                    "host": executor.host,
                    "pid": executor.pid,
                    "cores": capacity.cores,
                    "memory": capacity.memory,
                    "gpus": capacity.gpus,
                    "named": dict(capacity.named),
                    "state": state,
                    "running": len(executor.spans),
                    "members": executor.members,
                    "until": executor.until,
                    "joined": peer.joined if peer is not None else 0.0,
                }
            )
        return found


def _below(group: GroupRecord) -> Iterator[GroupRecord]:
    for child in group.children:
        yield child
        yield from _below(child)


def _record_entry(record: Record) -> dict[str, object]:
    spec = record.spec
    if isinstance(spec, TaskSpec):
        state = record.state_of(0)
        own: dict[str, object] = {
            "occurrence": record.occurrence if isinstance(record, TaskRecord) else 0,
            "inputs": [_dep_entry(dep) for dep in spec.inputs],
            "state": TaskState(state).label,
            "failed": state in _UNSUCCESSFUL,
            "command": task_text(spec) or "",
            "writes": record.group.workflow.files.paths(spec.writes),
        }
    else:
        assert isinstance(record, ArrayRecord)
        counts = record.counts
        ended = sum(counts[state] for state in (DONE, *_UNSUCCESSFUL)) == record.length and not record.open
        own = {
            "table": spec.table,
            "pages": pages_digest(record.paged),
            "element_after": bool(spec.element_after),
            "open": record.open,
            "counts": {TaskState(state).label: count for state, count in enumerate(counts) if count},
            "failed": ended and counts[DONE] < record.length,
        }
    return {
        "id": record.id,
        "kind": int(spec.kind),
        "is_command": spec.kind == Kind.COMMAND,
        "key": spec.key,
        "after": [_dep_entry(dep) for dep in spec.after],
        "name": spec.name,
        "group": record.group.id,
        "length": record.length,
        "is_array": record.is_array,
        **own,
    }


def _dep_entry(dep: Dep) -> tuple[int, int, int]:
    return int(dep.on), dep.id, dep.index


def _group_entry(group: GroupRecord) -> dict[str, object]:
    return {
        "id": group.id,
        "name": group.name,
        "parent": group.parent.id if group.parent is not None else 0,
        "closed": group.closed,
        "settled": group.settled,
        "failed": bool(group.failed_by),
    }


def _counts(groups: Iterable[GroupRecord]) -> dict[str, int]:
    totals = [0] * len(TaskState)
    for group in groups:
        for state, count in enumerate(group.counts):
            totals[state] += count
    return {TaskState(state).label: count for state, count in enumerate(totals) if count}
