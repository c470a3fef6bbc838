"""Answers to what clients ask, see `wire.questions`: one table, with one handler for each kind of question.

Rule: a question is answered or refused, once; whatever a handler raises concerns who asked. Who may only read is
refused what changes something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bough.core.machine import Machine
from bough.core.states import TaskState
from bough.errors import UnknownName, UserError
from bough.server.errand import Errand, Handler, answered_by
from bough.server.faults import Faults
from bough.server.peers import Client, Peers
from bough.server.run import RunInfo
from bough.stores.api import Store
from bough.wire import questions
from bough.wire.messages import Ask
from bough.wire.questions import Question


class Desk:
    """See the module. What is answered here every server knows; a service adds its own."""

    def __init__(self, machine: Machine, store: Store, peers: Peers, info: RunInfo, faults: Faults) -> None:
        self._machine = machine
        self._store = store
        self._peers = peers
        self._info = info
        self._faults = faults
        self._handlers: dict[type[Question[Any]], Handler] = {
            questions.Status: answered_by(self._status),
            questions.Explain: answered_by(self._explain),
            questions.Memos: answered_by(self._memos),
            questions.Feeds: answered_by(self._feeds),
            questions.Fed: answered_by(self._fed),
            questions.Processors: answered_by(self._processors),
            questions.Paths: answered_by(lambda client, _: self._store.declared_paths(client.run)),
        }

    def add(self, handlers: Mapping[type[Question[Any]], Handler]) -> None:
        """Answer these questions as well."""
        self._handlers |= handlers

    def ask(self, client: Client, message: Ask) -> None:
        """Answer a question, now or later."""
        errand: Errand[Question[Any]] = Errand(client, message, self._faults)
        kind = type(message.question)
        handler = self._handlers.get(kind)
        if handler is None:
            errand.refuse(UnknownName(f"this server does not answer the question {kind.__name__.lower()!r}"))
        elif kind.changes and client.connection.role == "read":
            errand.refuse(UserError("this access file is for reading only"))
        else:
            errand.attempt(handler)

    def _status(self, *_: object) -> object:
        return {
            "counts": self._machine.counts(),
            "groups": {
                group.id: {TaskState(state).label: count for state, count in enumerate(group.counts) if count}
                for group in self._machine.state.groups.values()
            },
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
        }

    def _explain(self, _: Client, question: questions.Explain) -> object:
        try:
            return self._machine.explain(question.record, question.index)
        except KeyError:
            raise UnknownName(f"there is no task {question.record}") from None

    def _memos(self, client: Client, question: questions.Memos) -> object:
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
            for old in self._store.old_arrays(question.body, client.run)
        ]

    def _feeds(self, client: Client, question: questions.Feeds) -> object:
        if not self._info.memos:
            return []
        self._store.project()
        return self._store.old_feeds(question.body, client.run)

    def _fed(self, client: Client, question: questions.Fed) -> object:
        part = self._store.fed_pages(question.record, question.turn, client.run)
        return questions.FedPart(part.pages, part.done, part.turn)

    def _processors(self, *_: object) -> object:
        cores: dict[str, float] = {}
        for executor in self._peers.executors.values():
            hello = executor.hello
            cores[hello.site] = cores.get(hello.site, 0) + hello.capacity.cores
        return {site: int(count) if float(count).is_integer() else count for site, count in cores.items()}
