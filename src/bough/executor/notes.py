"""A worker's note of what it is writing: the hidden outputs of the command it runs.

A worker that is killed cannot delete them, and nobody else knows their names. The server reads the notes when
all workers are gone and deletes what they name (`bough.server.hidden`). Rule: the note is written before
the command starts; that it is out of date does no harm, because hidden names are never used twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from bough import private


class Note:
    """One file, made when it is first needed: paths, each ended by a zero byte."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = -1

    def write(self, hidden: Iterable[str]) -> None:
        """Put these paths in place of the earlier ones. A full disk may cost the note, never the command."""
        try:
            if self._number < 0:
                self._number = private.opener(self._path, os.O_WRONLY | os.O_CREAT)
            os.ftruncate(self._number, 0)
            os.pwrite(self._number, b"".join([os.fsencode(path) + b"\0" for path in hidden]), 0)
        except OSError:
            return
