"""Read-only SQL over the jobs database for clients that cannot open it themselves.

Statements are strangers' code. Each is answered by a process of its own (`sql_process`), which is kept for the next one
and ended when it takes too long or when its client disconnected; the server itself only passes bytes on. Each role has
processes of its own (`_Desk`), and its clients take turns: a short turn first, in which most statements end. One that
needs longer goes on if a place for slow ones is free, and else begins anew when one is. Rule: whatever is asked, by
however many connections, the server, other roles and the store's writer continue, and who asks little soon has a turn.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from collections import deque
from typing import Final

import msgspec

from bough import errors, logs
from bough.errors import InternalError, UserError
from bough.server.peer_connection import PeerConnection
from bough.server.peers import DeferredRequest
from bough.server.service.sql_process import HEAD, REFUSED, Limits, Question, Setting
from bough.stores.jobs.jobs_reader import too_slow
from bough.wire import questions

_QUICK: Final = 1.0  # seconds of a first turn
_TOGETHER: Final = 2  # statements of a role in a first turn; and as many that are slow
_EACH: Final = 2  # statements of one asker under way
_WAITING: Final = 64  # statements of one asker that wait
_SPARE: Final = 2.0  # seconds beyond the limit after which a process is ended that does not keep it
_ENDING: Final = 1.0  # seconds that it has to end by itself: a database elsewhere is told to stop, too
_IDLE: Final = 30.0  # seconds that a process waits for the next statement
_UNREAD: Final = 1 << 20  # bytes that an asker may leave unread and still be answered more
_LOOK: Final = 0.05  # seconds between looks whether it has read them
_ODD: Final = 1 << 16  # bytes of an answer besides its rows


class _Helper:
    """A process that answers one statement at a time."""

    def __init__(self, process: asyncio.subprocess.Process, longest: int) -> None:
        self._process = process
        self._longest = longest

    @classmethod
    async def start(cls, setting: Setting) -> _Helper:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "bough.server.service.sql_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=1 << 20,
        )
        helper = cls(process, setting.limits.size + _ODD)
        helper._say(msgspec.msgpack.encode(setting))
        try:
            await helper._hear()  # it is ready: its first statement has all of its turn
        except BaseException as error:
            await helper.end()
            if isinstance(error, EOFError):
                raise ChildProcessError(errno.ECHILD, "it ended at once") from error
            raise
        return helper

    def _say(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(HEAD.pack(len(data)) + data)

    async def ask(self, question: Question) -> bytes:
        """What it answers; OSError or EOFError when it cannot."""
        assert self._process.stdin is not None
        self._say(msgspec.msgpack.encode(question))
        await self._process.stdin.drain()
        return await self._hear()

    async def _hear(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        size = HEAD.unpack(await stdout.readexactly(HEAD.size))[0]
        if size > self._longest:
            raise OSError("the answer is longer than it may be")
        return await stdout.readexactly(size)

    async def end(self) -> None:
        """End it, in good order if it can."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None:
                self._process.send_signal(how)
                try:
                    await asyncio.wait_for(self._process.wait(), _ENDING)
                except TimeoutError:
                    continue
            return

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None


class _Statement:
    """One that was asked."""

    def __init__(self, asked: DeferredRequest[questions.Sql]) -> None:
        self.asked = asked
        self.asker = asked.client.connection
        self.is_slow = False  # its first turn was too short
        self.is_put_off = False  # and there was no place for one more slow one: it begins anew


class _Desk:
    """The statements of one role: those under way, and those that wait for a turn."""

    def __init__(self) -> None:
        self._running: list[_Statement] = []
        self._quick: dict[PeerConnection, deque[_Statement]] = {}  # by asker, the longest wait first
        self._slow: dict[PeerConnection, deque[_Statement]] = {}

    def add(self, statement: _Statement) -> None:
        """Have a statement wait."""
        waiting = self._slow if statement.is_slow else self._quick
        waiting.setdefault(statement.asker, deque()).append(statement)

    def waiting(self, asker: PeerConnection) -> int:
        """How many statements of a client wait."""
        return len(self._quick.get(asker, ())) + len(self._slow.get(asker, ()))

    def forget(self, asker: PeerConnection) -> None:
        """A client disconnected: its statements wait no more."""
        self._quick.pop(asker, None)
        self._slow.pop(asker, None)

    def begin(self) -> tuple[_Statement | None, bool]:
        """The statement whose turn it is now, if any; and whether one waits for its client to read answers."""
        is_unread = False
        for waiting, is_slow in ((self._quick, False), (self._slow, True)):
            if not self.has_place(slow=is_slow):
                continue
            able = [asker for asker in waiting if self._under_way(asker) < _EACH]
            taking = [asker for asker in able if asker.unsent <= _UNREAD]
            is_unread = is_unread or len(taking) < len(able)
            if taking:
                asker = min(taking, key=self._load)  # of equals the first
                own = waiting.pop(asker)
                statement = own.popleft()
                if own:
                    waiting[asker] = own  # behind the others
                self._running.append(statement)
                return statement, is_unread
        return None, is_unread

    def has_place(self, *, slow: bool) -> bool:
        """Whether one more statement can be under way."""
        return sum(statement.is_slow is slow for statement in self._running) < _TOGETHER

    def end(self, statement: _Statement) -> None:
        """A statement is not under way any more."""
        self._running.remove(statement)

    def _under_way(self, asker: PeerConnection) -> int:
        return sum(statement.asker is asker for statement in self._running)

    def _load(self, asker: PeerConnection) -> int:
        return self._under_way(asker) + len(self._slow.get(asker, ()))


