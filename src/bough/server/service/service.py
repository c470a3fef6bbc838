"""The life of a service: it continues what the server before it left, serves, and ends in good order.

Rule: ending the server closes no run. Executors are told nothing unless they are to leave: they continue their tasks
and reconnect to the next server on this store. The locks are held until the process is gone, because a thread of it may
write to the store until then, and no other process may.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
import time
from typing import TYPE_CHECKING

import msgspec
import uvloop

from bough import logs, private
from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.errors import BoughError, SiteError, StoreFailed, StoreHeld
from bough.model.arrays.dispatch_tuning import DispatchTuning
from bough.model.events.facts import RunOpened
from bough.policies.policy_registry import PLACEMENT, PROVISIONING, USUAL, load_policies, replication_of
from bough.policy.interface import Policies
from bough.server import cleanup, socket_path
from bough.server.peer_connection import PeerConnection
from bough.server.service.features import FeatureOptions, Features
from bough.server.service.id_ranges import IdRanges
from bough.server.service.returning_executors import ReturningExecutors
from bough.server.service.service_handlers import ServiceHandlers
from bough.server.service.sql_process import Limits
from bough.server.service.upkeep.idle_end import IdleEnd
from bough.server.service.workflows import Workflows
from bough.server.turns.run_info import RunInfo
from bough.server.turns.shell import Shell, make_shell
from bough.stores.folder.store_folder import make_store_folders
from bough.stores.folder.store_lock import StoreLock, who_holds
from bough.stores.maintenance.replay import replay_run
from bough.stores.open import HeldStore, is_postgres, lock_store, open_store
from bough.stores.places import note_place
from bough.stores.store import LastRun, Store
from bough.stores.store_errors import reported
from bough.transport import home
from bough.transport.listener import Acceptor, allow_many_files
from bough.wire.executor_messages import Leave

if TYPE_CHECKING:
    import ssl

    from bough.transport.admission import PeerListener

TOKEN = "token"  # the file in the store's folder by which executors see that they share it
_CUT_SHORT = 86_400.0  # seconds after which no process writes to a half-written result any more
_GRACE = 5.0  # seconds that tasks of executors that leave get
_SPARE = 5.0  # seconds beyond the grace that executors get to report and exit
_CATCH_UP = 5.0  # seconds for the jobs database; the next server, or the next reader, does the rest
_held: list[HeldStore] = []  # for as long as this process lives


class ServiceSettings(msgspec.Struct, frozen=True):
    """What `bough server start` asks for."""

    store: str = ""  # a folder or postgresql://..., empty: the folder `store` beside `server.json`
    listen: str = ""  # HOST:PORT for other machines, empty: the Unix socket only
    name: str = "server"
    policy: str = PLACEMENT
    heartbeat: float = 30.0
    reconnect: float = 60.0
    extras: FeatureOptions = FeatureOptions()
    tuning: DispatchTuning = DispatchTuning()
    provisioning: str = PROVISIONING
    max_pilots: int = 0  # of all sites together; 0: no bound
    max_tasks: int = 0  # that executors have at once; 0: no bound
    replication: str = USUAL
    until_idle: float = 0.0  # seconds without work and clients after which it ends, with its pilots; 0: never

    def policies(self) -> Policies:
        """As they are named here."""
        return load_policies(self.policy, self.provisioning, self.max_pilots, self.max_tasks, self.replication)

    @property
    def folder(self) -> str:
        """Where outputs and results lie, and the journal if it is not in a database elsewhere."""
        if self.store and not is_postgres(self.store):
            return os.path.abspath(self.store)
        return os.path.join(home.server_dir(), "store")

    @property
    def place(self) -> str:
        """Where the journal is: that folder, or a database."""
        return self.store if is_postgres(self.store) else self.folder


def serve(settings: ServiceSettings) -> int:
    """Run a service until it is told to end; its exit code. BoughError when it cannot begin.

    It is what a process does last: the locks stay with the process.
    """
    gc.disable()  # until all is loaded
    settings.policies()  # first: an unknown name shall leave no trace
    allow_many_files()
    server_dir = home.make_server_dir()
    locks: list[HeldStore] = [_lock_home(server_dir)]
    try:
        if os.path.realpath(settings.folder) != os.path.realpath(server_dir):
            with reported(settings.folder):
                socket_path.make_store(settings.folder)
            locks.append(StoreLock(settings.folder))
        if is_postgres(settings.store):
            locks.append(lock_store(settings.store))
        service = Service(settings)
    except BaseException:
        for lock in reversed(locks):
            lock.release()
        raise
    _held.extend(locks)
    try:
        return uvloop.run(service.live())
    finally:
        service.withdraw()


def _lock_home(server_dir: str) -> StoreLock:
    try:
        return StoreLock(server_dir)
    except StoreHeld:
        raise StoreHeld(
            f"a server runs already in {home.home()}: {who_holds(server_dir)};"
            " end it with bough server stop, or set $BOUGH_HOME for another"
        ) from None


def open_own_store(settings: ServiceSettings) -> Store:
    """The store that was named; it must be a service's, or new."""
    with reported(settings.folder):
        make_store_folders(settings.folder)
        note_place(settings.folder)
    store = open_store(settings.place)
    store.tell = logs.reporter("store-repaired", logs.WARNING)
    try:
        store.claim("service")
    except BoughError:
        store.close()
        raise
    return store


