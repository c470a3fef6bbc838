"""Executor and watcher: their messages, in the frames of the wire, and the shared memory that both read.

Rules: tasks have numbers that the executor gives and never uses twice. What the watcher has seen of a task comes before
`TaskDrained`, after which nothing more is said of it. Only the watcher writes the shared memory: by it the executor
knows in whose code a watcher hangs, or died.
"""

from __future__ import annotations

import mmap
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.executor.monitors.evaluation.engine import Progress
from bough.executor.worker_protocol import TaskPlace
from bough.model.bounds import Count
from bough.model.ids import BlobId, Seconds
from bough.model.monitoring.monitors import MOST_REPORTED_LINES, Fail, Finish, Restart
from bough.model.monitoring.observations import Fired, Observation
from bough.wire.client_messages import Blob
from bough.wire.framing import Frames

# the cells of the shared memory
TASK = 0  # whose monitor runs now
PLAN = 1  # which of its plans
MONITOR = 2  # which monitor or metric of that
SINCE = 3  # monotonic nanoseconds at which it began; 0: none runs
JUDGED = 4  # bytes that were judged, of all tasks
_CELLS = 5


class PlanState(msgspec.Struct, frozen=True, array_like=True):
    """How far a plan is with a task: for a watcher that begins again."""

    plan: BlobId
    progress: list[Progress] = []
    told: dict[Count, Count] = {}  # by its number, values of a series that were told
    aside: list[Count] = []  # numbers of monitors and metrics that are left out


class WatchTask(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Watch a task that runs, by plans that were sent before."""

    task: Count
    place: TaskPlace
    started: Seconds
    plans: list[PlanState]


class WatchMore(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Watch it by one more plan, from its beginning."""

    task: Count
    plan: PlanState


class HearReported(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The task reported numbers; or they are told again, to a watcher or a plan that is new."""

    task: Count
    lines: Annotated[bytes, Meta(max_length=MOST_REPORTED_LINES)]
    skipped: Count = 0  # lines that came before and are not kept; only of what is told again
    plan: Count | None = None  # which one hears it, in the order in which they came; None: all


class DrainTask(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """The task has ended, and its output with it: judge all that is left of it, and say when that is done."""

    task: Count
    stdout: Count  # where its output ends in the file
    stderr: Count


class ForgetTask(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """Nobody wants to know any more."""

    task: Count


class TaskSeen(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """What was seen of a task by one of its plans, and what is to be done."""

    task: Count
    plan: Count  # which, in the order in which they came
    observations: list[Observation]
    progress: list[Progress]
    told: dict[Count, Count]
    aside: list[Count] = []  # monitors that are left out from now on
    signals: list[Count] = []  # to send to its processes
    verdict: Finish | Fail | Restart | None = None  # with which it is to end
    fired: Fired | None = None  # what says so


class TaskDrained(msgspec.Struct, frozen=True, array_like=True, tag="dd"):
    """All that the task wrote was judged."""

    task: Count


ToWatcher = Blob | WatchTask | WatchMore | HearReported | DrainTask | ForgetTask
FromWatcher = TaskSeen | TaskDrained


def to_watcher_frames() -> Frames[ToWatcher]:
    """What a watcher hears."""
    return Frames(ToWatcher)


def from_watcher_frames() -> Frames[FromWatcher]:
    """What an executor hears from its watcher."""
    return Frames(FromWatcher)


def new_watcher_cells() -> memoryview[int]:
    """The shared memory of one watcher, made before the fork."""
    return memoryview(mmap.mmap(-1, 8 * _CELLS)).cast("q")
