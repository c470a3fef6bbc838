"""How sessions end when the user presses Ctrl-C, when an error leaves their block, or when the script ends without.

One Ctrl-C asks politely: running tasks are ended, the state is kept. A second one stops at once. After an error what
has not started is cancelled and what runs is ended, so that the error shows at once. Rule: whatever happens, the
server's process is gone when these functions return, and its tasks with it; only a service keeps both.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from typing import TYPE_CHECKING

from bough.errors import BoughError

if TYPE_CHECKING:
    from bough.api.session.session import Session

_GRACE = 15.0  # seconds for a server that was told to stop; it gives tasks 5 between TERM and KILL
_NOW = 3.0  # seconds for one that was told to stop at once

_open: list[Session] = []


def shut(session: Session) -> None:
    """Wait for everything and close; Ctrl-C while waiting stops it."""
    try:
        session.drain()
    except KeyboardInterrupt:
        stop(session)
        raise


def abandon(session: Session) -> None:
    """An error left the block: cancel what has not started, and end what runs, so that the error shows."""
    if session.is_over or session.connection.is_forked:
        return
    try:
        with contextlib.suppress(BoughError):  # a server that is gone has nothing left to cancel
            session.cancel_waiting()
    except KeyboardInterrupt:
        stop_now(session)
        return
    _end(session)


def stop(session: Session) -> None:
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


def _end(session: Session) -> None:
    try:
        session.end("stop", _GRACE)
    except KeyboardInterrupt:
        stop_now(session)


def _say(running: int) -> None:
    tasks = "1 running task" if running == 1 else f"{running} running tasks"
    sys.stderr.write(f"stopping: ending {tasks} (press Ctrl-C again to stop at once)\n")
    sys.stderr.flush()


def stop_now(session: Session) -> None:
    """Kill everything; whoever is impatient still now has to wait for the kernel only."""
    try:
        session.end("now", _NOW)
    except KeyboardInterrupt:
        session.end("now", 0)


def at_exit(session: Session) -> None:
    """Remember a session that must be closed when the interpreter ends."""
    if not _open:
        atexit.register(_close_all)
    _open.append(session)


def forget(session: Session) -> None:
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
        if session.is_draining or not _is_interrupted():
            with contextlib.suppress(KeyboardInterrupt):
                shut(session)
        else:
            stop(session)


def _is_interrupted() -> bool:
    """Whether the script ended because of a Ctrl-C that nobody caught."""
    kind = getattr(sys, "last_type", None)
    return isinstance(kind, type) and issubclass(kind, KeyboardInterrupt)
