"""All that a turn of the core takes in: news, and what is the same as news and as a fact.

The core adds nothing to runs, executors, submissions and memos that were looked up, so that these have one type.
Rule: executors and clients do without the facts, which take long to load, and so without this module.
"""

from __future__ import annotations

from bough.model.events import facts
from bough.model.events.news import (
    Action,
    Amend,
    FreeLock,
    GroupClosed,
    PagesAdded,
    TakeLock,
    TakeTask,
    TaskAlive,
    WorkNews,
)

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
    | facts.MemoLookedUp
    | facts.Stopping
    | facts.GroupReleased
    | TakeLock
    | FreeLock
    | TaskAlive
)
