"""The messages between client, server and executor: one union per direction.

Every frame is one message, or a list of messages that belong together and are handled in order. A
peer that says something else is cut off with a `ProtocolError`. Rule: a new field has a default;
anything else raises `VERSION`.
"""

from __future__ import annotations

import msgspec

from bough.model.facts import (
    Cancelled,
    ElementFailed,
    GroupClosed,
    Held,
    Killed,
    PagesAdded,
    Prioritised,
    Released,
    Retried,
    SpanEnded,
    SpanReturned,
    SpanStarted,
)
from bough.model.ids import BlobId, ExecutorId, RecordId, Seconds, SpanId
from bough.model.outcomes import Detail, Failure, ResultFile, Results
from bough.model.resources import Needs
from bough.model.tasks import Item, Kind, Limits, Page
from bough.wire.filemessages import FilesToExecutor, FilesToServer

VERSION = 1
MAX_FRAME = 1 << 30  # bytes; bigger things travel as files


# --- both ways -------------------------------------------------------------------------------------


class Blob(msgspec.Struct, frozen=True, array_like=True, tag="blob"):
    """A function, a command template or a parameter space: sent once, named by its digest."""

    id: BlobId
    data: bytes


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="no"):
    """A handshake or request was refused; `kind` names the exception class in `bough.errors`."""

    message: str
    request: int = 0
    kind: str = "UserError"


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag="chal"):
    """What a server says first on a connection that is not a Unix socket: prove who you are, for this nonce."""

    version: int
    nonce: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True, tag="proof"):
    """The answer to a challenge, said just before the hello: that one knows the token of a role."""

    role: str  # "submit", "execute" or "read"
    nonce: bytes  # the peer's own
    mac: bytes  # see `wire.handshake`


# --- client -> server ------------------------------------------------------------------------------


class ClientHello(msgspec.Struct, frozen=True, array_like=True, tag="ch"):
    """The first message of a client. `owner`: the session ends when this connection does.

    A client of a service names its workflow, which is joined if it goes on, or opened; without a name it only asks.
    """

    version: int
    pid: int
    host: str
    owner: bool = False
    workflow: str = ""
    ids: int = 1 << 32  # how many numbers it wants for its records and groups
    fresh: bool = False
    fail_fast: bool = False
    policy: str = ""
    directory: str = ""  # where its commands run
    token: str = ""  # the content of the file `.bough/token` there, by which others see that they share it
    user: str = ""
    join: bool = False  # only a workflow that is there will do


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="sub"):
    """Accept these together or not at all; answered by `Accepted` or `Refused` with the request's number."""

    items: list[Item]
    request: int


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="obs"):
    """Tell this client of every outcome (an owner is subscribed from the start)."""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A question, answered by `Answer` with the same number.

    what                arguments             value
    "status"            -                     {"counts": {state: n}, "groups": {id: {state: n}}, "executors": [...]}
    "explain"           record, index         list of lines
    "memos"             body (a memo key)     earlier arrays of that body that may be reused: [{"record", "length",
                                              "table" (bytes), "pages" [(start, stop, data)], "done" [(start, stop)]}]
    "processors"        -                     {site: cores available now}
    "paths"             -                     list of absolute paths earlier runs of this workflow declared as outputs
    "project"           -                     None, once the jobs database has caught up with the journal
    "ids"               count                 {"first_id", "first_group", "ids"}: more numbers for this workflow
    "inventory"         -                     {"records", "groups"} of the client's workflow, see `server.answers`
    "outcomes"          records               how many of them are known; then all that ended of these is told again
    "workflows"         -                     [{"run", "name", "group", "user", "directory", "closed", "counts", ...}]
    "executors"         -                     [{"executor", "site", "host", "pid", "cores", "state", "running", ...}]
    "sql"               statement, parameters {"columns", "rows"} of the jobs database, read-only
    "output"            see `server.fetching` {"data", "more", "error"}: a part of what a task wrote, wherever it lies
    """

    request: int
    what: str
    arguments: dict[str, object] = {}


class Act(msgspec.Struct, frozen=True, array_like=True, tag="act"):
    """Do something to tasks, arrays or groups; answered by `Answer` with the number of tasks it touched."""

    request: int
    deed: Cancelled | Killed | Held | Released | Retried | Prioritised


class Manage(msgspec.Struct, frozen=True, array_like=True, tag="mng"):
    """Do something to executors or to the service itself; answered by `Answer` with the executors it concerned.

    what: "drain" they finish what they have and leave; "stop" they end all and leave, and others get their tasks;
    "resume" they get work again; "shutdown" the server ends and they go on; "dismiss" they leave and the server ends.
    """

    request: int
    what: str
    executors: list[ExecutorId] = []


class Close(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The owner leaves. `how`: "drain" wait for all, "stop" TERM running tasks and keep the state, "now" KILL them.

    To a service: "detach" leaves the workflow going on, "drain" says that nothing more comes and waits for its end,
    "stop" and "now" cancel what has not ended.
    """

    how: str = "drain"


