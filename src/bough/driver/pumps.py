"""Threads that copy between a descriptor that cannot be opened again, such as a socket, and a pipe.

Rule: a pump ends by itself, when one of its sides does, and closes what it was given.
"""

from __future__ import annotations

import contextlib
import os
import threading

_PIECE = 1 << 16


def pump_in(fd: int, *, is_file: bool) -> tuple[int, threading.Thread]:
    """A pipe's end from which comes what `fd` gives; a file is read from its place, which stays where it is."""
    read, write = os.pipe()
    at = os.lseek(fd, 0, os.SEEK_CUR) if is_file else 0

    def copy() -> None:
        place = at
        with contextlib.suppress(OSError):
            while piece := os.pread(fd, _PIECE, place) if is_file else os.read(fd, _PIECE):
                place += len(piece)
                write_all(write, piece)
        os.close(fd)
        os.close(write)

    return read, _start(copy)


def pump_out(fd: int) -> tuple[int, threading.Thread]:
    """A pipe's end; what is written there goes to `fd`."""
    read, write = os.pipe()

    def copy() -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(read, _PIECE):
                write_all(fd, piece)
        os.close(read)
        os.close(fd)

    return write, _start(copy)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however often that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _start(copy: object) -> threading.Thread:
    thread = threading.Thread(target=copy, name="bough-driver-pump", daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread
