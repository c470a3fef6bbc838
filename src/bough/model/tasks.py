"""Specs of what is submitted: tasks, arrays, groups, and how they depend on each other.

Bodies, payloads and pages are opaque bytes to every process but the client that makes them and the executor that runs
them. Rule: a spec never changes once it is submitted, unless the workflow's description does.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

import msgspec

from bough.model.arrays.array_indices import index_label
from bough.model.arrays.element_reads import ElementReads
from bough.model.bounds import Count, Duration, Factor, FilePath, Index, Label, Name, Whole
from bough.model.checkpoints import CheckpointPlan
from bough.model.ids import ROOT, BlobId, FileId, GroupId, MemoKey, RecordId
from bough.model.sites.resources import ONE_CORE, Needs


class Kind(enum.IntEnum):
    """How an executor runs a body."""

    FUNCTION = 0
    COMMAND = 1


class On(enum.IntEnum):
    """What a dependency points at."""

    TASK = 0  # one task: a loose one, or one element of an array
    ARRAY = 1  # every element of an array
    GROUP = 2  # everything in a group, or a task in it that releases it
    END = 3  # everything in a group, whatever was released


FileRef = FileId | FilePath  # a client declares absolute paths, the core numbers them: see `FileSpec`


class Dep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One dependency: `id` is a record or a group, `index` the element of an array."""

    on: On
    id: Count
    index: Count = 0

    @property
    def is_group(self) -> bool:
        """Whether it points at a group."""
        return self.on >= On.GROUP


Keep = bool | Literal["later"]  # whether outputs are kept; "later": they are, and are written back in bulk
LATER: Final = "later"


