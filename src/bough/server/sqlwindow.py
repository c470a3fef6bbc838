"""Read-only SQL over the jobs database for clients that cannot open it themselves.

Rule: it is asked in a thread, one question at a time, by a connection that cannot write; the core never waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bough.errors import UserError
from bough.server.errand import Errand
from bough.stores.jobs import Value
from bough.stores.opening import open_jobs
from bough.wire import questions
from bough.wire.questions import SqlReply

_MOST_ROWS = 1_000_000


class SqlWindow:
    """See the module. `where`: the store's folder or database."""

    def __init__(self, loop: asyncio.AbstractEventLoop, where: str) -> None:
        self._loop = loop
        self._where = where
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sql")

    def ask(self, errand: Errand[questions.Sql]) -> None:
        """Answer when the database has."""
        question = errand.question
        asked = self._loop.run_in_executor(self._thread, self._query, question.statement, question.parameters)
        asked.add_done_callback(lambda done: _answer(errand, done))

    def _query(self, statement: str, parameters: Sequence[Value]) -> SqlReply:
        with open_jobs(self._where) as jobs:
            columns, rows = jobs.query(statement, parameters)
        if len(rows) > _MOST_ROWS:
            raise UserError(f"the answer has {len(rows)} rows, more than {_MOST_ROWS}: ask for fewer, with limit")
        return SqlReply(list(columns), [list(row) for row in rows])


def _answer(errand: Errand[questions.Sql], done: asyncio.Future[SqlReply]) -> None:
    error = done.exception()
    if error is None:
        errand.answer(done.result())
    else:
        errand.refuse(error)
