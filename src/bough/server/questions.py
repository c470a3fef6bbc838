"""Answers to what clients ask; see `wire.messages.Ask` for the questions. "project" is answered by `upkeep`.

Rule: a question changes nothing but the jobs database's progress.
"""

from __future__ import annotations

from collections.abc import Callable

from bough.core.machine import Machine
from bough.core.states import TaskState
from bough.errors import BoughError, UnknownName, UserError
from bough.model.ids import MemoKey, RecordId
from bough.server.peers import Client, Peers
from bough.server.run import RunInfo
from bough.stores.api import Store


class Desk:
    """See the module."""

    def __init__(self, machine: Machine, store: Store, peers: Peers, info: RunInfo) -> None:
        self._machine = machine
        self._store = store
        self._peers = peers
        self._info = info
        self._answers: dict[str, Callable[[Client, dict[str, object]], object]] = {
            "status": self._status,
            "explain": self._explain,
            "memos": self._memos,
            "feeds": self._feeds,
            "fed": self._fed,
            "processors": self._processors,
            "paths": lambda client, _: self._store.declared_paths(client.run),
        }

    def answer(self, client: Client, what: str, arguments: dict[str, object]) -> object:
        """The value of an answer; a BoughError when there is none."""
        answer = self._answers.get(what)
        if answer is None:
            raise UnknownName(f"there is no question {what!r}; known are: {', '.join(self._answers)}")
        try:
            return answer(client, arguments)
        except BoughError:
            raise
        except KeyError as error:
            raise UnknownName(f"there is no task {error}") from error
        except (TypeError, ValueError) as error:
            raise UserError(f"the question {what!r} cannot be answered: {error}") from error

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

    def _explain(self, _: Client, arguments: dict[str, object]) -> object:
        record, index = arguments.get("record"), arguments.get("index", 0)
        if not isinstance(record, int) or not isinstance(index, int):
            raise UserError("explain needs the number of a task")
        return self._machine.explain(RecordId(record), index)

    def _memos(self, client: Client, arguments: dict[str, object]) -> object:
        body = arguments.get("body")
        if not isinstance(body, bytes):
            raise UserError("memos needs the key of a body")
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
            for old in self._store.old_arrays(MemoKey(body), client.run)
        ]

    def _feeds(self, client: Client, arguments: dict[str, object]) -> object:
        body = arguments.get("body")
        if not isinstance(body, bytes):
            raise UserError("feeds needs the key of a body")
        if not self._info.memos:
            return []
        self._store.project()
        return self._store.old_feeds(MemoKey(body), client.run)

    def _fed(self, client: Client, arguments: dict[str, object]) -> object:
        record, turn = arguments.get("record"), arguments.get("turn", 0)
        if not isinstance(record, int) or not isinstance(turn, int):
            raise UserError("fed needs the number of an array and of a turn")
        part = self._store.fed_pages(RecordId(record), turn, client.run)
        return {"pages": part.pages, "done": part.done, "turn": part.turn}

    def _processors(self, *_: object) -> object:
        cores: dict[str, float] = {}
        for executor in self._peers.executors.values():
            hello = executor.hello
            cores[hello.site] = cores.get(hello.site, 0) + hello.capacity.cores
        return {site: int(count) if float(count).is_integer() else count for site, count in cores.items()}
