"""Executor and worker: their messages, in the frames of the wire, and the shared memory that both read.

A worker shows its executor a few numbers in anonymous shared memory, without a system call. They can still be read when
the worker was killed: that is how the executor knows which element died, and which process group to end.

Rules: a worker answers every hand-over that it runs with `WorkerDone`, after all news of it. A hand-over with a token
may be taken back as long as its number can be read from the token pipe (see `slot`). Only the worker writes the shared
memory, each cell by itself: what is read while the worker lives is a hint, what is read after its death is the truth.
"""

from __future__ import annotations

import mmap

import msgspec

from bough.model.events.news import CallsEnded, WorkFailed, WorkReturned, WorkSucceeded
from bough.model.ids import Seconds, SpanId
from bough.model.outcomes import Failure
from bough.wire.client_messages import Blob
from bough.wire.executor_messages import RunSpan
from bough.wire.file_messages import MadeFile
from bough.wire.framing import Frames

# the cells of the shared memory
HANDOVER = 0  # number of the hand-over being run, 0: none
INDEX = 1  # element being run
GROUP = 2  # process group of the command being run, 0: none
SINCE = 3  # monotonic nanoseconds at which a command, or a function with limits, began; 0: none runs
OUT = 4  # where the output of the element being run begins in the stdout file
ERR = 5  # the same for stderr
GENERATION = 6  # which pair of output files is in use
_CELLS = 8


class WorkerSpan(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Run this, after what was handed over before."""

    number: int
    run: RunSpan
    token: bool = False  # run it only if its number comes out of the token pipe
    directory: str = ""  # of a submitter that is not seen here: run its commands in sandboxes


class WorkerStop(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    """Do not run these elements of a command hand-over; if one is running, end it. Nothing is reported of them."""

    number: int
    start: int
    stop: int
    grace: Seconds


class WorkerVerdict(msgspec.Struct, frozen=True, array_like=True, tag="v"):
    """End this command if it still runs, and report this failure of it."""

    number: int
    index: int
    failure: Failure
    grace: Seconds


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


class InputsStaged(msgspec.Struct, frozen=True, array_like=True, tag="bb"):
    """The answer: where the contents lie. `of_site`: what went wrong might go well elsewhere."""

    number: int
    index: int
    files: dict[str, str]
    error: str = ""
    of_site: bool = False


class StoreOutputs(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A task has made its outputs: give them to the server."""

    number: int
    span: SpanId
    index: int
    files: list[MadeFile]
    locals: list[str]  # where they lie here, in the same order

    def local(self, digest: bytes) -> str:
        """Where a content lies here; empty: nowhere."""
        return next((path for made, path in zip(self.files, self.locals, strict=True) if made.digest == digest), "")


class OutputsStored(msgspec.Struct, frozen=True, array_like=True, tag="oo"):
    """The answer: the server has them."""

    number: int
    index: int
    times: list[int]
    error: str = ""


ToWorker = Blob | WorkerSpan | WorkerStop | WorkerVerdict | WorkerQuit | InputsStaged | OutputsStored
FromWorker = WorkSucceeded | CallsEnded | WorkFailed | WorkReturned | WorkerDone | StageInputs | StoreOutputs


def to_worker_frames() -> Frames[ToWorker]:
    """What a worker hears."""
    return Frames(ToWorker)


def from_worker_frames() -> Frames[FromWorker]:
    """What an executor hears from a worker."""
    return Frames(FromWorker)


def new_cells() -> memoryview[int]:
    """The shared memory of one worker, made before the fork."""
    return memoryview(mmap.mmap(-1, 8 * _CELLS)).cast("q")
