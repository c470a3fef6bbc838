"""How a run ends: when all is done, when it is told to stop, or when its script is gone.

The order is always the same: nothing new is placed, executors leave and their last reports are
taken in, the end of the run is written, the store is closed. Rule: an end that was asked for writes
`RunClosed`; only a crash leaves it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bough.errors import BoughError, InternalError, StoreFailed
from bough.model.facts import RunClosed, Stopping
from bough.server import hidden
from bough.server.log import log
from bough.server.reception import Reception
from bough.server.shell import Shell
from bough.server.supervise import Supervisor
from bough.wire.messages import Closed, Refused
from bough.wire.work import Leave

_SPARE = 5.0  # seconds beyond the grace that executors get to report and exit
_MOMENT = 0.5  # seconds that the jobs database may keep a script waiting; what is left is folded by the next who asks
_STUCK = 5.0  # seconds that a store that cannot be written is waited for


class Closing:
    """See the module. `finished` is the server's exit code once everything is over."""

    def __init__(self, shell: Shell, run: int, announce: Callable[[], None]) -> None:
        self.reception: Reception | None = None
        self.supervisor: Supervisor | None = None
        self.finished: asyncio.Future[int] = shell.loop.create_future()
        self._shell = shell
        self._run = run
        self._announce = announce  # says to others that the store will soon be free
        self._draining = False
        self._ending: asyncio.Task[None] | None = None
        shell.on_turn.append(self._after_turn)
        shell.on_fatal = self.fail

    # --- what may happen ---------------------------------------------------------------------------

    def close(self, how: str) -> None:
        """The owner said goodbye."""
        if how == "drain":
            self._draining = True
            self._shell.schedule()
        else:
            self._end("interrupted", grace=0.0 if how == "now" else 5.0)

    def owner_lost(self) -> None:
        """The owner is gone without a word."""
        if self._ending is None:
            log("the script is gone; its tasks are ended")
        self._end("interrupted", grace=1.0)

    def terminate(self) -> None:
        """Somebody sent us TERM."""
        log("told to terminate")
        self._end("interrupted", grace=5.0)

    def fail(self, error: BoughError) -> None:
        """The store cannot be written, or we are wrong ourselves: nothing that follows would be true."""
        log(f"the server cannot go on: {error}")
        if isinstance(error, InternalError):
            log(error.story)
        for client in self._shell.peers.clients.values():
            client.connection.say(Refused(str(error), kind=type(error).__name__))
        self._shell.flush()
        if self._ending is not None:
            self._ending.cancel()
        self._ending = self._shell.loop.create_task(self._give_up(error.exit_code))

    def _after_turn(self) -> None:
        if self._draining and self._ending is None and self._is_idle():
            self._end("done", grace=1.0)

    def _is_idle(self) -> bool:
        return not self._shell.is_busy and self._shell.machine.is_idle

    # --- the end -----------------------------------------------------------------------------------

    def _end(self, reason: str, grace: float) -> None:
        if self._ending is None:
            self._ending = self._shell.loop.create_task(self._run_down(reason, grace))
        else:
            self._tell_executors(grace)  # a second, harder word

    async def _run_down(self, reason: str, grace: float) -> None:
        try:
            self._announce()
            await self._stop_placing(reason)
            await self._let_executors_go(grace)
            if await self._written(RunClosed(self._run, reason)):
                await self._shell.upkeep.stop()
                self._close_store()
                await self._say_goodbye(Closed(reason))
                self._finish(0)
                return
            error: BoughError = StoreFailed("the end of the run could not be written: free some space and run again")
        except StoreFailed as found:
            error = found
        log(f"the store could not be closed: {error}")
        await self._say_goodbye(Refused(str(error), kind="StoreFailed"))
        self._finish(error.exit_code)

    async def _stop_placing(self, reason: str) -> None:
        if reason != "done":
            await self._written(Stopping())

    def _close_store(self) -> None:
        """The end of the run is written: what is not folded soon, or not for want of space, is folded later."""
        try:
            self._shell.store.close(patience=_MOMENT)
        except StoreFailed as error:
            if not error.transient:
                raise
            log(f"the jobs database could not be brought up to date: {error}")

    def _tell_executors(self, grace: float) -> None:
        for executor in self._shell.peers.executors.values():
            executor.leaving = "the session ends"
            executor.connection.say(Leave(grace))
        self._shell.flush()

    async def _let_executors_go(self, grace: float) -> None:
        """Executors end what they run, say what they know and exit; what they say late still counts."""
        if self.reception is not None:
            self.reception.leaving = True
        if self.supervisor is not None:
            self.supervisor.retire()
            if not self._shell.peers.executors:
                self.supervisor.kill()  # it has not even joined
        self._tell_executors(grace)
        self._shell.upkeep.when_folded(lambda: None)  # there is time for it while they leave
        until = self._shell.loop.time() + grace + _SPARE
        if self.supervisor is not None:
            await self.supervisor.gone(grace + _SPARE)
        while self._shell.peers.executors and self._shell.loop.time() < until:
            await asyncio.sleep(0.005)
        if not self._shell.peers.executors:
            hidden.clear(self._shell.info.folder("out"))

    async def _written(self, fact: Stopping | RunClosed) -> bool:
        """Put something into a turn and wait until it is written; False if the store cannot be written."""
        written = asyncio.Event()
        self._shell.news(fact, then=written.set)
        try:
            await asyncio.wait_for(written.wait(), _STUCK)
        except TimeoutError:
            return False
        return True

    async def _say_goodbye(self, last_word: Closed | Refused) -> None:
        for client in list(self._shell.peers.clients.values()):
            client.connection.send(last_word)
            client.connection.close()
        until = self._shell.loop.time() + 1.0
        while self._shell.peers.clients and self._shell.loop.time() < until:
            await asyncio.sleep(0.002)

    async def _give_up(self, code: int) -> None:
        """Leave without closing the run: executors spill, and the next run recovers what is true."""
        for executor in self._shell.peers.executors.values():
            executor.connection.close()
        if self.supervisor is not None:
            await self.supervisor.gone(_SPARE)
        self._finish(code)

    def _finish(self, code: int) -> None:
        if not self.finished.done():
            self.finished.set_result(code)
