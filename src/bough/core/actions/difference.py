"""What is different between a workflow that goes on and a description of it: both matched by names, from the top.

A group is the one of its name in the same place; a task the one of its name in the same group. Of several tasks of one
name (commands without a name) those with equal commands are the same, and the rest are the same in their order.
Rule: looks and changes nothing; linear in the workflow and the description.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from bough.core.graph.submission import run_opened
from bough.core.graph.validation import check_queues, check_submission
from bough.core.growth import is_like
from bough.core.records.array_record import Record
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.events import facts
from bough.model.events.news import Amend
from bough.model.ids import GroupId, RecordId, number_of
from bough.model.tasks import NO_EXTRAS, Dep, GroupSpec, Item, TaskExtras, TaskSpec

replace = msgspec.structs.replace


class Difference(NamedTuple):
    """What a description makes of a workflow. Names are paths, from the workflow on."""

    news: Amend
    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int  # tasks
    added_groups: list[str]
    changed_groups: list[str]
    removed_groups: list[str]
    ids: list[RecordId]  # of all tasks of the description, in its order
    group_ids: list[GroupId]
    whole: list[Item]  # the description, with the numbers that things have there

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        found = self.news
        return not (found.added or found.changed or found.removed or found.removed_groups)


def why_wrong(state: State, workflow: Workflow, items: Sequence[Item]) -> str | None:
    """What is wrong with a description taken by itself: unknown references, names that are there twice, cycles."""
    if not all(isinstance(item, TaskSpec | GroupSpec) for item in items):
        return "a description has no arrays"
    description = facts.Submitted(list(items))
    return check_submission(alone(state, workflow), description, replayed=True) or check_queues(state, items)


def alone(state: State, workflow: Workflow) -> State:
    """A state that holds nothing but a workflow, in which nothing is yet."""
    made = State(state.policies)
    run_opened(made, None, facts.RunOpened(workflow.run, workflow.name, "", 0, group=GroupId(workflow.group.id)))
    return made


def why_taken(state: State, change: Amend) -> str | None:
    """Whether something new has a number that something else has."""
    for item in change.added:
        if item.id in (state.groups if isinstance(item, GroupSpec) else state.records):
            return f"the id {number_of(item.id)} is taken"
    return None


def find_difference(workflow: Workflow, items: Sequence[Item]) -> Difference:
    """Compare; the items are the whole description, with numbers of their own, groups before what is in them."""
    return _Comparison(workflow, items).difference()


class _Comparison:
    def __init__(self, workflow: Workflow, items: Sequence[Item]) -> None:
        self.workflow = workflow
        self.items = items
        self.there: dict[int, GroupRecord] = {group.id: group for group in _groups(workflow.group)}
        self.groups: dict[int, int] = {workflow.group.id: workflow.group.id}  # numbers there by those of the items
        self.records: dict[int, int] = {}
        self.paths: dict[int, str] = {workflow.group.id: ""}  # by the numbers of the items
        self.tasks: dict[int, TaskRecord] = {}  # those there that are in the description, by the numbers of the items
        self._match_groups()
        self._match_tasks()
        self._number_new_tasks()

    # --- matching ---------------------------------------------------------------------------------------

    def _match_groups(self) -> None:
        named = {(int(above.id), one.name): one.id for one in self.there.values() if (above := one.parent) is not None}
        for item in self.items:
            if isinstance(item, GroupSpec):
                there = named.get((self.groups[item.parent], item.name))
                self.groups[item.id] = item.id if there is None else there
                self.paths[item.id] = _join(self.paths[item.parent], item.name)

    def _match_tasks(self) -> None:
        said: dict[tuple[int, str], list[TaskSpec]] = {}
        for item in self.items:
            if isinstance(item, TaskSpec):
                self.records[item.id] = item.id
                said.setdefault((self.groups[item.group], item.name), []).append(item)
        known: dict[tuple[int, str], list[TaskRecord]] = {}
        for record in self.workflow.group.records():
            assert isinstance(record, TaskRecord)
            known.setdefault((record.group.id, record.shared_spec.name), []).append(record)
        for place, specs in said.items():
            there = known.get(place)
            if there is None:
                continue
            same = [(specs[0], there[0])] if len(specs) == len(there) == 1 else _pairs(specs, there)
            for spec, record in same:
                self.records[spec.id] = record.id
                self.tasks[spec.id] = record

    def _number_new_tasks(self) -> None:
        """New tasks take the first of the numbers that the description came with, so that none are left out."""
        tasks = [item for item in self.items if isinstance(item, TaskSpec)]
        new = (item.id for item in tasks if item.id not in self.tasks)
        self.records.update(zip(new, sorted(item.id for item in tasks), strict=False))

    # --- what came of it --------------------------------------------------------------------------------

    def difference(self) -> Difference:
        found = Difference(Amend(self.workflow.run), [], [], [], 0, [], [], [], [], [], [])
        added: list[Item] = []
        changed: list[Item] = []
        unchanged = 0
        for item in self.items:
            if isinstance(item, GroupSpec):
                self._compare_group(item, found, added, changed)
                continue
            assert isinstance(item, TaskSpec)
            found.ids.append(RecordId(self.records[item.id]))
            record = self.tasks.get(item.id)
            if record is not None and self._is_same(item, record):
                found.whole.append(record.spec)
                unchanged += 1
                continue
            spec = self._as_there(item)
            (added if record is None else changed).append(spec)
            (found.added if record is None else found.changed).append(_join(self.paths[item.group], item.name))
            found.whole.append(spec)
        kept, kept_groups = set(self.records.values()), set(self.groups.values())
        gone = [record for record in self.workflow.group.records() if record.id not in kept]
        lost = [group for group in self.there.values() if group.id not in kept_groups]
        change = Amend(
            self.workflow.run,
            added,
            changed,
            tuple(RecordId(record.id) for record in gone),
            tuple(GroupId(group.id) for group in lost),
        )
        return found._replace(
            news=change,
            unchanged=unchanged,
            removed=[path_of(record) for record in gone],
            removed_groups=[group.path for group in lost if not _is_hidden(group.name)],
        )

    def _compare_group(self, item: GroupSpec, found: Difference, added: list[Item], changed: list[Item]) -> None:
        spec = replace(
            item,
            id=GroupId(self.groups[item.id]),
            parent=GroupId(self.groups[item.parent]),
            after=tuple(map(self._dep, item.after)),
        )
        found.group_ids.append(spec.id)
        found.whole.append(spec)
        there = self.there.get(spec.id)
        if there is None:
            added.append(spec)
        elif not _is_same_group(spec, there):
            changed.append(spec)
        else:
            return
        if not _is_hidden(item.name):
            (found.added_groups if there is None else found.changed_groups).append(self.paths[item.id])

    def _as_there(self, item: TaskSpec) -> TaskSpec:
        """A task of the description with the numbers that things have there."""
        return replace(
            item,
            id=RecordId(self.records[item.id]),
            group=GroupId(self.groups[item.group]),
            after=tuple(map(self._dep, item.after)),
            extras=self._terms(item),
        )

    def _is_same(self, item: TaskSpec, record: TaskRecord) -> bool:
        """What follows from a command, such as its key, need not be compared."""
        like, own = record.shared_spec, record.own
        if not (item.payload == record.payload and is_like(item, like) and item.priority == like.priority):
            return False
        if own is None:
            return not item.after and item.extras == NO_EXTRAS
        return self._terms(item) == own.extras and self._waits_alike(item.after, own.after)

    def _waits_alike(self, said: tuple[Dep, ...], there: tuple[Dep, ...]) -> bool:
        if len(said) == len(there) == 1:
            one, other = said[0], there[0]
            number = (self.groups if one.is_group else self.records)[one.id]
            return number == other.id and one.on is other.on
        return set(map(self._dep, said)) == set(there)

    def _terms(self, item: TaskSpec) -> TaskExtras:
        extras = item.extras
        return replace(extras, same_host_as=self.records.get(extras.same_host_as, 0)) if extras.same_host_as else extras

    def _dep(self, dep: Dep) -> Dep:
        return replace(dep, id=(self.groups if dep.is_group else self.records)[dep.id])


def _pairs(specs: list[TaskSpec], there: list[TaskRecord]) -> Iterator[tuple[TaskSpec, TaskRecord]]:
    """Which of the tasks of one name in one group are which: those with equal commands, then the rest in order."""
    equal: dict[bytes, deque[TaskRecord]] = {}
    for record in there:
        equal.setdefault(record.payload, deque()).append(record)
    others: list[TaskSpec] = []
    for spec in specs:
        if same := equal.get(spec.payload):
            yield spec, same.popleft()
        else:
            others.append(spec)
    left = sorted((record for some in equal.values() for record in some), key=lambda record: record.id)
    yield from zip(others, left, strict=False)


def _is_same_group(spec: GroupSpec, there: GroupRecord) -> bool:
    own = (spec.limit, spec.retries, spec.timeout, spec.attributes)
    theirs = (there.limit, there.retries, there.timeout, there.attributes)
    return own == theirs and set(spec.after) == set(there.after)


def _groups(group: GroupRecord) -> Iterable[GroupRecord]:
    yield group
    for child in group.children:
        yield from _groups(child)


def path_of(record: Record) -> str:
    """The path of a task: that of its group, and its name."""
    return _join(record.group.path, record.spec.name)


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _is_hidden(name: str) -> bool:
    """Whether a group is there only for the sake of its dependencies."""
    return name.startswith(".")