FromClient = Proof | ClientHello | Blob | Submit | PagesAdded | GroupClosed | Subscribe | Ask | Act | Manage | Close


# --- server -> client ------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="wel"):
    """The answer to a hello: ids from `first_id` up are this client's to give to its records and groups."""

    version: int
    run: int
    first_id: int
    first_group: int
    store: str  # absolute path of the store's directory
    memos: bool = False  # earlier runs may hold results to reuse
    group: int = 0  # the workflow's own group
    joined: bool = False  # the workflow was there before
    embedded: bool = True
    shared: bool = True  # the server sees the client's directory
    ids: int = 1 << 32  # how many numbers are the client's, from `first_id` and from `first_group` up


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="ok"):
    """All requests up to and including this one, and not refused, are stored."""

    request: int


class Outcome(msgspec.Struct, frozen=True, array_like=True, tag="out"):
    """The elements [start, stop) of a record succeeded."""

    record: RecordId
    start: int
    stop: int
    attempt: int
    host: str = ""
    results: Results = None
    details: tuple[Detail, ...] = ()
    reused: bool = False


class Unsuccess(msgspec.Struct, frozen=True, array_like=True, tag="bad"):
    """The elements [start, stop) of a record ended without success. They may be retried by hand later."""

    record: RecordId
    start: int
    stop: int
    attempt: int
    failure: Failure
    host: str = ""
    detail: Detail | None = None


class Running(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Elements were started, or went back to waiting (`attempt` 0)."""

    record: RecordId
    start: int
    stop: int
    attempt: int
    host: str = ""


class GroupDone(msgspec.Struct, frozen=True, array_like=True, tag="gd"):
    """Everything in a closed group has ended."""

    group: int
    failed: bool


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="ans"):
    """The answer to an `Ask` or an `Act`."""

    request: int
    value: object = None


class Notice(msgspec.Struct, frozen=True, array_like=True, tag="note"):
    """Something the user should know now, in one line: the disk is full, and all waits for space."""

    text: str


class Closed(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The last message: the run is closed and the store is clean."""

    reason: str = "done"


ToClient = (
    Challenge | Welcome | Refused | Accepted | Outcome | Unsuccess | Running | GroupDone | Answer | Notice | Closed
)


# --- executor -> server ----------------------------------------------------------------------------


class ExecutorHello(msgspec.Struct, frozen=True, array_like=True, tag="xh"):
    """The first message of an executor. `executor` is 0, or its number when it comes back."""

    version: int
    site: str
    host: str
    pid: int
    capacity: Needs
    python: str  # "3.11": functions need the same minor version
    executor: ExecutorId = ExecutorId(0)
    until: Seconds = 0
    marker: str = ""  # with a number: who appointed it


class Holding(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """Said to a service once appointed, behind all unheard reports: the spans that are here, running or queued."""

    spans: list[SpanId]
    shared: bool = True  # it sees the server's store


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag="lvg"):
    """It wants no more work and will exit once it has none: it was idle for long, its time is over, it was told to."""

    reason: str = ""


class Fetched(msgspec.Struct, frozen=True, array_like=True, tag="fetched"):
    """The answer to `Fetch`. `more`: the task still runs, so that more may follow."""

    request: int
    data: bytes
    more: bool = False
    error: str = ""


class Report(msgspec.Struct, frozen=True, array_like=True, tag="rep"):
    """News of spans, in order. Kept by the executor until acknowledged, and sent again on a new connection."""

    number: int  # 1, 2, 3, ... per executor
    news: list[SpanStarted | SpanEnded | ElementFailed | SpanReturned]


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="hb"):
    """Sent when there is nothing else to say for a while."""


