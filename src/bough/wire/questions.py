"""What clients ask a server: one struct a question, each with the type of its answer.

`Status()` is sent in an `Ask`, and `read_reply` reads its `Answer`. A question that `changes` something is not for
those who may only read. Rule: every field has its bounds in its type, so that a handler never sees a value that it
cannot use; a new question is a struct here, a line in a union, and a line in the server's table of handlers.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from bough.errors import ProtocolError, UserError
from bough.model.bounds import (
    Count,
    Digest,
    Duration,
    FilePath,
    Index,
    Label,
    Name,
    QueueName,
    SiteName,
    Text,
    Whole,
    Word,
)
from bough.model.ids import ExecutorId, MemoKey, RecordId
from bough.model.monitoring.observations import SeenTask
from bough.model.sites.availability import Grace, SiteRule
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.site_specs import DefinedName, SiteSpec
from bough.wire.here_questions import HereQuestion
from bough.wire.probes import DEEDS, ProbeQuestion, ProbeResult

MOST_DIGESTS = 100_000  # in one question
MOST_RECORDS = 1_000_000  # in one question
MOST_PARAMETERS = 32_766  # of an SQL statement, which is also SQLite's own limit

Fields = dict[str, Any]
T = TypeVar("T")


class Question(msgspec.Struct, Generic[T], frozen=True, array_like=True):
    """The base of all questions; `T` is the type of the answer."""

    changes: ClassVar[bool] = False

    @property
    def may_repeat(self) -> bool:
        """Whether it may be asked again of a server that was lost before it answered."""
        return True


# --- what there is ---------------------------------------------------------------------------------


class Status(Question[Fields], frozen=True, array_like=True, tag="status"):
    """{"counts": {state: n}, "groups": {id: {state: n}}, "executors": [...], "run", "policy", "replication"}."""


class Explain(Question[list[str]], frozen=True, array_like=True, tag="explain"):
    """Why a task is where it is, in lines."""

    record: RecordId
    index: Count = 0


class State(Question[str], frozen=True, array_like=True, tag="state"):
    """The state of a task, in the word people see."""

    record: RecordId
    index: Count = 0


class Processors(Question[dict[str, float]], frozen=True, array_like=True, tag="processors"):
    """The cores that are there now, by site; sites that are away have none."""

    follow: bool = False  # tell of changes as well, by `ProcessorsChanged`


class Project(Question[None], frozen=True, array_like=True, tag="project"):
    """Answered once the jobs database has caught up with the journal."""


class Workflows(Question[list[Fields]], frozen=True, array_like=True, tag="workflows"):
    """[{"run", "name", "group", "user", "directory", "closed", "counts", "unsaved", "missing_sites", "client"}].

    "unsaved": the tasks that have succeeded and whose outputs are on their way. "missing_sites": those that ready tasks
    name and that are not there.
    """


class Executors(Question[list[Fields]], frozen=True, array_like=True, tag="executors"):
    """[{"executor", "site", "host", "pid", "cores", "state", "running", ...}]."""


class Sites(Question[list[Fields]], frozen=True, array_like=True, tag="sites"):
    """[{"site", "state" ("there" or "away"), "executors", "cores", "tasks", "reason", "since", "next_change", ...}].

    Of a site that has a definition also "spec", "pilots", why there are "no_more", recent "waits" and "core_hours".
    """


class SetSiteRule(Question[Fields], frozen=True, array_like=True, tag="siterule"):
    """Say how the server learns whether a site may be used; the site as `Sites` shows it."""

    changes: ClassVar[bool] = True
    site: SiteName
    rule: SiteRule


class MoveSite(Question[Fields], frozen=True, array_like=True, tag="movesite"):
    """Say by hand that a site is away, or that its rule counts again; the site as `Sites` shows it."""

    changes: ClassVar[bool] = True
    site: SiteName
    away: bool
    grace: Grace = 0.0
    reason: Word = ""


class DefineSite(Question[Fields], frozen=True, array_like=True, tag="defsite"):
    """Say how pilots are started at a site; the site as `Sites` shows it."""

    changes: ClassVar[bool] = True
    site: DefinedName
    spec: SiteSpec


class RemoveSite(Question[Fields], frozen=True, array_like=True, tag="delsite"):
    """End the pilots of a site and forget its definition; {"site", "pilots" (that were ended)}.

    `force`: also if it cannot be reached, so that its pilots end by themselves.
    """

    changes: ClassVar[bool] = True
    site: SiteName
    force: bool = False


class CheckSite(Question[Fields], frozen=True, array_like=True, tag="chksite"):
    """Look at one thing that a site needs; {"steps", "ok", "text"}. Without a step: only which there are."""

    changes: ClassVar[bool] = True
    site: SiteName
    step: Word = ""


class LoginSite(Question[Fields], frozen=True, array_like=True, tag="lgnsite"):
    """How a user logs in to a site, {"site", "argv" (empty: that is not needed)}; once done, {"site", "ok", "text"}."""

    changes: ClassVar[bool] = True
    site: SiteName
    done: bool = False


class Queues(Question[list[Fields]], frozen=True, array_like=True, tag="queues"):
    """Those that are defined by name, then the default queue, whose name is empty, and others that tasks still name.

    Each {"queue", "defined", "limits" (of `QueueSpec`), "shown", "waiting", "running", "cores"}.
    """


class DefineQueue(Question[Fields], frozen=True, array_like=True, tag="defqueue"):
    """Make a named queue, or give it other limits; the queue as `Queues` shows it.

    `change`: it must be there already, otherwise it must not.
    """

    changes: ClassVar[bool] = True
    queue: QueueName
    spec: QueueSpec
    change: bool = False


class RemoveQueue(Question[Fields], frozen=True, array_like=True, tag="delqueue"):
    """Take the definition of a named queue away; {"queue", "waiting", "running"}: tasks that have no limits now."""

    changes: ClassVar[bool] = True
    queue: QueueName


class Statistics(Question[list[Fields]], frozen=True, array_like=True, tag="statistics"):
    """The samples of the last so many seconds, see `server.service.upkeep.metrics.Sample`."""

    seconds: Count = 1


class CoreHours(Question[Fields], frozen=True, array_like=True, tag="corehours"):
    """What the executors of sites were there for: {"sites": ..., "history": ...}.

    "sites" has core-hours since the site was first known, {site: {"all", "used", "idle", "startup", "wasted"}},
    "history" the core-seconds of the minutes, hours and days that ended in the last so many seconds, oldest first:
    [{"site", "period", "start", "core_seconds", "startup", "used", "wasted"}].
    """

    seconds: Count = 86400


class Said(Question[list[Fields]], frozen=True, array_like=True, tag="said"):
    """What running tasks say of themselves, and what was seen of them.

    [{"id", "record", "index", "name", "group", "run", "text", "progress", "since", "tags",
    "metrics": {name: {"step", "value", "total", "recent"}}}]
    """


class Observations(Question[list[SeenTask]], frozen=True, array_like=True, tag="observations"):
    """What was seen of the elements [start, stop) of a record, running or ended: of each its attempts in order.

    Those of which nothing was seen are left out. A client that is subscribed hears of more by `TasksObserved`.
    """

    record: RecordId
    start: Index = 0
    stop: Index = 1


class SqlReply(msgspec.Struct, frozen=True):
    """Rows of the jobs database."""

    columns: list[str]
    rows: list[list[Any]]


SqlValue = None | bool | Whole | float | Text


class Sql(Question[SqlReply], frozen=True, array_like=True, tag="sql"):
    """A read-only query of the jobs database."""

    statement: Annotated[str, Meta(max_length=1_000_000)]
    parameters: Annotated[list[SqlValue], Meta(max_length=MOST_PARAMETERS)] = []


class Numbered(Question[list[Fields]], frozen=True, array_like=True, tag="numbered"):
    """The tasks and arrays of a number in the workflows that are in memory; `taker`: whose task comes first, if any.

    [{"record", "workflow", "length", "indices", "taken"}]
    """

    number: Count
    workflow: Label = ""
    taker: Name = ""


class Task(Question[Fields], frozen=True, array_like=True, tag="task"):
    """A task's attributes, and what its command is made of."""

    record: RecordId
    index: Count = 0


