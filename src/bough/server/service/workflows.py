"""Workflows opened, joined, amended, left, ended.

The workflows of a service and their clients: opened, joined, left, and ended.

A workflow goes on without its client. Rule: a client touches nothing but its own workflow: the numbers it was
given, and groups below its own.

Clients that change the description of a workflow that goes on: what is different is found, applied and told.

The answer: {"added", "changed", "removed": paths of tasks, "unchanged": how many, "again": paths of those of them that
had started and run again, "retried": how many had not succeeded and are tried again, "groups": {"added", "changed",
"removed": paths}, "ids", "group_ids": the numbers of all tasks and groups of the description, in its order}.

Rule: all of a description is looked at before anything changes, and the difference is one fact of one turn, so that a
server that is killed leaves the old workflow or the new one. Who asked hears of it when it is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bough.core.actions.amend import unsuccessful, why_not
from bough.core.actions.difference import Difference, find_difference, path_of, why_taken, why_wrong
from bough.core.actions.dry_run import run_again
from bough.core.records.array_record import ArrayRecord
from bough.core.records.group_record import Workflow
from bough.errors import UnknownName, UserError
from bough.model.events.facts import Amended, Fact, GroupClosed, PagesAdded, RunClosed, RunOpened
from bough.model.events.news import Cancel
from bough.model.files import is_tidy
from bough.model.ids import BlobId, GroupId
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, On, TaskSpec
from bough.server.files.file_permissions import sees_directory
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ClientPeer
from bough.server.server_log import log
from bough.server.service.id_ranges import IdRanges
from bough.server.turns.shell import Shell
from bough.wire.client_messages import VERSION, Amend, Answer, ClientHello, Closed, GroupFinished, Refused, Welcome


class Workflows:
    """See the module."""

    def __init__(self, shell: Shell, numbers: IdRanges) -> None:
        self._shell = shell
        self._peers = shell.peers
        self._numbers = numbers
        self._opening: dict[int, RunOpened] = {}  # those whose turn has not come yet
        self._owed: dict[int, bool] = {}  # runs whose clients are still to hear something, and whether they ended since
        self._names: set[str] | None = None  # of all workflows that the store knows; None: not read yet
        shell.on_settle = self._settled
        shell.upkeep.when_folded(self._read_names)
        self._close_settled()

    # --- coming ------------------------------------------------------------------------------------

    def welcome(self, connection: PeerConnection, hello: ClientHello) -> None:
        """Let a client in: to its workflow, or only to ask and act; UserError when it may not."""
        if not hello.workflow:
            self._peers.clients[connection] = ClientPeer(connection, hello.pid, hello.host)
            info = self._shell.info
            connection.say(Welcome(VERSION, info.run, 0, 0, info.store_dir, embedded=False, ids=0))
            return
        found = self._going_on(hello.workflow)
        if found is None and hello.join:
            raise UnknownName(f"no workflow of the name {hello.workflow!r} goes on; bough status shows which do")
        if found is None:
            self._open(connection, hello)
        else:
            self._join(connection, hello, *found)

    def _going_on(self, name: str) -> tuple[int, int, bool] | None:
        """The run, the group and the memos of the workflow of a name that has not ended."""
        for opened in self._opening.values():
            if opened.name == name:
                return opened.run, opened.group, opened.memos
        for workflow in self._shell.machine.state.workflows.values():
            if workflow.name == name and workflow.group.id and not workflow.closed:
                return workflow.run, workflow.group.id, workflow.memos
        return None

    def _open(self, connection: PeerConnection, hello: ClientHello) -> None:
        memos = not hello.fresh and (self._names is None or hello.workflow in self._names)
        if self._names is not None:
            self._names.add(hello.workflow)
        run, group = self._numbers.new_workflow()
        opened = RunOpened(
            run,
            hello.workflow,
            hello.host,
            hello.pid,
            hello.fail_fast,
            hello.policy or "fifo",
            memos,
            GroupId(group),
            hello.directory,
            hello.token,
            hello.user,
        )
        if memos:
            self._shell.refresh_memos()
        self._opening[run] = opened
        self._shell.news(opened, then=lambda: self._opening.__delitem__(run))
        log(f"workflow {hello.workflow} opened as run {run} by pid {hello.pid} on {hello.host}")
        self._let_in(connection, hello, run, group, memos, joined=False)

    def _join(self, connection: PeerConnection, hello: ClientHello, run: int, group: int, memos: bool) -> None:
        for other in self._peers.of_run(run):
            if (other.pid, other.host) == (hello.pid, hello.host) or not other.connection.is_open:
                del self._peers.clients[other.connection]  # the same one, whose connection broke without a word
                other.connection.abort()
                self.let_close(run)
                continue
            raise UserError(
                f"the workflow {hello.workflow!r} has a client already: pid {other.pid} on host {other.host};"
                " wait for it, end it, or choose another name"
            )
        if self.is_closed(group) and not hello.join:
            raise UserError(
                f"the workflow {hello.workflow!r} takes nothing more and goes on until its tasks have ended;"
                " wait for it, or choose another name"
            )
        self._let_in(connection, hello, run, group, memos, joined=True)

    def is_closed(self, group: int) -> bool:
        """Whether nothing more was to come into a workflow."""
        record = self._shell.machine.state.groups.get(group)
        return record is not None and record.closed

    def _let_in(
        self, connection: PeerConnection, hello: ClientHello, run: int, group: int, memos: bool, *, joined: bool
    ) -> None:
        given = self._numbers.give(run, hello.ids)
        info = self._shell.info
        self._peers.clients[connection] = ClientPeer(connection, hello.pid, hello.host, run=run, group=group)
        welcome = Welcome(
            VERSION,
            run,
            given.record,
            given.group,
            info.store_dir,
            memos,
            group,
            joined,
            embedded=False,
            shared=_sees(hello),
            ids=given.many,
            closed=self.is_closed(group),
        )
        self._shell.after_turn(lambda: self._shell.upkeep.when_synced(lambda: connection.send(welcome)))

    def more_numbers(self, client: ClientPeer, count: int) -> object:
        """Another range for a client that has used up its own."""
        if not client.run:
            raise UserError("only the client of a workflow is given numbers")
        given = self._numbers.give(client.run, count)
        return {"first_id": given.record, "first_group": given.group, "ids": given.many}

    # --- what clients may submit -------------------------------------------------------------------

    def problem_with(self, client: ClientPeer, items: Iterable[Item]) -> str:
        """Why a client may not submit these; empty when it may."""
        run, numbers = client.run, self._numbers
        if not run:
            return "a client that names no workflow cannot submit"
        seen: set[BlobId] = {BlobId(b"")}
        for item in items:
            is_group = isinstance(item, GroupSpec)
            if not (numbers.owns_group(run, item.id) if is_group else numbers.owns_record(run, item.id)):
                return f"the number {item.id} was not given to this client's workflow"
            above = item.parent if isinstance(item, GroupSpec) else item.group
            if above != client.group and not numbers.owns_group(run, above):
                return f"the group {above} is not one of this client's workflow"
            if isinstance(item, TaskSpec) and item.payload_path and not self._may_name(client, item.payload_path):
                return (
                    f"the arguments of task {item.id} are too big to send, and {item.payload_path} is not below the"
                    " workflow's directory; open the session with a store that is"
                )
            if not isinstance(item, GroupSpec) and (missing := self._missing(item, seen)):
                return f"the {missing} of task {item.id} was never sent to the server"
        return ""

    def _missing(self, item: TaskSpec | ArraySpec, seen: set[BlobId]) -> str:
        """What of a task the server does not have; `seen` are blobs that it has."""
        table = item.table if isinstance(item, ArraySpec) else BlobId(b"")
        for what, blob in (("function or command", item.body), ("table", table)):
            if blob not in seen:
                if not self._shell.store.has_blob(blob):
                    return what
                seen.add(blob)
        return ""

    def _may_name(self, client: ClientPeer, path: str) -> bool:
        """Whether a client may name a file with arguments: who comes from afar only one below a directory it shares."""
        if client.connection.role == "owner":
            return True
        workflow = self._shell.machine.state.workflows.get(client.run)
        if workflow is None or not is_tidy(path) or not path.startswith(f"{workflow.directory}/"):
            return False
        return sees_directory(workflow.directory, workflow.token)

    def problem_with_group(self, client: ClientPeer, group: int) -> str:
        """Why a client may not close a group; empty when it may."""
        if not client.run or (group != client.group and not self._numbers.owns_group(client.run, group)):
            return f"the group {group} is not one of this client's workflow"
        return ""

    def problem_with_pages(self, client: ClientPeer, record: int) -> str:
        """Why a client may not add to an array; empty when it may."""
        if not client.run or not self._numbers.owns_record(client.run, record):
            return f"the array {record} is not one of this client's workflow"
        return ""

    def is_repeated(self, items: Iterable[Item]) -> bool:
        """Whether all of a submission is there: a client that came back says again what was not acknowledged."""
        state = self._shell.machine.state
        for item in items:
            if isinstance(item, TaskSpec | ArraySpec):
                record = state.records.get(item.id)
                if record is None or record.spec.name != item.name or record.spec.body != item.body:
                    return False
            else:
                group = state.groups.get(item.id)
                if group is None or group.name != item.name:
                    return False
        return True

    def has_pages(self, message: PagesAdded) -> bool:
        """Whether an array has these pages already."""
        record = self._shell.machine.state.records.get(message.record)
        if not isinstance(record, ArrayRecord):
            return False
        is_there = all(page.stop <= record.length for page in message.pages)
        return is_there and not (message.last and record.open)

    # --- going -------------------------------------------------------------------------------------

    def close(self, client: ClientPeer, how: str) -> None:
        """A client leaves: its workflow goes on, or nothing more comes."""
        if how == "detach" or not client.run:
            client.connection.say(Closed("detached"))
            client.connection.close()
            return
        target = Dep(On.GROUP, client.group)
        if how != "drain":
            self._shell.news(Cancel(target))
        group = self._shell.machine.state.groups.get(client.group)
        if group is not None and group.settled and group.closed:
            self._end(client.run, failed=bool(group.failed_by))
        else:
            self._shell.news(GroupClosed(GroupId(client.group)))

    def _settled(self, group: int, failed: bool) -> None:
        """A group is done: its clients hear of it; a workflow whose own group it is has ended."""
        record = self._shell.machine.state.groups.get(group)
        if record is None:
            return
        run = record.workflow.run
        for client in self._peers.listeners(run):
            client.connection.say(GroupFinished(group, failed))
        if group and record.workflow.group is record:
            self._end(run, failed=failed)

    def _end(self, run: int, *, failed: bool) -> None:
        workflow = self._shell.machine.state.workflows.get(run)
        if workflow is None or workflow.closed:
            self._say_closed(run)
            return
        log(f"workflow {workflow.name}, run {run}, has ended{' with failures' if failed else ''}")
        self._shell.news(RunClosed(run, "done"), then=lambda: self._say_closed(run))

    def _say_closed(self, run: int) -> None:
        if run in self._owed:
            self._owed[run] = True
            return
        for client in self._peers.of_run(run):
            client.connection.say(Closed("done"))
            client.connection.close()

    def _read_names(self) -> None:
        """A workflow may reuse what others of its name did, also what was retired."""
        known = self._shell.machine.state.workflows.values()
        self._names = {*self._shell.store.workflow_names(), *(one.name for one in known if one.group.id)}

    def gone(self, run: int) -> None:
        """A workflow left the core: nobody can be its client any more."""
        self._numbers.forget(run)

    def is_owed(self, run: int) -> bool:
        """Whether the client of a run is still to hear something."""
        return run in self._owed

    def hold_closing(self, run: int) -> None:
        """The client of a run is owed something: it is not told of the run's end before `let_close`."""
        self._owed.setdefault(run, False)

    def let_close(self, run: int) -> None:
        """It is owed nothing any more."""
        if self._owed.pop(run, False):
            self._say_closed(run)

    def _close_settled(self) -> None:
        """Workflows that had settled when the server before this one ended, and were not closed."""
        state = self._shell.machine.state
        for workflow in list(state.workflows.values()):
            group = workflow.group
            if group.id and not workflow.closed and group.closed and group.settled:
                self._end(workflow.run, failed=bool(group.failed_by))