def open_machine(store: Store, settings: ServiceSettings, numbers: IdRanges) -> tuple[Machine, int, str]:
    """Go on with the service's own run, or begin it; that run's number, and the token of the store."""
    policies = settings.policies()
    token = _token_of(store, numbers.own_run, numbers.own_turn) if numbers.own_run else ""
    if not token:  # a new store, or one that came without its file of numbers
        last = store.last_run()
        numbers.beyond(group=last.last_group, run=max(last.run, last.last_run), executor=last.last_executor)
        if not last.run or last.clean:
            return _begin(store, settings, numbers, last)
        turn = store.turns_of_run(last.run)
        token = _token_of(store, last.run, turn)
        if not token:
            raise StoreFailed(f"the store does not say how its run {last.run} began")
        numbers.begin(last.run, turn)
    machine = replay_run(store, numbers.own_run, numbers.own_turn, policies, settings.tuning.max_span, accounts=True)
    return machine, numbers.own_run, token


def _begin(store: Store, settings: ServiceSettings, numbers: IdRanges, last: LastRun) -> tuple[Machine, int, str]:
    run, token, now = max(last.run, last.last_run) + 1, secrets.token_hex(16), time.time()
    policies = settings.policies()
    machine = Machine(
        policies,
        seed=run,
        last_turn=last.last_turn,
        last_span=last.last_span,
        pickup=settings.tuning.max_span,
        accounts=True,
    )
    opened = RunOpened(run, settings.name, socket.gethostname(), os.getpid(), policy=settings.policy, token=token)
    turn = machine.turn(now, [opened])
    store.append(turn.number, now, turn.facts)
    store.sync()
    numbers.begin(run, turn.number)
    return machine, run, token


def _token_of(store: Store, run: int, turn: int) -> str:
    """What the service's own run was opened with, if that turn opened it."""
    try:
        facts = store.turn(turn)
    except KeyError:
        return ""
    return next((fact.token for fact in facts if isinstance(fact, RunOpened) and fact.run == run), "")


