"""The server of one session, from opening its run to its ordered end: one workflow, one owner, one executor.

It lives as long as its owner's connection. A run ends when all is done, when the server is told to stop, or when the
script is gone, always in the same order: nothing new is placed, executors leave and their last reports are taken in,
the end of the run is written, the store is closed. Rule: nothing is accepted before the store is open and a crashed run
is recovered; an end that was asked for writes `RunClosed`, and only a crash leaves it out.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import uvloop

from bough import logs, private
from bough.core.machine import Machine
from bough.errors import BoughError, InternalError, StoreFailed, StoreHeld
from bough.model.events.facts import RunClosed, RunOpened, Stopping
from bough.model.ids import ExecutorId
from bough.model.reuse_scope import ALWAYS, NEVER, RESUME, ReuseScope
from bough.model.states import TaskState
from bough.movers.value_places import MEMORY, VALUES
from bough.policies.policy_registry import load_policies, replication_of
from bough.server import cleanup, socket_path
from bough.server.embedded.local_executor import ExecutorCommand, LocalExecutor
from bough.server.embedded.old_runs import delete_files, is_alive, remove_old_runs
from bough.server.embedded.result_keeper import ResultKeeper
from bough.server.embedded.server_options import ServerOptions
from bough.server.message_handlers import MessageHandlers
from bough.server.peer_connection import PeerConnection
from bough.server.peer_quotas import Quotas
from bough.server.turns.run_info import RunInfo
from bough.server.turns.shell import Shell, internal_error, make_shell
from bough.stores.folder.store_folder import make_store_folders
from bough.stores.folder.store_lock import StoreLock, holder
from bough.stores.folder.unfinished_note import read_note, remove_note
from bough.stores.places import note_place
from bough.stores.sql.sqlite import SqliteStore
from bough.stores.store_errors import reported
from bough.transport.listener import Acceptor
from bough.wire.client_messages import Closed, Refused, UserNotice
from bough.wire.executor_messages import Leave
from bough.wire.framing import frame

if TYPE_CHECKING:
    from bough.stores.store import LastRun, Store

_SPARE = 5.0  # seconds beyond the grace that executors get to report and exit
_MOMENT = 0.5  # seconds that the jobs database may keep a script waiting; a later reader folds the rest
_STUCK = 5.0  # seconds that a store that cannot be written is waited for
_LEAVING = 15.0  # seconds a server whose script is gone may take to leave its store
_LOOK = 2.0
_PATIENCE = 1.0  # seconds of catching up before the script is told why it waits
_TURNS = 64  # folded at a time meanwhile
_BEHIND = "the jobs database is brought up to date with the last run first"
_UNNOTICED = 0.3  # seconds in which it may not have noticed yet that its script is gone


class Shutdown:
    """See the module. `finished` is the server's exit code once it has ended."""

    def __init__(self, shell: Shell, run: int, announce: Callable[[], None]) -> None:
        self.handlers: MessageHandlers | None = None
        self.local_executor: LocalExecutor | None = None
        self.keeper: ResultKeeper | None = None
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
        """The owner's connection was lost."""
        if self._ending is None:
            logs.warning("script-lost", "the script disconnected; the server ends its tasks")
        self._end("interrupted", grace=1.0)

    def terminate(self) -> None:
        """The process got SIGTERM."""
        logs.info("server-ending", "told to terminate")
        self._end("interrupted", grace=5.0)

    def fail(self, error: BoughError) -> None:
        """The store cannot be written, or we are wrong ourselves: nothing that follows would be true."""
        story = f"\n{error.story}" if isinstance(error, InternalError) else ""
        logs.error("server-failed", f"the server cannot continue: {error}{story}")
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
            if self.keeper is not None:
                await asyncio.to_thread(self.keeper.close)
            closed = RunClosed(self._run, reason, self._has_failures())
            if await self._written(closed):
                await self._shell.background.stop()
                self._close_store()
                if reason == "done" and not closed.unfinished:
                    remove_note(self._shell.info.store_dir)
                await self._say_goodbye(Closed(reason))
                self._finish(0)
                return
            error: BoughError = StoreFailed("the end of the run could not be written: free some space and run again")
        except StoreFailed as found:
            error = found
        logs.error("store-not-closed", f"the store could not be closed: {error}")
        await self._say_goodbye(Refused(str(error), kind="StoreFailed"))
        self._finish(error.exit_code)

    def _has_failures(self) -> bool:
        return self._shell.queries.counts().by_state[TaskState.FAILED] > 0

    async def _stop_placing(self, reason: str) -> None:
        if reason != "done":
            await self._written(Stopping())

    def _close_store(self) -> None:
        """The end of the run is written: what is not folded soon, or not for want of space, is folded later."""
        try:
            self._shell.store.close(within=_MOMENT)
        except StoreFailed as error:
            if not error.transient:
                raise
            logs.warning("jobs-database-behind", f"the jobs database could not be brought up to date: {error}")

    def _tell_executors(self, grace: float) -> None:
        for executor in self._shell.peers.executors.values():
            executor.leaving = "the session ends"
            executor.connection.say(Leave(grace))
        self._shell.flush()

    async def _let_executors_go(self, grace: float) -> None:
        """Executors end what they run, say what they know and exit; what they say late still counts."""
        if self.handlers is not None:
            self.handlers.leaving = True
        if self.local_executor is not None:
            self.local_executor.retire()
            if not self._shell.peers.executors:
                self.local_executor.kill()  # it has not even joined
        self._tell_executors(grace)
        self._shell.background.when_folded(lambda: None)  # there is time for it while they leave
        until = self._shell.loop.time() + grace + _SPARE
        if self.local_executor is not None:
            await self.local_executor.gone(grace + _SPARE)
        while self._shell.peers.executors and self._shell.loop.time() < until:
            await asyncio.sleep(0.005)
        if not self._shell.peers.executors:
            cleanup.clear(self._shell.info.folder("out"))

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
        if self.local_executor is not None:
            await self.local_executor.gone(_SPARE)
        self._finish(code)

    def _finish(self, code: int) -> None:
        if not self.finished.done():
            self.finished.set_result(code)


