"""Answers about files of a running task: the last lines, a part, whether one is there, its size, a folder's names.

This runs in a helper process, which is killed when it takes too long (see `helper_pool`). Rules: only plain files are
opened, and never in a way that waits. What is read at a time and what is answered is bounded; a part that took long is
answered as far as it went, and says that there is more.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from typing import Self

import msgspec

from bough.errors import BoughError, MissingFile, UserError
from bough.executor.files.command_files.sandbox import sandbox_name
from bough.model.files import absolute, hidden_path, place_inside
from bough.model.monitoring.monitors import compile_pattern
from bough.wire.probes import (
    MOST_NAMES,
    MOST_READ,
    STREAMS,
    Exists,
    FileData,
    FileSize,
    FileThere,
    FolderNames,
    ListFolder,
    ReadPart,
    Tail,
)

_CHUNK = 1 << 20  # bytes that are read at a time; a line that is longer counts as several
_ENOUGH = 2.0  # seconds after which a part is answered as far as it went
_MOST_BACK = 256 << 20  # bytes from the end of a file in which `Tail` looks for lines

FileQuestion = Tail | ReadPart | Exists | FileSize | ListFolder


class ProbePlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a task runs, as far as its executor knows."""

    pid: int  # of the process that runs it, or that has started its command
    record: int
    index: int
    attempt: int
    streams: dict[str, tuple[str, int]]  # the files of stdout and stderr, and where the task begins in them
    group: int = 0  # of the processes of a command
    sandboxes: str = ""  # the folder in which the sandbox is that stands for `directory`
    directory: str = ""  # of a submitter that is not seen here

    def find(self, path: str) -> str:
        """The file of a path. A declared output that is being written has another name until the task has succeeded."""
        if self.sandboxes and os.path.isabs(path):
            inside = absolute(path, "/")
            if inside == self.directory or inside.startswith(f"{self.directory}/"):
                sandbox = f"{self.sandboxes}/{sandbox_name(self.record, self.index, self.attempt)}"
                path = os.path.join(sandbox, place_inside(inside, self.directory))
        found = os.path.join(self.working_directory(), path)
        hidden = hidden_path(found, self.record, self.index, self.attempt)
        return hidden if os.path.lexists(hidden) else found

    def working_directory(self) -> str:
        """Where the task was started: its worker is there, too."""
        return os.readlink(f"/proc/{self.pid}/cwd")


class FarFile:
    """A plain file, or the part of an output file that is a task's own."""

    def __init__(self, place: ProbePlace, path: str) -> None:
        self._name = path
        self.begin = 0
        if path in STREAMS:
            found, self.begin = place.streams[path]
        else:
            found = place.find(path)
        self._check(os.stat(found))
        self.fd = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        self._check(os.fstat(self.fd))
        self.size = max(0, os.fstat(self.fd).st_size - self.begin)

    def _check(self, state: os.stat_result) -> None:
        if stat.S_ISDIR(state.st_mode):
            raise UserError(f"{self._name} is a folder")
        if not stat.S_ISREG(state.st_mode):
            raise UserError(f"{self._name} is no plain file, and is not opened")

    def read(self, offset: int, length: int) -> bytes:
        """Some bytes; none at the end."""
        return os.pread(self.fd, length, min(self.begin + offset, 1 << 62))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def answer_file(question: FileQuestion, place: ProbePlace) -> FileData | FileThere | FolderNames:
    """The answer; a `BoughError` says why there is none."""
    path = question.path
    try:
        return _answer(question, place)
    except BoughError:  # some of them are a ValueError, too
        raise
    except FileNotFoundError as error:
        raise MissingFile(f"there is no {path} where the task runs") from error
    except NotADirectoryError as error:
        raise UserError(f"{path} is no folder") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {reason}") from error


def _answer(question: FileQuestion, place: ProbePlace) -> FileData | FileThere | FolderNames:
    path = question.path
    match question:
        case Exists():
            return FileThere(path in STREAMS or os.path.lexists(place.find(path)))
        case ListFolder():
            return _list(place.find(path))
        case FileSize() if path not in STREAMS:
            return FileThere(True, os.stat(place.find(path)).st_size)
    with FarFile(place, path) as file:
        match question:
            case Tail():
                return _tail(file, question)
            case ReadPart():
                return _read(file, question)
            case FileSize():
                return FileThere(True, file.size)


def _search(pattern: str) -> re.Pattern[bytes] | None:
    return compile_pattern(pattern, "the question") if pattern else None


def _read(file: FarFile, asked: ReadPart) -> FileData:
    search = _search(asked.pattern)
    if search is None and not asked.whole:
        data = file.read(asked.offset, asked.size)
        end = asked.offset + len(data)
        return FileData(data, end, file.size, more=end < file.size)
    found: list[bytes] = []
    room, offset = asked.size, asked.offset
    deadline = time.monotonic() + _ENOUGH
    for line, end in _lines(file, asked.offset, unfinished=not asked.whole):
        if search is None or search.search(line):
            if len(line) > room and found:
                return FileData(b"".join(found), offset, file.size, more=True)
            found.append(line[:room])
            room -= len(found[-1])
        offset = end
        if not room or time.monotonic() > deadline:
            return FileData(b"".join(found), offset, file.size, more=offset < file.size)
    return FileData(b"".join(found), offset, file.size)


def _lines(file: FarFile, offset: int, *, unfinished: bool) -> Iterator[tuple[bytes, int]]:
    """Lines with their ends, and the offset behind each; what is longer than a chunk comes in pieces."""
    rest = b""
    while data := file.read(offset + len(rest), _CHUNK - len(rest)):
        rest += data
        at = 0
        while (end := rest.find(b"\n", at) + 1) > 0:
            yield rest[at:end], offset + end
            at = end
        offset += at
        rest = rest[at:]
        if len(rest) >= _CHUNK:
            offset += len(rest)
            yield rest, offset
            rest = b""
    if rest and unfinished:
        yield rest, offset + len(rest)


def _tail(file: FarFile, asked: Tail) -> FileData:
    search = _search(asked.pattern)
    found: list[bytes] = []  # the last one first
    room = MOST_READ
    deadline = time.monotonic() + _ENOUGH
    for line in _lines_backwards(file):
        if search is None or search.search(line):
            found.append(line[-room:])
            room -= len(found[-1])
        if len(found) == asked.lines or not room or time.monotonic() > deadline:
            break
    return FileData(b"".join(reversed(found)), file.size, file.size)


def _lines_backwards(file: FarFile) -> Iterator[bytes]:
    """The lines of the end of a file, the last one first; what is longer than a chunk comes in pieces."""
    end, rest = file.size, b""
    stop = max(0, end - _MOST_BACK)
    while end > stop:
        start = max(stop, end - _CHUNK)
        lines = _cut(file.read(start, end - start) + rest)
        end, rest = start, b""
        if end > stop and lines and len(lines[0]) < _CHUNK:
            rest = lines.pop(0)  # its beginning may be further ahead
        yield from reversed(lines)


def _cut(block: bytes) -> list[bytes]:
    """A block as lines with their ends."""
    lines = block.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _list(path: str) -> FolderNames:
    names: list[bytes] = []
    with os.scandir(os.fsencode(path)) as entries:
        for entry in entries:
            if len(names) == MOST_NAMES:
                return FolderNames(sorted(names), more=True)
            names.append(entry.name + (b"/" if entry.is_dir(follow_symlinks=False) else b""))
    return FolderNames(sorted(names))
