"""Submits commands and workflow files to a service, or applies a changed file to the workflow that is running.

A session of the service hands over what it has and leaves; it does not wait for tasks. If a workflow of the file's
name is running and complete, the difference is applied, and a dry run shows it. Rule: sessions that submit to one
queue at the same time take turns. A dry run leaves no trace at the server. `bough run` on this machine loads this
module too: what only a service needs is imported where it is used.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bough.api.session import launch
from bough.api.session.session import Session, opened_sessions
from bough.cli.output import Output
from bough.cli.runs.command_texts import ManyCommands, compare
from bough.errors import BoughError, InvalidWorkload, UserError, WorkflowTaken
from bough.model.ids import RecordId, number_of
from bough.model.reuse_scope import ALWAYS
from bough.model.spaces import tie
from bough.model.tasks import Dep, On, TaskSpec
from bough.model.texts.selectors import read_selectors
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.futures.task import Task
    from bough.api.futures.task_registry import TaskRegistry
    from bough.api.session.session import Session
    from bough.api.submit.command_lines.plans import Amendment
    from bough.describe.steps import Step

TURN = 60.0  # seconds to wait for others that submit to the same queue
_PAUSE = 0.05
_NUMBERS = 16  # for a record and the groups it is in; ids stay short so
_ELEMENTS = 100_000  # of an array that a submission may wait for one by one


class Work(msgspec.Struct, frozen=True):
    """One command, or many of them."""

    command: str | list[str]
    many: ManyCommands | None = None
    after: str = ""
    group: str = ""
    options: dict[str, Any] = {}
    rule: str = ""  # that compares many of them while they run
    around: dict[str, Any] = {}  # what stands around it, and the files that it declares


class SubmittedWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was handed over."""

    workflow: str
    run: int
    records: list[int]
    tasks: int
    amended: dict[str, object] | None = None  # what is different, if the workflow was running already
    note: str = ""  # and that in a line
    indices: str = ""  # of an array, as they were written
    is_far: bool = False  # the server does not see the directory: what tasks make has to be fetched

    @property
    def ids(self) -> list[int]:
        """The numbers that people use."""
        return [number_of(record) for record in self.records]

    def line(self) -> str:
        """For people."""
        if self.note:
            return self.note
        if not self.ids:
            return f"nothing new was submitted to {self.workflow}"
        first, last = self.ids[0], self.ids[-1]
        one = len(self.ids) == 1
        numbers = str(first) if one else f"{first}-{last}"
        noun = "array" if one and self.tasks > 1 else "task" if one else "tasks"
        many = f" of {self.tasks} tasks" if one and self.tasks > 1 else ""
        many += f" ({numbers}.{self.indices})" if one and self.indices else ""
        return f"{noun} {numbers}{many} submitted to {self.workflow}"

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        found: dict[str, object] = msgspec.to_builtins(self)
        for hidden in ("note", "records", "is_far"):
            found.pop(hidden, None)
        return {"workflow": self.workflow, "run": self.run, "ids": self.ids, **found}


def server_address(named: str | None) -> str:
    """The address of the server that was named, or of $BOUGH_SERVER, or of the user's own."""
    from bough.transport.access import find_access

    address = launch.server_address(named)
    return address or find_access(None, role="submit").address


@contextlib.contextmanager
def open_workflow(server: str | None, name: str) -> Iterator[Session]:
    """A session of a workflow that stays open, which is left when everything is acknowledged.

    A workflow that was opened for what is then refused ends: nothing is in it.
    """
    session = in_turn(server_address(server), name, _NUMBERS)
    try:
        yield session
    except BaseException as error:
        if isinstance(error, UserError) and not session.is_joined:
            with contextlib.suppress(BoughError):
                session.close_and_detach()
        session.leave()
        raise
    session.detach()


def in_turn(address: str, name: str, numbers: int) -> Session:
    """Open a session; while another session has the workflow, wait for it to leave."""
    until = time.monotonic() + TURN
    while True:
        try:
            with launch.run_defaults({"numbers": numbers, "reuse": ALWAYS}, has_display=True):
                return Session(address, name=name)
        except WorkflowTaken:
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE)