class Started(msgspec.Struct):
    """What was made before anything heavy was loaded."""

    options: ServerOptions
    listener: socket.socket
    socket_path: str
    command: ExecutorCommand
    executor_pid: int  # 0: it is not started yet


def serve(started: Started) -> int:
    """Run the server to its end; return its exit code."""
    options = started.options
    lock: StoreLock | None = None
    try:
        lock = take_lock(options.store, options.client)
        _publish(started, 0)  # at once: recovering a crashed run may take long, and our script may end meanwhile
        socket_path.remove_stale_sockets(options.store, started.socket_path)
        store, machine, info = open_run(options)
    except BoughError as error:
        logs.error("run-refused", f"refused: {error}")
        end_executor(started.executor_pid)
        refuse(options.fd, error)
        if lock is not None:
            socket_path.withdraw(options.store)
            lock.release()
        return error.exit_code
    try:
        return uvloop.run(_live(started, store, machine, info))
    finally:
        private.sweep(VALUES, MEMORY)  # those of our script, if that was killed
        socket_path.withdraw(options.store)
        lock.release()


def take_lock(store_dir: str, client: int = 0) -> StoreLock:
    """Take the store's lock in the name of our script; a server that leaves, its script being gone, is waited for."""
    begun = seen = time.monotonic()
    known: object = None
    while True:
        try:
            return StoreLock(store_dir, holder=client)
        except StoreHeld:
            now, said = time.monotonic(), socket_path.published(store_dir)
            if (holder(store_dir), said) != known:  # another one was faster, or it says no more and is all but gone
                known, seen = (holder(store_dir), said), now
            if now - begun > _LEAVING or (now - seen > _UNNOTICED and not _is_leaving(said)):
                raise
        time.sleep(0.02)


def _is_leaving(server: dict[str, object]) -> bool:
    """Whether the server that holds a store says so, or has lost its script."""
    if server.get("closing"):
        return True
    client = server.get("client")
    if server.get("host") != socket.gethostname() or not isinstance(client, int):
        return False
    return not cleanup.is_running(client)


def open_run(options: ServerOptions) -> tuple[SqliteStore, Machine, RunInfo]:
    """Open the store, settle what a crashed run left, and begin a new run."""
    # first: an unknown name shall leave no trace
    policies = load_policies(options.policy, replication=options.replication)
    with reported(options.store):
        make_store_folders(options.store)
        note_place(options.store)
    store = SqliteStore(options.store)
    store.tell = logs.reporter("store-repaired", logs.WARNING)
    store.claim("session")
    catch_up(store, lambda: _tell(options.fd, UserNotice(_BEHIND)))
    last = store.last_run()
    identity = socket_path.store_id(options.store)
    now = time.time()
    if last.run and not last.clean:
        from bough.server.recovery import recover

        spill_dir = os.path.join(options.store, "spill")
        recover(store, last, load_policies(options.policy), spill_dir=spill_dir, mark=f"{identity}:", now=now)
        cleanup.clear(os.path.join(options.store, "out"))
        cleanup.clear_results(os.path.join(options.store, "results"))
        last = store.last_run()
    if _raised_later(store, options.store, last, now):
        last = store.last_run()
    if last.run:
        old = store.expendable_runs(options.script, is_alive, spare_last=options.reuse == ALWAYS)
        if remove_old_runs(store, last.last_turn, now, old):
            last = store.last_run()
        delete_files(options.store, old)
    run = last.run + 1
    machine = Machine(
        policies, seed=run, last_turn=last.last_turn, last_span=last.last_span, pickup=options.tuning.max_span
    )
    memos = last.run > 0 and options.reuse != NEVER
    reuse = _reuse_scope(store, options)
    opened = RunOpened(
        run,
        options.name,
        socket.gethostname(),
        os.getpid(),
        options.fail_fast,
        options.policy,
        memos,
        reuse=reuse,
        script=options.script,
    )
    turn = machine.turn(now, [opened])
    store.append(turn.number, now, turn.facts)
    socket_path.note_opened(options.store, now)
    info = RunInfo(
        run=run,
        store_dir=options.store,
        marker=f"{identity}:{run}",
        first_record=last.last_record + 1,
        first_group=last.last_group + 1,
        first_executor=ExecutorId(last.last_executor + 1),
        memos=memos,
        reuse=reuse,
        tuning=options.tuning,
        policy=options.policy,
        replication=replication_of(options.policy, options.replication),
    )
    return store, machine, info


