"""What tasks wrote to their standard output and standard error, in a store here or through a service.

A running task's output comes from its executor, through the live server; that of a task that has ended from the place
that the jobs database names. Rule: bytes are passed on as they are, each once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from bough.cli.targets.jobs_database import OpenDatabase, as_int
from bough.cli.targets.locate import ServerLocation
from bough.cli.targets.selection import Selected
from bough.cli.targets.task_rows import Fields, record_rows, stream_rows
from bough.errors import PeerLost, StoreFailed
from bough.model.ids import ExecutorId, RecordId, number_of
from bough.model.states import OCCUPYING, labels_of
from bough.model.texts.terminal_text import harmless_name
from bough.stores.folder.store_folder import path_in, why_unreadable
from bough.stores.schema import OUT
from bough.wire import questions

OUTPUT_PIECE = 4 << 20  # bytes asked for at a time
OCCUPYING_STATES = labels_of(OCCUPYING)  # of tasks that executors may have
_COPIED = 1 << 20  # bytes copied at a time
_MOST_RUNNING = 200  # tasks that run whose output is asked for in one go
_MOST_GIVEN_BACK = 20  # attempts that are told of
_TRACEBACKS = 500  # that are read


class StreamPart(msgspec.Struct, frozen=True):
    """One stream of one task."""

    id: str
    name: str
    stream: str
    path: str
    offset: int
    length: int
    data: bytes | None = None  # what was asked for through a server

    @property
    def header(self) -> str:
        """The line before it, when there are several."""
        return f"==> {self.id} {harmless_name(self.name)}".rstrip() + f" {self.stream} <=="


class Raised(msgspec.Struct, frozen=True):
    """What is kept of a function that raised."""

    id: str
    name: str
    parameters: str
    traceback: str

    def part(self) -> StreamPart:
        """As a stream of its own: the parameters, then the traceback."""
        called = f"parameters: {self.parameters}\n" if self.parameters else ""
        data = f"{called}{self.traceback}".encode()
        return StreamPart(self.id, self.name, "traceback", "", 0, len(data), data)


def raised_by(database: OpenDatabase, picks: list[Selected]) -> dict[str, Raised]:
    """Functions among these tasks that raised, by the task's id."""
    found: dict[str, Raised] = {}
    some = picks[:_TRACEBACKS]
    names = record_rows(database, [one.id for one in some]) if some else {}
    for one in some:
        table, part = ("elements", "idx between ? and ?") if one.is_array else ("tasks", "? <= ?")
        for row in database.rows(
            f"select * from {table} where id = ? and state = 'failed' and {part} limit {_TRACEBACKS}",
            [one.id, one.first, one.last],
        ):
            if row.get("traceback"):
                label = one.label_of(as_int(row["idx"])) if one.is_array else one.label
                name = str(names[one.id]["name"] or "")
                found[label] = Raised(label, name, str(row["parameters"] or ""), str(row["traceback"]))
    return found


class RunningTask(msgspec.Struct, frozen=True):
    """A task that an executor has now."""

    record: int
    index: int
    attempt: int
    label: str  # as a selector
    name: str = ""


def ask_output(
    database: OpenDatabase, task: tuple[int, int], stream: str, offset: int, attempt: int = 0
) -> questions.OutputReply:
    """What a task wrote from an offset on, by the live server: of one attempt, or of the one that runs or ran last."""
    return _ask(database, task, stream, (offset, OUTPUT_PIECE), attempt=attempt)


def _ask(
    database: OpenDatabase,
    task: tuple[int, int],
    stream: str,
    part: tuple[int, int],
    *,
    path: str = "",
    executor: int = 0,
    attempt: int = 0,
) -> questions.OutputReply:
    assert database.server is not None
    place = (questions.stream_name(stream), *part, path, ExecutorId(executor), attempt)
    said = database.server.ask(questions.Output(RecordId(task[0]), task[1], *place))
    if said.error:
        raise PeerLost(f"the output of task {number_of(task[0])}.{task[1]} cannot be read: {said.error}")
    return said


def _kept_elsewhere(database: OpenDatabase, task: tuple[int, int], row: Fields, stream: str) -> Iterator[bytes]:
    """What a task of a service that has ended wrote."""
    path, start, length = (row.get(f"{stream}_{part}") for part in ("path", "offset", "length"))
    if not path or not isinstance(start, int) or not isinstance(length, int):
        return
    offset = 0
    while offset < length:
        part = (start + offset, min(OUTPUT_PIECE, length - offset))
        piece = _ask(database, task, stream, part, path=str(path), executor=as_int(row.get("executor"))).data
        if not piece:
            return
        yield piece
        offset += len(piece)


def running_tasks(database: OpenDatabase, picks: list[Selected]) -> list[RunningTask]:
    """Those of some tasks that executors have now; of a span of several the one whose turn it is.

    Of several attempts at the same time it is the oldest.
    """
    if database.server is None:
        return []
    found: list[RunningTask] = []
    for one in picks:
        rows = database.rows(
            "select name, attempts.attempt as attempt from attempts join tasks on tasks.id = attempts.id"
            f" where attempts.id = ? and attempts.state in {OUT} order by attempts.attempt limit 1",
            [one.id],
        )
        if not one.is_array:
            found += [RunningTask(one.id, 0, as_int(r["attempt"]), one.label, str(r["name"] or "")) for r in rows]
            continue
        spans = database.rows(
            "select start, spans.attempt as attempt, name from spans join tasks on tasks.id = spans.id"
            f" where spans.id = ? and spans.state in {OUT} and start between ? and ? order by start limit ?",
            [one.id, one.first, one.last, _MOST_RUNNING],
        )
        found += [
            RunningTask(one.id, at, as_int(r["attempt"]), one.label_of(at), str(r["name"] or ""))
            for r in spans
            for at in (as_int(r["start"]),)
        ]
    return found[:_MOST_RUNNING]