# --- one command ----------------------------------------------------------------------------------------


def put(session: Session, work: Work) -> tuple[int, int]:
    """Submit the work; the number of its record, and how many tasks that is."""
    submitter: Any = session
    for part in work.group.strip("/").split("/") if work.group else ():
        submitter = submitter.group(part, barrier=False)  # it stays open: nothing may wait for its end
    options = {**work.options, "memo": False}  # a command that is submitted is meant to be run
    if work.after:
        options["after"] = [After(session.registry, tuple(_deps(session, work.after)))]
    if work.many is None:
        return submitter.command(work.command, **options, **work.around).record, 1
    text = work.many.text
    options.setdefault("name", os.path.basename(text.split()[0]) if text.split() else "")
    rows = tie(**work.many.columns)
    array = submitter.sweep_indexed(work.many.template, rows, work.many.indices, options, work.around)
    compare(array, work.rule)
    return array.record, len(work.many)


class After:
    """Tasks that are there already, to be waited for."""

    def __init__(self, registry: TaskRegistry, deps: tuple[Dep, ...]) -> None:
        self._registry = registry
        self._deps = deps

    def __bough_deps__(self) -> tuple[TaskRegistry, tuple[Dep, ...]]:
        """As a session asks for it."""
        return self._registry, self._deps


def _deps(session: Session, text: str) -> Iterator[Dep]:
    from bough.api.find import look

    with session.jobs() as jobs:
        for selector in read_selectors(text):
            for row in look(jobs, selector, [session.welcome.run]):
                if row.run != session.welcome.run:
                    raise UserError(
                        f"--after {number_of(row.id)} is a task of another workflow; give tasks of {session.name}"
                    )
                if not row.is_array:
                    yield Dep(On.TASK, RecordId(row.id))
                elif len(row.elements) == row.length:
                    yield Dep(On.ARRAY, RecordId(row.id))
                elif len(row.elements) > _ELEMENTS:
                    raise UserError(
                        f"--after names {len(row.elements)} elements of {number_of(row.id)}; name the whole array"
                    )
                else:
                    yield from (Dep(On.TASK, RecordId(row.id), index) for index in row.elements)


# --- files ----------------------------------------------------------------------------------------------


def hand_over(
    address: str, name: str, steps: Sequence[Step], *, whole: bool = True
) -> tuple[Session, list[RecordId], Amendment | None]:
    """Submit what a file says as a workflow that ends when all of it has; the records of its tasks, all taken.

    If the workflow is running and complete, it is changed, and the amendment says what became of it.
    """
    from bough.api.submit.command_lines.plans import submit_plan

    with launch.run_defaults(describes=True):
        session = in_turn(address, name, len(steps) + 1)
    try:
        if session.welcome.closed:
            amendment = _amended(session, steps, whole=whole)
            return session, [RecordId(number) for number in amendment.ids], amendment
        tasks = submit_plan(session, steps, watched=False)
    except BaseException:
        session.leave()
        raise
    session.close_and_detach()
    refused = [
        (item.name, error)
        for item, error in session.registry.refusals
        if isinstance(item, TaskSpec) and isinstance(error, InvalidWorkload)
    ]
    if refused:
        many = f"{len(refused)} of {len(tasks)} tasks" if len(refused) > 1 else refused[0][0] or "the task"
        raise UserError(
            f"workflow {session.name} is running and does not take {many}: {refused[0][1]};"
            " wait for its end, or give another --name"
        )
    return session, tasks, None


def _amended(session: Session, steps: Sequence[Step], *, whole: bool) -> Amendment:
    from bough.api.submit.command_lines.plans import amend_plan

    if not whole:
        raise cannot(session.name)
    amendment = amend_plan(session, steps)
    session.leave()
    return amendment


