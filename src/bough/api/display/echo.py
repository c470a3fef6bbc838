"""Shows what tasks print as it comes, each line with its task before it: `Session(echo=True)`.

What a task has written that runs is asked for a few times a second; what one wrote that has ended is read from where it
lies. Standard output goes to standard output, standard error to standard error. A retry has its attempt in its name.
What earlier runs printed is not shown again. A notebook's cell ends when what its tasks have printed so far is shown:
later it would be shown below another cell.

Rules: the session never waits for this, nor does a cell for more than a second. What is read, held and printed in a
look is bounded, and what is left out is said, with the number of lines. Lines are whole.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TextIO

from msgspec.structs import replace

from bough.api.display.output_lines import TaskLines, label_of_output
from bough.api.display.surroundings import after_each_cell, has_colour
from bough.api.futures.task_registry import TaskRegistry
from bough.errors import BoughError
from bough.model.arrays.array_indices import task_label
from bough.model.ids import RecordId, number_of
from bough.model.outcomes import Detail, Stream
from bough.wire import questions
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded, ToClient

LOOK_EVERY = 0.15  # seconds
MOST_LINES = 2_000  # printed in a look
MOST_OF_ONE = 200  # of these by one task and stream, so that one that floods leaves room for others
MOST_BYTES = 256 << 10  # read of one stream of one task in a look
MOST_BEHIND = 4 * MOST_BYTES  # what a running task wrote beyond that is left out
MOST_WAITING = 5_000  # tasks that have ended and are not shown yet
MOST_RUNNING = 64  # running tasks that are asked for in a look
LAST_LOOK = 3.0  # seconds that the end of a session may be delayed
CELL_END = 1.0  # seconds that the end of a cell may be delayed
_STREAMS = ("stdout", "stderr")
_DIM, _PLAIN = "\x1b[36m", "\x1b[0m"


class _Key(NamedTuple):
    """An attempt at a task."""

    record: int
    element: int
    attempt: int


class _Ended(NamedTuple):
    """An attempt that has ended, with where it wrote; no detail: the server knows."""

    key: _Key
    label: str
    detail: Detail | None


class _Shown:
    """How much of one attempt was shown."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.offsets = dict.fromkeys(_STREAMS, 0)


