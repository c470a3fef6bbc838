"""What tasks wrote, on its way to a person: `bough log`, `bough log -f`, and `bough run` of commands.

Rule: a file or a pipe gets the bytes of the task. On a terminal colours, tabs and carriage returns stay; all that could
clear the screen, move the cursor to another line or set the title is shown as text, as `less -R` does.
"""

from __future__ import annotations

from typing import TextIO

from bough.model.texts.terminal_text import TerminalFilter


class OutputWriter:
    """Writes to standard output or standard error, at once."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._filter = TerminalFilter() if file.isatty() else None

    def write(self, data: bytes) -> None:
        """Write a piece, which may end anywhere."""
        if not data:
            return
        if self._filter is not None:
            self._print(self._filter.add(data))
        else:
            self._file.flush()
            self._file.buffer.write(data)
            self._file.flush()

    def end(self) -> None:
        """What follows belongs to another task or line."""
        if self._filter is not None:
            self._print(self._filter.end())

    def _print(self, text: str) -> None:
        if text:
            encoding = self._file.encoding or "utf-8"
            self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._file.flush()
