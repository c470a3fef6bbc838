"""Named queues at a service: who asks is shown them, and the user of the server makes, changes and removes them.

Rule: what was answered is written; only a user of the server's Unix socket changes something.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bough.core.queries.answers import QueueInfo
from bough.errors import UnknownName, UserError
from bough.model.events.facts import QueueDefined, QueueRemoved
from bough.model.sites.queue_specs import MOST_QUEUES, check_queue, describe_queue
from bough.server.peers import ClientPeer, DeferredRequest, Handler, answered_by
from bough.server.turns.shell import Shell
from bough.wire import questions
from bough.wire.questions import Question


class QueueDesk:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.handlers: dict[type[Question[Any]], Handler] = {
            questions.Queues: answered_by(self._queues),
            questions.DefineQueue: self._define,
            questions.RemoveQueue: self._remove,
        }

    def _queues(self, client: ClientPeer, question: questions.Queues) -> list[dict[str, Any]]:
        queries = self._shell.queries
        running = queries.out_in_queues()
        return [_entry(queue, running.get(queue.name, 0)) for queue in queries.queues()]

    def _define(self, deferred: DeferredRequest[questions.DefineQueue]) -> None:
        _check_owner(deferred.client)
        asked = deferred.question
        defined = self._defined()
        if asked.change:
            self._known(asked.queue)
        elif asked.queue in defined:
            raise UserError(f"there is a queue {asked.queue} already; change it with bough queue change {asked.queue}")
        elif len(defined) >= MOST_QUEUES:
            raise UserError(f"there are {len(defined)} queues, and a server has no more; remove one")
        self._shell.news(QueueDefined(asked.queue, check_queue(asked.spec)))
        self._answer(deferred, asked.queue)

    def _remove(self, deferred: DeferredRequest[questions.RemoveQueue]) -> None:
        _check_owner(deferred.client)
        name = deferred.question.queue
        queue = self._known(name)
        running = self._shell.queries.out_in_queues().get(name, 0)
        self._shell.news(QueueRemoved(name))
        self._shell.after_turn(lambda: deferred.answer({"queue": name, "waiting": queue.ready, "running": running}))

    def _answer(self, deferred: DeferredRequest[Any], name: str) -> None:
        """Answer with a queue as it is once all that was said is written."""

        def answer() -> None:
            running = self._shell.queries.out_in_queues().get(name, 0)
            deferred.answer(_entry(self._known(name), running))

        self._shell.after_turn(lambda: deferred.attempt(lambda _: answer()))

    def _defined(self) -> dict[str, QueueInfo]:
        return {queue.name: queue for queue in self._shell.queries.queues() if queue.is_defined}

    def _known(self, name: str) -> QueueInfo:
        found = self._defined().get(name)
        if found is None:
            there = ", ".join(self._defined()) or "none"
            raise UnknownName(f"there is no queue {name}; there are: {there}")
        return found


def _entry(queue: QueueInfo, running: int) -> dict[str, Any]:
    return {
        "queue": queue.name,
        "defined": queue.is_defined,
        "limits": {name: msgspec.to_builtins(getattr(queue.spec, name)) for name in queue.spec.__struct_fields__},
        "shown": describe_queue(queue.spec),
        "waiting": queue.ready,
        "running": running,
        "cores": queue.cores,
    }


def _check_owner(client: ClientPeer) -> None:
    if client.connection.role != "owner":
        raise UserError("only a user of the server's Unix socket can make, change and remove queues")
