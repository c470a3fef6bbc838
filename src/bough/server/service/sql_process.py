"""The process that asks the jobs database for a client, so that no statement can harm the server.

It reads questions from standard input and writes answers to standard output, each a length of four bytes and then
MessagePack: first a `Setting`, which it answers with nothing once it is ready, then any number of `Question`s. An
answer begins with a byte: `ROWS`, and what clients get, or `REFUSED`, and the kind of error and its text. Rule: it
holds at most the memory and the temporary files that it was told, whatever the statement says, and it ends when the
server does, or when it is interrupted.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import msgspec

from bough.errors import BoughError, InternalError, UserError
from bough.stores.jobs.jobs_reader import Value
from bough.stores.open import is_postgres, open_jobs

ROWS: Final = 0
REFUSED: Final = 1
HEAD: Final = struct.Struct(">I")
_MAP: Final = b"\x82\xa7columns"  # the beginning of {"columns": ..., "rows": ...} in MessagePack
_ROWS: Final = b"\xa4rows\xdd"  # then how many, in four bytes
_encoder: Final = msgspec.msgpack.Encoder()


class Limits(msgspec.Struct, frozen=True):
    """What one statement may take."""

    seconds: float = 30.0
    rows: int = 1_000_000
    size: int = 64 << 20  # bytes of the answer
    memory: int = 384 << 20  # bytes besides those of a process that has nothing to do
    files: int = 1 << 30  # bytes of a temporary file


class Setting(msgspec.Struct, frozen=True):
    """Where the jobs database is, and what may be taken to ask it."""

    where: str
    limits: Limits


class Question(msgspec.Struct, frozen=True):
    """One statement."""

    statement: str
    parameters: list[Any] = []  # what is no value for the database is refused there


class Sheet:
    """The rows of an answer, encoded as they come, and no more of them than may be."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._count = 0
        self._data = bytearray()

    def take(self, rows: Sequence[tuple[Value, ...]]) -> None:
        """More rows; UserError when they are too many."""
        limits = self._limits
        self._count += len(rows)
        if self._count > limits.rows:
            raise UserError(f"the answer has more than {limits.rows:,} rows: ask for fewer, with limit")
        for row in rows:
            _encoder.encode_into(row, self._data, -1)
            if len(self._data) > limits.size:
                raise UserError(
                    f"the answer is larger than {limits.size >> 20} MB: ask for fewer rows, with limit, or for fewer"
                    " columns"
                )

    def finish(self, columns: list[str]) -> tuple[bytes, bytearray]:
        """What clients get, in two pieces."""
        return b"".join((_MAP, _encoder.encode(columns), _ROWS, HEAD.pack(self._count))), self._data


def answer(setting: Setting, question: Question) -> tuple[bytes, bytes | bytearray]:
    """Ask the jobs database; an answer in two pieces."""
    try:
        sheet = Sheet(setting.limits)
        with open_jobs(setting.where, setting.limits.seconds) as jobs:
            columns = jobs.read(question.statement, question.parameters, sheet.take)
        head, rows = sheet.finish(columns)
        return bytes((ROWS,)) + head, rows
    except BoughError as error:
        return bytes((REFUSED,)), _refusal(error)
    except MemoryError:
        limit = f"{setting.limits.memory >> 20} MB"
        return bytes((REFUSED,)), _refusal(UserError(f"the statement needs more memory than {limit}: ask for less"))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it concerns the client that asked
        return bytes((REFUSED,)), _refusal(InternalError(f"{type(error).__name__}: {error}"))


def _refusal(error: BoughError) -> bytes:
    return _encoder.encode((type(error).__name__, str(error)))


def bound(limits: Limits) -> None:
    """Take no more than this from now on."""
    most = {resource.RLIMIT_FSIZE: limits.files, resource.RLIMIT_CORE: 0}
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:  # else the limits on answers must do
        most[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + limits.memory
    for kind, limit in most.items():
        hard = resource.getrlimit(kind)[1]
        least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (least, least))


def _read(stream: BinaryIO) -> bytes:
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        raise EOFError
    return stream.read(HEAD.unpack(head)[0])


def _write(stream: BinaryIO, *pieces: bytes | bytearray) -> None:
    stream.write(HEAD.pack(sum(map(len, pieces))))
    stream.writelines(pieces)
    stream.flush()


def end_with_server(source: int) -> None:
    """End when the server's end of our input is closed, also while a statement is worked on."""

    def watch() -> None:
        lost = select.poll()
        lost.register(source, select.POLLRDHUP)
        lost.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Answer until the server is gone, or until it is interrupted."""
    told: list[int] = []

    def interrupt(number: int, _: object) -> None:
        told.append(number)  # SQLite passes over what is raised while it works
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    end_with_server(source.fileno())
    os.dup2(2, 1)  # nothing but answers goes to the server
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        setting = msgspec.msgpack.decode(_read(source), type=Setting)
        if is_postgres(setting.where):
            import psycopg  # noqa: F401 -- before the memory is counted
        bound(setting.limits)
        _write(sink)  # it is ready
        while not told:
            question = msgspec.msgpack.decode(_read(source), type=Question)
            _write(sink, *answer(setting, question))
    os._exit(0)


if __name__ == "__main__":
    main()