class SqlQueries:
    """See the module. `where`: the store's folder or database."""

    def __init__(self, loop: asyncio.AbstractEventLoop, where: str, limits: Limits | None = None) -> None:
        self._loop = loop
        self._setting = Setting(where, limits or Limits())
        self._desks: dict[str, _Desk] = {}  # by role
        self._running: dict[asyncio.Task[None], _Statement] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._idle: list[tuple[_Helper, asyncio.TimerHandle]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def ask(self, deferred: DeferredRequest[questions.Sql]) -> None:
        """Answer when the database has."""
        statement = _Statement(deferred)
        desk = self._desk(statement)
        if desk.waiting(statement.asker) >= _WAITING:
            raise UserError(f"{_WAITING} of your statements wait already: ask again when they are answered")
        desk.add(statement)
        self._go_on()

    def on_lost(self, connection: PeerConnection) -> None:
        """A client disconnected: it waits for no answer any more."""
        for desk in self._desks.values():
            desk.forget(connection)
        for task, statement in self._running.items():
            if statement.asker is connection:
                task.cancel()

    async def close(self) -> None:
        """Answer nothing more, and end all processes."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._running:
            task.cancel()
        while self._idle:
            self._drop(*self._idle.pop())
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # --- whose turn it is ----------------------------------------------------------------------------

    def _desk(self, statement: _Statement) -> _Desk:
        return self._desks.setdefault(statement.asker.role, _Desk())

    def _go_on(self) -> None:
        if self._closed:
            return
        for desk in self._desks.values():
            while True:
                statement, is_unread = desk.begin()
                if is_unread and self._timer is None:
                    self._timer = self._loop.call_later(_LOOK, self._look)
                if statement is None:
                    break
                task = self._loop.create_task(self._serve(statement))
                self._running[task] = statement
                task.add_done_callback(self._done)

    def _look(self) -> None:
        self._timer = None
        self._go_on()

    def _done(self, task: asyncio.Task[None]) -> None:
        statement = self._running.pop(task)
        self._desk(statement).end(statement)
        self._go_on()

    # --- one statement -------------------------------------------------------------------------------

    async def _serve(self, statement: _Statement) -> None:
        asked = statement.asked
        try:
            data = await self._ask(statement)
        except Exception as error:  # noqa: BLE001 -- it concerns the client that asked and no other
            asked.refuse(error)
            return
        if data is None:
            self._desk(statement).add(statement)
        elif data[0] == REFUSED:
            kind, text = msgspec.msgpack.decode(memoryview(data)[1:], type=tuple[str, str])
            asked.refuse(getattr(errors, kind, InternalError)(text))
        else:
            asked.answer(msgspec.Raw(memoryview(data)[1:]))

    async def _ask(self, statement: _Statement) -> bytes | None:
        """What the database answers; None: its turn was too short, and there is no place for one more slow one."""
        limits, question = self._setting.limits, statement.asked.question
        try:
            helper = await self._helper()
        except OSError as error:
            raise InternalError(f"no process could be started for the statement: {error.strerror}") from error
        turn: asyncio.TimerHandle | None = None
        try:
            async with asyncio.timeout(limits.seconds + _SPARE) as clock:
                if not statement.is_slow:
                    turn = self._loop.call_later(_QUICK, self._end_turn, statement, clock)
                data = await helper.ask(Question(question.statement, question.parameters))
        except BaseException as error:
            self._end(helper)
            if isinstance(error, TimeoutError):
                if statement.is_put_off:
                    statement.is_put_off = False
                    return None
                raise too_slow(limits.seconds) from None
            if isinstance(error, OSError | EOFError):
                logs.warning("query-process-ended", f"a process that asked the jobs database ended: {error}")
                raise UserError(
                    f"the statement ended the process that ran it, which may use {limits.memory >> 20} MB: ask for less"
                ) from None
            raise
        finally:
            if turn is not None:
                turn.cancel()
        self._keep(helper)
        return data

    def _end_turn(self, statement: _Statement, clock: asyncio.Timeout) -> None:
        """The first turn of a statement is over: it goes on as a slow one, or makes room."""
        statement.is_put_off = not self._desk(statement).has_place(slow=True)
        statement.is_slow = True
        if statement.is_put_off:
            clock.reschedule(self._loop.time())
        else:
            self._go_on()

    # --- processes -----------------------------------------------------------------------------------

    async def _helper(self) -> _Helper:
        while self._idle:
            helper, timer = self._idle.pop()
            timer.cancel()
            if helper.is_alive:
                return helper
        return await _Helper.start(self._setting)

    def _keep(self, helper: _Helper) -> None:
        if self._closed:
            self._end(helper)
        else:
            self._idle.append((helper, self._loop.call_later(_IDLE, self._leave)))

    def _leave(self) -> None:
        """The process that has had nothing to do for longest ends."""
        if self._idle:
            self._drop(*self._idle.pop(0))

    def _drop(self, helper: _Helper, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._end(helper)

    def _end(self, helper: _Helper) -> None:
        task = self._loop.create_task(helper.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
