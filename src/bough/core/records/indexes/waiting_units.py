"""Ready tasks with declared inputs, as the index of wanted data lists them and policies see them.

Rule: a unit says nothing that its record does not say as well, but for what it was looked up to read.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from bough.core.records.array_record import READY, ArrayRecord, Record
from bough.core.records.task_record import TaskRecord
from bough.model.ids import Seconds

UnitKey = int | tuple[int, int]  # a loose task, or record and element


class Unit:
    """A ready task with declared inputs; a policy sees it as a `DataTask`."""

    __slots__ = ("contents", "element", "gone", "reads_unknown", "since", "total", "work")

    def __init__(self, work: Record, element: int, since: Seconds) -> None:
        self.work = work
        self.element = element  # below 0: the next one, of work without inputs
        self.since = since
        self.gone = False  # it is known that it is not ready any more
        self.reads_unknown = False  # nobody knew the content of a file of its when it was listed
        self.contents: array[int] | None = None  # of its files, as far as known; None: to be looked up
        self.total = 0  # how much they count

    @property
    def is_ready(self) -> bool:
        """Whether it still waits to be placed."""
        work = self.work
        return work.state == READY if type(work) is TaskRecord else work.states[self.element] == READY  # type: ignore[union-attr]

    @property
    def key(self) -> UnitKey:
        """What it is found by."""
        return key_of(self.work, self.element)

    @property
    def run(self) -> int:
        """The workflow it belongs to."""
        return self.work.group.workflow.run


def key_of(record: Record, element: int) -> UnitKey:
    """What a ready task is found by: a loose task by its number alone."""
    return record.id if type(record) is TaskRecord else (record.id, element)


def template_of(record: Record) -> str | int:
    """What a task's measurements are kept under: its template, or its array if that has none."""
    spec = record.shared_spec if isinstance(record, TaskRecord) else record.spec
    return spec.template or record.id


def files_read(record: Record, element: int) -> Sequence[int]:
    """The numbers of the files that a task declares as inputs, without those that are sent for each attempt anew."""
    if isinstance(record, ArrayRecord):
        return record.reusable_files_of(element)
    return record.reusable_reads  # type: ignore[return-value] # the core has numbered them
