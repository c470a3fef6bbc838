"""What arrives: what people ask for, and what executors and the shell say.

What people ask for is an imperative (`Cancel`, `Hold`); what the core decided on it is a fact in the past tense
(`Cancelled`, `Held`), which may say more: all that waits again, or that nobody asked. Rule: news has no field that the
core fills in. Tags are those of the facts that are made of it.
"""

from __future__ import annotations

import msgspec

from bough.model.bounds import Count, Label, Text, Whole
from bough.model.events import facts
from bough.model.ids import GroupId, RecordId, Seconds, SpanId
from bough.model.tasks import Dep, Item


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="can"):
    """Cancel what a dependency-like target names; final at once. `stop` bounds a slice of an array."""

    target: Dep
    stop: Count = 0


class Kill(msgspec.Struct, frozen=True, array_like=True, tag="kil"):
    """End running tasks: their attempt fails, without a retry. What is not running is left alone."""

    target: Dep
    stop: Count = 0
    message: Text = "somebody killed it"


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


class Amend(msgspec.Struct, frozen=True, array_like=True, tag="amd"):
    """Apply a changed description of a running workflow: all of the difference at once."""

    run: Count
    added: list[Item] = []  # groups among them are closed
    changed: list[Item] = []  # what is there, by number, as it is from now on; it stays in its group
    removed: tuple[RecordId, ...] = ()  # tasks that are not part of the workflow any more
    removed_groups: tuple[GroupId, ...] = ()


class CallsEnded(msgspec.Struct, frozen=True, array_like=True, tag="es", gc=False):
    """Tasks of one batch of like ones succeeded: those of the spans from `span + start` up.

    The core makes a `SpanEnded` of each.
    """

    span: SpanId
    start: Count
    seconds: list[Seconds]
    results: list[bytes]  # no big ones: those are reported alone
    host: Label = ""


Action = Cancel | Kill | Hold | Release | Reset | DeclareDone | Retry | Prioritise  # what people ask of tasks

# What executors report. The core fills in what it adds when it makes facts of these.
WorkNews = facts.SpanStarted | facts.SpanEnded | CallsEnded | facts.ElementFailed | facts.SpanReturned

News = (  # all that a turn takes in
    Action
    | Amend
    | WorkNews
    | facts.RunOpened
    | facts.RunClosed
    | facts.RunRemoved
    | facts.RunRetired
    | facts.RunRevived
    | facts.Submitted
    | facts.PagesAdded
    | facts.GroupClosed
    | facts.ExecutorJoined
    | facts.ExecutorLost
    | facts.ExecutorDrained
    | facts.ExecutorResized
    | facts.ExecutorSuspended
    | facts.ExecutorResumed
    | facts.MemoLookedUp
    | facts.Stopping
    | facts.GroupReleased
    | facts.LockTaken
    | facts.LockFreed
    | facts.SpanAlive
)
