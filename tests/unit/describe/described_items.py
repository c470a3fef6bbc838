"""Descriptions as what a client submits, for tests that drive the core or a service without a session."""

from __future__ import annotations

from bough.describe.plan import Plan
from bough.describe.steps import For, Step, What, steps
from bough.model.events.news import GroupClosed
from bough.model.ids import BlobId, GroupId, RecordId
from bough.model.tasks import Dep, GroupSpec, Item, Kind, On, TaskExtras, TaskSpec


class Described:
    """The items of a plan; tasks are numbered from `record`, groups from `group`, within the group `root`."""

    def __init__(self, plan: Plan, *, record: int = 1, group: int = 1, root: int = 0) -> None:
        self._record = record - 1
        self._group = group - 1
        self._root = root
        self.items: list[Item] = []
        self.closed: list[GroupClosed] = []
        self.commands: dict[int, str] = {}  # by record
        self.groups: dict[str, int] = {}  # by name
        for step in steps(plan):
            self._take(step)

    def _group_id(self, number: int) -> GroupId:
        return GroupId(self._group + number if number else self._root)

    def _take(self, step: Step) -> None:
        if step.what is What.CLOSE:
            self.closed.append(GroupClosed(self._group_id(step.number)))
            return
        deps = tuple(
            Dep(On.TASK, self._record + number) if on is For.TASK else Dep(On(int(on)), self._group_id(number))
            for on, number in step.waits
        )
        parent = self._group_id(step.group)
        if step.task is None:
            self.groups[step.name] = self._group_id(step.number)
            self.items.append(GroupSpec(self._group_id(step.number), step.name, parent, deps))
            return
        said, record = step.task, RecordId(self._record + step.number)
        self.commands[record] = said.command
        near = self._record + step.near if step.near else 0
        extras = TaskExtras(release=said.release, same_host_as=near, attributes=tuple(said.attributes.items()))
        command, body = said.command, BlobId(b"")
        self.items.append(TaskSpec(record, Kind.COMMAND, body, b"", parent, command, after=deps, extras=extras))
