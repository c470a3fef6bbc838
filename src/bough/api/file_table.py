"""The table of declared files of a workflow: which task writes which file.

Reads and writes are declared in the order of submission. A reader waits for the writer; whoever reads or writes in a
folder waits for the task that writes the folder. A file that is neither there nor made by a task, two writers of one
path, a folder in which others write already, and a file that is there and not of this workflow are errors at once.

Outputs of arrays take 8 bytes each: a hash of the path and the number of the element in one sorted array; paths are
rendered again when hashes meet. Their digests are also kept in the store (`args/RECORD.writes`), because the journal
tells of an element's outputs only once its success is recorded: a run that is killed before leaves outputs that no
record tells of.

Rules: a refused declaration leaves no trace. What an array is to write is in the store before the server hears of the
array. Memory and questions to the disk grow with the number of elements and folders, not with the length of paths.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from bough import private
from bough.api.pickling import check_sendable
from bough.errors import Clash as Taken
from bough.errors import InvalidWorkload, StoreFailed
from bough.executor.host.disk_space_wait import SpaceWait, patiently
from bough.model.commands.command import CommandTemplate, OnClash, TemplateSlot
from bough.model.commands.rendering import row_files
from bough.model.files import check_url, check_written, is_pattern, is_url, matches, why_no_output
from bough.model.ids import RecordId
from bough.model.tasks import Dep, On
from bough.stores.places import FormerPlaces

SIZE = 8  # bytes of a digest
_SUFFIX = ".writes"
_BIG = 1 << 16  # digests of a file that is searched by itself; smaller ones are searched together
_SHOWN = 300  # letters of a path in a message
_FOLDERS = 100_000  # of which is kept who writes them
_CHUNK = 4096  # rows taken from a table at a time
_MASK = (1 << 64) - 1


class DeclaredFiles(NamedTuple):
    """What follows from a declaration."""

    after: tuple[Dep, ...] = ()  # writers of what it reads; of an array: those every element waits for
    element_after: tuple[tuple[int, tuple[Dep, ...]], ...] = ()
    renamed: dict[str, str] = {}  # wanted path -> the one that is used, of what it reads and writes  # noqa: RUF012
    external: tuple[str, ...] = ()  # files it reads that no task makes: their identities count for its memo key
    writes: bytes = b""  # of an array: digests of the paths it writes, stored before it is submitted


class ThereMaker(NamedTuple):
    """A task of the workflow that was there before this session joined it, and writes a file."""

    dep: Dep
    is_done: bool


class _Writer(NamedTuple):
    record: RecordId
    element: int
    label: str

    def dep(self) -> Dep:
        return Dep(On.TASK, self.record, self.element)


class FileTable:
    """All declared reads and writes of a workflow. Methods may be called from any thread.

    `outputs` holds the outputs of arrays of earlier runs, `earlier` gives the other paths that earlier runs of
    this workflow declared as outputs; it is asked once, and both only when an output's path already exists. `there`
    tells of a file which task of a workflow that was joined writes it.
    """

    def __init__(
        self,
        earlier: Callable[[], Iterable[str]] = tuple,
        outputs: Container[str] = (),
        there: Callable[[str], ThereMaker | None] | None = None,
    ) -> None:
        self._earlier = earlier
        self._outputs = outputs
        self._there = there
        self._ours: array[int] | None = None  # sorted hashes
        self._loose: dict[str, _Writer] = {}
        self._arrays: list[ArrayFiles] = []
        self._renamed: dict[str, str] = {}
        self._folders: dict[
            str, _Writer
        ] = {}  # in which outputs lie, and those above: who was the first to write there
        self._makers: dict[
            str, _Writer | None
        ] = {}  # by folder: who writes it, or one above it; kept while it is right
        self._patterns: list[tuple[str, _Writer]] = []  # of outputs whose names are not known yet
        self._lock = threading.RLock()
        self.has_temporary = False  # some task says that what it writes is

    # --- declaring ---

    def declare(
        self,
        record: RecordId,
        label: str,
        reads: Iterable[str] = (),
        writes: Mapping[str, str] | None = None,
        *,
        clash: OnClash = OnClash.ERROR,
        patterns: Iterable[str] = (),
    ) -> DeclaredFiles:
        """Declare the files of one loose task, as absolute paths; `label` names it in errors.

        `patterns`: of files that it makes; who reads one that matches waits for it.
        """
        reads, writes = list(reads), writes or {}
        disk = Disk(many=False)
        with self._lock:
            deps, external, renamed = self._look_up(reads, label, disk)
            taken: dict[str, str] = {}  # real path -> wanted path
            for path in writes.values():
                if (why := why_no_output(path)) and not is_url(path):
                    raise _no_output(path, label, why)
                if path in taken.values():
                    raise Taken(f"{path} would be written twice by {label}: give its outputs different names")
                real = self._place(path, label, clash, disk, taken)
                if real != path:
                    _check_not_read(path, reads, label)
                taken[real] = path
                maker = self._maker_of_folder(real)
                if maker is not None:
                    deps[maker.dep()] = None
            folders = {folder: None for path in (*taken, *patterns) if (folder := _folder_of(path))}
            for path in taken:
                self._refuse_around(path, label, folders)
            renames = {wanted: real for real, wanted in taken.items() if real != wanted}
            own = _Writer(record, 0, label)
            self._loose.update((real, own) for real in taken)
            if any(path in self._makers for path in taken):
                self._makers.clear()
            self._enter_folders(folders, own)
            self._patterns += [(pattern, _Writer(record, 0, label)) for pattern in patterns]
            self._renamed.update(renames)
        return DeclaredFiles(self._gathered(deps), (), renamed | renames, tuple(external))

    def declare_array(
        self,
        record: RecordId,
        label: str,
        template: CommandTemplate,
        rows: Sequence[Any],
        *,
        clash: OnClash = OnClash.ERROR,
        start: int = 0,
    ) -> DeclaredFiles:
        """Declare the files of an array's elements from `start` up: those its template makes of the rows."""
        if not declares_files(template):
            return DeclaredFiles()
        with self._lock:
            made = ArrayFiles(record, label, template, rows, start)
            reading, digests, folders = self._enter_writes(made, clash)
            makers = [maker.dep() for folder in folders if (maker := self._maker_of(folder)) is not None]
            renamed = dict(made.renamed)
            found = self._enter_reads(made, renamed) if reading else DeclaredFiles()
            if makers:
                found = found._replace(after=tuple(dict.fromkeys((*found.after, *makers))))
            if made.entries:
                self._arrays.append(made)
                self._renamed.update(made.renamed)
                self._makers.clear()
                self._enter_folders(folders, _Writer(record, start, label))
        return found._replace(renamed=renamed, writes=digests)

    def renumber(self, record: RecordId, there: RecordId, paths: Iterable[str] = ()) -> None:
        """What a record declared is what another one, which is there, makes; `paths`: a loose task's outputs."""
        with self._lock:
            self._makers.clear()
            for path in paths:
                if path in self._loose and self._loose[path].record == record:
                    self._loose[path] = self._loose[path]._replace(record=there)
            for made in self._arrays:
                if made.record == record:
                    made.record = there
            self._patterns = [
                (pattern, writer._replace(record=there) if writer.record == record else writer)
                for pattern, writer in self._patterns
            ]

    def withdraw(self, record: RecordId) -> None:
        """Forget what a record declared: its submission was refused."""
        with self._lock:
            gone = {path for path, writer in self._loose.items() if writer.record == record}
            for made in self._arrays:
                if made.record == record:
                    gone.update(made.renamed.values())
            self._loose = {path: writer for path, writer in self._loose.items() if path not in gone}
            self._arrays = [made for made in self._arrays if made.record != record]
            self._patterns = [one for one in self._patterns if one[1].record != record]
            self._renamed = {wanted: real for wanted, real in self._renamed.items() if real not in gone}
            if any(one.record == record for one in self._folders.values()):
                self._find_folders()
            self._makers.clear()

    # --- asking ---

    def writer(self, path: str) -> Dep | None:
        """The task that makes a file, by the name it has or was meant to have."""
        with self._lock:
            found = self._writer(self._renamed.get(path, path))
        return found.dep() if found else None

    def real(self, path: str) -> str:
        """The path a file really has: another one if it was renamed."""
        return self._renamed.get(path, path)

    # --- inside ---

    def _writer(self, path: str) -> _Writer | None:
        found = self._loose.get(path)
        if found is not None:
            return found
        for made in self._arrays:
            index = made.find(path)
            if index is not None:
                number = made.start + index
                return _Writer(made.record, number, f"{made.label}[{number}]")
        return next((writer for pattern, writer in self._patterns if matches(path, pattern)), None)

    def _look_up(
        self, reads: Iterable[str], label: str, disk: Disk
    ) -> tuple[dict[Dep, None], dict[str, None], dict[str, str]]:
        """Writers of what is read, the files that no task writes, and what was renamed."""
        deps: dict[Dep, None] = {}
        external: dict[str, None] = {}
        renamed: dict[str, str] = {}
        for wanted in reads:
            path = self._renamed.get(wanted, wanted)
            if path != wanted:
                renamed[wanted] = path
            writer = self._writer(path) or self._maker_of_folder(path)
            there = self._there(path) if writer is None and self._there is not None else None
            if writer is not None:
                deps[writer.dep()] = None
            elif there is not None and not (there.is_done and disk.can_read(path)):
                deps[there.dep] = None
            elif (is_url(path) and check_url(path)) or disk.can_read(path):
                external[path] = None
            else:
                raise _missing(path, label)
        return deps, external, renamed

    def _place(self, path: str, label: str, clash: OnClash, disk: Disk, taken: Mapping[str, str]) -> str:
        """The path an output gets: the wanted one, or with `rename` a free one."""
        if is_url(path):
            check_written(check_url(path))
        writer = self._writer(self._renamed.get(path, path))
        if writer is not None:
            raise Taken(f"{path} would be written by both {writer.label} and {label}: give one of them another name")
        if clash is OnClash.OVERWRITE or not disk.has(path) or self._is_ours(path):
            return path
        if clash is OnClash.ERROR:
            raise Taken(
                f"{path}, which {label} would write, is there already and not of this workflow:"
                ' move it, or use clash="rename" or "overwrite"'
            )
        for other in _other_names(path):
            free = other not in taken and self._writer(other) is None
            if free and (not disk.has(other) or self._is_ours(other)):
                return other
        raise AssertionError("names never run out")

    def _is_ours(self, path: str) -> bool:
        if path in self._outputs:
            return True
        if self._ours is None:
            self._ours = array("q", sorted(map(hash, self._earlier())))
        at = bisect_left(self._ours, hash(path))
        return at < len(self._ours) and self._ours[at] == hash(path)

    # --- folders ---

    def _maker_of_folder(self, path: str) -> _Writer | None:
        """The task that writes the folder in which a path lies, or one above it."""
        return None if is_url(path) else self._maker_of(path.rpartition("/")[0])

    def _maker_of(self, folder: str) -> _Writer | None:
        walked: list[str] = []
        found: _Writer | None = None
        while folder and found is None:
            if folder in self._makers:
                found = self._makers[folder]
                break
            walked.append(folder)
            found = self._writer(folder)
            folder = folder.rpartition("/")[0]
        if len(self._makers) > _FOLDERS:
            self._makers.clear()
        self._makers.update(dict.fromkeys(walked, found))
        return found

    def _enter_folders(self, folders: Iterable[str], writer: _Writer) -> None:
        """Note in which folders a task writes."""
        for folder in folders:
            above = folder
            while above and above not in self._folders:
                self._folders[above] = writer
                above = above.rpartition("/")[0]

    def _find_folders(self) -> None:
        """Note anew in which folders others write: who was the first in some of them is not there any more."""
        self._folders.clear()
        for path, writer in (*self._loose.items(), *self._patterns):
            self._enter_folders([_folder_of(path)], writer)
        for made in self._arrays:
            writer = _Writer(made.record, made.start, made.label)
            for _, writes in files_of(made.template, made.rows):
                self._enter_folders((_folder_of(made.renamed.get(path, path)) for path in writes.values()), writer)

    def _refuse_around(self, path: str, label: str, folders: Container[str] = ()) -> None:
        """Refuse an output in which others lie: a folder is put in its place as a whole, and they would be lost."""
        other = self._folders.get(path)
        if other is not None or path in folders:
            who = "itself" if other is None else other.label
            raise Taken(f"{path} would be written by {label}, and files in it by {who}: give one of them another name")

    def _enter_writes(self, made: ArrayFiles, clash: OnClash) -> tuple[bool, bytes, dict[str, None]]:
        """Check and gather the outputs of an array: whether it also reads files, their digests, and their folders."""
        entries: list[int] = []
        digests = bytearray()
        disk = Disk(many=len(made.rows) > 32)
        chosen: dict[str, str] = {}
        alone = not self._arrays and not self._loose
        reading = False
        folders: dict[str, None] = {}
        for index, (reads, writes) in enumerate(files_of(made.template, made.rows)):
            reading = reading or bool(reads)
            for path in writes.values():
                check_sendable(f"an output of {made.label}[{made.start + index}]", path)
                if (why := why_no_output(path)) and not is_url(path):
                    raise _no_output(path, f"{made.label}[{made.start + index}]", why)
                real = path
                if not alone or is_url(path) or (clash is not OnClash.OVERWRITE and disk.has(path)):
                    real = self._place(path, f"{made.label}[{made.start + index}]", clash, disk, chosen)
                if real is not path:
                    if path in made.renamed:
                        raise Taken(f"{path} would be written by two elements of {made.label}: name them differently")
                    _check_not_read(path, reads, f"{made.label}[{made.start + index}]")
                    made.renamed[path] = real
                    chosen[real] = path
                if self._folders and real in self._folders:
                    self._refuse_around(real, f"{made.label}[{made.start + index}]")
                folders[_folder_of(real)] = None
                entries.append(made.entry(real, index))
                digests += path_digest(real)
        made.seal(entries)
        folders.pop("", None)
        for folder in folders:
            index_around = made.find(folder)
            if index_around is not None:
                self._refuse_around(folder, f"{made.label}[{made.start + index_around}]", folders)
        return reading, bytes(digests), folders

    def _enter_reads(self, made: ArrayFiles, renamed: dict[str, str]) -> DeclaredFiles:
        """Find the writers of what each element reads, among earlier tasks and the other elements."""
        disk = Disk(many=len(made.rows) > 32)
        known: dict[str, Dep | None] = {}  # the same files are read again and again
        external: dict[str, None] = {}
        elements: list[tuple[int, tuple[Dep, ...]]] = []
        counts: dict[Dep, int] = {}
        for index, (reads, _) in enumerate(files_of(made.template, made.rows)):
            deps: dict[Dep, None] = {}
            for wanted in reads:
                sibling = made.find(made.renamed.get(wanted, wanted)) if made.entries else None
                if sibling is not None and sibling != index:
                    deps[Dep(On.TASK, made.record, made.start + sibling)] = None
                    continue
                if wanted not in known:
                    if len(known) > 100_000:
                        known.clear()
                    label = f"{made.label}[{made.start + index}]"
                    found, outside, moved = self._look_up([wanted], label, disk)
                    known[wanted] = next(iter(found), None)
                    external.update(outside)
                    renamed.update(moved)
                dep = known[wanted]
                if dep is not None:
                    deps[dep] = None
            if deps:
                elements.append((made.start + index, tuple(deps)))
                for dep in deps:
                    counts[dep] = counts.get(dep, 0) + 1
        common = {dep for dep, count in counts.items() if count == len(made.rows)}
        if common:
            rest = ((index, tuple(dep for dep in deps if dep not in common)) for index, deps in elements)
            elements = [(index, deps) for index, deps in rest if deps]
        return DeclaredFiles(self._gathered(dict.fromkeys(common)), tuple(elements), {}, tuple(external))

    def _gathered(self, deps: dict[Dep, None]) -> tuple[Dep, ...]:
        """Every element of an array as one dependency on the array."""
        for made in self._arrays if len(deps) > 16 else ():
            of_array = [dep for dep in deps if dep.id == made.record]
            if made.start == 0 and len(of_array) == len(made.rows):
                for dep in of_array:
                    del deps[dep]
                deps[Dep(On.ARRAY, made.record)] = None
        return tuple(sorted(deps, key=lambda dep: (dep.id, dep.index)))


