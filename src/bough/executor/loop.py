"""The executor's loop, in one thread: server, workers, running tasks and signals; reconnecting; leaving in order.

The executor of a service outlives its connections: it goes on working without a server, and repeats what was not
acknowledged. It leaves in order when its time is nearly over, when it was idle for long enough, or when it is told to:
it says `Leaving`, gives back what it has not begun, and waits for the server's `Drain`, after which nothing more is
sent.

Rules: nothing in a round blocks, and all news of a round leave in one report. An executor leaves a service only once
nothing runs here and everything was acknowledged, or when its time has ended.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bough import logs, private
from bough.errors import BoughError, PeerLost
from bough.executor.executor_options import (
    ExecutorLifetime,
    ExecutorOptions,
    extend_path,
    find_devices,
    make_hello,
    read_capacity_and_lifetime,
    shares_store,
)
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.devices import DevicePool
from bough.executor.reports import Reports
from bough.executor.server_connection import ServerConnection, connect
from bough.model.blobs import is_blob
from bough.model.events.news import WorkFailed, WorkReturned
from bough.model.ids import SpanId
from bough.model.outcomes import Cause, Failure
from bough.model.sites.resources import Needs
from bough.movers.value_places import MEMORY, VALUES
from bough.wire.client_messages import Blob, Refused
from bough.wire.executor_messages import (
    Acknowledged,
    ClearOut,
    Drain,
    EndElements,
    ExecutorWelcome,
    GiveBacklog,
    Heartbeat,
    Leave,
    Leaving,
    OutputRead,
    ProbeAnswer,
    ProbeTask,
    ReadOutput,
    Ready,
    RunSpan,
    SpaceAwaited,
    SpansHeld,
    StayOn,
    StopElements,
    WatchElements,
    spread,
)
from bough.wire.framing import News, frame

if TYPE_CHECKING:
    from bough.executor.probes.task_probes import TaskProbes
    from bough.executor.slots.slots import Slots


TICK = 0.05  # seconds between looks at what runs
_SILENCE = 5.0  # seconds after which the server is told that we live
_LOST_GRACE = 1.0  # seconds that running tasks get when the server has disconnected
_LAST_REPORTS = 2.0  # seconds to wait until the last reports are acknowledged
_LAST_OUTPUTS = 20.0  # the same if outputs are to be written back
_SAVING = 2.0  # seconds of grace that are worth asking for checkpoints
_GIVE_UP = 5.0  # seconds after the grace in which processes must have died of KILL
_TOGETHER = 0.3  # seconds within which a signal to a whole job has reached all of it
_SCRIPT_ENDS = 3.0  # seconds in which a script ends that was killed with its server
_RECONNECT = 0.2  # seconds until the first try to reconnect; pauses grow
_MOST_PAUSE = 5.0  # seconds between tries
_MOST_FAULTS = 10_000  # elements of one span that are reported as failed because of a bug
_FINAL_REFUSALS = frozenset({"UnknownName"})  # refusals after which an executor does not try to reconnect


class Departure:
    """When and why an executor leaves a service; the loop acts on it."""

    def __init__(self, lifetime: ExecutorLifetime) -> None:
        self._lifetime = lifetime
        self._idle_since = time.monotonic()
        self.draining = False  # told to finish what is here, and go
        self.reason = ""  # why it is leaving, once it is
        self.confirmed = False  # nothing more will be sent

    def welcomed(self) -> None:
        """There is a server: the time without work counts from now on, however long it took to reach one."""
        self._idle_since = time.monotonic()

    def told(self) -> None:
        """The server said `Drain`: an order, or the answer to `Leaving`."""
        if self.reason:
            self.confirmed = True
        else:
            self.draining = True

    def due(self, slots: Slots, now: float) -> str:
        """Why it should say that it leaves now; empty: it should not."""
        if self.reason:
            return ""
        lifetime, idle = self._lifetime, slots.idle
        if not idle:
            self._idle_since = now
        if lifetime.until and time.time() >= lifetime.leaves_at:
            return "its time is nearly over"
        if self.draining and idle:
            return "it was drained"
        if lifetime.idle and idle and now - self._idle_since >= lifetime.idle:
            return f"it had nothing to do for {lifetime.idle:g} s"
        return ""

    def is_over(self) -> bool:
        """Whether its time has ended, whatever runs."""
        return bool(self._lifetime.until) and time.time() >= self._lifetime.ends_at

    def wait(self, now: float, idle: bool) -> float:
        """Seconds after which to look again."""
        lifetime, waits = self._lifetime, [3600.0]
        if lifetime.until:
            waits.append((lifetime.ends_at if self.reason else lifetime.leaves_at) - time.time())
        if lifetime.idle and idle and not self.reason:
            waits.append(self._idle_since + lifetime.idle - now)
        return max(0.01, min(waits))


class Executor:
    """One executor, from its hello to its end."""

    def __init__(
        self,
        address: str,
        capacity: Needs,
        site: str,
        lifetime: ExecutorLifetime | None = None,
        preload: str = "",
        *,
        devices: DevicePool | None = None,
        allows_commands: bool = False,
    ) -> None:
        self._address = address
        self._allows_commands = allows_commands  # of remote monitors, beside tasks
        self._preload = preload  # modules to import before functions need them, see `preloader`
        self._capacity = capacity
        self._devices = devices
        self._site = site
        self._lifetime = lifetime or ExecutorLifetime()
        self._departure = Departure(self._lifetime)
        self._reports = Reports()
        if self._lifetime.pilot:
            self._reports.excuse = self._excuse
        self._slots: Slots | None = None
        self._probes: TaskProbes | None = None  # made for the first question of a remote monitor
        self._welcome: ExecutorWelcome | None = None
        self._connection: ServerConnection | None = None
        self._descriptors = Descriptors()
        self._spoke = time.monotonic()
        self._ticked = 0.0
        self._saved_by: float | None = None  # it was told to leave: when checkpoints must be written
        self._leave_at: float | None = None  # when waiting to be heard ends, once all is over
        self._leaving = False
        self._give_up_at = 0.0
        self._welcomed = False  # the server has answered the hello of this connection
        self._heard_at = time.monotonic()
        self._retry_at = self._pause = self._lost_at = 0.0
        self._shared = True  # the server's store is seen here
        self._piggyback = True  # work may come with acknowledgements
        self._is_service = False  # the server is one's
        self._silence = _SILENCE  # seconds after which the server is told that we live
        self._exit: int | None = None
        self._lacking_space: list[SpanId] = []  # as the server was told
        self._signals, wake = socket.socketpair()
        self._signals.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a session's Ctrl-C is not for us
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._descriptors.add(self._signals.fileno(), self._on_signal)

    def run(self) -> int:
        """Serve until told to leave, or left alone; the exit code."""
        self._connect_first()
        import bough.executor.slots.slots  # noqa: F401 -- while the server reads the hello

        while self._exit is None:
            self._round()
        self._descriptors.close()
        if self._slots is not None:
            self._staging.close()
            self._task_socket.close()
            if self._probes is not None:
                self._probes.close()
            private.sweep("nested")  # sessions within tasks: our workers have ended, and nothing removes theirs
        return self._exit

    def _connect_first(self) -> None:
        """Connect; a pilot's executor waits for a way to its server, which may be cut just now."""
        until = time.monotonic() + (self._lifetime.give_up if self._lifetime.pilot else 0.0)
        while True:
            try:
                return self._connect()
            except PeerLost:
                if time.monotonic() >= until or select.select([self._signals], [], [], _RECONNECT)[0]:
                    raise

    def _connect(self) -> None:
        self._connection = connection = connect(self._address, wait=self._welcome is None)
        self._descriptors.add(connection.fileno(), partial(self._on_server_ready, connection))
        self._welcomed = False
        self._heard_at = time.monotonic()
        hello = make_hello(self._site, self._capacity, self._lifetime, self._welcome)
        self._send(frame(*connection.greeting, hello))

    def _round(self) -> None:
        self._descriptors.wait(self._poll_seconds())
        now = time.monotonic()
        if self._slots is not None:
            self._drive(self._slots, now)
        report = self._reports.cut()
        if report is not None and self._welcomed:  # before, older ones must go first
            self._send(report)
        if self._slots is not None and self._staging.outputs.is_gathering and self._welcomed:
            departs = self._leaving or bool(self._departure.reason) or self._departure.draining
            self._staging.outputs.write_back(idle=self._slots.rests, hurry=departs)
        if self._welcomed and now - self._spoke >= self._silence:
            self._send(frame(Heartbeat()))
        if self._connection is None or self._is_service:
            self._check_connection(now)
        if self._leave_at is not None:
            self._finish(now >= self._leave_at)

    def _check_connection(self, now: float) -> None:
        if self._connection is None:
            if not self._leaving and self._exit is None and now >= self._retry_at:
                self._reconnect(now)
        elif now - self._heard_at > self._longest_silence:
            logs.warning("server-silent", "nothing was heard from the server; the connection is closed")
            self._on_lost(self._connection)

    def _drive(self, slots: Slots, now: float) -> None:
        if now - self._ticked >= TICK:
            self._ticked = now
            slots.tick(now)
            self._task_reports.tick()
            if self._probes is not None:
                self._probes.tick(now)
            self._tell_of_space(slots)
        elif self._lacking_space:  # before the news that there was space for
            self._tell_of_space(slots)
        slots.schedule()
        if self._is_service and not self._leaving:
            if self._saved_by is not None:
                self.leave(1.0)
            else:
                self._consider_leaving(slots, now)
        if self._leaving and self._leave_at is None and (slots.empty or now >= self._give_up_at):
            slots.end_rest()
            self._leave_at = now + (_LAST_OUTPUTS if self._staging.outputs.is_gathering else _LAST_REPORTS)

    def _tell_of_space(self, slots: Slots) -> None:
        """Say which spans wait for space on the disk of the store, whenever these are others."""
        waiting = slots.waiting_for_space()
        if waiting != self._lacking_space and self._welcomed:
            self._lacking_space = waiting
            self._send(frame(SpaceAwaited(waiting)))

    def _poll_seconds(self) -> float:
        if self._leave_at is not None:
            return 0.05
        if self._connection is None:
            return TICK
        slots = self._slots
        if slots is not None and (slots.is_restless or self._leaving or self._departure.reason):
            return TICK
        if self._probes is not None and self._probes.is_busy:
            return TICK
        now = time.monotonic()
        silent = max(0.01, self._spoke + self._silence - now)
        return min(silent, self._departure.wait(now, idle=True)) if self._is_service else silent

    @property
    def _longest_silence(self) -> float:
        return self._welcome.heartbeat + self._silence if self._welcome is not None else _SILENCE

    # --- leaving a service in good order ---

    def _consider_leaving(self, slots: Slots, now: float) -> None:
        departure = self._departure
        reason = departure.due(slots, now)
        if reason:
            departure.reason = reason
            logs.info("executor-leaving", f"leaving: {reason}")
            slots.give_back()
            if self._lifetime.until and slots.has_checkpoints():
                left = max(0.0, self._lifetime.ends_at - time.time())
                slots.clear("given back: the time of its executor was over", now + left - min(1.0, left / 2))
            self._say_leaving()
        if departure.reason and departure.confirmed and slots.idle and not self._reports.unheard():
            self.leave(1.0)
        elif departure.is_over():
            departure.reason = departure.reason or "its time has ended"
            self.leave(max(0.0, min(5.0, self._lifetime.until - time.time())))

    def _say_leaving(self) -> None:
        """Behind the reports of what is given back."""
        report = self._reports.cut()
        if self._welcomed:
            if report is not None:
                self._send(report)
            self._send(frame(Leaving(self._departure.reason)))

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
            self._descriptors.want_write(connection.fileno(), connection.pending)

    def _on_server_ready(self, connection: ServerConnection) -> None:
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
        if type(message) is RunSpan and self._slots is not None and not self._departure.reason:  # nearly all of them
            self._slots.add(message)
            return
        match message:
            case ExecutorWelcome():
                self._on_welcome(message)
            case Refused():
                logs.error("executor-refused", f"refused by the server: {message.message}")
                if not self._is_service or message.kind in _FINAL_REFUSALS:
                    self._exit = 3
            case Acknowledged():
                self._reports.heard(message.number)
                if not self._piggyback:
                    self._send(frame(Ready()))
            case Leave():
                self.leave(message.grace)
            case Drain():
                self._departure.told()
            case _ if self._slots is not None:
                self._on_work(self._slots, message)
            case _:
                logs.warning("message-ignored", f"{type(message).__name__} before the welcome is ignored")

    def _on_fault(self, message: object, error: Exception) -> None:
        """A message of the server could not be handled, which is our bug: the server is told so."""
        import traceback

        text = f"the executor failed at {type(message).__name__}: {type(error).__name__}: {error}"
        logs.error("handler-failed", f"{text}\n{''.join(traceback.format_exception(error))}")
        match message:
            case RunSpan():
                failure = Failure(Cause.NOT_STARTED, text, site=True)
                for one in spread(message):
                    for index in range(one.start, min(one.stop, one.start + _MOST_FAULTS)):
                        self._reports.add(WorkFailed(one.span, index, failure))
            case ReadOutput():
                self._send(frame(OutputRead(message.request, b"", error=text)))
            case ProbeTask():
                self._send(frame(ProbeAnswer(message.request, error=text, kind="InternalError")))

    def _on_work(self, slots: Slots, message: object) -> None:
        match message:
            case Blob():
                self._take_blob(slots, message)
            case RunSpan():  # which comes too late
                for one in spread(message):
                    self._reports.add(WorkReturned(one.span, one.start, one.stop))
            case StopElements() | WatchElements() | EndElements() | ClearOut() | StayOn() | GiveBacklog():
                _order(slots, message)
            case ReadOutput():
                self._answer(slots.read_output(message))
            case ProbeTask():
                self._probe(slots, message)
            case _ if not self._task_socket.answer(message):
                self._staging.on_message(message)

    def _probe(self, slots: Slots, asked: ProbeTask) -> None:
        if self._probes is None:
            from bough.executor.probes.task_probes import TaskProbes  # few tasks have remote monitors

            may_run = self._allows_commands
            self._probes = TaskProbes(self._descriptors, slots, self._answer, allows_commands=may_run)
        self._probes.ask(asked)

    def _answer(self, answer: OutputRead | ProbeAnswer) -> None:
        """Answer a question about a task; before the answer that it has ended comes how it did."""
        report = self._reports.cut()
        if self._welcomed:
            if report is not None:
                self._send(report)
            self._send(frame(answer))

    def _take_blob(self, slots: Slots, blob: Blob) -> None:
        """Code and tables run under their digests: what is something else is not from the server that we know."""
        if is_blob(blob.id, blob.data):
            slots.blobs[blob.id] = blob.data
        elif self._connection is not None:
            logs.error("blob-wrong", f"the blob {blob.id.hex()} is not what its name says; the connection is closed")
            self._on_lost(self._connection)

    def _on_welcome(self, welcome: ExecutorWelcome) -> None:
        self._welcomed = True
        self._departure.welcomed()
        self._piggyback = welcome.piggyback
        self._pause = 0.0
        if self._slots is None:
            self._begin(welcome)
        else:
            logs.info("server-back", "reconnected to the server")
            self._lacking_space = []  # it has forgotten
        if welcome.embedded:
            return
        assert self._slots is not None
        self._reports.cut()
        for report in self._reports.unheard():  # the server may have missed these
            self._send(report)
        self._send(frame(SpansHeld(self._slots.spans(), self._shared)))
        self._staging.resume()
        self._task_socket.resume()
        if self._departure.reason:
            self._send(frame(Leaving(self._departure.reason)))

    def _begin(self, welcome: ExecutorWelcome) -> None:
        # late: nothing of this is needed before the hello, and users wait for that
        from bough.executor.files.command_files.sandbox import ExecutorFolder
        from bough.executor.files.staging.staging import Staging
        from bough.executor.slots.preloader import Preloader
        from bough.executor.slots.slot import work_preloaded
        from bough.executor.slots.slots import Slots
        from bough.executor.task_reports import TaskReports
        from bough.executor.task_socket import TaskSocket

        folder = ExecutorFolder(self._lifetime.work)
        self._shared = shares_store(welcome)
        if not self._shared:
            out, results = folder.folders()
            welcome = replace(welcome, output_dir=out, result_dir=results)
        self._welcome = welcome
        self._is_service = not welcome.embedded
        self._silence = min(_SILENCE, welcome.heartbeat / 4)
        for path in (welcome.output_dir, welcome.result_dir):
            private.make_folder(path)
        os.environ["BOUGH_RUN"] = welcome.marker
        if not welcome.embedded:
            signal.signal(signal.SIGINT, lambda *_: None)
        self._staging = Staging(
            folder,
            self._say,
            self._reports.add,
            self._descriptors,
            told=self._lifetime,
            address=self._connection.own_address(self._lifetime.peer_address) if self._connection is not None else "",
            number=welcome.executor,
            alone=welcome.embedded,
        )
        self._task_reports = TaskReports(self._reports)
        self._slots = Slots(
            self._capacity,
            welcome,
            self._reports,
            self._descriptors,
            self._staging,
            task_reports=self._task_reports,
            inline=not self._shared,
            devices=self._devices,
            preloader=Preloader(self._preload, self._descriptors, work_preloaded) if self._preload else None,
        )
        self._task_socket = TaskSocket(self._descriptors, self._slots.find_task, self._say, self._task_reports.take)

    def _on_lost(self, connection: ServerConnection) -> None:
        self._descriptors.remove(connection.fileno())
        connection.close()
        self._connection = None
        if self._probes is not None:
            self._probes.forget()
        if self._welcome is None:
            if self._exit is None and not connection.why:
                if self._lifetime.pilot:  # it has waited in a queue, perhaps: the way to the server was cut just now
                    self._lost_at = self._lost_at or time.monotonic()
                    self._wait_to_reconnect(time.monotonic())
                    return
                logs.error(
                    "server-hung-up", "the server closed the connection before it answered; start the executor again"
                )
            self._exit = 3
        elif self._welcome.embedded:
            self.leave(_LOST_GRACE)
        elif not self._leaving:
            now = time.monotonic()
            if self._welcomed:
                self._lost_at = now
                logs.warning("server-lost", "the connection was lost; tasks continue, and the server is dialled again")
            self._welcomed = False
            self._wait_to_reconnect(now)

    def _wait_to_reconnect(self, now: float) -> None:
        self._pause = min(_MOST_PAUSE, 1.5 * self._pause) if self._pause else _RECONNECT
        self._retry_at = now + self._pause

    def _reconnect(self, now: float) -> None:
        if now - self._lost_at > self._lifetime.give_up:
            logs.error("executor-gave-up", f"no server for {self._lifetime.give_up:g} s; everything is ended")
            self.leave(_LOST_GRACE)
            return
        try:
            self._connect()
        except BoughError:  # away, or not to be trusted now: it may be back later
            self._connection = None
            self._wait_to_reconnect(time.monotonic())

    def _say(self, message: object) -> None:
        """Send something to the server; what it would answer is asked for again when it is back."""
        if self._welcomed:
            self._send(frame(message))

    # --- the end ---

    def _on_signal(self) -> None:
        numbers = self._signals.recv(64)
        if signal.SIGTERM in numbers or (signal.SIGINT in numbers and self._is_service):
            if self._is_service and not self._departure.reason:
                self._departure.reason = "it was told to end"
                self._say_leaving()
            self.leave(5.0)

    def _excuse(self, news: News) -> News:
        """A batch system that ends a job tells all of its processes: then a task is not to blame for its end."""
        if not isinstance(news, WorkFailed) or not _was_told_to_end(news.failure):
            return news
        if not (self._leaving or select.select([self._signals], [], [], _TOGETHER)[0]):
            return news
        failure = Failure(Cause.GIVEN_BACK, "given back: the job that its executor is part of was ended")
        return replace(news, failure=failure)

    def leave(self, grace: float) -> None:
        """End everything within this time, then exit; a second, shorter word counts."""
        give_up_at = time.monotonic() + grace + _GIVE_UP
        if self._slots is None:
            self._exit = 0
        elif self._saves_first(self._slots, grace):
            return
        elif not self._leaving or give_up_at < self._give_up_at:
            self._leaving = True
            self._give_up_at = give_up_at
            self._slots.leave(grace)

    def _saves_first(self, slots: Slots, grace: float) -> bool:
        """Whether tasks that can save their state do so before everything is ended; in most of the grace."""
        now = time.monotonic()
        if self._saved_by is None:
            if not self._is_service or self._leaving or grace < _SAVING or not slots.has_checkpoints():
                return False
            self._saved_by = now + grace
            slots.clear("given back: its executor was stopped", now + grace - _SAVING / 2)
        return now < self._saved_by and not slots.idle

    def _finish(self, anyway: bool) -> None:
        """Exit once all was heard, or cannot be; what was not heard is kept in a file."""
        if (
            not anyway
            and self._connection is not None
            and (self._reports.unheard() or self._staging.outputs.is_gathering)
        ):
            return
        assert self._welcome is not None
        if not self._welcome.embedded:
            self._exit = 0
            return
        try:
            self._reports.spill(self._welcome.spill_dir, self._welcome.executor)
            self._exit = 0
        except OSError as error:
            logs.error("reports-not-kept", f"reports cannot be kept: {error}")
            self._exit = 3
        # of a script that was killed: one that was together with its server may end a moment later than that
        private.sweep(VALUES, MEMORY, 0.0 if self._connection is not None else _SCRIPT_ENDS)


