"""What the shell must do after it has written a turn's facts: imperative, idempotent.

What an order causes comes back as news, never as a return value.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from bough.model.ids import BlobId, ExecutorId, FileId, MemoKey, RecordId, Seconds, SpanId
from bough.model.monitoring.monitors import Fail, Finish, Restart
from bough.model.sites.site_specs import PilotId
from bough.model.tasks import ArraySpec, Dep, On, Page, Reuse, TaskSpec


class SendSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Give a span to an executor. The shell adds blobs the executor lacks and the values of `spec.inputs`."""

    executor: ExecutorId
    span: SpanId
    spec: TaskSpec | ArraySpec
    start: int
    stop: int
    attempt: int
    pages: tuple[Page, ...] = ()  # those that overlap [start, stop)
    expected: Seconds = 0  # run time of one element, 0: unknown
    behind: SpanId = SpanId(0)  # start it there when this one has succeeded, and give it back when it has not
    # tasks like it that go with it, by record and payload: their spans have the next numbers, all else is the same
    along: tuple[tuple[RecordId, bytes], ...] = ()
    chained: bool = False  # each of them waits for the one before, whose value is its only input, and for nothing else
    watch: tuple[BlobId, ...] = ()  # what watches its elements: plans of the task, of its groups, and those added later
    replica: bool = False  # other attempts of it are running: what they write is to be left alone

    def singly(self) -> Iterator[SendSpan]:
        """The same as hand-outs of one task each."""
        if not self.along:
            yield self
            return
        assert isinstance(self.spec, TaskSpec)
        yield replace(self, along=(), chained=False)
        previous = self.spec.id
        for number, (record, payload) in enumerate(self.along, self.span + 1):
            spec = replace(self.spec, id=record, payload=payload)
            one = replace(self, span=SpanId(number), spec=spec, along=(), chained=False)
            if self.chained:
                before = (Dep(On.TASK, previous),)
                one = replace(one, spec=replace(spec, after=before, inputs=before), behind=SpanId(number - 1))
            yield one
            previous = record


class StopSpan(msgspec.Struct, frozen=True, array_like=True):
    """End elements of a span on an executor: running ones get TERM, later KILL; queued ones are dropped."""

    executor: ExecutorId
    span: SpanId
    start: int
    stop: int


class ClearExecutor(msgspec.Struct, frozen=True, array_like=True):
    """Have an executor give back all it has: what has not begun at once, what runs after the grace."""

    executor: ExecutorId
    grace: Seconds
    reason: str


class KeepExecutor(msgspec.Struct, frozen=True, array_like=True):
    """Let what still runs on an executor that was to be cleared go on."""

    executor: ExecutorId


class RecallBacklog(msgspec.Struct, frozen=True, array_like=True):
    """Have an executor give back what it has not begun: another one has nothing to do."""

    executor: ExecutorId


class AnnounceInputs(msgspec.Struct, frozen=True, array_like=True):
    """Have the inputs of a task that an executor may get next brought there while it is busy; the task stays free."""

    executor: ExecutorId
    record: RecordId
    index: int
    files: tuple[FileId, ...]


class AskForPilot(msgspec.Struct, frozen=True, array_like=True):
    """Have a site start a pilot; one that was asked for before is found there, not started again."""

    pilot: PilotId
    site: str
    allocation: PilotId = PilotId(0)  # the first pilot of those that were wished for together


class CancelPilot(msgspec.Struct, frozen=True, array_like=True):
    """Have a site end a pilot, after some seconds in which its tasks may end."""

    pilot: PilotId
    site: str
    grace: Seconds = 0.0


class WatchSpan(msgspec.Struct, frozen=True, array_like=True):
    """Have running elements of a span watched by one more plan."""

    executor: ExecutorId
    span: SpanId
    start: int
    stop: int
    plan: BlobId


class EndSpan(msgspec.Struct, frozen=True, array_like=True):
    """Have running elements of a span ended with a verdict, as a monitor there would."""

    executor: ExecutorId
    span: SpanId
    start: int
    stop: int
    verdict: Finish | Fail | Restart
    monitor: str
    reason: str


class LookUpMemo(msgspec.Struct, frozen=True, array_like=True):
    """Look for a finished twin in earlier runs and answer with `facts.Recalled`."""

    record: RecordId
    start: int
    stop: int
    key: MemoKey
    reuse: tuple[Reuse, ...] = ()  # arrays: where to look; empty: a loose task, found by its key alone
    always: bool = True  # in all earlier runs, not only in unfinished ones


class Refuse(msgspec.Struct, frozen=True, array_like=True):
    """Tell a client that its submission was not accepted, and why. Nothing of it was stored."""

    request: int
    message: str


class TellGroupFinished(msgspec.Struct, frozen=True, array_like=True):
    """A group is done (`failed` False) or cannot be any more."""

    group: int
    failed: bool


class DropFile(msgspec.Struct, frozen=True, array_like=True):
    """The last reader of a file has succeeded: if the file is temporary, remove all copies of it."""

    run: int
    path: str
    reader: RecordId  # the element that was the last: among what it depends on is who made the file
    index: int


class AnswerTake(msgspec.Struct, frozen=True, array_like=True):
    """Tell a person which span was taken, or that there is nothing to take (span 0)."""

    request: int
    span: SpanId = SpanId(0)
    elsewhere: bool = False  # nothing in the groups that were named, but something in the workflows around them


Order = (
    SendSpan
    | StopSpan
    | ClearExecutor
    | KeepExecutor
    | RecallBacklog
    | AnnounceInputs
    | AskForPilot
    | CancelPilot
    | WatchSpan
    | EndSpan
    | LookUpMemo
    | Refuse
    | TellGroupFinished
    | DropFile
    | AnswerTake
)
