"""What arrives: what people ask for, and what executors and the shell say.

What people ask for is an imperative (`Cancel`, `Hold`), and what executors report is about work (`WorkSucceeded`); what
the core decides on it is a fact in the past tense (`Cancelled`, `SpanEnded`), which may say more: whose it was, whether
it is tried again, all that waits again. What the shell says of runs, executors, submissions and memos becomes a fact as
it is, and has the type of it. Rule: news has no field that the core fills in. Tags are those of the facts.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bough.model.bounds import ContentDigest, Count, Digest, Duration, Excerpt, FilePath, Label, Name, Text, Whole
from bough.model.ids import BlobId, Bytes, ExecutorId, FileId, GroupId, RecordId, Seconds, SpanId
from bough.model.monitoring.monitors import Fail, Finish, Restart
from bough.model.monitoring.observations import MOST_OBSERVATIONS, Observation
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.outcomes import Detail, Failure, Results
from bough.model.tasks import Dep, Item, Page, Reuse


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="can"):
    """Cancel what a dependency-like target names; final at once. `stop` bounds a slice of an array."""

    target: Dep
    stop: Count = 0


class Kill(msgspec.Struct, frozen=True, array_like=True, tag="kil"):
    """End running tasks: their attempt fails, without a retry. What is not running is left alone."""

    target: Dep
    stop: Count = 0
    message: Text = "killed by a user"


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hld"):
    """Do not start what is not running yet."""

    target: Dep
    stop: Count = 0
    disabled: bool = False  # name a group disabled: only `Release` says otherwise, and people are told so


class Release(msgspec.Struct, frozen=True, array_like=True, tag="rel"):
    """Let start what was held."""

    target: Dep
    stop: Count = 0
    enabled: bool = False  # of groups only those that were disabled


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="rst"):
    """Make what has ended as if it had not started; dependents that had not started wait again."""

    target: Dep
    stop: Count = 0
    cascade: bool = False  # reset dependents that had started, too


class DeclareDone(msgspec.Struct, frozen=True, array_like=True, tag="dcl"):
    """Count tasks as done. The core makes a `SpanEnded` without an executor (span 0) of each part."""

    target: Dep
    stop: Count = 0


class Retry(msgspec.Struct, frozen=True, array_like=True, tag="ret2"):
    """Try again what failed, was cancelled or skipped."""

    target: Dep
    stop: Count = 0


class Prioritise(msgspec.Struct, frozen=True, array_like=True, tag="pri"):
    """Change a priority."""

    target: Dep
    priority: Whole


class AddMonitors(msgspec.Struct, frozen=True, array_like=True, tag="mon"):
    """Watch tasks, also those that run, from now on; of a group also those that are still to come."""

    target: Dep
    plan: BlobId  # a `WatchPlan`, which the server has
    stop: Count = 0


class EndEarly(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """End running tasks with a verdict, as a monitor does. What is not running is left alone."""

    target: Dep
    verdict: Finish | Fail | Restart
    monitor: Name  # who says so: "remote monitor"
    reason: Text = ""
    stop: Count = 0


class SetRule(msgspec.Struct, frozen=True, array_like=True, tag="rul"):
    """Let a rule decide which tasks of an array or a group need not go on; None: no rule any more."""

    target: Dep
    rule: PopulationRule | None = None


class Amend(msgspec.Struct, frozen=True, array_like=True, tag="amd"):
    """Apply a changed description of a running workflow: all of the difference at once."""

    run: Count
    added: list[Item] = []  # groups among them are closed
    changed: list[Item] = []  # what is there, by number, as it is from now on; it stays in its group
    removed: tuple[RecordId, ...] = ()  # tasks that are not part of the workflow any more
    removed_groups: tuple[GroupId, ...] = ()


class WorkStarted(msgspec.Struct, frozen=True, array_like=True, tag="s", gc=False):
    """Elements of a span are running; short tasks end without it."""

    span: SpanId
    start: Count
    stop: Count
    host: Label = ""  # where, if not on its executor's host but behind a relay


class WorkSucceeded(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """The elements [start, stop) of a span succeeded."""

    span: SpanId
    start: Count
    stop: Count
    seconds: Seconds  # of run time, all together
    results: Results = None
    details: tuple[Detail, ...] = ()
    host: Label = ""  # as in `WorkStarted`


class CallsEnded(msgspec.Struct, frozen=True, array_like=True, tag="es", gc=False):
    """Tasks of one batch of like ones succeeded: those of the spans from `span + start` up.

    The core makes a `SpanEnded` of each.
    """

    span: SpanId
    start: Count
    seconds: list[Seconds]
    results: list[bytes]  # no big ones: those are reported alone
    host: Label = ""


class WorkFailed(msgspec.Struct, frozen=True, array_like=True, tag="f", gc=False):
    """One element of a span failed. Whether it is tried again is for the core to decide."""

    span: SpanId
    index: Count
    failure: Failure
    detail: Detail | None = None
    host: Label = ""  # as in `WorkStarted`


class WorkReturned(msgspec.Struct, frozen=True, array_like=True, tag="ret", gc=False):
    """The elements [start, stop) of a span are given back unstarted."""

    span: SpanId
    start: Count
    stop: Count


class WorkStopped(msgspec.Struct, frozen=True, array_like=True, tag="out", gc=False):
    """What an element had written when its executor ended it, because it was cancelled or killed or all ends.

    It may come long after its span is forgotten, so that it names the task itself. The server says whose it is.
    """

    span: SpanId
    record: RecordId
    index: Count
    attempt: Count
    detail: Detail
    host: Label = ""  # as in `WorkStarted`
    executor: ExecutorId = ExecutorId(0)


class WorkObserved(msgspec.Struct, frozen=True, array_like=True, tag="ob", gc=False):
    """What was seen of a running element, before all news of its end."""

    span: SpanId
    index: Count
    observations: Annotated[list[Observation], Meta(max_length=MOST_OBSERVATIONS)]


class TakeLock(msgspec.Struct, frozen=True, array_like=True, tag="lt"):
    """A running task wants a named lock, until it frees it or is with its executor no more."""

    name: Label
    span: SpanId
    index: Count


class FreeLock(msgspec.Struct, frozen=True, array_like=True, tag="lf"):
    """The owner of a lock needs it no more."""

    name: Label
    span: SpanId
    index: Count


class TaskAlive(msgspec.Struct, frozen=True, array_like=True, tag="sw", gc=False):
    """A task of a span gave a sign of life."""

    span: SpanId


class TakeTask(msgspec.Struct, frozen=True, array_like=True, tag="tak"):
    """A person wants the next command that is ready in some groups; the core answers with `AnswerTake`.

    It becomes facts about an executor that stands for the person, and is no fact itself.
    """

    request: Count
    executor: ExecutorId  # the number of that executor, if there is something to take
    name: Label  # of the person, and the host, as ann@desk
    host: Label  # of commands with affinity to a host those of this one go first
    groups: tuple[GroupId, ...]


class PagesAdded(msgspec.Struct, frozen=True, array_like=True, tag="pag"):
    """An open array grew."""

    record: RecordId
    pages: list[Page]
    last: bool = False
    request: Count = 0
    reuse: tuple[Reuse, ...] = ()  # as in `ArraySpec`, for the elements of these pages


class GroupClosed(msgspec.Struct, frozen=True, array_like=True, tag="gc"):
    """Nothing more will be added to a group; it is done when what it holds is done."""

    group: GroupId


MOST_CONTENTS: Final = 100_000  # in one piece of news; who has more to say says it in several


class HeldContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A content that a cache holds, and how many bytes it has."""

    digest: ContentDigest
    size: Bytes


