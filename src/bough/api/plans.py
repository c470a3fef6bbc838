"""Submitting a plan: what a description says, as groups and tasks of a session, in bulk.

Nobody holds the tasks of a plan singly, so that they are made and sent by pages, and equal settings, needs and limits
are one object. Rule: a plan is lowered as a whole and looked through, so that a mistake anywhere is found before
anything is submitted; numbers of tasks ascend in the order of the plan's steps.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bough.api.commands import plan_command
from bough.api.identity import Alike
from bough.api.sweeps import command_name
from bough.api.task import Task
from bough.api.texts import check_sendable
from bough.describe.lowering import For, Step, What
from bough.describe.uncollected import uncollected
from bough.errors import BoughError
from bough.model.commands import CommandSettings
from bough.model.facts import GroupClosed
from bough.model.ids import BlobId, GroupId, MemoKey, RecordId
from bough.model.resources import ONE_CORE, Needs
from bough.model.shelltext import needs_shell, plain_words, split_words
from bough.model.tasks import NO_LIMITS, PLAIN, Dep, GroupSpec, Item, Kind, Limits, On, TaskSpec, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bough.api.session import Session
    from bough.describe.plan import PlanTask

_PAGE = 1_000  # items that are sent together
_PAGE_BYTES = 1 << 20
_CLOSED = 4_000  # steps between two messages that close groups: closing splits requests
_ITEM = 200  # bytes of an item, besides its payload
_NO_BODY = BlobId(b"")
_NO_KEY = MemoKey(b"")  # never reused
_ON = {For.TASK: On.TASK, For.RELEASE: On.GROUP, For.END: On.END}
_TASK = On.TASK


def submit_plan(session: Session, steps: Sequence[Step], *, watched: bool = True) -> list[RecordId]:
    """Submit the steps of a plan (see `describe.lowering.steps`); the records of its tasks, in their order.

    `watched`: the session stays, and counts how they end. Else only what is refused is known of them here.
    """
    session.check_open()
    with uncollected():
        _look_through(steps)
        return _Submission(session, steps, watched=watched).run()


def _look_through(steps: Sequence[Step]) -> None:
    """Find what cannot be sent before anything is."""
    for step in steps:
        said = step.task
        if said is not None:
            if said.attributes or not (said.command.isascii() and said.name.isascii()):
                try:
                    check_sendable("the command", said.command)
                    check_sendable("the name", said.name)
                    check_sendable("an attribute", "".join([*said.attributes, *said.attributes.values()]))
                except BoughError as error:
                    raise said.where.wrong(str(error)) from None
        elif step.name:
            check_sendable("a group's name", step.name)


class _Submission:
    def __init__(self, session: Session, steps: Sequence[Step], *, watched: bool) -> None:
        self._session = session
        self._steps = steps
        self._watched = watched
        self._groups: list[GroupId] = [session.root]
        self._records = iter(session.new_records(sum(step.task is not None for step in steps)))
        self._ids: list[RecordId] = []  # of tasks, by their numbers from 1
        self._page: list[Item] = []
        self._size = 0
        self._tasks: dict[int, Task] = {}  # those of the page that are watched
        self._counts: Counter[GroupId] = Counter()  # tasks of the page
        self._closed: list[GroupId] = []
        self._waits: tuple[object, tuple[Dep, ...]] = ((), ())  # the last ones, as steps and as items say them
        self._directory = os.getcwd()
        self._alike: dict[tuple[str, bool, tuple[tuple[str, str], ...]], Alike] = {}
        self._kinds: dict[tuple[float, int, float, int], tuple[Needs, Limits]] = {}

    def run(self) -> list[RecordId]:
        for number, step in enumerate(self._steps, 1):
            if step.what is What.TASK:
                self._submit(step)
            elif step.what is What.OPEN:
                self._open(step)
            else:
                self._closed.append(self._groups[step.number])
            if len(self._page) >= _PAGE or self._size >= _PAGE_BYTES:
                self._send()
            if number % _CLOSED == 0:
                self._close()
        self._close()
        return self._ids

    def _send(self) -> None:
        page, size, self._page, self._size = self._page, self._size, [], 0
        if page:
            self._session.put_page(page, size, self._tasks, self._counts)
            self._tasks, self._counts = {}, Counter()

    def _close(self) -> None:
        self._send()
        if self._closed:
            self._session.post(*map(GroupClosed, self._closed))
            self._closed.clear()

    def _deps(self, step: Step) -> tuple[Dep, ...]:
        waits, deps = self._waits
        if step.waits is not waits:
            ids, groups = self._ids, self._groups
            deps = tuple(
                [
                    Dep(_TASK, ids[number - 1]) if on is For.TASK else Dep(_ON[on], groups[number])
                    for on, number in step.waits
                ]
            )
            self._waits = (step.waits, deps)
        return deps

    def _open(self, step: Step) -> None:
        session, parent = self._session, self._groups[step.group]
        there = session.group_there(parent, step.name)
        group = session.new_group(parent, step.name)
        self._groups.append(group)
        if step.name[0] != "." and there is None:
            session.ledger.progress.group_added(group, parent, step.name)
        if there is not None:
            return
        deps, said = self._deps(step), step.spec
        spec = GroupSpec(group, step.name, parent, deps)
        if said is not None and (said.limit or said.retries or said.timeout or said.attributes):
            attributes = tuple(said.attributes.items())
            spec = GroupSpec(group, step.name, parent, deps, said.limit, said.retries, said.timeout, attributes)
        self._page.append(spec)
        self._size += 100 + 8 * len(deps)

    def _submit(self, step: Step) -> None:
        said, group = step.task, self._groups[step.group]
        assert said is not None
        command = said.command
        try:
            alike, is_text, body = self._command(said)
        except BoughError as error:
            raise said.where.wrong(str(error)) from None
        payload = alike.payload(body, is_text=is_text)
        name = said.name or command_name(command)
        record = next(self._records)
        needs, limits = self._kind(said)
        spec = TaskSpec(
            record,
            Kind.COMMAND,
            _NO_BODY,
            payload,
            group,
            name,
            command[:200],
            needs,
            limits,
            said.priority,
            self._deps(step) if step.waits else (),
            (),
            alike.key(body, is_text=is_text) if said.memo else _NO_KEY,
            "",
            (),
            self._terms(step, said),
        )
        session = self._session
        if session.is_joined:  # it may be there already, by another number, which those that wait for it must know
            self._send()
            task = Task(session.ledger, record, name, group, command=command, writes={})
            session.put_task(task, spec, len(payload), ())
            self._ids.append(RecordId(task.id))
            return
        if self._watched:
            self._tasks[record] = Task(session.ledger, record, name, group, command=command, writes={})
        self._counts[group] += 1
        self._page.append(spec)
        self._size += len(payload) + _ITEM
        self._ids.append(record)

    def _command(self, said: PlanTask) -> tuple[Alike, bool, bytes]:
        """What a command has in common with others, whether it is a text for a shell, and the command itself."""
        words = plain_words(said.command)
        is_text = words is None and needs_shell(said.command)
        key = (said.cwd, is_text, tuple(said.env.items()) if said.env else ())
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Alike(self._settings(said), self._session.directory)
        if words is not None:
            return alike, False, alike.encode([[word] for word in words])
        if is_text:
            return alike, True, alike.encode([said.command])
        return alike, False, alike.encode([[part for part, _ in word] for word in split_words([said.command])])

    def _settings(self, said: PlanTask) -> CommandSettings:
        for name, value in said.env.items():
            check_sendable("env", name + value)
        cwd = os.path.join(self._directory, said.cwd) if said.cwd else self._directory
        check_sendable("cwd", cwd)
        return plan_command(said.command, {}, cwd=cwd, env=said.env or None).call.settings

    def _kind(self, said: PlanTask) -> tuple[Needs, Limits]:
        """What a task needs and what limits it, the same objects for equal tasks."""
        key = (said.cores, said.memory, said.timeout, said.retries)
        found = self._kinds.get(key)
        if found is None:
            needs = Needs(cores=said.cores, memory=said.memory) if said.cores != 1 or said.memory else ONE_CORE
            limits = Limits(timeout=said.timeout, memory=said.memory, retries=said.retries)
            found = self._kinds[key] = (needs, NO_LIMITS if limits == NO_LIMITS else limits)
        return found

    def _terms(self, step: Step, said: PlanTask) -> Terms:
        if not (said.release or said.final or step.near or said.attributes):
            return PLAIN
        near = self._ids[step.near - 1] if step.near else 0
        return Terms(said.release, said.final, near, "", _pairs(said.attributes))


def _pairs(attributes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(attributes.items())
