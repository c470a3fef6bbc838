"""The messages between client, server and executor: one union per direction.

Every frame is one message, or a list of messages that belong together and are handled in order. A
peer that says something else is cut off with a `ProtocolError`. Rule: a new field has a default;
anything else raises `VERSION`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from bough.model.bounds import Amount, Count, FilePath, Label, Name, Pid, Text, Word
from bough.model.events.news import Action, GroupClosed, PagesAdded
from bough.model.ids import BlobId, ExecutorId, RecordId
from bough.model.monitoring.observations import Observation
from bough.model.outcomes import Detail, Failure, Results
from bough.model.reuse_scope import ALWAYS, ReuseMode, ReuseScope
from bough.model.tasks import Item
from bough.wire.questions import AnyQuestion

VERSION = 5
MAX_FRAME = 1 << 30  # bytes; bigger things travel as files


# --- both ways -------------------------------------------------------------------------------------


class Blob(msgspec.Struct, frozen=True, array_like=True, tag="blob"):
    """A function, a command template or a parameter space: sent once, named by its digest."""

    id: BlobId
    data: bytes


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="no"):
    """A handshake or request was refused; `kind` names the exception class in `bough.errors`."""

    message: Text
    request: Count = 0
    kind: Word = "UserError"


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag="chal"):
    """What a server says first on a connection that is not a Unix socket: prove who you are, for this nonce."""

    version: Count
    nonce: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True, tag="proof"):
    """The answer to a challenge, said just before the hello: that one knows the token of a role."""

    role: Word  # "submit", "execute" or "read"
    nonce: bytes  # the peer's own
    mac: bytes  # see `wire.handshake`


# --- client -> server ------------------------------------------------------------------------------


class ClientHello(msgspec.Struct, frozen=True, array_like=True, tag="ch"):
    """The first message of a client. `owner`: the session ends when this connection does.

    A client of a service names its workflow, which is joined if it goes on, or opened; without a name it only asks.
    """

    version: Count
    pid: Pid
    host: Name
    owner: bool = False
    workflow: Name = ""
    ids: Count = 1 << 32  # how many numbers it wants for its records and groups
    fresh: bool = False
    fail_fast: bool = False
    policy: Word = ""
    directory: FilePath = ""  # where its commands run
    token: Name = ""  # the content of the file `.bough/token` there, by which others see that they share it
    user: Name = ""
    join: bool = False  # only a workflow that is there will do
    reuse: ReuseMode = ALWAYS  # which earlier runs count; `fresh` is "never" of an earlier version
    script: Label = ""  # the process that opens it, and when that began


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="sub"):
    """Accept these together or not at all; answered by `Accepted` or `Refused` with the request's number."""

    items: list[Item]
    request: Count


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="obs"):
    """Tell this client of every outcome (an owner is subscribed from the start)."""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A question, answered by `Answer` with the same number, or by `Refused`; see `wire.questions`."""

    request: Count
    question: AnyQuestion


class DoAction(msgspec.Struct, frozen=True, array_like=True, tag="act"):
    """Do something to tasks, arrays or groups; the `Answer` says how many tasks it touched and what it left out."""

    request: Count
    deed: Action


class Amend(msgspec.Struct, frozen=True, array_like=True, tag="amd"):
    """Make the client's workflow, in which nothing more was to come, what these items say: all of its description.

    Numbers of the items are the client's own; what is there already keeps the ones it has. Answered, once it is stored,
    by `Answer` with names of what is different and the numbers of all tasks (see `server.service.workflows`), or by
    `Refused`, and then nothing has changed.
    """

    request: Count
    items: list[Item]
    directory: FilePath = ""  # where its commands run
    dry: bool = False  # only say what would be different
    watched: bool = (
        False  # the client will ask for outcomes, and is not told of the workflow's end before it knows them
    )


Management = Literal["drain", "stop", "resume", "shutdown", "dismiss"]
Farewell = Literal["drain", "stop", "now", "detach"]


class ManageService(msgspec.Struct, frozen=True, array_like=True, tag="mng"):
    """Do something to executors or to the service itself; answered by `Answer` with the executors it concerned.

    what: "drain" they finish what they have and leave; "stop" they end all and leave, and others get their tasks;
    "resume" they get work again; "shutdown" the server ends and they go on; "dismiss" they leave and the server ends.
    """

    request: Count
    what: Management
    executors: list[ExecutorId] = []


class CloseSession(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The owner leaves. `how`: "drain" wait for all, "stop" TERM running tasks and keep the state, "now" KILL them.

    To a service: "detach" leaves the workflow going on, "drain" says that nothing more comes and waits for its end,
    "stop" and "now" cancel what has not ended.
    """

    how: Farewell = "drain"