def _check_not_read(path: str, reads: Collection[str], label: str) -> None:
    """An output is renamed: its old name stands for the new file from then on, so its own task cannot read the old."""
    if path in reads:
        raise Taken(f"{path} is read by {label}, whose output of that name would be renamed: give it another name")


def _no_output(path: str, label: str, why: str) -> InvalidWorkload:
    return InvalidWorkload(f"{shortened(path)}, which {label} would write, {why}: give it another name")


def shortened(path: str) -> str:
    """A path as messages show it."""
    return path if len(path) <= _SHOWN else f"{path[:_SHOWN]}..."


def _folder_of(path: str) -> str:
    """The folder in which an output lies; empty if it is not known: that of a URL, or a pattern."""
    folder = path.rpartition("/")[0]
    return "" if is_url(path) or is_pattern(folder) else folder


def _missing(path: str, label: str) -> InvalidWorkload:
    return InvalidWorkload(
        f"{shortened(path)}, which {label} reads, does not exist and no task submitted before makes it"
    )


def _other_names(path: str) -> Iterator[str]:
    """name-1.suffix, name-2.suffix, ... in the same folder."""
    folder, slash, name = path.rpartition("/")
    stem, suffix = os.path.splitext(name)
    number = 0
    while True:
        number += 1
        yield f"{folder}{slash}{stem}-{number}{suffix}"


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
                    writers = f"both {first} and {second}" if first != second else f"two slots of {first}"
                    raise Taken(f"{real} would be written by {writers}: use more of the parameters in its name")
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
        """Whether there is something at a path; of a URL that is not asked."""
        if is_url(path):
            return False
        if not self.many:
            return os.path.lexists(path)
        return self._is_listed(path)

    def can_read(self, path: str) -> bool:
        """Whether a path leads to something: a link whose target is not there does not."""
        if not self.many:
            return not is_url(path) and os.path.exists(path)
        return self.has(path)

    def _is_listed(self, path: str) -> bool:
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


