"""What runs left on the disk that nothing can ask for any more: files of results, arguments and outputs, and records.

Files go when the next run begins, in a thread. Records of the last runs stay for people to look at; when there are
many, the oldest are removed. Arguments of tasks go as soon as their script is gone. Rule: only files go whose names say
that such a run made them; files of users are never touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from typing import Final

from bough import logs
from bough.errors import StoreFailed
from bough.model.events.facts import RunRemoved
from bough.model.ids import Seconds
from bough.server import cleanup
from bough.stores.expendable_runs import ExpendableRuns, ScriptRun
from bough.stores.store import Store

KEPT: Final = 20  # runs that nothing can ask for and whose records stay
MOST: Final = 40  # when there are so many, the oldest go
_BUDGET: Final = 0.1  # seconds that removing records may take before a run begins; the next one continues
_ELSEWHERE: Final = 86_400.0  # seconds after its end in which a script of another host is taken to live
_RECORD: Final = re.compile(r"(\d+)[-.]")  # how files of results and arguments begin
_ARGUMENTS: Final = ".pickle"
_OURS: Final = (_ARGUMENTS, ".inputs")
_EXECUTOR: Final = re.compile(r"x(\d+)-")  # how files of outputs do


def is_alive(opened: ScriptRun) -> bool:
    """Whether the process that opened a run may still ask for its results."""
    if opened.host != socket.gethostname():
        return time.time() - opened.closed < _ELSEWHERE
    pid = opened.script.partition(".")[0]
    return pid.isdecimal() and cleanup.is_running(int(pid))


def remove_old_runs(store: Store, last_turn: int, now: Seconds, old: ExpendableRuns) -> bool:
    """Remove records of the oldest runs, if there are many; whether the journal has grown by that."""
    gone = old.runs[:-KEPT] if len(old.runs) >= MOST else ()
    if gone:
        store.append(last_turn + 1, now, [RunRemoved(run) for run in gone])
    until = time.monotonic() + _BUDGET
    try:
        while not store.remove_runs(give_back=False) and time.monotonic() < until:
            pass
    except StoreFailed as error:
        logs.warning("old-runs-stay", f"records of old runs could not be removed: {error}")
    store.forgotten_files()  # they are gone, or are named by numbers that `delete_files` knows
    return bool(gone)


def delete_files(folder: str, old: ExpendableRuns) -> None:
    """Delete the files of old runs in a store, in a thread: deleting big ones takes time."""
    if old.ended:
        threading.Thread(target=_delete_files, args=(folder, old), name="old-files", daemon=True).start()


def _delete_files(folder: str, old: ExpendableRuns) -> None:
    count = 0
    for name in ("results", "args", "out"):
        with contextlib.suppress(OSError):
            for entry in os.scandir(os.path.join(folder, name)):
                is_ours = entry.is_file(follow_symlinks=False) or entry.is_symlink()  # results in memory are links
                if is_ours and _is_old(name, entry.name, old):
                    os.unlink(entry.path)
                    count += 1
    if count:
        logs.info("old-files-deleted", f"{count} files of earlier runs were deleted")


def _is_old(folder: str, name: str, old: ExpendableRuns) -> bool:
    made_by = _EXECUTOR.match(name)
    if made_by is not None:
        return int(made_by[1]) in old.executors
    record = _RECORD.match(name)
    if record is None or not name.endswith(_OURS):
        return False  # digests of outputs stay, by which later runs know the workflow's own files
    ranges = old.ended if folder == "args" and name.endswith(_ARGUMENTS) else old.records
    return any(first <= int(record[1]) <= last for first, last in ranges)