# --- what earlier runs have done -------------------------------------------------------------------


class Memos(Question[list[Fields]], frozen=True, array_like=True, tag="memos"):
    """Earlier arrays of a body that may be reused.

    [{"record", "length", "table" (bytes), "pages" [(start, stop, data)], "done" [(start, stop)]}]
    """

    body: MemoKey
    always: bool = False  # of all earlier runs, whatever the run says


class Feeds(Question[list[int]], frozen=True, array_like=True, tag="feeds"):
    """Earlier arrays of a body that generators fed, newest first."""

    body: MemoKey
    always: bool = False  # of all earlier runs, whatever the run says


class FedPart(msgspec.Struct, frozen=True):
    """A piece of an earlier feed."""

    pages: list[tuple[int, int, bytes]]
    done: list[tuple[int, int]]
    turn: int  # to ask behind it; 0: there is no more


class Fed(Question[FedPart], frozen=True, array_like=True, tag="fed"):
    """A piece of one of these, behind a turn."""

    record: RecordId
    turn: Count = 0


class Paths(Question[list[str]], frozen=True, array_like=True, tag="paths"):
    """Absolute paths that earlier runs of the client's workflow declared as outputs."""


# --- the client's workflow -------------------------------------------------------------------------


class Numbers(msgspec.Struct, frozen=True):
    """Numbers for records and groups that are a client's to give."""

    first_id: int
    first_group: int
    ids: int


