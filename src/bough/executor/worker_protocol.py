"""Executor and worker: their messages, in the frames of the wire, and the shared memory that both read.

A worker shows its executor a few numbers in anonymous shared memory, without a system call. They can still be read when
the worker was killed: that is how the executor knows which element died, and which process group to end.

Rules: a worker answers every hand-over that it runs with `WorkerDone`, after all news of it. A hand-over with a token
may be taken back as long as its number can be read from the token pipe (see `slot`). Only the worker writes the shared
memory, but for `LATE`, each cell by itself: what is read while the worker lives is a hint, what is read after its death
is the truth.
"""

from __future__ import annotations

import mmap
import os

import msgspec

from bough.executor.host.devices import TaskDevices
from bough.model.events.news import CallsEnded, WorkFailed, WorkReturned, WorkStopped, WorkSucceeded
from bough.model.ids import Seconds, SpanId
from bough.model.outcomes import EndedEarly, Failure, Staged
from bough.wire.client_messages import Blob
from bough.wire.executor_messages import RunSpan
from bough.wire.file_messages import HeldOutputs, MadeFile
from bough.wire.framing import Frames

# the cells of the shared memory
HANDOVER = 0  # number of the hand-over being run, 0: none
INDEX = 1  # element being run
GROUP = 2  # process group of the command being run, 0: none
SINCE = 3  # monotonic nanoseconds at which a command, or a function with limits, began; 0: none runs
OUT = 4  # where the output of the element being run begins in the stdout file
ERR = 5  # the same for stderr
GENERATION = 6  # which pair of output files is in use
LATE = 7  # the executor writes it: a hand-over that is watched since it was handed over, 0: none
RESULT_WAITS = 8  # 1: a result waits for space on the disk of the store
OUTPUT_WAITS = 9  # 1: what a task prints does
_CELLS = 10

SITE = "BOUGH_SITE"  # the variable that has the name of the executor's site
ATTRIBUTES = "BOUGH_ATTRIBUTES"  # the variable that has what the executor was told to say of itself, as JSON


class WorkerSpan(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Run this, after what was handed over before."""

    number: int
    run: RunSpan
    token: bool = False  # run it only if its number comes out of the token pipe
    directory: str = ""  # of a submitter that is not seen here: run its commands in sandboxes
    devices: TaskDevices | None = None  # GPUs and cores that are its own
    # files that are followed while an element runs, besides its streams; None: it is not watched. Of one that is, say
    # when it begins, and ask before telling how it ended
    watched: list[str] | None = None


class WorkerStop(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    """Do not run these elements of a command hand-over; if one is running, end it. Nothing is reported of them."""

    number: int
    start: int
    stop: int
    grace: Seconds


class WorkerVerdict(msgspec.Struct, frozen=True, array_like=True, tag="v"):
    """End this command if it still runs, and report this failure of it, or that it was ended early as a success."""

    number: int
    index: int
    failure: Failure | None
    grace: Seconds
    early: EndedEarly | None = None

    @property
    def verdict(self) -> Verdict:
        """The one of the two that it is."""
        return self.early or self.failure


class WorkerQuit(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """End what is running, say what is known, and exit."""

    grace: Seconds


class WorkerDone(msgspec.Struct, frozen=True, array_like=True, tag="d", gc=False):
    """A hand-over is finished: all its elements have been told of."""

    number: int


class StageInputs(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """A task needs files, named by their absolute paths at the submitter."""

    number: int
    span: SpanId
    index: int
    paths: list[str]
    fresh: list[str] = []  # those that are sent even if their content is here
    in_place: bool = False  # it runs in the submitter's directory, and these are not there


class InputsStaged(msgspec.Struct, frozen=True, array_like=True, tag="bb"):
    """The answer: where the contents lie. `of_site`: what went wrong might go well elsewhere."""

    number: int
    index: int
    files: dict[str, str]
    error: str = ""
    of_site: bool = False
    folders: list[str] = []  # those of the paths whose content is the archive of a folder
    moved: Staged = Staged()  # where they came from
    lost: str = ""  # the path of one that another task had made, and that is nowhere any more
    full: bool = False  # the disk is


class StoreOutputs(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A task has made its outputs: give them to the server."""

    number: int
    span: SpanId
    index: int
    files: list[MadeFile]
    locals: list[str]  # where they lie here, in the same order
    must: bool = False  # the server must have them: they cannot be held here
    temporary: bool = False  # they may be held here
    later: HeldOutputs | None = None  # they may be held here until they are written back: as what

    def local(self, digest: bytes) -> str:
        """Where a content lies here; empty: nowhere."""
        return next((path for made, path in zip(self.files, self.locals, strict=True) if made.digest == digest), "")


class OutputsStored(msgspec.Struct, frozen=True, array_like=True, tag="oo"):
    """The answer: the server has them."""

    number: int
    index: int
    times: list[int]
    error: str = ""
    places: list[str] = []  # of what a task wrote to its streams: where the server keeps it
    later: bool = False  # they are held here, and the server gets them later


class TaskPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a task runs: what a watcher needs to know of it."""

    record: int
    index: int
    attempt: int
    group: int  # its process group
    directory: str
    stdout: tuple[str, int]  # the file, and where its output begins in it
    stderr: tuple[str, int]
    outputs: list[str] | None = None  # those that it declared, in full: each has a hidden name yet; None: not known
    sizes: dict[str, int] | None = None  # of followed files that were there before it began; None: not known
    submitted_from: str = ""  # the submitter's directory, if it is not seen here
    sandbox: str = ""  # which stands for it


class ElementBegan(msgspec.Struct, frozen=True, array_like=True, tag="eb"):
    """A watched element runs."""

    number: int
    place: TaskPlace

    @property
    def index(self) -> int:
        """Which."""
        return self.place.index


class ElementEnded(msgspec.Struct, frozen=True, array_like=True, tag="ee"):
    """A watched element has ended, and its output here: is there a verdict on it?"""

    number: int
    index: int
    stdout: int
    stderr: int


class ElementJudged(msgspec.Struct, frozen=True, array_like=True, tag="ej"):
    """The answer, once all that it wrote was judged: how it has ended; neither: as it did."""

    number: int
    index: int
    failure: Failure | None = None
    early: EndedEarly | None = None

    @property
    def verdict(self) -> Verdict:
        """The one of the two that it is, if any."""
        return self.early or self.failure


Verdict = Failure | EndedEarly | None  # with which an element is ended; None: nothing is reported of it
Answer = InputsStaged | OutputsStored | ElementJudged

ToWorker = Blob | WorkerSpan | WorkerStop | WorkerVerdict | WorkerQuit | Answer
WorkerNews = WorkSucceeded | CallsEnded | WorkFailed | WorkReturned | WorkStopped
FromWorker = WorkerNews | WorkerDone | StageInputs | StoreOutputs | ElementBegan | ElementEnded


def to_worker_frames() -> Frames[ToWorker]:
    """What a worker hears."""
    return Frames(ToWorker)


def from_worker_frames() -> Frames[FromWorker]:
    """What an executor hears from a worker."""
    return Frames(FromWorker)


def new_cells() -> tuple[memoryview[int], int]:
    """The shared memory of one worker, made before the fork; and a descriptor for a worker that is no fork of ours."""
    descriptor = os.memfd_create("bough-cells")
    os.truncate(descriptor, 8 * _CELLS)
    return map_cells(descriptor), descriptor


def map_cells(descriptor: int) -> memoryview[int]:
    """The shared memory that a descriptor stands for."""
    return memoryview(mmap.mmap(descriptor, 8 * _CELLS)).cast("q")
