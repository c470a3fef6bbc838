"""The workflows of a service and their clients: opened, joined, amended, left, ended.

A workflow continues without its client. A client may submit a changed description of a running workflow: the difference
is found, applied and told as {"added", "changed", "removed": paths of tasks, "unchanged": how many, "again": paths of
those of them that had started and run again, "retried": how many had not succeeded and will be retried, "groups":
{"added", "changed", "removed": paths}, "ids", "group_ids": the numbers of all tasks and groups of the description, in
its order}.

Rule: a client changes only its own workflow: the numbers it was given, and groups below its own. A difference is one
fact of one turn, so that a server that is killed leaves the old workflow or the new one, and it is told when it is on
the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bough import logs
from bough.core.queries.answers import Difference, WorkflowInfo
from bough.errors import UnknownName, UserError, WorkflowTaken
from bough.model.events.facts import Amended, Fact, RunClosed, RunOpened
from bough.model.events.news import Cancel, GroupClosed
from bough.model.files import is_tidy
from bough.model.ids import BlobId, GroupId, number_of
from bough.model.reuse_scope import ALWAYS, NEVER, ReuseScope
from bough.model.states import TaskState
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, On, TaskSpec
from bough.policies.policy_registry import is_same_placement
from bough.server.files.file_permissions import sees_directory
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ClientPeer
from bough.server.service.id_ranges import IdRanges
from bough.server.turns.shell import Shell
from bough.wire.client_messages import VERSION, Amend, Answer, ClientHello, Closed, GroupFinished, Refused, Welcome


class Workflows:
    """The workflows of a service and their clients."""

    def __init__(self, shell: Shell, numbers: IdRanges) -> None:
        self._shell = shell
        self._queries = shell.queries
        self._peers = shell.peers
        self._numbers = numbers
        self._opening: dict[int, RunOpened] = {}  # those whose turn has not come yet
        self._owed: dict[int, bool] = {}  # runs whose clients are still to hear something, and whether they ended since
        self._awaited: dict[int, bool] = {}  # runs whose client waits for their end: False if it left meanwhile
        self._names: set[str] | None = None  # of all workflows that the store knows; None: not read yet
        for workflow in self._queries.workflows():  # those of the server before this one
            numbers.name_workflow(workflow.run, workflow.name, self._queries.last_record(workflow.run))
        shell.on_group_finished = self._settled
        shell.background.when_folded(self._read_names)
        self._close_settled()

    # --- coming ------------------------------------------------------------------------------------

    def welcome(self, connection: PeerConnection, hello: ClientHello) -> None:
        """Let a client in: to its workflow, or only to ask and act; UserError when it may not."""
        if not hello.workflow:
            self._peers.clients[connection] = ClientPeer(connection, hello.pid, hello.host)
            info = self._shell.info
            connection.say(Welcome(VERSION, info.run, 0, 0, info.store_dir, embedded=False, ids=0))
            return
        self._check_policy(hello.policy)
        found = self._running(hello.workflow)
        if found is None and hello.join:
            raise UnknownName(f"no workflow of the name {hello.workflow!r} is running; bough status shows which are")
        if found is None:
            self._open(connection, hello)
        else:
            self._join(connection, hello, found)

    def _check_policy(self, wanted: str) -> None:
        """Raise a UserError if a client wants another placement policy: all workflows of a server have the same."""
        has = self._shell.info.policy
        if wanted and not is_same_placement(wanted, has):
            raise UserError(
                f"the placement policy is {wanted!r}, but the server was started with {has!r}: leave it out, or end"
                f" that server (bough server stop) and start one with bough server start --policy {wanted}"
            )

    def _running(self, name: str) -> RunOpened | WorkflowInfo | None:
        """The workflow of a name that has not ended."""
        for opened in self._opening.values():
            if opened.name == name:
                return opened
        return self._queries.running_workflow(name)

    def _open(self, connection: PeerConnection, hello: ClientHello) -> None:
        mode = NEVER if hello.fresh else hello.reuse
        memos = mode != NEVER and (self._names is None or hello.workflow in self._names)
        if self._names is not None:
            self._names.add(hello.workflow)
        run, group = self._numbers.new_workflow()
        known = self._numbers.knows(hello.workflow)
        highest = 0 if known else self._shell.store.last_record_of(hello.workflow)
        self._numbers.name_workflow(run, hello.workflow, highest)
        opened = RunOpened(
            run,
            hello.workflow,
            hello.host,
            hello.pid,
            hello.fail_fast,
            self._shell.info.policy,
            memos,
            GroupId(group),
            hello.directory,
            hello.token,
            hello.user,
            ReuseScope.ALL if mode == ALWAYS else ReuseScope.UNFINISHED,
            hello.script,
            self._numbers.base_of(run),
        )
        if memos:
            self._shell.refresh_memos()
        self._opening[run] = opened
        self._shell.news(opened, then=lambda: self._opening.__delitem__(run))
        logs.info(
            "workflow-opened", f"workflow {hello.workflow} opened as run {run} by pid {hello.pid} on {hello.host}"
        )
        self._let_in(connection, hello, opened, joined=False)

    def _join(self, connection: PeerConnection, hello: ClientHello, found: RunOpened | WorkflowInfo) -> None:
        run = found.run
        for other in self._peers.of_run(run):
            if (other.pid, other.host) == (hello.pid, hello.host) or not other.connection.is_open:
                del self._peers.clients[other.connection]  # the same one, whose connection broke without a word
                other.connection.abort()
                self.let_close(run)
                continue
            raise WorkflowTaken(
                f"the workflow {hello.workflow!r} has a client already: pid {other.pid} on host {other.host};"
                " wait for it, end it, or choose another name"
            )
        if self.is_closed(found.group) and not hello.join:
            raise UserError(
                f"the workflow {hello.workflow!r} takes nothing more and is running until its tasks have ended;"
                " wait for it, or choose another name"
            )
        self._let_in(connection, hello, found, joined=True)

    def is_closed(self, group: int) -> bool:
        """Whether nothing more was to come into a workflow."""
        found = self._queries.group(group)
        return found is not None and found.closed

    def _let_in(
        self, connection: PeerConnection, hello: ClientHello, found: RunOpened | WorkflowInfo, *, joined: bool
    ) -> None:
        run, group = found.run, found.group
        given = self._numbers.give(run, hello.ids, hello.pid, hello.host)
        info = self._shell.info
        self._peers.clients[connection] = ClientPeer(connection, hello.pid, hello.host, run=run, group=group)
        welcome = Welcome(
            VERSION,
            run,
            given.record,
            given.group,
            info.store_dir,
            found.memos,
            group,
            joined,
            embedded=False,
            shared=_sees(hello),
            ids=given.many,
            closed=self.is_closed(group),
            reuse=found.reuse,
        )
        self._shell.after_turn(lambda: self._shell.background.when_synced(lambda: connection.send(welcome)))

    def more_numbers(self, client: ClientPeer, count: int) -> object:
        """Another range for a client that has used up its own."""
        if not client.run:
            raise UserError("only the client of a workflow is given numbers")
        given = self._numbers.give(client.run, count, client.pid, client.host)
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
                return f"the number {number_of(item.id)} was not given to this client's workflow"
            above = item.parent if isinstance(item, GroupSpec) else item.group
            if above != client.group and not numbers.owns_group(run, above):
                return f"the group {above} is not one of this client's workflow"
            if isinstance(item, TaskSpec) and item.payload_path and not self._may_name(client, item.payload_path):
                return (
                    f"the arguments of task {number_of(item.id)} are too big to send, and {item.payload_path} is not"
                    " below the workflow's directory; open the session with a store that is"
                )
            if not isinstance(item, GroupSpec) and (missing := self._missing(item, seen)):
                return f"the {missing} of task {number_of(item.id)} was never sent to the server"
        return ""

    def taken(self, client: ClientPeer, items: Iterable[Item]) -> None:
        """These are submitted: their numbers are used."""
        self._numbers.use(client.run, max((item.id for item in items if type(item) is not GroupSpec), default=0))

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
        """Whether a client may name a file with arguments; a remote client only one below a directory it shares."""
        if client.connection.role == "owner":
            return True
        workflow = self._queries.workflow(client.run)
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
            return f"the array {number_of(record)} is not one of this client's workflow"
        return ""

    # --- going -------------------------------------------------------------------------------------

    def close(self, client: ClientPeer, how: str) -> None:
        """A client leaves: its workflow continues, or takes nothing more."""
        self._numbers.left(client.run, client.pid, client.host)
        if how == "detach" or not client.run:
            client.connection.say(Closed("detached"))
            client.connection.close()
            return
        target = Dep(On.GROUP, client.group)
        self._awaited[client.run] = how == "drain"
        if how != "drain":
            self._shell.news(Cancel(target))
        group = self._queries.group(client.group)
        if group is not None and group.finished and group.closed:
            self._end(client.run, failed=group.failed)
        else:
            self._shell.news(GroupClosed(GroupId(client.group)))

    def _settled(self, group: int, failed: bool) -> None:
        """A group is done: its clients hear of it; a workflow whose own group it is has ended."""
        found = self._queries.group(group)
        if found is None:
            return
        for client in self._peers.listeners(found.run):
            client.connection.say(GroupFinished(group, failed))
        if group and found.is_workflow:
            self._end(found.run, failed=failed)

    def _end(self, run: int, *, failed: bool) -> None:
        workflow = self._queries.workflow(run)
        if workflow is None or workflow.closed:
            self._say_closed(run)
            return
        logs.info(
            "workflow-ended", f"workflow {workflow.name}, run {run}, has ended{' with failures' if failed else ''}"
        )
        self._numbers.ended(run)
        has_failures = self._queries.counts([workflow.group]).by_state[TaskState.FAILED] > 0
        unfinished = has_failures or not self._awaited.pop(run, True)
        self._shell.news(RunClosed(run, "done", unfinished), then=lambda: self._say_closed(run))

    def _say_closed(self, run: int) -> None:
        if run in self._owed:
            self._owed[run] = True
            return
        for client in self._peers.of_run(run):
            client.connection.say(Closed("done"))
            client.connection.close()

    def on_client_lost(self, client: ClientPeer) -> None:
        """A client is gone: a script that did not wait for the end of its workflow is not finished."""
        self.let_close(client.run)
        if client.run in self._awaited:
            self._awaited[client.run] = False

    def _read_names(self) -> None:
        """A workflow may reuse what others of its name did, also what was retired."""
        self._names = {*self._shell.store.workflow_names(), *(one.name for one in self._queries.workflows())}

    def gone(self, run: int) -> None:
        """A workflow left the core: it can have no client any more."""
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
        for workflow in self._queries.workflows():
            if not workflow.closed and workflow.group_closed and workflow.finished:
                self._end(workflow.run, failed=workflow.failed)


def _sees(hello: ClientHello) -> bool:
    """Whether this machine sees the client's directory: its token file is there."""
    return sees_directory(hello.directory, hello.token)


