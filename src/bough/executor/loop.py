"""The executor's loop: one epoll over the server, the workers and signals, in one thread.

Rule: nothing in a round blocks, and all news of a round leave in one report.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from bough.errors import PeerLost
from bough.executor.connection import Connection, connect
from bough.executor.reports import Reports
from bough.model.ids import ExecutorId
from bough.model.resources import Needs
from bough.wire.framing import frame
from bough.wire.messages import VERSION, Alive, Appointed, Blob, ExecutorHello, Heard, Leave, Refused, Run, Stop

if TYPE_CHECKING:
    from bough.executor.roster import Roster
    from bough.executor.slots import Slot

TICK = 0.05  # seconds between looks at what runs
_SILENCE = 5.0  # seconds after which the server is told that we live
_LOST_GRACE = 1.0  # seconds that running tasks get when the server is gone
_LAST_WORD = 2.0  # seconds to wait until the last reports are heard
_GIVE_UP = 5.0  # seconds after the grace in which processes must have died of KILL
_RECONNECT = 1.0  # seconds between tries


class Executor:
    """One executor, from its hello to its end."""

    def __init__(self, address: str, capacity: Needs, site: str) -> None:
        self._address = address
        self._capacity = capacity
        self._site = site
        self._reports = Reports()
        self._roster: Roster | None = None
        self._appointed: Appointed | None = None
        self._connection: Connection | None = None
        self._epoll = select.epoll()
        self._slots: dict[int, tuple[Slot, bool]] = {}  # by descriptor; whether it is the pidfd
        self._spoke = time.monotonic()
        self._ticked = 0.0
        self._leave_at: float | None = None  # when waiting to be heard ends, once all is over
        self._leaving = False
        self._give_up_at = 0.0
        self._retry_at = 0.0
        self._exit: int | None = None
        self._signals, wake = socket.socketpair()
        self._signals.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._epoll.register(self._signals.fileno(), select.EPOLLIN)

    def run(self) -> int:
        """Serve until told to leave, or left alone; the exit code."""
        self._connect()
        import bough.executor.roster  # noqa: F401 -- while the server reads the hello

        while self._exit is None:
            self._round()
        self._epoll.close()
        return self._exit

    def _connect(self) -> None:
        self._connection = connection = connect(self._address)
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        number = self._appointed.executor if self._appointed else ExecutorId(0)
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        host = socket.gethostname()
        self._send(frame(ExecutorHello(VERSION, self._site, host, os.getpid(), self._capacity, python, number)))

    def _round(self) -> None:
        for fd, _ in self._epoll.poll(self._patience()):
            connection = self._connection
            if connection is not None and fd == connection.fileno():
                self._hear_server(connection)
            elif fd in self._slots:
                self._hear_slot(*self._slots[fd])
            elif fd == self._signals.fileno():
                self._on_signal()
        now = time.monotonic()
        if self._roster is not None:
            self._drive(self._roster, now)
        report = self._reports.cut()
        if report is not None:
            self._send(report)
        if now - self._spoke >= _SILENCE:
            self._send(frame(Alive()))
        if self._connection is None and not self._leaving and now >= self._retry_at:
            self._reconnect(now)
        if self._leave_at is not None:
            self._finish(now >= self._leave_at)

    def _drive(self, roster: Roster, now: float) -> None:
        if now - self._ticked >= TICK:
            self._ticked = now
            roster.tick(now)
        roster.schedule()
        if self._leaving and self._leave_at is None and (roster.empty or now >= self._give_up_at):
            roster.end_rest()
            self._leave_at = now + _LAST_WORD

    def _patience(self) -> float:
        if self._leave_at is not None:
            return 0.05
        if self._connection is None:
            return TICK
        roster = self._roster
        if roster is not None and (roster.busy or self._leaving):
            return TICK
        return max(0.01, self._spoke + _SILENCE - time.monotonic())

    # --- server ---

    def _send(self, data: bytearray) -> None:
        connection = self._connection
        if connection is None:
            return
        self._spoke = time.monotonic()
        connection.send(data)
        self._watch_connection(connection)

    def _watch_connection(self, connection: Connection) -> None:
        if connection.pending != connection.writing:
            connection.writing = connection.pending
            self._epoll.modify(connection.fileno(), select.EPOLLIN | (select.EPOLLOUT if connection.pending else 0))

    def _hear_server(self, connection: Connection) -> None:
        connection.write()
        for message in connection.read():
            self._on_message(message)
        if connection.lost:
            self._on_lost(connection)
        else:
            self._watch_connection(connection)

    def _on_message(self, message: object) -> None:
        roster = self._roster
        match message:
            case Appointed():
                self._on_appointed(message)
            case Refused():
                sys.stderr.write(f"bough executor: refused by the server: {message.message}\n")
                self._exit = 3
            case Heard():
                self._reports.heard(message.number)
            case Leave():
                self.leave(message.grace)
            case Blob() if roster is not None:
                roster.blobs[message.id] = message.data
            case Run() if roster is not None:
                roster.add(message)
            case Stop() if roster is not None:
                roster.stop(message)
            case _:
                sys.stderr.write(f"bough executor: {type(message).__name__} before the appointment is ignored\n")

    def _on_appointed(self, appointed: Appointed) -> None:
        if self._roster is not None:  # back again: the server may have missed these
            self._appointed = appointed
            for report in self._reports.unheard():
                self._send(report)
            return
        self._appointed = appointed
        for folder in (appointed.output_dir, appointed.result_dir):
            os.makedirs(folder, exist_ok=True)
        os.environ["BOUGH_RUN"] = appointed.marker
        from bough.executor.roster import Roster

        self._roster = Roster(self._capacity, appointed, self._reports, self)

    def _on_lost(self, connection: Connection) -> None:
        self._epoll.unregister(connection.fileno())
        connection.close()
        self._connection = None
        if self._appointed is None:
            self._exit = 3
        elif self._appointed.embedded:
            self.leave(_LOST_GRACE)
        else:
            self._retry_at = time.monotonic() + _RECONNECT

    def _reconnect(self, now: float) -> None:
        self._retry_at = now + _RECONNECT
        try:
            self._connect()
        except PeerLost:
            self._connection = None

    # --- workers ---

    def add_slot(self, slot: Slot) -> None:
        """Watch a worker's socket and its process."""
        for fd, is_process in ((slot.sock.fileno(), False), (slot.pidfd, True)):
            self._slots[fd] = (slot, is_process)
            self._epoll.register(fd, select.EPOLLIN)

    def forget_slot(self, slot: Slot) -> None:
        """Stop watching a worker."""
        for fd in (slot.sock.fileno(), slot.pidfd):
            if self._slots.pop(fd, None) is not None:
                self._epoll.unregister(fd)

    def want_write(self, slot: Slot) -> None:
        """Wait until a worker takes more."""
        if slot.pending != slot.writing and slot.sock.fileno() in self._slots:
            slot.writing = slot.pending
            self._epoll.modify(slot.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if slot.pending else 0))

    def _hear_slot(self, slot: Slot, is_process: bool) -> None:
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
        if signal.SIGTERM in self._signals.recv(64):
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
        try:
            self._reports.spill(self._appointed.spill_dir, self._appointed.executor)
        except OSError as error:
            sys.stderr.write(f"bough executor: reports cannot be kept: {error}\n")
            self._exit = 3
            return
        self._exit = 0
