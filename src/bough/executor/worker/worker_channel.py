"""The worker's side of its socket: what it was handed (`WorkerInbox`) and what it says (`WorkerReports`).

News are gathered and sent together, so that short elements share a frame. The function being run may take an hour while
results of earlier elements wait: a small thread sends what has waited for longer than `MAX_WAIT`. It also cuts the span
of a function that takes long: what waits behind it there goes back, to run elsewhere.

Rules: a hand-over with a token is run only if the worker could take the token (see `slot`). Results are taken out of
`SpanProgress`, and ends of commands out of `ends`, under the lock only, in order; the running function is never
interrupted for it. An element is shown as begun (`INDEX`) before it is taken from the list of calls: what the thread
cuts off that list while `INDEX` stays the same is not begun, and can be told at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from bough.executor.host.devices import WorkerDevices
from bough.executor.host.disk_space_wait import GivenUp, SpaceWait
from bough.executor.host.processes import die
from bough.executor.worker.call_isolation import is_fixed, settled
from bough.executor.worker.output_streams import Streams
from bough.executor.worker.serialisation import Blobs, Packed, pack_parts, pack_results
from bough.executor.worker_protocol import (
    GROUP,
    INDEX,
    RESULT_WAITS,
    Answer,
    ElementJudged,
    FromWorker,
    InputsStaged,
    OutputsStored,
    WorkerQuit,
    WorkerSpan,
    WorkerStop,
    WorkerVerdict,
    to_worker_frames,
)
from bough.model.events.news import CallsEnded, WorkFailed, WorkReturned, WorkSucceeded
from bough.model.ids import Seconds, SpanId
from bough.model.outcomes import Detail, Failure, Results
from bough.movers.value_files import forget_recent
from bough.wire.client_messages import Blob
from bough.wire.framing import frame_list

MAX_WAIT = 0.05  # seconds that news may wait
LONG = 2 * MAX_WAIT  # seconds after which nothing of its span waits behind an element: spans hold much shorter ones
_RESTED = 3  # times MAX_WAIT: then the next call, which may want the same big values, does not come soon
_MOST_TOGETHER = 1 << 20  # bytes of results in one piece of news
_CHUNK = 1 << 18  # bytes that are read at once


class SpanProgress:
    """The span of function calls being run: what is done of it and not yet told."""

    __slots__ = (
        "base",
        "calls",
        "details",
        "done_at",
        "first",
        "is_batch",
        "is_cut",
        "is_told",
        "name",
        "results",
        "seen",
        "since",
        "span",
        "stop",
    )

    def __init__(self, span: SpanId, base: int, stop: int, name: str, *, is_batch: bool = False) -> None:
        self.span = span
        self.is_batch = is_batch  # its elements are tasks of their own, whose spans have the next numbers
        self.base = base  # the element of results[0]
        self.name = name  # of files for big results
        self.results: list[object] = []
        self.details: list[Detail] = []
        self.since = self.done_at = time.perf_counter()
        self.first, self.stop = base, stop
        self.calls: list[object] | None = None  # those of `first` and on; None: they cannot be cut
        self.seen = -1  # the element that ran when the thread looked last
        self.is_cut = False  # no other element is begun
        self.is_told = False  # and those behind were given back


def batch_ends(  # noqa: PLR0917
    progress: SpanProgress,
    start: int,
    values: list[object],
    seconds: float,
    details: list[Detail],
    directory: str,
    pause: SpaceWait | None = None,
) -> list[CallsEnded | WorkSucceeded | WorkFailed]:
    """News of like tasks that succeeded: those that are small and wrote nothing together, the others one by one."""
    own = {detail.index: detail for detail in details}
    news: list[CallsEnded | WorkSucceeded | WorkFailed] = []
    together: list[bytes] = []
    size = 0

    def say_together(stop: int) -> None:
        nonlocal together, size
        if together:
            news.append(CallsEnded(progress.span, stop - len(together), [seconds] * len(together), together))
            together, size = [], 0

    for index, value in enumerate(values, start):
        ((_, _, found),) = pack_results(index, [value], directory, progress.name, pause=pause)
        if isinstance(found, bytes) and index not in own:
            if size > _MOST_TOGETHER:
                say_together(index)
            together.append(found)
            size += len(found)
            continue
        say_together(index)
        span = SpanId(progress.span + index)
        detail = msgspec.structs.replace(own[index], index=0) if index in own else None
        if isinstance(found, Failure):
            news.append(WorkFailed(span, 0, found, detail))
        else:
            news.append(WorkSucceeded(span, 0, 1, seconds, found, (detail,) if detail is not None else ()))
    say_together(start + len(values))
    return news


class WorkerReports:
    """The worker's side of the socket to its executor."""

    def __init__(
        self,
        sock: socket.socket,
        result_dir: str,
        cells: memoryview[int],
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`say`: results lie in the store; when that is full it is waited for, and said."""
        self._sock = sock
        self._cells = cells
        self._result_dir = result_dir
        self._news: list[FromWorker] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._asleep = False
        self._thread = False
        self._sent = time.perf_counter()
        self._span = SpanId(0)  # of the commands in `ends`
        self.ends: list[Detail] = []  # successes of commands: put in without the lock, told with the next news
        self.progress: SpanProgress | None = None
        self._begun = 0  # spans of functions so far
        self.last: Results = None  # of the element that was told last, unless that was one of a batch
        waits = partial(cells.__setitem__, RESULT_WAITS)
        self._pause = SpaceWait(say, lambda: self.must_leave, waits) if say is not None else None
        self.inside = False  # the main thread is in here: a signal handler must not come in
        self.must_leave = False  # a signal came meanwhile: say what is known and exit

    def __enter__(self) -> None:
        self.inside = True
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        self.inside = False
        if self.must_leave:
            self.leave()

    def say(self, news: FromWorker) -> None:
        """Add news; they leave with the next `flush`, or after a while."""
        with self:
            self._gather_ends()
            self._news.append(news)

    def begin_commands(self, span: SpanId) -> None:
        """A span of commands begins: what is put into `ends` from now on is of this one."""
        if self.ends:
            with self:
                self._gather_ends()
        self._span = span

    def begin(self, progress: SpanProgress) -> None:
        """A span of functions begins: results put into it are told in time."""
        with self:
            self.progress = progress
            self._begun += 1
        if not self._thread:
            self._thread = True
            threading.Thread(target=self._remind, name="bough-reports", daemon=True).start()
        elif self._asleep:
            self._wake.set()

    def end(self, news: FromWorker) -> None:
        """The span of functions is over."""
        with self:
            self._gather()
            self.progress = None
            self._news.append(news)

    def add(self, progress: SpanProgress, value: object) -> None:
        """An element returned something that those after it may change."""
        found = value if is_fixed(value) else settled(value)
        progress.results.append(value if found is None else found)
        progress.done_at = time.perf_counter()
        if found is None:
            with self:
                self._gather()

    def give_back_rest(self, start: int) -> None:
        """The span of functions was cut, and this is how far it came: say so if that was not certain before."""
        with self:
            progress = self.progress
            if progress is not None and not progress.is_told and start < progress.stop:
                self._news.append(WorkReturned(progress.span, start, progress.stop))

    def fail(self, index: int, failure: Failure, detail: Detail | None = None) -> None:
        """An element of the span of functions failed."""
        with self:
            self._gather()
            progress = self.progress
            if progress is not None:
                now = time.perf_counter()
                if detail is None:  # how long it took is worth knowing: tasks that fail at once need not go one by one
                    ended = time.time()
                    detail = Detail(index, started=ended - (now - progress.since), ended=ended)
                self._news.append(WorkFailed(progress.span, index, failure, detail))
                progress.base = index + 1
                progress.since = now

    def due(self, max_wait: float = MAX_WAIT) -> bool:
        """Whether news have waited long enough."""
        return self.waiting and time.perf_counter() - self._sent > max_wait

    @property
    def waiting(self) -> bool:
        """Whether there is something to say."""
        return bool(self._news or self.ends)

    def flush(self) -> None:
        """Send all that is known."""
        with self:
            self._gather()
            self._send()

    def leave(self) -> None:
        """Say what is known and end the process."""
        self.must_leave = False
        self.inside = True
        try:
            if self._lock.acquire(timeout=1):
                self._gather()
                self._send()
        finally:
            os._exit(0)

    def _send(self) -> None:
        self._sent = time.perf_counter()
        if self._news:
            news, self._news = self._news, []
            try:
                self._sock.sendall(frame_list(news))
            except OSError:  # the executor has ended, and with it the reason to be here
                die(self._cells[GROUP])

    def _gather(self, careful: bool = False) -> None:
        """Make news of results. `careful`: a function runs and may be changing them, so let them be if they fail."""
        self._gather_ends()
        progress = self.progress
        if progress is None or not progress.results:
            return
        count = len(progress.results)
        values = progress.results[:count]
        packed: Packed | None = None
        if careful:
            try:
                packed = pack_parts(values)
            except Exception:  # noqa: BLE001 -- the main thread finds the guilty one when it comes by
                return
        del progress.results[:count]
        start = progress.base
        progress.base = start + count
        seconds = max(0.0, progress.done_at - progress.since)
        progress.since = max(progress.done_at, progress.since)
        details = [detail for detail in progress.details if detail.index < progress.base]
        del progress.details[: len(details)]
        with contextlib.suppress(GivenUp):  # what was not written is as if it had not ended
            self._tell_results(progress, (start, values, packed), seconds, details)

    def _tell_results(
        self,
        progress: SpanProgress,
        found_from: tuple[int, list[object], Packed | None],
        seconds: float,
        details: list[Detail],
    ) -> None:
        start, values, packed = found_from
        count = len(values)
        if progress.is_batch:
            ends = batch_ends(progress, start, values, seconds / count, details, self._result_dir, self._pause)
            self._news += ends
            self.last = None
            return
        parts = pack_results(start, values, self._result_dir, progress.name, packed=packed, pause=self._pause)
        for first, stop, found in parts:
            own = tuple(detail for detail in details if first <= detail.index < stop) if details else ()
            if isinstance(found, Failure):
                self._news.append(WorkFailed(progress.span, first, found, own[0] if own else None))
            else:
                self.last = found
                share = seconds * (stop - first) / count
                self._news.append(WorkSucceeded(progress.span, first, stop, share, found, own))

    def _gather_ends(self) -> None:
        """Make news of commands that succeeded, neighbours as one."""
        ends = self.ends
        if not ends:
            return
        details = ends[:]
        del ends[: len(details)]
        first = 0
        for at, detail in enumerate(details, 1):
            if at == len(details) or details[at].index != detail.index + 1:
                part = tuple(details[first:at])
                seconds = sum([one.ended - one.started for one in part])
                self._news.append(WorkSucceeded(self._span, part[0].index, detail.index + 1, seconds, None, part))
                first = at

    def _cut_if_long(self, progress: SpanProgress, calls: list[object]) -> None:
        """Give back what waits behind an element that ran already when this was called last."""
        index = self._cells[INDEX]
        if index != progress.seen or index + 1 >= progress.stop:
            progress.seen = index
            return
        progress.is_cut, progress.calls = True, None
        del calls[index + 1 - progress.first :]
        if self._cells[INDEX] == index:
            progress.is_told = True
            self._news.append(WorkReturned(progress.span, index + 1, progress.stop))

    def _remind(self) -> None:
        """The thread: send what waits while a function runs on."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        quiet = resting = begun = 0
        while True:
            time.sleep(MAX_WAIT)
            with self._lock:
                progress = self.progress
                resting = resting + 1 if progress is None and begun == self._begun else 0
                begun = self._begun
                if resting == _RESTED:
                    forget_recent()
                if progress is not None and progress.calls is not None:
                    self._cut_if_long(progress, progress.calls)
                if self.due() or (progress is not None and progress.results):
                    quiet = 0
                    self._gather(careful=True)
                    self._send()
                else:
                    quiet += 1
            if quiet > 20 and self.progress is None:
                self._asleep = True
                self._wake.wait()
                self._wake.clear()
                self._asleep = False
                quiet = 0


class WorkerInbox:
    """What the executor said and what of it is still to be run."""

    def __init__(self, sock: socket.socket, tokens: int, blobs: Blobs, cells: memoryview[int]) -> None:
        self.sock = sock
        self._cells = cells
        self._frames = to_worker_frames()
        self._in = memoryview(bytearray(_CHUNK))  # kept: a new one for every read costs more than the read
        self._hands: deque[WorkerSpan] = deque()
        self._tokens = tokens
        self._kept: set[int] = set()  # tokens read before their turn
        self._blobs = blobs
        self._stops: list[WorkerStop] = []
        self._verdict: WorkerVerdict | None = None  # the last: only one element runs
        self.quit: Seconds | None = None  # the grace, once told to go
        self._answers: deque[Answer] = deque()

    def read(self) -> None:
        """Wait for something, and take it in."""
        count = self.sock.recv_into(self._in)
        if not count:
            die(self._cells[GROUP])
        for message in self._frames.feed(self._in[:count]):
            match message:
                case WorkerSpan():
                    self._hands.append(message)
                case Blob():
                    self._blobs.data[message.id] = message.data
                case WorkerStop():
                    self._stops.append(message)
                case WorkerVerdict():
                    self._verdict = message
                case WorkerQuit():
                    self.quit = message.grace
                case InputsStaged() | OutputsStored() | ElementJudged():
                    self._answers.append(message)

    def answer(self, number: int, index: int) -> Answer | None:
        """Wait for what the executor was asked about an element; None when it was stopped."""
        while self.quit is None and not self.stopped_by(number, index):
            while self._answers:
                answer = self._answers.popleft()
                if (answer.number, answer.index) == (number, index):
                    return answer
            self.read()
        return None

    def next(self) -> WorkerSpan | None:
        """The next hand-over that was not taken back."""
        while self._hands:
            hand = self._hands.popleft()
            if not hand.token or self._granted(hand.number):
                return hand
        return None

    def _granted(self, number: int) -> bool:
        if number in self._kept:
            self._kept.discard(number)
            return True
        try:
            token = int.from_bytes(os.read(self._tokens, 8), "little")
        except BlockingIOError:
            return False
        if token == number:
            return True
        self._kept.add(token)  # of a later one: this one was taken back
        return False

    def forget_stops(self, number: int) -> None:
        """A hand-over is over, and with it what was said of it."""
        if self._stops:
            self._stops = [order for order in self._stops if order.number > number]

    def stopped_by(self, number: int, index: int) -> WorkerStop | None:
        """The order by which an element shall not run; None: it may."""
        for order in self._stops:
            if order.number == number and order.start <= index < order.stop:
                return order
        return None

    def verdict_on(self, number: int, index: int) -> WorkerVerdict | None:
        """The verdict with which a command that runs is to end; None: there is none."""
        verdict = self._verdict
        return verdict if verdict is not None and (verdict.number, verdict.index) == (number, index) else None


class WorkerContext(NamedTuple):
    """Everything that running a span needs."""

    cells: memoryview[int]
    streams: Streams
    reports: WorkerReports
    blobs: Blobs
    inbox: WorkerInbox
    environment: dict[bytes, bytes]  # as it was when the worker began
    devices: WorkerDevices  # what its tasks may use now
