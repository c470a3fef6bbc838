"""Declared outputs of a command: written under a hidden name, shown on success, deleted on failure.

Rule: a final name appears only once its command has succeeded with all of its outputs. When two attempts of a task run
at a time, because one was given up too early, the outputs of the one that shows them first stay, and both report the
same files.
"""

from __future__ import annotations

import os
import stat

from bough.model.files import hidden_path
from bough.model.outcomes import Output, kept_time


class Outputs:
    """The outputs of one attempt."""

    def __init__(
        self, writes: dict[str, str], record: int, index: int, attempt: int, known: dict[str, str] | None = None
    ) -> None:
        self._writes = writes
        self._known = known or writes  # as the user knows them
        self.hidden = {slot: hidden_path(path, record, index, attempt) for slot, path in writes.items()}
        self._name = (record, index, attempt)
        self._before: dict[str, tuple[int, int, int] | None] = {}  # what the names stood for when it began

    def prepare(self) -> None:
        """Make parent folders and remove what earlier attempts, or an earlier life of this one, left behind."""
        record, index, attempt = self._name
        for path in self._writes.values():
            self._before[path] = _identity(path)
            folder = os.path.dirname(path)
            if folder and not os.path.isdir(folder):
                os.makedirs(folder, exist_ok=True)
            for earlier in range(1, attempt + 1) if attempt > 1 else ():
                remove(hidden_path(path, record, index, earlier))

    def missing(self) -> list[str]:
        """Outputs that were not written, as "slot (path)"."""
        return [f"{slot} ({self._known[slot]})" for slot, path in self.hidden.items() if not os.path.lexists(path)]

    def show(self) -> tuple[Output, ...]:
        """Give the outputs their names."""
        found = []
        for slot, path in self._writes.items():
            hidden = self.hidden[slot]
            if _identity(path) != self._before.get(path) or not self._give_name(hidden, path):
                remove(hidden)  # another attempt was faster
            state = os.stat(path, follow_symlinks=os.path.exists(path))
            found.append(Output(slot, path, state.st_size, kept_time(state.st_mtime_ns)))
        return tuple(found)

    def _give_name(self, hidden: str, path: str) -> bool:
        """Show one output; False if another attempt has shown it in this moment."""
        if self._before.get(path) is None:  # a new name: making it fails if it has just been made elsewhere
            try:
                os.link(hidden, path, follow_symlinks=False)
            except FileExistsError:
                return False
            except OSError:  # a folder, or a file system without links
                pass
            else:
                os.unlink(hidden)
                return True
        try:
            os.replace(hidden, path)
        except OSError:
            if not os.path.isdir(hidden) and not os.path.isdir(path):
                raise
            remove(path)
            os.replace(hidden, path)
        return True

    def discard(self) -> None:
        """Delete what a failed attempt wrote."""
        for path in self.hidden.values():
            remove(path)


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
    except OSError:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            import shutil

            shutil.rmtree(path, ignore_errors=True)