class CacheChanged(msgspec.Struct, frozen=True, array_like=True, tag="cc"):
    """What the cache of an executor's host gained and lost. It is advice for placing, and no fact is made of it."""

    executor: ExecutorId
    added: Annotated[tuple[HeldContent, ...], Meta(max_length=MOST_CONTENTS)] = ()
    removed: Annotated[tuple[ContentDigest, ...], Meta(max_length=MOST_CONTENTS)] = ()
    whole: bool = False  # `added` is all that the cache holds; if it is more than fits, the rest follows as a change
    shared: bool = False  # it is about the shared store of the executor's site


class IdentifiedFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file of a workflow and the content that somebody found in it."""

    file: FileId
    digest: ContentDigest
    size: Bytes


class NamedContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The same for a file by its path: what has just been submitted may have no number yet."""

    path: FilePath
    digest: ContentDigest
    size: Bytes


class FilesIdentified(msgspec.Struct, frozen=True, array_like=True, tag="fid"):
    """Somebody read files of a workflow, or made them: these are their contents. No fact is made of it."""

    run: Count
    files: Annotated[tuple[IdentifiedFile, ...], Meta(max_length=MOST_CONTENTS)]
    named: Annotated[tuple[NamedContent, ...], Meta(max_length=MOST_CONTENTS)] = ()


class BytesMoved(msgspec.Struct, frozen=True, array_like=True, tag="bm", gc=False):
    """An executor fetched something: from a peer's host, or from "origin". No fact is made of it."""

    executor: ExecutorId
    source: Name
    bytes: Bytes
    seconds: Duration


class OutputLost(msgspec.Struct, frozen=True, array_like=True, tag="ol"):
    """An output of a task that succeeded is wanted, and nobody has it. The core may make a `MadeAgain` of it."""

    record: RecordId
    index: Count
    reason: Excerpt = ""
    made: Digest = b""  # of all that it had made (`memo_keys.digest_of_made`); empty: not known


class OutputsWritten(msgspec.Struct, frozen=True, array_like=True, tag="ow"):
    """The outputs of tasks are in their places, as an executor held them: of these records, indices and attempts."""

    executor: ExecutorId
    elements: Annotated[tuple[tuple[RecordId, Count, Count], ...], Meta(max_length=MOST_CONTENTS)]


# what people ask of tasks
Action = Cancel | Kill | Hold | Release | Reset | DeclareDone | Retry | Prioritise | AddMonitors | EndEarly | SetRule

# what is said of data: the core's index takes it in, and nothing is written
DataNews = CacheChanged | FilesIdentified | BytesMoved

# what executors report
WorkNews = WorkStarted | WorkSucceeded | CallsEnded | WorkFailed | WorkReturned | WorkStopped | WorkObserved


def with_executor(news: WorkNews, executor: int) -> WorkNews:
    """The same news, with the executor that it came from where it must be known."""
    return msgspec.structs.replace(news, executor=ExecutorId(executor)) if type(news) is WorkStopped else news
