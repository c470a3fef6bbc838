"""Submitting a plan: what a description says, as groups and tasks of a session, in bulk.

Rule: a plan is lowered as a whole, so that a mistake anywhere is found before anything is submitted; numbers of tasks
ascend in the order of the plan's steps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bough.api.commands import plan_command
from bough.api.identity import command_key
from bough.api.sweeps import command_name
from bough.api.task import Task
from bough.api.texts import check_sendable
from bough.describe.lowering import For, Step, What
from bough.describe.uncollected import uncollected
from bough.errors import BoughError
from bough.model.commands import CommandCall, CommandSettings, encode_call
from bough.model.facts import GroupClosed
from bough.model.ids import BlobId, GroupId, MemoKey
from bough.model.resources import ONE_CORE, Needs
from bough.model.shelltext import needs_shell, split_words
from bough.model.tasks import NO_LIMITS, PLAIN, Dep, GroupSpec, Kind, Limits, On, TaskSpec, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bough.api.session import Session
    from bough.describe.plan import PlanTask

_FLUSH = 4_000  # steps between two messages that close groups: closing splits requests
_NO_BODY = BlobId(b"")
_NO_KEY = MemoKey(b"")  # never reused
_ON = {For.TASK: On.TASK, For.RELEASE: On.GROUP, For.END: On.END}


def submit_plan(session: Session, steps: Sequence[Step]) -> list[Task]:
    """Submit the steps of a plan (see `describe.lowering.steps`); its tasks, in their order."""
    session.check_open()
    with uncollected():
        return _Submission(session, steps).run()


class _Submission:
    def __init__(self, session: Session, steps: Sequence[Step]) -> None:
        self._session = session
        self._steps = steps
        self._groups: list[GroupId] = [session.root]
        self._tasks: list[Task] = []
        self._closed: list[GroupId] = []
        self._directory = os.getcwd()
        self._settings: dict[tuple[str, bool, tuple[tuple[str, str], ...]], CommandSettings] = {}
        self._kinds: dict[tuple[float, int, float, int], tuple[Needs, Limits]] = {}

    def run(self) -> list[Task]:
        for number, step in enumerate(self._steps, 1):
            if step.what is What.TASK:
                self._submit(step)
            elif step.what is What.OPEN:
                self._open(step)
            else:
                self._closed.append(self._groups[step.number])
            if number % _FLUSH == 0:
                self._close()
        self._close()
        return self._tasks

    def _close(self) -> None:
        if self._closed:
            self._session.post(*map(GroupClosed, self._closed))
            self._closed.clear()

    def _deps(self, step: Step) -> tuple[Dep, ...]:
        tasks, groups = self._tasks, self._groups
        return tuple(
            [
                Dep(On.TASK, tasks[number - 1].id) if on is For.TASK else Dep(_ON[on], groups[number])
                for on, number in step.waits
            ]
        )

    def _open(self, step: Step) -> None:
        session, parent = self._session, self._groups[step.group]
        there = session.group_there(parent, step.name)
        group = session.new_group(parent, step.name)
        self._groups.append(group)
        if step.name[0] != ".":
            check_sendable("a group's name", step.name)
            if there is None:
                session.ledger.progress.group_added(group, parent, step.name)
        if there is not None:
            return
        deps, said = self._deps(step), step.spec
        spec = GroupSpec(group, step.name, parent, deps)
        if said is not None and (said.limit or said.retries or said.timeout or said.attributes):
            attributes = tuple(said.attributes.items())
            spec = GroupSpec(group, step.name, parent, deps, said.limit, said.retries, said.timeout, attributes)
        session.connection.submit(spec, 100 + 8 * len(deps))

    def _submit(self, step: Step) -> None:
        said = step.task
        assert said is not None
        session = self._session
        cwd = os.path.join(self._directory, said.cwd) if said.cwd else self._directory
        try:
            call = self._call(said, cwd)
            check_sendable("the name", said.name)
            payload = encode_call(call)
        except BoughError as error:
            raise said.where.wrong(str(error)) from None
        except UnicodeEncodeError:
            raise said.where.wrong("the command holds a letter that cannot be sent as Unicode") from None
        name = said.name or command_name(said.command)
        record = session.new_record()
        needs, limits = self._kind(said)
        spec = TaskSpec(
            record,
            Kind.COMMAND,
            _NO_BODY,
            payload,
            self._groups[step.group],
            name,
            said.command[:200],
            needs,
            limits,
            said.priority,
            self._deps(step),
            (),
            command_key(call, (), session.directory) if said.memo else _NO_KEY,
            "",
            (),
            self._terms(step, said),
        )
        task = Task(session.ledger, record, name, spec.group, command=said.command)
        session.put_task(task, spec, len(payload), ())
        self._tasks.append(task)

    def _call(self, said: PlanTask, cwd: str) -> CommandCall:
        """The command as it is run, as `plan_command` makes it; the settings of equal ones are made once."""
        shell = needs_shell(said.command)
        key = (cwd, shell, tuple(said.env.items()))
        settings = self._settings.get(key)
        if settings is None:
            call = plan_command(said.command, {}, cwd=cwd, env=said.env or None).call
            self._settings[key] = call.settings
            return call
        if shell:
            return CommandCall(settings, parts=[said.command])
        return CommandCall(settings, argv=[[part for part, _ in word] for word in split_words([said.command])])

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
        near = self._tasks[step.near - 1].id if step.near else 0
        return Terms(said.release, said.final, near, "", _pairs(said.attributes))


def _pairs(attributes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(attributes.items())
