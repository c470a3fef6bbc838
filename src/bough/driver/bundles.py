"""Bundles: jobs that are submitted as one. What a job is, which bundle it joins, and when that one leaves.

A group's bundle leaves when it has as many jobs as the group's factor says, when nothing was added for a while, or
at a barrier. Without a factor it leaves at the first pause, or after a moment, and how much of it is handed out at
a time follows from measured run times, as for any array. Rule: a bundle is one array, whose elements are its jobs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bough.driver.declared import Declared
from bough.driver.stages import Stage
from bough.errors import UserError
from bough.model.shelltext import needs_shell, split_words

if TYPE_CHECKING:
    from bough.api.array import Array

MOST = 512  # jobs in a bundle of a group without a factor
LONGEST = 0.01  # seconds for which such a bundle takes more while jobs are issued without a pause


class Job(msgspec.Struct, eq=False):
    """One command line: where it is now, and how it ended once that was asked for."""

    key: int
    command: str | Sequence[Any]
    stage: Stage
    producer: object
    label: str
    files: Declared | None = None
    bundle: Bundle | None = None  # that it joined; None: its pipeline is not complete
    index: int = 0  # in the bundle
    place: int = -1  # in its pipeline; -1: it is none's
    code: int | None = None
    is_collected: bool = False  # a barrier has handed its code over


class Pipeline(msgspec.Struct, eq=False):
    """Stages that run one after the other."""

    label: str
    length: int
    group: str
    keep_going: bool
    stages: list[Job]

    def missing(self) -> str:
        """What to tell somebody who waits for it."""
        return (
            f"pipeline {self.label!r} has {len(self.stages)} of its {self.length} stages:"
            " issue the others before waiting for it"
        )


class Group(msgspec.Struct, eq=False):
    """A label, and how its jobs are batched."""

    label: str
    factor: int | None  # None: chosen by Bough
    timeout: float  # seconds after the last job in which an incomplete bundle waits for more


class Bundle(msgspec.Struct, eq=False):
    """Jobs, or whole pipelines, that are submitted together."""

    group: Group
    is_pipelines: bool
    rows: list[list[Job]]  # of jobs: one in each
    begun: float = 0.0  # when the first one was added
    changed: float = 0.0  # when the last one was
    array: Array | None = None  # once it is submitted
    error: Exception | None = None  # why it could not be submitted
    is_cancelled: bool = False  # before it could be submitted
    keep_going: bool = False  # of pipelines: after a stage that failed

    def add(self, jobs: list[Job]) -> None:
        """One more."""
        for job in jobs:
            job.bundle, job.index = self, len(self.rows)
        self.changed = time.monotonic()
        self.begun = self.begun or self.changed
        self.rows.append(jobs)

    @property
    def is_full(self) -> bool:
        """Whether nothing more may join."""
        return len(self.rows) >= (self.group.factor or MOST)

    @property
    def due(self) -> float:
        """When it has waited long enough for more."""
        return self.changed + self.group.timeout if self.group.factor else min(self.changed, self.begun + LONGEST)

    def left(self) -> int:
        """How many of its rows have not ended."""
        if self.array is None:
            return len(self.rows) if self.error is None else 0
        return int(self.array._elements.left)  # type: ignore[attr-defined]


def read_command(command: object) -> list[str]:
    """A command line's words; a text that needs a shell is given to one."""
    import os

    if isinstance(command, str):
        if not command.strip() or "\0" in command:
            raise UserError("the command is empty" if not command.strip() else "the command holds a null character")
        if needs_shell(command):
            return ["/bin/sh", "-c", command]
        return ["".join(str(part) for part, _ in word) for word in split_words([command])]
    if isinstance(command, bytes) or not isinstance(command, Sequence) or not command:
        raise UserError(f"a command is a text or a list of words, not {command!r:.60}")
    try:
        return [os.fsdecode(word) for word in command]
    except TypeError:
        raise UserError(f"a command's words are texts and paths, not {command!r:.60}") from None
