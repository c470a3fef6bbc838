"""How sessions end when the user presses Ctrl-C, when an error leaves their block, or when the script ends.

One Ctrl-C asks politely: running tasks are ended, the state is kept. A second one stops at once. After an error the
session cancels what has not started and ends what runs, so that the error shows at once. Failures that the script did
not look at are told whenever a session ends.

Rule: whatever happens, the server's process is gone when these functions return, and its tasks with it; only a
service keeps both.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
from typing import TYPE_CHECKING, Protocol

from bough.errors import BoughError, UserError
from bough.model.texts.plurals import counted

if TYPE_CHECKING:
    from bough.api.client.connection import Connection
    from bough.api.futures.progress import Progress
    from bough.wire.client_messages import Farewell

_GRACE = 15.0  # seconds for a server that was told to stop; it gives tasks 5 between TERM and KILL
_NOW = 3.0  # seconds for one that was told to stop at once


class OpenSession(Protocol):
    """What is asked of a session here."""

    name: str
    address: str
    connection: Connection
    is_over: bool
    is_draining: bool

    @property
    def is_remote(self) -> bool:
        """Whether its server is a service."""

    @property
    def progress(self) -> Progress:
        """Counts of its tasks."""

    def drain(self) -> None:
        """Wait for the end of everything and close in good order."""

    def end(self, how: Farewell, timeout: float) -> None:
        """Tell the server to stop."""

    def give_back(self) -> None:
        """Leave the tasks to a service."""

    def cancel_waiting(self) -> None:
        """Cancel what has not started."""

    def tell_failures(self) -> None:
        """Tell the failures that the script did not look at."""


_open: list[OpenSession] = []


def shut(session: OpenSession) -> None:
    """Wait for everything and close; Ctrl-C while waiting stops it."""
    try:
        session.drain()
    except KeyboardInterrupt:
        stop(session)
        raise
    session.tell_failures()


def abandon(session: OpenSession) -> None:
    """An error left the block: cancel what has not started, and end what runs, so that the error shows."""
    if session.is_over or session.connection.is_forked:
        return
    try:
        cancel_waiting(session)
    except KeyboardInterrupt:
        stop_now(session)
        return
    _end(session)


def cancel_waiting(session: OpenSession) -> None:
    """Cancel what has not started; a server that is gone has nothing left to cancel."""
    with contextlib.suppress(BoughError):
        session.cancel_waiting()


def stop(session: OpenSession) -> None:
    """End running tasks and close, keeping the state."""
    if session.is_over or session.connection.is_forked:
        return
    if session.is_remote:
        session.give_back()
        return
    running = session.progress.counts()["running"]
    if session.progress.left():
        _say(running)
    _end(session)


def _end(session: OpenSession) -> None:
    try:
        session.end("stop", _GRACE)
    except KeyboardInterrupt:
        stop_now(session)


def _say(running: int) -> None:
    sys.stderr.write(f"stopping: ending {counted(running, 'running task')} (press Ctrl-C again to stop at once)\n")
    sys.stderr.flush()


def stop_now(session: OpenSession) -> None:
    """Kill everything; after another Ctrl-C wait for the kernel only."""
    try:
        session.end("now", _NOW)
    except KeyboardInterrupt:
        session.end("now", 0)


def refuse_twice(name: str, address: str) -> None:
    """Refuse a second session of a service's workflow in this process."""
    for other in _open:
        if (other.name, other.address) == (name, address) and not other.is_over and not other.connection.ended.is_set():
            raise UserError(
                f"the workflow {name!r} has a session already in this process: pid {os.getpid()} on host"
                f" {socket.gethostname()}; close it, or choose another name"
            )


def at_exit(session: OpenSession) -> None:
    """Remember a session that must be closed when the interpreter ends."""
    if not _open:
        atexit.register(_close_all)
    _open.append(session)


def forget(session: OpenSession) -> None:
    """A session is closed."""
    if session in _open:
        _open.remove(session)
    if not _open:
        atexit.unregister(_close_all)


def _close_all() -> None:
    for session in tuple(_open):
        if session.connection.is_forked:
            continue
        # As with other executors, what was submitted is waited for. Ctrl-C may have ended the script, or come now.
        if session.is_draining or not is_interrupted():
            with contextlib.suppress(KeyboardInterrupt):
                shut(session)
        else:
            stop(session)


def is_interrupted() -> bool:
    """Whether the script ended because of a Ctrl-C that it did not catch."""
    kind = getattr(sys, "last_type", None)
    return isinstance(kind, type) and issubclass(kind, KeyboardInterrupt)
