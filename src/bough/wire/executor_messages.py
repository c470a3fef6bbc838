"""The messages between a server, or a relay in its place, and an executor: one union per direction.

What every peer says is in `client_messages`, what is said of files in `file_messages`. Rule: as there, a new field has
a default; anything else raises `VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from bough.model.bounds import Count, FilePath, Index, Label, Name, Pid, Text, Word
from bough.model.checkpoints import MOST_SAVED, CheckpointPlan
from bough.model.events.news import WorkNews
from bough.model.ids import BlobId, ExecutorId, RecordId, Seconds, SpanId
from bough.model.monitoring.monitors import MOST_PLANS, Fail, Finish, Restart
from bough.model.outcomes import ResultFile
from bough.model.sites.availability import Grace
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import PilotId
from bough.model.tasks import Kind, Limits, Page
from bough.wire.client_messages import Blob, Challenge, Proof, Refused
from bough.wire.file_messages import FilesToExecutor, FilesToServer
from bough.wire.here_questions import HereQuestion
from bough.wire.probes import ProbeQuestion, ProbeResult

# --- executor -> server ----------------------------------------------------------------------------


class ExecutorHello(msgspec.Struct, frozen=True, array_like=True, tag="xh"):
    """The first message of an executor. `executor` is 0, or its number when it comes back."""

    version: Count
    site: Name
    host: Name
    pid: Pid
    capacity: Needs
    python: Word  # "3.11": functions of another minor version do not come here, commands do
    executor: ExecutorId = ExecutorId(0)
    until: Seconds = 0
    marker: Name = ""  # with a number: of the server that gave it
    members: Count = 1  # executors that it speaks for
    each: Needs | None = None  # of a relay that shares out the work: what the biggest of them has, `capacity` is of all
    together: bool = False  # it takes batches of like tasks, see `RunSpan.batch`
    pilot: PilotId = PilotId(0)  # that started it; 0: somebody did
    attributes: Attributes = ()  # what it says of itself, for requirements: see `model.sites.requirements`


class SpansHeld(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """Said to a service once appointed, behind all unheard reports: the spans that are here, running or queued."""

    spans: list[SpanId]
    shared: bool = True  # it sees the server's store


class SpaceAwaited(msgspec.Struct, frozen=True, array_like=True, tag="full"):
    """Spans whose results or output wait for space on the disk of the store, all of them; none: nothing waits."""

    spans: list[SpanId]


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag="lvg"):
    """It wants no more work and will exit once it has none: it was idle for long, its time is over, it was told to."""

    reason: Text = ""


class Resized(msgspec.Struct, frozen=True, array_like=True, tag="size"):
    """A relay that shares out work has more or fewer executors behind it now; the fields are those of its hello."""

    capacity: Needs
    members: Count
    each: Needs
    until: Seconds = 0


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """It has heard that its reports are written, and asks for work: said only where work may not come with that."""


class OutputRead(msgspec.Struct, frozen=True, array_like=True, tag="fetched"):
    """The answer to `ReadOutput`. `more`: the task still runs, so that more may follow."""

    request: Count
    data: bytes
    more: bool = False
    error: Text = ""
    size: Count = 0  # of all that a running task has written


class ProbeAnswer(msgspec.Struct, frozen=True, array_like=True, tag="probed"):
    """The answer to `ProbeTask`; without a result it says why, and of which kind the error is."""

    request: Count
    result: ProbeResult | None = None
    error: Text = ""
    kind: Word = "SiteError"


class TaskRequest(msgspec.Struct, frozen=True, array_like=True, tag="here"):
    """A running task asks for something, or says something of itself.

    Said again under the same number to a server that came back.
    """

    request: Count
    span: SpanId
    record: RecordId
    index: Count
    attempt: Count
    question: HereQuestion


class Report(msgspec.Struct, frozen=True, array_like=True, tag="rep"):
    """News of spans, in order. Kept by the executor until acknowledged, and sent again on a new connection."""

    number: Count  # 1, 2, 3, ... per executor
    news: list[WorkNews]


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="hb"):
    """Sent when there is nothing else to say for a while."""


FromExecutor = (
    Proof
    | ExecutorHello
    | Report
    | Heartbeat
    | SpansHeld
    | SpaceAwaited
    | Leaving
    | Resized
    | Ready
    | OutputRead
    | ProbeAnswer
    | TaskRequest
    | FilesToServer
)


# --- server -> executor ----------------------------------------------------------------------------


class ExecutorWelcome(msgspec.Struct, frozen=True, array_like=True, tag="app"):
    """The answer to an executor's hello: its number, where outputs go, and what to do without a server."""

    version: Count
    executor: ExecutorId
    output_dir: FilePath  # stdout and stderr of slots, append-only
    result_dir: FilePath  # results too big to send
    spill_dir: FilePath  # reports that could not be delivered, one file per executor
    marker: Name  # goes into the environment of every process as BOUGH_RUN, so that leftovers can be found
    embedded: bool = True  # without a server end running tasks, spill and exit; otherwise go on and reconnect
    store_token: Name = ""  # the content of the file `token` beside `output_dir`: an executor that sees it shares it
    heartbeat: Seconds = 30.0  # seconds of silence after which either side gives the other up
    max_span: Count = 0  # most tasks that a relay which shares out work may send at once; 0: as it sees fit
    piggyback: bool = True  # work may come with an acknowledgement; if not, answer each with `Ready`


class Value(msgspec.Struct, frozen=True, array_like=True):
    """The value of one input: results of the elements [start, stop) of a record.

    Each page is (start, stop, pickled list of their values). `single`: the value itself, else a list. Without pages it
    is the value of the run that this one is behind.
    """

    start: Count
    stop: Count
    pages: list[tuple[Count, Count, bytes | ResultFile]]
    single: bool = True


