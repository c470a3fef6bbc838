"""What tasks wrote, wherever it lies: read here, or fetched from the executor that has it.

Asked for by record, index, stream ("stdout" or "stderr"), offset and length. The offset counts from the beginning of
the task's own output, or of the file when `path` is given (and `executor`, who has it), as the jobs database says.
Rule: files are read only below the store's own output folder; an executor keeps the same rule for its own.
"""

from __future__ import annotations

import os
import re

from bough.errors import BoughError, UnknownName, UserError
from bough.model.ids import ExecutorId, RecordId
from bough.model.outcomes import Stream
from bough.model.tasks import Dep, On
from bough.server.peers import Client, Executor
from bough.server.shell import Shell
from bough.wire.messages import Answer, Ask, Refused
from bough.wire.work import Fetch, Fetched

MOST = 16 << 20  # bytes of one answer
_MADE_BY = re.compile(r"x(\d+)-")  # how executors name their output files


class Fetching:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._asked: dict[int, tuple[Client, int, Executor]] = {}
        self._last = 0

    def ask(self, client: Client, message: Ask) -> None:
        """Answer, now or when the executor has."""
        try:
            self._ask(client, message)
        except BoughError as error:
            client.connection.say(Refused(str(error), message.request, type(error).__name__))

    def _ask(self, client: Client, message: Ask) -> None:
        wanted = message.arguments
        record, index = _number(wanted, "record"), _number(wanted, "index")
        offset, length = max(0, _number(wanted, "offset")), min(MOST, _number(wanted, "length", MOST))
        stream = str(wanted.get("stream", "stdout"))
        path, executor = str(wanted.get("path", "")), _number(wanted, "executor")
        if stream not in {"stdout", "stderr"}:
            raise UserError(f"a task writes to stdout and stderr, not to {stream!r}")
        if not path:
            span = next((s for s in self._shell.machine.state.spans.values() if _covers(s, record, index)), None)
            if span is not None:
                self._forward(
                    client,
                    message.request,
                    span.executor.id,
                    Fetch(0, RecordId(record), index, stream, "", offset, length),
                )
                return
            found, executor = self._of_success(record, index, stream)
            if found is None:
                client.connection.say(Answer(message.request, {"data": b"", "more": False, "error": ""}))
                return
            path, length = found.path, max(0, min(length, found.length - offset))
            offset += found.offset
        elif not executor:
            named = _MADE_BY.match(os.path.basename(path))
            executor = int(named[1]) if named else 0
        data = _read(self._shell.info.folder("out"), path, offset, length)
        if data is not None:
            client.connection.say(Answer(message.request, {"data": data, "more": False, "error": ""}))
        else:
            fetch = Fetch(0, RecordId(record), index, stream, path, offset, length)
            self._forward(client, message.request, ExecutorId(executor), fetch)

    def _of_success(self, record: int, index: int, stream: str) -> tuple[Stream | None, int]:
        """Where a task that succeeded wrote to, and the executor that ran it."""
        if record not in self._shell.machine.state.records:
            raise UnknownName(f"there is no task {record}")
        found = self._shell.machine.result_turns(Dep(On.TASK, record, index))
        if not found:
            raise UserError(f"task {record}.{index} has not run, or has not succeeded; name the path that it wrote to")
        at = index - found[0].start + found[0].source_start
        span = self._shell.results.find(found[0].turn, RecordId(found[0].source), at)
        detail = next((detail for detail in span.details if detail.index == at), None)
        return (getattr(detail, stream) if detail is not None else None), span.executor

    def _forward(self, client: Client, request: int, number: ExecutorId, fetch: Fetch) -> None:
        executor = self._shell.peers.executors.get(number)
        if executor is None:
            raise UserError(f"executor {number}, which has this output, is not here")
        self._last += 1
        self._asked[self._last] = (client, request, executor)
        executor.connection.send(
            Fetch(self._last, fetch.record, fetch.index, fetch.stream, fetch.path, fetch.offset, fetch.length)
        )

    def fetched(self, message: Fetched) -> None:
        """An executor has answered."""
        asked = self._asked.pop(message.request, None)
        if asked is not None:
            client, request, _ = asked
            value = {"data": message.data, "more": message.more, "error": message.error}
            client.connection.say(Answer(request, value))

    def lost(self, executor: Executor) -> None:
        """What an executor was asked for will not come."""
        for number in [number for number, asked in self._asked.items() if asked[2] is executor]:
            client, request, _ = self._asked.pop(number)
            client.connection.send(Refused("the executor that has this output is gone", request, "PeerLost"))


def _covers(span: object, record: int, index: int) -> bool:
    return span.record.id == record and any(low <= index < high for low, high in span.left)  # type: ignore[attr-defined]


def _number(wanted: dict[str, object], name: str, default: int = 0) -> int:
    value = wanted.get(name, default)
    if not isinstance(value, int):
        raise UserError(f"{name} must be a number, not {value!r}")
    return value


def _read(folder: str, path: str, offset: int, length: int) -> bytes | None:
    """A part of a file below a folder; None when it is not there."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.realpath(folder) + os.sep):
        return None
    try:
        with open(real, "rb") as file:
            return os.pread(file.fileno(), length, offset)
    except OSError:
        return None
