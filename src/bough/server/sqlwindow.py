"""Read-only SQL over the jobs database for clients that cannot open it themselves.

Rule: it is asked in a thread, one question at a time, by a connection that cannot write; the core never waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from bough.errors import BoughError, InternalError, UserError
from bough.server.peers import Client
from bough.stores.jobs import Value
from bough.stores.opening import open_jobs
from bough.wire.messages import Answer, Ask, Refused

_MOST_ROWS = 1_000_000


class SqlWindow:
    """See the module. `where`: the store's folder or database."""

    def __init__(self, loop: asyncio.AbstractEventLoop, where: str) -> None:
        self._loop = loop
        self._where = where
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sql")

    def ask(self, client: Client, message: Ask) -> None:
        """Answer when the database has."""
        statement, parameters = message.arguments.get("statement"), message.arguments.get("parameters", [])
        if not isinstance(statement, str) or not isinstance(parameters, list):
            client.connection.say(Refused("sql needs a statement and a list of parameters", message.request))
            return
        asked = self._loop.run_in_executor(self._thread, self._query, statement, cast(Sequence[Value], parameters))
        asked.add_done_callback(lambda done: _answer(client, message.request, done))

    def _query(self, statement: str, parameters: Sequence[Value]) -> dict[str, object]:
        with open_jobs(self._where) as jobs:
            columns, rows = jobs.query(statement, parameters)
        if len(rows) > _MOST_ROWS:
            raise UserError(f"the answer has {len(rows)} rows, more than {_MOST_ROWS}: ask for fewer, with limit")
        return {"columns": columns, "rows": rows}


def _answer(client: Client, request: int, done: asyncio.Future[dict[str, object]]) -> None:
    error = done.exception()
    if error is None:
        client.connection.send(Answer(request, done.result()))
        return
    if not isinstance(error, BoughError):
        error = InternalError(f"{type(error).__name__}: {error}")
    client.connection.send(Refused(str(error), request, type(error).__name__))