def declares_files(template: CommandTemplate) -> bool:
    """Whether the rows of a template read or write declared files."""
    if template.inputs or template.outputs or template.transfers:
        return True
    return any(isinstance(part, TemplateSlot) and part.mode in {"r", "w"} for part in template.parts)


def files_of(template: CommandTemplate, rows: Sequence[Any]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """What each row reads and writes."""
    for row in chunked(rows):
        yield row_files(template, row)


def chunked(rows: Sequence[Any]) -> Iterator[Any]:
    """The rows of a table, of which not many are taken at a time."""
    for at in range(0, len(rows), _CHUNK):
        yield from rows[at : at + _CHUNK]


def path_digest(path: str) -> bytes:
    """What stands for an absolute path, the same in every process."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=SIZE).digest()


def store_output_digests(store: str, record: int, digests: bytes, *, more: bool = False) -> None:
    """Put what an array is to write on file; `more` adds to what is there of it."""
    path = os.path.join(store, "args", f"{record}{_SUFFIX}")

    def write() -> None:
        if more and os.path.exists(path):
            with open(path, "r+b") as file:
                file.seek(file.seek(0, os.SEEK_END) // SIZE * SIZE)  # over half a digest, if a write was cut short
                file.write(digests)
            return
        with open(f"{path}.new", "wb", opener=private.opener) as file:
            file.write(digests)
        os.replace(f"{path}.new", path)

    try:
        patiently(path, write, SpaceWait())
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}; make room, or give another store"
        raise StoreFailed(why) from error


class EarlierOutputs:
    """The outputs of records below a number: those of earlier runs. Their digests are read when first asked for."""

    def __init__(self, store: str, below: int) -> None:
        self._store = store
        self._below = below
        self._places = FormerPlaces(store)
        self._sorted: list[array[int]] | None = None

    def __contains__(self, path: object) -> bool:
        """Whether an earlier array was to write a path."""
        if not isinstance(path, str):
            return False
        if self._sorted is None:
            self._sorted = self._load()
        for name in self._places.formerly(path):
            wanted = int.from_bytes(path_digest(name), sys.byteorder)
            for digests in self._sorted:
                at = bisect_left(digests, wanted)
                if at < len(digests) and digests[at] == wanted:
                    return True
        return False

    def _load(self) -> list[array[int]]:
        big: list[array[int]] = []
        small: set[int] = set()
        seen: set[bytes] = set()  # a workflow that is run again has the same outputs
        for path in self._paths():
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except OSError:
                continue
            content = blake2b(data, digest_size=16).digest()
            if content in seen:
                continue
            seen.add(content)
            digests = array("Q", data[: len(data) // SIZE * SIZE])
            if len(digests) >= _BIG:
                big.append(array("Q", sorted(digests)))
            else:
                small.update(digests)
        return [*big, array("Q", sorted(small))]

    def _paths(self) -> Iterator[str]:
        try:
            names = os.listdir(os.path.join(self._store, "args"))
        except OSError:
            return
        for name in names:
            record, suffix = os.path.splitext(name)
            if suffix == _SUFFIX and record.isdigit() and int(record) < self._below:
                yield os.path.join(self._store, "args", name)
