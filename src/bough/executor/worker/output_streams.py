"""Output files of a slot: one append-only file each for stdout and stderr, of which every element has a range.

Python's `sys.stdout` and `sys.stderr` count what passes through them, so an element that prints nothing costs no system
call. Descriptors 1 and 2 point to the same files for commands and for C code. Where the files lie in the store, what
Python prints waits for space. `read_output` reads a part of a file for a remote client.

Rules: files only grow; when a process of an ended element may still be writing, the pair is left to it and a new one
begun (`seal`). Nothing outside of this executor's output folder is ever read.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from bough import private
from bough.executor.host.disk_space_wait import SpaceWait, is_full, lacks_space
from bough.executor.worker_protocol import ERR, GENERATION, OUT, OUTPUT_WAITS, SINCE
from bough.model.outcomes import Stream
from bough.wire.executor_messages import OutputRead, ReadOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer  # of collections.abc from Python 3.12 on

_MOST = 16 << 20  # bytes of one answer


def stream_path(directory: str, slot: str, generation: int, suffix: str) -> str:
    """The file of one slot and stream; later generations have a number."""
    return os.path.join(directory, f"{slot}.{suffix}" if generation == 0 else f"{slot}.{generation}.{suffix}")


class _OutputWait(SpaceWait):
    """The time that a function waits does not count against its limit."""

    def __init__(self, say: Callable[[str], None], cells: memoryview[int]) -> None:
        super().__init__(say, mark=partial(cells.__setitem__, OUTPUT_WAITS))
        self._cells = cells

    def __call__(self, what: str) -> None:
        before = self.waited
        super().__call__(what)
        if self._cells[SINCE]:
            self._cells[SINCE] += int((self.waited - before) * 1e9)


class _Counting(io.FileIO):
    """A raw file that remembers that it was written to."""

    def __init__(self, fd: int, wrote: list[int], pause: _OutputWait | None) -> None:
        super().__init__(fd, "wb", closefd=False)
        self._wrote = wrote
        self._pause = pause

    def write(self, data: Buffer, /) -> int:
        """Write at once, as `python -u` does: what a killed function printed is kept."""
        self._wrote[0] += 1
        if self._pause is None:
            return super().write(data)
        left = memoryview(data).cast("B")
        count = len(left)
        while left:  # a disk that fills up takes a part of it first
            try:
                left = left[super().write(left) :]
            except OSError as error:
                if not is_full(error):
                    raise
                self._pause("what a task prints")
        self._pause.resumed()
        return count


class Streams:
    """The output files of one worker."""

    def __init__(
        self, directory: str, slot: str, cells: memoryview[int], say: Callable[[str], None] | None = None
    ) -> None:
        """`say`: the files lie in the store; when that is full it is waited for, and said."""
        self._pause = _OutputWait(say, cells) if say is not None else None
        self._directory = directory
        self._slot = slot
        self._cells = cells
        self.wrote = [0]  # not zero: Python code printed since the last `take`
        self._paths = ["", ""]
        self._at = [0, 0]
        self._open()
        self._ours = [self._text(1), self._text(2)]
        self.restore()

    def _text(self, fd: int) -> io.TextIOWrapper:
        raw = _Counting(fd, self.wrote, self._pause)
        return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)

    @property
    def lacks_space(self) -> bool:
        """Whether what a command writes here may have failed because the disk is full."""
        return lacks_space(self._directory)

    def wait_for_space(self) -> bool:
        """Wait until there is some, if the files lie in the store; False if they do not."""
        if self._pause is None:
            return False
        while lacks_space(self._directory):
            self._pause("what a command prints")
        self._pause.over()
        return True

    def _open(self) -> None:
        cells = self._cells
        for fd, suffix, cell in ((1, "out", OUT), (2, "err", ERR)):
            path = stream_path(self._directory, self._slot, cells[GENERATION], suffix)
            opened = private.opener(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            os.dup2(opened, fd)
            os.close(opened)
            self._paths[fd - 1] = path
            self._at[fd - 1] = cells[cell] = os.lseek(fd, 0, os.SEEK_END)

    def path_of(self, suffix: str) -> str:
        """Where a file of this worker's own lies, beside its streams."""
        return stream_path(self._directory, self._slot, self._cells[GENERATION], suffix)

    def seal(self) -> None:
        """Leave the files to the processes that still have them open, and begin new ones."""
        self._cells[GENERATION] += 1
        self._open()

    def begins(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The files of stdout and stderr, and where what was not yet taken begins in them."""
        return (self._paths[0], self._at[0]), (self._paths[1], self._at[1])

    def ends(self) -> tuple[int, int]:
        """Where they end now."""
        return os.lseek(1, 0, os.SEEK_END), os.lseek(2, 0, os.SEEK_END)

    def take(self) -> tuple[Stream | None, Stream | None]:
        """What was written since the last time, to stdout and stderr."""
        self.wrote[0] = 0
        return (self._take(1, OUT), self._take(2, ERR)) if self.grown() else (None, None)

    def _take(self, fd: int, cell: int) -> Stream | None:
        at = self._at[fd - 1]
        end = os.lseek(fd, 0, os.SEEK_END)
        if end == at:
            return None
        self._at[fd - 1] = self._cells[cell] = end
        return Stream(self._paths[fd - 1], at, end - at)

    def grown(self) -> bool:
        """Whether something was written since the last `take`, by Python, C code or children."""
        return os.lseek(1, 0, os.SEEK_END) != self._at[0] or os.lseek(2, 0, os.SEEK_END) != self._at[1]

    def restore(self) -> None:
        """Give functions our streams, whatever an earlier one did to them."""
        if self._ours[0].closed or self._ours[1].closed:
            self._ours = [self._text(1), self._text(2)]
        sys.stdout, sys.stderr = self._ours

    def error_tail(self, stream: Stream | None, size: int = 2000) -> str:
        """The last characters of a part of the stderr file in use."""
        if stream is None:
            return ""
        length = min(stream.length, size)
        return os.pread(2, length, stream.offset + stream.length - length).decode("utf-8", "replace")


def sizes_of(paths: list[str]) -> dict[str, int]:
    """The sizes of those files that are there."""
    found: dict[str, int] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[path] = os.stat(path).st_size
    return found


def read_output(asked: ReadOutput, folder: str, running: tuple[str, int] | None) -> OutputRead:
    """What was asked for; `running`: the file of the stream, and where the running task begins in it, if it runs."""
    length = max(0, min(asked.length, _MOST))
    offset = max(0, asked.offset)
    if asked.path:
        path = os.path.realpath(asked.path)
        if not path.startswith(os.path.realpath(folder) + os.sep):
            return OutputRead(asked.request, b"", error="the file is not an output of this executor")
    elif running is None:
        return OutputRead(asked.request, b"", error="the task does not run here any more")
    else:
        path, begin = running
        offset += begin
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return OutputRead(asked.request, b"", error=f"the output cannot be read: {error.strerror}")
    try:
        size = 0 if asked.path else max(0, os.fstat(descriptor).st_size - (offset - asked.offset))
        return OutputRead(asked.request, os.pread(descriptor, length, offset), more=not asked.path, size=size)
    except OSError as error:
        return OutputRead(asked.request, b"", error=f"the output cannot be read: {error.strerror}")
    finally:
        os.close(descriptor)
