"""Workflow files on the command line: which form a file has, and the steps that submit what it says.

Rule: a file is read once, and understood as a whole before anything is submitted. A Python script needs no reader of
`describe`, and none is loaded for it: `bough run script.py` starts its server sooner.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bough.describe.source_files import read_file
from bough.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from bough.describe.formats import FormatReader, Source
    from bough.describe.plan import Plan
    from bough.describe.steps import Step
    from bough.describe.wfformat import TraceReplay


class File:
    """A file of the command line, as far as it is known by looking at it."""

    def __init__(self, path: str, args: Sequence[str] = ()) -> None:
        from bough.describe.formats import Source, find_reader

        self.path = path
        self.source = Source(path, read_text(path), tuple(args))
        self.reader: FormatReader | None = find_reader(self.source)
        if self.reader is None:
            _refuse_strange(self.source)

    @property
    def takes_arguments(self) -> bool:
        """Whether what stands behind it on the command line is for it, and not options of ours."""
        return self.reader is not None and self.reader.takes_arguments

    @property
    def is_whole(self) -> bool:
        """Whether it says all of its workflow: a Makefile says what is out of date as the files are now."""
        return self.reader is None or self.reader.form != "make"

    @property
    def stem(self) -> str:
        """The name of the workflow that it makes."""
        return stem(self.path)

    def plan(
        self, args: Sequence[str] = (), emulation: TraceReplay | None = None, note: Callable[[str], None] | None = None
    ) -> Plan:
        """What it describes; `note` is told what was passed over."""
        from bough.describe.formats import FLAT, read

        source = self.source._replace(args=tuple(args), emulation=emulation)
        return read(source if note is None else source._replace(note=note), self.reader or FLAT)

    def steps(self, args: Sequence[str] = ()) -> list[Step]:
        """The steps that submit it, a flat list's as those of anything else."""
        if self.reader is not None:
            from bough.describe.steps import steps

            return steps(self.plan(args))
        from bough.describe import flat_list

        return flat_list.flat_steps(flat_list.read(self.source.text, self.source.name), self.source.name)


def read_text(path: str, what: str = "") -> str:
    """A file's text, or that of standard input; `what` it is, if it is no workflow file."""
    try:
        data = read_file(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not what and os.path.isfile(path) and os.access(path, os.X_OK):
            raise UserError(f"{path} is a program; to run it: bough run -- {_as_command(path)}") from error
        line = data.count(b"\n", 0, error.start) + 1
        kind = what or ("a Python script" if path.endswith(".py") else "a flat list")
        raise UserError(f"{path}:{line}: {kind} is UTF-8 text, and this line is not") from error


def _refuse_strange(source: Source) -> None:
    """Refuse what is surely no list of commands, before its lines are run, all at once and in any order."""
    from bough.describe.formats import is_python

    path, first = source.path, source.text[:_SHORT].partition("\n")[0].strip()
    if path.endswith(".json"):
        raise UserError(f"{path} is neither a recorded workflow (WfFormat) nor what bough describe --to json writes")
    if first.startswith("#!") and "bough" not in first and not is_python(path, source.text):
        how = _as_command(path) if os.access(path, os.X_OK) else f"{first[2:].strip()} {path}"
        raise UserError(
            f"{path} is a script, and each line of a list is a command of its own; to run the script: bough run --"
            f" {how}; if it is a list, take out the line {first}"
        )


def _as_command(path: str) -> str:
    return path if "/" in path else f"./{path}"


def cannot_read(path: str, error: OSError | UnicodeDecodeError) -> UserError:
    """The error for a file that cannot be read; it suggests the file, or the command, that was meant."""
    meant = ""
    if isinstance(error, FileNotFoundError):
        meant = _near_file(path)
        from shutil import which

        if not meant and "/" not in path and which(path):
            meant = f"; to run the command: bough run -- {path}"
    return UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}{meant}")


def _near_file(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        there = sorted(os.listdir(folder or "."))[:_MOST_NAMES]
    except OSError:
        return ""
    return did_you_mean(path, [os.path.join(folder, other) for other in there]) if name else ""


_SHORT = 200  # characters of a first line
_MOST_NAMES = 10_000  # of a folder, among which the one that was meant is looked for


def stem(path: str) -> str:
    """The name of the workflow that a file makes."""
    return "stdin" if path == "-" else os.path.splitext(os.path.basename(path))[0]


_TELLING = (b"generateGroup", b"bough.describe")  # one of these is in every description script


def is_script(path: str) -> bool:
    """Whether a file is a Python script that does its own submitting; it is not run to find that out."""
    if path == "-":
        return False
    try:
        if not path.endswith(".py") and not _calls_python(path):
            return False
        data = read_file(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    if not any(word in data for word in _TELLING):
        return True
    from bough.describe.trellisdag.description_script import is_description

    return not is_description(data)


def _calls_python(path: str) -> bool:
    """Whether the first line of a file says so; what a pipe holds can be read once, and is no script."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first
