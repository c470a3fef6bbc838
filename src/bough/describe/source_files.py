"""Reading a file that the user named: the whole of it, as long as there is an end.

A workflow may come from a file, a pipe or a terminal. A device such as /dev/zero is refused, a pipe that no process
writes to is given up, and more bytes than a description can have are not read.
Rule: reading never waits for ever.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time

from bough.errors import UserError

MOST_BYTES = 1 << 28  # of one file
_WRITER = 2.0  # seconds in which a process must have opened the other end of a pipe
_PIECE = 1 << 20


def read_file(path: str) -> bytes:
    """The bytes of a file, or of standard input when it is called -; OSError if they cannot be had."""
    if path == "-":
        return _standard_input()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a NUL in its name
        raise UserError(f"cannot read {path!r:.80}: {error}") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UserError(f"cannot read {path}: Is a directory")
        if _is_endless(status):
            raise UserError(f"cannot read {path}: it is a device and has no end; give a file")
        if stat.S_ISREG(status.st_mode) and status.st_size > MOST_BYTES:
            raise _too_long(path)
        return _read(descriptor, path, waits=stat.S_ISFIFO(status.st_mode))
    finally:
        os.close(descriptor)


def _is_endless(status: os.stat_result) -> bool:
    """Whether it is a device, other than a terminal and /dev/null."""
    if stat.S_ISBLK(status.st_mode):
        return True
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return stat.S_ISCHR(status.st_mode) and major == _MEMORY and minor != _NULL


_MEMORY, _NULL = 1, 3  # numbers of /dev/null; its neighbours are /dev/zero, /dev/full and /dev/random


def _read(descriptor: int, path: str, waits: bool) -> bytes:
    """Read to the end; `waits`: it is a pipe, which a process may yet open to write."""
    pieces: list[bytes] = []
    size = 0
    until = time.monotonic() + _WRITER
    while True:
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:  # a process has it open and has not written yet
            waits = False
            _wait(descriptor, None)
            continue
        if piece:
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise _too_long(path)
        elif waits and not pieces:
            if time.monotonic() > until:
                raise UserError(f"cannot read {path}: it is a pipe, and no process writes to it")
            _wait(descriptor, 0.05)
        else:
            return b"".join(pieces)


def _wait(descriptor: int, seconds: float | None) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(None if seconds is None else seconds * 1000)


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise UserError("cannot read stdin: it is closed")
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _too_long("stdin")
    return data


def _too_long(path: str) -> UserError:
    return UserError(f"cannot read {path}: it is longer than {MOST_BYTES} bytes; a description is not that long")
