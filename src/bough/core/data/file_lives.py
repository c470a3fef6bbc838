"""How many readers of a file have not succeeded yet, for each file that tasks of a workflow declare.

When the last one has, the shell is told (`DropFile`), and removes the file if its maker said that it is temporary. Only
workflows with such a task cause orders. Rule: a reader that failed still counts, because a user may try it again; the
counts follow from the states of records, so that nothing of them is stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bough.model.tasks import LATER, Keep

_NONE: Final = array("I", (0,))


class LastRead(NamedTuple):
    """A file that nobody will read any more, as far as is known, and who read it last."""

    run: int
    file: int
    reader: int
    element: int


class FileLives:
    """The files of one workflow."""

    __slots__ = ("has_later", "has_temporary", "unread")

    def __init__(self) -> None:
        self.unread = array("I")  # by number of the file: elements that read it and have not succeeded
        self.has_temporary = False  # some task says that what it writes is
        self.has_later = False  # some task says that what it writes may be safe later than it is done

    def note_keep(self, keep: Keep) -> None:
        """What some task says of what it writes."""
        self.has_temporary = self.has_temporary or not keep
        self.has_later = self.has_later or keep == LATER

    def wanted(self, files: Iterable[int]) -> None:
        """One more element that has not succeeded reads these."""
        unread = self.unread
        for file in files:
            if file >= len(unread):
                unread.extend(_NONE * (file + 1 - len(unread)))
            unread[file] += 1

    def read(self, files: Iterable[int]) -> list[int]:
        """An element that reads these has succeeded; those that nobody is to read any more."""
        unread, over = self.unread, []
        count = len(unread)
        for file in files:
            if file < count and (left := unread[file]):
                unread[file] = left - 1
                if left == 1:
                    over.append(file)
        return over

    def is_unread(self, file: int) -> bool:
        """Whether somebody is still to read a file."""
        return file < len(self.unread) and self.unread[file] > 0

    def counts(self) -> list[tuple[int, int]]:
        """The files that are still to be read, and by how many."""
        return [(file, count) for file, count in enumerate(self.unread) if count]

    def clear(self) -> None:
        """Count anew from here."""
        self.unread = array("I")


def numbers(files: Sequence[object]) -> Sequence[int]:
    """Declared files without those that have no number."""
    return [file for file in files if isinstance(file, int)]
