"""Many emulated executors in one process: one epoll, one heap of times, one sweep for signs of life.

Each has a connection and a number of its own and keeps the whole protocol; `emulated_work` is what they do instead of
running tasks. Only a few are unproven at the server at a time; those that it refuses for want of room, or that are
cut off, come again.

Rules: nothing blocks, and one more executor costs a socket and a few kilobytes: there are tens of thousands of them.
Too many are refused before anything is begun, with the number that is possible.
"""

from __future__ import annotations

import contextlib
import enum
import heapq
import resource
import select
import signal
import socket
import sys
import time
from collections import deque

from msgspec.structs import replace

from bough import logs
from bough.errors import BoughError, PeerLost, UserError
from bough.executor.executor_options import ExecutorLifetime, ExecutorOptions, make_hello, read_capacity_and_lifetime
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs
from bough.testing.emulated_connection import EmulatedConnection, EmulatedReader
from bough.testing.emulated_work import NEVER, EmulatedExecutor, RunTimes
from bough.transport.access import Access, find_access
from bough.wire.client_messages import Blob, Refused
from bough.wire.executor_messages import (
    Acknowledged,
    ClearOut,
    Drain,
    EndElements,
    ExecutorHello,
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
    SpansHeld,
    StopElements,
)
from bough.wire.framing import frame

MOST_UNPROVEN = 48  # connections on which the server has not answered yet: it and relays bear a few more
_ANSWER_WITHIN = 10.0  # seconds in which the server must answer a hello
_SLICES = 20  # of a sweep: signs of life are spread over its time
_SWEEPS = 4  # in the silence after which a server gives an executor up
_QUIET = 6  # sweeps without a word after which an executor gives the server up
_FIRST_PAUSE, _MOST_PAUSE = 0.05, 5.0  # seconds after a failure before the next try
_FAREWELL, _EACH = 5.0, 0.001  # seconds that all have to leave, and for each of them
_FINAL = frozenset({"UnknownName"})  # refusals after which an executor does not try to reconnect
_SPARE = 32  # descriptors for everything else
_ALIVE, _READY = frame(Heartbeat()), frame(Ready())


class EmulatedDeparture(enum.Enum):
    """How far an executor is with leaving."""

    NOT = enum.auto()
    DRAINING = enum.auto()  # it is to finish what it has, and leave
    SAID = enum.auto()  # it has said that it leaves
    MAY_GO = enum.auto()  # nothing more will be sent to it: it leaves once all its reports are acknowledged
    OVER = enum.auto()


class EmulatedMember:
    """One emulated executor: its work, its connection, and how far it is with leaving."""

    __slots__ = (
        "departure",
        "due",
        "idle_since",
        "line",
        "marker",
        "number",
        "piggyback",
        "quiet",
        "spoke",
        "watched",
        "welcomed",
        "work",
    )

    def __init__(self, cores: float) -> None:
        self.work = EmulatedExecutor(cores)
        self.line: EmulatedConnection | None = None
        self.watched = 0  # what of the line is watched
        self.number = ExecutorId(0)
        self.marker = ""  # of the server that gave it its number
        self.piggyback = True
        self.welcomed = False  # the server has answered its hello
        self.spoke = False  # since the last sweep
        self.quiet = 0  # sweeps in which nothing was heard
        self.due = NEVER  # when its work is to be looked at
        self.idle_since = time.monotonic()
        self.departure = EmulatedDeparture.NOT

    def hello(self, hello: ExecutorHello) -> ExecutorHello:
        """A hello as this one says it: with its number, if it comes back."""
        return replace(hello, executor=self.number, marker=self.marker) if self.number else hello

    def on_welcome(self, welcome: ExecutorWelcome) -> None:
        """The server has let it in."""
        self.welcomed = True
        self.number = welcome.executor
        self.marker = sys.intern(welcome.marker)
        self.piggyback = welcome.piggyback
        self.idle_since = time.monotonic()

    def told_to_drain(self) -> None:
        """The server said `Drain`: an order, or the answer to `Leaving`."""
        if self.departure is EmulatedDeparture.SAID:
            self.departure = EmulatedDeparture.MAY_GO
        elif self.departure is EmulatedDeparture.NOT:
            self.departure = EmulatedDeparture.DRAINING


