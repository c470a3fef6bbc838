"""Changing a workflow that goes on: its whole description is said again, and the server applies the difference.

Rule: a description is drafted as it would be submitted; nothing of it counts here before the server has answered.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from bough.api.plans import submit_plan
from bough.api.task import Task
from bough.model.ids import GroupId, RecordId
from bough.model.tasks import GroupSpec, Item, TaskSpec
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.remote import RemoteSession
    from bough.api.session import Session
    from bough.describe.lowering import Step


class Names(msgspec.Struct, frozen=True):
    """Groups that are different, by their paths."""

    added: list[str] = []
    changed: list[str] = []
    removed: list[str] = []


class Amendment(msgspec.Struct, frozen=True):
    """What a description made of a workflow, or would make: tasks by their paths."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int
    again: list[str]  # of those not changed: what had started, and is run again because of what it depends on
    retried: int  # that had not succeeded, and are tried again
    groups: Names
    ids: list[int] = []  # of all tasks, in the order of the description
    group_ids: list[int] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing is different."""
        groups = self.groups
        some = (self.added, self.changed, self.removed, groups.added, groups.changed, groups.removed)
        return not (self.retried or any(some))

    def line(self) -> str:
        """For people."""
        text = (
            f"{len(self.added)} added, {len(self.changed)} changed, {len(self.removed)} removed,"
            f" {self.unchanged} unchanged"
        )
        groups = self.groups
        counts = {"added": groups.added, "changed": groups.changed, "removed": groups.removed}
        if self.again:
            text += f", {len(self.again)} of them run again"
        if some := ", ".join(f"{len(names)} {what}" for what, names in counts.items() if names):
            text += f"; groups: {some}"
        return f"{text}; {self.retried} tried again" if self.retried else text

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return {key: value for key, value in found.items() if key not in {"ids", "group_ids"}}


def amend_plan(session: RemoteSession, steps: Sequence[Step], *, dry: bool = False, watched: bool = False) -> Amendment:
    """Make the workflow that a session joined, and into which nothing more was to come, what a plan says.

    `dry`: only ask what would be different. `watched`: the session stays, and counts how the tasks end.
    """
    draft = _Draft(session)
    submit_plan(cast("Session", draft), steps, watched=False)
    said = session.connection.amend(draft.items, session.directory, dry=dry, watched=watched and not dry)
    found = msgspec.convert(said, Amendment)
    if watched and not dry:
        _watch(session, draft.items, found, [step.task.command for step in steps if step.task is not None])
    return found


def _watch(session: RemoteSession, items: Sequence[Item], found: Amendment, commands: Sequence[str]) -> None:
    """Count the tasks of the workflow as the session's own, and hear of their ends."""
    ledger, groups = session.ledger, {session.root: session.root}
    numbers = iter(found.group_ids)
    for item in items:
        if isinstance(item, GroupSpec):
            group, parent = GroupId(next(numbers)), groups[item.parent]
            groups[item.id] = group
            if item.name[0] != "." and session.group_there(parent, item.name) is None:
                ledger.progress.group_added(group, parent, item.name)
    specs = [item for item in items if isinstance(item, TaskSpec)]
    for spec, number, command in zip(specs, found.ids, commands, strict=True):
        group = groups[spec.group]
        ledger.tasks[number] = Task(ledger, number, spec.name, group, command=command)
        ledger.progress.added(group, 1)
    session.ask(questions.Outcomes([(RecordId(number), 0) for number in found.ids]))


class _Silent:
    """Progress that nobody sees: the tasks of a draft are not there yet."""

    def group_added(self, group: int, parent: int, name: str) -> None:
        """It may never be."""


class _DraftLedger:
    progress = _Silent()


class _Draft:
    """What `submit_plan` takes for a session that has nothing yet, and keeps all that is put into it."""

    is_joined = False

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._groups = itertools.count(session.welcome.first_group)
        self.root = session.root
        self.directory = session.directory
        self.ledger = _DraftLedger()
        self.items: list[Item] = []

    def check_open(self) -> None:
        """As the session's own."""
        self._session.check_open()

    def new_records(self, count: int) -> list[RecordId]:
        """Numbers that are the session's."""
        return self._session.new_records(count)

    def new_group(self, parent: int, name: str) -> GroupId:
        """A number that is the session's."""
        return GroupId(next(self._groups))

    def group_there(self, parent: int, name: str) -> None:
        """The server finds out what is there."""

    def put_page(self, items: list[Item], size: int, tasks: Mapping[int, Task], counts: Mapping[GroupId, int]) -> None:
        """Keep the items."""
        self.items += items

    def post(self, *messages: object) -> None:
        """All groups of a description are closed: that need not be said."""
