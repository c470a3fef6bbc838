"""What killed processes left behind: processes, half-written outputs and results.

Everything an executor starts, and the executor itself, has `BOUGH_RUN=<store id>:<run>` in its environment. The holder
of a store's lock may end every process that bears the store's id, except itself, its ancestors and its own children.
Notes of workers name the outputs of commands that they had begun. Rule: processes are ended by number, one by one or by
the group that one of ours leads, never by name; files are deleted only if they have a hidden name and no worker can
still be writing to them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection

VARIABLE = b"BOUGH_RUN="
_EXECUTOR = b"bough.executor"
_TICK = 0.02
SUFFIX = ".hidden"  # of the notes; `bough.executor.worker.commands.command_runner` writes them
_MARK = ".bough-"
_PART = ".part"  # as `bough.executor.worker.serialisation` names them


def find(mark: str, spare: Collection[int] = ()) -> list[int]:
    """Live processes whose environment says BOUGH_RUN=`mark`..., without ours and those to spare."""
    wanted = VARIABLE + os.fsencode(mark)
    ours = {*spare, *_family()}
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in ours:
            continue
        environment = _read(f"/proc/{entry}/environ")
        if wanted in environment and (environment.startswith(wanted) or b"\0" + wanted in environment):
            pid = int(entry)
            if _parent(pid) not in {os.getpid(), -1} and not _is_zombie(pid):
                found.append(pid)
    return found


def end(mark: str, *, patience: float = 0, spare: Collection[int] = (), deadline: float = 10.0) -> list[int]:
    """End what `find` finds and wait until it is gone; return the processes that were there.

    With `patience`, executors among them get that many seconds to end their tasks and spill first.
    """
    seen: set[int] = set()
    pids = find(mark, spare)
    seen.update(pids)
    if patience and any(_is_executor(pid) for pid in pids):
        _wait(lambda: not any(_is_executor(pid) for pid in seen), patience)
    until = time.monotonic() + deadline
    while (pids := find(mark, spare)) and time.monotonic() < until:
        seen.update(pids)
        for pid in pids:
            _kill(pid)
        time.sleep(_TICK)
    return sorted(seen)


def _kill(pid: int) -> None:
    try:
        group = os.getpgid(pid)
        if group not in {0, os.getpgrp()} and group not in _family_groups():
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _wait(done: Callable[[], bool], patience: float) -> None:
    until = time.monotonic() + patience
    while not done() and time.monotonic() < until:
        time.sleep(_TICK)


def _family() -> set[int]:
    """This process and its ancestors."""
    family, pid = set(), os.getpid()
    while pid > 0 and pid not in family:
        family.add(pid)
        pid = _parent(pid)
    return family


def _family_groups() -> set[int]:
    groups = set()
    for pid in _family():
        try:
            groups.add(os.getpgid(pid))
        except (ProcessLookupError, PermissionError):
            continue
    return groups


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, which may itself hold blanks and brackets."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else -1


def is_running(pid: int) -> bool:
    """Whether a process of this machine lives; one that is dead and not buried does not."""
    return bool(_stat(pid)) and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] in {b"Z", b"X"}


def _is_executor(pid: int) -> bool:
    return _EXECUTOR in _read(f"/proc/{pid}/cmdline") and not _is_zombie(pid)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # it has just ended, or is not ours to look at
        return b""


def clear(output_dir: str) -> int:
    """Delete what the notes in a store's output folder name, and the notes; how many outputs there were."""
    count = 0
    for name in _notes(output_dir):
        path = os.path.join(output_dir, name)
        with contextlib.suppress(OSError):
            with open(path, "rb") as file:
                hidden = file.read().split(b"\0")[:-1]
            count += sum(_delete(os.fsdecode(one)) for one in hidden)
            os.unlink(path)
    return count


def clear_results(result_dir: str, older_than: float = 0.0) -> int:
    """Delete half-written results that were last written so many seconds ago; how many there were."""
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(result_dir):
            if not (name.startswith(".") and name.endswith(_PART)):
                continue
            path = os.path.join(result_dir, name)
            with contextlib.suppress(OSError):
                if time.time() - os.lstat(path).st_mtime >= older_than:
                    os.unlink(path)
                    count += 1
    return count


def _notes(output_dir: str) -> list[str]:
    try:
        return [name for name in os.listdir(output_dir) if name.endswith(SUFFIX)]
    except OSError:
        return []


def _delete(path: str) -> bool:
    if not os.path.isabs(path) or not os.path.basename(path).startswith(_MARK):
        return False
    try:
        os.unlink(path)
    except IsADirectoryError:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return False
    return True