class Limits(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What ends a task, and how often it is tried. Shared by tasks with equal settings."""

    timeout: Duration = 0  # 0: none
    memory: Count = 0  # bytes of the whole process group, 0: none
    retries: Count = 0  # failures of its own that are forgiven
    backoff: Duration = 0  # wait before the first retry, doubled for each further one
    walltime: Duration = 0  # the user's estimate of the run time, 0: unknown
    losses: Count = 5  # executors or workers that may die under it before it counts as poisonous
    resend_after: Duration = 0  # sent again when its executor said nothing of it for so long, 0: never
    memory_growth: Factor = 0  # times so much memory, needed and allowed, after an attempt that this limit ended
    timeout_growth: Factor = 0  # times so much time after an attempt that the timeout ended
    replicable: bool = True  # False: its user says that it is not idempotent; earlier versions knew no more
    # False: what it writes is temporary, see `core.data.file_lives`; later: see `core.records.indexes.unsaved_outputs`
    keep: Keep = True
    repeatable: bool = False  # its user says that it is idempotent

    @property
    def idempotent(self) -> bool | None:
        """Whether it may run twice at the same time, as its user says; None: nothing was said."""
        return False if not self.replicable else self.repeatable or None


NO_LIMITS = Limits()


def idempotence(said: bool | None) -> dict[str, bool]:
    """The fields of `Limits` that say whether a task is idempotent."""
    return {"replicable": said is not False, "repeatable": said is True}


class TaskExtras(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What few tasks say of themselves: those of structured workflows, and those that are watched."""

    release: bool = False  # its success releases those that wait for its group
    final: bool = False  # it runs whether or not its predecessors succeeded
    same_host_as: Count = 0  # a record it waits for: it runs on the host where that succeeded, while that is there
    host: Label = ""  # it runs on this host, while that is there
    attributes: tuple[tuple[Name, Label], ...] = ()  # the user's own
    watch: BlobId = BlobId(b"")  # what watches it while it runs, see `model.monitoring.monitors`; empty: nothing
    checkpoint: CheckpointPlan | None = None  # how it saves its state before it is ended for a reason not its own


NO_EXTRAS = TaskExtras()
NODE_ATTRIBUTE = "dag_node"  # of a group that stands for one node of a DAG


class TaskSpec(msgspec.Struct, frozen=True, array_like=True, tag="t", gc=False):
    """One loose task."""

    id: RecordId
    kind: Kind
    body: BlobId  # the pickled function; empty for a command, whose payload says all
    payload: bytes  # pickled (args, kwargs), or an encoded `commands.CommandCall`
    group: GroupId = ROOT
    name: Label = ""
    template: Label = ""  # tasks with equal templates are expected to run equally long
    needs: Needs = ONE_CORE
    limits: Limits = NO_LIMITS
    priority: Whole = 0  # higher first
    after: tuple[Dep, ...] = ()
    inputs: tuple[Dep, ...] = ()  # the values the function wants, in the order it wants them; subset of `after`
    key: MemoKey = MemoKey(b"")  # what it computes, without its inputs; empty: never reused
    payload_path: Label = ""  # where a payload too big to send lies; then `payload` is empty
    writes: tuple[FileRef, ...] = ()  # declared outputs
    extras: TaskExtras = NO_EXTRAS
    reads: tuple[FileRef, ...] = ()  # declared inputs
    always: bool = False  # it may reuse a success of any earlier run, also of one that ended well
    fresh: Count = 0  # so many of the last of `reads` are sent for each attempt anew: where they are does not count
    atomic_outputs: bool = False  # see `model.commands.command.has_atomic_outputs`


class Page(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Arguments of the elements [start, stop) of an array: a pickled sequence."""

    start: Index
    stop: Index
    data: bytes
    files: bytes = b""  # of what is fed: what its elements read and write, see `model.files.Manifest`
    reads: ElementReads | None = None  # of what is fed: which of them each element reads, by path; for the core alone


class Reuse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Elements [start, stop) have the arguments that those from `source_start` up of `source` had."""

    start: Index
    stop: Index
    source: RecordId
    source_start: Index


class ArraySpec(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """Many tasks from one body and one table of parameters.

    The table is either `table` (a blob: a pickled space that can be sliced, for parameters that are
    computed from the index), or pages, which come with it or later (`open` arrays).
    """

    id: RecordId
    kind: Kind
    body: BlobId  # the pickled function or the encoded `commands.CommandTemplate`
    length: Index
    table: BlobId = BlobId(b"")
    pages: tuple[Page, ...] = ()
    star: bool = False  # call fn(*item), not fn(item)
    group: GroupId = ROOT
    name: Label = ""
    template: Label = ""
    needs: Needs = ONE_CORE
    limits: Limits = NO_LIMITS
    priority: Whole = 0
    after: tuple[Dep, ...] = ()
    element_after: tuple[tuple[Index, tuple[Dep, ...]], ...] = ()  # elements with dependencies of their own
    key: MemoKey = MemoKey(b"")  # of the body, without arguments; empty: never reused
    # candidates for reuse: elements [start, stop) equal those from source_start up of an earlier record
    reuse: tuple[Reuse, ...] = ()
    open: bool = False  # more pages may come; a PagesAdded with `last` ends it
    files: bytes = b""  # the declared files of commands, see `model.files`: only these may travel
    fed: bool = False  # a generator feeds it, endless or not: successes are forgotten
    extras: TaskExtras = NO_EXTRAS
    always: bool = False  # as of a task
    indices: Name = ""  # as the submitter wrote them, see `model.arrays.array_indices`; empty: from 0 up
    reads: ElementReads | None = None  # declared inputs by element, if there are any
    atomic_outputs: bool = False  # as of a task: of each element


class GroupSpec(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """A named node of the workflow tree."""

    id: GroupId
    name: Label
    parent: GroupId = ROOT
    after: tuple[Dep, ...] = ()
    limit: Count = 0  # of its tasks, and of those below, at most so many run at once; 0: any number
    retries: Count = 0  # if something in it fails, all that did not succeed is tried again, so often
    timeout: Duration = 0  # after its first task was dispatched; what has not ended then is ended; 0: never
    attributes: tuple[tuple[Name, Label], ...] = ()  # the user's own
    watch: BlobId = BlobId(b"")  # what watches each of its tasks, and of those below, while it runs


def index_of(spec: TaskSpec | ArraySpec, position: int) -> int:
    """The index of a task as its submitter wrote it."""
    return index_label(spec.indices, position) if isinstance(spec, ArraySpec) else position


Item = TaskSpec | ArraySpec | GroupSpec
