"""Where the driver's processes run: a session that was chosen, or one of its own, opened at first use.

Rule: a program that only changed its import leaves nothing behind: the driver's own session keeps
its store in a temporary folder that goes with the process; the next program removes that of one that was killed.
`bough run` and $BOUGH_SERVER decide as for any session. A process that fails is the program's to look at, as with
`subprocess`: the driver's own session says nothing of it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from bough.api.session import launch, shutdown
from bough.errors import BoughError, UserError
from bough.private import TemporaryFolder

if TYPE_CHECKING:
    from bough.api.session.session import Session
    from bough.api.submit.submitter import Submitter


class SessionChoice(NamedTuple):
    """A session with options, and what its commands find in their environment."""

    submitter: Submitter
    session: Session
    environment: Mapping[str, str]  # of this process when the session was chosen or opened
    is_near: bool  # processes run on this machine, for this user, and see this process' descriptors


before_exit: list[Callable[[], None]] = []  # what must be done before the driver's own session is closed at exit

_lock = threading.RLock()
_place: SessionChoice | None = None
_owner = 0  # the process that opened or chose it: a forked one needs its own
_is_own = False
_folder: TemporaryFolder | None = None  # of the driver's own session; None: it is to be kept


def use(session: Submitter | None) -> None:
    """Run processes through this session, group or `session.options(...)` from now on; None: the driver's own again."""
    from bough.api.submit.submitter import Submitter

    global _place, _owner, _is_own
    if session is not None and not isinstance(session, Submitter):
        raise UserError(f"use: give a session, a group or session.options(...), not {session!r:.60}")
    with _lock:
        close()
        if session is not None:
            _place, _owner, _is_own = _at(session), os.getpid(), False


def find() -> SessionChoice:
    """The place for a process that is to be started now."""
    global _place, _owner, _is_own
    place = _place
    if place is not None and _owner == os.getpid() and not place.session.is_closed:
        return place
    with _lock:
        place = _place
        if place is None or _owner != os.getpid() or (_is_own and place.session.is_closed):
            place = _place = _at(_open())
            _owner, _is_own = os.getpid(), True
        return place


def close() -> None:
    """Wait for what was submitted, and close the driver's own session; the next process opens another one."""
    global _place, _folder
    with _lock:
        place, _place = _place, None
        if place is None or not _is_own or _owner != os.getpid():
            return
        folder, _folder = _folder, None
        atexit.unregister(_at_exit)
        try:
            place.session.shutdown()
        finally:
            _remove(folder)


def _at(submitter: Submitter) -> SessionChoice:
    session = cast("Session", submitter._session)
    return SessionChoice(submitter, session, dict(os.environ), not session.is_remote and os.path.isdir("/proc/self/fd"))


def _open() -> Session:
    global _folder
    from bough.api.session.session import Session

    if launch.server_address(None) or launch.defaults().options:
        session = Session(on_failure="ignore", echo=False, progress=False)
    else:
        _folder = TemporaryFolder("driver")
        try:
            session = Session(name="driver", store=_folder.make(), on_failure="ignore", echo=False, progress=False)
        except BaseException:
            _remove(_folder)
            raise
    atexit.register(_at_exit)
    return session


def _at_exit() -> None:
    """End processes that nothing waits for; jobs are waited for, unless Ctrl-C ended this process."""
    for do in before_exit:
        do()
    place = _place
    if place is None or _owner != os.getpid():
        return
    with contextlib.suppress(BoughError, KeyboardInterrupt):
        if shutdown.is_interrupted():
            shutdown.stop(place.session)
        else:
            shutdown.shut(place.session)
    _remove(_folder)


def _remove(folder: TemporaryFolder | None) -> None:
    if folder is not None:
        folder.remove()