def run_detached(address: str, name: str, path: str, args: Sequence[str]) -> SubmittedWork | None:
    """Run a script here until it has submitted everything; its sessions leave where they would have waited."""
    from bough.cli.runs.run_script import run_script

    options = {"server": address, "name": name, "reuse": ALWAYS}
    opened_sessions.clear()  # another submission of this process may have left some
    with launch.run_defaults(options, detaches=True, has_display=True, keeps_sessions=True):
        code = run_script(path, args)
    sessions = [one for one in opened_sessions if one.is_remote]
    for session in sessions:
        session.close_and_detach()
    if code:
        return None
    if not sessions:
        raise UserError(f"{path} opened no session; there is nothing to submit")
    last = sessions[-1]
    tasks = sum(last.progress.counts().values())
    return SubmittedWork(last.name, last.welcome.run, last.submitted(), tasks, is_far=not last.welcome.shared)


def submit_or_amend(
    session: Session,
    steps: Sequence[Step],
    note: Callable[[str], None],
    *,
    whole: bool = True,
    kept: dict[str, Task | None] | None = None,
) -> None:
    """Submit a plan; if its workflow is running and complete, change that.

    `whole`: see `File.is_whole`. `kept`: the tasks of these names are put there.
    """
    from bough.api.submit.command_lines.plans import amend_plan, submit_plan

    if not session.welcome.closed:
        submit_plan(session, steps, kept=kept)
        return
    if not whole:
        raise cannot(session.name)
    note(told(session.name, amend_plan(session, steps, watched=True)))


def cannot(name: str) -> UserError:
    """Why a Makefile changes no running workflow: a target it does not name may be made, unwanted, or half made."""
    return UserError(
        f"workflow {name} is running, and a Makefile says only what is out of date now, so that what was changed cannot"
        " be told; wait for its end, or choose another name"
    )


def told(name: str, amendment: Amendment) -> str:
    """What became of a workflow, in a line."""
    if amendment.is_empty:
        return f"workflow {name} is running as it is: {amendment.unchanged} unchanged"
    return f"workflow {name}: {amendment.line()}"


def foresee(address: str, name: str, steps: Sequence[Step], *, whole: bool = True) -> Foreseen:
    """What submitting a plan would change."""
    return Foreseen(name, _difference(address, name, steps, whole=whole), steps)


def _difference(address: str, name: str, steps: Sequence[Step], *, whole: bool) -> Amendment | None:
    from bough.cli.targets.live_server import connect_client

    with connect_client(address) as server:
        workflows = server.ask(questions.Workflows())
    assert isinstance(workflows, list)
    if not any(one["name"] == name and one["group"] and not one["closed"] for one in workflows):
        return None
    from bough.api.submit.command_lines.plans import amend_plan

    with launch.run_defaults(describes=True):
        session = in_turn(address, name, len(steps) + 1)
    try:
        if session.welcome.closed and not whole:
            raise cannot(name)
        if session.welcome.closed:
            return amend_plan(session, steps, dry=True)
        if not session.is_joined:  # it ended this very moment, so that we opened another one: it ends empty
            session.close_and_detach()
    finally:
        session.leave()
    return None


class Foreseen(NamedTuple):
    """What a dry run found; `found` is None if no running workflow would be changed."""

    name: str
    found: Amendment | None
    steps: Sequence[Step]

    def show(self, output: Output) -> None:
        """Show by name what would be added (+), changed (~), removed (-), and run again as it is (=)."""
        name, found = self.name, self.found
        if found is not None:
            value = {"workflow": name, "goes_on": True, **found.as_json()}
            output.answer(value, lambda: [*_lines(found), told(name, found)])
            return
        names = [step.task.label for step in self.steps if step.task is not None]
        last = f"workflow {name}: {len(names)} would be submitted"
        value = {"workflow": name, "goes_on": False, "added": names}
        output.answer(value, lambda: [*(f"+ {one}" for one in names), last])


def _lines(found: Amendment) -> Iterator[str]:
    for sign, tasks, groups in (
        ("+", found.added, found.groups.added),
        ("~", found.changed, found.groups.changed),
        ("-", found.removed, found.groups.removed),
        ("=", found.again, []),
    ):
        yield from (f"{sign} {path}/" for path in groups)
        yield from (f"{sign} {path}" for path in tasks)
