"""Rows of the jobs database as mutable structs, and the sets of states that their column `state` is compared with.

Rule: the order of fields here is the order of columns in `schema`; a test compares them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bough.model.outcomes import Detail, Failure
from bough.model.states import ENDED, PENDING, UNSUCCESSFUL, labels_of

ZERO: Final = "\ufffd"  # what stands for a NUL character, which PostgreSQL's texts cannot hold

# sets of states as the column `state` of tasks and elements holds them; what an executor has is "ready" there until it
# is known to run, so that `JobsTables.is_out` tells it from what no executor has
PENDING_LABELS: Final = frozenset(labels_of(PENDING))
ENDED_LABELS: Final = frozenset(labels_of(ENDED))
UNSUCCESSFUL_LABELS: Final = frozenset(labels_of(UNSUCCESSFUL))


def shown(text: str) -> str:
    """A text of a user as every database can hold it."""
    return text.replace("\0", ZERO) if "\0" in text else text


class TaskRow(msgspec.Struct, gc=False):
    """One loose task, or one array."""

    id: int
    run: int
    grp: int
    name: str
    kind: str
    length: int
    is_array: int
    state: str
    attempt: int
    command: str
    submitted: float
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    executor: int | None = None
    host: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None
    message: str | None = None
    traceback: str | None = None
    parameters: str | None = None
    reused: int = 0
    memory: int | None = None
    cpu: float | None = None
    stdout_path: str | None = None
    stdout_offset: int | None = None
    stdout_length: int | None = None
    stderr_path: str | None = None
    stderr_offset: int | None = None
    stderr_length: int | None = None
    turn: int = 0
    priority: int = 0
    cores: float = 1
    done: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    is_open: int = 0
    waits: int = 0  # it has dependencies
    releases: int = 0  # its success releases those that wait for its group
    indices: str = ""  # of an array: as its submitter wrote them; empty: from 0 up
    needs: str | None = None  # what it asks for besides cores, as JSON by name


class ElementRow(msgspec.Struct, gc=False):
    """One element of an array that has values of its own."""

    id: int
    idx: int
    state: str = "waiting"
    attempt: int = 0
    executor: int | None = None
    host: str | None = None
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None
    message: str | None = None
    traceback: str | None = None
    parameters: str | None = None
    memory: int | None = None
    cpu: float | None = None
    stdout_path: str | None = None
    stdout_offset: int | None = None
    stdout_length: int | None = None
    stderr_path: str | None = None
    stderr_offset: int | None = None
    stderr_length: int | None = None
    reused: int = 0
    turn: int = 0


class AttemptRow(msgspec.Struct, gc=False):
    """One try at a loose task, or a failed try at an element."""

    id: int
    idx: int
    attempt: int
    executor: int | None
    host: str | None
    placed: float | None
    started: float | None = None
    ended: float | None = None
    state: str = "placed"
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str | None = None
    span: int = 0


class SpanRow(msgspec.Struct, gc=False):
    """A range of an array in one state."""

    id: int
    start: int
    stop: int
    state: str
    attempt: int = 0
    executor: int | None = None
    placed: float | None = None
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    turn: int = 0
    reused: int = 0
    cause: str | None = None
    message: str | None = None
    span: int = 0


class OpenSpan(msgspec.Struct):
    """A span that an executor has; `rest` are its elements that have not ended."""

    span: int
    record: int
    attempt: int
    executor: int
    placed: float | None
    rest: list[tuple[int, int]]
    started: float | None = None
    written: bool = False  # rows of it are in the table `spans`
    row: AttemptRow | None = None  # of a loose task

    def take(self, start: int, stop: int) -> None:
        """Take elements out of `rest`: they ended or were given back."""
        if self.rest == [(start, stop)]:  # all that was left, as always of a loose task
            self.rest = []
            return
        self.rest = [
            piece
            for low, high in self.rest
            for piece in ((low, min(high, start)), (max(low, stop), high))
            if piece[0] < piece[1]
        ]


def put_detail(row: TaskRow | ElementRow, detail: Detail) -> None:
    """Write what an executor measured into a row."""
    row.exit_code = detail.exit_code
    row.memory = detail.memory or None
    row.cpu = detail.cpu or None
    if detail.started:
        row.started = detail.started
    if detail.ended:
        row.ended = detail.ended
    if detail.started and detail.ended:
        row.seconds = detail.ended - detail.started
    put_streams(row, detail)


def put_streams(row: TaskRow | ElementRow, detail: Detail) -> None:
    """Write into a row where its task's output lies."""
    out, err = detail.stdout, detail.stderr
    row.stdout_path, row.stdout_offset, row.stdout_length = (out.path, out.offset, out.length) if out else (None,) * 3
    row.stderr_path, row.stderr_offset, row.stderr_length = (err.path, err.offset, err.length) if err else (None,) * 3


def put_failure(row: TaskRow | ElementRow | AttemptRow, failure: Failure) -> None:
    """Write into a row why its task did not succeed."""
    row.cause = failure.cause.value
    row.message = shown(failure.message)
    row.exit_code = failure.exit_code
    row.signal = failure.signal
    if not isinstance(row, AttemptRow):
        row.traceback = shown(failure.traceback) or None
        row.parameters = shown(failure.parameters) or None