class Ids(Question[Numbers], frozen=True, array_like=True, tag="ids"):
    """More numbers for the client's workflow."""

    changes: ClassVar[bool] = True
    count: Annotated[int, Meta(ge=1, le=1 << 32)] = 1000


class Inventory(Question[Fields], frozen=True, array_like=True, tag="inventory"):
    """{"records", "groups"} of the client's workflow, see `server.service.service_answers`."""


class Outcomes(Question[int], frozen=True, array_like=True, tag="outcomes"):
    """How many of some records are known; then the client is told again of all that ended of these.

    (record, index) stands for the elements of a record from there on.
    """

    records: Annotated[list[tuple[RecordId, Index]], Meta(max_length=MOST_RECORDS)]


# --- files -----------------------------------------------------------------------------------------


StreamName = Literal["stdout", "stderr"]


def stream_name(text: str) -> StreamName:
    """A text as the name of a stream."""
    if text == "stdout":
        return "stdout"
    if text == "stderr":
        return "stderr"
    raise UserError(f"a task writes to stdout and stderr, not to {text!r}")


class OutputReply(msgspec.Struct, frozen=True):
    """A part of what a task wrote. `more`: it still runs; `error`: why it cannot be read."""

    data: bytes
    more: bool = False
    error: str = ""
    attempt: int = 0  # which wrote it; 0: that is not known
    size: int = 0  # bytes that a running task has written by now


class Output(Question[OutputReply], frozen=True, array_like=True, tag="output"):
    """A part of what a task wrote, wherever it lies, see `server.task_output`."""

    record: RecordId
    index: Count = 0
    stream: StreamName = "stdout"
    offset: Count = 0
    length: Count = 16 << 20
    path: FilePath = ""
    executor: ExecutorId = ExecutorId(0)
    attempt: Count = 0  # of which the output is wanted; 0: of the one that runs, or ran last


class ProbeReply(msgspec.Struct, frozen=True):
    """What the executor of a running task answered, and which attempt it is."""

    result: ProbeResult
    attempt: int
    executor: int
    host: str = ""


class Probe(Question[ProbeReply], frozen=True, array_like=True, tag="probe"):
    """Something that a remote monitor asks of a running task, see `server.remote_probes`."""

    changes: ClassVar[bool] = True  # it shows files, sends signals and runs commands
    record: RecordId
    question: ProbeQuestion
    index: Count = 0
    attempt: Count = 0  # which is meant; 0: the one that runs

    @property
    def may_repeat(self) -> bool:
        """What acts on the task is not done twice."""
        return not isinstance(self.question, DEEDS)


