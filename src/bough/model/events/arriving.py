"""All that a turn of the core takes in: news, and what is the same as news and as a fact.

The core adds nothing to runs, executors, submissions and memos that were looked up, so that these have one type. What
was seen of tasks that are reused comes with the memo that was found, in one piece: see `Recalled`.
Rule: executors and clients do without the facts, which take long to load, and so without this module.
"""

from __future__ import annotations

import msgspec

from bough.model.events import facts
from bough.model.events.news import (
    Action,
    Amend,
    DataNews,
    FreeLock,
    GroupClosed,
    OutputLost,
    OutputsWritten,
    PagesAdded,
    TakeLock,
    TakeTask,
    TaskAlive,
    WorkNews,
)


class Recalled(msgspec.Struct, frozen=True, array_like=True, tag="rcl"):
    """A memo was found of tasks that were watched or reported numbers; `seen` is told as if they did so again."""

    found: facts.MemoLookedUp
    seen: list[facts.Observed]  # of the new record, in order


News = (  # all that a turn takes in
    Action
    | Amend
    | TakeTask
    | WorkNews
    | facts.RunOpened
    | facts.RunClosed
    | facts.RunRemoved
    | facts.RunRetired
    | facts.RunRevived
    | facts.Submitted
    | PagesAdded
    | GroupClosed
    | facts.ExecutorJoined
    | facts.ExecutorLost
    | facts.ExecutorDrained
    | facts.ExecutorResized
    | facts.ExecutorSuspended
    | facts.ExecutorResumed
    | facts.SiteRuleSet
    | facts.SiteLeft
    | facts.SiteReturned
    | facts.CheckpointKept
    | facts.SiteDefined
    | facts.QueueDefined
    | facts.QueueRemoved
    | facts.SiteRemoved
    | facts.PilotQueued
    | facts.PilotEnded
    | facts.SiteHadRoom
    | facts.MemoLookedUp
    | Recalled
    | facts.MembersRecalled
    | facts.Stopping
    | facts.GroupReleased
    | TakeLock
    | FreeLock
    | TaskAlive
    | DataNews
    | OutputLost
    | OutputsWritten
)
