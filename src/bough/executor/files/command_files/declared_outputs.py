"""Declared outputs of a command: written under a hidden name, shown on success, deleted on failure.

Rules: a final name appears only once its command has succeeded with all of its outputs. When two attempts of a task run
at a time, as a replica or because one was given up too early, the outputs of the one that shows them first stay, and
both report the same files: all of one attempt, if it gets to show all of them. A file that anybody else wrote there
while the command ran is replaced, as any program would do that writes there, and never reported as the command's own.

An attempt signs what it shows (an extended attribute: task, size and time), so that another attempt knows it from a
stranger's file. Where a file system keeps no such attributes, the same bytes are proof enough.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Sequence

from bough.executor.host.disk_space_wait import lacks_space
from bough.folder_state import folder_state
from bough.model.files import hidden_path, matches
from bough.model.outcomes import Output, kept_time

_SIGNATURE = "user.bough.task"
_LONGEST = 4096  # characters of a path that the kernel takes
_SHOWING = 2.0  # seconds in which an attempt that has shown an output shows its next one
_LOOK = 0.005


class Outputs:
    """The outputs of one attempt."""

    def __init__(
        self,
        writes: dict[str, str],
        record: int,
        index: int,
        attempt: int,
        *,
        known: tuple[dict[str, str], Sequence[str]] | None = None,
        mark: bytes = b"",
        in_place: Collection[str] = (),
        patterns: Sequence[str] = (),
        is_replica: bool = False,
    ) -> None:
        """`in_place`: slots that the command writes by itself, without a hidden name; `patterns`: see `gathered`.

        `known`: files and patterns as the user knows them, if they lie elsewhere here.
        """
        self._writes = writes
        self._known, self._known_patterns = known or (writes, patterns)  # as the user knows them
        self._in_place = in_place
        self._patterns = patterns
        self._there: dict[str, tuple[int, int, int] | None] = {}  # what matched the patterns before the command ran
        self.hidden = {
            slot: path if slot in in_place else hidden_path(path, record, index, attempt)
            for slot, path in writes.items()
        }
        self._name = (record, index, attempt)
        self._is_replica = is_replica  # the attempts before it may be running
        self._mark = mark  # of the run: tasks of two workflows may have one number
        self._before: dict[str, tuple[int, int, int] | None] = {}  # what the names stood for when it began

    def prepare(self) -> None:
        """Make parent folders and remove what earlier attempts, or an earlier life of this one, left behind.

        The attempts before a replica are still writing.
        """
        record, index, attempt = self._name
        if self._patterns:
            self._there = {path: _identity(path) for path in self._matching()}
        for slot, path in self._writes.items():
            if slot in self._in_place and not os.path.isdir(path):
                remove(path)  # of an earlier run or attempt: what is there at the end is the command's
            self._before[path] = _identity(path)
            folder = os.path.dirname(path)
            if len(folder) > _LONGEST:  # `makedirs` calls itself for each folder of it
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), folder[:100])
            if folder and not os.path.isdir(folder):
                os.makedirs(folder, exist_ok=True)
            first = attempt if self._is_replica else 1
            for earlier in range(first, attempt + 1) if attempt > 1 and slot not in self._in_place else ():
                remove(hidden_path(path, record, index, earlier))

    def noted(self) -> list[str]:
        """Hidden names, which mean nothing to others and may be deleted at any time when the attempt is over."""
        return [path for slot, path in self.hidden.items() if slot not in self._in_place]

    def _matching(self) -> Iterator[str]:
        from bough.movers.local import expand  # few commands have patterns

        for pattern in self._patterns:
            yield from expand(pattern)

    def gathered(self) -> list[str]:
        """What matches the patterns and was made or changed since the command began."""
        declared = {*self._writes.values()}
        found = dict.fromkeys(path for path in self._matching() if path not in declared)
        return [path for path in found if _identity(path) not in (None, self._there.get(path))]

    def missing(self) -> list[str]:
        """Outputs that were not written, as "slot (path)"; a slot that was made of its path says nothing."""
        if self._patterns:
            made = self.gathered()
            nameless = [path for path in made if not _can_be_told(path)]
            if nameless:
                return [f"{os.path.basename(one)!a} under a name that is valid Unicode" for one in nameless]
            pairs = zip(self._patterns, self._known_patterns, strict=True)
            empty = [known for one, known in pairs if not any(matches(path, one) for path in made)]
            if empty:
                return [f"{os.path.basename(one)} (no new file matches {one})" for one in empty]
        gone = [(slot, str(self._known[slot])) for slot, path in self.hidden.items() if not os.path.lexists(path)]
        return [path if _slot_of(os.path.basename(path)) in slot else f"{slot} ({path})" for slot, path in gone]

    def full_folder(self) -> str:
        """A folder of an output whose disk is full now, with what was written there; empty if none is."""
        folders = {os.path.dirname(path) for path in self.hidden.values()}
        return next((folder for folder in sorted(folders) if lacks_space(folder)), "")

    def show(self) -> tuple[Output, ...]:
        """Give the outputs their names."""
        found = []
        is_late = False  # another attempt is showing its outputs, which belong together
        for slot, path in self._writes.items():
            hidden = self.hidden[slot]
            if slot in self._in_place:
                found.append(_output(slot, path))
                continue
            # Looked at before it has its name: what is written over it from then on is not the command's.
            state = os.stat(hidden, follow_symlinks=os.path.exists(hidden))
            self._sign(hidden)
            faster = (
                self._shown_by_another(hidden, path)
                if self._is_new(path, within=_SHOWING if is_late else 0.0)
                else None
            )
            faster = faster or self._give_name(hidden, path)
            if faster:
                is_late = True
                remove(hidden)
                state = faster
            if stat.S_ISDIR(state.st_mode):
                found.append(_output(slot, path))
                continue
            found.append(Output(slot, path, state.st_size, kept_time(state.st_mtime_ns)))
        found += [_output(path, path) for path in self.gathered()]
        return tuple(found)

    def _is_new(self, path: str, *, within: float) -> bool:
        """Whether something came to a path while the command ran, or comes within some seconds."""
        end = time.monotonic() + within
        while _identity(path) in (None, self._before.get(path)):  # the command may have removed what was there
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK)
        return True

    def _signature(self, state: os.stat_result) -> bytes:
        """What says that a file, as it is now, is this task's output."""
        record, index, _ = self._name
        return b"%b %d.%d %d %d" % (self._mark, record, index, state.st_size, state.st_mtime_ns)

    def _sign(self, hidden: str) -> None:
        with contextlib.suppress(OSError):  # a link, a file without the right to write, no room, no such attributes
            os.setxattr(hidden, _SIGNATURE, self._signature(os.lstat(hidden)), follow_symlinks=False)

    def _shown_by_another(self, hidden: str, path: str) -> os.stat_result | None:
        """The state of a file that came while the command ran, if it is as good as ours: another attempt was faster."""
        try:
            state = os.lstat(path)
            with contextlib.suppress(OSError):
                if os.getxattr(path, _SIGNATURE, follow_symlinks=False) == self._signature(state):
                    return state
            own = os.lstat(hidden)
            if not (stat.S_ISREG(state.st_mode) and stat.S_ISREG(own.st_mode) and state.st_size == own.st_size):
                return None
            import filecmp

            return state if filecmp.cmp(hidden, path, shallow=False) else None
        except OSError:
            return None

    def _give_name(self, hidden: str, path: str) -> os.stat_result | None:
        """Show one output; or the state of what another attempt has shown in this moment."""
        if self._before.get(path) is None:  # a new name: making it fails if it has just been made elsewhere
            try:
                os.link(hidden, path, follow_symlinks=False)
            except FileExistsError:
                faster = self._shown_by_another(hidden, path)
                if faster:
                    return faster
            except OSError:  # a folder, or a file system without links
                pass
            else:
                os.unlink(hidden)
                return None
        try:
            os.replace(hidden, path)
        except OSError:
            if not os.path.isdir(hidden) and not os.path.isdir(path):
                raise
            now, before = _identity(path), self._before.get(path)
            if now and (before is None or now[0] != before[0]):
                raise  # a stranger's folder, with all that may be in it, is not deleted
            remove(path)
            os.replace(hidden, path)
        return None

    def discard(self) -> None:
        """Delete what a failed attempt wrote."""
        for path in (*self.hidden.values(), *self.gathered()):
            remove(path)


def _output(slot: str, path: str) -> Output:
    """What is said of an output that has its name already."""
    if os.path.isdir(path):
        size, latest = folder_state(path)
        return Output(slot, path, size, kept_time(latest), folder=True)
    state = os.stat(path)
    return Output(slot, path, state.st_size, kept_time(state.st_mtime_ns))


def _identity(path: str) -> tuple[int, int, int] | None:
    """What tells a file from one that came in its place; None: there is none."""
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def remove(path: str) -> None:
    """Delete a file or a folder that may not be there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:  # it is a folder, or a path that cannot be: too long, or below a file
        if os.path.isdir(path):
            import shutil

            shutil.rmtree(path, ignore_errors=True)


def _can_be_told(path: str) -> bool:
    """Whether a path can be sent and stored."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _slot_of(name: str) -> str:
    """A file's name as part of a slot's."""
    return re.sub(r"\W", "_", name)
