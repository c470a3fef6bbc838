"""What a workflow holds already when a session comes back to it, and which of it a new submission is.

A submission is the task that is there if it has the same memo key and waits for the same things; the n-th of several
identical ones is the n-th of those. Arrays must also have the same arguments.

Rules: every record is given out once. What has no memo key is never recognised. What ended without success is tried
again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from bough.api.client.connection import Connection
from bough.errors import BoughError
from bough.model.events.news import Retry
from bough.model.files import is_url
from bough.model.ids import BlobId, MemoKey, RecordId
from bough.model.states import TaskState
from bough.model.tasks import Dep, On

if TYPE_CHECKING:
    from bough.api.file_table import ThereMaker

_Signature = tuple[object, ...]
_GATHER = 0.05  # seconds in which records to be asked about gather
_AT_ONCE = 500  # of them at a time


class ExistingGroup(msgspec.Struct, frozen=True):
    """A group that is there."""

    id: int
    parent: int
    name: str
    closed: bool = False


class ExistingRecord(msgspec.Struct, frozen=True):
    """A task or array that is there."""

    id: RecordId
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
    state: str = ""  # of a task: its word for people
    writes: tuple[str, ...] = ()  # paths that a task declares


class WorkflowContents(msgspec.Struct, frozen=True):
    """The server's answer to "inventory"."""

    groups: list[ExistingGroup] = []
    records: list[ExistingRecord] = []


class ExistingWork:
    """See the module. Of what is recognised the connection asks how it ended."""

    def __init__(self, contents: WorkflowContents, connection: Connection) -> None:
        self.groups = {(group.parent, group.name): group.id for group in contents.groups}
        self._records = {record.id: record for record in contents.records}
        self._waiting: dict[_Signature, deque[ExistingRecord]] = {}
        for record in contents.records:
            if record.key and not record.open:
                self._waiting.setdefault(_signature(record), deque()).append(record)
        self._makers: dict[str, ThereMaker] | None = None  # by path; made for the first that asks
        self._connection = connection
        self._asked: list[int] = []  # records to be asked about soon
        self._asking = threading.Lock()

    def paths(self) -> list[str]:
        """The paths that its tasks write."""
        return [path for record in self._records.values() for path in record.writes]

    def maker(self, path: str) -> ThereMaker | None:
        """The task that writes a file, or a folder in which it lies; not one that ended without success."""
        from bough.api.file_table import ThereMaker  # it asks, so that it is loaded

        if self._makers is None:
            self._makers = {
                written: ThereMaker(Dep(On.TASK, record.id), is_done=record.state == TaskState.DONE.label)
                for record in self._records.values()
                if not record.failed
                for written in record.writes
            }
        while path:
            found = self._makers.get(path)
            if found is not None or is_url(path):
                return found
            path = path.rpartition("/")[0]
        return None

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

    def wait_for(self, number: int) -> None:
        """A record was recognised: have it tried again if it did not succeed, and be told how it ends."""
        there = self._records[RecordId(number)]
        if there.failed:
            on = On.ARRAY if there.is_array else On.TASK
            self._connection.act(Retry(Dep(on, there.id)))
        with self._asking:
            self._asked.append(number)
            count = len(self._asked)
        if count >= _AT_ONCE:
            self._ask()
        elif count == 1:
            timer = threading.Timer(_GATHER, self._ask)
            timer.daemon = True
            timer.start()

    def _ask(self) -> None:
        with self._asking:
            asked, self._asked = self._asked, []
        if asked:
            with contextlib.suppress(BoughError):  # the connection has ended, and tells why
                self._connection.ask_outcomes(asked)

    def _take(self, signature: _Signature) -> ExistingRecord | None:
        found = self._waiting.get(signature)
        return found.popleft() if found else None


def _signature(record: ExistingRecord) -> _Signature:
    if record.is_array:
        arguments = (record.length, record.table, record.pages, record.element_after)
        return (record.group, record.key, record.after, *arguments)
    return (record.group, record.key, record.after, record.inputs)