class Echo:
    """See the module."""

    def __init__(self, registry: TaskRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._running: dict[tuple[int, int], tuple[_Key, str]] = {}
        self._ended: deque[_Ended] = deque()
        self._dropped = 0  # tasks that ended while too many waited to be shown
        self._shown: dict[_Key, _Shown] = {}
        self._lines = TaskLines()
        self._left_out: Counter[str] = Counter()  # lines, by label
        self._guessed: set[str] = set()  # labels whose number of lines is one of bytes divided by their usual length
        self._room = 0  # lines that may be printed in this look
        self._wake = threading.Event()
        self._over = threading.Event()
        self._looked = threading.Condition()
        self._asked = self._answered = 0  # looks that somebody waits for; those that were done
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._watch, name="bough-echo", daemon=True)
        registry.listeners.append(self.on_messages)
        self._thread.start()
        self._leave_cells = after_each_cell(self.catch_up)

    # --- from the server, in the thread that reads -----------------------------------------------------

    def on_messages(self, messages: Sequence[ToClient]) -> None:
        """Note what runs, and what has ended and wrote something."""
        for message in messages:
            if isinstance(message, TasksRunning):
                self._note_running(message)
            elif isinstance(message, TasksSucceeded):
                if message.details and not message.reused:
                    for detail in message.details:
                        if detail.stdout or detail.stderr:
                            self._note_ended(message.record, detail.index, message.attempt, detail)
                if self._running:
                    self._forget_running(message.record, message.start, message.stop)
            elif isinstance(message, TasksFailed):
                wrote = message.detail
                if wrote is not None and (wrote.stdout or wrote.stderr):
                    self._note_ended(message.record, wrote.index, message.attempt, wrote)
                    self._forget_running(message.record, wrote.index, wrote.index + 1)
                self._end_running(message.record, message.start, message.stop)

    def _note_running(self, message: TasksRunning) -> None:
        if not message.attempt:  # it failed and comes again, or was given back
            wrote = message.detail
            if wrote is not None and (wrote.stdout or wrote.stderr):
                self._note_ended(message.record, wrote.index, message.ended, wrote)
                self._forget_running(message.record, wrote.index, wrote.index + 1)
            self._end_running(message.record, message.start, message.stop)
            return
        for index in range(message.start, min(message.stop, message.start + MOST_RUNNING)):
            key = _Key(message.record, index, message.attempt)
            with self._lock:
                if len(self._running) < MOST_WAITING:
                    self._running[message.record, index] = (key, self._label(key))

    def _note_ended(self, record: int, index: int, attempt: int, detail: Detail) -> None:
        key = _Key(record, index, attempt)
        with self._lock:
            if len(self._ended) < MOST_WAITING:
                self._ended.append(_Ended(key, self._label(key), detail))
            else:
                self._dropped += 1

    def _end_running(self, record: int, start: int, stop: int) -> None:
        """Tasks that ran do so no more; where they wrote was not said."""
        with self._lock:
            for place in [place for place in self._running if place[0] == record and start <= place[1] < stop]:
                key, label = self._running.pop(place)
                self._ended.append(_Ended(key, label, None))

    def _forget_running(self, record: int, start: int, stop: int) -> None:
        with self._lock:
            for place in [place for place in self._running if place[0] == record and start <= place[1] < stop]:
                self._running.pop(place)

    def _label(self, key: _Key) -> str:
        task = self._registry.tasks.get(key.record)
        if task is not None:
            return label_of_output(task.name, str(task.id), key.attempt)
        known = self._running.get((key.record, key.element))
        if known is not None and known[0] == key:
            return known[1]
        array = self._registry.arrays.get(key.record)
        name, selector = "", str(number_of(key.record))
        if array is not None:
            name, selector = array.name, task_label(key.record, key.element, array.indices)
        return label_of_output(name, selector, key.attempt)

    # --- in a thread of its own ------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Return when what tasks have printed by now is shown, or after a second."""
        with self._looked:
            self._asked += 1
            mine = self._asked
            self._wake.set()
            self._looked.wait_for(lambda: self._answered >= mine, CELL_END)

    def finish(self) -> None:
        """Show what is left, for a few seconds at most."""
        self._leave_cells()
        self._leave_cells = _nothing
        self._deadline = time.monotonic() + LAST_LOOK
        self._over.set()
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        if self.on_messages in self._registry.listeners:
            self._registry.listeners.remove(self.on_messages)

    def _watch(self) -> None:
        over = False
        while not over:
            self._wake.wait(LOOK_EVERY)
            self._wake.clear()
            over, asked = self._over.is_set(), self._asked
            try:
                self._look()
            except (OSError, ValueError):  # standard output is closed: nobody looks
                return
            if asked > self._answered:
                with self._looked:
                    self._answered = asked
                    self._looked.notify_all()
        while self._ended and time.monotonic() < self._deadline:
            self._look()

    def _look(self) -> None:
        self._room = MOST_LINES
        with self._lock:
            running = list(self._running.values())[:MOST_RUNNING]
            ended = [self._ended.popleft() for _ in range(min(len(self._ended), MOST_LINES))]
            dropped, self._dropped = self._dropped, 0
        for one in ended:
            self._show_ended(one)
        for key, label in running:
            self._show_new(self._shown.setdefault(key, _Shown(label)), key)
        if self._over.is_set():
            for key, shown in self._shown.items():
                self._end_lines(key, shown)
        said = [f"{label} | ... {self._amount(label, count)} left out" for label, count in self._left_out.items()]
        said += [f"... what {dropped:,} tasks printed was left out, see bough log"] if dropped else []
        self._left_out.clear()
        self._guessed.clear()
        _write(sys.stderr, said)

    def _amount(self, label: str, count: int) -> str:
        return f"{'about ' if label in self._guessed else ''}{count:,} {'line' if count == 1 else 'lines'}"

    def _show_ended(self, one: _Ended) -> None:
        shown = self._shown.pop(one.key, None) or _Shown(one.label)
        if one.detail is None:
            self._show_new(shown, one.key)
        else:
            for name, stream in zip(_STREAMS, (one.detail.stdout, one.detail.stderr), strict=True):
                if stream is not None and stream.length > shown.offsets[name]:
                    self._show_rest(one.key, shown, name, stream)
        self._end_lines(one.key, shown)

    def _show_rest(self, key: _Key, shown: _Shown, name: str, stream: Stream) -> None:
        """The rest of what an attempt wrote, or the beginning of that."""
        seen = shown.offsets[name]
        length = min(stream.length - seen, MOST_BYTES)
        with suppress(BoughError):
            part = replace(stream, offset=stream.offset + seen, length=length, data=b"")
            data = self._registry.read_output(key.record, key.element, name, part)
            self._add(key, shown, name, data, skipped=stream.length - seen - length)

    def _show_new(self, shown: _Shown, key: _Key) -> None:
        """What an attempt wrote since the last look; the server knows where."""
        connection = self._registry.connection
        if connection is None or connection.ended.is_set():
            return
        for name in _STREAMS:
            seen = shown.offsets[name]
            place = (RecordId(key.record), key.element, questions.stream_name(name))
            with suppress(BoughError):
                said = connection.ask(questions.Output(*place, seen, MOST_BYTES, attempt=key.attempt))
                behind = said.size - seen - len(said.data) if said.size else 0
                skipped = max(0, behind - MOST_BYTES) if behind > MOST_BEHIND else 0
                self._add(key, shown, name, said.data, skipped)

    def _add(self, key: _Key, shown: _Shown, name: str, data: bytes, skipped: int) -> None:
        shown.offsets[name] += len(data) + skipped
        place = (*key, name)
        on_terminal = _stream_of(name).isatty()
        lines = list(self._lines.add(place, shown.label, data, on_terminal=on_terminal)) if data else []
        if skipped:
            lines += self._lines.end(place, shown.label, on_terminal=on_terminal)
            mean = max(1, len(data) // max(1, data.count(b"\n")))
            self._left_out[shown.label] += max(1, skipped // mean)
            self._guessed.add(shown.label)
        self._print(shown.label, name, lines)

    def _end_lines(self, key: _Key, shown: _Shown) -> None:
        for name in _STREAMS:
            rest = self._lines.end((*key, name), shown.label, on_terminal=_stream_of(name).isatty())
            self._print(shown.label, name, list(rest))

    def _print(self, label: str, name: str, lines: list[str]) -> None:
        most = min(self._room, MOST_OF_ONE)
        if len(lines) > most:
            self._left_out[label] += len(lines) - most
            del lines[most:]
        self._room -= len(lines)
        _write(_stream_of(name), lines)


def _stream_of(name: str) -> TextIO:
    return sys.stdout if name == "stdout" else sys.stderr


def _nothing() -> None:
    pass


def _write(stream: TextIO, lines: Iterable[str]) -> None:
    """Print lines in one go, so that nothing comes between them."""
    text = "".join(_painted(lines) if has_colour(stream) else [f"{line}\n" for line in lines])
    if text:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _painted(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        label, bar, text = line.partition(" | ")
        yield f"{_DIM}{label}{bar}{_PLAIN}{text}\n" if bar else f"{line}\n"
