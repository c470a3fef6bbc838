"""The declared files of a workflow: the core numbers them, and keeps their paths.

A client declares the files of a task by their paths. The core gives each path of a workflow a number when it is named
first, and journals the two with the tasks that name it (`Submitted.files`); from then on a task's `reads` and `writes`
are numbers. Rule: numbers come from 1 and are never given twice; deciding on them changes nothing, applying the fact
does. A path in a journalled spec (of an earlier version, or of a changed description) is numbered when it is applied,
so that a replay gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from bough.model.arrays.element_reads import ElementReads
from bough.model.files import FileSpec
from bough.model.ids import FileId, GroupId
from bough.model.tasks import ArraySpec, FileRef, TaskSpec

MOST_FED: Final = 1 << 20  # files of a workflow, from which on those of what is fed are not numbered


class DeclaredFiles:
    """The files of one workflow."""

    __slots__ = ("_by_path", "_files", "last")

    def __init__(self) -> None:
        self._files: dict[int, FileSpec] = {}
        self._by_path: dict[str, FileSpec] = {}
        self.last = 0  # the highest number

    def all(self) -> tuple[FileSpec, ...]:
        """All files, in the order in which they were declared."""
        return tuple(self._files.values())

    def find(self, path: str) -> FileSpec | None:
        """A file by its path."""
        return self._by_path.get(path)

    def paths(self, refs: Iterable[FileRef]) -> list[str]:
        """The paths of files that a task names; one that an unreadable fact declared is left out."""
        files = self._files
        return [
            ref if isinstance(ref, str) else files[ref].path for ref in refs if isinstance(ref, str) or ref in files
        ]

    def put(self, file: FileSpec) -> None:
        """Add a file, or put it in the place of what was known of it."""
        self._files[file.id] = self._by_path[file.path] = file
        self.last = max(self.last, file.id)

    def declare_fed(self, reads: ElementReads, group: GroupId) -> None:
        """Give numbers to what fed elements read; a feed that goes on and on names more files than are numbered."""
        for path in reads.files:
            if isinstance(path, str) and path not in self._by_path and self.last < MOST_FED:
                self.put(FileSpec(FileId(self.last + 1), path, group))

    def numbered_array(self, spec: ArraySpec, group: GroupId) -> ArraySpec:
        """As `numbered`, for an array."""
        if spec.reads is None or all(isinstance(ref, int) for ref in spec.reads.files):
            return spec
        numbering = Numbering(self, group)
        spec = numbering.number_array(spec)
        for file in numbering.declared.values():
            self.put(file)
        return spec

    def numbered(self, spec: TaskSpec, group: GroupId) -> TaskSpec:
        """A task that is applied, with numbers for paths; a path that has none gets the next."""
        if all(isinstance(ref, int) for ref in (*spec.reads, *spec.writes)):
            return spec
        numbering = Numbering(self, group)
        spec = numbering.number(spec)
        for file in numbering.declared.values():
            self.put(file)
        return spec


class Numbering:
    """The numbers that the tasks of one submission to one workflow will have."""

    def __init__(self, files: DeclaredFiles, group: GroupId) -> None:
        self._files = files
        self._group = group
        self._last = files.last
        self.declared: dict[str, FileSpec] = {}  # new ones, and those that a task writes now for the first time

    def number(self, spec: TaskSpec) -> TaskSpec:
        """A task with numbers for paths."""
        reads = tuple([self._id(ref, written=False) for ref in spec.reads])
        return replace(spec, reads=reads, writes=tuple([self._id(ref, written=True) for ref in spec.writes]))

    def number_array(self, spec: ArraySpec) -> ArraySpec:
        """An array with numbers for the paths that its elements read."""
        if spec.reads is None:
            return spec
        files = tuple([self._id(ref, written=False) for ref in spec.reads.files])
        return replace(spec, reads=replace(spec.reads, files=files))

    def _id(self, ref: FileRef, *, written: bool) -> FileId:
        if not isinstance(ref, str):
            return ref
        known = self.declared.get(ref) or self._files.find(ref)
        if known is None:
            self._last += 1
            known = self.declared[ref] = FileSpec(FileId(self._last), ref, self._group, written)
        elif written and not known.written:
            self.declared[ref] = replace(known, written=True)
        return known.id
