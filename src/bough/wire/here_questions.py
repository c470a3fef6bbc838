"""What running tasks ask for and say of themselves, through their executors: one struct a question.

A task's process sends it as JSON to its executor's socket, the executor in a `TaskRequest` to the server. Rule: every
field has its bounds in its type. This module is light to import, since shell scripts call `bough here` again and again.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import Count, Finite, Label, Name, ShortName

LONGEST_LOCK = 200  # characters of a lock's name
MOST_REPORTED = 64  # metrics that a task can report of itself
LONGEST_SAID = 2_000  # characters of what a task says of itself


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


class Report(HereBase, frozen=True, tag="report"):
    """Numbers of the task, which join its series; its executor tells the server, not of each of them."""

    values: Annotated[dict[ShortName, Finite], Meta(min_length=1, max_length=MOST_REPORTED)]
    step: Finite | None = None  # at which they are; None: they are counted from 1
    total: Count = 0  # steps of a whole run, 0: not known


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


class Counts(HereBase, frozen=True, tag="counts"):
    """{state: how many tasks of its workflow}, and "aborted": whether a task has cancelled all others.

    A group with the attribute `dag_node` counts as one task.
    """


class CancelOthers(HereBase, frozen=True, tag="cancel"):
    """{"cancelled"}: end tasks of its workflow, by their names, or all others but the final ones."""

    names: Annotated[list[Name], Meta(max_length=1000)] = []
    all: bool = False


class Forget(HereBase, frozen=True, tag="forget"):
    """Whoever asked under this number waits no more."""


HereQuestion = (
    Attributes | SetStatus | Progress | Report | Alive | Lock | Unlock | Release | Counts | CancelOthers | Forget
)
