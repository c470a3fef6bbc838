"""Cuts what tasks write into whole lines, each with its task's name before it, as in "plot 12.3 | text".

What `Session(echo=True)` and `bough log -f` print of several tasks at once goes through here. Rules: a line is printed
whole or not yet, so that lines of different tasks are never mixed; what is held back is bounded. Nothing in a name is
obeyed by a terminal; of a line that goes to a terminal only colours are, and they end with the line.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from bough.model.texts.terminal_text import harmless_name, harmless_output

LONGEST = 32 << 10  # bytes of a line; a longer one is cut into several


class TaskLines:
    """Keeps what has no end of line yet, by task and stream."""

    def __init__(self) -> None:
        self._unfinished: dict[Hashable, bytes] = {}

    def add(self, key: Hashable, label: str, data: bytes, *, on_terminal: bool = False) -> Iterator[str]:
        """The lines that are complete now."""
        data = self._unfinished.pop(key, b"") + data
        *lines, rest = data.split(b"\n")
        for line in lines:
            for at in range(0, len(line) or 1, LONGEST):
                yield _shown(label, line[at : at + LONGEST], on_terminal)
        while len(rest) > LONGEST:
            yield _shown(label, rest[:LONGEST], on_terminal)
            rest = rest[LONGEST:]
        if rest:
            self._unfinished[key] = rest

    def end(self, key: Hashable, label: str, *, on_terminal: bool = False) -> Iterator[str]:
        """The last line, if it has no end."""
        rest = self._unfinished.pop(key, b"")
        if rest:
            yield _shown(label, rest, on_terminal)


def label_of_output(name: str, selector: str, attempt: int) -> str:
    """How a task is named before its lines: name and selector, and its attempt if it is not the first."""
    said = f"{harmless_name(name)} {selector}" if name else selector
    return f"{said} (attempt {attempt})" if attempt > 1 else said


def _shown(label: str, line: bytes, on_terminal: bool) -> str:
    """One line; what moves the cursor of a terminal back is taken as a new beginning, as a terminal would show it."""
    last = line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
    return f"{label} | {harmless_output(last) if on_terminal else last.decode('utf-8', 'replace')}"
