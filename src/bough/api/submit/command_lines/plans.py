"""Submits whole descriptions in bulk, and the difference when one is submitted again.

The tasks of a plan are not held singly, so they are made and sent by pages, and equal settings, needs and limits are
one object. For a workflow that is running, the whole description is said again (`amend_plan`), and the server applies
the difference.

Rules: a plan is looked through as a whole, so that a mistake anywhere is found before anything is submitted. Numbers
of tasks ascend in the order of the plan's steps. A description is drafted as it would be submitted; nothing of it
counts here before the server has answered.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from bough.api.file_table import FileTable
from bough.api.futures.task import Task
from bough.api.memo.content_keys import Alike
from bough.api.pickling import check_sendable
from bough.api.submit.command_lines.command_plan import plan_command
from bough.api.submit.command_lines.commands import DeclaredCommand, command_name, declare_command, sites_of
from bough.api.submit.command_lines.declared_text import plan_with_files
from bough.api.submit.command_lines.transfers import check_transfers
from bough.api.submit.group_table import WatchedGroups
from bough.api.submit.task_options.options import NO_PLAN, TaskOptions, read_options
from bough.describe.plan import file_path, made_place, without_gc
from bough.describe.steps import For, Step, What
from bough.errors import BoughError
from bough.model.commands.command import CommandSettings, OnClash, Transfer
from bough.model.commands.playpens import local_place
from bough.model.commands.shell_text import needs_shell, plain_words, split_words
from bough.model.events.news import GroupClosed
from bough.model.files import is_pattern, is_url
from bough.model.ids import BlobId, GroupId, MemoKey, RecordId
from bough.model.sites.resources import ONE_CORE, Needs
from bough.model.tasks import (
    NO_EXTRAS,
    NO_LIMITS,
    Dep,
    GroupSpec,
    Item,
    Kind,
    Limits,
    On,
    TaskExtras,
    TaskSpec,
    idempotence,
)
from bough.movers.local import expand
from bough.wire import questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bough.api.submit.context import SessionLike
    from bough.api.submit.task_options.monitor_options import Watching
    from bough.describe.plan import PlanTask
    from bough.describe.steps import Step

_PAGE = 1_000  # items that are sent together
_PAGE_BYTES = 1 << 20
_CLOSED = 4_000  # steps between two messages that close groups: closing splits requests
_ITEM = 200  # bytes of an item, besides its payload
_NO_BODY = BlobId(b"")
_NO_KEY = MemoKey(b"")  # never reused
_ON = {For.TASK: On.TASK, For.RELEASE: On.GROUP, For.END: On.END}
_TASK = On.TASK


def submit_plan(
    session: SessionLike, steps: Sequence[Step], *, watched: bool = True, kept: dict[str, Task | None] | None = None
) -> list[RecordId]:
    """Submit the steps of a plan (see `describe.steps`); the records of its tasks, in their order.

    `watched`: the session stays, and counts how they end. Else only what is refused is known of them here. `kept`: the
    tasks of these names are put there.
    """
    session.check_open()
    with without_gc():
        _look_through(session, steps)
        return _Submission(session, steps, watched=watched, kept=kept).run()


def _look_through(session: SessionLike, steps: Sequence[Step]) -> None:
    """Find what cannot be sent, or can never run, before anything is sent."""
    _check_inputs(session, [step.task for step in steps if step.task is not None])
    possible: dict[tuple[object, ...], Needs] = {} if session.base_needs.queue else {(1.0, 0): ONE_CORE}
    for step in steps:
        said = step.task
        if said is not None:
            key = _needs_key(said)
            if key not in possible:
                try:
                    possible[key] = needs_of(said, session.base_needs)
                    session.check_needs(possible[key])
                except BoughError as error:
                    raise said.where.wrong(str(error)) from None
            if said.attributes or not (said.command.isascii() and said.name.isascii()):
                try:
                    check_sendable("the command", said.command)
                    check_sendable("the name", said.name)
                    check_sendable("an attribute", "".join([*said.attributes, *said.attributes.values()]))
                except BoughError as error:
                    raise said.where.wrong(str(error)) from None
        elif step.name:
            check_sendable("a group's name", step.name)


def _needs_key(said: PlanTask) -> tuple[object, ...]:
    if said.sites or said.requires or said.queue:
        return (said.cores, said.memory, *said.sites, said.requires, said.queue)
    return (said.cores, said.memory)


def needs_of(said: PlanTask, base: Needs) -> Needs:
    """What a task needs, within what the session says of all of them."""
    queue = said.queue or base.queue
    if not (said.sites or said.requires or base.is_picky):
        special = said.cores != 1 or said.memory or queue
        return Needs(cores=said.cores, memory=said.memory, queue=queue) if special else ONE_CORE
    where = {"sites": said.sites or None, "requires": said.requires or None}
    needs = read_options(TaskOptions(needs=base), where).needs
    return msgspec.structs.replace(needs, cores=said.cores, memory=said.memory, queue=queue)


def _at_sites(said: PlanTask, base: Needs) -> PlanTask:
    """A task that names files of sites' own storage runs where these lie."""
    if not (said.reads or said.writes):
        return said
    bound = tuple(said.sites) or base.sites
    sites = sites_of(said.reads, said.writes, bound)
    return said if sites == bound else msgspec.structs.replace(said, sites=[*sites])


