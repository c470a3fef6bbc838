"""One epoll over server, workers, signals; reconnecting; leaving in order.

When and how an executor leaves a service in good order: its time is nearly over, it was idle, it was told to.

It says `Leaving`, gives back what it has not begun, and waits for the server's `Drain`, behind which nothing more is
sent. Rule: it goes only once nothing runs here and everything was heard, or when its time is over.

The executor's loop: one epoll over the server, the workers and signals, in one thread.

The executor of a service outlives its connections: it goes on working without a server, and says again what was not
heard. Rule: nothing in a round blocks, and all news of a round leave in one report.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bough import private
from bough.errors import BoughError
from bough.executor.executor_options import (
    ExecutorLifetime,
    ExecutorOptions,
    _extend_path,
    make_hello,
    read_terms,
    shares_store,
)
from bough.executor.reports import Reports
from bough.executor.server_connection import ServerConnection, connect
from bough.model.blobs import is_blob
from bough.model.events.news import WorkFailed, WorkReturned
from bough.model.outcomes import Cause, Failure
from bough.model.resources import Needs
from bough.wire.client_messages import Blob, Refused
from bough.wire.executor_messages import (
    Acknowledged,
    Drain,
    ExecutorWelcome,
    Heartbeat,
    Leave,
    Leaving,
    OutputRead,
    ReadOutput,
    Ready,
    RunSpan,
    SpansHeld,
    StopElements,
    spread,
)
from bough.wire.framing import frame

if TYPE_CHECKING:
    from bough.executor.slot import WorkerSlot
    from bough.executor.slots import Slots


class Departure:
    """Decides; the loop says and does."""

    def __init__(self, terms: ExecutorLifetime) -> None:
        self._terms = terms
        self._idle_since = time.monotonic()
        self.draining = False  # told to finish what is here, and go
        self.reason = ""  # why it is leaving, once it is
        self.confirmed = False  # nothing more will be sent

    def told(self) -> None:
        """The server said `Drain`: an order, or the answer to `Leaving`."""
        if self.reason:
            self.confirmed = True
        else:
            self.draining = True

    def due(self, roster: Slots, now: float) -> str:
        """Why it should say that it leaves now; empty: it should not."""
        if self.reason:
            return ""
        terms, idle = self._terms, roster.idle
        if not idle:
            self._idle_since = now
        if terms.until and time.time() >= terms.leaves_at:
            return "its time is nearly over"
        if self.draining and idle:
            return "it was drained"
        if terms.idle and idle and now - self._idle_since >= terms.idle:
            return f"it had nothing to do for {terms.idle:g} s"
        return ""

    def is_over(self) -> bool:
        """Whether its time is over, whatever runs."""
        return bool(self._terms.until) and time.time() >= self._terms.ends_at

    def wait(self, now: float, idle: bool) -> float:
        """Seconds after which to look again."""
        terms, waits = self._terms, [3600.0]
        if terms.until:
            waits.append((terms.ends_at if self.reason else terms.leaves_at) - time.time())
        if terms.idle and idle and not self.reason:
            waits.append(self._idle_since + terms.idle - now)
        return max(0.01, min(waits))


TICK = 0.05  # seconds between looks at what runs
_SILENCE = 5.0  # seconds after which the server is told that we live
_LOST_GRACE = 1.0  # seconds that running tasks get when the server is gone
_LAST_WORD = 2.0  # seconds to wait until the last reports are heard
_GIVE_UP = 5.0  # seconds after the grace in which processes must have died of KILL
_RECONNECT = 0.2  # seconds until the first try to come back; pauses grow
_MOST_PAUSE = 5.0  # seconds between tries
_MOST_FAULTS = 10_000  # elements of one hand-out that are told to have failed because of a bug
_FINAL = frozenset({"UnknownName"})  # refusals of one that comes back after which it need not try again


class Executor:
    """One executor, from its hello to its end."""

    def __init__(self, address: str, capacity: Needs, site: str, terms: ExecutorLifetime | None = None) -> None:
        self._address = address
        self._capacity = capacity
        self._site = site
        self._terms = terms or ExecutorLifetime()
        self._parting = Departure(self._terms)
        self._reports = Reports()
        self._roster: Slots | None = None
        self._appointed: ExecutorWelcome | None = None
        self._connection: ServerConnection | None = None
        self._epoll = select.epoll()
        self._slots: dict[int, tuple[WorkerSlot, bool]] = {}  # by descriptor; whether it is the pidfd
        self._spoke = time.monotonic()
        self._ticked = 0.0
        self._leave_at: float | None = None  # when waiting to be heard ends, once all is over
        self._leaving = False
        self._give_up_at = 0.0
        self._welcome = False  # the server has answered the hello of this connection
        self._heard_at = time.monotonic()
        self._retry_at = self._pause = self._lost_at = 0.0
        self._shared = True  # the server's store is seen here
        self._piggyback = True  # work may come with acknowledgements
        self._is_service = False  # the server is one's
        self._silence = _SILENCE  # seconds after which the server is told that we live
        self._exit: int | None = None
        self._signals, wake = socket.socketpair()
        self._signals.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a session's Ctrl-C is not for us
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._epoll.register(self._signals.fileno(), select.EPOLLIN)

    def run(self) -> int:
        """Serve until told to leave, or left alone; the exit code."""
        self._connect()
        import bough.executor.slots  # noqa: F401 -- while the server reads the hello

        while self._exit is None:
            self._round()
        self._epoll.close()
        if self._roster is not None:
            self._carrier.close()
            self._here.close()
            private.sweep("nested")  # sessions within tasks: our workers are gone, and nothing removes theirs
        return self._exit

    def _connect(self) -> None:
        self._connection = connection = connect(self._address, wait=self._appointed is None)
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        self._welcome = False
        self._heard_at = time.monotonic()
        hello = make_hello(self._site, self._capacity, self._terms, self._appointed)
        self._send(frame(*connection.greeting, hello))

    def _round(self) -> None:
        for fd, _ in self._epoll.poll(self._patience()):
            connection = self._connection
            if fd in self._slots:
                self._hear_slot(*self._slots[fd])
            elif connection is not None and fd == connection.fileno():
                self._hear_server(connection)
            elif fd == self._signals.fileno():
                self._on_signal()
            else:
                self._here.hear(fd)
        now = time.monotonic()
        if self._roster is not None:
            self._drive(self._roster, now)
        report = self._reports.cut()
        if report is not None and self._welcome:  # before, older ones must go first
            self._send(report)
        if self._welcome and now - self._spoke >= self._silence:
            self._send(frame(Heartbeat()))
        if self._connection is None or self._is_service:
            self._look_after_connection(now)
        if self._leave_at is not None:
            self._finish(now >= self._leave_at)

    def _look_after_connection(self, now: float) -> None:
        if self._connection is None:
            if not self._leaving and now >= self._retry_at:
                self._reconnect(now)
        elif now - self._heard_at > self._patience_with_server:
            sys.stderr.write("bough executor: the server says nothing; the connection is given up\n")
            self._on_lost(self._connection)

    def _drive(self, roster: Slots, now: float) -> None:
        if now - self._ticked >= TICK:
            self._ticked = now
            roster.tick(now)
        roster.schedule()
        if self._is_service and not self._leaving:
            self._consider_leaving(roster, now)
        if self._leaving and self._leave_at is None and (roster.empty or now >= self._give_up_at):
            roster.end_rest()
            self._leave_at = now + _LAST_WORD

    def _patience(self) -> float:
        if self._leave_at is not None:
            return 0.05
        if self._connection is None:
            return TICK
        roster = self._roster
        if roster is not None and (roster.busy or self._leaving or self._parting.reason):
            return TICK
        now = time.monotonic()
        patience = max(0.01, self._spoke + self._silence - now)
        return min(patience, self._parting.wait(now, idle=True)) if self._is_service else patience

    @property
    def _patience_with_server(self) -> float:
        return self._appointed.heartbeat + self._silence if self._appointed is not None else _SILENCE

    # --- leaving a service in good order ---

    def _consider_leaving(self, roster: Slots, now: float) -> None:
        parting = self._parting
        reason = parting.due(roster, now)
        if reason:
            parting.reason = reason
            sys.stderr.write(f"bough executor: leaving: {reason}\n")
            roster.give_back()
            self._say_leaving()
        if parting.reason and parting.confirmed and roster.idle and not self._reports.unheard():
            self.leave(1.0)
        elif parting.is_over():
            parting.reason = parting.reason or "its time is over"
            self.leave(max(0.0, min(5.0, self._terms.until - time.time())))

    def _say_leaving(self) -> None:
        """Behind the reports of what is given back."""
        report = self._reports.cut()
        if self._welcome:
            if report is not None:
                self._send(report)
            self._send(frame(Leaving(self._parting.reason)))

    # --- server ---

    def _send(self, data: bytearray) -> None:
        connection = self._connection
        if connection is None:
            return
        self._spoke = time.monotonic()
        connection.send(data)
        self._watch_connection(connection)

    def _watch_connection(self, connection: ServerConnection) -> None:
        if connection.pending != connection.writing:
            connection.writing = connection.pending
            self._epoll.modify(connection.fileno(), select.EPOLLIN | (select.EPOLLOUT if connection.pending else 0))

    def _hear_server(self, connection: ServerConnection) -> None:
        connection.write()
        for message in connection.read():
            try:
                self._on_message(message)
            except Exception as error:  # noqa: BLE001 -- it concerns this message, not the tasks that run
                self._on_fault(message, error)
            if connection is not self._connection:
                return  # it was given up meanwhile
        self._heard_at = time.monotonic()
        if connection.lost:
            self._on_lost(connection)
        else:
            self._watch_connection(connection)

    def _on_message(self, message: object) -> None:
        if type(message) is RunSpan and self._roster is not None and not self._parting.reason:  # nearly all of them
            self._roster.add(message)
            return
        match message:
            case ExecutorWelcome():
                self._on_appointed(message)
            case Refused():
                sys.stderr.write(f"bough executor: refused by the server: {message.message}\n")
                if not self._is_service or message.kind in _FINAL:
                    self._exit = 3
            case Acknowledged():
                self._reports.heard(message.number)
                if not self._piggyback:
                    self._send(frame(Ready()))
            case Leave():
                self.leave(message.grace)
            case Drain():
                self._parting.told()
            case _ if self._roster is not None:
                self._on_work(self._roster, message)
            case _:
                sys.stderr.write(f"bough executor: {type(message).__name__} before the appointment is ignored\n")

    def _on_fault(self, message: object, error: Exception) -> None:
        """A message of the server could not be handled, which is our bug: who waits for something is told so."""
        import traceback

        text = f"the executor failed at {type(message).__name__}: {type(error).__name__}: {error}"
        sys.stderr.write(f"bough executor: {text}\n{''.join(traceback.format_exception(error))}")
        match message:
            case RunSpan():
                failure = Failure(Cause.NOT_STARTED, text, site=True)
                for one in spread(message):
                    for index in range(one.start, min(one.stop, one.start + _MOST_FAULTS)):
                        self._reports.add(WorkFailed(one.span, index, failure))
            case ReadOutput():
                self._send(frame(OutputRead(message.request, b"", error=text)))

    def _on_work(self, roster: Slots, message: object) -> None:
        match message:
            case Blob():
                self._take_blob(roster, message)
            case RunSpan():  # which comes too late
                for one in spread(message):
                    self._reports.add(WorkReturned(one.span, one.start, one.stop))
            case StopElements():
                roster.stop(message)
            case ReadOutput():
                self._send(frame(roster.read_output(message)))
            case _ if not self._here.answer(message):
                self._carrier.hear(message)

    def _take_blob(self, roster: Slots, blob: Blob) -> None:
        """Code and tables run under their digests: what is something else is not from the server that we know."""
        if is_blob(blob.id, blob.data):
            roster.blobs[blob.id] = blob.data
        elif self._connection is not None:
            sys.stderr.write(f"bough executor: the blob {blob.id.hex()} is not what its name says; hanging up\n")
            self._on_lost(self._connection)

    def _on_appointed(self, appointed: ExecutorWelcome) -> None:
        self._welcome = True
        self._piggyback = appointed.piggyback
        self._pause = 0.0
        if self._roster is None:
            self._begin(appointed)
        else:
            sys.stderr.write("bough executor: back with the server\n")
        if appointed.embedded:
            return
        assert self._roster is not None
        self._reports.cut()
        for report in self._reports.unheard():  # the server may have missed these
            self._send(report)
        self._send(frame(SpansHeld(self._roster.spans(), self._shared)))
        self._carrier.resume()
        self._here.resume()
        if self._parting.reason:
            self._send(frame(Leaving(self._parting.reason)))

    def _begin(self, appointed: ExecutorWelcome) -> None:
        from bough.executor.files.sandbox import ExecutorFolder

        room = ExecutorFolder(self._terms.work)
        self._shared = shares_store(appointed)
        if not self._shared:
            out, results = room.folders()
            appointed = replace(appointed, output_dir=out, result_dir=results)
        self._appointed = appointed
        self._is_service = not appointed.embedded
        self._silence = min(_SILENCE, appointed.heartbeat / 4)
        for folder in (appointed.output_dir, appointed.result_dir):
            private.make_folder(folder)
        os.environ["BOUGH_RUN"] = appointed.marker
        if not appointed.embedded:
            signal.signal(signal.SIGINT, lambda *_: None)
        from bough.executor.files.staging import Staging
        from bough.executor.slots import Slots
        from bough.executor.task_socket import TaskSocket

        self._carrier = Staging(room, self, self._reports.add)
        self._roster = Slots(self._capacity, appointed, self._reports, self, self._carrier, inline=not self._shared)
        self._here = TaskSocket(self._epoll, self._roster.find, self.say)

    def _on_lost(self, connection: ServerConnection) -> None:
        self._epoll.unregister(connection.fileno())
        connection.close()
        self._connection = None
        if self._appointed is None:
            if self._exit is None and not connection.why:
                sys.stderr.write("bough executor: the server hung up before it answered; start it again\n")
            self._exit = 3
        elif self._appointed.embedded:
            self.leave(_LOST_GRACE)
        elif not self._leaving:
            now = time.monotonic()
            if self._welcome:
                self._lost_at = now
                sys.stderr.write(
                    "bough executor: the connection was lost; work goes on, and the server is tried again\n"
                )
            self._welcome = False
            self._wait_to_reconnect(now)

    def _wait_to_reconnect(self, now: float) -> None:
        self._pause = min(_MOST_PAUSE, 1.5 * self._pause) if self._pause else _RECONNECT
        self._retry_at = now + self._pause

    def _reconnect(self, now: float) -> None:
        if now - self._lost_at > self._terms.give_up:
            sys.stderr.write(f"bough executor: no server for {self._terms.give_up:g} s; everything is ended\n")
            self.leave(_LOST_GRACE)
            return
        try:
            self._connect()
        except BoughError:  # gone, or not to be trusted now: it may be back later
            self._connection = None
            self._wait_to_reconnect(time.monotonic())

    def say(self, message: object) -> None:
        """Send something to the server; what it answers is asked for again when it comes back."""
        if self._welcome:
            self._send(frame(message))

    # --- workers ---

    def add_slot(self, slot: WorkerSlot) -> None:
        """Watch a worker's socket and its process."""
        for fd, is_process in ((slot.sock.fileno(), False), (slot.pidfd, True)):
            self._slots[fd] = (slot, is_process)
            self._epoll.register(fd, select.EPOLLIN)

    def forget_slot(self, slot: WorkerSlot) -> None:
        """Stop watching a worker."""
        for fd in (slot.sock.fileno(), slot.pidfd):
            if self._slots.pop(fd, None) is not None:
                self._epoll.unregister(fd)

    def want_write(self, slot: WorkerSlot) -> None:
        """Wait until a worker takes more."""
        if slot.pending != slot.writing and slot.sock.fileno() in self._slots:
            slot.writing = slot.pending
            self._epoll.modify(slot.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if slot.pending else 0))

    def _hear_slot(self, slot: WorkerSlot, is_process: bool) -> None:
        assert self._roster is not None
        if is_process:
            self._roster.bury(slot)
            return
        slot.write()
        self._roster.hear(slot)
        if slot.gone:  # its process says the rest
            self._slots.pop(slot.sock.fileno())
            self._epoll.unregister(slot.sock.fileno())
        else:
            self.want_write(slot)

    # --- the end ---

    def _on_signal(self) -> None:
        numbers = self._signals.recv(64)
        if signal.SIGTERM in numbers or (signal.SIGINT in numbers and self._is_service):
            if self._is_service and not self._parting.reason:
                self._parting.reason = "it was told to end"
                self._say_leaving()
            self.leave(5.0)

    def leave(self, grace: float) -> None:
        """End everything within this time, then exit; a second, shorter word counts."""
        give_up_at = time.monotonic() + grace + _GIVE_UP
        if self._roster is None:
            self._exit = 0
        elif not self._leaving or give_up_at < self._give_up_at:
            self._leaving = True
            self._give_up_at = give_up_at
            self._roster.leave(grace)

    def _finish(self, anyway: bool) -> None:
        """Exit once all was heard, or cannot be; what was not heard is kept in a file."""
        if not anyway and self._connection is not None and self._reports.unheard():
            return
        assert self._appointed is not None
        if not self._appointed.embedded:
            self._exit = 0
            return
        try:
            self._reports.spill(self._appointed.spill_dir, self._appointed.executor)
        except OSError as error:
            sys.stderr.write(f"bough executor: reports cannot be kept: {error}\n")
            self._exit = 3
            return
        self._exit = 0


def main(words: list[str]) -> int:
    """Run an executor with these arguments; the exit code."""
    options = ExecutorOptions(words)
    _extend_path(os.environ.pop("BOUGH_PATH", ""))
    capacity, terms = read_terms(options)
    try:
        return Executor(options.server, capacity, options.site, terms).run()
    except BoughError as error:
        sys.stderr.write(f"bough executor: {error}\n")
        return error.exit_code
