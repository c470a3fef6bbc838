"""`bough log`: what tasks wrote to their standard output and standard error.

A task's output is a range of bytes of a file that many tasks share. Rule: bytes are passed on as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

import msgspec

from bough.cli.database import Database, open_database
from bough.cli.finding import add_store_arguments
from bough.cli.output import Output
from bough.cli.picking import Pick, add_selector_arguments, pick, read_request
from bough.cli.rows import Fields, stream_rows
from bough.errors import StoreFailed, UserError

EXAMPLES = (
    "bough log last",
    "bough log 12.3 --stderr",
    "bough log --failed --tail 20",
    "bough log align/* --stdout > all.txt",
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

    @property
    def header(self) -> str:
        """The line before it, when there are several."""
        return f"==> {self.id} {self.name}".rstrip() + f" {self.stream} <=="


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    parser.add_argument("--stdout", action="store_true", help="standard output only")
    parser.add_argument("--stderr", action="store_true", help="standard error only")
    parser.add_argument("--tail", type=int, metavar="N", help="the last N lines of each")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the output of the tasks that are meant."""
    if args.tail is not None and args.tail < 0:
        raise UserError(f"--tail {args.tail}: give a number of lines, 0 or more")
    selectors, states = read_request(args)
    wanted = [name for name in ("stdout", "stderr") if getattr(args, name)] or ["stdout", "stderr"]
    with open_database(args) as database:
        picks = pick(database, selectors, states, args.run or database.last_run())
        if args.json:
            output.answer(read_streams(database, picks, wanted, args.tail), lambda: ())
            return 0
        parts = [part for row in stream_rows(database, picks) for part in _parts(database, row, wanted)]
    if not args.quiet:
        _print(parts, headed=len(parts) > 1, tail=args.tail)
        if not parts:
            output.note("these tasks wrote nothing" if picks else "no task is meant")
    return 0


def read_streams(database: Database, picks: list[Pick], wanted: list[str], tail: int | None) -> list[Fields]:
    """What tasks wrote, as text."""
    return [_as_text(database, row, wanted, tail) for row in stream_rows(database, picks)]


def _parts(database: Database, row: Fields, wanted: list[str]) -> Iterator[Part]:
    for name in wanted:
        path, offset, length = (row[f"{name}_{part}"] for part in ("path", "offset", "length"))
        if path and isinstance(offset, int) and isinstance(length, int) and length:
            where = os.path.join(database.place.folder, str(path))
            yield Part(str(row["id"]), str(row["name"] or ""), name, where, offset, length)


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