FromExecutor = Proof | ExecutorHello | Report | Alive | Holding | Leaving | Fetched | FilesToServer


# --- server -> executor ----------------------------------------------------------------------------


class Appointed(msgspec.Struct, frozen=True, array_like=True, tag="app"):
    """The answer to an executor's hello: its number, where outputs go, and what to do when the server is gone."""

    version: int
    executor: ExecutorId
    output_dir: str  # stdout and stderr of slots, append-only
    result_dir: str  # results too big to send
    spill_dir: str  # reports that could not be delivered, one file per executor
    marker: str  # goes into the environment of every process as BOUGH_RUN, so that leftovers can be found
    embedded: bool = True  # end running tasks, spill and exit when the server is gone; otherwise go on and reconnect
    store_token: str = ""  # the content of the file `token` beside `output_dir`: an executor that sees it shares it
    heartbeat: Seconds = 30.0  # silence that makes either side believe that the other is gone


class Value(msgspec.Struct, frozen=True, array_like=True):
    """The value of one input: results of the elements [start, stop) of a record.

    Each page is (start, stop, pickled list of their values). `single`: the value itself, else a list. Without pages it
    is the value of the run that this one is behind.
    """

    start: int
    stop: int
    pages: list[tuple[int, int, bytes | ResultFile]]
    single: bool = True


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run a span: its elements one after the other in one slot."""

    span: SpanId
    record: RecordId
    start: int
    stop: int
    attempt: int
    kind: Kind
    body: BlobId  # a blob sent before, or empty for a loose command
    is_array: bool = False
    payload: bytes = b""  # loose tasks
    payload_path: str = ""
    table: BlobId = BlobId(b"")  # arrays over a space
    pages: tuple[Page, ...] = ()  # arrays over pages
    star: bool = False
    needs: Needs = Needs()
    limits: Limits = Limits()
    inputs: list[Value] = []
    expected: Seconds = 0
    name: str = ""
    behind: SpanId = SpanId(0)  # the run just before: if that succeeds run this in the same worker, else return it
    run: int = 0  # the workflow of a command whose place was told before; 0: where it says


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """End elements of a span: queued ones are dropped, running ones get TERM and after `grace` seconds KILL.

    No news of them is expected afterwards (late news is filtered).
    """

    span: SpanId
    start: int
    stop: int
    grace: Seconds = 5.0


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Reports up to this number are written: forget them."""

    number: int


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """End everything (TERM, after `grace` seconds KILL) and exit."""

    grace: Seconds = 5.0


class Drain(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """Exit once nothing runs or waits any more. To one that is leaving: nothing more will be sent."""


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Read from what a task wrote: `path` as reported in its detail, or, while it runs, empty."""

    request: int
    record: RecordId
    index: int
    stream: str  # "stdout" or "stderr"
    path: str
    offset: int  # from the beginning of the task's own output, or of the file when `path` is given
    length: int


ToExecutor = Challenge | Appointed | Refused | Blob | Run | Stop | Heard | Leave | Drain | Fetch | FilesToExecutor
