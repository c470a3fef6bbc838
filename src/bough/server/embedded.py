"""The server of one session: one run of one workflow, one owner, one executor on this machine.

Rule: it lives as long as its owner's connection. Nothing is accepted before the store is open and
what an earlier run left is settled.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from bough.core.machine import Machine
from bough.errors import BoughError, InternalError, StoreHeld
from bough.model.facts import RunOpened
from bough.model.ids import ExecutorId
from bough.policies.registry import load_placement
from bough.server import hidden, leftovers, place
from bough.server.closing import Closing
from bough.server.connection import Connection
from bough.server.log import log
from bough.server.options import Options
from bough.server.quotas import Quotas
from bough.server.reception import Reception
from bough.server.run import RunInfo
from bough.server.separately import make_shell
from bough.server.spacewatch import SpaceWatch
from bough.server.supervise import Command, Supervisor
from bough.stores.faults import reported
from bough.stores.folder import make_store_folders
from bough.stores.lock import StoreLock, holder
from bough.stores.sqlite import SqliteStore
from bough.transport.accepting import Acceptor
from bough.wire.framing import frame
from bough.wire.messages import Notice, Refused

if TYPE_CHECKING:
    from bough.stores.api import Store

_LEAVING = 15.0  # seconds a server whose script is gone may take to leave its store
_LOOK = 2.0
_PATIENCE = 1.0  # seconds of catching up before the script is told why it waits
_TURNS = 64  # folded at a time meanwhile
_BEHIND = "the jobs database is brought up to date with the last run first"
_UNNOTICED = 0.3  # seconds in which it may not have noticed yet that its script is gone


class Started(msgspec.Struct):
    """What was made before anything heavy was loaded."""

    options: Options
    listener: socket.socket
    socket_path: str
    command: Command
    executor_pid: int  # 0: it is not started yet


def serve(started: Started) -> int:
    """Run the server to its end; return its exit code."""
    options = started.options
    lock: StoreLock | None = None
    try:
        lock = take_lock(options.store)
        _publish(started, 0)  # at once: recovering a crashed run may take long, and our script may end meanwhile
        place.remove_stale_sockets(options.store, started.socket_path)
        store, machine, info = open_run(options)
    except BoughError as error:
        log(f"refused: {error}")
        end_executor(started.executor_pid)
        refuse(options.fd, error)
        if lock is not None:
            place.withdraw(options.store)
            lock.release()
        return error.exit_code
    try:
        return uvloop.run(_live(started, store, machine, info))
    finally:
        place.withdraw(options.store)
        lock.release()


def take_lock(store_dir: str) -> StoreLock:
    """Take the store's lock; a server that is about to leave, its script being gone, is waited for."""
    begun = seen = time.monotonic()
    who: object = None
    while True:
        try:
            return StoreLock(store_dir)
        except StoreHeld:
            now, said = time.monotonic(), place.published(store_dir)
            if (holder(store_dir), said) != who:  # another one was faster, or it says no more and is all but gone
                who, seen = (holder(store_dir), said), now
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
    return not leftovers.is_running(client)


def open_run(options: Options) -> tuple[SqliteStore, Machine, RunInfo]:
    """Open the store, settle what a crashed run left, and begin a new run."""
    policy = load_placement(options.policy)  # first: an unknown name shall leave no trace
    with reported(options.store):
        make_store_folders(options.store)
    store = SqliteStore(options.store)
    store.tell = log
    store.claim("session")
    catch_up(store, lambda: _tell(options.fd, Notice(_BEHIND)))
    last = store.last_run()
    identity = place.store_id(options.store)
    now = time.time()
    if last.run and not last.clean:
        from bough.server.recovery import recover

        spill_dir = os.path.join(options.store, "spill")
        recover(store, last, load_placement(options.policy), spill_dir=spill_dir, mark=f"{identity}:", now=now)
        hidden.clear(os.path.join(options.store, "out"))
        hidden.clear_results(os.path.join(options.store, "results"))
        last = store.last_run()
    run = last.run + 1
    machine = Machine(policy, seed=run, last_turn=last.last_turn, last_span=last.last_span, pickup=options.pickup)
    memos = last.run > 0 and not options.fresh
    opened = RunOpened(run, options.name, socket.gethostname(), os.getpid(), options.fail_fast, options.policy, memos)
    turn = machine.turn(now, [opened])
    store.append(turn.number, now, turn.facts)
    info = RunInfo(
        run=run,
        store_dir=options.store,
        marker=f"{identity}:{run}",
        first_record=last.last_record + 1,
        first_group=last.last_group + 1,
        first_executor=ExecutorId(last.last_executor + 1),
        memos=memos,
        piggyback=options.piggyback,
        pickup=options.pickup,
    )
    return store, machine, info


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
    closing = Closing(shell, info.run, lambda: _publish(started, info.run, closing=True))
    reception = Reception(shell, closing.close, closing.owner_lost)
    closing.reception = reception
    mark = info.marker.partition(":")[0] + ":"
    supervisor = Supervisor(loop, started.command, started.executor_pid, lambda: _sweep(mark, info))
    closing.supervisor = supervisor
    reception.on_executor_lost.append(supervisor.lost)
    shell.on_turn.append(lambda: supervisor.need() if machine.state.waiting else None)
    loop.set_exception_handler(lambda _, context: closing.fail(internal_error(context)))
    for number in (signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, closing.terminate)
    _publish(started, info.run)
    owner = socket.socket(fileno=started.options.fd)
    await loop.create_unix_connection(lambda: Connection(reception, shell.dirty, trusted=True), sock=owner)
    quotas = Quotas()
    server = Acceptor(started.listener, lambda: Connection(reception, shell.dirty, quotas=quotas), log)
    _watch_parent(loop, started.options.client, closing)
    SpaceWatch(loop, info.store_dir, shell.announce)
    log(f"run {info.run} of {started.options.name} opened in {info.store_dir}")
    gc.freeze()  # what was loaded stays; looking through it again and again is what makes big runs slow
    gc.set_threshold(1_000_000, 50, 100)
    gc.enable()
    code = await closing.finished
    server.close()
    log(f"run {info.run} closed" if code == 0 else f"run {info.run} could not be closed; the next one will recover it")
    return code


def internal_error(context: dict[str, Any]) -> InternalError:
    """What went wrong in a callback: ours, since every error that was foreseen is handled where it arises."""
    error = context.get("exception")
    story = "".join(traceback.format_exception(error)) if error is not None else ""
    return InternalError(f"{context.get('message', 'a callback failed')}: {error}", story)


def _watch_parent(loop: asyncio.AbstractEventLoop, parent: int, closing: Closing) -> None:
    """See that the script lives, also when somebody it forked still holds its end of the connection."""
    if os.getppid() != parent:
        closing.owner_lost()
    else:
        loop.call_later(_LOOK, _watch_parent, loop, parent, closing)


def _publish(started: Started, run: int, *, closing: bool = False) -> None:
    place.publish(
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
    ended = leftovers.end(mark, deadline=2.0)
    hidden.clear(info.folder("out"))
    if ended:
        log(f"{len(ended)} processes that the executor left were ended")


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


def _tell(fd: int, message: Refused | Notice) -> None:
    """Say something to the owner before there is a loop."""
    with socket.socket(fileno=os.dup(fd)) as owner:
        try:
            owner.setblocking(True)
            owner.sendall(frame(message))
        except OSError:
            return  # it is gone