def _sees(hello: ClientHello) -> bool:
    """Whether this machine sees the client's directory: its token file is there."""
    return sees_directory(hello.directory, hello.token)


class Amendments:
    """See the module."""

    def __init__(self, shell: Shell, workflows: Workflows) -> None:
        self._shell = shell
        self._workflows = workflows
        self._applied: dict[int, Amended] = {}  # by run, in the turn that is taking effect
        shell.on_facts.append(self._hear)

    def _hear(self, facts: Sequence[Fact]) -> None:
        self._applied = {fact.run: fact for fact in facts if type(fact) is Amended}

    def amend(self, client: ClientPeer, message: Amend) -> None:
        """Change a workflow between two turns, so that what is found different is what is applied."""
        if self._shell.is_busy:
            self._shell.after_turn(lambda: self.amend(client, message))
            return
        state = self._shell.machine.state
        problem = self._workflows.problem_with(client, message.items) or self._problem(client, message)
        if problem:
            self._refuse(client, message, problem)
            return
        workflow = state.workflows[client.run]
        found = find_difference(workflow, message.items)
        if problem := why_taken(state, found.news):
            self._refuse(client, message, problem)
            return
        failed = {record.id for record in unsuccessful(state, client.run, set(found.news.removed))}
        if message.dry or (found.is_empty and not failed):
            again = run_again(state, workflow, found) if not found.is_empty else []
            if message.watched:
                self._workflows.hold_closing(client.run)
            client.connection.send(Answer(message.request, _told(found, again, len(failed))))
            return
        _log(workflow, found)

        self._workflows.hold_closing(client.run)
        self._shell.news(found.news, then=lambda: self._applied_for(client, message, found, failed))

    def _applied_for(self, client: ClientPeer, message: Amend, found: Difference, failed: set[int]) -> None:
        answer = Answer(message.request, _told(found, self._again(found, failed), len(failed)))

        def tell() -> None:
            client.connection.send(answer)
            if not message.watched or not client.connection.is_open:
                self._workflows.let_close(client.run)  # else when it has heard of all ends that it asks for

        self._shell.upkeep.when_synced(tell)

    def _again(self, found: Difference, failed: set[int]) -> list[str]:
        """What had started, is not changed itself, and runs again."""
        fact = self._applied.get(found.news.run)
        passed = failed | {item.id for item in found.news.changed}
        records = self._shell.machine.state.records
        parts = fact.parts if fact is not None else ()
        return [path_of(records[record]) for record, _, _ in parts if record not in passed and record in records]

    def _refuse(self, client: ClientPeer, message: Amend, problem: str) -> None:
        client.connection.send(Refused(problem, message.request, "InvalidWorkload"))

    def _problem(self, client: ClientPeer, message: Amend) -> str | None:
        state = self._shell.machine.state
        problem = why_not(state, client.run)
        if problem:
            return problem
        workflow = state.workflows[client.run]
        if message.directory != workflow.directory:
            return (
                f"the workflow {workflow.name} goes on in {workflow.directory}; submit it there to change it,"
                " or choose another name"
            )
        return why_wrong(state, workflow, message.items)


def _told(found: Difference, again: list[str], retried: int) -> dict[str, object]:
    return {
        "added": found.added,
        "changed": found.changed,
        "removed": found.removed,
        "unchanged": found.unchanged,
        "again": again,
        "retried": retried,
        "groups": {"added": found.added_groups, "changed": found.changed_groups, "removed": found.removed_groups},
        "ids": found.ids,
        "group_ids": found.group_ids,
    }


def _log(workflow: Workflow, found: Difference) -> None:
    counts = f"{len(found.added)} added, {len(found.changed)} changed, {len(found.removed)} removed"
    log(f"the description of workflow {workflow.name}, run {workflow.run}, was changed: {counts}")
