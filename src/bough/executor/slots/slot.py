"""A slot: the executor's side of one worker process, and what that worker has been handed.

All that a slot holds at a time has equal needs, occupied once: its worker runs one element at a time. A hand-over in
advance gets a token, its number in a pipe that both sides can read. The side that takes the token out has the
hand-over, so the executor can take it back from a worker that turns out to be busy. Rule: writing to a worker never
blocks, and a running element is ended with a verdict by `end_with` alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from bough import fork_warning, logs
from bough.errors import BadValue, ProtocolError
from bough.executor.host.descriptors import Descriptors, Handler
from bough.executor.host.devices import TaskDevices
from bough.executor.host.processes import fork_deaf, hear_signals, kill, kill_group
from bough.executor.slots.backlog import QueuedSpan
from bough.executor.slots.preloader import Preloader
from bough.executor.worker.output_streams import stream_path
from bough.executor.worker.worker import WorkerSetting, work
from bough.executor.worker_protocol import (
    ERR,
    GENERATION,
    GROUP,
    HANDOVER,
    INDEX,
    OUT,
    FromWorker,
    ToWorker,
    Verdict,
    WorkerSpan,
    WorkerStop,
    WorkerVerdict,
    from_worker_frames,
    new_cells,
)
from bough.model.ids import BlobId, Seconds
from bough.model.monitoring.monitors import decode_plan, files_followed
from bough.model.outcomes import Detail, EndedEarly, Stream
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind
from bough.wire.client_messages import Blob
from bough.wire.framing import frame_list

_CHUNK = 1 << 18
_KEPT = 1024  # plans of which it is remembered which files they follow
_NOWHERE: Mapping[int, str] = MappingProxyType({})
_in = memoryview(bytearray(_CHUNK))  # what was read last, from any worker: one thread reads


class Ending(NamedTuple):
    """A worker is being ended."""

    kill_at: float  # monotonic seconds
    element: tuple[int, int] = (0, 0)  # hand-over and index of the element that it is ended for
    verdict: Verdict = None  # on that element


class WorkerSlot:
    """One worker process."""

    def __init__(self, number: int, name: str, generation: int, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self.number = number
        self.name = name
        self.cells, self._cells_fd = new_cells()
        self.cells[GENERATION] = generation
        self.held: deque[QueuedSpan] = deque()
        self.needs: Needs | None = None
        self.devices: TaskDevices | None = None  # GPUs and cores that what it holds may use
        self.bound: tuple[str, ...] = ()  # GPUs that a library in this worker may be using since a task had them
        self.known: set[BlobId] = set()
        self.ending: Ending | None = None
        self.seen = (0, 0)  # the element last seen running
        self.seen_at = 0.0
        self.told = False  # the server knows that it runs
        self.looked = 0.0  # when its memory was looked at
        self.gone = False  # nothing more will come from it
        self._writing = False  # waiting to be writable
        self._ended = (0, 0)  # the command that its worker was told to end
        self._frames = from_worker_frames()
        self._out = bytearray()
        self.sock: socket.socket
        self.pid = self.pidfd = self._token_read = self._token_write = -1

    def fork(self, blobs: dict[BlobId, bytes], setting: WorkerSetting, preloader: Preloader | None = None) -> None:
        """Start the worker: a fork of the preloader, if that can, else of this process with all blobs there are now."""
        self.sock, theirs = socket.socketpair()
        self._token_read, self._token_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.pid = preloader.fork(theirs, self._token_read, self._cells_fd, setting) if preloader is not None else 0
        if not self.pid:
            self.known = set(blobs)
            fork_warning.keep_quiet()  # also in the worker, whose functions may fork
            self.pid = fork_deaf()
            if self.pid == 0:
                _become_worker(theirs, self._token_read)
                work(theirs, self._token_read, self.cells, blobs, setting)
        os.close(self._cells_fd)
        theirs.close()
        self.sock.setblocking(False)
        self.pidfd = os.pidfd_open(self.pid)

    def watch(self, on_ready: Handler, on_dead: Handler) -> None:
        """Have the worker's socket and its process watched."""
        self._descriptors.add(self.sock.fileno(), on_ready)
        self._descriptors.add(self.pidfd, on_dead)

    def hand_over(
        self,
        batch: list[QueuedSpan],
        numbers: range,
        blobs: dict[BlobId, bytes],
        directories: Mapping[int, str] = _NOWHERE,
    ) -> None:
        """Hand over spans, to be run after those the worker has; `directories`: those that are not seen here."""
        messages: list[ToWorker] = []
        tokens = bytearray()
        for held, number in zip(batch, numbers, strict=True):
            run = held.run
            for blob in (run.body, run.table):
                if blob and blob not in self.known and blob in blobs:
                    self.known.add(blob)
                    messages.append(Blob(blob, blobs[blob]))
            held.number, held.batch_end = number, numbers[-1]
            held.token = bool(self.held)
            if held.token:
                tokens += number.to_bytes(8, "little")
            watched = _followed(held, blobs) if run.watch or held.late else None
            messages.append(WorkerSpan(number, run, held.token, directories.get(run.run, ""), self.devices, watched))
            self.held.append(held)
        if tokens:
            os.write(self._token_write, tokens)
        self.send(messages)

    def take_back(self) -> list[QueuedSpan]:
        """Take back all that the worker has not begun."""
        try:
            data = os.read(self._token_read, 1 << 16)
        except BlockingIOError:
            return []
        numbers = {int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)}
        taken = [held for held in self.held if held.number in numbers]
        self.held = deque(held for held in self.held if held.number not in numbers)
        return taken

    def done(self, number: int) -> bool:
        """Drop a hand-over that is finished; whether the worker has nothing more to do."""
        while self.held and self.held[0].number <= number:
            self.held.popleft()
        return not self.held

    @property
    def batches(self) -> int:
        """How many hand-overs are under way, counting those made together as one, and more than two as two."""
        if not self.held:
            return 0
        return 1 if self.held[0].batch_end == self.held[-1].batch_end else 2

    def send(self, messages: list[ToWorker]) -> None:
        """Send messages to the worker."""
        data = frame_list(messages)
        if self._out:
            self._out += data
        else:
            self._out = data
        self.write()

    def write(self) -> None:
        """Send what the socket takes; what is left goes when it takes more."""
        while self._out:
            try:
                sent = self.sock.send(self._out)
            except BlockingIOError:
                break
            except OSError:  # it died; the pidfd says so, too
                self._out.clear()
                break
            del self._out[:sent]
        if bool(self._out) is not self._writing:
            self._writing = not self._writing
            self._descriptors.want_write(self.sock.fileno(), self._writing)

    def read(self, to_the_end: bool = False) -> list[FromWorker]:
        """What the worker has said: a chunk, or all that is there."""
        found: list[FromWorker] = []
        while True:
            try:
                count = self.sock.recv_into(_in)
            except BlockingIOError:
                return found
            except OSError:
                count = 0
            if not count:
                self._stop_reading()
                return found
            try:
                found += self._frames.feed(_in[:count])
            except ProtocolError as error:  # a task wrote to the socket: its worker is lost, and its tasks with it
                logs.error("worker-killed", f"what worker {self.name} sent cannot be read: {error}")
                self._stop_reading()
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
                return found
            if not to_the_end:
                return found

    def _stop_reading(self) -> None:
        """Nothing more will come; the end of the process is still watched."""
        self.gone = True
        self._descriptors.remove(self.sock.fileno())

    def current(self) -> tuple[int, int]:
        """Hand-over and element that are being run, by the shared memory."""
        return self.cells[HANDOVER], self.cells[INDEX]

    def end_with(self, held: QueuedSpan, index: int, verdict: Verdict, grace: Seconds) -> bool:
        """End an element that runs here with a verdict, which is reported as its outcome (None: nothing is).

        A command is ended by its worker, which goes on; a function ends with its worker. What runs gets TERM, and KILL
        after the grace. False: it was being ended already. An element that has just finished keeps its own outcome.
        """
        element = (held.number, index)
        if self.ending is not None or self._ended == element:
            return False
        if held.run.kind == Kind.COMMAND:
            self._ended = element
            if verdict is None:
                self.send([WorkerStop(held.number, index, index + 1, grace)])
            elif isinstance(verdict, EndedEarly):
                self.send([WorkerVerdict(held.number, index, None, grace, verdict)])
            else:
                self.send([WorkerVerdict(held.number, index, verdict, grace)])
        else:
            self.end(Ending(time.monotonic() + grace, element, verdict))
        return True

    def end(self, ending: Ending) -> None:
        """Ask the worker to send its news and to exit; KILL comes when `kill_at` has passed."""
        if self.ending is None:
            self.ending = ending
            kill(self.pid, signal.SIGTERM)

    def signal(self, held: QueuedSpan, number: int) -> bool:
        """Send a signal to the processes of the command that runs here, or to the one that runs a function.

        False: it has ended.
        """
        if held.run.kind == Kind.COMMAND:
            return bool(self.cells[GROUP]) and kill_group(self.cells[GROUP], number)
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """End the worker, what it started and its command at once."""
        kill(self.pid)
        self.kill_command()

    def kill_command(self) -> None:
        """End the process groups of a worker that is dead: its own, and that of its command."""
        kill_group(self.pid)
        if self.cells[GROUP]:
            kill_group(self.cells[GROUP])

    def stream(self, directory: str, name: str) -> tuple[str, int]:
        """The file of a stream, and where the element that is being run begins in it."""
        cell, suffix = (ERR, "err") if name == "stderr" else (OUT, "out")
        return stream_path(directory, self.name, self.cells[GENERATION], suffix), self.cells[cell]

    def last_output(self, directory: str, index: int) -> Detail | None:
        """What the element at which the worker died had written."""
        found: list[Stream | None] = []
        for name in ("stdout", "stderr"):
            path, begin = self.stream(directory, name)
            try:
                length = os.stat(path).st_size - begin
            except OSError:
                length = 0
            found.append(Stream(path, begin, length) if length > 0 else None)
        return Detail(index, stdout=found[0], stderr=found[1]) if any(found) else None

    def close(self) -> None:
        """Close and forget its descriptors."""
        for fd in (self.sock.fileno(), self.pidfd):
            self._descriptors.remove(fd)
        self.sock.close()
        for fd in (self.pidfd, self._token_read, self._token_write):
            os.close(fd)


