"""Doing something in the main thread that no signal may interrupt half-way.

Python runs signal handlers in the main thread between any two steps, and Ctrl-C raises there: what was received and
not yet passed on would be lost. `_signal` is `signal` without wrappers that take longer than what is done here. Rule: a
signal that comes meanwhile is handled right afterwards, as it would have been.
"""

from __future__ import annotations

import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
_NAMES = ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGXCPU", "SIGVTALRM", "SIGPROF")
_NUMBERS = tuple(int(getattr(signal, name)) for name in (*_NAMES, "SIGINT"))  # those whose handlers may raise


def undisturbed(action: Callable[[], T]) -> T:
    """Do it; handlers of signals that come meanwhile are called after it."""
    if threading.current_thread() is not threading.main_thread():
        return action()  # Python runs no handlers here
    handlers = {number: handler for number in _NUMBERS if callable(handler := getsignal(number))}
    came: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))

    try:
        for number in handlers:
            set_handler(number, note)
        return action()
    finally:
        for number, handler in handlers.items():
            set_handler(number, handler)
        for number, frame in came:
            handlers[number](number, frame)