def _check_inputs(session: SessionLike, tasks: Sequence[PlanTask]) -> None:
    """Refuse declared inputs that are not there and that no task makes."""
    made = {file_path(task, path) for task in tasks if task.writes for path in task.writes}
    for task in tasks:
        for path in task.reads:
            whole = file_path(task, path)
            if is_url(path) or made_place(whole, made) or os.path.exists(whole) or (is_pattern(path) and expand(whole)):
                continue
            if session.files.writer(whole) is None:
                raise task.where.wrong(f"the input {path} does not exist, and no task makes it (out={path})")


class _Submission:
    def __init__(
        self, session: SessionLike, steps: Sequence[Step], *, watched: bool, kept: dict[str, Task | None] | None = None
    ) -> None:
        self._session = session
        self._steps = steps
        self._watched = watched
        self._kept = kept
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
        self._kinds: dict[tuple[object, ...], tuple[Needs, Limits]] = {}
        self._watchings: dict[tuple[str, ...], Watching] = {}  # by the texts of monitors

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
        there = session.groups.existing(parent, step.name)
        group = session.groups.new(parent, step.name)
        self._groups.append(group)
        if step.name[0] != "." and there is None:
            session.registry.progress.group_added(group, parent, step.name)
        if there is not None:
            return
        deps, said = self._deps(step), step.spec
        spec = GroupSpec(group, step.name, parent, deps)
        if said is not None and (said.limit or said.retries or said.timeout or said.attributes or said.monitors):
            attributes = tuple(said.attributes.items())
            watching = self._watching(said.monitors)
            watch = NO_PLAN if watching is None else watching.id
            spec = GroupSpec(group, step.name, parent, deps, said.limit, said.retries, said.timeout, attributes, watch)
            session.groups.watch(group, parent, watching)
        else:
            session.groups.watch(group, parent, None)
        self._page.append(spec)
        self._size += 100 + 8 * len(deps)

    def _submit(self, step: Step) -> None:
        said, group = step.task, self._groups[step.group]
        assert said is not None
        command = said.command
        name = said.name or command_name(command)
        record = next(self._records)
        deps = self._deps(step) if step.waits else ()
        declared: DeclaredCommand | None = None
        try:
            said = _at_sites(said, self._session.base_needs)
            if said.reads or said.writes or said.playpen:
                declared = self._declared(said, record, name)
                payload, key = declared.payload, declared.key
                deps = tuple(dict.fromkeys((*deps, *declared.after)))
            else:
                alike, is_text, body = self._command(said)
                payload = alike.payload(body, is_text=is_text)
                key = alike.key(body, is_text=is_text) if said.memo else _NO_KEY
            watching = self._watching(said.monitors) if said.monitors else None
            if watching is not None or self._session.groups.watch_keys:
                key = self._session.groups.watched_key(key, group, watching)
        except BoughError as error:
            raise said.where.wrong(str(error)) from None
        writes = declared.planned.writes if declared else {}
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
            deps,
            (),
            key,
            "",
            declared.writes if declared else (),
            self._terms(step, said, NO_PLAN if watching is None else watching.id),
            declared.reads if declared else (),
            bool(declared and declared.writes),  # such a command is up to date, or it is not, as under make
            declared.fresh if declared else 0,
            atomic_outputs=declared is not None and declared.planned.has_atomic_outputs,
        )
        session = self._session
        if session.is_joined:  # it may be there already, by another number, which those that wait for it must know
            self._send()
            task = Task(session.registry, record, name, group, command=command, writes=writes)
            session.put_task(task, spec, len(payload), ())
            self._ids.append(RecordId(task.record))
            if self._kept is not None and name in self._kept:
                self._kept[name] = task
            return
        if self._watched:
            task = self._tasks[record] = Task(session.registry, record, name, group, command=command, writes=writes)
            if self._kept is not None and name in self._kept:
                self._kept[name] = task
        self._counts[group] += 1
        self._page.append(spec)
        self._size += len(payload) + _ITEM
        self._ids.append(record)

    def _declared(self, said: PlanTask, record: RecordId, name: str) -> DeclaredCommand:
        """A command that declares files; what is there in the place of an output is replaced, as under make."""
        cwd = os.path.join(self._directory, said.cwd) if said.cwd else self._directory
        moved_paths = [path for one in said.transfers for path in one[1:3]]
        for text in (cwd, *said.reads, *said.writes, *moved_paths, *said.env, *said.env.values()):
            check_sendable("a path", text)
        planned = plan_with_files(said.command, said.reads, said.writes, cwd=cwd, env=said.env or None)
        if said.playpen:
            moved = [
                Transfer(kind, local_place(kind, local, cwd), remote, when)
                for kind, local, remote, when in said.transfers
            ]
            check_transfers(moved)
            call = msgspec.structs.replace(
                planned.call, settings=msgspec.structs.replace(planned.call.settings, playpen=True)
            )
            planned = planned._replace(call=call).with_transfers(moved)
        return declare_command(self._session, record, name, planned, OnClash.OVERWRITE, memo=said.memo)

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
        key = (*_needs_key(said), said.timeout, said.retries, said.memory_growth, said.timeout_growth)
        key = (*key, said.idempotent, said.keep)
        found = self._kinds.get(key)
        if found is None:
            needs = needs_of(said, self._session.base_needs)
            limits = Limits(
                timeout=said.timeout,
                memory=said.memory,
                retries=said.retries,
                memory_growth=said.memory_growth,
                timeout_growth=said.timeout_growth,
                keep=said.keep,
                **idempotence(said.idempotent),
            )
            found = self._kinds[key] = (needs, NO_LIMITS if limits == NO_LIMITS else limits)
        return found

    def _terms(self, step: Step, said: PlanTask, watch: BlobId) -> TaskExtras:
        if not (said.release or said.final or step.near or said.attributes or watch):
            return NO_EXTRAS
        near = self._ids[step.near - 1] if step.near else 0
        return TaskExtras(said.release, said.final, near, "", _pairs(said.attributes), watch)

    def _watching(self, texts: Sequence[str]) -> Watching | None:
        """What watches a task or a group, the same object for equal texts; its plan goes before whatever names it."""
        key = tuple(texts)
        if not key:
            return None
        found = self._watchings.get(key)
        if found is None:
            from bough.api.submit.task_options.monitor_options import read_monitors

            found = read_monitors(key)
            assert found is not None
            self._session.connection.put_blob(*found.blob, "the monitors")
            self._watchings[key] = found
        return found


