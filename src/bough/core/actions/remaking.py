"""Running a task again whose output was lost: the fact, and what becomes of readers that wait for it.

Rule: the task alone goes back to the queue, with the next number of attempt, before others. Its dependents are left as
they are; a group that was over is open again until it has ended. What is made again and is the same as before keeps
its identity: the number of the attempt by which the memo keys of its readers know it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.core.actions.reset import forget
from bough.core.effects import Effects
from bough.core.graph import dependencies
from bough.core.records.array_record import DONE, ArrayRecord, Record
from bough.core.records.indexes.ready_queue import HAD_RUN
from bough.core.state import State
from bough.core.storable import shortened
from bough.model.arrays import ranges
from bough.model.events import facts, news
from bough.model.events.orders import DropFile, Order
from bough.model.ids import FileId, RecordId
from bough.model.memo_keys import digest_of_made


def decide(state: State, lost: news.OutputLost) -> facts.MadeAgain | None:
    """Whether an element that made something that was lost runs again; always if that was never safe."""
    record = state.records.get(lost.record)
    if record is None or state.stopping or not lost.index < record.length or record.state_of(lost.index) != DONE:
        return None
    if not state.unsaved.has(record.id, lost.index):
        if isinstance(record, ArrayRecord) and record.spec.fed:
            return None  # its arguments were discarded
        if not state.remakes.may_begin(record.id, lost.index):
            return None
    return facts.MadeAgain(RecordId(record.id), lost.index, lost.reason, lost.made)


def made_again(state: State, effects: Effects | None, fact: facts.MadeAgain) -> None:
    """An element that had succeeded runs again."""
    record, index = state.records[fact.record], fact.index
    former, attempt = state.remakes.find(record.id, index), _attempt_of(record, index)
    forget(state, effects, record, index, index + 1)
    remake = state.remakes.begin(record.id, index, fact.reason, former)
    remake.attempt, remake.made = attempt, fact.made
    for group in record.group.chain():
        group.was_over = group.was_over or (group.finished and not group.failed_by)
    dependencies.reopen(record.group)
    state.free(record, index, index + 1, first=HAD_RUN)
    if effects is not None:
        effects.freed.append((record, index, index + 1))


def lost_with(state: State, executor: int, reason: str) -> Iterator[facts.MadeAgain]:
    """What an executor that has gone had not written back is made again, however often it was before."""
    why = shortened(f"its outputs were not written back yet: {reason}")
    for record, index, made in state.unsaved.of_executor(executor):
        yield facts.MadeAgain(RecordId(record), index, why, made)


def written(state: State, news_: news.OutputsWritten) -> Iterator[facts.OutputsSafe]:
    """Which outputs are safe now: those that were to come from this executor, and from this attempt."""
    unsaved, safe = state.unsaved, dict[int, ranges.Ranges]()
    for record, index, attempt in news_.elements:
        if unsaved.is_with(news_.executor, record, index, attempt):
            ranges.add(safe.setdefault(record, []), index, index + 1)
    for number, parts in safe.items():
        for start, stop in parts:
            yield facts.OutputsSafe(RecordId(number), start, stop)


def outputs_safe(state: State, effects: Effects | None, fact: facts.OutputsSafe) -> None:
    """Outputs are in their places: their group may be over now."""
    record = state.records[fact.record]
    state.unsaved.take(record, fact.start, fact.stop)
    group = record.group
    if group.closed and (not group.unfinished or group.released_children):
        dependencies.finish(state, effects, group)


def _attempt_of(record: Record, index: int) -> int:
    """The attempt by whose number dependents know what an element made; 0: it was reused from another task."""
    success = record.success_of(index)
    return success.attempt if success is not None and success.source == record.id else 0


def same_as(state: State, record: int, event: news.WorkSucceeded) -> int:
    """The attempt that had made the same as an element that was made again; 0: none, or it is not known."""
    remake = state.remakes.find(record, event.start) if event.stop == event.start + 1 else None
    if remake is None or not (remake.under_way and remake.attempt and remake.made):
        return 0
    outputs = [output for detail in event.details if detail.index == event.start for output in detail.outputs]
    return remake.attempt if digest_of_made(outputs, event.results) == remake.made else 0


def drop_read(state: State, orders: list[Order]) -> None:
    """What was read for the last time in this turn may go, unless somebody new wants it."""
    last_reads, state.last_reads = state.last_reads, []
    for run, file, reader, index in last_reads:
        workflow = state.workflows.get(run)
        if workflow is not None and not workflow.lives.is_unread(file):
            orders += [DropFile(run, path, RecordId(reader), index) for path in workflow.files.paths([FileId(file)])]
