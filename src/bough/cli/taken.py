"""A task that was taken by hand (`bough take`), as `bough here --task` sees it: it asks the server and no executor.

Rule: the same words and answers as for a task that an executor runs.
"""

from __future__ import annotations

import argparse

from bough.api.here import Attribute, Here
from bough.cli.handwork import read_id, who
from bough.cli.service import connect
from bough.model.ids import RecordId
from bough.wire import questions


class Taken(Here):
    """See the module."""

    def __init__(self, task: str, name: str, server: str | None) -> None:
        super().__init__("", None)
        self._record, self._index = read_id(task)
        self._name = name
        self._server = server

    def ask(self, question: questions.HereQuestion) -> dict[str, Attribute | bool]:
        """Ask the server; wait for the answer, however long."""
        with connect(self._server, patience=None) as server:
            return server.ask(questions.Here(RecordId(self._record), self._name, question, self._index))


def taken(args: argparse.Namespace) -> Taken:
    """The task that --task names."""
    return Taken(args.task, who(argparse.Namespace(name=args.who)), args.server)