def _order(slots: Slots, message: StopElements | WatchElements | EndElements | ClearOut | StayOn | GiveBacklog) -> None:
    """Do what the server says of what is here."""
    match message:
        case StopElements():
            slots.stop(message)
        case WatchElements():
            slots.watch(message)
        case EndElements():
            slots.end_early(message)
        case ClearOut():
            logs.info("site-left", f"{message.reason}; what runs has {message.grace:g} s")
            slots.clear(message.reason, time.monotonic() + message.grace)
        case StayOn():
            logs.info("site-returned", "the site may be used again")
            slots.stay()
        case GiveBacklog():
            slots.give_back()


def _was_told_to_end(failure: Failure) -> bool:
    """Whether a task, or what its shell ran, was ended by SIGTERM."""
    return failure.signal == signal.SIGTERM or failure.exit_code == 128 + signal.SIGTERM


def main(words: list[str]) -> int:
    """Run an executor with these arguments; the exit code."""
    options = ExecutorOptions(words)
    if options.executors > 1:
        from bough.executor.siblings import part

        code = part(options)
        if code is not None:
            return code
    extend_path(os.environ.pop("BOUGH_PATH", ""))
    preload = os.environ.pop("BOUGH_MODULES", "")
    devices = find_devices(options)
    capacity, lifetime = read_capacity_and_lifetime(options)
    try:
        executor = Executor(
            options.server,
            capacity,
            options.site,
            lifetime,
            preload,
            devices=devices,
            allows_commands=options.allows_commands,
        )
        return executor.run()
    except BoughError as error:
        logs.error("executor-failed", f"{error}")
        return error.exit_code