class EmulatedExecutors:
    """All of them, from the first hello to the end of the last."""

    def __init__(
        self, server: str, capacity: Needs, site: str, lifetime: ExecutorLifetime, count: int, *, seconds: float = 0.0
    ) -> None:
        self._server = server
        self._capacity = capacity
        self._site = site
        self._lifetime = lifetime
        self._times = RunTimes(seconds)
        self._reader = EmulatedReader()
        self._epoll = select.epoll()
        self._members = [EmulatedMember(capacity.cores) for _ in range(count)]
        self._absent = deque(self._members)
        self._by_fd: dict[int, EmulatedMember] = {}
        self._unproven: dict[EmulatedMember, float] = {}  # until when they wait; in the order in which they came
        self._left = count  # those that are not over
        self._inside = 0
        self._all_in = False
        self._heap: list[tuple[float, int, EmulatedMember]] = []
        self._pushed = 0
        self._access: Access | None = None
        self._met = False  # the server has let one in
        self._pause = self._retry_at = 0.0
        self._alone_since = time.monotonic()
        self._slice = 0
        self._sweep_at = NEVER
        self._heartbeat = 30.0
        self._over_at = NEVER  # when none is waited for any more
        self._exit: int | None = None
        self._signals, self._wake = socket.socketpair()
        for end in (self._signals, self._wake):
            end.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._epoll.register(self._signals.fileno(), select.EPOLLIN)

    def run(self) -> int:
        """Serve until all have left; the exit code. BoughError when the first finds no server."""
        self._connect_some(time.monotonic())
        while self._exit is None and self._left:
            for fd, _ in self._epoll.poll(self._until_next(time.monotonic())):
                member = self._by_fd.get(fd)
                if member is not None:
                    self._on_ready(member)
                elif fd == self._signals.fileno():
                    self._on_signal()
            now = time.monotonic()
            self._on_time(now)
            if now >= self._sweep_at:
                self._sweep(now)
            self._connect_some(now)
            if now >= self._over_at:
                break
        self._epoll.close()
        return self._exit or 0

    def _until_next(self, now: float) -> float:
        """Seconds until something is to be done by the clock."""
        due = min(self._heap[0][0] if self._heap else NEVER, self._sweep_at, self._over_at)
        if self._absent and len(self._unproven) < self._room:
            due = min(due, self._retry_at)
        if self._unproven:
            due = min(due, next(iter(self._unproven.values())))
        return max(0.0, min(due - now, 3600.0))

    @property
    def _room(self) -> int:
        """How many may be unproven: one until the server is known."""
        return MOST_UNPROVEN if self._met else 1

    # --- coming -------------------------------------------------------------------------------------

    def _connect_some(self, now: float) -> None:
        while self._unproven and next(iter(self._unproven.values())) <= now:
            self._fail(next(iter(self._unproven)), PeerLost("the server does not answer", transient=True))
        while self._absent and len(self._unproven) < self._room and now >= self._retry_at:
            self._connect(self._absent.popleft(), now)
        if not self._inside and self._met and now - self._alone_since > self._lifetime.give_up:
            logs.error("executor-gave-up", f"no server for {self._lifetime.give_up:g} s; everything is ended")
            self._exit = 0

    def _connect(self, member: EmulatedMember, now: float) -> None:
        self._unproven[member] = now + _ANSWER_WITHIN
        try:
            if self._access is None:  # it may have changed
                self._access = find_access(self._server, "execute")
            hello = make_hello(self._site, self._capacity, self._lifetime, None)
            line = EmulatedConnection(self._access, frame(member.hello(hello)))
        except BoughError as error:
            self._fail(member, error)
            return
        member.line = line
        member.quiet = 0
        self._by_fd[line.fileno()] = member
        self._epoll.register(line.fileno(), _mask(line))
        member.watched = _mask(line)

    def _fail(self, member: EmulatedMember, error: BoughError) -> None:
        """It could not come in: again later, with all others; if it was the first there is no sense in that."""
        self._drop(member)
        if not self._met:
            raise error
        if not isinstance(error, PeerLost):
            logs.error("connect-failed", str(error))
        self._come_again(member, time.monotonic())

    def _come_again(self, member: EmulatedMember, now: float) -> None:
        if member.departure is not EmulatedDeparture.NOT:
            self._end(member)
            return
        self._access = None
        if now >= self._retry_at:
            self._pause = min(_MOST_PAUSE, 1.5 * self._pause) if self._pause else _FIRST_PAUSE
            self._retry_at = now + self._pause
        self._absent.append(member)

    def _drop(self, member: EmulatedMember) -> None:
        """Its connection is no more."""
        self._unproven.pop(member, None)
        line, member.line = member.line, None
        if line is not None:
            self._epoll.unregister(line.fileno())
            del self._by_fd[line.fileno()]
            line.close()
        if member.welcomed:
            member.welcomed = False
            self._inside -= 1
            self._alone_since = time.monotonic()

    # --- hearing ------------------------------------------------------------------------------------

    def _on_ready(self, member: EmulatedMember) -> None:
        line = member.line
        assert line is not None
        try:
            line.write()
            messages = line.read(self._reader)
        except BoughError as error:
            self._fail(member, error)
            return
        if messages:
            member.quiet = 0
            now = time.monotonic()
            for message in messages:
                kind = type(message)
                if kind is RunSpan:
                    self._take(member, message)  # type: ignore[arg-type]
                elif kind is Acknowledged:
                    self._heard(member, message.number)  # type: ignore[union-attr]
                else:
                    self._on_message(member, message, now)
            if member.line is line:
                self._move(member, now)
        if member.line is not line:
            return
        if line.lost:
            self._lose(member)
        else:
            self._watch(member, line)

    def _take(self, member: EmulatedMember, run: RunSpan) -> None:
        if member.departure in {EmulatedDeparture.NOT, EmulatedDeparture.DRAINING}:
            member.work.add(run, self._times.of(run))
        else:
            member.work.refuse(run)

    def _heard(self, member: EmulatedMember, number: int) -> None:
        member.work.reports.heard(number)
        if not member.piggyback:
            self._send(member, _READY)

    def _on_message(  # noqa: C901 one case a kind of message
        self, member: EmulatedMember, message: object, now: float
    ) -> None:
        match message:
            case Blob():
                self._times.blobs.setdefault(message.id, message.data)
            case ExecutorWelcome():
                self._on_welcome(member, message, now)
            case StopElements() | EndElements():
                member.work.interrupt(message, now)
            case ClearOut():  # at once: nothing of it is real
                member.work.clear(message.reason)
            case GiveBacklog():
                member.work.give_back(running=False)
            case Drain():
                member.told_to_drain()
            case Leave():  # at once: no more is said than what it gives back
                member.work.give_back(running=True)
                member.departure = EmulatedDeparture.MAY_GO
            case ReadOutput():
                self._send(member, frame(OutputRead(message.request, b"")))
            case ProbeTask():
                self._send(member, frame(ProbeAnswer(message.request, error="an emulated executor runs nothing")))
            case Refused():
                self._refused(member, message)
            case _:
                pass  # of files and places, which are not needed here

    def _on_welcome(self, member: EmulatedMember, welcome: ExecutorWelcome, now: float) -> None:
        self._unproven.pop(member, None)
        self._met, self._pause = True, 0.0
        self._inside += 1
        member.on_welcome(welcome)
        if self._sweep_at == NEVER or welcome.heartbeat < self._heartbeat:
            self._heartbeat = welcome.heartbeat
            self._sweep_at = now + self._sweep_pause
        reports = member.work.reports
        reports.cut()
        for report in reports.unheard():  # the server may have missed these
            self._send(member, report)
        self._send(member, frame(SpansHeld(member.work.spans())))
        if self._inside == self._left and not self._all_in:
            self._all_in = True
            logs.info("emulation-joined", f"all {self._left} emulated executors have joined")

    def _refused(self, member: EmulatedMember, message: Refused) -> None:
        self._drop(member)
        if not self._met or message.kind in _FINAL:
            logs.error("executor-refused", f"refused by the server: {message.message}")
            self._end(member)
            if not self._met:
                self._exit = 3
        else:
            self._come_again(member, time.monotonic())

    def _lose(self, member: EmulatedMember) -> None:
        was_in = member.welcomed
        self._drop(member)
        if not was_in:
            self._fail(member, PeerLost("the server closed the connection", transient=True))
            return
        if self._all_in and member.departure is EmulatedDeparture.NOT:
            self._all_in = False
            logs.warning("server-lost", "connections were lost; they are dialled again")
        self._come_again(member, time.monotonic())

    # --- doing --------------------------------------------------------------------------------------

    def _move(self, member: EmulatedMember, now: float) -> None:
        """Let time pass for one, report, and see whether it is to go."""
        work = member.work
        due = work.advance(now)
        if due != member.due:
            member.due = due
            if due != NEVER:
                self._pushed += 1
                heapq.heappush(self._heap, (due, self._pushed, member))
        report = work.reports.cut()
        if report is not None and member.welcomed:  # before, older ones must go first
            self._send(member, report)
        if member.departure is not EmulatedDeparture.NOT:
            self._part(member)
        elif due != NEVER:
            member.idle_since = now

    def _on_time(self, now: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            due, _, member = heapq.heappop(heap)
            if member.due == due:
                member.due = NEVER
                self._move(member, now)
                if member.line is not None:
                    self._watch(member, member.line)

    def _send(self, member: EmulatedMember, data: bytearray) -> None:
        if member.line is not None:
            member.spoke = True
            member.line.send(data)

    def _watch(self, member: EmulatedMember, line: EmulatedConnection) -> None:
        mask = _mask(line)
        if mask != member.watched:
            member.watched = mask
            self._epoll.modify(line.fileno(), mask)

    @property
    def _sweep_pause(self) -> float:
        return self._heartbeat / _SWEEPS / _SLICES

    def _sweep(self, now: float) -> None:
        """Look at the next few: say that they live, see that the server does, see whether their time is over."""
        self._sweep_at = now + self._sweep_pause
        self._slice = (self._slice + 1) % _SLICES
        lifetime = self._lifetime
        if lifetime.until and self._over_at == NEVER and time.time() >= lifetime.leaves_at:
            self._leave_all("its time is nearly over", max(0.0, lifetime.ends_at - time.time()), running=False)
        for member in self._members[self._slice :: _SLICES]:
            if not member.welcomed:
                continue
            line = member.line
            assert line is not None
            member.quiet += 1
            if member.quiet > _QUIET:
                self._lose(member)
                continue
            if not member.spoke:
                self._send(member, _ALIVE)
                self._watch(member, line)
            member.spoke = False
            if lifetime.idle and member.work.idle and now - member.idle_since >= lifetime.idle:
                self._say_leaving(member, f"it had nothing to do for {lifetime.idle:g} s")

    # --- going --------------------------------------------------------------------------------------

    def _say_leaving(self, member: EmulatedMember, reason: str) -> None:
        """Behind the reports of what is given back."""
        if member.departure in {EmulatedDeparture.SAID, EmulatedDeparture.MAY_GO}:
            return
        member.departure = EmulatedDeparture.SAID
        report = member.work.reports.cut()
        if report is not None:
            self._send(member, report)
        self._send(member, frame(Leaving(reason)))

    def _part(self, member: EmulatedMember) -> None:
        work = member.work
        if not work.idle:
            return
        if member.departure is EmulatedDeparture.DRAINING:
            self._say_leaving(member, "it was drained")
        elif member.departure is EmulatedDeparture.MAY_GO and not work.reports.unheard():
            self._end(member)

    def _end(self, member: EmulatedMember) -> None:
        self._drop(member)
        if member.departure is not EmulatedDeparture.OVER:
            member.departure = EmulatedDeparture.OVER
            member.due = NEVER
            self._left -= 1

    def _on_signal(self) -> None:
        self._signals.recv(64)
        if self._over_at != NEVER:  # a second time: at once
            self._exit = 0
            return
        self._leave_all("it was told to end", _FAREWELL, running=True)

    def _leave_all(self, reason: str, seconds: float, *, running: bool) -> None:
        """All say that they leave; one that is not inside ends at once."""
        logs.info("executor-leaving", f"leaving: {reason}")
        self._over_at = time.monotonic() + seconds + _EACH * self._left
        self._absent.clear()
        for member in self._members:
            if member.departure is EmulatedDeparture.OVER:
                continue
            if not member.welcomed:
                self._end(member)
                continue
            member.work.give_back(running=running)
            self._say_leaving(member, reason)
            if member.line is not None:
                self._watch(member, member.line)


def _mask(line: EmulatedConnection) -> int:
    return select.EPOLLIN | (select.EPOLLOUT if line.wants_write else 0)


def check_count(count: int) -> None:
    """Raise the limit of open files as far as may be; UserError if that is too little."""
    if count < 1:
        raise UserError(f"--emulate {count}: say how many, 1 or more")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and count > soft - _SPARE:
        raise UserError(
            f"--emulate {count}: a process may have {soft} open files here, so {soft - _SPARE} are possible:"
            " start several processes, or raise the limit (ulimit -Hn)"
        )


def emulate(words: list[str], count: int, seconds: float) -> int:
    """Run emulated executors with the arguments of a real one; the exit code."""
    options = ExecutorOptions(words)
    capacity, lifetime = read_capacity_and_lifetime(options)
    try:
        check_count(count)
        return EmulatedExecutors(options.server, capacity, options.site, lifetime, count, seconds=seconds).run()
    except BoughError as error:
        logs.error("executor-failed", f"{error}")
        return error.exit_code
