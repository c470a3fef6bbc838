"""`bough log`: what tasks wrote to their standard output and standard error.

A task's output is a range of bytes of a file that many tasks share; that of a service's task may lie anywhere, and
is asked for through the server. Rule: bytes are passed on as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

import msgspec

from bough.cli.database import Database, open_database
from bough.cli.finding import Place, add_store_arguments
from bough.cli.numbers import count
from bough.cli.output import Output
from bough.cli.outputs import FarTask, follow
from bough.cli.picking import Pick, add_selector_arguments, choose_run, pick, read_request
from bough.cli.rows import Fields, stream_rows
from bough.errors import StoreFailed, UserError

EXAMPLES = (
    "bough log last",
    "bough log 12.3 --stderr",
    "bough log --failed --tail 20",
    "bough log -f 12",
)

_PIECE = 1 << 20  # bytes copied at a time


class Part(msgspec.Struct, frozen=True):
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    parser.add_argument("--stdout", action="store_true", help="standard output only")
    parser.add_argument("--stderr", action="store_true", help="standard error only")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what a running task writes to its end")
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines of each")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the output of the tasks that are meant."""
    if args.tail is not None and args.tail < 0:
        raise UserError(f"--tail {args.tail}: give a number of lines, 0 or more")
    selectors, states = read_request(args)
    wanted = [name for name in ("stdout", "stderr") if getattr(args, name)] or ["stdout", "stderr"]
    with open_database(args) as database:
        picks = pick(database, selectors, states, choose_run(database, args, selectors))
        if args.follow:
            return follow_one(database, picks, wanted)
        if args.json:
            output.answer(read_streams(database, picks, wanted, args.tail), lambda: ())
            return 0
        rows = [row for row in stream_rows(database, picks) if not (database.is_service and row["state"] == "running")]
        parts = [part for row in rows for part in _parts(database, row, wanted)]
        if database.is_service:
            parts += running_parts(database, picks, wanted)
        if not args.quiet:
            _print(parts, headed=len(parts) > 1, tail=args.tail)
            if not parts:
                output.note("these tasks wrote nothing" if picks else "no task is meant")
    return 0


def follow_one(database: Database, picks: list[Pick], wanted: list[str]) -> int:
    """Pass on what one task writes until it has ended; 1 when it did not succeed."""
    if len(picks) != 1 or picks[0].first != picks[0].last:
        raise UserError("-f follows one task; give the id of one, such as 12 or 12.3")
    if not database.is_service:
        raise UserError("-f needs a server: what a task of a session on this machine writes is shown when it has ended")
    streams = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer if len(wanted) > 1 else sys.stdout.buffer}

    def write(stream: str, data: bytes) -> None:
        streams[stream].write(data)
        streams[stream].flush()

    state = follow(FarTask(database, picks[0].id, picks[0].first), wanted, write)
    return 0 if state == "done" else 1


def running_parts(database: Database, picks: list[Pick], wanted: list[str]) -> list[Part]:
    """What single tasks that run have written so far."""
    found: list[Part] = []
    for one in picks:
        if one.first == one.last:
            task = FarTask(database, one.id, one.first)
            if task.row()["state"] == "running":
                label = f"{one.id}.{one.first}" if one.is_array else one.label
                said: dict[str, list[bytes]] = {stream: [] for stream in wanted}
                follow(task, wanted, lambda stream, data: said[stream].append(data), once=True)  # noqa: B023
                found += [
                    Part(label, "", stream, "", 0, sum(map(len, pieces)), b"".join(pieces))
                    for stream, pieces in said.items()
                    if pieces
                ]
    return found


def read_streams(database: Database, picks: list[Pick], wanted: list[str], tail: int | None) -> list[Fields]:
    """What tasks wrote, as text."""
    return [_as_text(database, row, wanted, tail) for row in stream_rows(database, picks)]


def _parts(database: Database, row: Fields, wanted: list[str]) -> Iterator[Part]:
    for name in wanted:
        path, offset, length = (row[f"{name}_{part}"] for part in ("path", "offset", "length"))
        if path and isinstance(offset, int) and isinstance(length, int) and length:
            if isinstance(database.place, Place):
                where, data = os.path.join(database.place.folder, str(path)), None
            else:
                record, _, index = str(row["id"]).partition(".")
                task = FarTask(database, int(record), int(index or 0))
                where, data = str(path), b"".join(task.kept(row, name))
            yield Part(str(row["id"]), str(row["name"] or ""), name, where, offset, length, data)


def _as_text(database: Database, row: Fields, wanted: list[str], tail: int | None) -> Fields:
    said: Fields = {"id": row["id"], "name": row["name"], "state": row["state"]} | dict.fromkeys(wanted, "")
    for part in _parts(database, row, wanted):
        said[part.stream] = b"".join(read_part(part, tail)).decode(errors="replace")
    return said


def _print(parts: list[Part], *, headed: bool, tail: int | None) -> None:
    sys.stdout.flush()
    stdout = sys.stdout.buffer
    last = b"\n"
    for number, part in enumerate(parts):
        if headed:
            gap = (b"" if last.endswith(b"\n") else b"\n") + (b"\n" if number else b"")
            stdout.write(gap + part.header.encode() + b"\n")
        for piece in read_part(part, tail):
            stdout.write(piece)
            last = piece
    stdout.flush()


def read_part(part: Part, tail: int | None = None) -> Iterator[bytes]:
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
                piece = os.pread(file.fileno(), min(_PIECE, end - at), at)
                if not piece:
                    return
                yield piece
                at += len(piece)
    except OSError as error:
        raise StoreFailed(
            f"cannot read the {part.stream} of task {part.id} in {part.path}: {error.strerror}"
        ) from error


def _tail_start(descriptor: int, part: Part, lines: int) -> int:
    """Where the last lines begin, searched from the end: outputs may be long."""
    end = part.offset + part.length
    if not lines:
        return end
    at, wanted = end, lines
    if os.pread(descriptor, 1, end - 1) == b"\n":
        wanted += 1  # the newline that ends the last line starts none
    while at > part.offset:
        begin = max(part.offset, at - _PIECE)
        piece = os.pread(descriptor, at - begin, begin)
        place = len(piece)
        while (place := piece.rfind(b"\n", 0, place)) >= 0:
            wanted -= 1
            if not wanted:
                return begin + place + 1
        at = begin
    return part.offset
