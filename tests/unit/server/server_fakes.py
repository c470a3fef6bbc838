"""Fakes for the server's surroundings: a loop that is turned by hand, a transport, a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from bough.errors import BoughError, StoreFailed
from bough.model.events.facts import Fact, MemoLookedUp, SpanEnded
from bough.stores.quarantine import SetAside
from bough.stores.store import LastRun, MemoArray
from bough.wire.client_messages import ToClient
from bough.wire.executor_messages import ToExecutor
from bough.wire.framing import Frames


class FakeTransport(asyncio.Transport):
    """Keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False
        self.paused = False
        self.unsent = 0  # bytes that the peer has not read, as the test wants it
        self.high = 0

    def write(self, data):
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return not self.paused

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def said(self) -> list[object]:
        """All messages written so far; forgets them."""
        frames: Frames[object] = Frames(ToClient if not self.to_executor else ToExecutor)
        messages = [message for data in self.writes for message in frames.feed(data)]
        self.writes.clear()
        return messages

    to_executor = False


class FakeStore:
    """A store in memory. `failing` is raised by `append` while it is set."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float, list[Fact]]] = []
        self.blobs: dict[bytes, bytes] = {}
        self.failing: StoreFailed | None = None
        self.memos: dict[bytes, SpanEnded] = {}
        self.reads = 0
        self.snapshots: list[tuple[int, int, bytes]] = []
        self.projected = 0
        self.closed = False
        self.contents = ""
        self.told: list[str] = []
        self.tell = self.told.append
        self.aside: list[SetAside] = []

    @property
    def last_turn(self) -> int:
        return len(self.rows)

    def quarantined(self) -> list[SetAside]:
        return self.aside

    def set_aside(self, found: Sequence[SetAside], after: int) -> None:
        self.aside = [*found]

    def keep_contents(self, folder: str) -> None:
        self.contents = folder

    def last_run(self) -> LastRun:
        return LastRun(0, True, 0, 0, 0, 0, 0)

    def append(self, turn: int, now: float, facts: Sequence[Fact]) -> None:
        if self.failing is not None:
            raise self.failing
        assert turn == len(self.rows) + 1
        self.rows.append((turn, now, list(facts)))

    def sync(self) -> None: ...

    def has_run(self, run: int) -> bool:
        return True

    def workflow_names(self) -> list[str]:
        return []

    def last_record_of(self, name: str) -> int:
        return 0

    def journal(self, after: int = 0) -> Iterator[tuple[int, float, list[Fact]]]:
        return iter(self.rows[after:])

    def turns_of_run(self, run: int) -> int:
        return 1

    def turn(self, number: int) -> list[Fact]:
        return self.rows[number - 1][2]

    def put_blob(self, blob, data) -> None:
        self.blobs[blob] = data

    def blob(self, blob) -> bytes:
        return self.blobs[blob]

    def has_blob(self, blob) -> bool:
        return blob in self.blobs

    def save_snapshot(self, turn: int, run: int, data: bytes) -> None:
        self.snapshots.append((turn, run, data))

    def snapshot(self, run: int) -> tuple[int, bytes] | None:
        found = [(turn, data) for turn, of, data in self.snapshots if of == run]
        return found[-1] if found else None

    def project(self, at_most: int = 0) -> bool:
        self.projected += 1
        return True

    def look_up(self, record, start, stop, key, reuse, run=0) -> list[MemoLookedUp]:
        return [MemoLookedUp(record, start, stop, found=False)]

    def look_up_tasks(self, wanted, run=0) -> list[MemoLookedUp]:
        return [self.look_up(record, 0, 1, key, (), run)[0] for record, key in wanted]

    def success(self, turn, record, index) -> SpanEnded | None:
        self.reads += 1
        for fact in self.turn(turn):
            if isinstance(fact, SpanEnded) and fact.record == record and fact.start <= index < fact.stop:
                return fact
        return None

    def old_arrays(self, body, run=0) -> list[MemoArray]:
        return []

    def declared_paths(self, run=0) -> list[str]:
        return ["/a"]

    def close(self, within=None) -> None:
        self.closed = True


class FakeTimer:
    def __init__(self, when: float, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.when, self.callback, self.args, self.cancelled = when, callback, args, False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Runs what was to be called soon when told to; timers fire when time is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.timers: list[FakeTimer] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback, *args) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay: float, callback, *args) -> FakeTimer:
        timer = FakeTimer(self.now + delay, callback, args)
        self.timers.append(timer)
        return timer

    def run_in_executor(self, _, function):
        return _Done(function)

    def run(self) -> None:
        """Until nothing is to be called soon."""
        while self.soon:
            callback, args = self.soon.pop(0)
            callback(*args)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in sorted(self.timers, key=lambda timer: timer.when):
            if timer.when <= self.now and timer in self.timers:
                self.timers.remove(timer)
                if not timer.cancelled:
                    timer.callback(*timer.args)
        self.run()


class _Done:
    """What a thread has done already."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._result: object = None
        self._error: Exception | None = None
        try:
            self._result = function()
        except BoughError as error:
            self._error = error

    def add_done_callback(self, callback) -> None:
        callback(self)

    def cancelled(self) -> bool:
        return False

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> object:
        return self._result
