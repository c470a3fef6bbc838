"""Messages of a service's peers: what each role may say, executors that reconnect, peers behind relays.

The role of a peer is that of the token it has proven to know: "read" asks, "submit" is a client, "execute" an executor
or a relay; a peer of the Unix socket is the owner and may do everything. A peer behind a relay proves itself to the
server, not to the relay: the challenge, the proof and all that follows travel on a channel of its own. Rule: a message
that a role may not send is refused; a peer behind a relay gets a `PeerConnection` like any other, and nothing behind
that knows of relays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, get_args

from bough import logs
from bough.errors import BoughError, PeerLost, ProtocolError, UnknownName, UserError
from bough.model.events.facts import ExecutorDrained, ExecutorResumed, Submitted
from bough.model.events.news import FilesIdentified, GroupClosed, PagesAdded, WorkNews
from bough.model.ids import ROOT, ExecutorId, RecordId
from bough.model.tasks import Dep, GroupSpec, Item, On
from bough.server.files.file_requests import FileRequests
from bough.server.files.site_files import ReadStorage
from bough.server.message_handlers import MessageHandlers
from bough.server.peer_connection import Listener, Message, PeerConnection
from bough.server.peer_quotas import Quotas
from bough.server.peers import ClientPeer, ExecutorPeer
from bough.server.service.returning_executors import ReturningExecutors
from bough.server.service.service_answers import ServiceAnswers
from bough.server.service.sites.stranger_gates import StrangerGates
from bough.server.service.sql_process import Limits
from bough.server.service.sql_window import SqlQueries
from bough.server.service.upkeep.finished_workflows import FinishedWorkflows, RetiredWorkflows
from bough.server.service.workflows import Amendments, Workflows
from bough.server.task_output import KeptOutput, with_own_results
from bough.server.turns.shell import Shell
from bough.transport.access import NO_CERTIFICATE
from bough.transport.relay_line import Channel, RelayLine
from bough.wire import questions
from bough.wire.client_messages import (
    VERSION,
    Amend,
    Answer,
    Ask,
    ClientHello,
    CloseSession,
    DoAction,
    FromReader,
    ManageService,
    Refused,
    Submit,
    UserNotice,
)
from bough.wire.executor_messages import (
    Acknowledged,
    Drain,
    ExecutorHello,
    Heartbeat,
    Leave,
    Leaving,
    OutputRead,
    ProbeAnswer,
    Report,
    Resized,
    SpaceAwaited,
    SpansHeld,
    TaskRequest,
)
from bough.wire.file_messages import PutPiece
from bough.wire.questions import Question
from bough.wire.relay_channels import FromRelay, RelayHello, RelayWelcome

_ASKING = frozenset(get_args(FromReader))
_WARNINGS = 100  # sites that a client is told of
_GRACE = 5.0  # seconds that tasks of an executor that is stopped get


class RelayPeers:
    """Relays: one line each, and a connection for every channel of it.

    `fingerprint`: of the server's certificate, to which proofs are bound.
    """

    def __init__(self, listener: Listener, dirty: list[PeerConnection], heartbeat: float) -> None:
        self._listener = listener
        self._dirty = dirty
        self._heartbeat = heartbeat
        self.fingerprint = ""
        self.quotas = Quotas()  # of all peers of the server, however they come
        self.lines: set[RelayLine] = set()

    def greet(self, connection: PeerConnection, hello: RelayHello, *, alone: bool) -> None:
        """A relay said hello: its connection becomes a line."""
        problem = self._problem(connection, hello, alone=alone)
        if problem is not None:
            connection.refuse(str(problem), type(problem).__name__)
            return
        transport = connection.release()
        if transport is None:
            return
        name = f"the relay {hello.pid} on host {hello.host}"
        door = _ChannelListener(self._maker(connection.site), self.fingerprint or NO_CERTIFICATE, name, connection.site)

        def lost(reason: str) -> None:
            self.lines.discard(line)
            logs.warning("relay-lost", f"{name} disconnected: {reason}")

        line = RelayLine(FromRelay, opens=False, on_opened=door.receive, on_lost=lost)
        self.lines.add(line)
        transport.set_protocol(line)
        line.connection_made(transport)
        line.say(RelayWelcome(VERSION, self._heartbeat))
        line.watch(self._heartbeat)
        logs.info("relay-joined", f"{name} joined")

    def _maker(self, site: str) -> Callable[[], PeerConnection]:
        """What peers behind a relay talk to; one that came by the door of a site brings peers of that site only."""

        def make() -> PeerConnection:
            peer = PeerConnection(self._listener, self._dirty, quotas=self.quotas)
            peer.site = site
            return peer

        return make

    def _problem(self, connection: PeerConnection, hello: RelayHello, *, alone: bool) -> BoughError | None:
        if connection.role not in {"owner", "execute"}:
            return UserError("this access file is not for relays; ask for one with bough server access --role execute")
        if hello.version != VERSION:
            return ProtocolError(
                f"the server speaks version {VERSION} and the relay {hello.version}; use the same bough"
            )
        if not alone:
            return ProtocolError("a relay waits for the answer to its hello")
        return None


class _ChannelListener:
    """Admits the peers that come by the channels of one relay; those behind the relay of a site know its token."""

    def __init__(self, make: Callable[[], PeerConnection], fingerprint: str, name: str, site: str) -> None:
        from bough.transport.access import secret, site_secret
        from bough.transport.admission import PeerListener

        self._name = name
        say = logs.reporter("peer-refused", logs.WARNING)
        if site:
            doorman = PeerListener(make, partial(site_secret, site), NO_CERTIFICATE, say=say)
        else:
            doorman = PeerListener(make, secret, fingerprint, say=say)
        self._gates = StrangerGates(doorman)

    def receive(self, channel: Channel, peer: str) -> None:
        """One stranger; a relay lets fewer come than there may be."""
        channel.begin(self._gates.gate(f"{peer} behind {self._name}"))


class ServiceHandlers(MessageHandlers):
    """The listener of every connection of a service. `store`: where its jobs database is.

    `shutdown` is called when the server is told to end, with whether executors go too.
    """

    def __init__(
        self,
        shell: Shell,
        workflows: Workflows,
        returning: ReturningExecutors,
        *,
        store: str,
        heartbeat: float,
        shutdown: Callable[[bool], None],
        queries: Limits | None = None,
    ) -> None:
        self._workflows = workflows
        self._returning = returning
        super().__init__(shell, lambda _: None, lambda: None, heartbeat, store)
        self._shutdown = shutdown
        self.is_ending = False  # nobody is let in any more
        self._files = FileRequests(shell)
        self.temporary_files = self._files.temporary
        self._kept_output = KeptOutput(shell.info.folder("out"))
        self.finished = FinishedWorkflows(shell, workflows.is_owed)
        self.finished.on_gone += [workflows.gone, self._forget]
        self._retired = RetiredWorkflows(shell, store, self.finished)
        self.sql_queries = SqlQueries(shell.loop, store, queries)
        self._from_client[ManageService] = self._manage
        self._from_client[Amend] = Amendments(shell, workflows).amend
        self._from_client[PutPiece] = self._files.put
        self.answers.add({questions.Sql: self.sql_queries.ask, **self._files.handlers})
        self.relays = RelayPeers(self, shell.dirty, heartbeat)

    def reads_storage(self, fetch: ReadStorage) -> None:
        """The server has connections to sites, by which it reads files there."""
        self._files.site_files.fetch = fetch

    def _make_answers(self) -> ServiceAnswers:
        return ServiceAnswers(self._shell, self._workflows, self._returning)

    # --- greetings ---------------------------------------------------------------------------------

    def _hear(self, connection: PeerConnection, messages: list[Message]) -> None:
        """What comes by a relay arrives from elsewhere once that has said hello."""
        if type(messages[0]) is RelayHello and not self._peers.knows(connection):
            self.relays.greet(connection, messages[0], alone=len(messages) == 1)
        else:
            super()._hear(connection, messages)

    def _welcome(self, connection: PeerConnection, hello: ClientHello) -> None:
        if self.is_ending:
            raise PeerLost("the server is ending, because it had nothing to do; try again")
        if connection.role == "execute":
            raise UserError("this access file is for executors; ask for one with bough server access --role submit")
        if connection.role == "read" and hello.workflow:
            raise UserError("this access file is for reading; ask for one with bough server access --role submit")
        self._workflows.welcome(connection, hello)

    def _accept_executor(self, connection: PeerConnection, hello: ExecutorHello) -> None:
        if connection.role not in {"owner", "execute"}:
            raise UserError(
                "this access file is not for executors; ask for one with bough server access --role execute"
            )
        if connection.site and hello.site != connection.site:
            raise UserError(f"this access file is for executors of the site {connection.site}, not of {hello.site}")
        info = self._shell.info
        if hello.executor and hello.marker != info.marker:
            raise UnknownName("the executor belongs to another server, or to another store; start it anew")
        self._welcome_executor(self._returning.accept(connection, hello))

    def on_lost(self, connection: PeerConnection) -> None:
        """A connection was lost: a workflow continues without its client, an executor may reconnect."""
        client = self._peers.clients.pop(connection, None)
        if client is not None:
            self.processors.on_lost(client)
            self._workflows.on_client_lost(client)
        self._files.on_lost(connection)
        self.sql_queries.on_lost(connection)
        executor = self._peers.by_connection.get(connection)
        if executor is not None:
            self._lose(executor, "its connection was lost")

    # --- executors ---------------------------------------------------------------------------------

    def _hear_other(self, executor: ExecutorPeer, message: Message) -> bool:
        match message:
            case Heartbeat():
                executor.connection.say(Acknowledged(executor.acknowledged))  # so that it knows that we live
            case SpansHeld():
                self._returning.compare_spans(executor, message)
            case Leaving():
                self._returning.leaves(executor, message.reason)
            case Resized():
                self._returning.resized(executor, message)
            case OutputRead():
                self.task_output.fetched(executor, message)
            case ProbeAnswer():
                self.remote_probes.answered(executor, message)
            case TaskRequest():
                self.task_requests.ask(executor, message)
            case SpaceAwaited():
                self._shell.full_disk.awaited(executor.number, message.spans)
            case _:
                return self._files.hear(executor, message)
        return True

    def _news(self, executor: ExecutorPeer, report: Report) -> Sequence[WorkNews]:
        news = with_own_results(report.news, self._shell.info.folder("results"))
        if report.number > executor.reported:
            news = self._files.note_held(executor, news)
        if executor.shared or report.number <= executor.reported:
            return news
        return self._kept_output.kept(executor.number, news)

    def _lose(self, executor: ExecutorPeer, reason: str) -> None:
        self._returning.on_lost(executor, reason)
        self._files.lost(executor.number)
        self.task_output.on_lost(executor)
        self.remote_probes.on_lost(executor)
        self.task_requests.on_lost(executor)
        self._shell.full_disk.awaited(executor.number, ())

    # --- clients -----------------------------------------------------------------------------------

    def _hear_client(self, client: ClientPeer, messages: list[Message]) -> None:
        if client.connection.role == "read" and any(type(message) not in _ASKING for message in messages):
            client.connection.refuse("this access file is for reading only", "UserError")
            return
        super()._hear_client(client, messages)

    def _submit(self, client: ClientPeer, message: Submit) -> None:
        problem = self._workflows.problem_with(client, message.items)
        if problem:
            client.connection.say(Refused(problem, message.request, "InvalidWorkload"))
        elif message.items and self._shell.queries.has_items(message.items):
            self._again(client, message.request)
        else:
            self._workflows.taken(client, message.items)
            self._warn_of_sites(client, message.items)
            self._shell.news(Submitted(message.items, self._peers.internal(client, message.request)))
            known = self._files.inputs.contents(message.items)
            if known:  # in the same turn: the first tasks are placed in it
                self._shell.news(FilesIdentified(client.run, (), known))

    def _warn_of_sites(self, client: ClientPeer, items: Iterable[Item]) -> None:
        """Tell who submits tasks for sites that are not there, once for each: they wait, and perhaps for ever."""
        for wanted in {item.needs.sites for item in items if not isinstance(item, GroupSpec) and item.needs.sites}:
            if any(self._shell.queries.site(name) is not None for name in wanted):
                continue
            for name in wanted:
                if name not in client.missing_sites and len(client.missing_sites) < _WARNINGS:
                    client.missing_sites.add(name)
                    text = f"there is no site {name} yet: its tasks wait until it is added with bough site add {name}"
                    client.connection.say(UserNotice(text))

    def _pages(self, client: ClientPeer, message: PagesAdded) -> None:
        problem = self._workflows.problem_with_pages(client, message.record)
        if problem:
            client.connection.say(Refused(problem, message.request, "InvalidWorkload"))
        elif message.request and self._shell.queries.has_pages(message.record, message.pages, last=message.last):
            self._again(client, message.request)
        else:
            super()._pages(client, message)

    def _again(self, client: ClientPeer, request: int) -> None:
        """It is stored already: say so, behind what was said before."""
        self._shell.after_turn(
            lambda: self._shell.background.when_synced(lambda: self._shell.acknowledge({client: request}))
        )

    def _group_closed(self, client: ClientPeer, message: GroupClosed) -> None:
        problem = self._workflows.problem_with_group(client, message.group)
        if problem:
            client.connection.say(Refused(problem, kind="InvalidWorkload"))
        else:
            self._shell.news(message)

    def _ask(self, client: ClientPeer, message: Ask) -> None:
        """What is asked of retired workflows needs them at hand; what changes something needs them in the core."""
        answer = partial(super()._ask, client, message)
        question = message.question
        if isinstance(question, questions.Done):
            is_away = self._retired.revive(Dep(On.TASK, question.record), answer)
        else:
            is_away = self._retired.look_up(_records_in(question), answer)
        if not is_away:
            answer()

    def _act(self, client: ClientPeer, message: DoAction) -> None:
        target = message.deed.target
        if target.is_group and target.id == ROOT:  # it would concern every workflow, those to come included
            client.connection.say(Refused("name a workflow, a group or a task, not all there is", message.request))
            return
        act = partial(super()._act, client, message)
        if not self._retired.revive(target, act):
            act()

    def _forget(self, run: int) -> None:
        """A workflow left: which executors know its directory need not be remembered."""
        for executor in self._peers.executors.values():
            executor.directories_sent.discard(run)

    def _close(self, client: ClientPeer, message: CloseSession) -> None:
        self._workflows.close(client, message.how)

    def _manage(self, client: ClientPeer, message: ManageService) -> None:
        say = client.connection.say
        if message.what in {"shutdown", "dismiss"}:
            if client.connection.role != "owner":
                say(Refused("only a user of the server's Unix socket can stop it", message.request))
                return
            client.connection.send(Answer(message.request, []))
            self._shutdown(message.what == "dismiss")
            return
        queries = self._shell.queries
        unknown = [number for number in message.executors if not queries.has_executor(number)]
        if unknown:
            known = ", ".join(map(str, queries.executor_numbers())) or "none"
            error = UnknownName(f"there is no executor {unknown[0]}; there are: {known}")
            say(Refused(str(error), message.request, "UnknownName"))
            return
        for number in message.executors:
            self._manage_one(message.what, number)
        self._shell.after_turn(lambda: say(Answer(message.request, message.executors)))

    def _manage_one(self, what: str, number: ExecutorId) -> None:
        executor = self._peers.executors.get(number)
        if what == "resume":
            self._shell.news(ExecutorResumed(number))
            return
        self._shell.news(ExecutorDrained(number))
        if executor is not None:
            if what == "stop":
                executor.leaving = "it was stopped"
            executor.connection.say(Drain() if what == "drain" else Leave(_GRACE))


def _records_in(question: Question[Any]) -> list[RecordId]:
    """The records that a question names."""
    if isinstance(question, questions.Outcomes):
        return [record for record, _ in question.records]
    record: RecordId | None = getattr(question, "record", None)
    return [record] if record else []
