"""Who comes to a service and what they may say: several clients, each with its workflow, and executors that return.

Rule: a role says only what it may: "read" asks, "submit" is a client, "execute" an executor; who comes by the Unix
socket is the user himself and may do all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bough.errors import UnknownName, UserError
from bough.model.facts import (
    ExecutorDrained,
    ExecutorResized,
    ExecutorResumed,
    GroupClosed,
    PagesAdded,
    Submitted,
    WorkNews,
)
from bough.model.ids import ROOT, ExecutorId, RecordId
from bough.model.tasks import Dep, On
from bough.server.amendments import Amendments
from bough.server.answers import ServiceDesk
from bough.server.archive import Archive
from bough.server.carrying import Carrying
from bough.server.connection import Connection
from bough.server.farstreams import FarStreams, with_own_results
from bough.server.fetching import Fetching
from bough.server.peers import Client, Executor
from bough.server.reception import Message, Reception, check_python
from bough.server.relays import Relays
from bough.server.retiring import Retiring
from bough.server.returning import Returning
from bough.server.shell import Shell
from bough.server.sqlprocess import Limits
from bough.server.sqlwindow import SqlWindow
from bough.server.workflows import Workflows
from bough.wire import questions
from bough.wire.filemessages import Put
from bough.wire.messages import Act, Amend, Answer, Ask, ClientHello, Close, Manage, Refused, Submit, Subscribe
from bough.wire.questions import Question
from bough.wire.relaying import RelayHello
from bough.wire.work import (
    Alive,
    Drain,
    ExecutorHello,
    Fetched,
    Heard,
    HereAsk,
    Holding,
    Leave,
    Leaving,
    Report,
    Resized,
)

_ASKING = frozenset({Ask, Subscribe, Close})
_GRACE = 5.0  # seconds that tasks of an executor that is stopped get


class ServiceReception(Reception):
    """See the module. `store`: where its jobs database is.

    `shutdown` is called when somebody tells the server to end, with whether executors go too.
    """

    def __init__(
        self,
        shell: Shell,
        workflows: Workflows,
        returning: Returning,
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
        self._fetching = Fetching(shell)
        self._carrying = Carrying(shell)
        self._far_streams = FarStreams(shell.info.folder("out"))
        self.retiring = Retiring(shell, workflows.is_owed)
        self.retiring.on_gone += [workflows.gone, self._forget]
        self._archive = Archive(shell, store, self.retiring)
        self.window = SqlWindow(shell.loop, store, queries)
        self._from_client[Manage] = self._manage
        self._from_client[Amend] = Amendments(shell, workflows).amend
        self._from_client[Put] = self._carrying.put
        self.desk.add({questions.Output: self._fetching.ask, questions.Sql: self.window.ask, **self._carrying.handlers})
        self.relays = Relays(self, shell.dirty, heartbeat)

    def _make_desk(self) -> ServiceDesk:
        return ServiceDesk(self._shell, self._workflows, self._returning)

    # --- greetings ---------------------------------------------------------------------------------

    def _hear(self, connection: Connection, messages: list[Message]) -> None:
        """What comes by a relay arrives from elsewhere once that has said hello."""
        if type(messages[0]) is RelayHello and not self._peers.knows(connection):
            self.relays.greet(connection, messages[0], alone=len(messages) == 1)
        else:
            super()._hear(connection, messages)

    def _welcome(self, connection: Connection, hello: ClientHello) -> None:
        if connection.role == "execute":
            raise UserError("this access file is for executors; ask for one with bough server access --role submit")
        if connection.role == "read" and hello.workflow:
            raise UserError("this access file is for reading; ask for one with bough server access --role submit")
        self._workflows.welcome(connection, hello)

    def _appoint(self, connection: Connection, hello: ExecutorHello) -> None:
        if connection.role not in {"owner", "execute"}:
            raise UserError(
                "this access file is not for executors; ask for one with bough server access --role execute"
            )
        check_python(hello)
        info = self._shell.info
        if hello.executor and hello.marker != info.marker:
            raise UnknownName("the executor belongs to another server, or to another store; start it anew")
        self._say_appointed(self._returning.appoint(connection, hello))

    def lost(self, connection: Connection) -> None:
        """A connection is gone: a workflow goes on without its client, an executor may come back."""
        client = self._peers.clients.pop(connection, None)
        if client is not None:
            self._workflows.let_close(client.run)
        self._carrying.lost(connection)
        self.window.lost(connection)
        executor = self._peers.by_connection.get(connection)
        if executor is not None:
            self._lose(executor, "its connection was lost")

    # --- executors ---------------------------------------------------------------------------------

    def _hear_other(self, executor: Executor, message: Message) -> bool:
        match message:
            case Alive():
                executor.connection.say(Heard(executor.acknowledged))  # so that it knows that we live
            case Holding():
                self._returning.holds(executor, message)
            case Leaving():
                self._returning.leaves(executor, message.reason)
            case Resized():
                size = (message.capacity, message.members, message.each, message.until)
                self._shell.news(ExecutorResized(executor.number, *size))
            case Fetched():
                self._fetching.fetched(executor, message)
            case HereAsk():
                self._here.ask(executor, message)
            case _:
                return self._carrying.hear(executor, message)
        return True

    def _news(self, executor: Executor, report: Report) -> Sequence[WorkNews]:
        news = with_own_results(report.news, self._shell.info.folder("results"))
        if executor.shared or report.number <= executor.reported:
            return news
        return self._far_streams.kept(executor.number, news)

    def _lose(self, executor: Executor, reason: str) -> None:
        self._returning.gone(executor, reason)
        self._fetching.lost(executor)
        self._here.lost(executor)

    # --- clients -----------------------------------------------------------------------------------

    def _hear_client(self, client: Client, messages: list[Message]) -> None:
        if client.connection.role == "read" and any(type(message) not in _ASKING for message in messages):
            client.connection.refuse("this access file is for reading only", "UserError")
            return
        super()._hear_client(client, messages)

    def _submit(self, client: Client, message: Submit) -> None:
        problem = self._workflows.problem_with(client, message.items)
        if problem:
            client.connection.say(Refused(problem, message.request, "InvalidWorkload"))
        elif message.items and self._workflows.is_repeated(message.items):
            self._again(client, message.request)
        else:
            self._shell.news(Submitted(message.items, self._peers.internal(client, message.request)))

    def _pages(self, client: Client, message: PagesAdded) -> None:
        problem = self._workflows.problem_with_pages(client, message.record)
        if problem:
            client.connection.say(Refused(problem, message.request, "InvalidWorkload"))
        elif message.request and self._workflows.has_pages(message):
            self._again(client, message.request)
        else:
            super()._pages(client, message)

    def _again(self, client: Client, request: int) -> None:
        """It is stored already: say so, behind what was said before."""
        self._shell.after_turn(
            lambda: self._shell.upkeep.when_synced(lambda: self._shell.acknowledge({client: request}))
        )

    def _group_closed(self, client: Client, message: GroupClosed) -> None:
        problem = self._workflows.problem_with_group(client, message.group)
        if problem:
            client.connection.say(Refused(problem, kind="InvalidWorkload"))
        else:
            self._shell.news(message)

    def _ask(self, client: Client, message: Ask) -> None:
        """What is asked of retired workflows needs them at hand; what changes something needs them in the core."""
        answer = partial(super()._ask, client, message)
        question = message.question
        if isinstance(question, questions.Done):
            is_away = self._archive.revive(Dep(On.TASK, question.record), answer)
        else:
            is_away = self._archive.look_up(_records_in(question), answer)
        if not is_away:
            answer()

    def _act(self, client: Client, message: Act) -> None:
        target = message.deed.target
        if target.is_group and target.id == ROOT:  # it would concern every workflow, those to come included
            client.connection.say(Refused("name a workflow, a group or a task, not all there is", message.request))
            return
        act = partial(super()._act, client, message)
        if not self._archive.revive(target, act):
            act()

    def _forget(self, run: int) -> None:
        """A workflow left: nobody need remember who was told of it."""
        for executor in self._peers.executors.values():
            executor.workplaces.discard(run)

    def _close(self, client: Client, message: Close) -> None:
        self._workflows.close(client, message.how)

    def _manage(self, client: Client, message: Manage) -> None:
        say = client.connection.say
        if message.what in {"shutdown", "dismiss"}:
            if client.connection.role != "owner":
                say(Refused("only who can use the server's Unix socket can stop it", message.request))
                return
            client.connection.send(Answer(message.request, []))
            self._shutdown(message.what == "dismiss")
            return
        unknown = [number for number in message.executors if number not in self._shell.machine.state.executors]
        if unknown:
            known = ", ".join(map(str, self._shell.machine.state.executors)) or "none"
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