def running_parts(database: OpenDatabase, picks: list[Selected], wanted: list[str]) -> list[StreamPart]:
    """What tasks that run have written so far."""
    found: list[StreamPart] = []
    for task in running_tasks(database, picks):
        for stream in wanted:
            data = b"".join(_so_far(database, task, stream))
            if data:
                found.append(StreamPart(task.label, task.name, stream, "", 0, len(data), data))
    return found


def _so_far(database: OpenDatabase, task: RunningTask, stream: str) -> Iterator[bytes]:
    offset = 0
    while True:
        piece = ask_output(database, (task.record, task.index), stream, offset, task.attempt).data
        yield piece
        offset += len(piece)
        if len(piece) < OUTPUT_PIECE:
            return


def given_back_lines(database: OpenDatabase, picks: list[Selected]) -> list[str]:
    """Which attempts of these tasks were given back, and why: the first of them, one line each."""
    lines: list[str] = []
    for one in picks:
        rows = database.rows(
            "select idx, attempt, message from attempts where id = ? and idx >= ? and idx <= ?"
            " and state = 'given back' order by idx, attempt limit ?",
            [one.id, one.first, one.last, _MOST_GIVEN_BACK - len(lines)],
        )
        for row in rows:
            label = one.label_of(as_int(row["idx"])) if one.is_array else one.label
            lines.append(f"{label}: attempt {row['attempt']} was {row['message']}")
        if len(lines) >= _MOST_GIVEN_BACK:
            break
    return lines


def ended_rows(database: OpenDatabase, picks: list[Selected]) -> Iterator[Fields]:
    """Rows of tasks that no executor has, with where they wrote; without a server that is all of them."""
    for row in stream_rows(database, picks):
        if database.server is None or row["state"] != "running":
            yield row


def read_streams(database: OpenDatabase, picks: list[Selected], wanted: list[str], tail: int | None) -> list[Fields]:
    """What tasks wrote, as text; those that run, so far."""
    said = [_as_text(database, row, wanted, tail) for row in ended_rows(database, picks)]
    running: dict[str, Fields] = {}
    for part in running_parts(database, picks, wanted):
        fields: Fields = {"id": part.id, "name": part.name, "state": "running", **dict.fromkeys(wanted, "")}
        running.setdefault(part.id, fields)[part.stream] = b"".join(read_part(part, tail)).decode(errors="replace")
    return [*said, *running.values()]


def stream_parts(database: OpenDatabase, row: Fields, wanted: list[str]) -> Iterator[StreamPart]:
    """The streams of a row's task in which something was written."""
    for name in wanted:
        path, offset, length = (row[f"{name}_{part}"] for part in ("path", "offset", "length"))
        if path and isinstance(offset, int) and isinstance(length, int) and length:
            if isinstance(database.place, ServerLocation):
                where, data = path_in(os.path.join(database.place.folder, "out"), str(path)), None
            else:
                task = (as_int(row["record"]), as_int(row["position"]))
                where, data = str(path), b"".join(_kept_elsewhere(database, task, row, name))
            yield StreamPart(str(row["id"]), str(row["name"] or ""), name, where, offset, length, data)


def _as_text(database: OpenDatabase, row: Fields, wanted: list[str], tail: int | None) -> Fields:
    said: Fields = {"id": row["id"], "name": row["name"], "state": row["state"]} | dict.fromkeys(wanted, "")
    for part in stream_parts(database, row, wanted):
        said[part.stream] = b"".join(read_part(part, tail)).decode(errors="replace")
    return said


def read_part(part: StreamPart, tail: int | None = None) -> Iterator[bytes]:
    """The bytes of one stream, in pieces; with `tail` only those of its last lines."""
    if part.data is not None:
        lines = part.data.splitlines(keepends=True)
        yield part.data if tail is None else b"".join(lines[max(0, len(lines) - tail) :])
        return
    try:
        with open(part.path, "rb") as file:
            end = part.offset + part.length
            at = part.offset if tail is None else _tail_start(file.fileno(), part, tail)
            while at < end:
                piece = os.pread(file.fileno(), min(_COPIED, end - at), at)
                if not piece:
                    return
                yield piece
                at += len(piece)
    except OSError as error:
        raise StoreFailed(
            f"cannot read the {part.stream} of task {part.id} in {part.path}: {why_unreadable(error)}"
        ) from error


def _tail_start(descriptor: int, part: StreamPart, lines: int) -> int:
    """Where the last lines begin, searched from the end: outputs may be long."""
    end = part.offset + part.length
    if not lines:
        return end
    at, wanted = end, lines
    if os.pread(descriptor, 1, end - 1) == b"\n":
        wanted += 1  # the newline that ends the last line starts none
    while at > part.offset:
        begin = max(part.offset, at - _COPIED)
        piece = os.pread(descriptor, at - begin, begin)
        place = len(piece)
        while (place := piece.rfind(b"\n", 0, place)) >= 0:
            wanted -= 1
            if not wanted:
                return begin + place + 1
        at = begin
    return part.offset