def _pairs(attributes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(attributes.items())


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
        return f"{text}; {self.retried} will be retried" if self.retried else text

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return {key: value for key, value in found.items() if key not in {"ids", "group_ids"}}


def amend_plan(session: SessionLike, steps: Sequence[Step], *, dry: bool = False, watched: bool = False) -> Amendment:
    """Make the workflow that a session joined, and into which nothing more was to come, what a plan says.

    `dry`: only ask what would be different. `watched`: the session stays, and counts how the tasks end.
    """
    draft = _Draft(session)
    submit_plan(cast("SessionLike", draft), steps, watched=False)
    if not dry:
        for blob in draft.connection.taken:
            session.connection.put_blob(*blob)
    said = session.connection.amend(draft.items, session.directory, dry=dry, watched=watched and not dry)
    found = msgspec.convert(said, Amendment)
    if watched and not dry:
        _watch(session, draft.items, found, [step.task.command for step in steps if step.task is not None])
    return found


def _watch(session: SessionLike, items: Sequence[Item], found: Amendment, commands: Sequence[str]) -> None:
    """Count the tasks of the workflow as the session's own, and hear of their ends."""
    registry, groups = session.registry, {session.root: session.root}
    numbers = iter(found.group_ids)
    for item in items:
        if isinstance(item, GroupSpec):
            group, parent = GroupId(next(numbers)), groups[item.parent]
            groups[item.id] = group
            if item.name[0] != "." and session.groups.existing(parent, item.name) is None:
                registry.progress.group_added(group, parent, item.name)
    specs = [item for item in items if isinstance(item, TaskSpec)]
    for spec, number, command in zip(specs, found.ids, commands, strict=True):
        group = groups[spec.group]
        registry.tasks[number] = Task(registry, number, spec.name, group, command=command)
        registry.progress.added(group, 1)
    session.ask(questions.Outcomes([(RecordId(number), 0) for number in found.ids]))


class _Silent:
    """Progress that is not shown: the tasks of a draft are not there yet."""

    def group_added(self, group: int, parent: int, name: str) -> None:
        """It may never be."""


class _DraftRegistry:
    progress = _Silent()


class _DraftBlobs:
    """Plans of monitors that a draft names; a dry run sends none of them."""

    def __init__(self) -> None:
        self.taken: list[tuple[BlobId, bytes, str]] = []

    def put_blob(self, blob: BlobId, data: bytes, what: str) -> None:
        """Keep a blob."""
        self.taken.append((blob, data, what))


class _DraftGroups(WatchedGroups):
    """Numbers for the groups of a draft, which are the session's."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._numbers = itertools.count(first)

    def new(self, parent: int, name: str) -> GroupId:
        """A number for a group."""
        return GroupId(next(self._numbers))

    def existing(self, parent: int, name: str) -> None:
        """The server finds out what is there."""


class _Draft:
    """What `submit_plan` takes for a session that has nothing yet, and keeps all that is put into it."""

    is_joined = False

    def __init__(self, session: SessionLike) -> None:
        self._session = session
        self.groups = _DraftGroups(session.welcome.first_group)
        self.root = session.root
        self.directory = session.directory
        self.registry = _DraftRegistry()
        self.connection = _DraftBlobs()
        self.items: list[Item] = []
        self.files = FileTable()
        self.is_remote = session.is_remote
        self.base_needs = session.base_needs

    def check_open(self) -> None:
        """As the session's own."""
        self._session.check_open()

    def check_needs(self, needs: Needs) -> None:
        """As the session's own."""
        self._session.check_needs(needs)

    def new_records(self, count: int) -> list[RecordId]:
        """Numbers that are the session's."""
        return self._session.new_records(count)

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """The session gives the contents of files to its server."""
        return self._session.upload(paths, label)

    def put_page(self, items: list[Item], size: int, tasks: Mapping[int, Task], counts: Mapping[GroupId, int]) -> None:
        """Keep the items."""
        self.items += items

    def post(self, *messages: object) -> None:
        """All groups of a description are closed: that need not be said."""