FromClient = (
    Proof
    | ClientHello
    | Blob
    | Submit
    | PagesAdded
    | GroupClosed
    | Subscribe
    | Ask
    | DoAction
    | Amend
    | ManageService
    | CloseSession
)
FromReader = Ask | Subscribe | CloseSession  # what the role "read" may say of these; its questions change nothing


# --- server -> client ------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="wel"):
    """The answer to a hello: ids from `first_id` up are this client's to give to its records and groups."""

    version: Count
    run: Count
    first_id: Count
    first_group: Count
    store: FilePath  # absolute path of the store's directory
    memos: bool = False  # earlier runs may hold results to reuse
    group: Count = 0  # the workflow's own group
    joined: bool = False  # the workflow was there before
    embedded: bool = True
    shared: bool = True  # the server sees the client's directory
    ids: Count = 1 << 32  # how many numbers are the client's, from `first_id` and from `first_group` up
    closed: bool = False  # nothing more was to come into the workflow that is joined
    reuse: ReuseScope = ReuseScope.ALL  # where tasks look that do not say `always`


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="ok"):
    """All requests up to and including this one, and not refused, are stored."""

    request: Count


class TasksSucceeded(msgspec.Struct, frozen=True, array_like=True, tag="out", gc=False):
    """The elements [start, stop) of a record succeeded."""

    record: RecordId
    start: Count
    stop: Count
    attempt: Count
    host: Label = ""
    results: Results = None
    details: tuple[Detail, ...] = ()
    reused: bool = False


class TasksFailed(msgspec.Struct, frozen=True, array_like=True, tag="bad"):
    """The elements [start, stop) of a record ended without success. They may be retried by hand later."""

    record: RecordId
    start: Count
    stop: Count
    attempt: Count
    failure: Failure
    host: Name = ""
    detail: Detail | None = None


class TasksRunning(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Elements were started, or went back to waiting (`attempt` 0)."""

    record: RecordId
    start: Count
    stop: Count
    attempt: Count
    host: Name = ""
    ended: Count = 0  # the attempt that failed, if the element is tried again
    detail: Detail | None = None  # of that attempt


class TasksObserved(msgspec.Struct, frozen=True, array_like=True, tag="seen"):
    """Something was seen of a running task: a monitor fired, values of metrics, trouble of what watches it."""

    record: RecordId
    index: Count
    attempt: Count
    observations: list[Observation]


class GroupFinished(msgspec.Struct, frozen=True, array_like=True, tag="gd"):
    """Everything in a closed group has ended."""

    group: Count
    failed: bool


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="ans"):
    """The answer to an `Ask` or an `DoAction`."""

    request: Count
    value: object = None


class UserNotice(msgspec.Struct, frozen=True, array_like=True, tag="note"):
    """Something the user should know now, in one line: the disk is full, and all waits for space."""

    text: Text


class ProcessorsChanged(msgspec.Struct, frozen=True, array_like=True, tag="cores"):
    """The cores that are there now, by site, for a client that follows them."""

    cores: dict[Name, Amount]


class Closed(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The last message: the run is closed and the store is clean."""

    reason: Text = "done"


ToClient = (
    Challenge
    | Welcome
    | Refused
    | Accepted
    | TasksSucceeded
    | TasksFailed
    | TasksRunning
    | TasksObserved
    | GroupFinished
    | Answer
    | UserNotice
    | ProcessorsChanged
    | Closed
)
