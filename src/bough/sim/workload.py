"""Workloads: tasks with their times, needs, dependencies and files, as a simulation submits them to the core.

They come from recorded runs, from workflow files with estimates, or from generators. Tasks read and write files by
their places in the list of files; a task that reads what another one writes waits for it, as in a live submission.
Tasks may arrive while others run: each is submitted at its own time, and its files are known from then on.
Rules: tasks stand after those they wait for and arrive no earlier, and are named by their place in the list; a file has
at most one writer, and without one it is at home when the run begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import groupby

import msgspec

from bough.errors import UserError
from bough.model.arrays.element_reads import pack_reads
from bough.model.events.facts import RunOpened, Submitted
from bough.model.events.news import MOST_CONTENTS, FilesIdentified, NamedContent
from bough.model.ids import BlobId, RecordId, Seconds
from bough.model.sites.resources import Needs
from bough.model.tasks import NO_LIMITS, ArraySpec, Dep, Item, Kind, Limits, On, TaskSpec

RUN = 1  # the workflow that a simulation submits
_MOST_BYTES = 1 << 60


class SimulatedFile(msgspec.Struct, frozen=True, gc=False):
    """One file; files of equal names, also of several workloads, have the same content."""

    name: str
    size: int  # bytes

    @property
    def path(self) -> str:
        """Its path at the submitter, as the core knows it."""
        return self.name if self.name.startswith("/") else f"/{self.name}"

    @property
    def digest(self) -> bytes:
        """What its content is called."""
        return blake2b(self.name.encode(), digest_size=32).digest()


class SimulatedTask(msgspec.Struct, frozen=True, gc=False):
    """One task. `seconds` are those of a host of speed 1."""

    name: str
    seconds: Seconds
    after: tuple[int, ...] = ()
    cores: float = 1.0
    memory: int = 0
    priority: int = 0
    template: str = ""  # tasks of one template are expected to run equally long
    reads: tuple[int, ...] = ()  # places in the list of files
    writes: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()  # where it may run; empty: anywhere
    requires: str = ""  # of the attributes of its host, see `model.sites.requirements`; empty: nothing
    arrival: Seconds = 0.0  # when it is submitted, counted from the beginning
    gpus: float = 0.0
    named: tuple[tuple[str, float], ...] = ()  # amounts of other resources, sorted by name
    queue: str = ""  # the named queue that it goes through, which the platform defines; empty: the default one

    @property
    def needs(self) -> Needs:
        """What it occupies while it runs, where it may run, and through which queue it goes."""
        return Needs(
            self.cores, self.memory, self.gpus, self.named, sites=self.sites, requires=self.requires, queue=self.queue
        )


class Submission(msgspec.Struct, frozen=True):
    """What is submitted of a workload: its items, and whose they are.

    The elements of an array are tasks that stand together in the workload.
    """

    items: list[Item]
    first: dict[int, int]  # by record: the place of its first task in the workload

    def task_of(self, record: int, element: int) -> int:
        """The place in the workload of an element of a record."""
        return self.first[record] + element


class Workload(msgspec.Struct, frozen=True):
    """Tasks in an order in which they could run, and the files that they read and write."""

    name: str
    tasks: Sequence[SimulatedTask]
    files: Sequence[SimulatedFile] = ()

    def __post_init__(self) -> None:
        for place, task in enumerate(self.tasks):
            if any(not 0 <= one < place for one in task.after):
                raise UserError(f"workload {self.name}: task {task.name} does not stand after all that it waits for")
            if not 0 <= task.seconds <= 1e15:
                raise UserError(f"workload {self.name}: task {task.name} takes {task.seconds:g} s")
            if not 0 <= task.arrival <= 1e15:
                raise UserError(f"workload {self.name}: task {task.name} arrives at {task.arrival:g} s: say 0 to 1e15")
        if self.files or any(task.reads or task.writes for task in self.tasks):
            self._check_files()
        if self.arrives:
            for task, after in zip(self.tasks, self.dependencies(), strict=True):
                if any(self.tasks[one].arrival > task.arrival for one in after):
                    raise UserError(f"workload {self.name}: task {task.name} arrives before one that it waits for")

    def _check_files(self) -> None:
        names: set[str] = set()
        for file in self.files:
            if not 0 <= file.size <= _MOST_BYTES:
                raise UserError(f"workload {self.name}: file {file.name} has {file.size} bytes")
            if not file.name or "\0" in file.name or file.path in names:
                raise UserError(f"workload {self.name}: {file.name!r} is no name for a file, or that of two")
            names.add(file.path)
        written: set[int] = set()
        later = {one for task in self.tasks for one in task.writes}
        for task in self.tasks:
            if any(not 0 <= one < len(self.files) for one in (*task.reads, *task.writes)):
                raise UserError(f"workload {self.name}: task {task.name} names a file that is not listed")
            if any(one in later and one not in written for one in task.reads):
                raise UserError(f"workload {self.name}: task {task.name} reads what is written after it, or by itself")
            if len(set(task.writes)) < len(task.writes) or not written.isdisjoint(task.writes):
                raise UserError(f"workload {self.name}: task {task.name} writes what is written already")
            written.update(task.writes)

    @property
    def arrives(self) -> bool:
        """Whether some tasks arrive later than the workload begins."""
        return any(task.arrival for task in self.tasks)

    @property
    def core_seconds(self) -> float:
        """All work, at speed 1."""
        return sum(task.seconds * task.cores for task in self.tasks)

    @property
    def critical_path(self) -> Seconds:
        """When the longest chain of tasks that wait for each other ends, at speed 1."""
        ends: list[float] = []
        for task, after in zip(self.tasks, self.dependencies(), strict=True):
            ends.append(task.seconds + max((task.arrival, *(ends[one] for one in after))))
        return max(ends, default=0.0)

    def dependencies(self) -> list[tuple[int, ...]]:
        """By task: those that it waits for, also because it reads what they write."""
        writers = self.writers()
        if not writers:
            return [task.after for task in self.tasks]
        return [
            tuple(dict.fromkeys((*task.after, *(writers[one] for one in task.reads if one in writers))))
            for task in self.tasks
        ]

    def writers(self) -> dict[int, int]:
        """By file: the task that writes it."""
        return {one: place for place, task in enumerate(self.tasks) for one in task.writes}

    def items(self) -> list[Item]:
        """What is submitted: a record for each task, numbered from 1."""
        return self.submission().items

    @property
    def shared_share(self) -> float:
        """The part of all bytes of files that two or more tasks read (Storage Affinity, 1.4)."""
        readers = [0] * len(self.files)
        for task in self.tasks:
            for file in dict.fromkeys(task.reads):
                readers[file] += 1
        total = sum(file.size for file in self.files)
        shared = sum(file.size for file, count in zip(self.files, readers, strict=True) if count > 1)
        return shared / total if total else 0.0

    def submission(
        self, first: int = 1, *, arrays: bool = False, estimates: Sequence[Seconds] | None = None
    ) -> Submission:
        """What is submitted, with records from a number up.

        `estimates`: how long each task is expected to run at speed 1. Then each is a template of its own, so that the
        estimate stands until the task itself has run. Arrays have none.
        `arrays`: tasks that stand together, of one template and with the same needs, priority, dependencies and
        arrival, are elements of one array.
        """
        after = self.dependencies()
        if arrays:
            return self._as_arrays(first, after)
        needs: dict[tuple[object, ...], Needs] = {}  # one object for tasks that need the same
        paths = [file.path for file in self.files]
        made: list[Item] = []
        for place, task in enumerate(self.tasks):
            key = (task.cores, task.memory, task.sites, task.requires, task.gpus, task.named, task.queue)
            wanted = needs.get(key) or needs.setdefault(key, task.needs)
            template, limits = task.template[:200], NO_LIMITS
            if estimates is not None:
                template, limits = f"task {place}", Limits(walltime=estimates[place])
            made.append(
                TaskSpec(
                    RecordId(first + place), Kind.COMMAND, BlobId(b""), b"", name=task.name[:200],
                    template=template, needs=wanted, priority=task.priority, limits=limits,
                    after=tuple([Dep(On.TASK, first + one) for one in after[place]]),
                    reads=tuple([paths[one] for one in task.reads]), writes=tuple([paths[one] for one in task.writes]),
                    atomic_outputs=bool(task.writes),
                )
            )  # fmt: skip
        return Submission(made, {first + place: place for place in range(len(made))})

    def _as_arrays(self, first: int, after: list[tuple[int, ...]]) -> Submission:
        paths = [file.path for file in self.files]
        places: list[tuple[int, int]] = []  # by task: its record, and which element
        made: list[Item] = []
        starts: dict[int, int] = {}

        def alike(place: int) -> tuple[object, ...]:
            task = self.tasks[place]
            return (task.template, task.needs, task.priority, task.arrival, after[place])

        for _, run in groupby(range(len(self.tasks)), alike):
            some = list(run)
            record, one = first + len(made), self.tasks[some[0]]
            starts[record] = some[0]
            places += [(record, element) for element in range(len(some))]
            made.append(
                ArraySpec(
                    RecordId(record), Kind.COMMAND, BlobId(b""), len(some), BlobId(b"t" * 16), name=one.name[:200],
                    template=one.template[:200], needs=one.needs,
                    priority=one.priority, after=tuple([Dep(On.TASK, *places[before]) for before in after[some[0]]]),
                    reads=pack_reads([[paths[file] for file in self.tasks[place].reads] for place in some]),
                    atomic_outputs=all(self.tasks[place].writes for place in some),
                )
            )  # fmt: skip
        return Submission(made, starts)

    def news(self, submission: Submission) -> Iterator[tuple[Seconds, RunOpened | Submitted | FilesIdentified]]:
        """When the core is told what, as by a live client: the submission, and what the files at home hold.

        Tasks that arrive together are one submission, followed by what they are the first to read.
        """
        if self.files:
            yield 0.0, RunOpened(RUN, self.name[:200], "sim", 1)
        by_time: dict[Seconds, list[Item]] = {}
        for item in submission.items:
            assert isinstance(item, TaskSpec | ArraySpec)
            by_time.setdefault(self.tasks[submission.first[item.id]].arrival, []).append(item)
        files = self._first_reads()
        for when in sorted({0.0, *by_time} if 0.0 in files else by_time):
            if some := by_time.get(when):
                yield when, Submitted(some)
            held = [NamedContent(f.path, f.digest, f.size) for f in map(self.files.__getitem__, files.get(when, ()))]
            for start in range(0, len(held), MOST_CONTENTS):
                yield when, FilesIdentified(RUN, (), tuple(held[start : start + MOST_CONTENTS]))

    def _first_reads(self) -> dict[Seconds, list[int]]:
        """By arrival: the files at home that are first read by what arrives then; what nobody reads, at once."""
        first: dict[int, Seconds] = {}
        if self.arrives:
            for task in self.tasks:
                for file in task.reads:
                    first[file] = min(first.get(file, task.arrival), task.arrival)
        written = self.writers()
        found: dict[Seconds, list[int]] = {}
        for file in range(len(self.files)):
            if file not in written:
                found.setdefault(first.get(file, 0.0), []).append(file)
        return found