class Service:
    """One server process. `finished` is its exit code once it has ended."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        begun = time.monotonic()
        self._store: Store = open_own_store(settings)
        self._numbers = IdRanges(settings.folder)
        self._machine, run, token = open_machine(self._store, settings, self._numbers)
        queries = Queries(self._machine)
        self._numbers.keep(queries.runs())
        self._info = RunInfo(
            run,
            settings.folder,
            f"{token}:{run}",
            memos=True,
            embedded=False,
            tuning=settings.tuning,
            policy=settings.policy,
            replication=replication_of(settings.policy, settings.replication),
            token=token,
        )
        with reported(settings.folder):
            self._write_token(token)
        cleanup.clear_results(os.path.join(settings.folder, "results"), _CUT_SHORT)
        self._listener, self._socket = socket_path.bind_lasting(home.server_dir())
        self._shell: Shell | None = None
        self._address = self._fingerprint = ""
        self._ending: asyncio.Task[None] | None = None
        self._idle_end: IdleEnd | None = None
        took, count = time.monotonic() - begun, queries.record_count
        logs.info(
            "store-opened", f"the store {settings.store or settings.folder} was opened in {took:.2f} s: {count} records"
        )

    def _write_token(self, token: str) -> None:
        path = os.path.join(self._settings.folder, TOKEN)
        private.write_file(path, token.encode("ascii"))

    async def live(self) -> int:
        """Serve until told to end."""
        loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[int] = loop.create_future()
        shell = self._shell = make_shell(loop, self._machine, self._store, self._info)
        shell.on_fatal = self._fail
        loop.set_exception_handler(lambda _, context: shell.handler_errors.unexpected(context))
        workflows = Workflows(shell, self._numbers)
        returning = ReturningExecutors(shell, self._numbers, self._settings.reconnect)
        where = self._settings.place
        handlers = self._handlers = ServiceHandlers(
            shell,
            workflows,
            returning,
            store=where,
            heartbeat=self._settings.heartbeat,
            shutdown=self.end,
            queries=Limits(seconds=self._settings.extras.query_time),
        )
        quotas = handlers.relays.quotas

        def make_peer() -> PeerConnection:
            return PeerConnection(handlers, shell.dirty, quotas=quotas)

        extras = self._settings.extras
        self._features = Features(shell, self._numbers, where, extras, handlers.task_requests, make_peer=make_peer)
        returning.is_cut_off = self._features.is_cut_off
        handlers.answers.add(self._features.handlers)
        handlers.reads_storage(self._features.fetch)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.end, False)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        server = Acceptor(self._listener, make_peer, logs.reporter("peer-refused", logs.WARNING))
        try:
            listener = await self._listen(handlers, shell) if self._settings.listen else None
            handlers.relays.fingerprint = self._fingerprint
            await self._features.open()
        except BoughError:
            server.close()
            self._store.close()
            raise
        shell.resume()
        shell.full_disk.watch()
        self._publish()
        logs.info("server-started", f"serving {self._info.store_dir} at {self._socket} {self._address}".rstrip())
        gc.freeze()  # what was loaded stays; looking through it again and again is what makes big runs slow
        gc.set_threshold(1_000_000, 50, 100)
        gc.enable()
        if self._settings.until_idle:
            self._idle_end = IdleEnd(shell, self._settings.until_idle, self._end_idle)
            self._idle_end.start()
        code = await self._finished
        server.close()
        await handlers.sql_queries.close()
        await self._features.close()
        if listener is not None:
            await listener.close()
        return code

    async def _listen(self, handlers: ServiceHandlers, shell: Shell) -> PeerListener:
        """Listen for other machines."""
        from bough.transport.access import make_tokens, reachable_address, secret, split_address
        from bough.transport.admission import PeerListener
        from bough.transport.tls import make_certificate, server_context

        make_tokens()
        cert, key, self._fingerprint = make_certificate()
        host, port = split_address(self._settings.listen)
        quotas = handlers.relays.quotas
        listener = PeerListener(
            lambda: PeerConnection(handlers, shell.dirty, quotas=quotas),
            secret,
            self._fingerprint,
            say=logs.reporter("peer-refused", logs.WARNING),
        )
        context = server_context(cert, key)
        if port:
            await listener.listen(host, port, context)
        else:
            port = await self._listen_as_before(listener, host, context)
        self._address = reachable_address(host, port)
        self._features.listen(listener, self._address, self._fingerprint)
        return listener

    async def _listen_as_before(self, listener: PeerListener, host: str, context: ssl.SSLContext) -> int:
        """Any port, but the one of the last time if it is free: executors look for us there."""
        path = os.path.join(home.server_dir(), "port")
        try:
            with open(path, encoding="ascii") as file:
                port = await listener.listen(host, int(file.read(10)), context)
        except (OSError, ValueError, SiteError):
            port = await listener.listen(host, 0, context)
        home.write_private(path, f"{port}\n".encode())
        return port

    def _publish(self) -> None:
        home.write_note(
            home.ServerNote(
                self._address,
                self._socket,
                os.getpid(),
                socket.gethostname(),
                self._fingerprint,
                self._settings.store or self._settings.folder,
                time.time(),
            )
        )

    def withdraw(self) -> None:
        """Be found no more."""
        home.remove_note()
        socket_path.unbind(self._socket)

    # --- the end -----------------------------------------------------------------------------------

    def end(self, dismiss: bool) -> None:
        """End in good order; `dismiss`: executors leave, too."""
        assert self._shell is not None
        if self._ending is None:
            if self._idle_end is not None:
                self._idle_end.stop()
            logs.info("server-ending", "told to end" + (", with all executors" if dismiss else ""))
            self._features.stop()
            self._handlers.finished.stop()
            self._ending = self._shell.loop.create_task(self._run_down(dismiss))

    def _end_idle(self) -> None:
        """End with all pilots, because nothing is left to do; who wants a server from now on waits for that."""
        assert self._shell is not None
        if self._ending is None:
            logs.info("server-idle", "nobody is connected and no task is left: ending, with all pilots")
            home.remove_note()
            self._handlers.is_ending = True
            self._ending = self._shell.loop.create_task(self._end_with_pilots())

    async def _end_with_pilots(self) -> None:
        await self._features.release_pilots()
        self._features.stop()
        self._handlers.finished.stop()
        await self._run_down(dismiss=False)

    async def _run_down(self, dismiss: bool) -> None:
        shell = self._shell
        assert shell is not None
        try:
            if dismiss:
                await self._let_executors_go(shell)
            await self._catch_up(shell)
            await shell.background.stop()
            shell.background.save_snapshot(shell.queries.turn)
            self._store.close(within=_CATCH_UP)
            self._numbers.close()
            code = 0
        except BoughError as error:
            logs.error("store-not-closed", f"the store could not be closed: {error}")
            code = error.exit_code
        for connection in [*shell.peers.clients, *shell.peers.by_connection]:
            connection.close()
        logs.info("server-ended", "ended")
        await asyncio.sleep(0)
        self._finish(code)

    async def _let_executors_go(self, shell: Shell) -> None:
        for executor in shell.peers.executors.values():
            executor.leaving = "the server ended"
            executor.connection.say(Leave(_GRACE))
        shell.flush()
        until = shell.loop.time() + _GRACE + _SPARE
        while shell.peers.executors and shell.loop.time() < until:
            await asyncio.sleep(0.01)

    async def _catch_up(self, shell: Shell) -> None:
        """Write what has arrived; what comes later will be said again to the next server."""
        shell.closed = True
        written = asyncio.Event()
        shell.after_turn(written.set)
        try:
            await asyncio.wait_for(written.wait(), _SPARE)
        except TimeoutError:
            raise StoreFailed("the last turn could not be written: free some space") from None

    def _fail(self, error: BoughError) -> None:
        """The store cannot be written, or we are wrong ourselves: nothing that follows would be true."""
        story = getattr(error, "story", "")
        logs.error("server-failed", f"the server cannot continue: {error}\n{story}")
        self._finish(error.exit_code)

    def _finish(self, code: int) -> None:
        if not self._finished.done():
            self._finished.set_result(code)
