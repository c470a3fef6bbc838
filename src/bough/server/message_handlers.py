"""Greetings, messages and questions of a server's peers: one handler a message type, one a kind of question.

`MessageHandlers` turns what clients and executors say into news for the shell; `Answers` answers what clients ask (see
`wire.questions`). Rule: a peer says first what it is, and a message that it may not send ends its connection. A
question is answered or refused once, after the turn that holds everything said before it; an error in a handler
concerns the peer that asked.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bough import logs
from bough.core.queries.facade import Queries
from bough.errors import BadValue, BoughError, SiteError, UnknownName, UserError
from bough.model.blobs import is_blob
from bough.model.events.facts import ExecutorJoined, ExecutorLost, Submitted
from bough.model.events.news import (
    Action,
    AddMonitors,
    GroupClosed,
    PagesAdded,
    SetRule,
    WorkFailed,
    WorkNews,
    WorkStopped,
    with_executor,
)
from bough.model.events.orders import DropFile
from bough.model.ids import ExecutorId, number_of
from bough.model.monitoring.monitors import decode_plan
from bough.model.monitoring.population_rules import check_rule
from bough.model.outcomes import Cause
from bough.model.reuse_scope import ReuseScope
from bough.model.sites.resources import OWN_PYTHON
from bough.model.states import counts_of
from bough.policies.policy_registry import check_population_policy
from bough.server.handler_errors import HandlerErrors
from bough.server.peer_connection import Message, PeerConnection
from bough.server.peers import ClientPeer, DeferredRequest, ExecutorPeer, Handler, Peers, answered_by
from bough.server.processors import ProcessorAnswers
from bough.server.task_requests import TaskRequests
from bough.server.turns.recalled_tasks import RuleSetting
from bough.server.turns.run_info import RunInfo
from bough.server.turns.shell import Shell, ShellWithoutPiggyback
from bough.stores.store import Store
from bough.wire import questions
from bough.wire.client_messages import (
    VERSION,
    Answer,
    Ask,
    Blob,
    ClientHello,
    CloseSession,
    DoAction,
    Refused,
    Submit,
    Subscribe,
    Welcome,
)
from bough.wire.executor_messages import (
    ExecutorHello,
    ExecutorWelcome,
    Heartbeat,
    OutputRead,
    ProbeAnswer,
    Ready,
    Report,
    SpaceAwaited,
    TaskRequest,
)
from bough.wire.questions import Question

if TYPE_CHECKING:
    from bough.server.remote_probes import RemoteProbes
    from bough.server.task_output import TaskOutput
    from bough.server.temporary_files import TemporaryFiles

SILENCE = 30.0  # seconds after which an executor is taken for lost
_LOOK = 5.0
_RANGE = 1 << 32  # ids between one client and the next


class MessageHandlers:
    """The listener of every connection of a server."""

    def __init__(
        self,
        shell: Shell,
        on_close: Callable[[str], None],
        on_owner_lost: Callable[[], None],
        silence: float = SILENCE,
        store: str = "",
    ) -> None:
        self._shell = shell
        self._peers = shell.peers
        self.task_requests = TaskRequests(shell, store or shell.info.store_dir)
        self.processors = ProcessorAnswers(shell)
        self._rules = RuleSetting(shell)
        self.answers = self._make_answers()
        self.answers.add(
            {
                questions.Project: lambda deferred: shell.background.when_folded(lambda: deferred.answer(None)),
                questions.Observations: lambda deferred: shell.background.when_folded(
                    lambda: deferred.attempt(answered_by(self._observations))
                ),
                questions.Said: answered_by(self.task_requests.said),
                questions.Explain: answered_by(self._explain),
                questions.Output: self._ask_output,
                questions.Processors: self.processors.ask,
                questions.Probe: self._ask_probe,
            }
        )
        self._on_close = on_close
        self._on_owner_lost = on_owner_lost
        self._next_executor = int(shell.info.first_executor)
        self._guests = 0  # clients greeted besides the owner
        self._from_client: dict[type, Callable[..., None]] = {
            Blob: self._blob,
            Submit: self._submit,
            PagesAdded: self._pages,
            GroupClosed: self._group_closed,
            Subscribe: self._subscribe,
            Ask: self._ask,
            DoAction: self._act,
            CloseSession: self._close,
        }
        shell.perform[DropFile] = self._drop_file
        self.leaving = False  # executors were told to leave, so their going is no loss
        self.on_executor_lost: list[Callable[[int], None]] = []  # called with its pid
        self._silence = silence
        self._look = min(_LOOK, silence / 4)
        self._looked = shell.loop.time()
        shell.loop.call_later(self._look, self._look_for_silence)

    @functools.cached_property
    def temporary_files(self) -> TemporaryFiles:
        """Outputs that go with their last reader; loaded when there are some."""
        from bough.server.made_inputs import MadeInputs
        from bough.server.temporary_files import TemporaryFiles

        return TemporaryFiles(self._shell, MadeInputs(self._shell))

    def _drop_file(self, order: DropFile) -> None:
        self.temporary_files.drop(order)

    @functools.cached_property
    def task_output(self) -> TaskOutput:
        """What tasks wrote; loaded when it is first asked for."""
        from bough.server.task_output import TaskOutput

        return TaskOutput(self._shell)

    @functools.cached_property
    def remote_probes(self) -> RemoteProbes:
        """What remote monitors ask; loaded when one does."""
        from bough.server.remote_probes import RemoteProbes

        return RemoteProbes(self._shell)

    def _ask_probe(self, deferred: DeferredRequest[questions.Probe]) -> None:
        self.remote_probes.ask(deferred)

    def _ask_output(self, deferred: DeferredRequest[questions.Output]) -> None:
        self.task_output.ask(deferred)

    def _make_answers(self) -> Answers:
        shell = self._shell
        return Answers(shell.queries, shell.store, shell.peers, shell.info, shell.handler_errors)

    # --- what connections call ---------------------------------------------------------------------

    def on_messages(self, connection: PeerConnection, messages: list[Message]) -> None:
        """Messages arrived; what goes wrong with them concerns their sender."""
        try:
            self._hear(connection, messages)
        except Exception as error:  # noqa: BLE001 -- see `server.handler_errors`
            kinds = ", ".join(sorted({type(message).__name__ for message in messages}))
            self._shell.handler_errors.concern(connection, f"a message ({kinds})", error)
        if self._shell.dirty:
            self._shell.flush()

    def _hear(self, connection: PeerConnection, messages: list[Message]) -> None:
        executor = self._peers.by_connection.get(connection)
        if executor is None and connection not in self._peers.clients:
            if not self._on_hello(connection, messages[0]):
                return
            del messages[0]
            executor = self._peers.by_connection.get(connection)
        if executor is not None:
            self._hear_executor(executor, messages)
        else:
            self._hear_client(self._peers.clients[connection], messages)

    def on_lost(self, connection: PeerConnection) -> None:
        """A connection was lost."""
        client = self._peers.clients.pop(connection, None)
        if client is not None:
            self.processors.on_lost(client)
            logs.debug("client-disconnected", f"the client {client.pid} on {client.host} disconnected")
            if client.owner:
                self._on_owner_lost()
            return
        executor = self._peers.by_connection.get(connection)
        if executor is not None:
            self._lose(executor, "it left" if self.leaving else "its connection was lost")
        elif connection.trusted:
            self._on_owner_lost()  # it was gone before it said hello

    # --- greetings ---------------------------------------------------------------------------------

    def _on_hello(self, connection: PeerConnection, message: Message) -> bool:
        """Let a peer in by its first message."""
        if not isinstance(message, ClientHello | ExecutorHello):
            connection.refuse(f"the first message must be a hello, not {type(message).__name__}", "ProtocolError")
            return False
        if message.version != VERSION:
            connection.refuse(
                f"the server speaks version {VERSION} and the other end {message.version}; use the same bough",
                "ProtocolError",
            )
            return False
        try:
            if isinstance(message, ClientHello):
                self._welcome(connection, message)
                logs.debug("client-connected", f"the client {message.pid} on {message.host} connected")
            else:
                self._accept_executor(connection, message)
        except BoughError as error:
            connection.refuse(str(error), type(error).__name__)
            return False
        return True

    def _welcome(self, connection: PeerConnection, hello: ClientHello) -> None:
        info = self._shell.info
        owner = hello.owner and connection.trusted
        if not owner:
            self._guests += 1
        offset = 0 if owner else self._guests * _RANGE
        self._peers.clients[connection] = ClientPeer(connection, hello.pid, hello.host, owner=owner)
        connection.say(
            Welcome(
                VERSION,
                info.run,
                info.first_record + offset,
                info.first_group + offset,
                info.store_dir,
                info.memos,
                reuse=info.reuse,
            )
        )

    def _accept_executor(self, connection: PeerConnection, hello: ExecutorHello) -> None:
        _check_python(hello)
        executor = ExecutorPeer(
            connection, ExecutorId(self._next_executor), hello, time.time(), self._shell.loop.time()
        )
        self._next_executor += 1
        self._peers.add_executor(executor)
        self._welcome_executor(executor)
        logs.info(
            "executor-joined",
            f"executor {executor.number} joined: {hello.site}, {hello.host}, pid {hello.pid}, {hello.capacity}",
        )
        self._shell.news(
            ExecutorJoined(
                executor.number,
                hello.site,
                hello.host,
                hello.pid,
                hello.capacity,
                hello.until,
                python=hello.python,
                attributes=hello.attributes,
            )
        )

    def _welcome_executor(self, executor: ExecutorPeer) -> None:
        info = self._shell.info
        executor.connection.say(
            ExecutorWelcome(
                VERSION,
                executor.number,
                info.folder("out"),
                info.folder("results"),
                info.folder("spill"),
                info.marker,
                info.embedded,
                info.token,
                self._silence,
                info.tuning.max_span,
                info.tuning.piggyback,
            )
        )

    # --- executors ---------------------------------------------------------------------------------

    def _hear_executor(self, executor: ExecutorPeer, messages: list[Message]) -> None:
        executor.last_word = self._shell.loop.time()
        for message in messages:
            if type(message) is Report:
                news = self._own(executor, self._news(executor, message))
                if any(type(one) is WorkFailed and one.failure.cause is Cause.INPUT_LOST for one in news):
                    self.temporary_files.hear(executor.number, news)
                self._shell.report(executor, message.number, news)
            elif type(message) is Ready:
                self._ready(executor)
            elif not self._hear_other(executor, message):
                executor.connection.refuse(f"an executor may not say {type(message).__name__}", "ProtocolError")
                return

    def _own(self, executor: ExecutorPeer, news: Sequence[WorkNews]) -> Sequence[WorkNews]:
        """News without what is about the tasks of other executors."""
        is_foreign = self._shell.queries.is_foreign
        foreign = [one for one in news if is_foreign(one, executor.number)]
        if any(type(one) is WorkStopped for one in news):
            news = [with_executor(one, executor.number) for one in news]
        if not foreign:
            return news
        logs.warning(
            "foreign-span",
            f"executor {executor.number} reported on span {foreign[0].span}, which it does not have; that is ignored",
        )
        return [one for one in news if one not in foreign]

    def _ready(self, executor: ExecutorPeer) -> None:
        if isinstance(self._shell, ShellWithoutPiggyback):  # else it waits for nothing
            self._shell.ready(executor)

    def _news(self, executor: ExecutorPeer, report: Report) -> Sequence[WorkNews]:
        return report.news

    def _hear_other(self, executor: ExecutorPeer, message: Message) -> bool:
        """Something that is no report; whether an executor may say it."""
        if type(message) is TaskRequest:
            self.task_requests.ask(executor, message)
            return True
        if type(message) is OutputRead:
            self.task_output.fetched(executor, message)
            return True
        if type(message) is ProbeAnswer:
            self.remote_probes.answered(executor, message)
            return True
        if type(message) is SpaceAwaited:
            self._shell.full_disk.awaited(executor.number, message.spans)
            return True
        return type(message) is Heartbeat

    def _lose(self, executor: ExecutorPeer, reason: str) -> None:
        self._peers.drop_executor(executor)
        self._shell.full_disk.awaited(executor.number, ())
        self.task_requests.on_lost(executor)
        for loaded in ("task_output", "remote_probes"):
            if loaded in self.__dict__:
                getattr(self, loaded).on_lost(executor)
        if self.leaving:
            logs.info("executor-left", f"executor {executor.number} left")
            return  # the end of the run says it all: what it ended for us has not cost its tasks anything
        logs.warning("executor-lost", f"executor {executor.number} is lost: {reason}")
        self._shell.news(ExecutorLost(executor.number, reason))
        for callback in self.on_executor_lost:
            callback(executor.hello.pid)

    def _look_for_silence(self) -> None:
        self._shell.loop.call_later(self._look, self._look_for_silence)
        now = self._shell.loop.time()
        looked, self._looked = self._looked, now
        jump = self._shell.clock.jump()
        if jump:
            logs.warning(
                "clock-changed",
                f"the system's clock was set by {jump:+.0f} s; the server keeps its own time until it is restarted",
            )
        if self._shell.is_stuck:
            return
        if now - looked > 2 * self._look + 1:  # we were stopped ourselves: what was said meanwhile is not read yet
            for executor in self._peers.executors.values():
                executor.last_word = now
            return
        for executor in list(self._peers.executors.values()):
            if now - executor.last_word > self._silence and not executor.connection.is_stopped:
                self._lose(executor, f"it said nothing for {self._silence:g} s")
                executor.connection.abort()

    # --- clients -----------------------------------------------------------------------------------

    def _hear_client(self, client: ClientPeer, messages: list[Message]) -> None:
        for message in messages:
            handler = self._from_client.get(type(message))
            if handler is None:
                client.connection.refuse(f"a client may not say {type(message).__name__}", "ProtocolError")
                return
            handler(client, message)
            if not client.connection.is_open:
                return  # it was refused, and with it what it says next

    def _blob(self, client: ClientPeer, message: Blob) -> None:
        if not is_blob(message.id, message.data):  # or it could take the place of another client's function
            client.connection.refuse(f"the blob {message.id.hex()} is not what its name says", "ProtocolError")
            return
        self._shell.store.put_blob(message.id, message.data)  # written with the next turn

    def _submit(self, client: ClientPeer, message: Submit) -> None:
        self._shell.news(Submitted(message.items, self._peers.internal(client, message.request)))

    def _pages(self, client: ClientPeer, message: PagesAdded) -> None:
        number = self._peers.internal(client, message.request) if message.request else 0
        self._shell.news(PagesAdded(message.record, message.pages, message.last, number, message.reuse))

    def _group_closed(self, _: ClientPeer, message: GroupClosed) -> None:
        self._shell.news(message)

    def _subscribe(self, client: ClientPeer, _: Subscribe) -> None:
        client.subscribed = True

    def _ask(self, client: ClientPeer, message: Ask) -> None:
        """Answer after the turn that holds everything said before the question."""
        if self._shell.is_busy and type(message.question) is not questions.Said:
            self._shell.after_turn(lambda: self.answers.ask(client, message))
        else:
            self.answers.ask(client, message)

    def _act(self, client: ClientPeer, message: DoAction) -> None:
        if self._shell.is_busy:
            self._shell.after_turn(lambda: self._do(client, message))
        else:
            self._do(client, message)

    def _do(self, client: ClientPeer, message: DoAction) -> None:
        if (problem := self._why_refused(message.deed)) is not None:
            client.connection.say(Refused(str(problem), message.request, type(problem).__name__))
            return
        preview = self._shell.queries.preview(message.deed)
        value = {"tasks": preview.count} | ({"left_out": preview.not_changed} if preview.not_changed else {})
        then = functools.partial(client.connection.say, Answer(message.request, value))
        if isinstance(message.deed, SetRule):
            self._rules.set(message.deed, then)
        else:
            self._shell.news(message.deed, then=then)

    def _observations(self, _: ClientPeer, question: questions.Observations) -> object:
        return self._shell.store.observations(question.record, question.start, question.stop)

    def _explain(self, _: ClientPeer, question: questions.Explain) -> object:
        try:
            lines = self._shell.queries.explain(question.record, question.index)
        except KeyError:
            raise UnknownName(f"there is no task {number_of(question.record)}") from None
        for attempt, said in self._shell.full_disk.waiting():
            if attempt.record == question.record and attempt.has(question.index):
                lines.append(f"it {said}")
        return lines

    def _why_refused(self, action: Action) -> UserError | None:
        """What is wrong with monitors that are to be added, or with a rule, if something is."""
        try:
            if isinstance(action, AddMonitors):
                decode_plan(self._shell.store.blob(action.plan))
            elif isinstance(action, SetRule) and action.rule is not None:
                check_rule(action.rule)
                check_population_policy(action.rule.policy)
        except KeyError:
            return BadValue("the monitors to be added were not sent to the server")
        except UserError as error:
            return error
        return None

    def _close(self, client: ClientPeer, message: CloseSession) -> None:
        if client.owner:
            self._on_close(message.how)
        else:
            client.connection.refuse("only the session that owns the server can close it", "UserError")


class Answers:
    """See the module. What is answered here every server knows; a service adds its own."""

    def __init__(
        self, queries: Queries, store: Store, peers: Peers, info: RunInfo, handler_errors: HandlerErrors
    ) -> None:
        self._queries = queries
        self._store = store
        self._peers = peers
        self._info = info
        self._faults = handler_errors
        self._handlers: dict[type[Question[Any]], Handler] = {
            questions.Status: answered_by(self._status),
            questions.State: answered_by(self._state),
            questions.Memos: answered_by(self._memos),
            questions.Feeds: answered_by(self._feeds),
            questions.Fed: answered_by(self._fed),
            questions.Paths: answered_by(lambda client, _: self._store.declared_paths(client.run)),
        }

    def add(self, handlers: Mapping[type[Question[Any]], Handler]) -> None:
        """Answer these questions as well."""
        self._handlers |= handlers

    def ask(self, client: ClientPeer, message: Ask) -> None:
        """Answer a question, now or later."""
        deferred: DeferredRequest[Question[Any]] = DeferredRequest(client, message, self._faults)
        kind = type(message.question)
        handler = self._handlers.get(kind)
        if handler is None:
            deferred.refuse(UnknownName(f"this server does not answer the question {kind.__name__.lower()!r}"))
        elif kind.changes and client.connection.role == "read":
            deferred.refuse(UserError("this access file is for reading only"))
        else:
            deferred.attempt(handler)

    def _status(self, *_: object) -> object:
        return {
            "counts": counts_of(self._queries.counts().by_state),
            "groups": {group: counts.labels() for group, counts in self._queries.counts_by_group().items()},
            "executors": [
                {
                    "executor": executor.number,
                    "site": executor.hello.site,
                    "host": executor.hello.host,
                    "pid": executor.hello.pid,
                    "cores": executor.hello.capacity.cores,
                }
                for executor in self._peers.executors.values()
            ],
            "run": self._info.run,
            "policy": self._info.policy,
            "replication": self._info.replication,
        }

    def _state(self, _: ClientPeer, question: questions.State) -> object:
        try:
            state = self._queries.state_of(question.record, question.index)
        except IndexError:
            state = None
        if state is None:
            raise UnknownName(f"there is no task {number_of(question.record)}.{question.index}")
        return state.label

    def _memos(self, client: ClientPeer, question: questions.Memos) -> object:
        if not self._info.memos:
            return []
        self._store.project()
        return [
            {
                "record": old.record,
                "length": old.length,
                "table": old.table,
                "pages": old.pages,
                "done": old.done,
            }
            for old in self._store.old_arrays(question.body, client.run, always=self._finds_all(client, question))
        ]

    def _finds_all(self, client: ClientPeer, question: questions.Memos | questions.Feeds) -> bool:
        """Whether all earlier runs count for a question, not only unfinished ones."""
        workflow = self._queries.workflow(client.run or self._info.run)
        return question.always or workflow is None or workflow.reuse is ReuseScope.ALL

    def _feeds(self, client: ClientPeer, question: questions.Feeds) -> object:
        if not self._info.memos:
            return []
        self._store.project()
        return self._store.old_feeds(question.body, client.run, always=self._finds_all(client, question))

    def _fed(self, client: ClientPeer, question: questions.Fed) -> object:
        part = self._store.fed_pages(question.record, question.turn, client.run)
        return questions.FedPart(part.pages, part.done, part.turn)


def _check_python(hello: ExecutorHello) -> None:
    """Functions travel as bytecode, which differs between minor versions, and a session does not say which it has."""
    if hello.python != OWN_PYTHON:
        raise SiteError(f"the server runs Python {OWN_PYTHON} and the executor {hello.python}")
