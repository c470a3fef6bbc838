"""Follows what tasks write until they have ended: `bough log -f`.

One task's output is passed on as it is, that of several line by line with the task's name before each; as JSON each
line is an object. A retry is another attempt, and is followed as well. Rule: bytes are passed on once; what an attempt
wrote last is passed on before anything of the next.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Protocol

from bough.api.display.output_lines import TaskLines, label_of_output
from bough.cli.output_writer import OutputWriter
from bough.cli.targets.jobs_database import OpenDatabase, as_int
from bough.cli.targets.selection import Selected, element_states
from bough.cli.targets.task_rows import Fields
from bough.cli.targets.task_streams import (
    OCCUPYING_STATES,
    RunningTask,
    ask_output,
    ended_rows,
    read_part,
    running_tasks,
    stream_parts,
)
from bough.errors import BoughError, PeerLost, UserError
from bough.model.states import ENDED, labels_of

_PAUSE = 0.3  # seconds between two looks
_SHARE = 5  # a look that takes longer is followed by a pause of as many times that
_ENDED = labels_of(ENDED)


class Write(Protocol):
    """Prints something of a stream; `ends` says that nothing that belongs to it follows."""

    def __call__(self, stream: str, data: bytes, *, ends: bool = False) -> None:
        """Print it at once."""


class _Seen:
    """How far the output of one task was passed on."""

    def __init__(self, streams: list[str]) -> None:
        self.attempt = 0
        self.offsets = dict.fromkeys(streams, 0)
        self.over = False

    def begin(self, attempt: int) -> None:
        self.attempt = attempt
        self.offsets = dict.fromkeys(self.offsets, 0)


class OutputFollower:
    """See the module."""

    def __init__(
        self, database: OpenDatabase, picks: list[Selected], wanted: list[str], write: Write, *, as_json: bool = False
    ) -> None:
        self._database = database
        self._picks = picks
        self._wanted = wanted
        self._write = write
        self._as_json = as_json
        self._prefixed = as_json or len(picks) != 1 or picks[0].first != picks[0].last
        self._lines = TaskLines()
        self._seen: dict[str, _Seen] = {}

    def follow(self) -> bool:
        """Pass on what the tasks write until all have ended; whether all succeeded."""
        while True:
            begun = time.monotonic()
            self._database.refresh()
            states = self._states()  # before all else: what a task that ends meanwhile wrote last is for the next look
            running = running_tasks(self._database, self._picks)
            busy = {task.label for task in running}
            for task in running:
                self._pass_on(task)
            for row in ended_rows(self._database, self._picks):
                self._pass_on_rest(row, busy)
            if states <= set(_ENDED) or not self._database.live:
                return states == {"done"}
            time.sleep(max(_PAUSE, _SHARE * (time.monotonic() - begun)))

    def _states(self) -> set[str]:
        """The states that some of the tasks are in."""
        found: set[str] = set()
        for one in self._picks:
            if one.is_array:
                found.update(state for _, _, state in element_states(self._database, one))
            else:
                found.add(str(self._database.rows("select state from tasks where id = ?", [one.id])[0]["state"]))
        return found

    def _of(self, label: str) -> _Seen:
        return self._seen.setdefault(label, _Seen(self._wanted))

    def _pass_on(self, task: RunningTask) -> None:
        """What a running task has written since the last look."""
        seen = self._of(task.label)
        seen.over = False
        if seen.attempt and seen.attempt != task.attempt:
            self._drain(task, seen)
            self._end(task.label, task.name, seen)
        if seen.attempt != task.attempt:
            seen.begin(task.attempt)
            if task.attempt > 1 and not self._prefixed:
                print(f"==> attempt {task.attempt} <==", file=sys.stderr, flush=True)
        self._drain(task, seen)

    def _drain(self, task: RunningTask, seen: _Seen) -> None:
        for stream, offset in list(seen.offsets.items()):
            try:
                data = ask_output(self._database, (task.record, task.index), stream, offset, seen.attempt).data
            except (PeerLost, UserError):
                return  # its executor has just left
            seen.offsets[stream] += len(data)
            self._print(task.label, task.name, stream, seen, data)

    def _pass_on_rest(self, row: Fields, busy: set[str]) -> None:
        """What a task wrote last that no executor has now."""
        label, name = str(row["id"]), str(row["name"] or "")
        seen = self._of(label)
        attempt = as_int(row["attempt"])
        if label in busy or (seen.over and seen.attempt == attempt):
            return
        if seen.attempt != attempt:
            seen.begin(attempt)
        for part in stream_parts(self._database, row, self._wanted):
            skip = seen.offsets[part.stream]
            for piece in read_part(part):
                self._print(label, name, part.stream, seen, piece[skip:])
                skip = max(0, skip - len(piece))
            seen.offsets[part.stream] = max(seen.offsets[part.stream], part.length)
        if row["state"] in _ENDED or row["state"] not in OCCUPYING_STATES:
            self._end(label, name, seen)
            seen.over = True

    def _print(self, label: str, name: str, stream: str, seen: _Seen, data: bytes) -> None:
        if not data:
            return
        if not self._prefixed:
            self._write(stream, data)
            return
        shown = self._label(label, name, seen.attempt)
        self._print_lines(label, name, stream, seen.attempt, self._lines.add((label, stream), shown, data))

    def _label(self, label: str, name: str, attempt: int) -> str:
        return "" if self._as_json else label_of_output(name, label, attempt)

    def _print_lines(self, label: str, name: str, stream: str, attempt: int, lines: Iterable[str]) -> None:
        for line in lines:
            if self._as_json:
                told = {"id": label, "name": name, "attempt": attempt, "stream": stream}
                text = json.dumps(told | {"line": line.removeprefix(" | ")}, ensure_ascii=False)
            else:
                text = line
            self._write(stream, f"{text}\n".encode(errors="replace"), ends=True)

    def _end(self, label: str, name: str, seen: _Seen) -> None:
        """An attempt has ended, perhaps within a line."""
        for stream in self._wanted:
            last = self._lines.end((label, stream), self._label(label, name, seen.attempt))
            self._print_lines(label, name, stream, seen.attempt, last)
            self._write(stream, b"", ends=True)


def follow_output(database: OpenDatabase, picks: list[Selected], wanted: list[str], *, as_json: bool = False) -> int:
    """Pass on what tasks write until all have ended; 1 when one did not succeed."""
    streams = {
        "stdout": OutputWriter(sys.stdout),
        "stderr": OutputWriter(sys.stderr if len(wanted) > 1 and not as_json else sys.stdout),
    }

    def write(stream: str, data: bytes, *, ends: bool = False) -> None:
        streams[stream].write(data)
        if ends:
            streams[stream].end()

    if not picks:
        return 0
    follower = OutputFollower(database, picks, wanted, write, as_json=as_json)
    try:
        return 0 if follower.follow() else 1
    except BoughError as error:
        if database.is_service or not isinstance(error, PeerLost):
            raise
        return _follow_to_the_end(database, follower)


def _follow_to_the_end(database: OpenDatabase, follower: OutputFollower) -> int:
    """The session of these tasks has ended, with its server: the rest is in its store."""
    database.leave_server()
    return 0 if follower.follow() else 1