def _raised_later(store: Store, folder: str, last: LastRun, now: float) -> bool:
    """Runs that had ended well are unfinished if their script did not come to its end; whether there are some."""
    note = read_note(folder) if last.run and last.clean else None
    runs = store.completed_runs(note.script) if note is not None and note.script else []
    if runs:
        store.append(last.last_turn + 1, now, [RunClosed(run, "done", unfinished=True) for run in runs])
    return bool(runs)


def _reuse_scope(store: Store, options: ServerOptions) -> ReuseScope:
    if options.reuse != RESUME:
        return ReuseScope.ALL  # what it does may be reused as well
    return ReuseScope.UNFINISHED if store.unfinished_runs(options.script) else ReuseScope.NONE


def catch_up(store: Store, tell: Callable[[], None], patience: float = _PATIENCE) -> None:
    """Bring the tables up to date, which the last run may have left to us; if that takes longer it is told."""
    until = time.monotonic() + patience
    while not store.project(at_most=_TURNS):
        if until and time.monotonic() >= until:
            tell()
            until = 0


async def _live(started: Started, store: SqliteStore, machine: Machine, info: RunInfo) -> int:
    loop = asyncio.get_running_loop()
    shell = make_shell(loop, machine, store, info)
    shutdown = Shutdown(shell, info.run, lambda: _publish(started, info.run, closing=True))
    handlers = MessageHandlers(shell, shutdown.close, shutdown.owner_lost)
    shutdown.handlers = handlers
    mark = info.marker.partition(":")[0] + ":"
    local_executor = LocalExecutor(loop, started.command, started.executor_pid, lambda: _sweep(mark, info))
    shutdown.local_executor = local_executor
    handlers.on_executor_lost.append(local_executor.lost)
    handlers.processors.start_own = local_executor.need
    shell.on_turn.append(lambda: local_executor.need() if shell.queries.has_ready else None)
    loop.set_exception_handler(lambda _, context: shutdown.fail(internal_error(context)))
    for number in (signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, shutdown.terminate)
    _publish(started, info.run)
    owner = socket.socket(fileno=started.options.fd)
    await loop.create_unix_connection(lambda: PeerConnection(handlers, shell.dirty, trusted=True), sock=owner)
    quotas = Quotas()
    server = Acceptor(
        started.listener,
        lambda: PeerConnection(handlers, shell.dirty, quotas=quotas),
        logs.reporter("peer-refused", logs.WARNING),
    )
    _watch_parent(loop, started.options.client, shutdown)
    shell.full_disk.watch()
    keeper = ResultKeeper(info.folder("results"))
    shell.on_turn.append(keeper.look)
    shutdown.keeper = keeper
    logs.info("run-opened", f"run {info.run} of {started.options.name} opened in {info.store_dir}")
    gc.freeze()  # what was loaded stays; looking through it again and again is what makes big runs slow
    gc.set_threshold(1_000_000, 50, 100)
    gc.enable()
    code = await shutdown.finished
    server.close()
    keeper.close()
    if code == 0:
        logs.info("run-closed", f"run {info.run} closed")
    else:
        logs.error("run-not-closed", f"run {info.run} could not be closed; the next one will recover it")
    return code


def _watch_parent(loop: asyncio.AbstractEventLoop, parent: int, shutdown: Shutdown) -> None:
    """See that the script lives, also when a process that it forked still holds its end of the connection."""
    if os.getppid() != parent:
        shutdown.owner_lost()
    else:
        loop.call_later(_LOOK, _watch_parent, loop, parent, shutdown)


def _publish(started: Started, run: int, *, closing: bool = False) -> None:
    socket_path.publish(
        started.options.store,
        {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "socket": started.socket_path,
            "run": run,
            "client": started.options.client,
            "closing": closing,
        },
    )


def _sweep(mark: str, info: RunInfo) -> None:
    """End what a dead executor left running, before another one may get the same tasks."""
    ended = cleanup.end(mark, deadline=2.0)
    cleanup.clear(info.folder("out"))
    if ended:
        logs.warning("processes-ended", f"{len(ended)} processes that the executor left were ended")


def end_executor(pid: int) -> None:
    """End the executor that was started in vain."""
    if not pid:
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    os.waitpid(pid, 0)


def refuse(fd: int, error: BoughError) -> None:
    """Tell the owner why there is no session."""
    _tell(fd, Refused(str(error), kind=type(error).__name__))
    os.close(fd)


def _tell(fd: int, message: Refused | UserNotice) -> None:
    """Say something to the owner before there is a loop."""
    with socket.socket(fileno=os.dup(fd)) as owner:
        try:
            owner.setblocking(True)
            owner.sendall(frame(message))
        except OSError:
            return  # it disconnected