_MADE_BEFORE = Value(0, 1, [])


MOST_LOOKS = 10_000  # declared inputs of one span that are looked for


class RunSpan(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run a span: its elements one after the other in one slot; a relay that shares out work cuts it up."""

    span: SpanId
    record: RecordId
    start: Index
    stop: Index
    attempt: Count
    kind: Kind
    body: BlobId  # a blob sent before, or empty for a loose command
    is_array: bool = False
    payload: bytes = b""  # loose tasks
    payload_path: FilePath = ""
    table: BlobId = BlobId(b"")  # arrays over a space
    pages: tuple[Page, ...] = ()  # arrays over pages
    star: bool = False
    needs: Needs = Needs()
    limits: Limits = Limits()
    inputs: list[Value] = []
    expected: Seconds = 0
    name: Label = ""
    after_span: SpanId = SpanId(0)  # the run just before: if that succeeds run this in the same worker, else return it
    run: Count = 0  # the workflow of a command whose place was told before; 0: where it says
    # loose tasks like it, by record and payload: their spans have the next numbers, all else is as it says here
    batch: list[tuple[RecordId, bytes]] = []
    chained: bool = False  # each takes the value of the one before as its only input, and runs if that succeeded
    watch: Annotated[tuple[BlobId, ...], Meta(max_length=MOST_PLANS)] = ()  # plans (blobs sent before) that watch it
    checkpoint: CheckpointPlan | None = None
    saved: Annotated[tuple[Index, ...], Meta(max_length=MOST_SAVED)] = ()  # elements whose checkpoint can be asked for
    replica: bool = False  # other attempts of it are running: what they write is left alone
    # declared inputs by element that may have gone: a command that runs in the submitter's directory looks for them
    looks: Annotated[list[tuple[Index, FilePath]], Meta(max_length=MOST_LOOKS)] = []

    @property
    def last(self) -> SpanId:
        """The span that another one must name which is to follow this run, once its tasks are counted in `stop`."""
        return SpanId(self.span + self.stop - 1) if self.chained else self.span


def spread(run: RunSpan) -> Iterator[RunSpan]:
    """A batch of like tasks, as single ones."""
    lead = replace(run, batch=[], chained=False)
    yield lead
    for number, (record, payload) in enumerate(run.batch, run.span + 1):
        one = replace(lead, span=SpanId(number), record=record, payload=payload)
        yield replace(one, after_span=SpanId(number - 1), inputs=[_MADE_BEFORE]) if run.chained else one


class StopElements(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """End elements of a span: queued ones are dropped, running ones get TERM and after `grace` seconds KILL.

    No news of them is expected afterwards (late news is filtered).
    """

    span: SpanId
    start: Count
    stop: Count
    grace: Seconds = 5.0


class ClearOut(msgspec.Struct, frozen=True, array_like=True, tag="clear"):
    """Give back all that is here: what has not begun at once, what runs when it has ended or after `grace` seconds.

    What is ended for it is reported as a failure with the cause `GIVEN_BACK` and this reason. Nothing is sent before
    the site may be used again. Said again it counts anew.
    """

    grace: Grace
    reason: Text = ""


class StayOn(msgspec.Struct, frozen=True, array_like=True, tag="stay"):
    """The site may be used again: what still runs goes on."""


class GiveBacklog(msgspec.Struct, frozen=True, array_like=True, tag="backlog"):
    """Give back what has not begun: it waits behind something long, and another executor has nothing to do."""


class WatchElements(msgspec.Struct, frozen=True, array_like=True, tag="watch"):
    """Watch elements of a span by one more plan, a blob sent before, from now on; what has ended meanwhile is not.

    An executor that came back may hear of a plan twice: one that watches an element already is passed over.
    """

    span: SpanId
    start: Count
    stop: Count
    plan: BlobId


class EndElements(msgspec.Struct, frozen=True, array_like=True, tag="verdict"):
    """End elements of a span that run with a verdict, as a monitor there would; news of their end follows as usual."""

    span: SpanId
    start: Count
    stop: Count
    verdict: Finish | Fail | Restart
    monitor: Name
    reason: Text = ""


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Reports up to this number are written: forget them."""

    number: Count


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """End everything (TERM, after `grace` seconds KILL) and exit."""

    grace: Seconds = 5.0


class Drain(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """Exit once nothing runs or waits any more. To one that is leaving: nothing more will be sent."""


class ReadOutput(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Read from what a task wrote: `path` as reported in its detail, or, while it runs, empty."""

    request: Count
    record: RecordId
    index: Count
    stream: Literal["stdout", "stderr"]
    path: FilePath
    offset: Count  # from the beginning of the task's own output, or of the file when `path` is given
    length: Count


class ProbeTask(msgspec.Struct, frozen=True, array_like=True, tag="probe"):
    """A remote monitor asks something of an attempt that runs; a connection that is lost takes the question along."""

    request: Count
    record: RecordId
    index: Count
    attempt: Count
    question: ProbeQuestion


class TaskAnswer(msgspec.Struct, frozen=True, array_like=True, tag="there"):
    """The answer to `TaskRequest`; with an error it says of which kind."""

    request: Count
    value: dict[str, str | float | int | bool | None] = {}
    error: Text = ""
    kind: Word = ""


ToExecutor = (
    Challenge
    | ExecutorWelcome
    | Refused
    | Blob
    | RunSpan
    | StopElements
    | ClearOut
    | StayOn
    | GiveBacklog
    | WatchElements
    | EndElements
    | Acknowledged
    | Leave
    | Drain
    | ReadOutput
    | ProbeTask
    | TaskAnswer
    | FilesToExecutor
)
