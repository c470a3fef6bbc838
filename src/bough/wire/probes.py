"""What a remote monitor may ask of a running task, and what its executor answers: two tagged unions.

A client sends a `Probe` (see `questions`), the server passes it on as `ProbeTask`, and the executor answers by
`ProbeAnswer` (see `executor_messages`). Paths are relative to where the task was started; "stdout" and "stderr" are its
streams. Rule: everything is bounded in its type. What acts on the task is never asked twice; all else may be.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import NO_NUL, Count

MOST_READ = 16 << 20  # bytes of a file in one answer
MOST_LINES = 100_000  # in one answer to `Tail`
MOST_NAMES = 10_000  # of a folder in one answer
MOST_WRITTEN = 1 << 20  # bytes of each stream of a command
LONGEST_COMMAND = 3600.0  # seconds
STREAMS = ("stdout", "stderr")

FarPath = Annotated[str, Meta(min_length=1, max_length=4096, pattern=NO_NUL)]
Search = Annotated[str, Meta(max_length=4096, pattern=NO_NUL)]  # a regular expression; empty: every line


# --- what is asked -----------------------------------------------------------------------------------


class Tail(msgspec.Struct, frozen=True, array_like=True, tag="tail"):
    """The last lines of a file, of those that match."""

    path: FarPath
    lines: Annotated[int, Meta(ge=1, le=MOST_LINES)] = 10
    pattern: Search = ""


class ReadPart(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """A part of a file from an offset on, or its lines that match.

    `whole`: a last line that has no end yet is left for later.
    """

    path: FarPath
    offset: Count = 0
    size: Annotated[int, Meta(ge=1, le=MOST_READ)] = MOST_READ
    pattern: Search = ""
    whole: bool = False


class Exists(msgspec.Struct, frozen=True, array_like=True, tag="exists"):
    """Whether there is a file or folder."""

    path: FarPath


class FileSize(msgspec.Struct, frozen=True, array_like=True, tag="size"):
    """How many bytes a file has."""

    path: FarPath


class ListFolder(msgspec.Struct, frozen=True, array_like=True, tag="list"):
    """What is in a folder."""

    path: FarPath = "."


class SendSignal(msgspec.Struct, frozen=True, array_like=True, tag="signal"):
    """Send a signal to the processes of a command, or to the one that runs a function."""

    number: Annotated[int, Meta(ge=1, le=64)]


class RunCommand(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run a command line beside the task, if the executor was started with leave to."""

    command: Annotated[str, Meta(min_length=1, max_length=65_536, pattern=NO_NUL)]
    timeout: Annotated[float, Meta(ge=0.001, le=LONGEST_COMMAND)] = 60.0


ProbeQuestion = Tail | ReadPart | Exists | FileSize | ListFolder | SendSignal | RunCommand
DEEDS = (SendSignal, RunCommand)  # never asked twice


# --- what is answered --------------------------------------------------------------------------------


class FileData(msgspec.Struct, frozen=True, array_like=True, tag="data"):
    """The answer to `Tail` and `ReadPart`."""

    data: Annotated[bytes, Meta(max_length=MOST_READ)]
    offset: Count = 0  # where the next part begins
    size: Count = 0  # of the whole file now
    more: bool = False  # there is more to look at now


class FileThere(msgspec.Struct, frozen=True, array_like=True, tag="there"):
    """The answer to `Exists` and `FileSize`."""

    is_there: bool
    size: Count = 0


class FolderNames(msgspec.Struct, frozen=True, array_like=True, tag="names"):
    """The answer to `ListFolder`: names as the file system has them, folders with a slash behind."""

    names: Annotated[list[Annotated[bytes, Meta(max_length=4096)]], Meta(max_length=MOST_NAMES)]
    more: bool = False  # there are more of them


class SignalSent(msgspec.Struct, frozen=True, array_like=True, tag="sent"):
    """The answer to `SendSignal`."""


class CommandRan(msgspec.Struct, frozen=True, array_like=True, tag="ran"):
    """The answer to `RunCommand`."""

    exit_code: Annotated[int, Meta(ge=-255, le=255)]  # negative: of the signal that ended it
    stdout: Annotated[bytes, Meta(max_length=MOST_WRITTEN)] = b""
    stderr: Annotated[bytes, Meta(max_length=MOST_WRITTEN)] = b""
    cut: bool = False  # it wrote more than that


ProbeResult = FileData | FileThere | FolderNames | SignalSent | CommandRan

_FITS: dict[type, type] = {
    Tail: FileData,
    ReadPart: FileData,
    Exists: FileThere,
    FileSize: FileThere,
    ListFolder: FolderNames,
    SendSignal: SignalSent,
    RunCommand: CommandRan,
}


def fits(question: ProbeQuestion, result: ProbeResult) -> bool:
    """Whether this is an answer to that."""
    return type(result) is _FITS[type(question)]