_followed_by: dict[BlobId, list[str]] = {}  # plans, by what they say; what cannot be read follows nothing


def _followed(held: QueuedSpan, blobs: dict[BlobId, bytes]) -> list[str]:
    """The files that are followed while elements of a span run."""
    found: dict[str, None] = {}
    for plan in (*held.run.watch, *(late[2] for late in held.late or ())):
        if plan not in _followed_by:
            if len(_followed_by) > _KEPT:
                _followed_by.clear()
            try:
                places = files_followed(decode_plan(blobs.get(plan, b"")))
            except BadValue:
                places = set()
            _followed_by[plan] = sorted(places)
        found.update(dict.fromkeys(_followed_by[plan]))
    return list(found)


def work_preloaded(sock: socket.socket, tokens: int, cells: memoryview[int], setting: WorkerSetting) -> NoReturn:
    """In a fork of the preloader: be a worker that knows no blobs yet."""
    fork_warning.keep_quiet()
    _become_worker(sock, tokens)
    work(sock, tokens, cells, {}, setting)


def _become_worker(sock: socket.socket, tokens: int) -> None:
    """In the child: own process group, own descriptors only, quiet signals."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hear_signals()
    low, high = sorted((sock.fileno(), tokens))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, 1 << 16)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null:
        os.close(null)
