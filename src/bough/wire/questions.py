"""What clients ask a server, and what running tasks ask it: one struct a question, each with the type of its answer.

`Status()` is sent in an `Ask`, and `read_reply` reads its `Answer`. A question that `changes` something is not for
those who may only read. Rule: every field has its bounds in its type, so that a handler never sees a value that it
cannot use; a new question is a struct here, a line in a union, and a line in the server's table of handlers.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from bough.errors import ProtocolError, UserError
from bough.model.bounds import Count, Digest, Duration, FilePath, Index, Label, Name, Text, Whole, in_plain_words
from bough.model.ids import ExecutorId, MemoKey, RecordId

MOST_DIGESTS = 100_000  # in one question
MOST_RECORDS = 1_000_000  # in one question
MOST_PARAMETERS = 32_766  # of an SQL statement, which is also SQLite's own limit
LONGEST_LOCK = 200  # characters of a lock's name
LONGEST_SAID = 2_000  # characters of what a task says of itself

Fields = dict[str, Any]
T = TypeVar("T")


class Question(msgspec.Struct, Generic[T], frozen=True, array_like=True):
    """The base of all questions; `T` is the type of the answer."""

    changes: ClassVar[bool] = False


# --- what there is ---------------------------------------------------------------------------------


class Status(Question[Fields], frozen=True, array_like=True, tag="status"):
    """{"counts": {state: n}, "groups": {id: {state: n}}, "executors": [...], "run"}."""


class Explain(Question[list[str]], frozen=True, array_like=True, tag="explain"):
    """Why a task is where it is, in lines."""

    record: RecordId
    index: Count = 0


class Processors(Question[dict[str, float]], frozen=True, array_like=True, tag="processors"):
    """The cores that are there now, by site."""


class Project(Question[None], frozen=True, array_like=True, tag="project"):
    """Answered once the jobs database has caught up with the journal."""


class Workflows(Question[list[Fields]], frozen=True, array_like=True, tag="workflows"):
    """[{"run", "name", "group", "user", "directory", "closed", "counts", "client"}]."""


class Executors(Question[list[Fields]], frozen=True, array_like=True, tag="executors"):
    """[{"executor", "site", "host", "pid", "cores", "state", "running", ...}]."""


class Statistics(Question[list[Fields]], frozen=True, array_like=True, tag="statistics"):
    """The samples of the last so many seconds, see `server.statistics.Sample`."""

    seconds: Count = 1


class Said(Question[list[Fields]], frozen=True, array_like=True, tag="said"):
    """What running tasks say of themselves."""


class SqlReply(msgspec.Struct, frozen=True):
    """Rows of the jobs database."""

    columns: list[str]
    rows: list[list[Any]]


SqlValue = None | bool | Whole | float | Text


class Sql(Question[SqlReply], frozen=True, array_like=True, tag="sql"):
    """A read-only query of the jobs database."""

    statement: Annotated[str, Meta(max_length=1_000_000)]
    parameters: Annotated[list[SqlValue], Meta(max_length=MOST_PARAMETERS)] = []


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


class Feeds(Question[list[int]], frozen=True, array_like=True, tag="feeds"):
    """Earlier arrays of a body that generators fed, newest first."""

    body: MemoKey


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
    """{"records", "groups"} of the client's workflow, see `server.answers`."""


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


class Output(Question[OutputReply], frozen=True, array_like=True, tag="output"):
    """A part of what a task wrote, wherever it lies, see `server.fetching`."""

    record: RecordId
    index: Count = 0
    stream: StreamName = "stdout"
    offset: Count = 0
    length: Count = 16 << 20
    path: FilePath = ""
    executor: ExecutorId = ExecutorId(0)


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


class Files(Question[list[tuple[str, int, bytes]]], frozen=True, array_like=True, tag="files"):
    """Outputs of the elements [start, stop) of a record that the server keeps, as (path, size, digest)."""

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


class HereBase(msgspec.Struct, frozen=True, tag_field="what"):
    """What a running task asks for or says of itself; also read as JSON from its executor's socket."""


class Attributes(HereBase, frozen=True, tag="attributes"):
    """All attributes: the system's, and the user's own; `past`: also when and where it ran last."""

    past: bool = False


class SetStatus(HereBase, frozen=True, tag="status"):
    """Kept until the task ends and shown by `bough status`; also a sign of life."""

    text: Label = ""


class Progress(HereBase, frozen=True, tag="progress"):
    """How much of it is done; also a sign of life."""

    share: Annotated[float, Meta(ge=0, le=1)]


class Alive(HereBase, frozen=True, tag="alive"):
    """A sign of life, see `Limits.replay`."""


LockName = Annotated[str, Meta(min_length=1, max_length=LONGEST_LOCK, pattern=r"^[^\0]*\Z")]


class Lock(HereBase, frozen=True, tag="lock"):
    """{"taken", "new": it did not have it before, "owner": who has it, if not taken}."""

    name: LockName
    wait: bool = True


class Unlock(HereBase, frozen=True, tag="unlock"):
    """{"freed"}."""

    name: LockName


class Release(HereBase, frozen=True, tag="release"):
    """{"released": who waits for its group could not start before}."""


class Forget(HereBase, frozen=True, tag="forget"):
    """Whoever asked under this number waits no more."""


HereQuestion = Attributes | SetStatus | Progress | Alive | Lock | Unlock | Release | Forget


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
    | Processors
    | Project
    | Workflows
    | Executors
    | Statistics
    | Said
    | Sql
    | Task
    | Memos
    | Feeds
    | Fed
    | Paths
    | Ids
    | Inventory
    | Outcomes
    | Output
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


def check_bounds(message: T) -> T:
    """The message, if its fields are within their bounds; else a `UserError`, before anything is sent."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
    except (msgspec.ValidationError, OverflowError, UnicodeEncodeError) as error:
        reason = in_plain_words(str(error))
        raise UserError(f"{type(message).__name__.lower()}: a value is out of bounds: {reason}") from error
    return message
