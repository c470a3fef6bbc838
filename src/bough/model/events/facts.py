"""What was decided: the journal's vocabulary, past tense.

What arrives is `news`; most of it becomes a fact of another type, which the core completes by what it decides or knows.
Rule: applying the facts of a journal in order rebuilds the state; a new field needs a default, any other change raises
`VERSION`. Tags never change.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import (
    Amount,
    Count,
    Digest,
    Excerpt,
    FilePath,
    Finite,
    Label,
    Name,
    Pid,
    QueueName,
    SiteName,
    Text,
    Whole,
    Word,
)
from bough.model.events.news import GroupClosed, PagesAdded
from bough.model.files import FileSpec
from bough.model.ids import ROOT, BlobId, ExecutorId, GroupId, MemoKey, RecordId, Seconds, SpanId
from bough.model.monitoring.monitors import MOST_CHECKPOINTS, Fail, Finish, Restart
from bough.model.monitoring.observations import Observation
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.outcomes import Detail, Failure, Results
from bough.model.reuse_scope import ReuseScope
from bough.model.sites.availability import Grace, SiteRule
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import Cores, Handle, PilotId, SiteSpec
from bough.model.tasks import Dep, Item

VERSION = 4
MOST_RECALLED = 10_000  # members of a population in one fact


class RunOpened(msgspec.Struct, frozen=True, array_like=True, tag="ro"):
    """A run of a workflow began: a session opened its store, or a client came to a service.

    A service has one run of its own, which holds all others: each workflow is a run whose tasks are in one group.
    """

    run: Count
    name: Label
    host: Label
    pid: Pid
    fail_fast: bool = False
    policy: Label = "fifo"
    memos: bool = False  # earlier runs may hold results: look before running
    group: GroupId = ROOT  # its own group, made by this fact unless it is the root
    directory: FilePath = ""  # where its commands run
    token: Label = ""  # by which others see that they share that directory
    user: Label = ""
    reuse: ReuseScope = ReuseScope.ALL  # where a task finds its twin that does not say `always`
    script: Label = ""  # the process that opened it: runs of one script run have the same
    base: Count = 0  # its records are numbered from here, see `model.ids`


class RunRemoved(msgspec.Struct, frozen=True, array_like=True, tag="rr"):
    """A workflow that had ended was removed, with all that was known of its tasks."""

    run: Count


class RunRetired(msgspec.Struct, frozen=True, array_like=True, tag="rt"):
    """A workflow that had ended left the memory of the core; the store has all that was known of it."""

    run: Count


class RunRevived(msgspec.Struct, frozen=True, array_like=True, tag="rv"):
    """A workflow that was retired is in the core again, because a user acts on it."""

    run: Count
    kept: bytes  # see `core.retirement`


class RunClosed(msgspec.Struct, frozen=True, array_like=True, tag="rc"):
    """A run ended; `reason` is "done", "interrupted" or "crashed" (found by the next run).

    A run that was closed as done may be said to be unfinished after all: its script raised an error later.
    """

    run: Count
    reason: Text = "done"
    unfinished: bool = False  # everything has ended, but something failed


class Submitted(msgspec.Struct, frozen=True, array_like=True, tag="sub"):
    """A client submitted items, which are accepted together or not at all."""

    items: list[Item]
    request: Count = 0  # of the connection it came by; 0: no client waits for an answer
    files: tuple[FileSpec, ...] = ()  # filled in by the core: files that are new, or written for the first time


class ExecutorJoined(msgspec.Struct, frozen=True, array_like=True, tag="xj"):
    """An executor is there to be given work."""

    executor: ExecutorId
    site: Label
    host: Label
    pid: Pid
    capacity: Needs
    until: Seconds = 0  # when it will leave, 0: unknown
    members: Count = 1  # executors that it speaks for
    each: Needs | None = None  # of a relay that shares out work: what the biggest of its executors has
    python: Word = ""  # its minor version, as "3.12"; empty: not known, it takes every function
    pilot: PilotId = PilotId(0)  # that started it; 0: somebody did
    attributes: Attributes = ()  # what it says of itself, for requirements


class ExecutorResized(msgspec.Struct, frozen=True, array_like=True, tag="xz"):
    """A relay that shares out work has more or fewer executors behind it."""

    executor: ExecutorId
    capacity: Needs  # of all together
    members: Count
    each: Needs
    until: Seconds = 0


class ExecutorLost(msgspec.Struct, frozen=True, array_like=True, tag="xl"):
    """An executor is gone; what it had is given back."""

    executor: ExecutorId
    reason: Text = ""


class ExecutorSuspended(msgspec.Struct, frozen=True, array_like=True, tag="xs"):
    """An executor gets nothing until a time: too many tasks in a row failed there for reasons of its own."""

    executor: ExecutorId
    until: Seconds
    reason: Text = ""


class ExecutorResumed(msgspec.Struct, frozen=True, array_like=True, tag="xr"):
    """The time is over, or a user said so: it gets work again."""

    executor: ExecutorId


class ExecutorDrained(msgspec.Struct, frozen=True, array_like=True, tag="xd"):
    """An executor shall get nothing new."""

    executor: ExecutorId


class SiteRuleSet(msgspec.Struct, frozen=True, array_like=True, tag="srs"):
    """A user said how the server learns whether a site may be used."""

    site: SiteName
    rule: SiteRule


class SiteLeft(msgspec.Struct, frozen=True, array_like=True, tag="sl"):
    """A site may not be used any more: its executors get nothing, and give back what they have."""

    site: SiteName
    reason: Text = ""
    grace: Grace = 0.0  # seconds that running tasks have
    by_hand: bool = False  # a user said so: only a user says otherwise


class SiteReturned(msgspec.Struct, frozen=True, array_like=True, tag="srt"):
    """A site may be used again."""

    site: SiteName


class SiteDefined(msgspec.Struct, frozen=True, array_like=True, tag="sd"):
    """A user said how pilots are started at a site; again: said so otherwise."""

    site: SiteName
    spec: SiteSpec


class SiteRemoved(msgspec.Struct, frozen=True, array_like=True, tag="srm"):
    """A site has no definition any more, and its pilots are forgotten."""

    site: SiteName


class QueueDefined(msgspec.Struct, frozen=True, array_like=True, tag="qd"):
    """A user made a named queue; again: gave it other limits."""

    queue: QueueName
    spec: QueueSpec


class QueueRemoved(msgspec.Struct, frozen=True, array_like=True, tag="qr"):
    """A named queue has no definition any more."""

    queue: QueueName


class PilotAsked(msgspec.Struct, frozen=True, array_like=True, tag="pa"):
    """A pilot is wanted at a site. Those that were wished for together are one allocation."""

    pilot: PilotId
    site: SiteName
    reason: Excerpt = ""  # why, in the words of the policy
    allocation: PilotId = PilotId(0)  # the first pilot of it; 0: itself
    cores: Cores = 0.0  # that it is to bring, 0: not known
    succeeds: PilotId = PilotId(0)  # the pilot whose place it is to take; 0: it has one of its own


class PilotQueued(msgspec.Struct, frozen=True, array_like=True, tag="pq"):
    """A site has taken a pilot, and calls it by a handle."""

    pilot: PilotId
    handle: Handle


class PilotReleased(msgspec.Struct, frozen=True, array_like=True, tag="prl"):
    """A pilot is not wanted any more: it is withdrawn from its queue, or ended."""

    pilot: PilotId
    reason: Excerpt = ""


class SiteHadRoom(msgspec.Struct, frozen=True, array_like=True, tag="shr"):
    """A site said how many pilots could start there at once."""

    site: SiteName
    pilots: Count


class PilotEnded(msgspec.Struct, frozen=True, array_like=True, tag="pe"):
    """A pilot is not there any more."""

    pilot: PilotId
    reason: Excerpt = ""
    failed: bool = False  # it did not do what it was for: the site gets a rest
    # filled in by the core: core-seconds of its executors in all, until their first task, and of attempts that
    # succeeded and that did not
    usage: tuple[Amount, Amount, Amount, Amount] = (0.0, 0.0, 0.0, 0.0)


class Placed(msgspec.Struct, frozen=True, array_like=True, tag="p", gc=False):
    """A span was given to an executor."""

    span: SpanId
    record: RecordId
    start: Count
    stop: Count
    attempt: Count
    executor: ExecutorId
    backlog: bool = False  # it waits there behind others for its turn
    behind: SpanId = SpanId(0)  # it waits there for this span's task, which it depends on, to succeed


class Replicated(msgspec.Struct, frozen=True, array_like=True, tag="rep", gc=False):
    """One element that an executor has went to another one, too: a replica, an attempt that runs at the same time."""

    span: SpanId
    record: RecordId
    index: Count
    attempt: Count
    executor: ExecutorId
    reason: Excerpt = ""  # why, in the words of the policy


class SpanStarted(msgspec.Struct, frozen=True, array_like=True, tag="s", gc=False):
    """An executor says that elements of a span are running; short tasks end without it."""

    span: SpanId
    start: Count
    stop: Count
    record: RecordId = RecordId(0)
    host: Label = ""  # where, if not on its executor's host but behind a relay


class SpanEnded(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """The elements [start, stop) of a span succeeded."""

    span: SpanId
    start: Count
    stop: Count
    seconds: Seconds  # of run time, all together
    results: Results = None
    details: tuple[Detail, ...] = ()
    record: RecordId = RecordId(0)
    attempt: Count = 0
    executor: ExecutorId = ExecutorId(0)
    key: MemoKey = MemoKey(b"")  # under which a later run may find it; empty: never
    host: Label = ""  # as in `SpanStarted`
    same_as: Count = 0  # it was made again, equal to what this attempt had made: dependents' keys go on with that


class ElementFailed(msgspec.Struct, frozen=True, array_like=True, tag="f", gc=False):
    """One element of a span failed. `retry_at` is the core's decision: < 0 never, else when."""

    span: SpanId
    index: Count
    failure: Failure
    detail: Detail | None = None
    retry_at: Seconds = -1
    record: RecordId = RecordId(0)
    attempt: Count = 0
    executor: ExecutorId = ExecutorId(0)
    gone: bool = False  # its executor is lost, but may still come back with a result
    host: Label = ""  # as in `SpanStarted`


