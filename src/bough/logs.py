"""The log of a server, a relay and an executor: one line for each event, with its level and a name that stays.

A line reads `2026-11-16 15:25:44 info executor-joined: executor 3 joined: ...`: time, level, event, and a sentence for
people. Search a log by the event; docs/reference/log.md lists every event and what to do about it, and a test compares
that page with the calls in the source. Lines go to standard error, which a session or `--detach` sends to a file.
$BOUGH_LOG or `--log-level` say from which level on lines are written.

Rules: what cannot be logged (a full disk, a closed descriptor) is dropped, and no error leaves this module. A text of
several lines, such as a traceback, is indented below its event, so that no text from outside looks like an event of its
own. A line that was written less than a minute ago is counted, not written again; the count follows when the minute is
over. Not the standard library's `logging`: an embedded server would load it for 6 ms and more, where this takes 0.2 ms,
and a session waits for its server. One line for an event worth knowing a year later, never one for each task.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LEVELS: Final = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
VARIABLE: Final = "BOUGH_LOG"

_NAMES: Final = {number: name for name, number in LEVELS.items()}
_QUIET: Final = 60.0  # seconds in which a line is not written a second time
_MOST_KNOWN: Final = 256  # lines of which it is known when they were written

_level = LEVELS.get(os.environ.get(VARIABLE, ""), INFO)
# When a line was written, and how often it came since. Changed by single operations, which threads may do at once.
_known: dict[tuple[int, str, str], tuple[float, int]] = {}


def set_level(name: str) -> None:
    """Write lines of this level and above; ValueError when there is no such level."""
    global _level
    if name not in LEVELS:
        raise ValueError(f"there is no level {name!r}; there are: {', '.join(LEVELS)}")
    _level = LEVELS[name]


def is_on(level: int) -> bool:
    """Whether lines of a level are written: asked before a text is made that costs something."""
    return level >= _level


def debug(event: str, text: str) -> None:
    """What only somebody who looks for a fault wants to know."""
    if _level <= DEBUG:
        _write(DEBUG, event, text)


def info(event: str, text: str) -> None:
    """What happened in good order."""
    if _level <= INFO:
        _write(INFO, event, text)


def warning(event: str, text: str) -> None:
    """What went wrong and was dealt with: work continues, perhaps more slowly or elsewhere."""
    if _level <= WARNING:
        _write(WARNING, event, text)


def error(event: str, text: str) -> None:
    """What went wrong and needs an operator, or is a bug of Bough."""
    _write(ERROR, event, text)


def reporter(event: str, level: int = INFO) -> Callable[[str], None]:
    """A function of a text that logs it as this event: for modules that are given a way to report."""

    def report(text: str) -> None:
        if level >= _level:
            _write(level, event, text)

    return report


def line(level: int, event: str, text: str) -> str:
    """The line for an event, with its line feed: for a process that writes it to a descriptor itself."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"{stamp} {_NAMES[level]} {event}: {_indented(text)}\n"


def message_of(written: str) -> str:
    """The sentence of a line of a log; a line that is not of this form is returned as it is."""
    head, colon, sentence = written.partition(": ")
    words = head.split(" ")
    return sentence if colon and len(words) == 4 and words[2] in LEVELS else written


def flush() -> None:
    """Write what was counted and not yet said: called before a process ends without taking itself apart."""
    _say_counted(float("inf"))


def _write(level: int, event: str, text: str) -> None:
    key = (level, event, text)
    now = time.monotonic()
    if _known:
        _say_counted(now)
        if (found := _known.get(key)) is not None:
            _known[key] = (found[0], found[1] + 1)
            return
        if len(_known) >= _MOST_KNOWN:
            _say_counted(float("inf"))
    _known[key] = (now, 0)
    _put(line(level, event, text))


def _say_counted(now: float) -> None:
    """Forget lines that were written a minute ago; say how often each came since."""
    for key, (written, count) in list(_known.items()):
        if now - written < _QUIET:
            return  # they are in order of time: those behind it are younger
        if _known.pop(key, None) is not None and count:
            _put(line(key[0], key[1], f"{key[2]} ({count} more of these)"))


def _indented(text: str) -> str:
    """A text of which only the first line begins at the margin, and which cannot move the cursor of a terminal."""
    lines = text.rstrip().splitlines() or [""]
    return "\n    ".join(one if one.isprintable() else _printable(one) for one in lines)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode() for one in text)


def _put(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # a full disk or a closed stderr must not end a process because of a log line