class Have(Question[list[bytes]], frozen=True, array_like=True, tag="have"):
    """Those of some digests, to which a workflow refers from now on, whose content the server has."""

    changes: ClassVar[bool] = True
    digests: Annotated[list[Annotated[bytes, Meta(min_length=32, max_length=32)]], Meta(max_length=MOST_DIGESTS)]
    run: Count


class Piece(Question[bytes], frozen=True, array_like=True, tag="piece"):
    """A piece of a content by its digest, or of a big result by its path."""

    digest: Digest = b""
    result: FilePath = ""
    offset: Count = 0


class Files(Question[list[tuple[str, int, bytes, bool, bool]]], frozen=True, array_like=True, tag="files"):
    """Outputs of the elements [start, stop) of a record that the server keeps.

    As (path, size, digest, is a folder, may be executed).
    """

    record: RecordId
    start: Index = 0
    stop: Index = 0


# --- work by hand, and what is removed -------------------------------------------------------------


class Take(Question[Fields], frozen=True, array_like=True, tag="take"):
    """{"answer": "task" | "none" | "done" | "blocked", "text"}, and for a task what `Task` says."""

    changes: ClassVar[bool] = True
    name: Name
    host: Name = ""
    queue: Name = ""
    group: Name = ""


class Done(Question[Fields], frozen=True, array_like=True, tag="done"):
    """How a task that was taken by hand ended: {"id", "state", "changed"}."""

    changes: ClassVar[bool] = True
    record: RecordId
    name: Name
    index: Count = 0
    exit_code: Annotated[int, Meta(ge=-255, le=255)] = 0
    outputs: Annotated[list[tuple[Name, FilePath, Count, Whole]], Meta(max_length=100_000)] = []  # as in `Output`
    missing: FilePath = ""
    give_back: bool = False


class Remove(Question[list[Fields]], frozen=True, array_like=True, tag="remove"):
    """Remove workflows by name, name#run or run; [{"run", "name"}] that are gone."""

    changes: ClassVar[bool] = True
    workflows: Annotated[list[Name], Meta(min_length=1, max_length=100_000)]
    kill: bool = False


class Prune(Question[list[Fields]], frozen=True, array_like=True, tag="prune"):
    """Remove what ended so long ago; [{"run", "name", "closed"}] that are, or would be, gone."""

    changes: ClassVar[bool] = True
    seconds: Duration
    dry_run: bool = False


# --- what running tasks ask ------------------------------------------------------------------------


class Here(Question[Fields], frozen=True, array_like=True, tag="here"):
    """What a task that somebody took by hand asks or says, as those that executors run do."""

    changes: ClassVar[bool] = True
    record: RecordId
    name: Name
    question: HereQuestion
    index: Count = 0


# --- all of them -----------------------------------------------------------------------------------

AnyQuestion = (
    Status
    | Explain
    | State
    | Processors
    | Project
    | Workflows
    | Executors
    | Sites
    | SetSiteRule
    | MoveSite
    | Queues
    | DefineQueue
    | RemoveQueue
    | DefineSite
    | RemoveSite
    | CheckSite
    | LoginSite
    | Statistics
    | CoreHours
    | Said
    | Observations
    | Sql
    | Task
    | Numbered
    | Memos
    | Feeds
    | Fed
    | Paths
    | Ids
    | Inventory
    | Outcomes
    | Output
    | Probe
    | Have
    | Piece
    | Files
    | Take
    | Done
    | Here
    | Remove
    | Prune
)


def read_reply(question: Question[T], value: object) -> T:
    """The answer to a question, checked; a `ProtocolError` when a server says something else."""
    [base] = [base for base in type(question).__orig_bases__ if get_args(base)]  # type: ignore[attr-defined]
    try:
        reply: T = msgspec.convert(value, get_args(base)[0])
    except msgspec.ValidationError as error:
        what = type(question).__name__.lower()
        raise ProtocolError(f"the server's answer to {what!r} cannot be read: {error}") from error
    return reply