class SpanReturned(msgspec.Struct, frozen=True, array_like=True, tag="ret", gc=False):
    """The elements [start, stop) of a span were given back unstarted: they are ready again."""

    span: SpanId
    start: Count
    stop: Count
    record: RecordId = RecordId(0)


class OutputKept(msgspec.Struct, frozen=True, array_like=True, tag="out", gc=False):
    """What an attempt had written when it was ended from outside. It changes no state: that was decided before."""

    span: SpanId
    record: RecordId
    index: Count
    attempt: Count
    detail: Detail
    host: Label = ""  # as in `SpanStarted`
    executor: ExecutorId = ExecutorId(0)


class Observed(msgspec.Struct, frozen=True, array_like=True, tag="ob", gc=False):
    """What was seen of a running element: monitors that fired, values, trouble of what watches it."""

    span: SpanId  # 0: it was seen in an earlier run, whose success is about to be reused
    record: RecordId
    index: Count
    attempt: Count
    observations: list[Observation]


class CheckpointKept(msgspec.Struct, frozen=True, array_like=True, tag="ck"):
    """The server has the checkpoint of an attempt that ran in a sandbox; the next one begins with it."""

    record: RecordId
    index: Count
    digest: Digest


class MadeAgain(msgspec.Struct, frozen=True, array_like=True, tag="mag"):
    """An output of an element that had succeeded is nowhere any more, and is wanted: the element runs again."""

    record: RecordId
    index: Count
    reason: Excerpt = ""  # which output, and how it was lost
    made: Digest = b""  # of all that it had made; empty: not known


