"""Which store a session gets that was given neither a name nor a store, and what becomes of it at the script's end.

Its store is `.bough/NAME`. While another process, or another session of this one, has that store, the session gets an
*extra* store: `.bough/NAME+2`, `.bough/NAME+3` and so on. A script that was interrupted in an extra store finds it
again by its arguments. When the script ends, extra stores are removed, except those with unfinished work; these are
removed a week later.

Rules: a session that was given its name never gets another store. A store is removed by the process that holds its
lock, and only if its name is one that this module makes. What the script's tasks left stays until the script ends,
because its futures can still be asked.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from bough import private
from bough.errors import BoughError
from bough.stores.folder.store_lock import StoreLock, is_held
from bough.stores.folder.unfinished_note import UnfinishedNote, read_note, write_note

_EXTRA: Final = re.compile(r"(?P<name>.+)\+(?P<number>[2-9]|[1-9]\d+)")
_OWNER: Final = "owner"  # the process whose extra store it is: it may read there until it ends
_KEPT: Final = 7 * 86_400.0  # seconds that an extra store with unfinished work is kept
_BEGUN = time.time_ns()


class StoreLocation(NamedTuple):
    """What a session is called, and where its store is."""

    name: str
    store: str  # absolute


def script_run() -> str:
    """This process, and when it began: sessions that it opens one after the other belong to one run of a script."""
    return f"{os.getpid()}.{_BEGUN}"


def _note() -> UnfinishedNote:
    arguments = "\0".join(map(str, sys.argv[1:]))
    return UnfinishedNote(script_run(), arguments.replace("\n", " ")[:10_000])


# --- choosing -------------------------------------------------------------------------------------------


def choose_store(place: StoreLocation, refused: frozenset[str] = frozenset()) -> StoreLocation:
    """The place of a session without a given name: its own, or an extra one if that is taken.

    `refused` are stores that another process took meanwhile.
    """
    extras = list(_extras(place))
    if not refused and not extras and not _is_taken(place.store):
        return place
    free = [one for one in (place, *extras) if one.store not in refused and not _is_taken(one.store)]
    mine = _note().arguments
    left = {one: note for one in free if (note := read_note(one.store)) is not None}
    for one, note in left.items():
        if note.arguments == mine:
            return one
    for one in free:
        if one == place or one not in left:
            return one
    return next(one for one in _new_places(place) if one.store not in refused)


def _is_taken(store: str) -> bool:
    """Whether a live session has a store. One that is about to leave has not: its store is waited for."""
    if not is_held(store):
        return _has_other_owner(store)
    from bough.server import cleanup, socket_path  # late: this is rare

    said = socket_path.published(store)
    client = said.get("client")
    if said.get("closing"):
        return False
    return not isinstance(client, int) or not _is_here(said.get("host")) or cleanup.is_running(client)


def _is_here(host: object) -> bool:
    import socket

    return host == socket.gethostname()


def _has_other_owner(store: str) -> bool:
    try:
        with open(os.path.join(store, _OWNER), encoding="utf-8") as file:
            pid, host = file.read(1000).split()
    except (OSError, ValueError):
        return False
    if int(pid) == os.getpid() or not _is_here(host):
        return False
    from bough.server import cleanup

    return cleanup.is_running(int(pid))


def _extras(place: StoreLocation) -> Iterator[StoreLocation]:
    """The extra stores of a name that are there, in the order of their numbers."""
    home = os.path.dirname(place.store)
    found: list[int] = []
    with contextlib.suppress(OSError):
        for entry in os.listdir(home):
            parts = _EXTRA.fullmatch(entry)
            if parts is not None and parts["name"] == place.name:
                found.append(int(parts["number"]))
    for number in sorted(found):
        yield _numbered(place, number)


def _new_places(place: StoreLocation) -> Iterator[StoreLocation]:
    number = 2
    while True:
        one = _numbered(place, number)
        if not os.path.exists(one.store):
            yield one
        number += 1


def _numbered(place: StoreLocation, number: int) -> StoreLocation:
    name = f"{place.name}+{number}"
    return StoreLocation(name, os.path.join(os.path.dirname(place.store), name))


# --- a session's time -----------------------------------------------------------------------------------


class OpenedStore:
    """A store that a session of this process has, or had."""

    def __init__(self, place: StoreLocation, *, is_extra: bool) -> None:
        self.place = place
        self.is_extra = is_extra
        self.pid = os.getpid()
        write_note(place.store, _note())
        if is_extra:
            import socket

            path = os.path.join(place.store, _OWNER)
            with contextlib.suppress(OSError), open(path, "wb", opener=private.opener) as file:
                file.write(f"{self.pid} {socket.gethostname()}\n".encode())
        _opened[place.store] = self


_opened: dict[str, OpenedStore] = {}


def at_script_end() -> None:
    """What becomes of the stores of this process, whose sessions have all ended."""
    raised = script_raised()
    for store, opened in list(_opened.items()):
        if opened.pid != os.getpid():  # we were forked
            continue
        del _opened[store]
        note = read_note(store)
        if note is None and raised and os.path.isdir(store) and not is_held(store):
            write_note(store, _note())
        elif note is None and opened.is_extra:
            remove_store(store)
        elif note is not None and not raised and note.script == script_run():
            write_note(store, note._replace(script=""))  # the script came to its end: only its last session did not
        if not opened.is_extra:
            remove_old_extras(opened.place)


def script_raised() -> bool:
    """Whether an error that the script did not catch ends this process."""
    main = sys.modules.get("__main__")
    trace = getattr(sys, "last_traceback", None)
    if main is None or hasattr(sys, "ps1"):  # a person types the commands: an error ends nothing
        return False
    while trace is not None:  # test runners set it, too, for errors that they caught
        if trace.tb_frame.f_code.co_name == "<module>" and trace.tb_frame.f_globals is vars(main):
            return True
        trace = trace.tb_next
    return False


_is_registered = False


def register_once() -> None:
    """See to the stores when the script ends: after its sessions, if this is called before the first one is opened."""
    global _is_registered
    if not _is_registered:
        _is_registered = True
        atexit.register(at_script_end)


# --- removing -------------------------------------------------------------------------------------------


def remove_old_extras(place: StoreLocation) -> None:
    """Remove extra stores whose script is gone, if they have no unfinished work or are old."""
    for one in _extras(place):
        if _is_taken(one.store):
            continue
        try:
            age = time.time() - os.stat(os.path.join(one.store, "lock")).st_mtime
        except OSError:
            continue
        if age > (_KEPT if read_note(one.store) is not None else 60.0):  # one that is being made may have no note yet
            remove_store(one.store)


def remove_store(store: str) -> bool:
    """Remove a store that no process holds; whether it was."""
    import shutil

    try:
        lock = StoreLock(store)
    except BoughError:
        return False
    try:
        hidden = os.path.join(os.path.dirname(store), f".removed-{os.getpid()}-{os.urandom(4).hex()}")
        os.rename(store, hidden)  # from here on nobody can take it
        shutil.rmtree(hidden, ignore_errors=True)
    except OSError:
        return False
    finally:
        lock.release()
    return True
