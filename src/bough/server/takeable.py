"""What may be taken by hand: the next ready command of a workflow or group, and all that is needed to run it.

Rule: only commands; nothing is unpickled here, so that the text of an array's element is made by who asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.core.groups import GroupRecord, Workflow
from bough.core.loose import TaskRecord
from bough.core.queue import Entry, ReadyQueue
from bough.core.records import FAILED, HELD, NOTRUN, WAITING, ArrayRecord, Record
from bough.core.states import TaskState
from bough.errors import StoreFailed, UnknownName
from bough.model.tasks import Kind, TaskSpec
from bough.server.hands import is_hand
from bough.server.shell import Shell
from bough.server.standing import Standing, awaits_retry, below, workflows_of
from bough.stores.faults import reported

_DEEP = 100_000  # entries of one queue that are looked at


class Scope:
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
        standing = Standing(group for top in self._tops for group in below(top))
        failed = standing.counts[FAILED] + standing.counts[NOTRUN]
        value: dict[str, object] = {
            "counts": {TaskState(state).label: count for state, count in enumerate(standing.counts) if count}
        }
        if not standing.unended:
            return {"answer": "done", "text": f"everything has ended: {standing}", "failed": failed, **value}
        around = Standing(group for one in self.workflows for group in below(one.group))
        if self._goes_on(around):
            return {"answer": "none", "text": "nothing is ready now; ask again later", **value}
        if standing.counts[HELD]:
            text = f"tasks are held ({standing.counts[HELD]}); let them go with bough release"
        elif around.ready:
            text = f"what is ready ({around.ready}) are functions, which need an executor: bough executor start"
        else:
            text = f"nothing can become ready: {standing}; see bough status and bough explain"
        return {"answer": "blocked", "text": text, **value}

    def _goes_on(self, around: Standing) -> bool:
        """Whether something may become ready without anybody's help."""
        if around.out or self._shell.is_busy or any(awaits_retry(self._state, one) for one in self.workflows):
            return True
        if around.ready and any(not is_hand(one) and not one.draining for one in self._state.executors.values()):
            return True
        if around.ready and self._is_part and self._whole().choose() is not None:
            return True
        return bool(around.counts[WAITING]) and any(self._shell.peers.of_run(one.run) for one in self.workflows)

    def _whole(self) -> Scope:
        """The same workflows without the restriction to a group."""
        whole = Scope(self._shell)
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