class OutputsSafe(msgspec.Struct, frozen=True, array_like=True, tag="osf"):
    """The outputs of elements that had succeeded before are written back: they are in their places."""

    record: RecordId
    start: Count
    stop: Count


class MonitorsAdded(msgspec.Struct, frozen=True, array_like=True, tag="mon"):
    """Tasks are watched from now on; of a group also those that are still to come."""

    target: Dep
    plan: BlobId
    stop: Count = 0


class EndAsked(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """What runs of some tasks is to be ended with a verdict, as a monitor would; how it ended is a fact of its own."""

    target: Dep
    verdict: Finish | Fail | Restart
    monitor: Name
    reason: Text = ""
    stop: Count = 0
    by_rule: bool = False  # about a population


class RecalledMember(msgspec.Struct, frozen=True, array_like=True):
    """How far a task that was reused had come when it ran."""

    record: RecordId
    index: Count
    attempt: Count
    scores: Annotated[tuple[Finite, ...], Meta(max_length=MOST_CHECKPOINTS)]  # at checkpoints; lower is better
    by_rule: bool = False  # such a rule ended it then


class RuleSet(msgspec.Struct, frozen=True, array_like=True, tag="rul"):
    """From now on a rule decides which tasks of an array or a group need not go on; None: no rule any more."""

    target: Dep
    rule: PopulationRule | None = None
    recalled: tuple[RecalledMember, ...] = ()  # of the tasks that were reused by then; of older journals
    paged: bool = False  # they were told before, in `MembersRecalled`


class MembersRecalled(msgspec.Struct, frozen=True, array_like=True, tag="mrc"):
    """Some of the tasks that were reused before a rule, which is about to be set, was asked for."""

    target: Dep
    rule: PopulationRule
    members: Annotated[tuple[RecalledMember, ...], Meta(max_length=MOST_RECALLED)] = ()
    answers: Count = 0  # of them that no rule had ended, also those without scores
    begins: bool = False  # what was told before for another rule of this population does not count


class RetryDue(msgspec.Struct, frozen=True, array_like=True, tag="rd", gc=False):
    """The wait before another attempt is over."""

    record: RecordId
    index: Count


class Freed(msgspec.Struct, frozen=True, array_like=True, tag="fr"):
    """Tasks that had waited wait for nothing any more, and found no room at once: they are ready.

    The core knows that without it; it is for those that read the journal, such as the jobs database.
    """

    tasks: tuple[tuple[RecordId, RecordId], ...] = ()  # loose ones, from the first to the last of a row of numbers
    parts: tuple[tuple[RecordId, Count, Count], ...] = ()  # of arrays


class MemoLookedUp(msgspec.Struct, frozen=True, array_like=True, tag="rec"):
    """Memos were looked up for the elements [start, stop): found (results of an earlier run) or not."""

    record: RecordId
    start: Count
    stop: Count
    found: bool
    source: RecordId = RecordId(0)  # the record of the earlier run
    source_start: Count = 0
    source_attempt: Count = 0  # source, start and attempt are the success's identity: dependents' keys are made of them
    turn: Count = 0  # the journal row that holds its results and details


class Skipped(msgspec.Struct, frozen=True, array_like=True, tag="nr"):
    """Elements will never run: a dependency failed, the workflow stops at the first failure, or the session closes."""

    record: RecordId
    start: Count
    stop: Count
    failure: Failure


class Cancelled(msgspec.Struct, frozen=True, array_like=True, tag="can"):
    """A user cancelled what a dependency-like target names; final at once. `stop` bounds a slice of an array."""

    target: Dep
    stop: Count = 0


class Killed(msgspec.Struct, frozen=True, array_like=True, tag="kil"):
    """A user killed running tasks: their attempt fails, without a retry. What is not running is left alone."""

    target: Dep
    stop: Count = 0
    message: Text = "killed by a user"


class Held(msgspec.Struct, frozen=True, array_like=True, tag="hld"):
    """What is not running yet shall not start."""

    target: Dep
    stop: Count = 0
    disabled: bool = False  # a group is named disabled: only `Released` says otherwise, and people are told so


class Released(msgspec.Struct, frozen=True, array_like=True, tag="rel"):
    """What was held may start."""

    target: Dep
    stop: Count = 0
    enabled: bool = False  # of groups only those that were disabled


class WasReset(msgspec.Struct, frozen=True, array_like=True, tag="rst"):
    """A user asked that what has ended is as if it had not started; dependents that had not started wait again."""

    target: Dep
    stop: Count = 0
    cascade: bool = False  # dependents that had started are reset, too
    parts: tuple[tuple[RecordId, Count, Count], ...] = ()  # all that waits again


class Retried(msgspec.Struct, frozen=True, array_like=True, tag="ret2"):
    """A user asked that what failed, was cancelled or skipped is tried again."""

    target: Dep
    stop: Count = 0
    automatic: bool = False  # no user asked: it is one of the retries of a group


class Amended(msgspec.Struct, frozen=True, array_like=True, tag="amd"):
    """The description of a workflow that goes on was changed and submitted again: all of the difference at once."""

    run: Count
    added: list[Item] = []  # groups among them are closed
    changed: list[Item] = []  # what is there, by number, as it is from now on; it stays in its group
    removed: tuple[RecordId, ...] = ()  # tasks that are not part of the workflow any more
    removed_groups: tuple[GroupId, ...] = ()
    parts: tuple[tuple[RecordId, Count, Count], ...] = ()  # all that had started and waits again


class Prioritised(msgspec.Struct, frozen=True, array_like=True, tag="pri"):
    """A priority was changed."""

    target: Dep
    priority: Whole


class GroupReleased(msgspec.Struct, frozen=True, array_like=True, tag="gr"):
    """A task in a group said that what waits for the group may start."""

    group: GroupId


class LockTaken(msgspec.Struct, frozen=True, array_like=True, tag="lt"):
    """A running task owns a named lock, until it frees it or is with its executor no more."""

    name: Label
    span: SpanId
    index: Count
    record: RecordId = RecordId(0)


class LockFreed(msgspec.Struct, frozen=True, array_like=True, tag="lf"):
    """The owner of a lock needs it no more. What frees it otherwise is told of the owner, not of the lock."""

    name: Label
    span: SpanId
    index: Count
    record: RecordId = RecordId(0)


class SpanAlive(msgspec.Struct, frozen=True, array_like=True, tag="sw", gc=False):
    """A task of a span gave a sign of life; told only of tasks that are sent again after a silence."""

    span: SpanId
    record: RecordId = RecordId(0)


class Stopping(msgspec.Struct, frozen=True, array_like=True, tag="stp"):
    """Nothing new is placed any more; what waits will not run in this run."""


Fact = (
    RunOpened
    | RunClosed
    | RunRemoved
    | RunRetired
    | RunRevived
    | Submitted
    | PagesAdded
    | GroupClosed
    | ExecutorJoined
    | ExecutorLost
    | ExecutorDrained
    | ExecutorResized
    | ExecutorSuspended
    | ExecutorResumed
    | SiteRuleSet
    | SiteLeft
    | SiteReturned
    | SiteDefined
    | QueueDefined
    | QueueRemoved
    | SiteRemoved
    | PilotAsked
    | PilotQueued
    | PilotReleased
    | PilotEnded
    | SiteHadRoom
    | Placed
    | Replicated
    | SpanStarted
    | SpanEnded
    | ElementFailed
    | SpanReturned
    | OutputKept
    | Observed
    | MonitorsAdded
    | CheckpointKept
    | MadeAgain
    | OutputsSafe
    | EndAsked
    | RuleSet
    | MembersRecalled
    | RetryDue
    | Freed
    | MemoLookedUp
    | Skipped
    | Cancelled
    | Killed
    | Held
    | Released
    | WasReset
    | Amended
    | Retried
    | Prioritised
    | Stopping
    | GroupReleased
    | LockTaken
    | LockFreed
    | SpanAlive
)

encode_facts = msgspec.msgpack.Encoder().encode
decode_facts = msgspec.msgpack.Decoder(list[Fact]).decode
