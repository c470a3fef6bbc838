"""What is said of a failure below its first line: what was called or run, and the line of code that raised.

The report at a script's end and the display of `bough run` both say it in these words.
Rule: one line each, of bounded length, and none for what is not known.
"""

from __future__ import annotations

import re

from bough.model.texts.terminal_text import harmless

WIDE = 300  # characters of a line
_PLACE = re.compile(r'\s*File "(.*)", line (\d+)(, in .*)?$')


def what_ran(parameters: str, command: str, traceback: str) -> list[str]:
    """The parameters, the command, and the line of code that raised: `code: paint.py:7, in paint: raise ValueError`."""
    code = last_place(traceback)
    said = [("parameters", parameters), ("command", " ".join(command.split())), ("code", code)]
    return [cut(f"{label}: {text}") for label, text in said if text]


def last_place(traceback: str) -> str:
    """The last place that a traceback names, with its line of code if that is there."""
    lines = traceback.splitlines()
    for at in reversed(range(len(lines))):
        if place := _PLACE.match(lines[at]):
            code = lines[at + 1] if at + 1 < len(lines) else ""
            said = f"{place[1]}:{place[2]}{place[3] or ''}"
            return f"{said}: {code.strip()}" if code.startswith("    ") else said
    return ""


def cut(line: str) -> str:
    """A line of which a terminal obeys only colours, shortened if it is very long."""
    return harmless(line if len(line) <= WIDE else f"{line[: WIDE - 3]}...")
