"""What a workflow holds already when a session comes back to it, and which of it a new submission is.

A submission is the task that is there if it has the same memo key and waits for the same things; the n-th of several
identical ones is the n-th of those. Arrays must also have the same arguments. Rule: every record is given out once;
what has no memo key is never recognised.
"""

from __future__ import annotations

from collections import deque

import msgspec

from bough.model.ids import BlobId, MemoKey
from bough.model.tasks import Dep

_Signature = tuple[object, ...]


class ExistingGroup(msgspec.Struct, frozen=True):
    """A group that is there."""

    id: int
    parent: int
    name: str
    closed: bool = False


class ExistingRecord(msgspec.Struct, frozen=True):
    """A task or array that is there."""

    id: int
    group: int
    name: str = ""
    is_array: bool = False
    is_command: bool = False
    key: bytes = b""
    after: tuple[Dep, ...] = ()
    inputs: tuple[Dep, ...] = ()
    length: int = 1
    table: bytes = b""
    pages: bytes = b""  # a digest of their contents
    element_after: bool = False  # elements have dependencies of their own
    open: bool = False
    failed: bool = False  # it ended, and not all of it is done
    command: str = ""
    writes: tuple[str, ...] = ()


class WorkflowContents(msgspec.Struct, frozen=True):
    """The server's answer to "inventory"."""

    groups: list[ExistingGroup] = []
    records: list[ExistingRecord] = []


class ExistingWork:
    """See the module."""

    def __init__(self, stock: WorkflowContents) -> None:
        self.groups = {(group.parent, group.name): group.id for group in stock.groups}
        self.records = {record.id: record for record in stock.records}
        self._waiting: dict[_Signature, deque[ExistingRecord]] = {}
        for record in stock.records:
            if record.key and not record.open:
                self._waiting.setdefault(_signature(record), deque()).append(record)

    def take_task(
        self, group: int, key: MemoKey, after: tuple[Dep, ...], inputs: tuple[Dep, ...]
    ) -> ExistingRecord | None:
        """The loose task that a submission is, if it is there."""
        return self._take((group, key, after, inputs)) if key else None

    def take_array(
        self, group: int, key: MemoKey, after: tuple[Dep, ...], arguments: tuple[int, BlobId, bytes, bool]
    ) -> ExistingRecord | None:
        """The array that a submission is; arguments: length, table, digest of pages, whether elements wait singly."""
        return self._take((group, key, after, *arguments)) if key else None

    def _take(self, signature: _Signature) -> ExistingRecord | None:
        found = self._waiting.get(signature)
        return found.popleft() if found else None


def _signature(record: ExistingRecord) -> _Signature:
    if record.is_array:
        arguments = (record.length, record.table, record.pages, record.element_after)
        return (record.group, record.key, record.after, *arguments)
    return (record.group, record.key, record.after, record.inputs)
