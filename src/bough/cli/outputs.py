"""What tasks wrote, at a service: asked for through the server, wherever it lies.

A running task's output comes from its executor; that of one that has ended by the place the jobs database names.
Rule: bytes are passed on as they are, each once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bough.cli.database import Database
from bough.errors import PeerLost, UserError
from bough.model.ids import ExecutorId, RecordId
from bough.wire import questions

PIECE = 4 << 20  # bytes asked for at a time
_PAUSE = 0.3  # seconds between two looks at a running task
ENDED = frozenset({"done", "failed", "notrun", "cancelled"})

Write = Callable[[str, bytes], None]  # a stream's name, and what the task wrote to it


class FarTask:
    """One task whose output is read."""

    def __init__(self, database: Database, record: int, index: int) -> None:
        self._database = database
        self.record = record
        self.index = index

    def row(self) -> dict[str, object]:
        """What the jobs database has of it now."""
        self._database.refresh()
        columns = "state, executor, " + ", ".join(
            f"{stream}_{part}" for stream in ("stdout", "stderr") for part in ("path", "offset", "length")
        )
        own = self._database.rows(
            f"select {columns} from elements where id = ? and idx = ?", [self.record, self.index]
        ) or self._database.rows(f"select {columns} from tasks where id = ? and is_array = 0", [self.record])
        return own[0] if own else {"state": self._span_state()}

    def _span_state(self) -> str:
        rows = self._database.rows(
            "select state from spans where id = ? and start <= ? and stop > ? and state != 'lost' order by placed",
            [self.record, self.index, self.index],
        )
        return str(rows[-1]["state"]) if rows else "waiting"

    def now(self, stream: str, offset: int) -> tuple[bytes, bool]:
        """What a running task has written from an offset on, and whether more may follow."""
        said = self._ask(stream, offset, PIECE)
        return said.data, said.more

    def kept(self, row: dict[str, object], stream: str, offset: int = 0) -> Iterator[bytes]:
        """What a task that has ended wrote from an offset on."""
        path, start, length = (row.get(f"{stream}_{part}") for part in ("path", "offset", "length"))
        executor = row.get("executor")
        if not path or not isinstance(start, int) or not isinstance(length, int):
            return
        number = executor if isinstance(executor, int) else 0
        while offset < length:
            piece = self._ask(stream, start + offset, min(PIECE, length - offset), str(path), number).data
            if not piece:
                return
            yield piece
            offset += len(piece)

    def _ask(self, stream: str, offset: int, length: int, path: str = "", executor: int = 0) -> questions.OutputReply:
        assert self._database.server is not None
        wanted = questions.Output(
            RecordId(self.record), self.index, questions.stream_name(stream), offset, length, path, ExecutorId(executor)
        )
        said = self._database.server.ask(wanted)
        if said.error:
            raise PeerLost(f"the output of task {self.record}.{self.index} cannot be read: {said.error}")
        return said


def follow(task: FarTask, streams: list[str], write: Write, *, once: bool = False) -> str:
    """Pass on what a task writes until it has ended, or what there is so far; returns its state."""
    seen = dict.fromkeys(streams, 0)
    while True:
        row = task.row()
        state = str(row["state"])
        if state in ENDED:
            for stream in streams:
                for piece in task.kept(row, stream, seen[stream]):
                    write(stream, piece)
            return state
        news = False
        if state == "running":
            news = _pass_on(task, seen, write)
        if once and not news:
            return state
        if not news:
            time.sleep(_PAUSE)


def _pass_on(task: FarTask, seen: dict[str, int], write: Write) -> bool:
    """Pass on what is new in the streams of a running task; whether there was something."""
    news = False
    for stream, offset in list(seen.items()):
        try:
            data, _ = task.now(stream, offset)
        except UserError:
            return news  # it has ended just now
        if data:
            write(stream, data)
            seen[stream] += len(data)
            news = True
    return news
