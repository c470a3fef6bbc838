"""Read-only SQL over the jobs database for clients that cannot open it themselves.

Statements are strangers' code. Each is answered by a process of its own (`sql_process`), which is kept for the next one
and ended when it takes too long or when its client disconnected; the server itself only passes bytes on. Clients take
turns: each has a few statements under way and some waiting, and a client with none under way comes first. Rule:
whatever is asked, the server, other clients and the store's writer continue.
"""

from __future__ import annotations

import asyncio
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

_TOGETHER: Final = 4  # statements under way
_EACH: Final = 2  # of these, of one asker
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
        return helper

    def _say(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(HEAD.pack(len(data)) + data)

    async def ask(self, question: Question) -> bytes:
        """What it answers; OSError or EOFError when it cannot."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._say(msgspec.msgpack.encode(question))
        await stdin.drain()
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


class SqlQueries:
    """See the module. `where`: the store's folder or database."""

    def __init__(self, loop: asyncio.AbstractEventLoop, where: str, limits: Limits | None = None) -> None:
        self._loop = loop
        self._setting = Setting(where, limits or Limits())
        self._waiting: dict[PeerConnection, deque[DeferredRequest[questions.Sql]]] = {}  # longest wait first
        self._running: dict[asyncio.Task[None], PeerConnection] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._idle: list[tuple[_Helper, asyncio.TimerHandle]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def ask(self, deferred: DeferredRequest[questions.Sql]) -> None:
        """Answer when the database has."""
        waiting = self._waiting.setdefault(deferred.client.connection, deque())
        if len(waiting) >= _WAITING:
            raise UserError(f"{_WAITING} of your statements wait already: ask again when they are answered")
        waiting.append(deferred)
        self._go_on()

    def on_lost(self, connection: PeerConnection) -> None:
        """A client disconnected: it waits for no answer any more."""
        self._waiting.pop(connection, None)
        for task, asker in self._running.items():
            if asker is connection:
                task.cancel()

    async def close(self) -> None:
        """Answer nothing more, and end all processes."""
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._running:
            task.cancel()
        while self._idle:
            self._drop(*self._idle.pop())
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # --- whose turn it is ----------------------------------------------------------------------------

    def _go_on(self) -> None:
        while len(self._running) < _TOGETHER and (asked := self._next()) is not None:
            task = self._loop.create_task(self._serve(asked))
            self._running[task] = asked.client.connection
            task.add_done_callback(self._done)

    def _next(self) -> DeferredRequest[questions.Sql] | None:
        """The statement that comes next; None when there is none, or no client takes what was answered before."""
        under_way = list(self._running.values())
        able = [asker for asker in self._waiting if under_way.count(asker) < _EACH]
        taking = [asker for asker in able if asker.unsent <= _UNREAD]
        if not taking:
            if able and self._timer is None:
                self._timer = self._loop.call_later(_LOOK, self._look)
            return None
        asker = min(taking, key=under_way.count)  # of equals the first
        waiting = self._waiting.pop(asker)
        asked = waiting.popleft()
        if waiting:
            self._waiting[asker] = waiting  # behind the others
        return asked

    def _look(self) -> None:
        self._timer = None
        self._go_on()

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not self._closed:
            self._go_on()

    # --- one statement -------------------------------------------------------------------------------

    async def _serve(self, asked: DeferredRequest[questions.Sql]) -> None:
        try:
            data = await self._ask(Question(asked.question.statement, asked.question.parameters))
        except Exception as error:  # noqa: BLE001 -- it concerns the client that asked and no other
            asked.refuse(error)
            return
        if data[0] == REFUSED:
            kind, text = msgspec.msgpack.decode(memoryview(data)[1:], type=tuple[str, str])
            asked.refuse(getattr(errors, kind, InternalError)(text))
        else:
            asked.answer(msgspec.Raw(memoryview(data)[1:]))

    async def _ask(self, question: Question) -> bytes:
        limits = self._setting.limits
        try:
            helper = await self._helper()
        except OSError as error:
            raise InternalError(f"no process could be started for the statement: {error.strerror}") from error
        try:
            async with asyncio.timeout(limits.seconds + _SPARE):
                data = await helper.ask(question)
        except BaseException as error:
            self._end(helper)
            if isinstance(error, TimeoutError):
                raise too_slow(limits.seconds) from None
            if isinstance(error, OSError | EOFError):
                logs.warning("query-process-ended", f"a process that asked the jobs database ended: {error}")
                raise UserError(
                    f"the statement ended the process that ran it, which may use {limits.memory >> 20} MB: ask for less"
                ) from None
            raise
        self._keep(helper)
        return data

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
