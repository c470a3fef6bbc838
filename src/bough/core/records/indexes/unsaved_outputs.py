"""Outputs on their way: of tasks that have succeeded, and whose executors still have to write them back.

A task with `keep="later"` succeeds when its host holds what it made. What depends on it may run, its slot is free; its
group is not over before the outputs are safe, and an executor that is lost before that loses them. Rule: an element
that is here is done, and its executor is one that is there: who takes either away takes it out of here first. The group
counts it as unfinished as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bough.core.records.array_record import ArrayRecord
from bough.model.tasks import LATER

if TYPE_CHECKING:
    from bough.core.records.array_record import Record
    from bough.model.events.facts import SpanEnded
    from bough.model.events.news import WorkSucceeded
    from bough.model.outcomes import Detail

Kept = tuple[int, int, int, int, bytes]  # record, index, executor, attempt, made


def may_write_later(record: Record) -> bool:
    """Whether what a record's tasks write may be safe later than they succeed."""
    like = record.spec if isinstance(record, ArrayRecord) else record.shared_spec
    return like.limits.keep == LATER


def unsaved_in(record: Record, ended: SpanEnded | WorkSucceeded) -> dict[int, Detail]:
    """The elements among those that succeeded whose outputs are on their way."""
    if not ended.details or not may_write_later(record):
        return {}
    indices = range(ended.start, ended.stop)
    unsaved = (one for one in ended.details if any(made.later for made in one.outputs))
    return {one.index: one for one in unsaved if one.index in indices}


class Holder(NamedTuple):
    """Who is to write outputs back, and what stands for them: `memo_keys.digest_of_made`."""

    executor: int
    attempt: int
    made: bytes


class UnsavedOutputs:
    """See the module."""

    __slots__ = ("by_executor", "by_record")

    def __init__(self) -> None:
        self.by_record: dict[int, dict[int, Holder]] = {}  # by element
        self.by_executor: dict[int, dict[tuple[int, int], None]] = {}  # record and index

    def add(self, record: Record, index: int, holder: Holder) -> None:
        """The outputs of an element are on their way."""
        elements = self.by_record.setdefault(record.id, {})
        if index not in elements:
            record.group.unfinished += 1
        elements[index] = holder
        self.by_executor.setdefault(holder.executor, {})[record.id, index] = None

    def is_with(self, executor: int, record: int, index: int, attempt: int) -> bool:
        """Whether the outputs of an element are to come from this attempt, on this executor."""
        holder = self.by_record.get(record, {}).get(index)
        return holder is not None and (holder.executor, holder.attempt) == (executor, attempt)

    def has(self, record: int, index: int) -> bool:
        """Whether the outputs of an element are on their way."""
        return index in self.by_record.get(record, ())

    def of_executor(self, executor: int) -> list[tuple[int, int, bytes]]:
        """What an executor still has to write back: by record and index, and what stands for the outputs."""
        mine = self.by_executor.get(executor, ())
        return [(record, index, self.by_record[record][index].made) for record, index in mine]

    def take(self, record: Record, start: int, stop: int) -> None:
        """Elements are safe, or as if they had not run."""
        elements = self.by_record.get(record.id)
        if elements is None:
            return
        few = range(start, stop) if stop - start < len(elements) else list(elements)
        for index in few:
            if start <= index < stop and (holder := elements.pop(index, None)) is not None:
                record.group.unfinished -= 1
                mine = self.by_executor[holder.executor]
                del mine[record.id, index]
                if not mine:
                    del self.by_executor[holder.executor]
        if not elements:
            del self.by_record[record.id]

    def all(self) -> list[Kept]:
        """What a snapshot keeps."""
        found = self.by_record.items()
        return [(record, index, *holder) for record, elements in found for index, holder in elements.items()]

    def __bool__(self) -> bool:
        """Whether anything is on its way."""
        return bool(self.by_record)
