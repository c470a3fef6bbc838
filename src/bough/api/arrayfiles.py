"""The files of many elements at once: who of an array writes a path, and which paths exist.

Outputs of arrays take 8 bytes each: a hash of the path and the number of the element in one sorted
array; paths are rendered again when hashes meet. Rule: memory and questions to the disk grow with the
number of elements and folders, not with the length of paths.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from bough.errors import Clash as Taken
from bough.model.commands import CommandTemplate
from bough.model.ids import RecordId
from bough.model.rendering import row_files

_CHUNK = 4096  # rows taken from a table at a time
_MASK = (1 << 64) - 1


class ArrayFiles:
    """The outputs of one array, by hash."""

    def __init__(
        self, record: RecordId, label: str, template: CommandTemplate, rows: Sequence[Any], start: int
    ) -> None:
        self.record = record
        self.label = label
        self.template = template
        self.rows = rows
        self.start = start
        self.renamed: dict[str, str] = {}
        self.bits = max(1, (len(rows) - 1).bit_length())  # low bits: the element; high bits: the hash of its path
        self.entries: array[int] = array("Q")

    def entry(self, path: str, index: int) -> int:
        """The number that stands for a path and the element that writes it."""
        return (hash(path) & _MASK) >> self.bits << self.bits | index

    def seal(self, entries: list[int]) -> None:
        """Take all entries, and refuse two elements that write one path."""
        entries.sort()
        self.entries = array("Q", entries)
        del entries
        begin = 0  # of a run of equal hashes
        for at in range(1, len(self.entries) + 1):
            if at == len(self.entries) or self.entries[at] >> self.bits != self.entries[begin] >> self.bits:
                if at - begin > 1:
                    self._refuse_twins(self.entries[begin:at])
                begin = at

    def _refuse_twins(self, run: array[int]) -> None:
        mask = (1 << self.bits) - 1
        seen: dict[str, int] = {}
        for index in dict.fromkeys(entry & mask for entry in run):
            for path in row_files(self.template, self.rows[index])[1].values():
                real = self.renamed.get(path, path)
                if real in seen:
                    first, second = (f"{self.label}[{self.start + number}]" for number in (seen[real], index))
                    who = f"both {first} and {second}" if first != second else f"two slots of {first}"
                    raise Taken(f"{real} would be written by {who}: use more of the parameters in its name")
                seen[real] = index

    def find(self, path: str) -> int | None:
        """The element that writes a path."""
        wanted = self.entry(path, 0)
        at = bisect_left(self.entries, wanted)
        while at < len(self.entries) and self.entries[at] >> self.bits == wanted >> self.bits:
            index = self.entries[at] & ((1 << self.bits) - 1)
            writes = row_files(self.template, self.rows[index])[1].values()
            if any(self.renamed.get(written, written) == path for written in writes):
                return index
            at += 1
        return None


class Disk:
    """Which paths exist, asking once per folder when there are many."""

    def __init__(self, many: bool) -> None:
        self.many = many
        self.folders: dict[str, frozenset[str]] = {}

    def has(self, path: str) -> bool:
        """Whether there is something at a path."""
        if not self.many:
            return os.path.lexists(path)
        folder, _, name = path.rpartition("/")
        names = self.folders.get(folder)
        if names is None:
            if len(self.folders) > 1000:
                self.folders.clear()
            try:
                names = frozenset(os.listdir(folder or "/"))
            except OSError:
                names = frozenset()
            self.folders[folder] = names
        return name in names


def files_of(template: CommandTemplate, rows: Sequence[Any]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """What each row reads and writes."""
    for at in range(0, len(rows), _CHUNK):
        for row in rows[at : at + _CHUNK]:
            yield row_files(template, row)