class Amendments:
    """Changed descriptions of running workflows."""

    def __init__(self, shell: Shell, workflows: Workflows) -> None:
        self._shell = shell
        self._queries = shell.queries
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
        problem = self._workflows.problem_with(client, message.items)
        found = problem or self._queries.difference(client.run, message.items, message.directory)
        if isinstance(found, str):
            client.connection.send(Refused(found, message.request, "InvalidWorkload"))
        else:
            self._change(client, message, found)

    def _change(self, client: ClientPeer, message: Amend, found: Difference) -> None:
        """Apply a difference, or only say what it would do."""
        failed = self._queries.unsuccessful(client.run, found.news.removed)
        if message.dry or (found.is_empty and not failed):
            again = self._queries.would_rerun(found) if not found.is_empty else []
            if message.watched:
                self._workflows.hold_closing(client.run)
            client.connection.send(Answer(message.request, _told(found, again, len(failed))))
            return
        self._log(found)
        self._workflows.taken(client, found.news.added)
        self._workflows.hold_closing(client.run)
        self._shell.news(found.news, then=lambda: self._applied_for(client, message, found, failed))

    def _applied_for(self, client: ClientPeer, message: Amend, found: Difference, failed: set[int]) -> None:
        answer = Answer(message.request, _told(found, self._again(found, failed), len(failed)))

        def tell() -> None:
            client.connection.send(answer)
            if not message.watched or not client.connection.is_open:
                self._workflows.let_close(client.run)  # else when it has heard of all ends that it asks for

        self._shell.background.when_synced(tell)

    def _again(self, found: Difference, failed: set[int]) -> list[str]:
        """What had started, is not changed itself, and runs again."""
        fact = self._applied.get(found.news.run)
        passed = failed | {item.id for item in found.news.changed}
        parts = fact.parts if fact is not None else ()
        paths = (self._queries.path_of(record) for record, _, _ in parts if record not in passed)
        return [path for path in paths if path is not None]

    def _log(self, found: Difference) -> None:
        workflow = self._queries.workflow(found.news.run)
        name = workflow.name if workflow is not None else ""
        counts = f"{len(found.added)} added, {len(found.changed)} changed, {len(found.removed)} removed"
        text = f"the description of workflow {name}, run {found.news.run}, was changed: {counts}"
        logs.info("workflow-amended", text)


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
