"""What tasks wrote to their standard output and standard error, in a store here or through a service.

A running task's output comes from its executor; that of a task that has ended from the place that the jobs database
names. Rule: bytes are passed on as they are, each once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.locate import ServerLocation
from bough.cli.targets.selection import Selected
from bough.cli.targets.task_rows import Fields, stream_rows
from bough.errors import PeerLost, StoreFailed, UserError
from bough.model.ids import ExecutorId, RecordId
from bough.model.states import ENDED, labels_of
from bough.wire import questions

_ASKED = 4 << 20  # bytes asked for at a time
_COPIED = 1 << 20  # bytes copied at a time
_PAUSE = 0.3  # seconds between two looks at a running task
_ENDED = labels_of(ENDED)

Write = Callable[[str, bytes], None]  # a stream's name, and what the task wrote to it


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
        return f"==> {self.id} {self.name}".rstrip() + f" {self.stream} <=="


class RemoteOutput:
    """One task whose output is read."""

    def __init__(self, database: OpenDatabase, record: int, index: int) -> None:
        self._database = database
        self.record = record
        self.index = index

    def row(self) -> dict[str, object]:
        """What the jobs database has of it now."""
        self._database.refresh()
        columns = "state, executor, " + ", ".join(
            f"{stream}_{part}" for stream in ("stdout", "stderr") for part in ("path", "offset", "length")
        )
        own = self._database.rows(
            f"select {columns} from elements where id = ? and idx = ?", [self.record, self.index]
        ) or self._database.rows(f"select {columns} from tasks where id = ? and is_array = 0", [self.record])
        return own[0] if own else {"state": self._span_state()}

    def _span_state(self) -> str:
        rows = self._database.rows(
            "select state from spans where id = ? and start <= ? and stop > ? and state != 'lost' order by placed",
            [self.record, self.index, self.index],
        )
        return str(rows[-1]["state"]) if rows else "waiting"

    def now(self, stream: str, offset: int) -> tuple[bytes, bool]:
        """What a running task has written from an offset on, and whether more may follow."""
        said = self._ask(stream, offset, _ASKED)
        return said.data, said.more

    def kept(self, row: dict[str, object], stream: str, offset: int = 0) -> Iterator[bytes]:
        """What a task that has ended wrote from an offset on."""
        path, start, length = (row.get(f"{stream}_{part}") for part in ("path", "offset", "length"))
        executor = row.get("executor")
        if not path or not isinstance(start, int) or not isinstance(length, int):
            return
        number = executor if isinstance(executor, int) else 0
        while offset < length:
            piece = self._ask(stream, start + offset, min(_ASKED, length - offset), str(path), number).data
            if not piece:
                return
            yield piece
            offset += len(piece)

    def _ask(self, stream: str, offset: int, length: int, path: str = "", executor: int = 0) -> questions.OutputReply:
        assert self._database.server is not None
        wanted = questions.Output(
            RecordId(self.record), self.index, questions.stream_name(stream), offset, length, path, ExecutorId(executor)
        )
        said = self._database.server.ask(wanted)
        if said.error:
            raise PeerLost(f"the output of task {self.record}.{self.index} cannot be read: {said.error}")
        return said


def follow(task: RemoteOutput, streams: list[str], write: Write, *, once: bool = False) -> str:
    """Pass on what a task writes until it has ended, or what there is so far; returns its state."""
    seen = dict.fromkeys(streams, 0)
    while True:
        row = task.row()
        state = str(row["state"])
        if state in _ENDED:
            for stream in streams:
                for piece in task.kept(row, stream, seen[stream]):
                    write(stream, piece)
            return state
        news = False
        if state == "running":
            news = _pass_on(task, seen, write)
        if once and not news:
            return state
        if not news:
            time.sleep(_PAUSE)


def _pass_on(task: RemoteOutput, seen: dict[str, int], write: Write) -> bool:
    """Pass on what is new in the streams of a running task; whether there was something."""
    news = False
    for stream, offset in list(seen.items()):
        try:
            data, _ = task.now(stream, offset)
        except UserError:
            return news  # it has ended just now
        if data:
            write(stream, data)
            seen[stream] += len(data)
            news = True
    return news


def follow_one(database: OpenDatabase, picks: list[Selected], wanted: list[str]) -> int:
    """Pass on what one task writes until it has ended; 1 when it did not succeed."""
    if len(picks) != 1 or picks[0].first != picks[0].last:
        raise UserError("-f follows one task; give the id of one, such as 12 or 12.3")
    if not database.is_service:
        raise UserError("-f needs a server: what a task of a session on this machine writes is shown when it has ended")
    streams = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer if len(wanted) > 1 else sys.stdout.buffer}

    def write(stream: str, data: bytes) -> None:
        streams[stream].write(data)
        streams[stream].flush()

    state = follow(RemoteOutput(database, picks[0].id, picks[0].first), wanted, write)
    return 0 if state == "done" else 1


def running_parts(database: OpenDatabase, picks: list[Selected], wanted: list[str]) -> list[StreamPart]:
    """What single tasks that run have written so far."""
    found: list[StreamPart] = []
    for one in picks:
        if one.first == one.last:
            task = RemoteOutput(database, one.id, one.first)
            if task.row()["state"] == "running":
                label = f"{one.id}.{one.first}" if one.is_array else one.label
                said: dict[str, list[bytes]] = {stream: [] for stream in wanted}
                follow(task, wanted, lambda stream, data: said[stream].append(data), once=True)  # noqa: B023
                found += [
                    StreamPart(label, "", stream, "", 0, sum(map(len, pieces)), b"".join(pieces))
                    for stream, pieces in said.items()
                    if pieces
                ]
    return found


def read_streams(database: OpenDatabase, picks: list[Selected], wanted: list[str], tail: int | None) -> list[Fields]:
    """What tasks wrote, as text."""
    return [_as_text(database, row, wanted, tail) for row in stream_rows(database, picks)]


def stream_parts(database: OpenDatabase, row: Fields, wanted: list[str]) -> Iterator[StreamPart]:
    """The streams of a row's task in which something was written."""
    for name in wanted:
        path, offset, length = (row[f"{name}_{part}"] for part in ("path", "offset", "length"))
        if path and isinstance(offset, int) and isinstance(length, int) and length:
            if isinstance(database.place, ServerLocation):
                where, data = os.path.join(database.place.folder, str(path)), None
            else:
                record, _, index = str(row["id"]).partition(".")
                task = RemoteOutput(database, int(record), int(index or 0))
                where, data = str(path), b"".join(task.kept(row, name))
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
            f"cannot read the {part.stream} of task {part.id} in {part.path}: {error.strerror}"
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
